//! From a long list that fails to a short one.

/// Leaves out whatever is not needed for `fails`, first in large parts, then one by one, as often as `fails` may be
/// asked. What is left fails; if there were enough asks, nothing of it can be left out alone.
pub(crate) fn shrink<T: Clone>(all: Vec<T>, mut asks: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut rest = all;
    let mut part = rest.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        let before = rest.len();
        while at < rest.len() {
            if asks == 0 {
                return rest;
            }
            asks -= 1;
            let end = (at + part).min(rest.len());
            let without: Vec<T> = rest[..at].iter().chain(&rest[end..]).cloned().collect();
            if fails(&without) {
                rest = without;
            } else {
                at = end;
            }
        }
        // One by one until nothing more can go.
        part = if part > 1 { part / 2 } else { usize::from(rest.len() < before) };
    }
    rest
}

#[test]
fn what_is_left_is_what_is_needed() {
    let needed = |list: &[u32]| list.contains(&3) && list.contains(&77);
    assert_eq!(shrink((0..100).collect(), 1_000, needed), [3, 77]);
    assert_eq!(shrink(vec![1, 2, 3], 1_000, |_| true), [0_u32; 0]);
}

#[test]
fn without_asks_all_is_left() {
    assert_eq!(shrink(vec![1, 2, 3], 0, |_| true), [1, 2, 3]);
}

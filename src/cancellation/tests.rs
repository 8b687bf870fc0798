use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;

use futures_lite::future::{block_on, poll_once, zip};

use super::*;

/// Longer than any of these tests may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn children(token: &CancellationToken) -> usize {
    token.node.lock().children.len()
}

fn hooks(token: &CancellationToken) -> usize {
    token.node.lock().hooks.len()
}

/// A hook that counts its calls.
fn counter() -> (Arc<AtomicUsize>, Callback) {
    let count = Arc::new(AtomicUsize::new(0));
    let inner = Arc::clone(&count);
    (count, Box::new(move || _ = inner.fetch_add(1, Ordering::SeqCst)))
}

#[test]
fn tokens_and_futures_cross_threads_and_borrow_nothing() {
    fn crosses<T: Send + Sync + Unpin + 'static>() {}
    crosses::<CancellationToken>();
    crosses::<Cancelled>();
    crosses::<Hook>();
}

#[test]
fn a_new_token_is_not_cancelled() {
    let token = CancellationToken::default();
    assert!(!token.is_cancelled());
    assert_eq!(token.reason(), None);
    assert!(!token.wait_timeout(Duration::ZERO));
    assert_eq!(block_on(poll_once(token.cancelled())), None);
    assert_eq!(format!("{token:?}"), "CancellationToken { reason: None, .. }");
}

#[test]
fn cancelling_reaches_clones_and_says_shutdown() {
    let token = CancellationToken::new();
    let clone = token.clone();
    token.cancel();
    assert_eq!(clone.reason(), Some(CancelReason::Shutdown));
    clone.wait();
    assert!(clone.wait_timeout(Duration::MAX));
    block_on(clone.cancelled());
}

#[test]
fn the_first_reason_stays() {
    let token = CancellationToken::new();
    token.cancel_because(CancelReason::ClaimLost);
    token.cancel();
    assert_eq!(token.reason(), Some(CancelReason::ClaimLost));
    for reason in CancelReason::ALL {
        assert_eq!(CancelReason::of(reason.code()), Some(reason));
        assert_ne!(reason.code(), LIVE);
    }
}

#[test]
fn threads_and_futures_that_wait_are_all_woken() {
    let token = CancellationToken::new();
    let (ready, waiting) = mpsc::channel();
    thread::scope(|scope| {
        for style in 0..9 {
            let (token, ready) = (token.clone(), ready.clone());
            scope.spawn(move || {
                ready.send(()).unwrap();
                match style % 3 {
                    0 => token.wait(),
                    1 => assert!(token.wait_timeout(PATIENCE)),
                    _ => drop(block_on(zip(token.cancelled(), token.cancelled()))),
                }
            });
        }
        waiting.iter().take(9).for_each(drop);
        token.cancel();
    });
}

#[test]
fn a_wait_gives_up_after_its_time() {
    let token = CancellationToken::new();
    assert!(!token.wait_timeout(Duration::from_millis(5)));
}

#[test]
fn a_future_that_was_polled_before_completes_after_and_stays_complete() {
    let token = CancellationToken::new();
    let mut cancelled = token.cancelled();
    assert_eq!(block_on(poll_once(&mut cancelled)), None);
    token.cancel();
    assert_eq!(block_on(poll_once(&mut cancelled)), Some(()));
    assert_eq!(block_on(poll_once(&mut cancelled)), Some(()));
}

#[test]
fn a_future_outlives_the_tokens_that_it_came_from() {
    let parent = CancellationToken::new();
    let mut cancelled = parent.child_token().cancelled();
    assert_eq!(block_on(poll_once(&mut cancelled)), None);
    parent.cancel();
    block_on(cancelled);
}

#[test]
fn a_child_is_cancelled_with_its_parent_but_not_the_other_way_round() {
    let parent = CancellationToken::new();
    let (alone, both) = (parent.child_token(), parent.child_token());
    alone.cancel_because(CancelReason::TimedOut);
    assert!(!parent.is_cancelled() && !both.is_cancelled());
    parent.cancel_because(CancelReason::Requested);
    assert_eq!(alone.reason(), Some(CancelReason::TimedOut));
    assert_eq!(both.reason(), Some(CancelReason::Requested));
    assert_eq!(parent.child_token().reason(), Some(CancelReason::Requested));
}

#[test]
fn a_grandchild_is_cancelled_though_nobody_holds_the_token_between() {
    let oldest = CancellationToken::new();
    let youngest = oldest.child_token().child_token();
    assert_eq!(children(&oldest), 1);
    oldest.cancel();
    youngest.wait();
}

#[test]
fn a_dropped_child_leaves_nothing_behind() {
    let parent = CancellationToken::new();
    for _ in 0..1_000 {
        drop(parent.child_token());
    }
    assert_eq!(children(&parent), 0);
    drop(parent.child_token().child_token());
    assert_eq!(children(&parent), 0);
}

#[test]
fn a_very_long_chain_is_cancelled_and_dropped_without_recursion() {
    let mut token = CancellationToken::new();
    let oldest = token.clone();
    for _ in 0..200_000 {
        token = token.child_token();
    }
    oldest.cancel();
    assert!(token.is_cancelled());
    drop(oldest);
    drop(token);
}

#[test]
fn a_hook_is_called_once() {
    let token = CancellationToken::new();
    let (count, callback) = counter();
    let hook = token.on_cancel(callback);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    token.cancel();
    token.cancel();
    drop(hook);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_hook_on_a_cancelled_token_is_called_at_once() {
    let token = CancellationToken::new();
    token.cancel();
    let (count, callback) = counter();
    let _hook = token.on_cancel(callback);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_dropped_hook_is_not_called_and_frees_what_it_captured() {
    let token = CancellationToken::new();
    let (count, callback) = counter();
    drop(token.on_cancel(callback));
    assert_eq!(hooks(&token), 0);
    token.cancel();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_hook_reaches_a_child_token_that_only_the_hook_holds() {
    let parent = CancellationToken::new();
    let (count, callback) = counter();
    let _hook = parent.child_token().on_cancel(callback);
    parent.cancel();
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_panicking_hook_stops_neither_the_others_nor_the_canceller() {
    let token = CancellationToken::new();
    let child = token.child_token();
    let _first = token.on_cancel(Box::new(|| panic!("no")));
    let (count, callback) = counter();
    let _second = token.on_cancel(callback);
    token.cancel();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(child.is_cancelled());
}

#[test]
fn a_hook_may_use_the_token_that_calls_it() {
    let token = CancellationToken::new();
    let child = token.child_token();
    let (inner, seen) = (token.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&seen);
    let hook = token.on_cancel(Box::new(move || {
        inner.cancel();
        let _nested = inner.on_cancel(Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst)));
        assert!(child.is_cancelled() && inner.child_token().is_cancelled());
    }));
    token.cancel();
    drop(hook);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[test]
fn hooks_children_and_cancellation_may_race() {
    for _ in 0..200 {
        let token = CancellationToken::new();
        let called = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let count = Arc::clone(&called);
                    let child = token.child_token();
                    let hook = child.on_cancel(Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst)));
                    child.wait();
                    drop(hook);
                });
            }
            scope.spawn(|| token.cancel());
            scope.spawn(|| token.cancel_because(CancelReason::ClaimLost));
        });
        assert_eq!(children(&token), 0);
        assert!(called.load(Ordering::SeqCst) <= 2);
    }
}

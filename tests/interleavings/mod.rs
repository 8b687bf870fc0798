//! What threads do to one another around the locks, atomics and signals that are ours: told one after the other, in many
//! orders, by a scheduler that is asked before each of these is touched (`scripts/check-interleavings`).
//!
//! A part of the library's tests with `--cfg shuttle`, so that it reaches what is private. A panic, or threads that all
//! wait, end the test with the schedule that led there.

mod answering;
mod cancelling;
pub(crate) mod channel;
mod departing;
pub(crate) mod event;
mod observing;
mod pooling;
pub(crate) mod thread;

/// Tries `story` in so many orders, half of them by chance, half of them with few changes between threads.
pub(crate) fn in_many_orders(story: impl Fn() + Send + Sync + Copy + 'static) {
    let orders = std::env::var("VENTURI_INTERLEAVINGS").map_or(4_000, |text| text.parse().unwrap());
    shuttle::check_random(story, orders / 2);
    for depth in 1..=4 {
        shuttle::check_pct(story, orders / 8, depth);
    }
}

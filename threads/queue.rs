//! What waits for a thread to take it.
//!
//! A channel wakes a sleeping thread for each thing that is put in, and that costs more than a short run takes. Here at
//! most [`ON_THE_WAY`] threads are being woken at a time, and who takes something and leaves more behind calls the next.
//! So the few threads that are awake do a burst of short runs, and each of many long ones still gets a thread.

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// The last of 256 long runs starts some 5 ms after the first. Measured with no-op runs at 16 and 256 slots: one is as fast,
/// four cost more of the processor.
const ON_THE_WAY: usize = 2;

pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    call: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    asleep: usize,
    /// How many of those were called, and have not woken yet.
    called: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = State { items: VecDeque::new(), asleep: 0, called: 0, closed: false };
        Self { state: Mutex::new(state), call: Condvar::new() }
    }

    /// Waits for nobody.
    pub(super) fn put(&self, item: T) {
        let mut state = self.lock();
        state.items.push_back(item);
        self.call_next(state);
    }

    /// The first one; waits until there is one. Nothing: the queue is closed, and empty.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                self.call_next(state);
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.sleep(state);
        }
    }

    /// Ends the threads, when they have taken what is in there.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.call.notify_all();
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        state.asleep += 1;
        // A thread may wake without having been called.
        while state.called == 0 && !state.closed {
            state = self.call.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep -= 1;
        state.called = state.called.saturating_sub(1);
        state
    }

    /// What is left has enough threads on their way to it, or all are awake and will look again.
    fn call_next(&self, mut state: MutexGuard<'_, State<T>>) {
        if state.called < state.items.len().min(state.asleep).min(ON_THE_WAY) {
            state.called += 1;
            drop(state);
            self.call.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The locks, atomics and signals that are ours to use rightly. With `--cfg shuttle` they are those whose interleavings
//! are tried (`tests/interleavings/`).
#![deny(clippy::disallowed_methods)]

#[cfg(not(shuttle))]
pub(crate) use {
    event_listener::{Event, EventListener, Listener},
    std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU8},
};

#[cfg(shuttle)]
pub(crate) use {
    crate::interleavings::event::{Event, EventListener, Listener},
    shuttle::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU8},
};

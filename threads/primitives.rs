//! Threads and channels, and what `src/sync.rs` says.

pub(super) use crate::sync::AtomicU8;

#[cfg(not(shuttle))]
pub(super) use {
    crossbeam_channel::{Receiver, Sender, bounded},
    std::{sync::atomic::AtomicUsize, thread},
};

#[cfg(shuttle)]
pub(super) use {
    crate::interleavings::channel::{Receiver, Sender, bounded},
    crate::interleavings::thread,
    shuttle::sync::atomic::AtomicUsize,
};

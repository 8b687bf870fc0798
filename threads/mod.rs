//! The threads that blocking handlers run on: the one piece that both front-ends share beside the core.
//!
//! The blocking front-end runs all its handlers here, the async one those that were registered as blocking.

mod audience;
mod named;
mod pool;
mod primitives;
mod queue;
mod runner;

pub(crate) use audience::Audience;
#[cfg(feature = "blocking")]
pub(crate) use named::Threads;
#[cfg(feature = "blocking")]
pub(crate) use named::{call, cannot_start, has_ended, spawn};
pub(crate) use pool::Pool;
pub(crate) use runner::{Runner, run};

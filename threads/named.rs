//! Threads that are named and counted, and waited for only as long as they deserve.

use std::convert::Infallible;
use std::io;
use std::time::Instant;

use crossbeam_channel::RecvTimeoutError;
use log::Level;

#[cfg(feature = "blocking")]
use crate::error::{Error, ErrorKind};
use crate::notice::notice;
use crate::panic_boundary::guarded;

use super::primitives::thread::{self, JoinHandle};
use super::primitives::{Receiver, Sender, bounded};

/// Threads that belong together. Dropping this leaves them to themselves.
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// Each thread holds a clone to its end, so that the channel is disconnected when all of them have ended.
    alive: Sender<Infallible>,
    ended: Receiver<Infallible>,
}

impl Threads {
    pub(crate) fn new() -> Self {
        let (alive, ended) = bounded(0);
        Self { handles: Vec::new(), alive, ended }
    }

    /// Starts a thread. What `body` owns is dropped on it.
    pub(crate) fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let alive = self.alive.clone();
        let handle = spawn(name, move || {
            let alive = alive;
            contained(body);
            drop(alive);
        })?;
        self.handles.push(handle);
        Ok(())
    }

    /// How many have not ended.
    #[cfg(feature = "blocking")]
    pub(crate) fn running(&mut self) -> usize {
        self.handles.retain(|handle| !handle.is_finished());
        self.handles.len()
    }

    /// Waits until all have ended, at most until `deadline`. Those that have not are left to themselves.
    pub(crate) fn end_by(self, deadline: Instant) {
        let Self { handles, alive, ended } = self;
        drop(alive);
        let all_ended = matches!(ended.recv_deadline(deadline), Err(RecvTimeoutError::Disconnected));
        for handle in handles {
            if all_ended || handle.is_finished() {
                // It cannot have panicked, so there is nothing to learn from its end.
                let _ = handle.join();
            }
        }
    }
}

/// Starts a thread that nobody has to wait for.
pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(|| contained(body))
}

/// Runs `body` on a thread of its own and waits for it: a client must not be used inside an async task.
#[cfg(feature = "blocking")]
pub(crate) fn call<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (answer, answers) = bounded(1);
    let handle = spawn(name.to_owned(), move || {
        // The other end waits until this is sent or dropped.
        let _ = answer.send(body());
    })
    .map_err(|error| cannot_start(name, error))?;
    let answer = answers.recv();
    let _ = handle.join();
    answer.unwrap_or_else(|_| Err(has_ended(name)))
}

/// The system has no thread to give.
#[cfg(feature = "blocking")]
pub(crate) fn cannot_start(name: &str, error: io::Error) -> Error {
    let what = format!("the thread {name} cannot be started: {error}; raise the limit of threads, or try again later");
    Error::new(ErrorKind::Unavailable, what).with_source(error.into())
}

/// A thread of ours has panicked, which was logged when it happened.
#[cfg(feature = "blocking")]
pub(crate) fn has_ended(name: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("the thread {name} ended unexpectedly; this is a defect in venturi, please report it"),
    )
}

fn contained(body: impl FnOnce()) {
    if let Err(panic) = guarded(body) {
        let name = thread::current().name().unwrap_or("without a name").to_owned();
        notice(Level::Error, format_args!("the thread {name} {panic}; this is a defect in venturi, please report it"));
    }
}

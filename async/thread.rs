//! The one place that starts threads and reads the clock.

use std::thread::Builder;
use std::time::{Instant, SystemTime};

use log::Level;

use crate::error::{Error, ErrorKind};
use crate::notice::notice;
use crate::panic_boundary::guarded;

/// Starts a thread that completes the future that `make` returns, and then calls `end` with its result; with an error
/// when it panicked. `make` is called on the thread, so the future may stay on it.
pub(super) fn start<T, F>(
    name: &str,
    make: impl FnOnce() -> F + Send + 'static,
    end: impl FnOnce(Result<T, Error>) + Send + 'static,
) -> Result<(), Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let thread = name.to_owned();
    // `block_on` also turns the reactor, so an answer of the server needs no second thread to get here.
    let run = move || end(guarded(|| async_io::block_on(make())).unwrap_or_else(|panic| Err(defect(&thread, &panic))));
    let started = Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| {
        let what = format!("starting the thread {name}: {error}; raise the limit on threads");
        Error::new(ErrorKind::Internal, what).with_source(error.into())
    })
}

fn defect(thread: &str, panic: &str) -> Error {
    notice(Level::Error, format_args!("the thread {thread} {panic}"));
    Error::new(
        ErrorKind::Internal,
        format!("the thread {thread} {panic}; this is a defect in venturi, please report it"),
    )
}

pub(super) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the clock of this front-end")]
    Instant::now()
}

/// This machine's own time of day: for the diagnosis, which compares it with the server's.
#[expect(clippy::disallowed_methods, reason = "only compared for the diagnosis, never stored")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn ends(make: impl Fn() -> Result<u8, Error> + Send + 'static) -> Result<u8, Error> {
        let (sender, receiver) = mpsc::channel();
        start("venturi-test", move || async move { make() }, move |end| sender.send(end).unwrap()).unwrap();
        receiver.recv().unwrap()
    }

    #[test]
    fn a_thread_returns_what_its_future_returns() {
        assert_eq!(ends(|| Ok(7)).unwrap(), 7);
    }

    #[test]
    fn a_thread_that_panics_says_so_instead_of_hanging() {
        let error = ends(|| panic!("lost count")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("venturi-test panicked: lost count"), "{error}");
    }
}

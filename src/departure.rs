//! When a run has really ended: its handler has returned or was dropped, and everything it holds on to is gone.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::report::{Report, Verdict};
use crate::sync::Mutex;

/// Sends a run's report when the last part of the run has let go of it.
///
/// It is sent from `Drop`, so it is sent exactly once whatever happens; a run that never reported was thrown away.
#[derive(Clone)]
pub(crate) struct Departure {
    inner: Arc<Inner<dyn Fn(Report) + Send + Sync>>,
}

struct Inner<F: Fn(Report) + ?Sized> {
    report: Mutex<Option<Report>>,
    send: F,
}

impl Departure {
    pub(crate) fn new(send: impl Fn(Report) + Send + Sync + 'static) -> Self {
        Self { inner: Arc::new(Inner { report: Mutex::new(None), send }) }
    }

    /// The handler has ended like this; what still holds on to the run delays the sending.
    pub(crate) fn report(self, report: Report) {
        let mut stored = self.inner.report.lock().unwrap_or_else(PoisonError::into_inner);
        stored.get_or_insert(report);
    }

    pub(crate) fn hold(&self) -> Hold {
        Hold { _departure: self.clone() }
    }
}

impl<F: Fn(Report) + ?Sized> Drop for Inner<F> {
    fn drop(&mut self) {
        let report = self.report.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        (self.send)(report.unwrap_or_else(|| Report::new(Verdict::Discarded)));
    }
}

impl fmt::Debug for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Departure")
    }
}

/// Keeps a run from having ended while work goes on outside its handler.
///
/// Give one to whatever outlives the handler's future, such as a closure on a thread pool: until it is dropped the job
/// stays claimed, its lease is renewed, and it is neither settled nor released. Only a run that has timed out, or one
/// whose worker stops, is not waited for beyond `abort_grace`: then the lease may run out under it.
#[derive(Clone, Debug)]
pub struct Hold {
    _departure: Departure,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn departure() -> (Departure, mpsc::Receiver<Verdict>) {
        let (sender, receiver) = mpsc::channel();
        (Departure::new(move |report| sender.send(report.verdict).unwrap()), receiver)
    }

    #[test]
    fn a_report_is_sent_when_the_last_hold_is_gone() {
        let (departure, sent) = departure();
        let hold = departure.hold();
        let copy = hold.clone();
        departure.report(Report::new(Verdict::Aborted));
        drop(hold);
        assert!(sent.try_recv().is_err());
        drop(copy);
        assert_eq!(sent.try_recv(), Ok(Verdict::Aborted));
        assert!(sent.try_recv().is_err());
    }

    #[test]
    fn a_run_that_is_thrown_away_says_so() {
        let (departure, sent) = departure();
        drop(departure);
        assert_eq!(sent.try_recv(), Ok(Verdict::Discarded));
    }
}

//! Where handlers note what they do and wait for what they are told: the state that every worker of a test shares.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use venturi::{CancelReason, CancellationToken, Event, Observed, Observer, Priority};

/// One run, as its handler saw it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) tag: String,
    pub(crate) amount: i64,
    pub(crate) kind: &'static str,
    pub(crate) job: i64,
    pub(crate) run: u32,
    pub(crate) failures: u32,
    pub(crate) priority: Priority,
    pub(crate) created_at: SystemTime,
    pub(crate) due_at: SystemTime,
    pub(crate) trace: Option<String>,
    /// The carry at the start.
    pub(crate) carry: i64,
    pub(crate) started: Instant,
    pub(crate) end: Option<End>,
    pub(crate) cancelled: Option<CancelReason>,
    /// What the database answered to the handler's requests.
    pub(crate) answers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Returned,
    /// It panicked, or its future was dropped.
    Unwound,
}

/// Everything that has happened.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) runs: Vec<Run>,
    /// The most runs that were going at the same time, in all and by kind.
    pub(crate) peak: usize,
    pub(crate) peaks: BTreeMap<&'static str, usize>,
}

impl Book {
    pub(crate) fn of(&self, tag: &str) -> Vec<Run> {
        self.runs.iter().filter(|run| run.tag == tag).cloned().collect()
    }

    fn going(&self, kind: Option<&str>) -> usize {
        let of_kind = |run: &&Run| kind.is_none_or(|kind| run.kind == kind);
        self.runs.iter().filter(of_kind).filter(|run| run.end.is_none()).count()
    }
}

/// What a worker was given, which panics when it is dropped if it is charged.
pub(crate) struct Charge(pub(crate) bool);

impl Drop for Charge {
    fn drop(&mut self) {
        assert!(!self.0, "dropping a charge");
    }
}

/// The state of a worker's handlers.
pub(crate) struct Estate {
    lab: Arc<Lab>,
    _charge: Charge,
}

impl Estate {
    pub(crate) fn new(lab: &Arc<Lab>, charged: bool) -> Self {
        Self { lab: Arc::clone(lab), _charge: Charge(charged) }
    }
}

impl Borrow<Arc<Lab>> for Estate {
    fn borrow(&self) -> &Arc<Lab> {
        &self.lab
    }
}

#[derive(Default)]
pub(crate) struct Lab {
    book: Mutex<Book>,
    turned: Condvar,
    gates: Mutex<BTreeMap<String, CancellationToken>>,
    all_open: AtomicBool,
    /// What workers have told their observer: who, and what.
    heard: Mutex<Vec<(String, Event)>>,
    /// What layers around handlers have noted.
    notes: Mutex<Vec<String>>,
    /// The server and the schema, for handlers that have transactions of their own.
    pub(crate) place: OnceLock<(String, String)>,
}

impl Lab {
    /// Notes what a worker tells, and panics then: nobody must notice.
    pub(crate) fn observer(self: &Arc<Self>, charge: Charge) -> impl Observer + use<> {
        let lab = Arc::clone(self);
        move |observed: &Observed<'_>| {
            let _ = &charge;
            let told = (observed.worker.unwrap_or_default().to_owned(), observed.event.clone());
            lab.heard.lock().unwrap_or_else(PoisonError::into_inner).push(told);
            assert!(!matches!(observed.event, Event::Started { .. }), "an observer may panic");
        }
    }

    pub(crate) fn note(&self, what: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was told about a job so far.
    pub(crate) fn heard_of(&self, job: i64) -> Vec<(String, Event)> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().filter(|(_, event)| event.job().is_some_and(|id| id.get() == job)).cloned().collect()
    }

    /// Notes the start of a run.
    pub(crate) fn enter(self: &Arc<Self>, run: Run) -> Visit {
        let mut book = self.book();
        let kind = run.kind;
        book.runs.push(run);
        book.peak = book.peak.max(book.going(None));
        let of_kind = book.going(Some(kind));
        let peak = book.peaks.entry(kind).or_default();
        *peak = of_kind.max(*peak);
        self.turned.notify_all();
        Visit { lab: Arc::clone(self), nth: book.runs.len() - 1, returned: false }
    }

    /// What a handler waits for under this name. It is a token because threads and futures can both wait for one.
    pub(crate) fn gate(&self, name: &str) -> CancellationToken {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = gates.entry(name.to_owned()).or_default().clone();
        if self.all_open.load(Ordering::Relaxed) {
            gate.cancel();
        }
        gate
    }

    pub(crate) fn open(&self, name: &str) {
        self.gate(name).cancel();
    }

    /// Opens all gates, also those that nobody has asked for yet.
    pub(crate) fn open_all(&self) {
        self.all_open.store(true, Ordering::Relaxed);
        self.gates.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(CancellationToken::cancel);
    }

    pub(crate) fn look<T>(&self, at: impl FnOnce(&Book) -> T) -> T {
        at(&self.book())
    }

    /// Waits until the handlers have done it.
    pub(crate) fn wait<T>(&self, what: &str, wanted: impl Fn(&Book) -> Option<T>) -> T {
        self.wait_within(super::PATIENCE, what, wanted)
    }

    pub(crate) fn wait_within<T>(&self, time: Duration, what: &str, wanted: impl Fn(&Book) -> Option<T>) -> T {
        let deadline = Instant::now() + time;
        let mut book = self.book();
        loop {
            if let Some(found) = wanted(&book) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what}: not within {time:?}; so far {:#?}", book.runs);
            book = self.turned.wait_timeout(book, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the n-th start under this tag.
    pub(crate) fn wait_start(&self, tag: &str, nth: usize) -> Run {
        self.wait(&format!("start {nth} of {tag}"), |book| book.of(tag).get(nth - 1).cloned())
    }

    /// Waits until so many runs have started in all.
    pub(crate) fn wait_starts(&self, count: usize) {
        self.wait(&format!("{count} starts"), |book| (book.runs.len() >= count).then_some(()));
    }

    /// The tags in the order of their starts.
    pub(crate) fn order(&self) -> Vec<String> {
        self.look(|book| book.runs.iter().map(|run| run.tag.clone()).collect())
    }

    pub(crate) fn starts(&self, tag: &str) -> usize {
        self.look(|book| book.of(tag).len())
    }

    fn change(&self, nth: usize, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.book().runs.get_mut(nth) {
            change(run);
        }
        self.turned.notify_all();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run that is going; dropped without a word, it was unwound.
pub(crate) struct Visit {
    lab: Arc<Lab>,
    nth: usize,
    returned: bool,
}

impl Visit {
    pub(crate) fn cancelled(&self, reason: Option<CancelReason>) {
        self.lab.change(self.nth, |run| run.cancelled = reason);
    }

    pub(crate) fn answered(&self, answer: String) {
        self.lab.change(self.nth, |run| run.answers.push(answer));
    }

    pub(crate) fn leave(mut self) {
        self.returned = true;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let end = if self.returned { End::Returned } else { End::Unwound };
        self.lab.change(self.nth, |run| run.end = Some(end));
    }
}

//! The threads that run handlers: started when there is work for one more, reused when idle, never more than the
//! worker's concurrency.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use log::Level;

use crate::ask::Desk;
use crate::cancellation::{CancelReason, CancellationToken};
use crate::context::{Home, Ties};
use crate::departure::Departure;
use crate::engine::{Input, Start};
use crate::job::RunId;
use crate::notice::notice;
use crate::panic_boundary::Contained;
use crate::report::{Report, Verdict};

use super::named::Threads;
use super::primitives::{AtomicU8, AtomicUsize};
use super::queue::Queue;
use super::runner::Runner;

/// The coordinator's end of the pool.
pub(crate) struct Pool<S> {
    shared: Arc<Shared<S>>,
    queue: Arc<Queue<Queued>>,
    /// Every run that has not been reported.
    runs: BTreeMap<RunId, Run>,
    /// The runs' tokens are its children.
    shutdown: CancellationToken,
    threads: Threads,
    started: usize,
    most: usize,
}

/// Passes something on to the engine. If that is gone, what is passed is dropped: a row's lease runs out, a question
/// is answered with an error.
type Tell = Arc<dyn Fn(Input) + Send + Sync>;

/// What the threads need.
struct Shared<S> {
    /// By kind; nothing for kinds that run elsewhere.
    runners: Vec<Option<Runner<S>>>,
    state: Arc<Contained<S>>,
    tell: Tell,
    /// Passes on what handlers ask.
    desk: Arc<dyn Desk>,
    home: Home,
    /// Runs that are queued or running: as many threads are wanted.
    busy: AtomicUsize,
}

/// What the coordinator keeps of a run.
struct Run {
    token: CancellationToken,
    ticket: Arc<Ticket>,
}

/// What a thread gets of a run.
struct Queued {
    start: Start,
    token: CancellationToken,
    ticket: Arc<Ticket>,
}

/// Whether a run has started or was taken back: decided once, by whoever comes first.
#[derive(Default)]
struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const REVOKED: u8 = 2;

impl Ticket {
    fn start(&self) -> bool {
        self.decide(STARTED)
    }

    fn revoke(&self) -> bool {
        self.decide(REVOKED)
    }

    fn decide(&self, fate: u8) -> bool {
        self.0.compare_exchange(WAITING, fate, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl<S: Send + Sync + 'static> Pool<S> {
    /// A pool without threads; `most` is how many there may be. A run more than that would wait for its turn.
    pub(crate) fn new(
        runners: Vec<Option<Runner<S>>>,
        state: Arc<Contained<S>>,
        tell: impl Fn(Input) + Send + Sync + 'static,
        shutdown: CancellationToken,
        most: usize,
        home: Home,
    ) -> Self {
        let queue = Arc::new(Queue::new());
        let tell: Tell = Arc::new(tell);
        let front = Arc::clone(&tell);
        let desk = Arc::new(move |id, ask| front(Input::Asked(id, ask)));
        let shared = Arc::new(Shared { runners, state, tell, desk, home, busy: AtomicUsize::new(0) });
        let (runs, threads) = (BTreeMap::new(), Threads::new());
        Self { shared, queue, runs, shutdown, threads, started: 0, most }
    }

    /// Starts a run on an idle thread, or on a new one.
    pub(crate) fn start(&mut self, start: Start) {
        let id = start.id;
        let busy = self.shared.busy.fetch_add(1, Ordering::AcqRel) + 1;
        if busy > self.started && self.started < self.most {
            if let Err(error) = self.add_thread() {
                self.shared.busy.fetch_sub(1, Ordering::AcqRel);
                notice(Level::Warn, format_args!("job {} goes back, no thread can be started for it: {error}", id.job));
                return self.shared.tell(Input::Finished(id, Report::new(Verdict::NotStarted)));
            }
        }
        let run = Run { token: self.shutdown.child_token(), ticket: Arc::default() };
        let queued = Queued { start, token: run.token.clone(), ticket: Arc::clone(&run.ticket) };
        self.runs.insert(id, run);
        self.queue.put(queued);
    }

    /// Tells a handler to wind down.
    pub(crate) fn cancel(&self, id: RunId, reason: CancelReason) {
        if let Some(run) = self.runs.get(&id) {
            run.token.cancel_because(reason);
        }
    }

    /// Takes a run back if its handler has not started, and then reports it; does nothing if it has.
    pub(crate) fn revoke(&self, id: RunId) {
        if self.runs.get(&id).is_some_and(|run| run.ticket.revoke()) {
            self.shared.tell(Input::Finished(id, Report::new(Verdict::NotStarted)));
        }
    }

    /// A run was reported: there is nothing to cancel any more.
    pub(crate) fn forget(&mut self, id: RunId) {
        self.runs.remove(&id);
    }

    /// Ends the threads, and waits for them until `deadline`; a handler that still runs is left behind.
    pub(crate) fn end_by(mut self, deadline: Instant) {
        let threads = std::mem::replace(&mut self.threads, Threads::new());
        // The queue is closed with this, so that idle threads end.
        drop(self);
        threads.end_by(deadline);
    }

    fn add_thread(&mut self) -> io::Result<()> {
        let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
        self.threads.spawn(format!("venturi-handler-{}", self.started + 1), move || {
            while let Some(run) = queue.take() {
                shared.perform(run);
            }
        })?;
        self.started += 1;
        Ok(())
    }
}

/// If the coordinator is gone before its runs, nobody will take their results: they are told to wind down.
impl<S> Drop for Pool<S> {
    fn drop(&mut self) {
        for run in self.runs.values() {
            run.ticket.revoke();
        }
        self.queue.close();
        for run in self.runs.values() {
            run.token.cancel();
        }
    }
}

impl<S> Shared<S> {
    fn perform(&self, run: Queued) {
        let Queued { start, token, ticket } = run;
        if !ticket.start() {
            self.busy.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        if start.report_start {
            // Before decoding, which is the task's code too and might hang as well.
            self.tell(Input::Started(start.id));
        }
        let departure = self.departure(start.id);
        let (desk, home) = (Arc::clone(&self.desk), self.home.clone());
        let ties = Ties { token, desk, departure: departure.clone(), home };
        let report = match (self.runners.get(start.kind).copied().flatten(), &self.state.0) {
            (Some(run), Some(state)) => run(&start.job, ties, state),
            _ => Report::new(Verdict::NotStarted),
        };
        // First, so that the run which takes this one's slot finds this thread free.
        self.busy.fetch_sub(1, Ordering::AcqRel);
        departure.report(report);
    }

    fn departure(&self, id: RunId) -> Departure {
        let tell = Arc::clone(&self.tell);
        Departure::new(move |report| tell(Input::Finished(id, report)))
    }

    fn tell(&self, input: Input) {
        (self.tell)(input);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

//! What is put onto the application's executor for one run of one job.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use async_channel::Sender;
use atomic_waker::AtomicWaker;
use log::Level;

use crate::ask::Desk;
use crate::cancellation::CancellationToken;
use crate::context::{Home, Ties};
use crate::departure::Departure;
use crate::engine::Input;
use crate::job::RunId;
use crate::notice::notice;
use crate::panic_boundary::guarded;
use crate::report::{Report, Verdict};
use crate::sync::AtomicU8;

use super::runner::Run;

/// Whether a run may begin, and whether it has to end: one decision for its task and the engine's thread.
///
/// ```text
/// WAITING --begin--> BEGUN --abort--> ABORTED
///    +------abort--> TAKEN_BACK
/// ```
#[derive(Debug, Default)]
pub(super) struct Fate {
    state: AtomicU8,
    waker: AtomicWaker,
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const ABORTED: u8 = 2;
const TAKEN_BACK: u8 = 3;

impl Fate {
    /// The task begins, or is thrown away: from here on its side reports. `false`: it was taken back, so it must not
    /// begin, and has nothing to say.
    fn begin(&self) -> bool {
        self.step(WAITING, BEGUN) != Err(TAKEN_BACK)
    }

    /// A task that has begun drops its run the next time it is polled, which it now will be. One that has not begun
    /// never will, however busy its executor is: `true`, and the caller reports in its place.
    pub(super) fn abort(&self) -> bool {
        if self.step(WAITING, TAKEN_BACK).is_ok() {
            return true;
        }
        // Fails for a second abort, which still wakes.
        let _ = self.step(BEGUN, ABORTED);
        self.waker.wake();
        false
    }

    fn is_aborted(&self) -> bool {
        self.state.load(Ordering::Acquire) == ABORTED
    }

    fn step(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Where runs tell the engine what happens to them. A clone is the same inbox.
#[derive(Clone)]
pub(super) struct Inbox(Arc<Front>);

struct Front {
    engine: Sender<Input>,
    desk: Arc<dyn Desk>,
    home: Home,
}

impl Inbox {
    pub(super) fn new(engine: Sender<Input>, home: Home) -> Self {
        let front = engine.clone();
        // What comes back unsent answers itself when it is dropped.
        let desk = Arc::new(move |id, ask| drop(front.try_send(Input::Asked(id, ask))));
        Self(Arc::new(Front { engine, desk, home }))
    }

    pub(super) fn send(&self, input: Input) {
        // Fails when the worker has ended, and with it the interest.
        let _ = self.0.engine.try_send(input);
    }

    /// What connects run `id` with the engine. Its report is sent when the last part of the run is gone.
    pub(super) fn ties(&self, id: RunId, token: CancellationToken, fate: &Arc<Fate>) -> Ties {
        let (inbox, fate) = (self.clone(), Arc::clone(fate));
        let departure = Departure::new(move |report| {
            if fate.begin() {
                inbox.send(Input::Finished(id, report));
            }
        });
        Ties { token, desk: Arc::clone(&self.0.desk), departure, home: self.0.home.clone() }
    }
}

/// The future that a spawner gets. It keeps panics in, can be aborted, and has dropped everything of the user's before
/// it reports. Thrown away unfinished, it reports that.
pub(super) struct JobTask {
    /// Until it has ended.
    run: Option<Run>,
    fate: Arc<Fate>,
    begun: bool,
    /// Where the beginning is reported, if the engine wants to know.
    starts: Option<(RunId, Inbox)>,
    /// Dropped without a report, it says that the run was discarded.
    departure: Option<Departure>,
}

impl JobTask {
    pub(super) fn new(run: Run, fate: Arc<Fate>, starts: Option<(RunId, Inbox)>, departure: Departure) -> Self {
        Self { run: Some(run), fate, begun: false, starts, departure: Some(departure) }
    }

    /// At the first poll: whether the run may go on.
    fn begin(&mut self) -> bool {
        if self.begun {
            return true;
        }
        self.begun = true;
        if !self.fate.begin() {
            self.drop_run();
            return false;
        }
        if let Some((id, inbox)) = self.starts.take() {
            inbox.send(Input::Started(id));
        }
        true
    }

    fn end(&mut self, report: Report) {
        self.drop_run();
        if let Some(departure) = self.departure.take() {
            departure.report(report);
        }
    }

    /// Drops what is left of the run: the handler's future, its task, its context.
    fn drop_run(&mut self) {
        let run = self.run.take();
        if let Err(panic) = guarded(|| drop(run)) {
            notice(Level::Error, format_args!("a handler's future {panic} while it was dropped"));
        }
        // A waker may keep parts of its executor alive.
        drop(self.fate.waker.take());
    }
}

impl Future for JobTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        // Registered before the state is read: an abort is either seen here, or wakes this waker.
        this.fate.waker.register(cx.waker());
        if !this.begin() {
            return Poll::Ready(());
        }
        if this.fate.is_aborted() {
            this.end(Report::new(Verdict::Aborted));
        }
        let Some(run) = &mut this.run else { return Poll::Ready(()) };
        match guarded(|| run.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(report)) => this.end(report),
            Err(panic) => this.end(Report::new(Verdict::Panicked(panic))),
        }
        Poll::Ready(())
    }
}

impl Drop for JobTask {
    fn drop(&mut self) {
        if self.run.is_some() {
            // An abort that came first is what the engine waits for.
            let verdict = if self.fate.is_aborted() { Verdict::Aborted } else { Verdict::Discarded };
            self.end(Report::new(verdict));
        }
    }
}

#[cfg(shuttle)]
#[path = "../tests/interleavings/aborting.rs"]
mod interleavings;
#[cfg(test)]
mod tests;

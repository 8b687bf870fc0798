//! The worker's state machine.
#![deny(clippy::disallowed_methods)]

mod asking;
mod burst;
mod cancelling;
mod claiming;
mod deadlines;
mod hold;
mod leases;
mod marks;
mod parting;
mod purpose;
mod runs;
mod settling;
mod shutdown;
#[cfg(feature = "testing")]
mod stint;
mod sweeping;
mod watching;
mod working;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::ask::Ask;
use crate::cancellation::CancelReason;
use crate::config::Config;
use crate::error::Error;
use crate::fault::Fault;
use crate::job::{ClaimedJob, RunId};
use crate::link::{Epoch, LinkState, StatementId};
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::{Report, ShutdownReport};
use crate::statement::{Reply, Statement};

use asking::Asking;
use burst::Burst;
use cancelling::Cancelling;
use claiming::Claiming;
use leases::Leases;
use purpose::Purpose;
use runs::Runs;
use settling::Settling;
use shutdown::Phase;
use sweeping::Sweeping;
use watching::Watching;

/// One of the connections that a worker has, whatever its concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    /// Claims, and settlements unless they have a link of their own.
    Work,
    /// Settlements of completed runs, if the worker may have a connection for them.
    Settle,
    /// LISTEN, lease renewal and notifications: nothing here ever queues behind work.
    Watch,
}

impl Link {
    pub(crate) const ALL: [Self; 3] = [Self::Work, Self::Settle, Self::Watch];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Settle => "settle",
            Self::Watch => "watch",
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// Time has passed; nothing else.
    Tick,
    /// A notification arrived on the watch link.
    Notified(String),
    /// The connection that [`Output::Connect`] asked for is there, its session settings made.
    Connected(Link, Epoch),
    /// That connection could not be made, or is gone.
    Lost(Link, Epoch, Fault),
    /// The answer to [`Output::Execute`].
    Reply(StatementId, Result<Reply, Fault>),
    /// The handler of a run that asked for it has started.
    Started(RunId),
    /// The handler has ended and everything of the run has stopped.
    Finished(RunId, Report),
    /// A handler asks the database for something.
    Asked(RunId, Ask),
    /// The worker shall stop. The runs' tokens are children of the shutdown token and have been cancelled with it.
    Shutdown,
    /// Nobody waits for the worker any more: the future was dropped.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only a future can be dropped"))]
    Abandoned,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Output {
    /// Make this connection; whatever the link had before is dropped. Answer `Connected` or `Lost`.
    Connect(Link, Epoch),
    /// Drop this link's connection, at once and whatever it is doing. No answer.
    Disconnect(Link),
    /// Run this statement on the link. Answer `Reply`, or `Lost` if the connection ends.
    Execute(Link, StatementId, Box<Statement>),
    /// Start this run. Answer `Finished`, in the end.
    Start(Box<Start>),
    /// Cancel the run's token.
    Cancel(RunId, CancelReason),
    /// Async: drop the run's future, then answer `Finished(Aborted)`. Blocking: take the run back if its handler has
    /// not started, and then answer `Finished(NotStarted)`; if it has, do nothing.
    Abort(RunId),
    /// Tell whoever listens.
    Observe(Event),
    /// Everything has ended; the last output.
    Stopped(Result<ShutdownReport, Error>),
}

/// A run to be started.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) id: RunId,
    /// Index into the registry's rules.
    pub(crate) kind: usize,
    pub(crate) job: ClaimedJob,
    /// Whether the engine wants to hear when the handler starts, because a time-out counts from there.
    pub(crate) report_start: bool,
}

/// What a worker is built from, as far as the engine is concerned.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) config: Config,
    pub(crate) kinds: Vec<KindRule>,
    /// `host:pid:suffix`.
    pub(crate) worker: Arc<str>,
    /// The NOTIFY channel, which is the schema's name.
    pub(crate) channel: String,
    /// Whether the watch link listens.
    pub(crate) listen: bool,
    /// The random suffix; it spreads what workers would otherwise do in step.
    pub(crate) seed: u64,
}

impl Rules {
    fn kind_index(&self, kind: &str) -> Option<usize> {
        self.kinds.iter().position(|rule| rule.kind == kind)
    }
}

/// The worker's state machine: it decides, and never waits.
///
/// The front-end tells it what happened and does what it says:
///
/// > 1. Call [`output`](Self::output) until it is `None`, doing each thing at once and waiting for none of them.
/// > 2. Wait until something happened, at most until [`deadline`](Self::deadline).
/// > 3. Pass everything that happened to [`input`](Self::input), with the time at which it is passed.
///
/// Passing all that is there before the next step 1 is what makes batches: results gather while a statement is in
/// flight, and the next exchange settles them all and claims for all free slots.
///
/// Inputs may come late, twice (from a dropped connection) or never; each statement and each connection attempt has a
/// deadline of the engine's own. `now` must not run backwards.
#[derive(Debug)]
pub(crate) struct Engine {
    rules: Rules,
    phase: Phase,
    work: LinkState<Purpose>,
    settle: LinkState<Purpose>,
    watch: LinkState<Purpose>,
    runs: Runs,
    asking: Asking,
    cancelling: Cancelling,
    claiming: Claiming,
    burst: Burst,
    settling: Settling,
    leases: Leases,
    sweeping: Sweeping,
    watching: Watching,
    report: ShutdownReport,
    #[cfg(feature = "testing")]
    progress: stint::Progress,
    outbox: VecDeque<Output>,
    statements: u64,
    /// The latest time at which everything was moved as far as it goes.
    advanced_to: Instant,
}

impl Engine {
    pub(crate) fn new(rules: Rules, now: Instant) -> Self {
        let mut engine = Self {
            phase: Phase::Running,
            work: LinkState::new(rules.seed, now),
            settle: LinkState::new(rules.seed.rotate_left(16), now),
            watch: LinkState::new(rules.seed.rotate_left(32), now),
            runs: Runs::new(rules.kinds.len()),
            asking: Asking::default(),
            cancelling: Cancelling::default(),
            claiming: Claiming::new(&rules, now),
            burst: Burst::default(),
            settling: Settling::default(),
            leases: Leases::default(),
            sweeping: Sweeping::new(&rules, now),
            watching: Watching::default(),
            report: ShutdownReport::default(),
            #[cfg(feature = "testing")]
            progress: stint::Progress::default(),
            outbox: VecDeque::new(),
            statements: 0,
            advanced_to: now,
            rules,
        };
        engine.observe(Event::WorkerStarted { worker: engine.rules.worker.to_string() });
        engine.advance(now);
        engine
    }

    /// Takes in what happened and decides what follows from it.
    pub(crate) fn input(&mut self, now: Instant, input: Input) {
        if self.is_stopped() {
            return;
        }
        match input {
            Input::Tick => {}
            Input::Notified(payload) => self.notified(now, &payload),
            Input::Connected(link, epoch) => self.connected(now, link, epoch),
            Input::Lost(link, epoch, fault) => self.lost(now, link, epoch, &fault),
            Input::Reply(id, reply) => self.replied(now, id, reply),
            Input::Started(id) => self.started(now, id),
            Input::Finished(id, report) => self.finished(now, id, report),
            Input::Asked(id, ask) => self.asked(id, ask),
            Input::Shutdown => self.shut_down(now),
            Input::Abandoned => self.abandon(now),
        }
    }

    /// The next thing to do; `None` until something happens again.
    ///
    /// Decisions are made here, not in [`input`](Self::input), so that they see everything that has happened by now.
    pub(crate) fn output(&mut self, now: Instant) -> Option<Output> {
        if self.outbox.is_empty() && !self.is_stopped() {
            self.advance(now);
        }
        self.outbox.pop_front()
    }

    /// When to come back even if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.is_stopped() {
            return None;
        }
        self.earliest_deadline()
    }

    /// Moves everything as far as it goes at `now`.
    fn advance(&mut self, now: Instant) {
        self.advanced_to = now;
        self.pass_deadlines(now);
        self.refuse_hopeless_asks();
        self.drive_work(now);
        self.drive_settle(now);
        self.drive_watch(now);
        #[cfg(feature = "testing")]
        self.end_stint(now);
        self.stop_when_done();
    }

    fn link(&mut self, link: Link) -> &mut LinkState<Purpose> {
        match link {
            Link::Work => &mut self.work,
            Link::Settle => &mut self.settle,
            Link::Watch => &mut self.watch,
        }
    }

    fn observe(&mut self, event: Event) {
        #[cfg(feature = "testing")]
        if self.rules.config.stint.is_some() {
            self.progress.note(&event);
        }
        self.outbox.push_back(Output::Observe(event));
    }

    fn execute(&mut self, now: Instant, link: Link, statement: Statement, purpose: Purpose) {
        self.statements += 1;
        let id = StatementId(self.statements);
        self.link(link).sent(id, purpose, now);
        self.outbox.push_back(Output::Execute(link, id, Box::new(statement)));
    }

    fn rule(&self, kind: usize) -> Option<&KindRule> {
        self.rules.kinds.get(kind)
    }

    fn kind_index(&self, kind: &str) -> Option<usize> {
        self.rules.kind_index(kind)
    }

    /// For those who are told; empty if the kind is none of ours.
    fn kind_name(&self, kind: Option<usize>) -> &'static str {
        kind.and_then(|kind| self.rule(kind)).map_or("", |rule| rule.kind)
    }
}

//! Several engines, one model database, simulated time and seeded faults.

mod audit;
mod clock;
mod ear;
mod handlers;
mod mishaps;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, Instant};

use super::server::{Server, State};
use crate::backoff::mix;
use crate::cancellation::CancelReason;
use crate::config::Config;
use crate::engine::{Engine, Input, Link, Output, Rules};
use crate::error::Error;
use crate::fault::{Fault, FaultKind, OutcomeKnown};
use crate::job::RunId;
use crate::link::StatementId;
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::{LeftClaimed, LeftReason, ShutdownReport, Verdict};
use crate::statement::Statement;
use crate::{Backoff, Priority};

use audit::Audit;
pub(super) use clock::Clock;
use ear::Ear;
pub(super) use handlers::Behaviour;
use handlers::Handler;
pub(super) use mishaps::{Mishap, Mishaps};

/// How a statement travels: half of this each way.
const TRIP: Duration = Duration::from_micros(400);

/// The session's `lock_timeout`.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn kind(name: &'static str) -> KindRule {
    KindRule {
        kind: name,
        lease: Duration::from_secs(900),
        timeout: None,
        backoff: Backoff::default(),
        cap: None,
        blocking: false,
    }
}

pub(super) fn config(concurrency: usize) -> Config {
    let mut config = Config::new(2);
    config.concurrency = concurrency;
    config.jitter = 0.0;
    config
}

/// Chances out of 1,000 that something goes wrong with a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost_before: u64,
    pub(super) lost_after: u64,
    pub(super) refused: u64,
    pub(super) notification_lost: u64,
    pub(super) slow: u64,
}

#[derive(Debug)]
enum Happening {
    Wake(usize),
    Tell(usize, Input),
    /// A statement arrives at the server over a connection; the flag says that its reply gets lost.
    Arrive {
        node: usize,
        link: Link,
        epoch: u64,
        id: StatementId,
        statement: Box<Statement>,
        reply_lost: bool,
    },
    HandlerStarts(usize, RunId),
    HandlerEnds(usize, RunId, Option<Verdict>),
    Do(usize),
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) engine: Option<Engine>,
    connected: BTreeMap<Link, u64>,
    ear: Ear,
    handlers: BTreeMap<RunId, Handler>,
    blocking: BTreeSet<usize>,
    /// Runs whose blocking handlers have started.
    threads: BTreeSet<RunId>,
    /// A statement of its took effect when nobody waited for it any more, as far as may be.
    unsure: bool,
    wake_at: Option<Instant>,
    pub(super) statements: Vec<(Duration, &'static str)>,
    pub(super) events: Vec<Event>,
    pub(super) cancels: Vec<(Duration, RunId, CancelReason)>,
    /// The states of stopping with the time of each entry, and the futures and threads that were going.
    pub(super) states: Vec<(Duration, &'static str, usize, usize)>,
    pub(super) stopped: Option<(Duration, Result<ShutdownReport, Error>)>,
    caps: Vec<Option<usize>>,
    concurrency: usize,
    pub(super) shutdown_timeout: Duration,
    pub(super) abort_grace: Duration,
    clock: Clock,
    paused: bool,
    backlog: Vec<Input>,
}

impl Node {
    pub(super) fn events(&self, wanted: fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    /// How often it has sent this statement.
    pub(super) fn sent(&self, name: &str) -> usize {
        self.statements.iter().filter(|(_, it)| *it == name).count()
    }
}

type Action = Box<dyn FnOnce(&mut World)>;

pub(super) struct World {
    start: Instant,
    pub(super) time: Duration,
    pub(super) server: Server,
    pub(super) server_up: bool,
    /// The server takes statements and connections and says nothing, as a stopped process does.
    pub(super) hung: bool,
    /// Somebody holds a lock on the table: what writes is refused after the lock's time-out.
    pub(super) locked: bool,
    /// What it refuses each time, such as interests when it is out of memory for locks.
    pub(super) refuses: fn(&Statement) -> bool,
    /// How many notifications were sent.
    pub(super) notified: usize,
    /// Workers that come from here on do not listen for notifications.
    pub(super) deaf: bool,
    /// Nodes that cannot connect although the server is up.
    pub(super) unreachable: BTreeSet<usize>,
    pub(super) nodes: Vec<Node>,
    behaviour: Box<dyn Fn(&str, RunId) -> Behaviour>,
    pub(super) faults: Faults,
    /// What a script has go wrong.
    pub(super) mishaps: Mishaps,
    pub(super) audit: Option<Audit>,
    random: u64,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    actions: Vec<Option<Action>>,
    /// Nodes that were told something at this moment and have not decided yet.
    told: BTreeSet<usize>,
    sequence: u64,
    spins: (Duration, u32),
    /// Handlers at work, by job: two at once means that a job runs twice at the same time.
    pub(super) overlaps: usize,
    /// When each handler started.
    pub(super) starts: Vec<(Duration, RunId)>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            #[expect(clippy::disallowed_methods, reason = "the simulated clock has to start somewhere")]
            start: Instant::now(),
            time: Duration::ZERO,
            server: Server::default(),
            server_up: true,
            hung: false,
            locked: false,
            refuses: |_| false,
            notified: 0,
            deaf: false,
            unreachable: BTreeSet::new(),
            nodes: Vec::new(),
            behaviour: Box::new(|_, _| Behaviour::takes(ms(1))),
            faults: Faults::default(),
            mishaps: Mishaps::default(),
            audit: None,
            random: seed,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            actions: Vec::new(),
            told: BTreeSet::new(),
            sequence: 0,
            spins: (Duration::ZERO, 0),
            overlaps: 0,
            starts: Vec::new(),
        }
    }

    /// What a node's clock shows.
    fn now(&self, node: usize) -> Instant {
        self.nodes[node].clock.shows(self.start, self.time)
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.random) % below
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.random(1_000) < per_mille
    }

    pub(super) fn add(&mut self, config: Config, kinds: Vec<KindRule>) -> usize {
        self.add_with(config, kinds, Clock::default())
    }

    pub(super) fn add_with(&mut self, config: Config, kinds: Vec<KindRule>, clock: Clock) -> usize {
        let index = self.nodes.len();
        let name = format!("host:{index}:sim");
        let seed = mix(self.random ^ index as u64);
        let node = Node {
            name: name.clone(),
            engine: None,
            connected: BTreeMap::new(),
            ear: Ear::default(),
            handlers: BTreeMap::new(),
            blocking: kinds.iter().enumerate().filter(|(_, rule)| rule.blocking).map(|(index, _)| index).collect(),
            threads: BTreeSet::new(),
            unsure: false,
            wake_at: None,
            statements: Vec::new(),
            events: Vec::new(),
            cancels: Vec::new(),
            states: Vec::new(),
            stopped: None,
            caps: kinds.iter().map(|rule| rule.cap).collect(),
            concurrency: config.concurrency,
            shutdown_timeout: config.shutdown_timeout,
            abort_grace: config.abort_grace,
            clock,
            paused: false,
            backlog: Vec::new(),
        };
        let (channel, listen) = (ear::CHANNEL.to_owned(), !self.deaf);
        let rules = Rules { config, kinds, worker: name.into(), channel, listen, seed };
        self.nodes.push(node);
        self.nodes[index].engine = Some(Engine::new(rules, self.now(index)));
        self.drive(index);
        index
    }

    fn schedule(&mut self, after: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse((self.time + after, self.sequence)));
        self.happenings.insert(self.sequence, happening);
    }

    pub(super) fn at(&mut self, time: Duration, action: impl FnOnce(&mut Self) + 'static) {
        self.actions.push(Some(Box::new(action)));
        let index = self.actions.len() - 1;
        self.schedule(time.saturating_sub(self.time), Happening::Do(index));
    }

    /// Runs until the time has come.
    pub(super) fn run_until(&mut self, end: Duration) {
        while let Some(Reverse((time, _))) = self.queue.peek().copied() {
            if time > end {
                break;
            }
            self.step();
        }
        self.time = end;
        self.server.now = end;
    }

    /// Runs until `done`, at most until the time has come; says whether it was done.
    pub(super) fn run_while(&mut self, end: Duration, mut going: impl FnMut(&Self) -> bool) -> bool {
        while going(self) {
            match self.queue.peek() {
                Some(Reverse((time, _))) if *time <= end => self.step(),
                _ => return false,
            }
        }
        true
    }

    fn step(&mut self) {
        let Some(Reverse((time, sequence))) = self.queue.pop() else { return };
        self.time = time;
        self.server.now = time;
        let Some(happening) = self.happenings.remove(&sequence) else { return };
        self.happen(happening);
        if self.queue.peek().is_none_or(|Reverse((time, _))| *time > self.time) {
            self.drive_told();
        }
        self.audit();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake(node) => {
                if self.nodes[node].wake_at.is_some_and(|at| at <= self.now(node)) {
                    self.nodes[node].wake_at = None;
                    self.tell(node, Input::Tick);
                }
            }
            Happening::Tell(node, input) => self.tell(node, input),
            Happening::Arrive { node, link, epoch, id, statement, reply_lost } => {
                self.arrive(node, link, epoch, id, &statement, reply_lost);
            }
            Happening::HandlerStarts(node, id) => self.handler_starts(node, id),
            Happening::HandlerEnds(node, id, verdict) => self.handler_ends(node, id, verdict),
            Happening::Do(index) => {
                if let Some(action) = self.actions[index].take() {
                    action(self);
                }
            }
        }
    }

    pub(super) fn tell(&mut self, node: usize, input: Input) {
        if self.nodes[node].paused {
            self.nodes[node].backlog.push(input);
            return;
        }
        let now = self.now(node);
        if !matches!(input, Input::Tick | Input::Connected(..) | Input::Reply(_, Ok(_))) {
            self.stirs(node);
        }
        if let Some(engine) = &mut self.nodes[node].engine {
            engine.input(now, input);
            self.told.insert(node);
            if self.queue.peek().is_none_or(|Reverse((time, _))| *time > self.time) {
                self.drive_told();
            }
        }
    }

    /// A front-end passes everything that has happened before it asks what to do.
    fn drive_told(&mut self) {
        while let Some(node) = self.told.pop_first() {
            self.drive(node);
        }
    }

    /// Stops the process as SIGSTOP does.
    pub(super) fn freeze(&mut self, node: usize) {
        self.nodes[node].paused = true;
        self.freezes(node);
    }

    pub(super) fn thaw(&mut self, node: usize) {
        self.nodes[node].paused = false;
        self.thaws(node);
        for input in std::mem::take(&mut self.nodes[node].backlog) {
            self.tell(node, input);
        }
        self.tell(node, Input::Tick);
    }

    /// Ends the process as SIGKILL does.
    pub(super) fn kill(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        it.engine = None;
        it.handlers.clear();
        it.connected.clear();
    }

    /// The connection ends without a word about what was in flight.
    pub(super) fn cut(&mut self, node: usize, link: Link) {
        if let Some(epoch) = self.nodes[node].connected.remove(&link) {
            self.tell(node, Input::Lost(link, epoch, Fault::link("connection cut")));
        }
    }

    /// The connection hangs: nothing comes through it any more, and nobody is told.
    pub(super) fn mute(&mut self, node: usize, link: Link) {
        self.nodes[node].connected.remove(&link);
    }

    fn drive(&mut self, node: usize) {
        let now = self.now(node);
        while let Some(output) = self.nodes[node].engine.as_mut().and_then(|engine| engine.output(now)) {
            self.obey(node, output);
        }
        let deadline = self.nodes[node].engine.as_ref().and_then(Engine::deadline);
        if let Some(at) = deadline {
            self.spins = if self.spins.0 == self.time { (self.time, self.spins.1 + 1) } else { (self.time, 0) };
            assert!(self.spins.1 < 10_000, "{} spins at {:?}", self.nodes[node].name, self.time);
            if self.nodes[node].wake_at != Some(at) {
                self.nodes[node].wake_at = Some(at);
                let time = self.nodes[node].clock.time_at(self.start, at);
                self.schedule(time.saturating_sub(self.time), Happening::Wake(node));
            }
        }
    }

    fn obey(&mut self, node: usize, output: Output) {
        match output {
            Output::Connect(link, epoch) => self.connect(node, link, epoch),
            Output::Disconnect(link) => {
                self.nodes[node].connected.remove(&link);
            }
            Output::Execute(link, id, statement) => self.send(node, link, id, *statement),
            Output::Start(start) => self.start(node, *start),
            Output::Cancel(id, reason) => {
                self.nodes[node].cancels.push((self.time, id, reason));
                self.cancel(node, id);
            }
            Output::Abort(id) => self.abort(node, id),
            Output::Observe(event) => self.observe(node, event),
            Output::Stopped(result) => {
                if let Ok(report) = &result {
                    self.audit_report(node, report);
                }
                self.nodes[node].stopped = Some((self.time, result));
            }
        }
    }

    fn observe(&mut self, node: usize, event: Event) {
        self.audit_event(&event);
        if let Event::ShutdownState { state, asynchronous, blocking } = event {
            self.nodes[node].states.push((self.time, state, asynchronous, blocking));
        }
        self.nodes[node].events.push(event);
    }

    fn connect(&mut self, node: usize, link: Link, epoch: u64) {
        self.nodes[node].connected.remove(&link);
        if self.hung {
            return;
        }
        if self.server_up && !self.unreachable.contains(&node) {
            self.nodes[node].connected.insert(link, epoch);
            self.schedule(ms(2), Happening::Tell(node, Input::Connected(link, epoch)));
        } else {
            self.schedule(ms(1), Happening::Tell(node, Input::Lost(link, epoch, Fault::link("connection refused"))));
        }
    }

    fn send(&mut self, node: usize, link: Link, id: StatementId, statement: Statement) {
        self.nodes[node].statements.push((self.time, statement.name()));
        self.audit_rate(node);
        let epoch = self.nodes[node].connected.get(&link).copied();
        let Some(epoch) = epoch.filter(|_| !self.hung) else { return };
        if self.locked && writes(&statement) {
            return self.schedule(LOCK_TIMEOUT, Happening::Tell(node, Input::Reply(id, Err(refused()))));
        }
        let mishap = self.mishaps.of_statement(node, link);
        self.nodes[node].unsure |= matches!(mishap, Some(Mishap::Slow(_) | Mishap::LostMeanwhile(_)));
        let slow = match mishap {
            Some(Mishap::Slow(time) | Mishap::LostMeanwhile(time)) => time,
            _ if self.chance(self.faults.slow) => ms(self.random(3_000)),
            _ => Duration::ZERO,
        };
        if (self.refuses)(&statement) || matches!(mishap, Some(Mishap::Refused)) || self.chance(self.faults.refused) {
            self.schedule(TRIP + slow, Happening::Tell(node, Input::Reply(id, Err(refused()))));
            return;
        }
        if matches!(mishap, Some(Mishap::LostBefore)) || self.chance(self.faults.lost_before) {
            self.nodes[node].connected.remove(&link);
            self.schedule(TRIP, Happening::Tell(node, Input::Lost(link, epoch, Fault::link("cut before"))));
            return;
        }
        let reply_lost = matches!(mishap, Some(Mishap::LostAfter)) || self.chance(self.faults.lost_after);
        let statement = Box::new(statement);
        self.schedule(TRIP / 2 + slow, Happening::Arrive { node, link, epoch, id, statement, reply_lost });
        if matches!(mishap, Some(Mishap::LostMeanwhile(_))) {
            self.nodes[node].connected.remove(&link);
            self.schedule(TRIP, Happening::Tell(node, Input::Lost(link, epoch, Fault::link("cut meanwhile"))));
        }
    }

    fn arrive(
        &mut self,
        node: usize,
        link: Link,
        epoch: u64,
        id: StatementId,
        statement: &Statement,
        reply_lost: bool,
    ) {
        if !self.server_up || self.hung {
            return;
        }
        self.assert_released_jobs_rest(node, statement);
        // A statement that the server has got is executed even if the connection is gone by then.
        let reply = self.heed(node, epoch, statement).unwrap_or_else(|| self.server.execute(statement));
        if self.nodes[node].connected.get(&link) != Some(&epoch) {
            return;
        }
        if reply_lost {
            self.nodes[node].connected.remove(&link);
            self.schedule(TRIP, Happening::Tell(node, Input::Lost(link, epoch, Fault::link("cut after"))));
            return;
        }
        self.schedule(TRIP / 2, Happening::Tell(node, Input::Reply(id, Ok(reply))));
    }

    /// A producer's enqueue with its notification.
    pub(super) fn enqueue(&mut self, kind: &'static str, priority: Priority, delay: Duration) -> i64 {
        let id = self.server.enqueue(kind, priority, delay);
        self.announce(kind, delay);
        id
    }

    /// A queue asks for running jobs to end, and says so.
    pub(super) fn request_cancel(&mut self, jobs: &[i64]) {
        for job in jobs {
            assert!(self.server.request_cancel(*job), "job {job} is running");
        }
        self.broadcast(&crate::notification::encode_cancelled(jobs));
    }

    pub(super) fn enqueue_many(&mut self, kind: &'static str, count: usize) {
        for _ in 0..count {
            self.server.enqueue(kind, Priority::Normal, Duration::ZERO);
        }
        self.announce(kind, Duration::ZERO);
    }

    /// Tells a worker to stop and waits until it has: the time that it took, and its report.
    pub(super) fn stop(&mut self, node: usize, within: Duration) -> (Duration, ShutdownReport) {
        let told = self.time;
        self.tell(node, Input::Shutdown);
        self.run_while(told + within, |world| world.nodes[node].stopped.is_none());
        let (at, report) = self.stopped(node).unwrap_or_else(|| panic!("not stopped {within:?} after {told:?}"));
        (at.saturating_sub(told), report)
    }

    /// When a worker stopped, and its report.
    pub(super) fn stopped(&self, node: usize) -> Option<(Duration, ShutdownReport)> {
        let (at, result) = self.nodes[node].stopped.as_ref()?;
        Some((*at, result.as_ref().unwrap().clone()))
    }

    pub(super) fn states(&self, node: usize) -> Vec<&'static str> {
        self.nodes[node].states.iter().map(|(_, state, ..)| *state).collect()
    }

    /// A handler begins a transaction that completes its job; it is open until the job is completed or let go.
    pub(super) fn hold_row(&mut self, job: i64) {
        self.server.locked.insert(job);
    }

    pub(super) fn all_finished(&self) -> bool {
        self.server.live.is_empty()
    }

    pub(super) fn entries(&self, what: &str) -> usize {
        self.server.journal.iter().filter(|entry| entry.what == what).count()
    }

    pub(super) fn claimed_by(&self, node: usize) -> usize {
        let name = &self.nodes[node].name;
        self.server.live.values().filter(|row| matches!(&row.state, State::Claimed { by, .. } if by == name)).count()
    }

    /// What a stopped worker says is true: every claim that it knows of and leaves is named, every result counted.
    pub(super) fn assert_stopped_soundly(&self, node: usize, report: &ShutdownReport, abort_grace: Duration) {
        let entered =
            |wanted| self.nodes[node].states.iter().find(|(_, state, ..)| *state == wanted).map(|(at, ..)| *at);
        // By its own clock.
        let patience = self.nodes[node].clock.longest(abort_grace).saturating_sub(Duration::from_micros(1));
        let gave_up = entered("forced").is_some_and(|at| entered("stopped") >= Some(at + patience));
        let name = &self.nodes[node].name;
        let left: BTreeSet<i64> = report.left_claimed.iter().map(|left| left.job.get()).collect();
        // A worker that gave up on its server may not have heard of its last claim, nor one of a claim that took effect
        // late.
        let heard: BTreeSet<RunId> = self.starts.iter().map(|(_, id)| *id).collect();
        for (job, row) in &self.server.live {
            let ours = matches!(&row.state, State::Claimed { by, .. } if by == name);
            let known =
                !gave_up && !self.nodes[node].unsure || heard.contains(&RunId { job: *job, run: row.run_count });
            assert!(!ours || left.contains(job) || !known, "job {job} is left without a word: {report:?}");
        }
        let ended = self.server.journal.iter().filter(|entry| entry.by == *name && entry.what != "stale-recovered");
        let (stored, counted) = (ended.count(), report.settled + report.timed_out + report.released);
        // Of a job that its handler completes in the worker's last moment the worker need not have heard.
        let unsure = |left: &&LeftClaimed| {
            left.reason == LeftReason::NotStored || self.server.finished.contains_key(&left.job.get())
        };
        let unsure = report.left_claimed.iter().filter(unsure).count();
        let counted = usize::try_from(counted).unwrap();
        assert!(counted <= stored && stored <= counted + unsure, "{stored} results are stored: {report:?}");
    }

    /// What must hold whatever has gone wrong.
    pub(super) fn assert_sound(&self) {
        let mut seen = BTreeSet::new();
        for entry in &self.server.journal {
            assert!(seen.insert(entry.id), "run {} ended twice", entry.id);
        }
        for (id, (row, _)) in &self.server.finished {
            for run in 1..=row.run_count {
                assert!(seen.contains(&RunId { job: *id, run }), "run {id}/{run} has no entry");
            }
        }
        let mut claimed = BTreeSet::new();
        for (_, id, ..) in &self.server.claims {
            assert!(claimed.insert(*id), "run {id} was claimed twice");
        }
    }
}

fn writes(statement: &Statement) -> bool {
    !matches!(
        statement,
        Statement::Check
            | Statement::Stale(_)
            | Statement::Survey(_)
            | Statement::Held(_)
            | Statement::History(_)
            | Statement::Inquiry(_)
            | Statement::Interest(_)
            | Statement::Listen
            | Statement::Notify(_)
    )
}

fn refused() -> Fault {
    Fault {
        kind: FaultKind::Transient,
        outcome: OutcomeKnown::NotDone,
        message: "refused for now".to_owned(),
        code: None,
        source: None,
    }
}

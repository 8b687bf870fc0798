//! The producer's state machine: many callers, one connection.
//!
//! Calls gather while a statement is in flight and then go as one insert, so that a commit is shared by all who wait
//! for it. A call is answered when its rows are committed and the notification about them has been sent, so a program
//! may exit right after.
#![deny(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind};
use crate::link::{Epoch, LinkState, StatementId};
use crate::migration::check_version;
use crate::notification;
use crate::statement::{Enqueue, NewJob, Reply, Statement};
use crate::time::{later, seconds, sooner};

/// The most rows that one statement inserts; more calls wait for the next.
pub(crate) const MAX_ROWS: usize = 1_000;

/// How long a caller waits at most, by default.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Names a call.
pub(crate) type CallId = u64;

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    Tick,
    /// Somebody wants these rows inserted. No rows: somebody wants to know whether the queue can be used.
    Call(CallId, Vec<NewJob>),
    Connected(Epoch),
    Lost(Epoch, Fault),
    Reply(StatementId, Result<Reply, Fault>),
    /// The last handle is gone: answer what was asked, then stop.
    Closed,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Output {
    Connect(Epoch),
    Disconnect,
    Execute(StatementId, Statement),
    /// The ids in the order of the call's rows.
    Answer(CallId, Result<Vec<i64>, Error>),
    Stopped,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    jobs: Vec<NewJob>,
    deadline: Instant,
}

#[derive(Debug)]
enum Purpose {
    Check,
    Enqueue(Vec<Call>),
    Notify(Vec<(CallId, Vec<i64>)>),
}

/// Decides for a `Queue`; driven as the worker's engine is.
#[derive(Debug)]
pub(crate) struct Producer {
    channel: String,
    link: LinkState<Purpose>,
    checked: bool,
    waiting: VecDeque<Call>,
    /// Committed rows whose notification is not sent yet.
    stored: Vec<(CallId, Vec<i64>)>,
    ready: BTreeSet<String>,
    due: BTreeMap<String, f64>,
    /// After a refused batch its calls go one by one: one of them is at fault, the others are not.
    alone: usize,
    closed: bool,
    stopped: bool,
    statements: u64,
    outbox: VecDeque<Output>,
}

impl Producer {
    pub(crate) fn new(channel: String, seed: u64, now: Instant) -> Self {
        Self {
            channel,
            link: LinkState::new(seed, now),
            checked: false,
            waiting: VecDeque::new(),
            stored: Vec::new(),
            ready: BTreeSet::new(),
            due: BTreeMap::new(),
            alone: 0,
            closed: false,
            stopped: false,
            statements: 0,
            outbox: VecDeque::new(),
        }
    }

    pub(crate) fn input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Tick => {}
            Input::Call(id, jobs) => self.waiting.push_back(Call { id, jobs, deadline: later(now, CALL_TIMEOUT) }),
            Input::Connected(epoch) if self.link.is_current(epoch) => self.link.up(),
            Input::Connected(_) => {}
            Input::Lost(epoch, fault) => self.lost(now, epoch, &fault),
            Input::Reply(id, reply) => self.replied(now, id, reply),
            Input::Closed => self.closed = true,
        }
    }

    pub(crate) fn output(&mut self, now: Instant) -> Option<Output> {
        if self.outbox.is_empty() && !self.stopped {
            self.advance(now);
        }
        self.outbox.pop_front()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        let calls = self.waiting.iter().map(|call| call.deadline).min();
        let link = if self.wants_link() { self.link.deadline() } else { None };
        sooner(calls, link)
    }

    fn advance(&mut self, now: Instant) {
        self.link.pass_time(now);
        if self.link.is_overdue(now) {
            self.outbox.push_back(Output::Disconnect);
            self.lost(now, self.link.epoch, &Fault::deadline());
        }
        self.give_up_late_calls(now);
        if self.wants_link() {
            if let Some(epoch) = self.link.connect(now) {
                self.outbox.push_back(Output::Connect(epoch));
            }
        }
        if self.link.is_idle() {
            if let Some((statement, purpose)) = self.next() {
                self.statements += 1;
                let id = StatementId(self.statements);
                self.link.sent(id, purpose, now);
                self.outbox.push_back(Output::Execute(id, statement));
            }
        }
        if self.closed && self.waiting.is_empty() && self.stored.is_empty() && self.link.purpose().is_none() {
            self.stopped = true;
            self.outbox.push_back(Output::Stopped);
        }
    }

    /// A queue that nobody uses does not reconnect by itself.
    fn wants_link(&self) -> bool {
        self.link.is_up() || !self.waiting.is_empty() || !self.stored.is_empty()
    }

    fn next(&mut self) -> Option<(Statement, Purpose)> {
        if !self.checked {
            return Some((Statement::Check, Purpose::Check));
        }
        if !self.stored.is_empty() {
            let answers = std::mem::take(&mut self.stored);
            return Some((self.notification(), Purpose::Notify(answers)));
        }
        let calls = self.gather();
        if calls.is_empty() {
            return None;
        }
        let rows = calls.iter().flat_map(|call| call.jobs.iter().cloned()).collect();
        Some((Statement::Enqueue(Enqueue { rows }), Purpose::Enqueue(calls)))
    }

    /// The calls of the next insert; probes are answered on the way.
    fn gather(&mut self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        let mut rows = 0;
        while let Some(call) = self.waiting.front() {
            let full = !calls.is_empty() && (rows + call.jobs.len() > MAX_ROWS || self.alone > 0);
            if full {
                break;
            }
            let Some(call) = self.waiting.pop_front() else { break };
            if call.jobs.is_empty() {
                self.answer(call.id, Ok(Vec::new()));
                continue;
            }
            rows += call.jobs.len();
            calls.push(call);
        }
        self.alone = self.alone.saturating_sub(calls.len());
        calls
    }

    /// One notification for everything stored since the last: kinds that are ready, else those that will be due.
    fn notification(&mut self) -> Statement {
        let soonest = self.due.values().copied().fold(f64::INFINITY, f64::min);
        let due_in = if self.ready.is_empty() { seconds(soonest) } else { Duration::ZERO };
        let mut kinds = std::mem::take(&mut self.ready);
        kinds.extend(std::mem::take(&mut self.due).into_keys());
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        Statement::Notify { channel: self.channel.clone(), payload: notification::encode(&kinds, due_in) }
    }

    fn replied(&mut self, now: Instant, id: StatementId, reply: Result<Reply, Fault>) {
        let Some(purpose) = self.link.take(id) else { return };
        match reply {
            Ok(reply) => {
                self.link.healthy();
                self.take_in(purpose, reply);
            }
            Err(fault) if matches!(fault.kind, FaultKind::Link) => {
                self.failed(now, purpose, &fault);
                self.outbox.push_back(Output::Disconnect);
                self.lost(now, self.link.epoch, &fault);
            }
            Err(fault) => self.failed(now, purpose, &fault),
        }
    }

    fn take_in(&mut self, purpose: Purpose, reply: Reply) {
        match (purpose, reply) {
            (Purpose::Check, Reply::Version { version, compatible_from }) => {
                match check_version(version, compatible_from) {
                    Ok(()) => self.checked = true,
                    Err(error) => self.refuse_all(&error),
                }
            }
            (Purpose::Enqueue(calls), Reply::Enqueued(ids)) => self.stored_rows(calls, ids),
            (Purpose::Notify(answers), _) => {
                for (id, ids) in answers {
                    self.answer(id, Ok(ids));
                }
            }
            (purpose, _) => debug_assert!(false, "the reply fits the statement: {purpose:?}"),
        }
    }

    fn stored_rows(&mut self, calls: Vec<Call>, ids: Vec<i64>) {
        let mut ids = ids.into_iter();
        for call in calls {
            for job in &call.jobs {
                if job.delay > 0.0 {
                    let soonest = self.due.entry(job.kind.to_string()).or_insert(job.delay);
                    *soonest = soonest.min(job.delay);
                } else {
                    self.ready.insert(job.kind.to_string());
                }
            }
            let own = ids.by_ref().take(call.jobs.len()).collect();
            self.stored.push((call.id, own));
        }
    }

    fn lost(&mut self, now: Instant, epoch: Epoch, fault: &Fault) {
        if !self.link.is_current(epoch) {
            return;
        }
        if let (_, Some(purpose)) = self.link.down(now) {
            self.failed(now, purpose, fault);
        }
        if matches!(fault.kind, FaultKind::Fatal(_)) {
            self.refuse_all(&fault.to_error("connecting the queue"));
        }
        let (probes, calls) = std::mem::take(&mut self.waiting).into_iter().partition(|call| call.jobs.is_empty());
        self.waiting = calls;
        let probes: VecDeque<Call> = probes;
        for probe in probes {
            self.answer(probe.id, Err(fault.to_error("connecting the queue")));
        }
    }

    fn failed(&mut self, now: Instant, purpose: Purpose, fault: &Fault) {
        match purpose {
            Purpose::Check => {
                self.link.pause(now);
                if matches!(fault.kind, FaultKind::Fatal(_)) {
                    self.refuse_all(&fault.to_error("looking for venturi's tables"));
                }
            }
            Purpose::Enqueue(calls) => self.insert_failed(now, calls, fault),
            Purpose::Notify(answers) => {
                // The rows are committed. Workers find them when they poll.
                for (id, ids) in answers {
                    self.answer(id, Ok(ids));
                }
            }
        }
    }

    fn insert_failed(&mut self, now: Instant, calls: Vec<Call>, fault: &Fault) {
        match fault.kind {
            FaultKind::Link => {
                for call in calls {
                    let error = Error::new(
                        ErrorKind::Unknown,
                        format!(
                            "the connection ended while the job was being stored ({}); it may or may not have been \
                             enqueued, enqueue it again only if running it twice is harmless",
                            fault.message
                        ),
                    );
                    self.answer(call.id, Err(error));
                }
            }
            FaultKind::Transient => {
                self.link.pause(now);
                self.wait_again(calls);
            }
            _ if calls.len() > 1 => {
                self.alone = calls.len();
                self.wait_again(calls);
            }
            _ => {
                for call in calls {
                    self.answer(
                        call.id,
                        Err(not_enqueued(&format!("the server refused it: {}", fault.message), fault)),
                    );
                }
            }
        }
    }

    fn wait_again(&mut self, calls: Vec<Call>) {
        for call in calls.into_iter().rev() {
            self.waiting.push_front(call);
        }
    }

    fn give_up_late_calls(&mut self, now: Instant) {
        while let Some(late) = self.waiting.iter().position(|call| call.deadline <= now) {
            let Some(call) = self.waiting.remove(late) else { return };
            let why = "the server could not be reached in time";
            self.answer(
                call.id,
                Err(Error::new(ErrorKind::NotEnqueued, format!("the job was not enqueued: {why}; try again later"))),
            );
        }
    }

    fn refuse_all(&mut self, error: &Error) {
        for call in std::mem::take(&mut self.waiting) {
            self.answer(call.id, Err(Error::new(error.kind(), error.to_string())));
        }
    }

    fn answer(&mut self, id: CallId, answer: Result<Vec<i64>, Error>) {
        self.outbox.push_back(Output::Answer(id, answer));
    }
}

fn not_enqueued(why: &str, fault: &Fault) -> Error {
    let error = Error::new(ErrorKind::NotEnqueued, format!("the job was not enqueued: {why}"));
    match &fault.source {
        Some(source) => error.with_postgres(source.clone()),
        None => error,
    }
}

//! The producer's state machine: many callers, one connection.
//!
//! Calls gather while a statement is in flight and then go as one insert, so that a commit is shared by all who wait
//! for it. A call is answered when its rows are committed and the notification about them has been sent, so a program
//! may exit right after.
#![deny(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;
use std::time::{Duration, Instant};

use crate::Backoff;
use crate::config::{DEFAULT_BACKSTOP, DEFAULT_JITTER};
use crate::error::{Error, ErrorKind};
use crate::fault::{Fault, FaultKind, OutcomeKnown};
use crate::link::{Epoch, LinkState, StatementId};
use crate::migration::check_version;
use crate::notification;
use crate::recovery;
use crate::statement::{Enqueue, NewJob, Recover, Recovered, Recovery, Reply, Stale, StaleRow, Statement};
use crate::time::{later, seconds, sooner};

/// The most rows that one statement inserts; more calls wait for the next.
const MAX_ROWS: usize = 1_000;

/// How long a caller waits at most, by default.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The most payload that one statement inserts: larger ones save nothing, and hold memory on both sides.
const MAX_BYTES: usize = 8_000_000;

/// Names a call.
pub(crate) type CallId = u64;

/// What a caller wants.
#[derive(Debug)]
pub(crate) enum Request {
    /// To know whether the queue can be used.
    Probe,
    /// These rows inserted.
    Enqueue(Vec<NewJob>),
    /// Claims whose leases ran out put back.
    RecoverStale,
}

/// What a caller gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Ready,
    /// The ids in the order of the rows.
    Enqueued(Vec<i64>),
    Recovered(RecoveredStale),
}

/// What recovering expired claims did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveredStale {
    /// Jobs that run again.
    pub repended: u64,
    /// Jobs that went to dead, because this was the last failure that the backstop allows.
    pub dead: u64,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    Tick,
    Call(CallId, Request),
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
    Answer(CallId, Result<Response, Error>),
    Stopped,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    request: Request,
    deadline: Instant,
}

/// A call whose rows are being inserted.
#[derive(Debug)]
struct Insert {
    id: CallId,
    jobs: Vec<NewJob>,
    deadline: Instant,
}

#[derive(Debug)]
enum Purpose {
    Check,
    Enqueue(Vec<Insert>),
    Notify(Vec<(CallId, Response)>),
    Stale(CallId, RecoveredStale),
    Recover(CallId, RecoveredStale),
}

/// Decides for a `Queue`; driven as the worker's engine is.
#[derive(Debug)]
pub(crate) struct Producer {
    channel: String,
    link: LinkState<Purpose>,
    checked: bool,
    waiting: VecDeque<Call>,
    /// Committed rows whose notification is not sent yet.
    stored: Vec<(CallId, Response)>,
    /// The recovery that goes on: what it has done, and the rows that it found.
    recovery: Option<(CallId, RecoveredStale, Vec<Recovery>)>,
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
            recovery: None,
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
            Input::Call(id, request) => {
                self.waiting.push_back(Call { id, request, deadline: later(now, CALL_TIMEOUT) });
            }
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
            self.drop_link(now, &Fault::deadline());
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
        let idle = self.waiting.is_empty() && self.stored.is_empty() && self.recovery.is_none();
        if self.closed && idle && self.link.purpose().is_none() {
            self.stopped = true;
            self.outbox.push_back(Output::Stopped);
        }
    }

    /// A queue that nobody uses does not reconnect by itself.
    fn wants_link(&self) -> bool {
        self.link.is_up() || !self.waiting.is_empty() || !self.stored.is_empty() || self.recovery.is_some()
    }

    fn next(&mut self) -> Option<(Statement, Purpose)> {
        if !self.checked {
            // A schema that did not fit is looked at again only for somebody who waits, or this would ask for ever.
            return (!self.waiting.is_empty()).then_some((Statement::Check, Purpose::Check));
        }
        if !self.stored.is_empty() {
            let answers = std::mem::take(&mut self.stored);
            return Some((self.notification(), Purpose::Notify(answers)));
        }
        if let Some((id, done, rows)) = self.recovery.take() {
            return Some(next_recovery(id, done, rows));
        }
        let inserts = self.gather();
        if inserts.is_empty() {
            // What stopped the gathering was a call of another kind.
            let call = self.waiting.pop_front()?;
            return Some(next_recovery(call.id, RecoveredStale::default(), Vec::new()));
        }
        let rows = inserts.iter().flat_map(|call| call.jobs.iter().cloned()).collect();
        Some((Statement::Enqueue(Enqueue { rows }), Purpose::Enqueue(inserts)))
    }

    /// The calls of the next insert; probes are answered on the way.
    fn gather(&mut self) -> Vec<Insert> {
        let mut inserts: Vec<Insert> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while let Some(Call { request, .. }) = self.waiting.front() {
            let (more, larger) = match request {
                Request::Probe => (0, 0),
                Request::Enqueue(jobs) => (jobs.len(), jobs.iter().map(size).sum()),
                Request::RecoverStale => break,
            };
            let full = rows + more > MAX_ROWS || bytes + larger > MAX_BYTES || self.alone > 0;
            if more > 0 && !inserts.is_empty() && full {
                break;
            }
            let Some(Call { id, request, deadline }) = self.waiting.pop_front() else { break };
            match request {
                Request::Enqueue(jobs) if !jobs.is_empty() => {
                    rows += more;
                    bytes += larger;
                    inserts.push(Insert { id, jobs, deadline });
                }
                Request::Enqueue(_) => self.answer(id, Ok(Response::Enqueued(Vec::new()))),
                Request::Probe | Request::RecoverStale => self.answer(id, Ok(Response::Ready)),
            }
        }
        self.alone = self.alone.saturating_sub(inserts.len());
        inserts
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
        if !self.link.is_in_flight(id) {
            return;
        }
        if let Err(fault) = &reply {
            if matches!(fault.kind, FaultKind::Link) {
                return self.drop_link(now, fault);
            }
        }
        let Some(purpose) = self.link.take(id) else { return };
        match reply {
            Ok(reply) => {
                self.link.healthy();
                self.take_in(purpose, reply);
            }
            Err(fault) => self.failed(now, purpose, &fault),
        }
    }

    /// The connection is of no more use, whatever it is doing.
    fn drop_link(&mut self, now: Instant, fault: &Fault) {
        self.outbox.push_back(Output::Disconnect);
        self.lost(now, self.link.epoch, fault);
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
            (Purpose::Notify(answers), _) => self.answer_all(answers),
            (Purpose::Stale(id, done), Reply::Stale(rows)) => self.found_stale(id, done, rows),
            (Purpose::Recover(id, done), Reply::Recovered(rows)) => self.recovered(id, done, rows),
            (purpose, _) => debug_assert!(false, "the reply fits the statement: {purpose:?}"),
        }
    }

    fn stored_rows(&mut self, inserts: Vec<Insert>, ids: Vec<i64>) {
        let mut ids = ids.into_iter();
        for insert in inserts {
            for job in &insert.jobs {
                self.announce(job.kind.to_string(), job.delay);
            }
            let own = ids.by_ref().take(insert.jobs.len()).collect();
            self.stored.push((insert.id, Response::Enqueued(own)));
        }
    }

    fn announce(&mut self, kind: String, delay: f64) {
        if delay > 0.0 {
            let soonest = self.due.entry(kind).or_insert(delay);
            *soonest = soonest.min(delay);
        } else {
            self.ready.insert(kind);
        }
    }

    fn answer_all(&mut self, answers: Vec<(CallId, Response)>) {
        for (id, response) in answers {
            self.answer(id, Ok(response));
        }
    }

    /// Decides what becomes of expired claims. A queue knows no kinds, so all have the default backoff and backstop.
    fn found_stale(&mut self, id: CallId, done: RecoveredStale, rows: Vec<StaleRow>) {
        let recovery = |row| recovery::decide(row, Backoff::default(), DEFAULT_JITTER, DEFAULT_BACKSTOP);
        if rows.is_empty() {
            self.stored.push((id, Response::Recovered(done)));
        } else {
            self.recovery = Some((id, done, rows.into_iter().map(recovery).collect()));
        }
    }

    /// Looks again until a pass recovers nothing.
    fn recovered(&mut self, id: CallId, mut done: RecoveredStale, rows: Vec<Recovered>) {
        let nothing = rows.is_empty();
        for row in rows {
            if row.dead {
                done.dead += 1;
            } else {
                done.repended += 1;
                self.announce(row.kind, row.delay);
            }
        }
        if nothing {
            self.stored.push((id, Response::Recovered(done)));
        } else {
            self.recovery = Some((id, done, Vec::new()));
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
        let is_probe = |call: &Call| matches!(call.request, Request::Probe);
        let (probes, calls) = std::mem::take(&mut self.waiting).into_iter().partition(is_probe);
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
            // The rows are committed. Workers find them when they poll.
            Purpose::Notify(answers) => self.answer_all(answers),
            // Nothing is lost by it, and what was put back already is counted nowhere else.
            Purpose::Stale(id, _) | Purpose::Recover(id, _) => {
                self.answer(id, Err(fault.to_error("recovering expired claims")));
            }
        }
    }

    fn insert_failed(&mut self, now: Instant, calls: Vec<Insert>, fault: &Fault) {
        match fault.kind {
            // Nothing was sent, so nothing was stored.
            FaultKind::Link if fault.outcome == OutcomeKnown::NotDone => self.wait_again(calls),
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

    fn wait_again(&mut self, inserts: Vec<Insert>) {
        for Insert { id, jobs, deadline } in inserts.into_iter().rev() {
            self.waiting.push_front(Call { id, request: Request::Enqueue(jobs), deadline });
        }
    }

    fn give_up_late_calls(&mut self, now: Instant) {
        while let Some(late) = self.waiting.iter().position(|call| call.deadline <= now) {
            let Some(call) = self.waiting.remove(late) else { return };
            self.answer(call.id, Err(in_vain(&call.request)));
        }
    }

    fn refuse_all(&mut self, error: &Error) {
        for call in std::mem::take(&mut self.waiting) {
            self.answer(call.id, Err(Error::new(error.kind(), error.to_string())));
        }
    }

    fn answer(&mut self, id: CallId, answer: Result<Response, Error>) {
        self.outbox.push_back(Output::Answer(id, answer));
    }
}

/// What to tell a caller whose request could not be sent in time.
fn in_vain(request: &Request) -> Error {
    let why = "the server could not be reached in time; try again later";
    match request {
        Request::Enqueue(_) => Error::new(ErrorKind::NotEnqueued, format!("the job was not enqueued: {why}")),
        Request::Probe | Request::RecoverStale => Error::new(ErrorKind::Unavailable, why),
    }
}

/// Writes what was found, or looks for more.
fn next_recovery(id: CallId, done: RecoveredStale, rows: Vec<Recovery>) -> (Statement, Purpose) {
    if rows.is_empty() {
        // Nobody is called so: all claims are somebody else's.
        let stale = Stale { worker: "".into(), look_back: recovery::UNBOUNDED, most: recovery::PASS };
        (Statement::Stale(stale), Purpose::Stale(id, done))
    } else {
        (Statement::Recover(Recover { rows }), Purpose::Recover(id, done))
    }
}

/// Cuts off as many rows as one statement takes, until none is left.
pub(crate) fn batches(jobs: Vec<NewJob>) -> impl Iterator<Item = Vec<NewJob>> {
    let mut jobs = jobs.into_iter().peekable();
    iter::from_fn(move || {
        let mut batch = vec![jobs.next()?];
        let mut bytes = batch.iter().map(size).sum::<usize>();
        while batch.len() < MAX_ROWS {
            let Some(job) = jobs.next_if(|job| bytes + size(job) <= MAX_BYTES) else { break };
            bytes += size(&job);
            batch.push(job);
        }
        Some(batch)
    })
}

fn size(job: &NewJob) -> usize {
    job.payload.get().len()
}

/// What to tell a caller of several statements of which one failed: once something is stored, the same call must not be
/// repeated as it was.
pub(crate) fn partly(stored: usize, total: usize, error: Error) -> Error {
    if stored == 0 {
        return error;
    }
    let what = format!("the first {stored} of {total} jobs are enqueued; for the ones after them: {error}");
    Error::new(ErrorKind::Unknown, what).with_source(error.into())
}

fn not_enqueued(why: &str, fault: &Fault) -> Error {
    let error = Error::new(ErrorKind::NotEnqueued, format!("the job was not enqueued: {why}"));
    match &fault.source {
        Some(source) => error.with_postgres(source.clone()),
        None => error,
    }
}

#[cfg(test)]
mod tests;

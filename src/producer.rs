//! The producer's state machine: many callers, one connection.
//!
//! Calls gather while a statement is in flight and then go as one insert, so that a commit is shared by all who wait
//! for it. A call is answered when its rows are committed and the notification about them has been sent, if any
//! worker waits for it, so a program may exit right after.
#![deny(clippy::disallowed_methods)]

mod bulk;
mod call;
mod inquiring;
mod inserting;
mod keyed;
mod notifying;
mod recovering;
mod rules;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::error::Error;
use crate::fault::{Fault, FaultKind};
use crate::link::{Epoch, LinkState, StatementId};
use crate::migration::check_version;
use crate::observer::Event;
use crate::statement::{Enqueue, Notify, Recovery, Reply, Statement};
use crate::time::{later, sooner};

use call::{Call, Insert, in_vain, overloaded};
use inquiring::Asked;
use keyed::{Keyed, Queued, too_late};
use recovering::next_recovery;
use waiting::{Waiting, weight};

pub(crate) use bulk::Bulk;
pub(crate) use call::{CallId, Request, Response};
pub(crate) use keyed::{KeyedCall, MAX_KEYED, Round};
pub use recovering::RecoveredStale;
pub(crate) use rules::Rules;
#[cfg(any(feature = "blocking", feature = "async"))]
pub(crate) use rules::queue_knobs;

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
    /// Tell whoever listens.
    Observe(Event),
    Stopped,
}

#[derive(Debug)]
enum Purpose {
    Check,
    Enqueue(Vec<Insert>),
    Reserve(Insert),
    Keyed(Vec<Queued>),
    Notify(Vec<(CallId, Response)>, Notify),
    Stale(CallId, RecoveredStale),
    Recover(CallId, RecoveredStale),
    Inquire(Asked),
}

/// Decides for a `Queue`; driven as the worker's engine is.
#[derive(Debug)]
pub(crate) struct Producer {
    channel: String,
    rules: Rules,
    link: LinkState<Purpose>,
    checked: bool,
    waiting: Waiting,
    keyed: Keyed,
    /// Whether it is the turn of jobs with keys, when others wait as well.
    keyed_is_next: bool,
    /// Calls that found a row held by somebody, and when they ask again.
    parked: Vec<(Instant, Call)>,
    /// Committed rows whose notification is not sent yet.
    stored: Vec<(CallId, Response)>,
    /// Those of a notification that was refused, and what is sent instead.
    untold: Option<(Vec<(CallId, Response)>, Notify)>,
    /// The recovery that goes on: what it has done, and the rows that it found.
    recovery: Option<(CallId, RecoveredStale, Vec<Recovery>)>,
    ready: BTreeSet<String>,
    due: BTreeMap<String, f64>,
    /// Running jobs that were asked to end.
    cancelled: BTreeSet<i64>,
    /// What went wrong last, since the last answer.
    trouble: Option<Fault>,
    /// After a refused batch its calls go one by one: one of them is at fault, the others are not.
    alone: usize,
    closed: bool,
    stopped: bool,
    statements: u64,
    outbox: VecDeque<Output>,
}

impl Producer {
    pub(crate) fn new(channel: String, rules: Rules, seed: u64, now: Instant) -> Self {
        Self {
            channel,
            rules,
            link: LinkState::new(seed, now),
            checked: false,
            waiting: Waiting::default(),
            keyed: Keyed::new(seed),
            keyed_is_next: false,
            parked: Vec::new(),
            stored: Vec::new(),
            untold: None,
            trouble: None,
            recovery: None,
            ready: BTreeSet::new(),
            due: BTreeMap::new(),
            cancelled: BTreeSet::new(),
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
            Input::Call(id, request) => self.called(now, id, request),
            Input::Connected(epoch) if self.link.is_current(epoch) => {
                self.link.up();
                if self.rules.observed {
                    self.observe(Event::LinkUp { link: "queue" });
                }
            }
            Input::Connected(_) => {}
            Input::Lost(epoch, fault) => self.lost(now, epoch, &fault),
            Input::Reply(id, reply) => self.replied(now, id, reply),
            Input::Closed => self.closed = true,
        }
    }

    fn called(&mut self, now: Instant, id: CallId, request: Request) {
        // The first is never too much.
        let held = self.waiting.bytes() + self.keyed.bytes();
        if held > 0 && held.saturating_add(weight(&request)) > self.rules.max_waiting {
            return self.answer(id, Err(overloaded(self.rules.max_waiting)));
        }
        let deadline = later(now, self.rules.patience(&request));
        match request {
            Request::Keyed(call) if call.until.is_some_and(|until| until <= now) => {
                self.answer(id, Err(too_late(&call)));
            }
            Request::Keyed(call) => self.keyed.push(id, call, deadline),
            request => self.waiting.push(Call { id, request, deadline, numbers: None }),
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
        let parked = self.parked.iter().map(|(at, _)| *at).min();
        let link = if self.wants_link() { self.link.deadline() } else { None };
        sooner(sooner(sooner(self.waiting.deadline(), parked), self.keyed.deadline()), link)
    }

    fn advance(&mut self, now: Instant) {
        self.link.pass_time(now);
        if self.link.is_overdue(now) {
            self.drop_link(now, &Fault::deadline());
        }
        self.keyed.pass_time(now);
        self.unpark(now);
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
        if self.closed && !self.has_work() && self.link.purpose().is_none() {
            self.stopped = true;
            self.outbox.push_back(Output::Stopped);
        }
    }

    /// A queue that nobody uses does not reconnect by itself.
    fn wants_link(&self) -> bool {
        self.link.is_up() || self.has_work()
    }

    fn has_work(&self) -> bool {
        self.is_waited_for() || !self.stored.is_empty() || self.untold.is_some() || self.recovery.is_some()
    }

    fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.parked.is_empty() || !self.keyed.is_empty()
    }

    fn next(&mut self) -> Option<(Statement, Purpose)> {
        if !self.checked {
            // A schema that did not fit is looked at again only for somebody who waits, or this would ask for ever.
            return self.is_waited_for().then_some((Statement::Check, Purpose::Check));
        }
        if let Some((answers, notify)) = self.next_notification() {
            return Some((Statement::Notify(notify.clone()), Purpose::Notify(answers, notify)));
        }
        if let Some((id, done, rows)) = self.recovery.take() {
            return Some(next_recovery(id, done, rows));
        }
        if self.waiting.is_empty() || self.keyed_is_next {
            self.keyed_is_next = false;
            if let Some(next) = self.next_keyed() {
                return Some(next);
            }
        }
        self.keyed_is_next = true;
        let inserts = self.gather();
        if inserts.is_empty() {
            return self.next_alone();
        }
        let calls = inserts.iter().map(|insert| insert.jobs.clone()).collect();
        Some((Statement::Enqueue(Enqueue { calls, channel: None }), Purpose::Enqueue(inserts)))
    }

    /// What stopped the gathering: a call of another kind, or one that is large enough by itself.
    fn next_alone(&mut self) -> Option<(Statement, Purpose)> {
        let Call { id, request, deadline, numbers } = self.waiting.pop()?;
        Some(match request {
            Request::Enqueue(jobs) => Self::copying(Insert { id, jobs, deadline }, numbers),
            Request::Inquire(inquiry) => Self::inquire(id, inquiry, deadline),
            Request::Probe | Request::Keyed(_) | Request::RecoverStale => {
                next_recovery(id, RecoveredStale::default(), Vec::new())
            }
        })
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
                self.trouble = None;
                self.take_in(now, purpose, reply);
            }
            Err(fault) => {
                self.trouble = Some(fault.clone());
                self.failed(now, purpose, &fault);
            }
        }
    }

    /// The connection is of no more use, whatever it is doing.
    fn drop_link(&mut self, now: Instant, fault: &Fault) {
        self.outbox.push_back(Output::Disconnect);
        self.lost(now, self.link.epoch, fault);
    }

    fn take_in(&mut self, now: Instant, purpose: Purpose, reply: Reply) {
        match (purpose, reply) {
            (Purpose::Check, Reply::Version { version, compatible_from }) => {
                match check_version(version, compatible_from) {
                    Ok(()) => self.checked = true,
                    Err(error) => self.refuse_all(&error),
                }
            }
            (Purpose::Enqueue(calls), Reply::Enqueued(ids)) => self.stored_rows(calls, &ids),
            (Purpose::Reserve(insert), Reply::Reserved(numbers)) => self.reserved(insert, numbers),
            (Purpose::Keyed(calls), Reply::Keyed(answers)) => self.keyed_answered(now, calls, answers),
            (Purpose::Notify(answers, _), _) => self.answer_all(answers),
            (Purpose::Stale(id, done), Reply::Stale(rows)) => self.found_stale(id, done, rows),
            (Purpose::Recover(id, done), Reply::Recovered(rows)) => self.recovered(id, done, rows),
            (Purpose::Inquire(asked), Reply::Inquiry(found)) => self.inquired(now, asked, found),
            (purpose, _) => debug_assert!(false, "the reply fits the statement: {purpose:?}"),
        }
    }

    fn answer_all(&mut self, answers: Vec<(CallId, Response)>) {
        for (id, response) in answers {
            self.answer(id, Ok(response));
        }
    }

    fn lost(&mut self, now: Instant, epoch: Epoch, fault: &Fault) {
        if !self.link.is_current(epoch) {
            return;
        }
        self.trouble = Some(fault.clone());
        let (retry_in, purpose) = self.link.down(now);
        if self.rules.observed {
            self.observe(Event::LinkLost { link: "queue", error: fault.message.clone(), retry_in });
        }
        if let Some(purpose) = purpose {
            self.failed(now, purpose, fault);
        }
        if matches!(fault.kind, FaultKind::Fatal(_)) {
            self.refuse_all(&fault.to_error("connecting the queue"));
        }
        for probe in self.waiting.take_probes() {
            self.answer(probe.id, Err(fault.to_error("connecting the queue")));
        }
    }

    fn failed(&mut self, now: Instant, purpose: Purpose, fault: &Fault) {
        match purpose {
            Purpose::Check => {
                self.link.pause(now);
                let fault = fault.of_record();
                if matches!(fault.kind, FaultKind::Fatal(_)) {
                    self.refuse_all(&fault.to_error("looking for venturi's tables"));
                }
            }
            Purpose::Enqueue(calls) => self.insert_failed(now, calls, fault),
            Purpose::Keyed(calls) => self.keyed_failed(now, calls, fault),
            // Whatever became of the numbers, no job was sent.
            Purpose::Reserve(insert) => self.insert_failed(now, vec![insert], &fault.clone().not_sent()),
            Purpose::Notify(answers, notify) => self.notification_failed(answers, notify),
            Purpose::Inquire(asked) => self.inquiry_failed(now, asked, fault),
            // Nothing is lost by it, and what was put back already is counted nowhere else.
            Purpose::Stale(id, _) | Purpose::Recover(id, _) => {
                self.answer(id, Err(fault.to_error("recovering expired claims")));
            }
        }
    }

    fn give_up_late_calls(&mut self, now: Instant) {
        while let Some(call) = self.waiting.pop_late(now) {
            self.answer(call.id, Err(in_vain(&call.request, self.trouble.as_ref())));
        }
        for (id, error) in self.keyed.take_late(now, self.trouble.as_ref()) {
            self.answer(id, Err(error));
        }
    }

    fn refuse_all(&mut self, error: &Error) {
        let others = self.waiting.take_all().into_iter().map(|call| call.id);
        for id in others.chain(self.keyed.take_all()) {
            self.answer(id, Err(Error::new(error.kind(), error.to_string())));
        }
    }

    /// Whether it is worth making an event of each job.
    fn is_observed(&self) -> bool {
        self.rules.observed || log::log_enabled!(target: "venturi", log::Level::Debug)
    }

    fn observe(&mut self, event: Event) {
        self.outbox.push_back(Output::Observe(event));
    }

    fn answer(&mut self, id: CallId, answer: Result<Response, Error>) {
        self.outbox.push_back(Output::Answer(id, answer));
    }
}

//! The producer's rules in simulated time.

use std::time::Duration;

mod keyed;

use super::inserting::COPY_FROM;
use super::*;
use crate::Priority;
use crate::error::ErrorKind;
use crate::fault::OutcomeKnown;
use crate::job::RunId;
use crate::job_info::JobStatus;
use crate::migration::latest;
use crate::statement::{
    CancelAnswer, Finding, Inquiry, NewId, NewJob, NewJobs, Numbers, Recover, Recovered, StaleRow, Touch,
};

/// A producer with its clock, its answers and the statement in flight.
struct Desk {
    producer: Producer,
    now: Instant,
    epoch: Epoch,
    in_flight: Option<(StatementId, Statement)>,
    answers: BTreeMap<CallId, Result<Response, Error>>,
    connects: usize,
    events: Vec<Event>,
    stopped: bool,
}

impl Desk {
    fn new() -> Self {
        Self::with(Rules::default())
    }

    fn with(rules: Rules) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the simulated clock has to start somewhere")]
        let now = Instant::now();
        Self {
            producer: Producer::new("venturi".into(), rules, 1, now),
            now,
            epoch: 0,
            in_flight: None,
            answers: BTreeMap::new(),
            connects: 0,
            events: Vec::new(),
            stopped: false,
        }
    }

    /// Connected, and the schema checked.
    fn ready() -> Self {
        Self::ready_with(Rules::default())
    }

    fn ready_with(rules: Rules) -> Self {
        let mut desk = Self::with(rules);
        desk.tell(Input::Call(0, Request::Probe));
        desk.tell(Input::Connected(desk.epoch));
        desk.reply(Reply::Version { version: latest(), compatible_from: 1 });
        assert_eq!(desk.answers.remove(&0).unwrap().unwrap(), Response::Ready);
        desk
    }

    fn tell(&mut self, input: Input) {
        self.producer.input(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.producer.output(self.now) {
            match output {
                Output::Connect(epoch) => {
                    self.epoch = epoch;
                    self.connects += 1;
                }
                Output::Disconnect => self.in_flight = None,
                Output::Execute(id, statement) => {
                    assert!(self.in_flight.is_none(), "one statement in flight");
                    self.in_flight = Some((id, statement));
                }
                Output::Answer(id, answer) => assert!(self.answers.insert(id, answer).is_none(), "one answer a call"),
                Output::Observe(event) => self.events.push(event),
                Output::Stopped => self.stopped = true,
            }
        }
    }

    fn enqueue(&mut self, id: CallId, delay: f64) {
        self.tell(Input::Call(id, Request::Enqueue(NewJobs::new(vec![job("a", delay)]))));
    }

    fn enqueue_many(&mut self, id: CallId, count: usize) {
        let rows = (0..count).map(|_| job("a", 0.0)).collect();
        self.tell(Input::Call(id, Request::Enqueue(NewJobs::new(rows))));
    }

    /// Numbers for a call that is copied.
    fn reserve(&mut self) {
        let Statement::Reserve(count) = *self.sent() else { panic!("{:?}", self.sent()) };
        self.reply(Reply::Reserved(Numbers { ids: (1..=i64::from(count)).collect(), at: 0 }));
    }

    /// As the server's part and the statement's reading do it.
    fn copy(&mut self) {
        let Statement::Copy(copy) = self.sent() else { panic!("{:?}", self.sent()) };
        let ids = copy.numbers.ids.iter().map(|id| NewId { id: *id, due_in: None }).collect();
        self.reply(Reply::Enqueued(ids));
    }

    fn cut(&mut self) {
        self.tell(Input::Lost(self.epoch, Fault::link("cut")));
        self.in_flight = None;
    }

    fn connect_again(&mut self) {
        self.pass(Duration::from_secs(1));
        self.tell(Input::Connected(self.epoch));
    }

    fn sent(&self) -> &Statement {
        &self.in_flight.as_ref().expect("a statement is in flight").1
    }

    fn rows(&self) -> usize {
        match self.sent() {
            Statement::Enqueue(enqueue) => enqueue.len(),
            other => panic!("{other:?}"),
        }
    }

    fn reply(&mut self, reply: Reply) {
        let (id, _) = self.in_flight.take().expect("a statement is in flight");
        self.tell(Input::Reply(id, Ok(reply)));
    }

    fn store(&mut self) {
        let Statement::Enqueue(enqueue) = self.sent() else { panic!("{:?}", self.sent()) };
        let jobs = enqueue.calls.iter().flat_map(NewJobs::rows);
        let ids = (1..).zip(jobs).map(|(id, job)| NewId { id, due_in: Some(job.delay) }).collect();
        self.reply(Reply::Enqueued(ids));
    }

    fn refuse(&mut self, kind: FaultKind) {
        let (id, _) = self.in_flight.take().expect("a statement is in flight");
        let fault = Fault { kind, outcome: OutcomeKnown::NotDone, ..Fault::link("refused") };
        self.tell(Input::Reply(id, Err(fault)));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.tell(Input::Tick);
    }

    fn told(&self, id: CallId) -> String {
        self.answers[&id].as_ref().unwrap_err().to_string()
    }

    fn failure(&self, id: CallId) -> ErrorKind {
        self.answers[&id].as_ref().unwrap_err().kind()
    }
}

fn job(kind: &str, delay: f64) -> NewJob {
    NewJob {
        kind: kind.to_owned().into(),
        priority: Priority::Normal,
        payload: serde_json::value::to_raw_value(&1).unwrap(),
        dedup_key: None,
        delay,
        due_at: None,
        trace: None,
    }
}

#[test]
fn calls_that_come_while_a_statement_is_in_flight_share_the_next() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    assert_eq!(desk.rows(), 1, "a lone call waits for nobody");
    for id in 2..=5 {
        desk.enqueue(id, 0.0);
    }
    desk.store();
    desk.reply(Reply::Done);
    assert_eq!(desk.rows(), 4);
}

#[test]
fn a_call_is_answered_when_its_notification_has_been_sent() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    desk.store();
    assert!(desk.answers.is_empty());
    assert!(matches!(desk.sent(), Statement::Notify(notify) if notify.payload == "v1;a;0"));
    desk.reply(Reply::Done);
    assert_eq!(desk.answers[&1].as_ref().unwrap(), &Response::Enqueued(vec![1]));
}

#[test]
fn a_refused_notification_is_sent_to_everybody_and_then_no_more() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    desk.store();
    desk.enqueue(2, 0.0);
    assert!(matches!(desk.sent(), Statement::Notify(notify) if !notify.keys.is_empty()));
    desk.refuse(FaultKind::Statement);
    assert!(
        matches!(desk.sent(), Statement::Notify(Notify { payload, keys, .. }) if payload == "v1;a;0" && keys.is_empty())
    );
    assert!(desk.answers.is_empty(), "the caller waits for that");
    desk.refuse(FaultKind::Statement);
    assert_eq!(desk.answers[&1].as_ref().unwrap(), &Response::Enqueued(vec![1]));
    assert_eq!(desk.rows(), 1, "the next call had to wait for its turn, no longer");
}

#[test]
fn observers_hear_of_a_job_when_it_is_stored_and_of_the_connection() {
    let mut desk = Desk::ready_with(Rules { observed: true, ..Rules::default() });
    assert_eq!(desk.events, [Event::LinkUp { link: "queue" }]);
    desk.enqueue(1, 0.0);
    assert_eq!(desk.events.len(), 1, "not before");
    desk.store();
    assert_eq!(desk.events.pop(), Some(Event::Enqueued { job: 1.into(), kind: "a".into() }));
    desk.tell(Input::Lost(desk.epoch, Fault::link("cut")));
    assert!(matches!(desk.events.pop(), Some(Event::LinkLost { link: "queue", .. })));
}

#[test]
fn a_scheduled_job_is_announced_with_its_time() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 1.5);
    desk.store();
    assert!(matches!(desk.sent(), Statement::Notify(notify) if notify.payload == "v1;a;1500"));
}

#[test]
fn a_job_whose_reply_was_lost_is_reported_as_unknown_and_not_stored_again() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    desk.tell(Input::Lost(desk.epoch, Fault::link("cut")));
    assert_eq!(desk.failure(1), ErrorKind::Unknown);
    desk.in_flight = None;
    desk.enqueue(2, 0.0);
    desk.pass(Duration::from_secs(1));
    desk.tell(Input::Connected(desk.epoch));
    assert_eq!(desk.rows(), 1);
}

#[test]
fn a_job_that_was_never_sent_is_sent_over_the_next_connection() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    let (id, _) = desk.in_flight.take().unwrap();
    desk.tell(Input::Reply(id, Err(Fault::link("closed").not_sent())));
    assert!(desk.answers.is_empty());
    desk.pass(Duration::from_secs(1));
    desk.tell(Input::Connected(desk.epoch));
    desk.store();
    desk.reply(Reply::Done);
    assert!(desk.answers[&1].is_ok());
}

#[test]
fn a_job_that_could_not_be_sent_in_time_is_reported_as_not_enqueued() {
    let mut desk = Desk::ready();
    desk.tell(Input::Lost(desk.epoch, Fault::link("cut")));
    desk.enqueue(1, 0.0);
    for _ in 0..11 {
        desk.pass(Duration::from_secs(1));
        desk.tell(Input::Lost(desk.epoch, Fault::link("refused")));
    }
    assert_eq!(desk.failure(1), ErrorKind::NotEnqueued);
    assert!(desk.told(1).contains("could not be reached in time (refused)"), "{}", desk.told(1));
}

#[test]
fn a_job_that_the_server_refused_until_it_was_too_late_is_reported_with_what_it_said() {
    let mut desk = Desk::ready();
    for (id, offer) in [(1, false), (2, true)] {
        if offer {
            desk.offer(id, "k");
        } else {
            desk.enqueue(id, 0.0);
        }
        while !desk.answers.contains_key(&id) {
            if desk.in_flight.is_some() {
                desk.refuse(FaultKind::Transient);
            }
            desk.pass(Duration::from_secs(1));
        }
        assert_eq!(desk.failure(id), ErrorKind::NotEnqueued);
        assert!(desk.told(id).contains("did not take it in time (refused)"), "{}", desk.told(id));
    }
}

#[test]
fn one_refused_job_does_not_take_its_neighbours_along() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    for id in 2..=4 {
        desk.enqueue(id, 0.0);
    }
    desk.store();
    desk.reply(Reply::Done);
    desk.refuse(FaultKind::Statement);
    let mut outcomes = Vec::new();
    for id in 2..=4 {
        assert_eq!(desk.rows(), 1);
        if id == 3 {
            desk.refuse(FaultKind::Statement);
        } else {
            desk.store();
            desk.reply(Reply::Done);
        }
        outcomes.push(desk.answers[&id].is_ok());
    }
    assert_eq!(outcomes, [true, false, true]);
    assert_eq!(desk.failure(3), ErrorKind::Database);
}

#[test]
fn what_no_waiting_mends_is_not_called_retryable() {
    let rows = |count: usize| Request::Enqueue(NewJobs::new((0..count).map(|_| job("a", 0.0)).collect()));
    for (fault, kind) in [
        (FaultKind::Fatal(ErrorKind::Permission), ErrorKind::Permission),
        (FaultKind::Fatal(ErrorKind::SchemaMissing), ErrorKind::SchemaMissing),
        (FaultKind::Statement, ErrorKind::Database),
    ] {
        let mut desk = Desk::ready();
        desk.tell(Input::Call(1, rows(1)));
        desk.refuse(fault);
        desk.tell(Input::Call(2, rows(COPY_FROM)));
        desk.refuse(fault);
        desk.tell(Input::Call(3, rows(COPY_FROM)));
        desk.reserve();
        desk.refuse(fault);
        desk.offer(4, "k");
        desk.refuse(fault);
        for id in 1..=4 {
            let error = desk.answers[&id].as_ref().unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (kind, false), "{id}");
            assert!(error.to_string().starts_with("the job was not enqueued: refused"), "{error}");
        }
    }
}

#[test]
fn a_server_that_is_busy_is_asked_again_a_little_later() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    desk.refuse(FaultKind::Transient);
    assert!(desk.in_flight.is_none() && desk.answers.is_empty());
    desk.pass(Duration::from_millis(200));
    desk.store();
    desk.reply(Reply::Done);
    assert!(desk.answers[&1].is_ok());
}

#[test]
fn a_hung_server_is_given_up_and_the_call_is_answered() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    desk.pass(Duration::from_secs(13));
    assert_eq!(desk.failure(1), ErrorKind::Unknown);
}

#[test]
fn a_wrong_password_is_told_at_once() {
    let mut desk = Desk::new();
    desk.tell(Input::Call(1, Request::Probe));
    desk.enqueue(2, 0.0);
    let fault = Fault { kind: FaultKind::Fatal(ErrorKind::Authentication), ..Fault::link("no") };
    desk.tell(Input::Lost(desk.epoch, fault));
    assert_eq!((desk.failure(1), desk.failure(2)), (ErrorKind::Authentication, ErrorKind::Authentication));
}

#[test]
fn a_schema_that_does_not_fit_is_told_once_and_the_queue_ends_with_its_handle() {
    let mut desk = Desk::new();
    desk.tell(Input::Call(1, Request::Probe));
    desk.tell(Input::Connected(desk.epoch));
    desk.reply(Reply::Version { version: latest() + 1, compatible_from: latest() + 1 });
    assert_eq!(desk.failure(1), ErrorKind::SchemaTooNew);
    assert!(desk.in_flight.is_none(), "nobody waits, so nothing is asked");
    desk.tell(Input::Closed);
    assert!(desk.stopped);
}

#[test]
fn a_schema_that_is_missing_is_asked_for_again_only_when_somebody_calls() {
    let mut desk = Desk::new();
    desk.tell(Input::Call(1, Request::Probe));
    desk.tell(Input::Connected(desk.epoch));
    desk.refuse(FaultKind::Fatal(ErrorKind::SchemaMissing));
    assert_eq!(desk.failure(1), ErrorKind::SchemaMissing);
    desk.pass(Duration::from_secs(60));
    assert!(desk.in_flight.is_none());
    desk.enqueue(2, 0.0);
    desk.reply(Reply::Version { version: latest(), compatible_from: 1 });
    assert_eq!(desk.rows(), 1);
}

#[test]
fn a_queue_that_nobody_uses_does_not_connect_again() {
    let mut desk = Desk::ready();
    let before = desk.connects;
    desk.tell(Input::Lost(desk.epoch, Fault::link("restarted")));
    desk.pass(Duration::from_secs(60));
    assert_eq!((desk.connects, desk.producer.deadline()), (before, None));
}

#[test]
fn what_was_asked_before_the_last_handle_went_is_still_done() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    desk.tell(Input::Closed);
    assert!(!desk.stopped);
    desk.store();
    desk.reply(Reply::Done);
    assert!(desk.stopped && desk.answers[&1].is_ok());
}

#[test]
fn expired_claims_are_recovered_pass_by_pass_with_their_failures_counted() {
    let mut desk = Desk::ready();
    desk.tell(Input::Call(1, Request::RecoverStale));
    let stale = |failure_count| StaleRow {
        id: RunId { job: 7, run: 1 },
        kind: "a".into(),
        failure_count,
        claimed_by: "gone:1:x".into(),
    };
    assert!(matches!(desk.sent(), Statement::Stale(_)));
    desk.reply(Reply::Stale(vec![stale(0), stale(19)]));
    match desk.sent() {
        Statement::Recover(Recover { rows }) => {
            assert!(rows[0].delay > 0.0 && !rows[0].dead, "never at once: a crash must not be repeated at once");
            assert!(rows[1].dead, "the twentieth failure is the last");
        }
        other => panic!("{other:?}"),
    }
    let recovered = |status| Recovered { job: 7, kind: "a".into(), status, delay: 0.5 };
    let statuses = [JobStatus::Pending, JobStatus::Dead, JobStatus::Cancelled];
    desk.reply(Reply::Recovered(statuses.map(recovered).into()));
    desk.reply(Reply::Stale(Vec::new()));
    desk.reply(Reply::Done);
    let done = RecoveredStale { repended: 1, dead: 1, cancelled: 1 };
    assert_eq!(desk.answers[&1].as_ref().unwrap(), &Response::Recovered(done));
    let told = desk.events.iter().filter_map(|event| match event {
        Event::Recovered { status, .. } => Some(*status),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), statuses);
}

#[test]
fn a_recovery_that_has_put_nothing_back_tells_nobody() {
    let mut desk = Desk::ready();
    desk.tell(Input::Call(1, Request::RecoverStale));
    desk.reply(Reply::Stale(Vec::new()));
    assert!(desk.in_flight.is_none());
    assert_eq!(desk.answers[&1].as_ref().unwrap(), &Response::Recovered(RecoveredStale::default()));
}

#[test]
fn many_rows_are_copied_under_numbers_that_were_reserved() {
    let mut desk = Desk::ready();
    desk.enqueue_many(1, COPY_FROM);
    desk.reserve();
    desk.copy();
    assert!(matches!(desk.sent(), Statement::Notify(_)));
    desk.reply(Reply::Done);
    let Response::Enqueued(ids) = desk.answers[&1].as_ref().unwrap() else { panic!() };
    assert_eq!((ids.len(), ids[0], ids.is_sorted()), (COPY_FROM, 1, true));
}

#[test]
fn a_copy_shares_nothing_with_the_calls_around_it_and_keeps_its_place() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    desk.enqueue(2, 0.0);
    desk.enqueue_many(3, COPY_FROM);
    desk.enqueue(4, 0.0);
    for rows in [1, 1] {
        assert_eq!(desk.rows(), rows);
        desk.store();
        desk.reply(Reply::Done);
    }
    desk.reserve();
    desk.copy();
    desk.reply(Reply::Done);
    assert_eq!(desk.rows(), 1);
}

#[test]
fn a_copy_whose_reply_was_lost_is_unknown_and_lost_numbers_are_not() {
    let mut desk = Desk::ready();
    desk.enqueue_many(1, COPY_FROM);
    desk.cut();
    assert!(desk.answers.is_empty(), "only numbers were asked for");
    desk.connect_again();
    desk.reserve();
    desk.cut();
    assert_eq!(desk.failure(1), ErrorKind::Unknown);
    desk.connect_again();
    assert!(desk.in_flight.is_none(), "it is not stored again");
}

#[test]
fn a_copy_that_is_refused_for_now_is_copied_under_new_numbers() {
    let mut desk = Desk::ready();
    desk.enqueue_many(1, COPY_FROM);
    desk.reserve();
    desk.refuse(FaultKind::Transient);
    desk.pass(Duration::from_millis(200));
    desk.reserve();
    desk.refuse(FaultKind::Statement);
    assert_eq!(desk.failure(1), ErrorKind::Database);
}

#[test]
fn calls_that_wait_hold_no_more_memory_than_they_may() {
    let mut desk = Desk::ready_with(Rules { max_waiting: 10_000, ..Rules::default() });
    desk.cut();
    for id in 1..=100 {
        desk.enqueue(id, 0.0);
    }
    let refused: Vec<CallId> = desk.answers.keys().copied().collect();
    assert!(refused.len() > 60 && refused.is_sorted() && refused.ends_with(&[100]), "{refused:?}");
    assert!(refused.iter().all(|id| desk.failure(*id) == ErrorKind::Overloaded));
    desk.connect_again();
    desk.store();
    desk.reply(Reply::Done);
    assert_eq!(desk.answers.values().filter(|answer| answer.is_ok()).count(), 100 - refused.len());
    desk.enqueue(101, 0.0);
    assert_eq!(desk.rows(), 1, "there is room again");
}

#[test]
fn a_call_that_waits_for_nobody_is_taken_whatever_its_size() {
    let mut desk = Desk::ready_with(Rules { max_waiting: 0, ..Rules::default() });
    desk.enqueue_many(1, 50);
    desk.enqueue(2, 0.0);
    assert_eq!((desk.rows(), desk.answers.len()), (50, 0), "one is on its way, one waits");
    desk.enqueue(3, 0.0);
    assert_eq!(desk.failure(3), ErrorKind::Overloaded);
}

#[test]
fn a_call_waits_as_long_as_the_queue_was_told() {
    let mut desk = Desk::ready_with(Rules { timeout: Duration::from_millis(300), ..Rules::default() });
    desk.cut();
    desk.enqueue(1, 0.0);
    desk.pass(Duration::from_millis(299));
    assert!(desk.answers.is_empty());
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.failure(1), ErrorKind::NotEnqueued);
}

#[test]
fn a_queue_that_tells_nobody_answers_at_the_commit() {
    let mut desk = Desk::ready_with(Rules { notify: false, ..Rules::default() });
    desk.enqueue(1, 0.0);
    desk.store();
    assert!(desk.answers[&1].is_ok() && desk.in_flight.is_none());
}

fn inquire(desk: &mut Desk, id: CallId, inquiry: Inquiry) {
    desk.tell(Input::Call(id, Request::Inquire(inquiry)));
}

fn cancel(patient: bool) -> Inquiry {
    Inquiry::Cancel(Touch { ids: vec![7], statuses: vec![JobStatus::Pending, JobStatus::Claimed], patient })
}

fn cancelled(answer: CancelAnswer) -> Reply {
    Reply::Inquiry(Finding::Cancelled(vec![(7, answer)]))
}

fn notified(desk: &Desk) -> &str {
    match desk.sent() {
        Statement::Notify(notify) => &notify.payload,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_question_is_asked_between_the_inserts_and_answered_with_what_was_found() {
    let mut desk = Desk::ready();
    desk.enqueue(1, 0.0);
    inquire(&mut desk, 2, Inquiry::Job(7));
    desk.enqueue(3, 0.0);
    desk.store();
    desk.reply(Reply::Done);
    assert!(matches!(desk.sent(), Statement::Inquiry(Inquiry::Job(7))));
    desk.reply(Reply::Inquiry(Finding::Job(None)));
    assert!(matches!(desk.answers[&2], Ok(Response::Found(Finding::Job(None)))));
    assert_eq!(desk.rows(), 1, "and the next insert goes on");
}

#[test]
fn what_concerns_workers_is_told_before_the_answer() {
    let mut desk = Desk::ready();
    inquire(&mut desk, 1, cancel(true));
    desk.reply(cancelled(CancelAnswer::Requested));
    assert!(desk.answers.is_empty());
    assert_eq!(notified(&desk), "v1;*;3153600000000;cancel=7");
    desk.reply(Reply::Done);
    assert!(desk.answers[&1].is_ok());
    inquire(&mut desk, 2, Inquiry::ResumeKind("a".into()));
    desk.reply(Reply::Inquiry(Finding::Switched(true)));
    assert_eq!(notified(&desk), "v1;a;0");
    desk.reply(Reply::Done);
    inquire(&mut desk, 3, cancel(true));
    desk.reply(cancelled(CancelAnswer::Cancelled));
    assert!(desk.answers[&3].is_ok(), "nobody waits to hear of a job that was only pending");
}

#[test]
fn a_row_that_is_busy_is_asked_for_again_and_others_go_before_it() {
    let mut desk = Desk::ready();
    inquire(&mut desk, 1, cancel(true));
    desk.reply(cancelled(CancelAnswer::Busy));
    assert!(desk.in_flight.is_none());
    desk.enqueue(2, 0.0);
    desk.store();
    desk.reply(Reply::Done);
    assert!(desk.answers[&2].is_ok());
    desk.pass(Duration::from_millis(60));
    desk.reply(cancelled(CancelAnswer::Finished));
    assert!(desk.answers[&1].is_ok());
    inquire(&mut desk, 3, cancel(false));
    desk.reply(cancelled(CancelAnswer::Busy));
    assert!(desk.answers[&3].is_ok(), "for many at once busy is an answer");
}

#[test]
fn a_row_that_stays_busy_is_given_up_in_the_end() {
    let mut desk = Desk::ready();
    inquire(&mut desk, 1, cancel(true));
    for _ in 0..300 {
        if desk.in_flight.is_some() {
            desk.reply(cancelled(CancelAnswer::Busy));
        }
        desk.pass(Duration::from_millis(50));
    }
    assert_eq!(desk.failure(1), ErrorKind::Unavailable);
    desk.tell(Input::Closed);
    assert!(desk.stopped);
}

#[test]
fn a_question_whose_answer_was_lost_is_asked_again_and_a_deed_is_not() {
    let mut desk = Desk::ready();
    inquire(&mut desk, 1, Inquiry::Stats);
    inquire(&mut desk, 2, cancel(true));
    let lose = |desk: &mut Desk| {
        desk.in_flight = None;
        desk.tell(Input::Lost(desk.epoch, Fault::link("cut")));
        desk.pass(Duration::from_secs(1));
        desk.tell(Input::Connected(desk.epoch));
    };
    lose(&mut desk);
    assert!(matches!(desk.sent(), Statement::Inquiry(Inquiry::Stats)));
    desk.reply(Reply::Inquiry(Finding::PausedKinds(Vec::new())));
    lose(&mut desk);
    assert_eq!(desk.failure(2), ErrorKind::Unknown);
    assert!(!desk.answers[&2].as_ref().unwrap_err().is_retryable());
}

#[test]
fn a_deed_that_was_surely_not_done_is_tried_again_until_its_time_is_over() {
    let mut desk = Desk::ready();
    inquire(&mut desk, 1, cancel(true));
    desk.refuse(FaultKind::Transient);
    desk.pass(Duration::from_secs(1));
    desk.refuse(FaultKind::Transient);
    desk.pass(Duration::from_secs(10));
    assert_eq!(desk.failure(1), ErrorKind::Unavailable);
    inquire(&mut desk, 2, cancel(true));
    desk.refuse(FaultKind::Statement);
    assert_eq!(desk.failure(2), ErrorKind::Database);
}

//! A job whose kind is known only when the program runs.
#![deny(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind};
use crate::producer::{KeyedCall, Request, Response, Round};
use crate::statement::{Decision, KeyedJob, NewJob, NewJobs, Stance};
use crate::submit::{checked_trace, due, oversized, wait};
use crate::task::check_kind;
use crate::{DedupKey, Effect, Enqueued, JobId, Priority};

/// A job given by the name of its kind and its payload as JSON text, for tools and gateways that have no [`Task`] type
/// for it.
///
/// Nothing checks that the payload is one that the kind's handler can read; if it is not, the handler's worker says so in
/// the job's journal. Where there is a type, enqueue that instead.
///
/// ```no_run
/// # fn example(queue: &impl Fn(venturi::RawJob) -> Result<venturi::Enqueued, venturi::Error>) -> Result<(), venturi::Error> {
/// use venturi::{OnDuplicate, RawJob};
///
/// let job = RawJob::new("index_page", r#"{"page": 7}"#)?.dedup_key("7")?.on_duplicate(OnDuplicate::Keep);
/// # let _ =
/// queue(job)?; // `enqueue_raw` of a `Queue`
/// # Ok(())
/// # }
/// ```
///
/// [`Task`]: crate::Task
#[derive(Clone, Debug)]
#[must_use]
pub struct RawJob {
    job: NewJob,
    on_duplicate: OnDuplicate,
}

/// What becomes of a [`RawJob`] whose kind and dedup key a pending job has already. A task's own `merge` is code of that
/// task, which is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The pending job gets this payload and priority, loses its carry, and its failures are forgiven; the earlier due
    /// time wins.
    #[default]
    Replace,
    /// The pending job stays as it is.
    Keep,
    /// This one is stored beside it.
    Independent,
}

impl RawJob {
    /// A job of this kind with this payload, which is stored as it is written: `null` where there is nothing to say.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the kind is empty, longer than 100 bytes or has a control character;
    /// [`ErrorKind::Payload`] when the text is not one JSON value.
    pub fn new(kind: impl Into<String>, payload: impl Into<String>) -> Result<Self, Error> {
        let kind = kind.into();
        check_kind(&kind)?;
        let payload = RawValue::from_string(payload.into()).map_err(|error| {
            Error::new(ErrorKind::Payload, format!("the payload of {kind} is not JSON")).with_source(error.into())
        })?;
        let (priority, delay) = (Priority::default(), 0.0);
        let job = NewJob { kind: kind.into(), priority, payload, dedup_key: None, delay, due_at: None, trace: None };
        Ok(Self { job, on_duplicate: OnDuplicate::default() })
    }

    /// Makes it due so much later than now, at most 100 years, as [`Submit::delay`](crate::Submit::delay).
    pub fn delay(mut self, delay: Duration) -> Self {
        (self.job.delay, self.job.due_at) = (wait(delay).as_secs_f64(), None);
        self
    }

    /// Makes it due at this instant, as [`Submit::due_at`](crate::Submit::due_at). Of it and
    /// [`delay`](Self::delay) the last one counts.
    pub fn due_at(mut self, instant: impl Into<SystemTime>) -> Self {
        (self.job.delay, self.job.due_at) = (0.0, Some(due(instant.into())));
        self
    }

    /// How urgent it is. Default: [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.job.priority = priority;
        self
    }

    /// The name under which a pending job of the kind may stand for this one. Default: none.
    ///
    /// # Errors
    /// [`ErrorKind::DedupKey`] when it is empty, longer than 200 bytes or has a control character.
    pub fn dedup_key(mut self, key: impl Into<DedupKey>) -> Result<Self, Error> {
        self.job.dedup_key = Some(key.into().checked(&self.job.kind)?);
        Ok(self)
    }

    /// The context of the trace that it belongs to, as [`Submit::trace`](crate::Submit::trace). Default: none.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is longer than 512 bytes or has a control character.
    pub fn trace<'s>(mut self, context: impl Into<Option<&'s str>>) -> Result<Self, Error> {
        let context = context.into().filter(|context| !context.is_empty()).map(str::to_owned);
        self.job.trace = context.map(|context| checked_trace(&self.job.kind, context)).transpose()?;
        Ok(self)
    }

    /// What becomes of it when a job of the kind with its key is pending. Means nothing without a key.
    pub fn on_duplicate(mut self, what: OnDuplicate) -> Self {
        self.on_duplicate = what;
        self
    }

    pub(crate) fn request(self, max_payload: usize) -> Result<Request, Error> {
        if self.job.size() > max_payload {
            return Err(oversized(&self.job.kind, self.job.size(), max_payload));
        }
        if self.job.dedup_key.is_none() {
            return Ok(Request::Enqueue(NewJobs::new(vec![self.job])));
        }
        let decision = match self.on_duplicate {
            OnDuplicate::Replace => Decision::Replace,
            OnDuplicate::Keep => Decision::Keep,
            OnDuplicate::Independent => Decision::Independent,
        };
        // Whatever job is pending, if any.
        let stance = Some(Stance { decision, expected: "*".to_owned() });
        let keyed = Arc::new(KeyedJob { job: Arc::new(self.job), stance, skip: Vec::new() });
        Ok(Request::Keyed(KeyedCall { keyed, until: None }))
    }

    pub(crate) fn stored(response: Response) -> Result<Enqueued, Error> {
        match response {
            Response::Enqueued(ids) => ids.first().map(|id| Enqueued { id: JobId(*id), effect: Effect::Inserted }),
            Response::Keyed(Round::Stored(stored)) => Some(stored),
            _ => None,
        }
        .ok_or_else(|| {
            Error::new(ErrorKind::Internal, "enqueueing: the answer does not fit, which is a defect; please report it")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn what_cannot_be_stored_is_refused_before_it_is_sent() {
        let kind = |result: Result<RawJob, Error>| result.map(drop).map_err(|error| error.kind());
        assert_eq!(kind(RawJob::new("", "1")), Err(ErrorKind::Config));
        assert_eq!(kind(RawJob::new("a", "{")), Err(ErrorKind::Payload));
        assert_eq!(kind(RawJob::new("a", "1 2")), Err(ErrorKind::Payload));
        assert_eq!(kind(RawJob::new("a", "1").unwrap().dedup_key("")), Err(ErrorKind::DedupKey));
        assert_eq!(kind(RawJob::new("a", "1").unwrap().trace("a\nb")), Err(ErrorKind::Config));
        assert_eq!(RawJob::new("a", "1").unwrap().trace("00-1").unwrap().job.trace.as_deref(), Some("00-1"));
        let refused = RawJob::new("a", "12345").unwrap().request(4).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Payload));
    }

    #[test]
    fn of_delay_and_instant_the_last_one_counts() {
        let job = RawJob::new("a", "1").unwrap().delay(Duration::from_secs(5)).due_at(UNIX_EPOCH);
        assert_eq!((job.job.delay, job.job.due_at), (0.0, Some(UNIX_EPOCH)));
        let job = job.delay(Duration::MAX);
        assert_eq!((job.job.delay, job.job.due_at), (3_153_600_000.0, None));
    }
}

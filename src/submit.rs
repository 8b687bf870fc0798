//! A job about to be enqueued.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::value::to_raw_value;

use crate::error::{Error, ErrorKind};
use crate::job::Json;
use crate::limits::{MAX_DELAY, MAX_DUE, MAX_TRACE};
use crate::panic_boundary::{Contained, guarded};
use crate::statement::NewJob;
use crate::task::check_kind;
use crate::{DedupKey, JobId, Priority, Task};

/// A task with what its job should differ in from the task's own policy.
///
/// Every enqueueing method takes anything that converts into one, so a plain `&task` or `task` will do.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct Remind { who: String }
/// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
/// use std::time::Duration;
/// use venturi::{Priority, Submit};
///
/// let remind = Remind { who: "Ada".into() };
/// let job = Submit::new(&remind).delay(Duration::from_secs(60)).priority(Priority::High);
/// ```
#[derive(Debug)]
pub struct Submit<'a, T> {
    task: Held<'a, T>,
    delay: Duration,
    due_at: Option<SystemTime>,
    priority: Option<Priority>,
    dedup_key: Option<DedupKey>,
    trace: Option<String>,
}

/// A task on loan, or for good.
#[derive(Debug)]
pub(crate) enum Held<'a, T> {
    Borrowed(&'a T),
    /// Contained, since many are dropped one after another when a call fails.
    Owned(Contained<T>),
}

/// The row of a task, and the task itself if it has a dedup key.
pub(crate) type Drawn<'a, T> = (NewJob, Option<Held<'a, T>>);

impl<T> Held<'_, T> {
    /// `None` when it was dropped.
    pub(crate) fn borrow(&self) -> Option<&T> {
        match self {
            Held::Borrowed(task) => Some(task),
            Held::Owned(task) => task.0.as_ref(),
        }
    }

    /// Drops it, if it is owned, and tells of a panic.
    fn end(mut self) -> Result<(), String> {
        match &mut self {
            Held::Borrowed(_) => Ok(()),
            Held::Owned(task) => task.end(),
        }
    }
}

impl<'a, T: Task> Submit<'a, T> {
    /// A job for `task`, due at once, with the task's own priority.
    pub fn new(task: &'a T) -> Self {
        task.into()
    }

    /// Makes the job due after `delay`, by the database's clock; at most 100 years, longer delays are cut.
    ///
    /// Takes the place of an instant that was set by [`due_at`](Self::due_at).
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = wait(delay);
        self.due_at = None;
        self
    }

    /// Makes the job due at an instant, which is stored as given, to the microsecond. The database compares it with its
    /// own clock, so this program's clock plays no part. A past instant counts as now: the job is ready at once, and waits from now on.
    ///
    /// Instants after the year 9999 count as its end. Takes the place of a
    /// [`delay`](Self::delay).
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use venturi::Submit;
    ///
    /// let remind = Remind { who: "Ada".into() };
    /// let job = Submit::new(&remind).due_at(UNIX_EPOCH + Duration::from_secs(4_102_444_800));
    /// ```
    #[must_use]
    pub fn due_at(mut self, instant: impl Into<SystemTime>) -> Self {
        self.due_at = Some(due(instant.into()));
        self.delay = Duration::ZERO;
        self
    }

    /// Gives the job another priority than [`Task::priority`] says.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Gives the job another dedup key than [`Task::dedup_key`] says.
    ///
    /// 1 to 200 bytes without control characters. What happens to a pending job of the same kind and key is up to
    /// [`Task::merge`].
    #[must_use]
    pub fn dedup_key(mut self, key: impl Into<DedupKey>) -> Self {
        self.dedup_key = Some(key.into());
        self
    }

    /// Gives the job the context of the trace that it belongs to, such as the `traceparent` of W3C. Default: none; empty
    /// means none.
    ///
    /// It is stored beside the payload, never in it, and every run gets it as it was given, retries and requeued ones
    /// included: [`Context::trace`](crate::Context::trace), [`RunInfo::trace`](crate::RunInfo::trace),
    /// [`JobInfo::trace`](crate::JobInfo). venturi does not look into it. At most 512 bytes without control characters.
    ///
    /// Where the task is merged into a pending job, the context replaces that job's; when the merge keeps the pending job
    /// as it is, or the task has none, the pending job's stays. A job without one that is enqueued in a transaction of the
    /// application's gets that transaction's setting `venturi.trace`, if it has one.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// use venturi::{Context, Submit};
    ///
    /// let remind = Remind { who: "Ada".into() };
    /// let job = Submit::new(&remind).trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    ///
    /// // In a handler, for a job that belongs to the same trace:
    /// # fn handle(context: &Context<()>, remind: &Remind) {
    /// let next = Submit::new(remind).trace(context.trace());
    /// # }
    /// ```
    #[must_use]
    pub fn trace<'s>(mut self, context: impl Into<Option<&'s str>>) -> Self {
        self.trace = context.into().filter(|context| !context.is_empty()).map(str::to_owned);
        self
    }

    fn holding(task: Held<'a, T>) -> Self {
        Self { task, delay: Duration::ZERO, due_at: None, priority: None, dedup_key: None, trace: None }
    }

    /// The row to insert, with at most so many bytes of payload; and the task, if it may have to be asked how it merges.
    pub(crate) fn into_job(self, max_payload: usize) -> Result<Drawn<'a, T>, Error> {
        check_kind(T::KIND)?;
        let Self { task: held, delay, due_at, priority, dedup_key, trace } = self;
        let read = |task: &T| {
            let payload = to_raw_value(task);
            let priority = priority.unwrap_or_else(|| task.priority());
            (payload, priority, dedup_key.or_else(|| task.dedup_key()))
        };
        let panicked = |panic| {
            Error::new(ErrorKind::Payload, format!("the task {} {panic} while it was written as JSON", T::KIND))
        };
        // The task itself stays out here, or it would be dropped while a panic of it unwinds.
        let task = held.borrow().ok_or_else(|| panicked("was gone".to_owned()))?;
        let (payload, priority, key) = guarded(|| read(task)).map_err(panicked)?;
        let held = if key.is_some() {
            Some(held)
        } else {
            held.end().map_err(panicked)?;
            None
        };
        let payload = checked::<T>(payload, max_payload)?;
        let dedup_key = key.map(|key| key.checked(T::KIND)).transpose()?;
        let trace = trace.map(|trace| checked_trace(T::KIND, trace)).transpose()?;
        let delay = delay.as_secs_f64();
        Ok((NewJob { kind: T::KIND.into(), priority, payload, dedup_key, delay, due_at, trace }, held))
    }
}

/// A trace context that may be stored: any short text.
pub(crate) fn checked_trace(kind: &str, trace: String) -> Result<String, Error> {
    let problem = if trace.len() > MAX_TRACE {
        format!("has {} bytes, at most {MAX_TRACE} are stored", trace.len())
    } else if trace.chars().any(char::is_control) {
        format!("has a control character: {trace:?}")
    } else {
        return Ok(trace);
    };
    Err(Error::new(ErrorKind::Config, format!("the trace context of a {kind} {problem}")))
}

/// A payload of the kind of `T`, if it was written and is not too large.
pub(crate) fn checked<T: Task>(payload: serde_json::Result<Json>, most: usize) -> Result<Json, Error> {
    let payload = payload.map_err(|error| {
        Error::new(ErrorKind::Payload, format!("the task {} cannot be written as JSON", T::KIND))
            .with_source(error.into())
    })?;
    let size = payload.get().len();
    if size <= most { Ok(payload) } else { Err(oversized(T::KIND, size, most)) }
}

pub(crate) fn oversized(kind: &str, size: usize, most: usize) -> Error {
    let what = format!(
        "the payload of {kind} has {size} bytes, at most {most} are stored; store the data elsewhere and enqueue its name"
    );
    Error::new(ErrorKind::Payload, what)
}

/// A delay as it is stored.
pub(crate) fn wait(delay: Duration) -> Duration {
    delay.min(MAX_DELAY)
}

/// An instant as it is stored: what the client would have to compute beyond this range could overflow.
pub(crate) fn due(instant: SystemTime) -> SystemTime {
    UNIX_EPOCH + instant.duration_since(UNIX_EPOCH).unwrap_or_default().min(MAX_DUE)
}

impl<'a, T: Task> From<&'a T> for Submit<'a, T> {
    fn from(task: &'a T) -> Self {
        Self::holding(Held::Borrowed(task))
    }
}

impl<T: Task> From<T> for Submit<'static, T> {
    fn from(task: T) -> Self {
        Self::holding(Held::Owned(Contained::new(task)))
    }
}

/// What enqueueing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The job that stands for the task.
    pub id: JobId,
    /// How it came to stand for it.
    pub effect: Effect,
}

/// How an enqueued task came to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// As a new job.
    Inserted,
    /// A pending job with the same dedup key stands for it, as it was.
    Kept,
    /// In the place of a pending job with the same dedup key.
    Replaced,
    /// As a part of a pending job with the same dedup key.
    Merged,
}

impl Effect {
    /// Its word: `inserted`, `kept`, `replaced` or `merged`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Kept => "kept",
            Self::Replaced => "replaced",
            Self::Merged => "merged",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::limits::MAX_PAYLOAD;

    macro_rules! task {
        ($name:ident, $kind:expr) => {
            #[derive(Debug, Serialize, Deserialize)]
            struct $name;

            impl Task for $name {
                const KIND: &'static str = $kind;
                type Carry = ();
            }
        };
    }

    task!(Plain, "plain");
    task!(Nameless, "");
    task!(Bell, "ring\u{7}");
    task!(Nul, "nul\0");
    task!(
        Endless,
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789x"
    );

    fn refusal<T: Task + std::fmt::Debug>(task: T) -> ErrorKind {
        Submit::from(task).into_job(MAX_PAYLOAD).unwrap_err().kind()
    }

    #[test]
    fn a_kind_without_a_proper_name_is_never_sent() {
        assert!(Submit::from(Plain).into_job(MAX_PAYLOAD).is_ok());
        let refused = [refusal(Nameless), refusal(Bell), refusal(Nul), refusal(Endless)];
        assert_eq!(refused, [ErrorKind::Config; 4]);
    }

    #[test]
    fn of_delay_and_instant_the_last_one_counts() {
        let at = UNIX_EPOCH + Duration::from_secs(5);
        let minute = Duration::from_secs(60);
        let (job, _) = Submit::new(&Plain).delay(minute).due_at(at).into_job(MAX_PAYLOAD).unwrap();
        assert_eq!((job.due_at, job.delay), (Some(at), 0.0));
        let (job, _) = Submit::new(&Plain).due_at(at).delay(minute).into_job(MAX_PAYLOAD).unwrap();
        assert_eq!((job.due_at, job.delay), (None, 60.0));
    }

    #[test]
    fn a_trace_context_is_short_text_and_an_empty_one_is_none() {
        let trace = |text: &str| Submit::new(&Plain).trace(text).into_job(MAX_PAYLOAD).map(|(job, _)| job.trace);
        assert_eq!(trace("00-1-2-01").unwrap().as_deref(), Some("00-1-2-01"));
        assert_eq!(trace("").unwrap(), None);
        assert!(trace(&"x".repeat(512)).is_ok());
        for text in [&"x".repeat(513), "a\0b", "a\nb"] {
            assert_eq!(trace(text).unwrap_err().kind(), ErrorKind::Config, "{text:?}");
        }
        let (job, _) = Submit::new(&Plain).trace("given").trace(None).into_job(MAX_PAYLOAD).unwrap();
        assert_eq!(job.trace, None);
    }

    #[derive(Debug)]
    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    impl Serialize for Fragile {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit()
        }
    }

    impl<'de> Deserialize<'de> for Fragile {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            Ok(Self)
        }
    }

    impl Task for Fragile {
        const KIND: &'static str = "fragile";
        type Carry = ();
    }

    #[test]
    fn a_task_whose_drop_panics_is_an_error() {
        let error = Submit::from(Fragile).into_job(MAX_PAYLOAD).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Payload);
        assert!(error.to_string().contains("panicked: dropped"), "{error}");
    }
}

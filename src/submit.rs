//! A job about to be enqueued.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::value::to_raw_value;

use crate::error::{Error, ErrorKind};
use crate::limits::{MAX_DELAY, MAX_DUE};
use crate::panic_boundary::guarded;
use crate::statement::NewJob;
use crate::task::check_kind;
use crate::{JobId, Priority, Task};

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
}

#[derive(Debug)]
enum Held<'a, T> {
    Borrowed(&'a T),
    Owned(T),
}

impl<T> Held<'_, T> {
    fn borrow(&self) -> &T {
        match self {
            Held::Borrowed(task) => task,
            Held::Owned(task) => task,
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
        self.delay = delay.min(MAX_DELAY);
        self.due_at = None;
        self
    }

    /// Makes the job due at an instant, which is stored as given, to the microsecond. The database compares it with its
    /// own clock, so this program's clock plays no part. A past instant makes the job ready at once.
    ///
    /// Instants before 1970 count as 1970, and those after the year 9999 as its end. Takes the place of a
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
        // What the client would have to compute beyond this range could overflow.
        let since = instant.into().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.due_at = Some(UNIX_EPOCH + since.min(MAX_DUE));
        self.delay = Duration::ZERO;
        self
    }

    /// Gives the job another priority than [`Task::priority`] says.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The row to insert, with at most so many bytes of payload.
    pub(crate) fn into_job(self, max_payload: usize) -> Result<NewJob, Error> {
        check_kind(T::KIND)?;
        let Self { task, delay, due_at, priority } = self;
        let write = move || {
            // Dropped in here as well.
            let task = task;
            let task = task.borrow();
            (to_raw_value(task), priority.unwrap_or_else(|| task.priority()))
        };
        let (payload, priority) = guarded(write).map_err(|panic| {
            Error::new(ErrorKind::Payload, format!("the task {} {panic} while it was written as JSON", T::KIND))
        })?;
        let payload = payload.map_err(|error| {
            Error::new(ErrorKind::Payload, format!("the task {} cannot be written as JSON", T::KIND))
                .with_source(error.into())
        })?;
        let size = payload.get().len();
        if size > max_payload {
            return Err(Error::new(
                ErrorKind::Payload,
                format!(
                    "the payload of {} has {size} bytes, at most {max_payload} are stored; store the data elsewhere and enqueue its name",
                    T::KIND
                ),
            ));
        }
        let delay = delay.as_secs_f64();
        Ok(NewJob { kind: T::KIND.into(), priority, payload, dedup_key: None, delay, due_at })
    }
}

impl<'a, T: Task> From<&'a T> for Submit<'a, T> {
    fn from(task: &'a T) -> Self {
        Self { task: Held::Borrowed(task), delay: Duration::ZERO, due_at: None, priority: None }
    }
}

impl<T: Task> From<T> for Submit<'static, T> {
    fn from(task: T) -> Self {
        Self { task: Held::Owned(task), delay: Duration::ZERO, due_at: None, priority: None }
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
        let job = Submit::new(&Plain).delay(minute).due_at(at).into_job(MAX_PAYLOAD).unwrap();
        assert_eq!((job.due_at, job.delay), (Some(at), 0.0));
        let job = Submit::new(&Plain).due_at(at).delay(minute).into_job(MAX_PAYLOAD).unwrap();
        assert_eq!((job.due_at, job.delay), (None, 60.0));
    }

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

//! What a job is: its kind, its payload, and the policies that belong to the kind.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Backoff;
use crate::dedup_key::DedupKey;
use crate::error::{Error, ErrorKind};
use crate::limits::MAX_KIND;
use crate::merge::{Merge, Pending};

/// A kind of work, described by data.
///
/// The value itself is the payload: it is stored as JSON when the job is enqueued and decoded when it runs. What a
/// worker does with it is said by a `Handler`, so that a producer needs no worker code.
///
/// The three functions without `self` belong to the kind, not to one job. They are read once, when a worker is built.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use venturi::Task;
///
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail {
///     to: String,
/// }
///
/// impl Task for SendEmail {
///     const KIND: &'static str = "send_email";
///     type Carry = ();
/// }
/// ```
pub trait Task: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name under which jobs of this kind are stored and claimed.
    ///
    /// 1 to 100 bytes without control characters. It outlives the code that wrote it: rename the type freely, but not
    /// the kind of jobs that are still pending.
    const KIND: &'static str;

    /// What a run hands to the next run of the same job: progress, a cursor, a count. `()` when there is none.
    type Carry: Serialize + DeserializeOwned + Default + Send + 'static;

    /// How urgent this job is. Default: [`Priority::Normal`].
    fn priority(&self) -> Priority {
        Priority::Normal
    }

    /// The name under which a pending job stands for this one. Default: none, so every task becomes a job.
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use venturi::{DedupKey, Merge, Pending, Task};
    ///
    /// /// Adds to a counter, however often it is asked to, in one run.
    /// #[derive(Serialize, Deserialize)]
    /// struct Add {
    ///     counter: String,
    ///     amount: u64,
    /// }
    ///
    /// impl Task for Add {
    ///     const KIND: &'static str = "add";
    ///     type Carry = ();
    ///
    ///     fn dedup_key(&self) -> Option<DedupKey> {
    ///         Some(self.counter.as_str().into())
    ///     }
    ///
    ///     fn merge(&self, pending: &Pending<Self>) -> Merge<Self> {
    ///         let amount = self.amount + pending.task.amount;
    ///         Merge::with(Self { counter: self.counter.clone(), amount })
    ///     }
    /// }
    ///
    /// let pending = Pending::of(Add { counter: "visits".into(), amount: 1 });
    /// let Merge::With { task, .. } = Add { counter: "visits".into(), amount: 2 }.merge(&pending) else { panic!() };
    /// assert_eq!(task.amount, 3);
    /// ```
    fn dedup_key(&self) -> Option<DedupKey> {
        None
    }

    /// What becomes of this task, as another job of its kind with its key is pending. Default: [`Merge::Replace`].
    ///
    /// It runs where the task is enqueued, on the caller's thread or in the caller's future, with nothing locked; and
    /// again when the pending job has changed before the decision could be stored, so it must not do anything but
    /// decide, and decide soon. It is not asked about a pending job that does not decode as this type: the new task then
    /// becomes a job beside it. If it panics, the caller gets [`ErrorKind::Merge`] and nothing is stored.
    fn merge(&self, pending: &Pending<Self>) -> Merge<Self> {
        let _ = pending;
        Merge::Replace
    }

    /// How long a claim of this kind stays valid without being renewed. Default: the worker's lease.
    ///
    /// Range 1 second to 365 days (at least 3 seconds while leases are renewed); values outside are clamped.
    fn lease() -> Option<Duration> {
        None
    }

    /// How long one run may take. Default: the worker's time-out, which is none.
    fn timeout() -> Option<Duration> {
        None
    }

    /// How long a failed job of this kind waits. Default: the worker's backoff.
    fn backoff() -> Option<Backoff> {
        None
    }
}

/// How urgent a job is. Jobs are claimed by priority, then by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "three tiers are part of the model")]
pub enum Priority {
    /// Before everything else.
    High,
    /// The default.
    #[default]
    Normal,
    /// When nothing else is waiting, and in the slots that are reserved so that it never starves.
    Low,
}

impl Priority {
    /// The number that the `priority` column holds.
    pub(crate) fn code(self) -> i16 {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }

    /// Its word: `high`, `normal` or `low`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    pub(crate) fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::High),
            1 => Some(Self::Normal),
            2 => Some(Self::Low),
            _ => None,
        }
    }
}

/// Checks a kind's name; the table checks it again.
pub(crate) fn check_kind(kind: &str) -> Result<(), Error> {
    let problem = if kind.is_empty() {
        "is empty"
    } else if kind.len() > MAX_KIND {
        "is longer than 100 bytes"
    } else if kind.chars().any(char::is_control) {
        "has a control character"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Config, format!("the kind {kind:?} {problem}; choose another `Task::KIND`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_survives_the_way_through_its_code() {
        for priority in [Priority::High, Priority::Normal, Priority::Low] {
            assert_eq!(Priority::from_code(priority.code()), Some(priority));
        }
        assert_eq!(Priority::from_code(3), None);
    }

    #[test]
    fn a_kind_must_be_short_printable_and_not_empty() {
        assert!(check_kind("send_email").is_ok());
        assert!(check_kind("é, with; separators").is_ok());
        assert!(check_kind("").is_err());
        assert!(check_kind("a\nb").is_err());
        assert!(check_kind(&"x".repeat(101)).is_err());
    }
}

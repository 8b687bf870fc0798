//! What a handler returns.
#![deny(clippy::disallowed_methods)]

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::text;

/// How a run that did not fail ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "handlers build these values")]
pub enum Outcome {
    /// The job is done.
    Completed {
        /// A line for the journal; cut at 8 kB.
        note: Option<String>,
    },
    /// The job is put back with its carry stored, and runs again later. It is not a failure.
    Pause {
        /// How long it waits; at most 100 years. Zero makes it claimable at once, in its old place by age.
        resume_in: Duration,
        /// A line for the journal; cut at 8 kB.
        note: Option<String>,
    },
}

impl Outcome {
    /// The job is done.
    #[must_use]
    pub fn completed() -> Self {
        Self::Completed { note: None }
    }

    /// The job is done, with a line for the journal.
    #[must_use]
    pub fn completed_with(note: impl Into<String>) -> Self {
        Self::Completed { note: Some(note.into()) }
    }

    /// The job runs again after `resume_in`, with its carry stored.
    #[must_use]
    pub fn pause_in(resume_in: Duration) -> Self {
        Self::Pause { resume_in, note: None }
    }

    /// The job runs again after `resume_in`, with its carry stored and a line for the journal.
    #[must_use]
    pub fn pause_in_with(resume_in: Duration, note: impl Into<String>) -> Self {
        Self::Pause { resume_in, note: Some(note.into()) }
    }
}

/// Why a run failed.
///
/// Any error, `&str`, `String` or `anyhow::Error` becomes one through `?` or `into()`, and is then retryable. The chain
/// of sources is kept and written to the journal. For that conversion to exist this type is not itself a
/// [`std::error::Error`]; [`source`](Self::source) gives the one it holds.
///
/// ```
/// use venturi::TaskError;
///
/// fn read(path: &str) -> Result<String, TaskError> {
///     std::fs::read_to_string(path).map_err(TaskError::permanent)
/// }
/// assert!(read("/nowhere").unwrap_err().is_permanent());
/// ```
pub struct TaskError {
    source: Box<dyn StdError + Send + Sync>,
    permanent: bool,
    panicked: bool,
}

impl TaskError {
    /// A failure that may go away: the job is retried with backoff until the backstop.
    pub fn retryable(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: source.into(), permanent: false, panicked: false }
    }

    /// A failure that no retry will mend: the job goes to dead at once.
    pub fn permanent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: source.into(), permanent: true, panicked: false }
    }

    /// A panic, on its way out through the layers around the handler.
    #[cfg(any(feature = "blocking", feature = "async"))]
    pub(crate) fn panicked(text: String) -> Self {
        Self { source: text.into(), permanent: false, panicked: true }
    }

    /// Whether the job goes to dead without another try.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Whether the handler, or a middleware, panicked. What becomes of the job is then the panic policy's to say.
    ///
    /// Only middleware meets such an error; the text says what the panic said.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        self.panicked
    }

    /// The error that the handler failed with.
    #[must_use]
    pub fn source(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for TaskError {
    fn from(source: E) -> Self {
        Self::retryable(source)
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskError").field("source", &self.source).field("permanent", &self.permanent).finish()
    }
}

/// The error and its sources, outermost first.
impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::chain(&*self.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_mark_makes_any_error_a_retryable_one() {
        fn fails() -> Result<(), TaskError> {
            Err("no such luck")?;
            Ok(())
        }
        let error = fails().unwrap_err();
        assert!(!error.is_permanent());
        assert_eq!(error.to_string(), "no such luck");
    }

    #[test]
    fn a_permanent_error_keeps_its_source() {
        let io = std::io::Error::other("disk is gone");
        let error = TaskError::permanent(io);
        assert!(error.is_permanent());
        assert_eq!(error.source().to_string(), "disk is gone");
    }
}

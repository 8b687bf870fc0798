//! Which jobs a test expects.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::{JobInfo, JobStatus, Task};

/// How far off a due time may be, unless said otherwise.
const TOLERANCE: Duration = Duration::from_secs(1);

/// What a task has to be like.
type Fits<'a, T> = Box<dyn Fn(&T) -> bool + 'a>;

/// Jobs of the kind of `T` that should have been enqueued, whatever has become of them.
///
/// For [`TestSchema::assert_enqueued`](super::TestSchema::assert_enqueued). What is not set fits any job; without
/// [`times`](Self::times) one or more are expected.
pub struct Expected<'a, T> {
    payload: Option<Fits<'a, T>>,
    due_in: Option<Duration>,
    tolerance: Duration,
    dedup_key: Option<String>,
    status: Option<JobStatus>,
    times: Option<usize>,
}

impl<'a, T: Task> Expected<'a, T> {
    /// Any job of this kind.
    #[must_use]
    pub fn new() -> Self {
        Self { payload: None, due_in: None, tolerance: TOLERANCE, dedup_key: None, status: None, times: None }
    }

    /// Whose task fits. A job whose payload cannot be read as one does not.
    #[must_use]
    pub fn matching(mut self, fits: impl Fn(&T) -> bool + 'a) -> Self {
        self.payload = Some(Box::new(fits));
        self
    }

    /// Which is due this long after it was enqueued; zero for at once.
    ///
    /// Of a job that was retried or paused, that is its latest due time.
    #[must_use]
    pub fn due_in(mut self, time: Duration) -> Self {
        self.due_in = Some(time);
        self
    }

    /// How far off the due time may be, in both directions. Default: 1 second.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Which has this dedup key.
    #[must_use]
    pub fn dedup_key(mut self, key: impl Into<String>) -> Self {
        self.dedup_key = Some(key.into());
        self
    }

    /// Which is in this state by now.
    #[must_use]
    pub fn status(mut self, status: JobStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// So many of them, no more and no fewer; 0 for none.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether these jobs are as expected; if not, what was expected and what is there.
    ///
    /// # Errors
    /// The text that [`assert_enqueued`](super::TestSchema::assert_enqueued) panics with.
    pub fn check(&self, jobs: &[JobInfo]) -> Result<(), String> {
        let of_kind = || jobs.iter().filter(|job| job.kind == T::KIND);
        let found = of_kind().filter(|job| self.fits(job)).count();
        if self.times.map_or(found > 0, |times| found == times) {
            return Ok(());
        }
        let mut text = format!("expected {self}, found {found}; of this kind there are {}", of_kind().count());
        of_kind().for_each(|job| text.push_str(&line(job)));
        Err(text)
    }

    fn fits(&self, job: &JobInfo) -> bool {
        let payload = || self.payload.as_ref().is_none_or(|fits| job.payload::<T>().is_ok_and(|task| fits(&task)));
        let due = || self.due_in.is_none_or(|time| due_in(job).abs_diff(time) <= self.tolerance);
        self.dedup_key.as_ref().is_none_or(|key| job.dedup_key.as_ref() == Some(key))
            && self.status.is_none_or(|status| job.status == status)
            && due()
            && payload()
    }
}

impl<T: Task> Default for Expected<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// How long after its enqueueing a job is due. One that is due at once may show the two instants in either order.
fn due_in(job: &JobInfo) -> Duration {
    job.due_at.duration_since(job.created_at).unwrap_or_default()
}

fn line(job: &JobInfo) -> String {
    let key = job.dedup_key.as_ref().map(|key| format!(", key {key:?}")).unwrap_or_default();
    let payload = job.payload_json().unwrap_or("not read");
    format!("\n  job {}: {}, due in {:?}{key}, payload {payload}", job.id, job.status, due_in(job))
}

impl<T: Task> fmt::Display for Expected<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.times.map_or("at least 1 job".to_owned(), |times| format!("{times} job(s)"));
        write!(text, " of the kind {:?}", T::KIND)?;
        if let Some(status) = self.status {
            write!(text, ", {status}")?;
        }
        if let Some(time) = self.due_in {
            write!(text, ", due in {time:?} ± {:?}", self.tolerance)?;
        }
        if let Some(key) = &self.dedup_key {
            write!(text, ", with the key {key:?}")?;
        }
        if self.payload.is_some() {
            text.push_str(", with a payload that fits");
        }
        f.write_str(&text)
    }
}

impl<T: Task> fmt::Debug for Expected<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expected({self})")
    }
}

//! Which jobs are meant, and how many of them a page holds.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, SystemTime};

use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind};
use crate::job_info::{JobInfo, JobStatus};
use crate::limits::{DEFAULT_PAGE, MAX_PAGE};
use crate::{JobId, JournalEntry};

/// Which jobs a listing shows or a bulk operation takes. What is not set fits any job.
///
/// ```
/// use venturi::{JobFilter, JobStatus};
///
/// let dead_mail = JobFilter::new().kind("send_email").status(JobStatus::Dead).limit(50);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct JobFilter {
    pub(crate) kind: Option<String>,
    pub(crate) statuses: Vec<JobStatus>,
    pub(crate) dedup_key: Option<String>,
    pub(crate) created: Span,
    pub(crate) finished: Span,
    pub(crate) limit: Option<u32>,
    pub(crate) after: Option<Cursor>,
    pub(crate) without_content: bool,
}

/// A span of time; a missing end has no bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) from: Option<SystemTime>,
    pub(crate) until: Option<SystemTime>,
}

impl JobFilter {
    /// Every job.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only jobs of this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Only jobs of this status; called again, also those of another one.
    pub fn status(mut self, status: JobStatus) -> Self {
        self.statuses.push(status);
        self
    }

    /// Only jobs with this dedup key.
    pub fn dedup_key(mut self, key: impl Into<String>) -> Self {
        self.dedup_key = Some(key.into());
        self
    }

    /// Only jobs enqueued at this instant or later.
    pub fn created_since(mut self, instant: impl Into<SystemTime>) -> Self {
        self.created.from = Some(instant.into());
        self
    }

    /// Only jobs enqueued before this instant.
    pub fn created_until(mut self, instant: impl Into<SystemTime>) -> Self {
        self.created.until = Some(instant.into());
        self
    }

    /// Only jobs that ended at this instant or later.
    pub fn finished_since(mut self, instant: impl Into<SystemTime>) -> Self {
        self.finished.from = Some(instant.into());
        self
    }

    /// Only jobs that ended before this instant.
    pub fn finished_until(mut self, instant: impl Into<SystemTime>) -> Self {
        self.finished.until = Some(instant.into());
        self
    }

    /// How many jobs a page holds. Default: 100. Range 1 to 1,000; values outside are clamped.
    pub fn limit(mut self, jobs: u32) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// The page behind the one that gave this cursor.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Leaves payloads, carries and attachments out, which may be a megabyte a job.
    pub fn without_content(mut self) -> Self {
        self.without_content = true;
        self
    }

    pub(crate) fn page(&self) -> u32 {
        self.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE)
    }

    /// Whether every job of the statuses fits.
    pub(crate) fn fits_all(&self) -> bool {
        let spans = self.created.is_bounded() || self.finished.is_bounded();
        self.kind.is_none() && self.dedup_key.is_none() && self.statuses.is_empty() && !spans
    }

    /// Refuses text that the server does not take, and that no stored value can be equal to.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, text) in [("kind", &self.kind), ("dedup key", &self.dedup_key)] {
            if text.as_ref().is_some_and(|text| text.contains('\0')) {
                return Err(Error::new(ErrorKind::Config, format!("filtering jobs: the {what} holds a NUL")));
            }
        }
        Ok(())
    }

    /// Of these statuses the ones that are asked for; all of them when none is.
    pub(crate) fn statuses_among(&self, possible: &[JobStatus]) -> Vec<JobStatus> {
        let asked = |status: &&JobStatus| self.statuses.is_empty() || self.statuses.contains(status);
        possible.iter().filter(asked).copied().collect()
    }
}

impl Span {
    pub(crate) fn is_bounded(self) -> bool {
        self.from.is_some() || self.until.is_some()
    }

    /// The bounds in seconds since 1970, as the statements take them.
    pub(crate) fn seconds(self) -> (f64, f64) {
        (self.from.map_or(f64::NEG_INFINITY, seconds), self.until.map_or(f64::INFINITY, seconds))
    }
}

/// Within what PostgreSQL's timestamps hold: an instant beyond is as good as their first or last.
fn seconds(instant: SystemTime) -> f64 {
    /// The years 4700 BC and 294000.
    const RANGE: (f64, f64) = (-2.1e11, 9.2e12);
    let seconds = match instant.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    };
    seconds.clamp(RANGE.0, RANGE.1)
}

/// Some jobs, the newest first.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobPage {
    /// The jobs; may be fewer than the limit, even none, while there is a [`next`](Self::next) page.
    pub jobs: Vec<JobInfo>,
    /// Jobs of this page whose rows make no sense, because somebody has written to them by hand.
    pub unreadable: Vec<JobId>,
    /// Where the next page begins. `None`: nothing is left.
    pub next: Option<Cursor>,
}

/// Some entries of one job's journal, in the order in which they were written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalPage {
    /// The entries, at most 1,000. The last one of a finished job tells of its end.
    pub entries: Vec<JournalEntry>,
    /// Where the next page begins. `None`: nothing is left.
    pub next: Option<Cursor>,
}

/// Which finished jobs are deleted: those that ended at least so long ago, with an age for each status.
///
/// A status without an age is left alone, so the default deletes nothing.
///
/// ```
/// use std::time::Duration;
/// use venturi::Cleanup;
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// let criteria = Cleanup::new().completed(7 * DAY).cancelled(7 * DAY).dead(90 * DAY);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Cleanup {
    pub(crate) completed: Option<Duration>,
    pub(crate) cancelled: Option<Duration>,
    pub(crate) dead: Option<Duration>,
}

impl Cleanup {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Completed jobs of at least this age. Zero: all of them; more than 100 years: none.
    pub fn completed(mut self, age: Duration) -> Self {
        self.completed = Some(age);
        self
    }

    /// Cancelled jobs of at least this age.
    pub fn cancelled(mut self, age: Duration) -> Self {
        self.cancelled = Some(age);
        self
    }

    /// Dead jobs of at least this age.
    pub fn dead(mut self, age: Duration) -> Self {
        self.dead = Some(age);
        self
    }

    /// The statuses with an age.
    pub(crate) fn ages(&self) -> impl Iterator<Item = (JobStatus, Duration)> + use<> {
        [(JobStatus::Completed, self.completed), (JobStatus::Cancelled, self.cancelled), (JobStatus::Dead, self.dead)]
            .into_iter()
            .filter_map(|(status, age)| age.map(|age| (status, age)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_one_to_a_thousand_jobs() {
        let page = |limit| JobFilter::new().limit(limit).page();
        assert_eq!([page(0), page(1), page(1_000), page(u32::MAX)], [1, 1, 1_000, 1_000]);
        assert_eq!(JobFilter::new().page(), 100);
    }

    #[test]
    fn instants_beyond_what_the_database_holds_are_as_good_as_its_first_and_last() {
        let epoch = SystemTime::UNIX_EPOCH;
        let span = |from, until| Span { from, until }.seconds();
        assert_eq!(span(None, None), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(span(Some(epoch), epoch.checked_sub(Duration::from_secs(5))), (0.0, -5.0));
        let far = Duration::from_secs(10_000_000_000_000);
        let (from, until) = span(epoch.checked_sub(far), epoch.checked_add(far));
        assert!(from >= -2.11e11 && until <= 9.22e12, "{from} {until}");
    }

    #[test]
    fn a_cleanup_touches_only_what_it_names() {
        assert_eq!(Cleanup::new().ages().count(), 0);
        let ages: Vec<_> = Cleanup::new().dead(Duration::ZERO).ages().collect();
        assert_eq!(ages, [(JobStatus::Dead, Duration::ZERO)]);
    }
}

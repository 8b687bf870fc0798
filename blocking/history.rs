//! Looking at jobs, counting them, and deleting old ones.

use std::ops::ControlFlow;

use crate::{
    Cleaned, Cleanup, Cursor, Error, Finding, JobFilter, JobId, JobInfo, JobPage, JournalPage, PausedKind, Stats,
    WorkerClaims, errand,
};

use super::Queue;
use super::clock::wall;

impl Queue {
    /// One job, whatever has become of it; `None` when there is none of this number.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # use venturi::Enqueued;
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # fn example(queue: &venturi::blocking::Queue) -> Result<(), venturi::Error> {
    /// # let remind = Remind { who: "Ada".into() };
    /// use venturi::JobStatus;
    ///
    /// let Enqueued { id, .. } = queue.enqueue(&remind)?;
    /// let job = queue.job(id)?.expect("it was enqueued just now");
    /// assert!(matches!(job.status, JobStatus::Pending | JobStatus::Claimed | JobStatus::Completed));
    /// assert_eq!(job.payload::<Remind>()?.who, "Ada");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses.
    pub fn job(&self, id: JobId) -> Result<Option<JobInfo>, Error> {
        self.run(errand::job(id))
    }

    /// The jobs that fit, newest first: by number, which grows with the time of enqueueing.
    ///
    /// A number never changes, so going on from page to page by [`JobPage::next`] neither skips nor repeats a job, whatever
    /// happens meanwhile; jobs that are enqueued meanwhile are newer than the first page. Dead and cancelled jobs are found
    /// by an index of their own. Other filters are applied while looking from the newest job on, which takes some 0.7 ms per
    /// 1,000 jobs looked at; a page is returned short when it is not full after a million.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # use venturi::Enqueued;
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # fn example(queue: &venturi::blocking::Queue) -> Result<(), venturi::Error> {
    /// # let remind = Remind { who: "Ada".into() };
    /// use venturi::{JobFilter, JobStatus};
    ///
    /// let mut filter = JobFilter::new().kind("remind").status(JobStatus::Dead);
    /// loop {
    ///     let page = queue.jobs(filter.clone())?;
    ///     page.jobs.iter().for_each(|job| println!("{}: {:?}", job.id, job.note));
    ///     let Some(next) = page.next else { break };
    ///     filter = filter.after(next);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the filter holds a NUL or the cursor is of something else.
    pub fn jobs(&self, filter: JobFilter) -> Result<JobPage, Error> {
        self.run(errand::jobs(filter)?)
    }

    /// What has happened to a job, in order: one entry per run and event, at most 1,000 a page.
    ///
    /// `after` is `None` for the first page, and [`JournalPage::next`] of the one before for the others. A job that does not
    /// exist has no entries.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the cursor is not of this job's journal.
    pub fn journal(&self, id: JobId, after: Option<Cursor>) -> Result<JournalPage, Error> {
        self.run(errand::journal(id, after)?)
    }

    /// How many jobs of each kind there are, all as of one instant.
    ///
    /// It reads everything that is pending, claimed, dead or cancelled, and what ended within the last minute; how many jobs
    /// have completed does not matter. Some 1 ms per 1,000 such jobs.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.run(errand::stats())
    }

    /// The kinds that are paused, by name.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses.
    pub fn paused_kinds(&self) -> Result<Vec<PausedKind>, Error> {
        self.run(errand::paused_kinds())
    }

    /// Which workers hold claims, and how long their leases have left; those without any are not among them.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses.
    pub fn workers(&self) -> Result<Vec<WorkerClaims>, Error> {
        self.run(errand::workers())
    }

    /// Looks for what is wrong with the queue and its server, the worst first; nothing is changed.
    ///
    /// A reader's rights suffice; what the role may not see is a finding of its own. It looks at all ready, scheduled and
    /// claimed jobs and at what has ended within 10 minutes, so it is for people and for alarms every few minutes.
    ///
    /// It also connects where a worker of this database would listen, and waits up to 5 seconds for a notification that it
    /// sends to itself, which makes no worker look. `docs/cli.md` lists what can be found.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses.
    pub fn doctor(&self) -> Result<Vec<Finding>, Error> {
        let hearing = self.hear(self.database());
        self.run(errand::doctor(hearing, wall()))
    }

    /// Deletes finished jobs of the given ages, with their payloads and journals, and returns how many.
    ///
    /// In batches of 500, the oldest first, each a transaction of its own, stepping over rows that somebody holds. A worker
    /// can do the same by itself: `retain_completed`.
    /// It takes as long as it needs: the queue's `timeout` bounds each batch, not the call.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # use venturi::Enqueued;
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # fn example(queue: &venturi::blocking::Queue) -> Result<(), venturi::Error> {
    /// # let remind = Remind { who: "Ada".into() };
    /// use std::time::Duration;
    /// use venturi::Cleanup;
    ///
    /// let week = Duration::from_secs(7 * 86_400);
    /// let deleted = queue.cleanup(Cleanup::new().completed(week).dead(4 * week))?;
    /// println!("{} jobs deleted", deleted.total());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses; then nothing was changed. [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when
    /// the connection ended before the answer came.
    /// A message that begins with "after" says how many jobs were deleted before it; calling again goes on.
    pub fn cleanup(&self, criteria: Cleanup) -> Result<Cleaned, Error> {
        self.run(errand::cleanup(criteria))
    }

    /// As [`cleanup`](Self::cleanup), and tells after each batch how many are deleted so far: for whoever shows progress, or
    /// ends early with [`ControlFlow::Break`]. `progress` is called on this thread.
    ///
    /// # Errors
    /// As [`cleanup`](Self::cleanup).
    pub fn cleanup_with(
        &self,
        criteria: Cleanup,
        progress: impl FnMut(Cleaned) -> ControlFlow<()> + Send + 'static,
    ) -> Result<Cleaned, Error> {
        self.run(errand::cleanup_with(criteria, Box::new(progress)))
    }

    /// How many jobs a [`cleanup`](Self::cleanup) of these ages would delete now. Some 0.1 ms per 1,000 of them.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses, also when counting takes over 10 seconds.
    pub fn cleanup_count(&self, criteria: Cleanup) -> Result<Cleaned, Error> {
        self.run(errand::cleanup_count(criteria))
    }
}

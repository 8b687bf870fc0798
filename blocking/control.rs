//! Cancelling, requeueing, pausing.

use crate::{CancelOutcome, CancelledAll, Error, JobFilter, JobId, RequeueOutcome, RequeuedAll, errand};

use super::Queue;

impl Queue {
    /// Cancels a job: a pending one at once, a running one by asking its handler to end.
    ///
    /// The request to a running job is recorded on its row, and the worker is told: the run's context is cancelled within a
    /// second ([`CancelReason::Requested`](crate::CancelReason::Requested)), at the latest with the next renewal of its lease.
    /// Whether to heed it is up to the handler. The job ends as completed if it completes, else as cancelled, also when it
    /// pauses or fails. (A worker that does not listen for notifications looks as often as it polls, at most once a second. One
    /// built with `renew_leases(false)` that misses the notification does not learn of it, and the job still ends so.)
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # use venturi::Enqueued;
    /// # #[derive(Serialize, Deserialize)]
    /// # struct Remind { who: String }
    /// # impl venturi::Task for Remind { const KIND: &'static str = "remind"; type Carry = (); }
    /// # fn example(queue: &venturi::blocking::Queue) -> Result<(), venturi::Error> {
    /// # let remind = Remind { who: "Ada".into() };
    /// use venturi::CancelOutcome;
    ///
    /// let Enqueued { id, .. } = queue.enqueue(&remind)?;
    /// match queue.cancel(id)? {
    ///     CancelOutcome::Cancelled => println!("it never runs"),
    ///     CancelOutcome::Requested => println!("its handler has been told"),
    ///     _ => println!("too late"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses; then nothing was changed. [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when
    /// the connection ended before the answer came; calling again is harmless.
    /// `Unavailable` also when somebody holds the job's row in a transaction all the time that a call may take.
    pub fn cancel(&self, id: JobId) -> Result<CancelOutcome, Error> {
        self.run(errand::cancel(id))
    }

    /// Cancels all jobs that fit, pending or running, as [`cancel`](Self::cancel) does; an empty filter takes all of them.
    ///
    /// Only jobs that exist when it begins, newest first, in batches of 500, each a transaction of its own. Rows that somebody
    /// holds are skipped and counted. Of the filter, `limit` and `without_content` do not matter.
    /// It takes as long as it needs: the queue's `timeout` bounds each batch, not the call.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses; then nothing was changed. [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when
    /// the connection ended before the answer came.
    /// A message that begins with "after" says how many jobs were done before it; calling again goes on.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the filter cannot be used.
    pub fn cancel_all(&self, filter: JobFilter) -> Result<CancelledAll, Error> {
        self.run(errand::cancel_all(filter)?)
    }

    /// Makes a dead, cancelled or completed job pending again, and wakes a worker.
    ///
    /// It keeps its number, its age and with it its place in the order, and its runs are counted on; its failures are
    /// forgiven. A dead or cancelled job goes on from its carry, a completed one starts afresh. The end that it had becomes an
    /// entry of its journal, followed by one that says `requeued`.
    ///
    /// A job with a dedup key comes back only while no other pending job of its kind has the key; else the answer is
    /// [`RequeueOutcome::Conflict`], and both stay as they are.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses; then nothing was changed. [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when
    /// the connection ended before the answer came; calling again is harmless.
    /// `Unavailable` also when somebody holds the job's row or its dedup key in a transaction all the time that a call may take.
    pub fn requeue(&self, id: JobId) -> Result<RequeueOutcome, Error> {
        self.run(errand::requeue(id))
    }

    /// Makes all jobs that fit pending again, as [`requeue`](Self::requeue) does; dead ones, unless the filter names other
    /// statuses.
    ///
    /// In batches of 500, each a transaction of its own. Rows that somebody holds are skipped and counted. Of the filter,
    /// `limit` and `without_content` do not matter.
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
    /// use venturi::{JobFilter, JobStatus};
    ///
    /// let filter = JobFilter::new().kind("remind").status(JobStatus::Dead);
    /// println!("{} jobs run again", queue.requeue_all(filter)?.requeued);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses; then nothing was changed. [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when
    /// the connection ended before the answer came.
    /// A message that begins with "after" says how many jobs were done before it; calling again goes on.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the filter cannot be used.
    pub fn requeue_all(&self, filter: JobFilter) -> Result<RequeuedAll, Error> {
        self.run(errand::requeue_all(filter)?)
    }

    /// Leaves the jobs of a kind pending until it is resumed; returns whether it was not paused before.
    ///
    /// No worker claims one from here on; runs that have begun go on. It is stored, so it outlives every process.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses; then nothing was changed. [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when
    /// the connection ended before the answer came; calling again is harmless.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when no kind can be called so.
    pub fn pause_kind(&self, kind: &str) -> Result<bool, Error> {
        self.run(errand::pause_kind(kind)?)
    }

    /// Lets the jobs of a kind be claimed again, and wakes workers; returns whether it was paused.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the server could not be reached in time,
    /// [`ErrorKind::Database`](crate::ErrorKind::Database) when it refuses; then nothing was changed. [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when
    /// the connection ended before the answer came; calling again is harmless.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when no kind can be called so.
    pub fn resume_kind(&self, kind: &str) -> Result<bool, Error> {
        self.run(errand::resume_kind(kind)?)
    }
}

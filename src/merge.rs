//! What becomes of a task whose like is pending already.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::time::SystemTime;

use crate::{JobId, Priority, Task};

/// What [`Task::merge`] decides.
///
/// Whatever it is, the pending job keeps its number, its place in the order of age, its run count and its dedup key, and
/// its journal gets an entry.
#[derive(Default)]
#[expect(clippy::exhaustive_enums, reason = "users build it, and a way to merge that they cannot name is none")]
pub enum Merge<T: Task> {
    /// The pending job stays as it is, due time and priority included; the new task is dropped.
    Keep,
    /// The new task takes the pending job's place: its payload and priority, no carry, no failures. It is due at the
    /// earlier of both times.
    #[default]
    Replace,
    /// A task made of both: due at the earlier of both times, with the more urgent of all priorities, and with the
    /// failures that the pending job had.
    With {
        /// The payload from now on.
        task: T,
        /// What the next run will find; `None`: what is stored now.
        carry: Option<T::Carry>,
    },
    /// The new task becomes a job of its own beside the pending one, with the same key.
    Independent,
}

impl<T: Task> Merge<T> {
    /// A task made of both, which starts from the pending job's carry.
    pub fn with(task: T) -> Self {
        Self::With { task, carry: None }
    }
}

impl<T: Task> fmt::Debug for Merge<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::Replace => "Replace",
            Self::With { .. } => "With { .. }",
            Self::Independent => "Independent",
        })
    }
}

/// The job that is pending while its like is enqueued: the oldest of its kind with the same dedup key.
///
/// It is not locked. If a worker takes it or somebody else changes it before the decision is stored, the decision is made
/// anew.
#[non_exhaustive]
pub struct Pending<T: Task> {
    /// Its number.
    pub id: JobId,
    /// Its payload.
    pub task: T,
    /// What its next run will find: what an earlier run left, or the default.
    pub carry: T::Carry,
    /// Its priority.
    pub priority: Priority,
    /// When it was enqueued, by the database's clock.
    pub created_at: SystemTime,
    /// When it is or was due, by the database's clock; it lies ahead if the job is delayed, paused or waits after a
    /// failure.
    pub due_at: SystemTime,
    /// How often it has been started; more than 0 when it paused, failed or was given back.
    pub run_count: u32,
    /// How often it has failed.
    pub failure_count: u32,
}

impl<T: Task> Pending<T> {
    /// A job that was just enqueued, for tests of a [`Task::merge`]: number 0, due at the epoch, never started.
    pub fn of(task: T) -> Self {
        Self {
            id: JobId(0),
            task,
            carry: T::Carry::default(),
            priority: Priority::Normal,
            created_at: SystemTime::UNIX_EPOCH,
            due_at: SystemTime::UNIX_EPOCH,
            run_count: 0,
            failure_count: 0,
        }
    }
}

impl<T: Task> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("id", &self.id)
            .field("priority", &self.priority)
            .field("due_at", &self.due_at)
            .field("run_count", &self.run_count)
            .field("failure_count", &self.failure_count)
            .finish_non_exhaustive()
    }
}

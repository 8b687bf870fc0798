//! The job: digest one file, and store what was found.

use std::io;
use std::io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::{CancellationToken, Context, Outcome, Task, TaskError};

use crate::content;
use crate::front::Front;
use crate::path_text;
use crate::results::Results;

/// How long a job of a worker that was killed is kept from others. Running workers renew their leases.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// A file that cannot be read five times in a row, say for an I/O error, is given up.
pub(crate) const BACKSTOP: u32 = 5;

/// The payload of a job. Size and time are looked up when it runs, so that it never works on old news.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DigestFile {
    /// As [`path_text`] writes it.
    pub(crate) path: String,
}

impl Task for DigestFile {
    const KIND: &'static str = "digest_file";
    type Carry = ();
}

/// What both kinds of handler need to know of the run.
pub(crate) struct Run {
    pub(crate) job: i64,
    pub(crate) number: u32,
    pub(crate) front: Front,
    pub(crate) token: CancellationToken,
}

impl Run {
    pub(crate) fn of(context: &Context<()>, front: Front) -> Self {
        Self { job: context.job_id().get(), number: context.run_count(), front, token: context.token() }
    }
}

impl DigestFile {
    /// What both handlers do; it blocks.
    ///
    /// Idempotent, as every handler must be: a second run writes the same row again.
    pub(crate) fn run(&self, run: &Run, results: &Results) -> Result<Outcome, TaskError> {
        let path = path_text::decode(&self.path);
        let Some(digest) = content::digest(&path, &run.token).map_err(by_cause)? else {
            // Told to stop in the middle of a large file: the next run begins anew, and this one is no failure.
            return Ok(Outcome::pause_in(Duration::ZERO));
        };
        results.store(&self.path, &digest, run)?;
        Ok(Outcome::completed())
    }
}

/// What no retry will mend is permanent; the rest, such as too many open files, may pass.
fn by_cause(error: io::Error) -> TaskError {
    match error.kind() {
        NotFound | PermissionDenied | IsADirectory | NotADirectory | InvalidInput => TaskError::permanent(error),
        _ => TaskError::retryable(error),
    }
}

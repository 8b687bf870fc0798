//! New jobs in the binary format of COPY, encoded once for both front-ends.
//!
//! The numbers are reserved first, since a COPY returns none; so this is for so many rows that it is worth a round trip.
#![deny(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::time::seconds;

use super::reply::{NewId, Numbers};
use super::request::{NewJob, NewJobs};
use super::{Command, Text};

/// Payloads of more bytes lie in the side table; `enqueue.sql` draws the same line.
const INLINE: usize = 1_024;

/// The signature, no flags, no extension.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const END: i16 = -1;

/// PostgreSQL counts microseconds from 2000 on.
const EPOCH: i64 = 946_684_800_000_000;

/// Room for the columns of a row that are not its payload; more is made when a kind or a key is long.
const ROW: usize = 96;

/// Jobs to be copied, with their numbers.
#[derive(Clone, Debug)]
pub(crate) struct CopyJobs {
    pub(crate) jobs: NewJobs,
    pub(crate) numbers: Numbers,
}

impl CopyJobs {
    /// Payloads first, so that there is no moment at which a job lacks its own; without any, one command is enough.
    pub(super) fn commands(&self) -> Vec<Command<'_>> {
        let copy = |text, data| Command { text, params: Vec::new(), data: Some(Encoded(Arc::new(data))) };
        let payload = self.jobs.rows().iter().any(is_large).then(|| copy(Text::CopyPayload, self.payload()));
        payload.into_iter().chain([copy(Text::CopyLive, self.live())]).collect()
    }

    /// The numbers as an insert would return them.
    pub(super) fn ids(&self) -> Vec<NewId> {
        let id = |(id, job)| NewId { id, due_in: self.due_in(job) };
        self.rows().map(id).collect()
    }

    fn rows(&self) -> impl Iterator<Item = (i64, &NewJob)> {
        debug_assert_eq!(self.numbers.ids.len(), self.jobs.len(), "each job has its number");
        self.numbers.ids.iter().copied().zip(self.jobs.rows())
    }

    fn payload(&self) -> Vec<u8> {
        let mut data = Encoder::new(self.jobs.bytes());
        for (id, job) in self.rows().filter(|(_, job)| is_large(job)) {
            data.row(2);
            data.field(&id.to_be_bytes());
            data.field(job.payload.get().as_bytes());
        }
        data.end()
    }

    fn live(&self) -> Vec<u8> {
        let mut data = Encoder::new(self.jobs.bytes() + self.jobs.len() * ROW);
        let created_at = self.numbers.at - EPOCH;
        for (id, job) in self.rows() {
            let visible_at = self.visible_at(job) - EPOCH;
            let state = i16::from(visible_at > created_at);
            data.row(9);
            data.field(&id.to_be_bytes());
            data.field(&created_at.to_be_bytes());
            data.field(&visible_at.to_be_bytes());
            data.field(&state.to_be_bytes());
            data.field(job.kind.as_bytes());
            data.field(&job.priority.code().to_be_bytes());
            data.optional(job.dedup_key.as_deref().map(str::as_bytes));
            data.optional((!is_large(job)).then(|| job.payload.get().as_bytes()));
            data.optional(job.trace.as_deref().map(str::as_bytes));
        }
        data.end()
    }

    /// In microseconds since 1970.
    fn visible_at(&self, job: &NewJob) -> i64 {
        match job.due_at {
            Some(at) => microseconds(at.duration_since(UNIX_EPOCH).unwrap_or_default()).max(self.numbers.at),
            None => self.numbers.at + microseconds(seconds(job.delay)),
        }
    }

    fn due_in(&self, job: &NewJob) -> Option<f64> {
        let wait = u64::try_from(self.visible_at(job) - self.numbers.at).unwrap_or_default();
        (wait > 0).then(|| Duration::from_micros(wait).as_secs_f64())
    }
}

fn is_large(job: &NewJob) -> bool {
    job.size() > INLINE
}

fn microseconds(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

/// What a COPY sends, as a buffer that a client can keep.
#[derive(Clone, Debug)]
pub(crate) struct Encoded(Arc<Vec<u8>>);

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn new(room: usize) -> Self {
        let mut data = Vec::with_capacity(HEAD.len() + room + 2);
        data.extend_from_slice(HEAD);
        Self(data)
    }

    fn row(&mut self, fields: i16) {
        self.0.extend_from_slice(&fields.to_be_bytes());
    }

    fn field(&mut self, value: &[u8]) {
        // A payload is limited to far less than 2 GB.
        let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(value);
    }

    fn optional(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.field(value),
            None => self.0.extend_from_slice(&(-1_i32).to_be_bytes()),
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.row(END);
        self.0
    }
}

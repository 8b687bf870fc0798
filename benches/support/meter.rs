//! What a run costs the server: its counters, before and after.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::server::Server;
use super::{Result, process};

/// Waits in the server until there is no other client; asking again and again would count as so many commits.
const ALONE: &str = "
DO $$
DECLARE
  deadline timestamptz := clock_timestamp() + interval '10 s';
BEGIN
  WHILE EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid())
  LOOP
    IF clock_timestamp() > deadline THEN
      RAISE EXCEPTION 'somebody else is connected to the database, whose commits would be counted as ours';
    END IF;
    PERFORM pg_sleep(0.002);
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
END $$";

/// A backend's times reach its postmaster a moment after its connection is gone: they are complete when they have not
/// changed for so long.
const QUIET: Duration = Duration::from_millis(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(crate) struct Meter {
    client: Client,
    postmaster: Option<u32>,
}

/// The state of the counters; or, by [`since`](Self::since), what was added to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) commits: i64,
    pub(crate) wal_bytes: i64,
    /// Of the backends; `None` when the server is not ours.
    pub(crate) server_time: Option<Duration>,
}

impl Reading {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            commits: self.commits - before.commits,
            wal_bytes: self.wal_bytes - before.wal_bytes,
            server_time: self.server_time.zip(before.server_time).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

impl Meter {
    pub(crate) fn new(server: &Server) -> Result<Self> {
        let mut client = server.connect()?;
        // So that none falls into a run: full-page images after it would be charged to that run. Not everybody may.
        let _ = client.batch_execute("CHECKPOINT");
        Ok(Self { client, postmaster: server.pid() })
    }

    pub(crate) fn count(&mut self, sql: &str) -> Result<usize> {
        Ok(usize::try_from(self.client.query_one(sql, &[])?.try_get::<_, i64>(0)?)?)
    }

    /// The counters when everybody else has left: a backend reports its commits and its times when it ends.
    pub(crate) fn read(&mut self) -> Result<Reading> {
        self.client.batch_execute(ALONE)?;
        let sql = "SELECT pg_stat_get_db_xact_commit(oid), (pg_current_wal_insert_lsn() - '0/0')::bigint
                   FROM pg_database WHERE datname = current_database()";
        let row = self.client.query_one(sql, &[])?;
        let server_time = self.postmaster.and_then(final_time_of_children);
        Ok(Reading { commits: row.try_get(0)?, wal_bytes: row.try_get(1)?, server_time })
    }
}

/// When no more of them are about to end.
fn final_time_of_children(pid: u32) -> Option<Duration> {
    let (mut last, mut since) = (process::time_of_children(pid)?, Instant::now());
    while since.elapsed() < QUIET {
        thread::sleep(LOOK_EVERY);
        let now = process::time_of_children(pid)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Some(last)
}

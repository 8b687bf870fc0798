//! What a run costs: the server's counters and the processes' times, before and after.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::Result;
use super::server::Server;
use super::settings::Case;
use super::tally::Times;

/// Waits in the server until there is no other client; asking again and again would count as so many commits.
const ALONE: &str = "
DO $$
DECLARE
  deadline timestamptz := clock_timestamp() + interval '5 s';
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
/// Linux tells process times in these, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) struct Meter {
    client: Client,
    postmaster: Option<u32>,
}

/// The state of all counters.
#[derive(Debug)]
pub(crate) struct Reading {
    commits: i64,
    wal: i64,
    client_ticks: Option<u64>,
    server_ticks: Option<u64>,
}

/// One run, per job where it makes sense.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) jobs_per_second: f64,
    pub(crate) start_ms: f64,
    pub(crate) stop_ms: f64,
    pub(crate) commits: f64,
    pub(crate) wal_bytes: f64,
    /// `None` where there is no `/proc`.
    pub(crate) client_us: Option<f64>,
    /// Of the backends; `None` when the server is not ours.
    pub(crate) server_us: Option<f64>,
}

impl Meter {
    pub(crate) fn new(server: &Server) -> Result<Self> {
        let mut client = server.connect()?;
        // So that none falls into a run: full-page images after it would be charged to that run. Not everybody may.
        let _ = client.batch_execute("CHECKPOINT");
        Ok(Self { client, postmaster: server.pid() })
    }

    /// Names and values to print.
    pub(crate) fn server_settings(&mut self) -> Result<Vec<(&'static str, String)>> {
        let names = ["server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size"];
        let mut settings = Vec::new();
        for name in names {
            settings.push((name, self.client.query_one("SELECT current_setting($1)", &[&name])?.try_get(0)?));
        }
        Ok(settings)
    }

    /// Leaves a table as it is some time after it was filled.
    pub(crate) fn tidy_up(&mut self, schema: &str) -> Result<()> {
        let sql = "SELECT format('VACUUM (ANALYZE) %I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = $1";
        for row in self.client.query(sql, &[&schema])? {
            self.client.batch_execute(row.try_get(0)?)?;
        }
        Ok(())
    }

    pub(crate) fn drop_schema(&mut self, schema: &str) -> Result<()> {
        Ok(self.client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE"))?)
    }

    pub(crate) fn count(&mut self, sql: &str) -> Result<usize> {
        Ok(usize::try_from(self.client.query_one(sql, &[])?.try_get::<_, i64>(0)?)?)
    }

    /// The counters when everybody else has left: a backend reports its commits and its times when it ends.
    pub(crate) fn read(&mut self) -> Result<Reading> {
        let client_ticks = own_ticks();
        self.client.batch_execute(ALONE)?;
        let sql = "SELECT pg_stat_get_db_xact_commit(oid), (pg_current_wal_insert_lsn() - '0/0')::bigint
                   FROM pg_database WHERE datname = current_database()";
        let row = self.client.query_one(sql, &[])?;
        let server_ticks = self.postmaster.and_then(final_ticks_of_children);
        Ok(Reading { commits: row.try_get(0)?, wal: row.try_get(1)?, client_ticks, server_ticks })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counters far below 2^52")]
impl Measured {
    pub(crate) fn new(case: Case, jobs: usize, times: Times, before: &Reading, after: &Reading) -> Self {
        // In a trial the first claims may take all.
        let timed = jobs.saturating_sub(case.concurrency * case.connections).max(jobs / 2) as f64;
        let jobs = jobs as f64;
        let per_job = |before: i64, after: i64| (after - before) as f64 / jobs;
        let microseconds = |before: Option<u64>, after: Option<u64>| {
            let ticks = after?.saturating_sub(before?);
            Some(ticks as f64 / TICKS_PER_SECOND * 1e6 / jobs)
        };
        Self {
            jobs_per_second: timed / times.drain.as_secs_f64(),
            start_ms: times.start.as_secs_f64() * 1e3,
            stop_ms: times.stop.as_secs_f64() * 1e3,
            commits: per_job(before.commits, after.commits),
            wal_bytes: per_job(before.wal, after.wal),
            client_us: microseconds(before.client_ticks, after.client_ticks),
            server_us: microseconds(before.server_ticks, after.server_ticks),
        }
    }
}

/// User and system time of this process, threads that have ended included.
fn own_ticks() -> Option<u64> {
    ticks("self", 11)
}

/// User and system time of a process's children that have ended, when no more of them are about to.
fn final_ticks_of_children(pid: u32) -> Option<u64> {
    let pid = pid.to_string();
    let (mut last, mut since) = (ticks(&pid, 13)?, Instant::now());
    while since.elapsed() < QUIET {
        thread::sleep(LOOK_EVERY);
        let now = ticks(&pid, 13)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Some(last)
}

/// Two neighbouring fields of `/proc/PID/stat`, counted from behind the command's name; see proc(5).
fn ticks(pid: &str, first: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(first);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

//! One drain, measured.

use super::cases::{Case, Who};
use super::drain::Account;
use super::{crew, drain};
use crate::support::Result;
use crate::support::meter::{Meter, Reading};
use crate::support::numbers::median;
use crate::support::reference;
use crate::support::server::Server;

/// What is known of one drain, or the medians over some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) jobs_per_second: f64,
    pub(crate) commits_per_job: f64,
    pub(crate) wal_bytes_per_job: f64,
    /// `None` where there is no `/proc`.
    pub(crate) client_us_per_job: Option<f64>,
    /// Of the backends; `None` when the server is not ours.
    pub(crate) server_us_per_job: Option<f64>,
    /// From the word to go to the first job in hand.
    pub(crate) start_ms: f64,
    /// From the word to stop, or the last job if that was later, to the end of all processes.
    pub(crate) stop_ms: f64,
    /// Memory in use by all processes when a tenth of the jobs was done, and at the end.
    pub(crate) warm_mb: Option<f64>,
    pub(crate) end_mb: Option<f64>,
}

impl Measured {
    /// Fill, drain under measurement, check, clean up.
    pub(crate) fn take(server: &Server, meter: &mut Meter, case: Case, jobs: usize) -> Result<Self> {
        drain::fill(server, case.who, jobs)?;
        let (schema, done) = match case.who {
            Who::Reference => (reference::SCHEMA, "SELECT count(*) FROM reference.jobs WHERE status = 'done'"),
            _ => (drain::SCHEMA, "SELECT count(*) FROM throughput.jobs WHERE status = 'completed' AND run_count = 1"),
        };
        server.tidy_up(schema)?;
        let before = meter.read()?;
        let accounts = crew::drain(server, case, jobs)?;
        let cost = meter.read()?.since(&before);
        let done = meter.count(done)?;
        if done != jobs {
            return Err(format!("{done} jobs are done, not {jobs}: {case:?}").into());
        }
        server.drop_schema(schema)?;
        Ok(Self::new(case, jobs, &accounts, &cost))
    }

    #[expect(clippy::cast_precision_loss, reason = "counters far below 2^52")]
    fn new(case: Case, jobs: usize, accounts: &[Account], cost: &Reading) -> Self {
        // A process may have come too late for any job.
        let busy = || accounts.iter().filter(|account| account.jobs > 0);
        let first = busy().map(|it| it.first).fold(f64::INFINITY, f64::min);
        let last = busy().map(|it| it.last).fold(0.0, f64::max);
        let began = accounts.iter().map(|it| it.began).fold(f64::INFINITY, f64::min);
        let stop = accounts.iter().map(|it| it.stop).fold(0.0, f64::max);
        let sum = |part: fn(&Account) -> Option<f64>| accounts.iter().map(part).sum::<Option<f64>>();
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        // In a trial the first claims may take all.
        let timed = jobs.saturating_sub(case.concurrency * case.count).max(jobs / 2) as f64;
        let jobs = jobs as f64;
        Self {
            jobs_per_second: timed / (last - first),
            commits_per_job: cost.commits as f64 / jobs,
            wal_bytes_per_job: cost.wal_bytes as f64 / jobs,
            client_us_per_job: sum(|it| it.cpu).map(|seconds| seconds * 1e6 / jobs),
            server_us_per_job: cost.server_time.map(|time| time.as_secs_f64() * 1e6 / jobs),
            start_ms: (first - began) * 1e3,
            stop_ms: stop * 1e3,
            warm_mb: accounts.iter().map(|it| it.memory_warm.map(megabytes)).sum(),
            end_mb: accounts.iter().map(|it| it.memory_end.map(megabytes)).sum(),
        }
    }

    /// Of each figure for itself.
    pub(crate) fn median_of(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure));
        let of_known = |figure: fn(&Self) -> Option<f64>| {
            let known: Option<Vec<f64>> = runs.iter().map(figure).collect();
            known.map(median)
        };
        Self {
            jobs_per_second: of(|run| run.jobs_per_second),
            commits_per_job: of(|run| run.commits_per_job),
            wal_bytes_per_job: of(|run| run.wal_bytes_per_job),
            client_us_per_job: of_known(|run| run.client_us_per_job),
            server_us_per_job: of_known(|run| run.server_us_per_job),
            start_ms: of(|run| run.start_ms),
            stop_ms: of(|run| run.stop_ms),
            warm_mb: of_known(|run| run.warm_mb),
            end_mb: of_known(|run| run.end_mb),
        }
    }
}

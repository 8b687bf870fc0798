//! What the command takes: help, completions and the man page are made of this.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use venturi::{JobStatus, OnDuplicate, Priority};

const CODES: &str = "Exit codes: 0 done; 1 it failed, or there is no such job; 2 the arguments make no sense, or a bulk \
                     write was not confirmed; 3 `doctor` has found an error. With --json, the answer is one JSON \
                     document on standard output (`status --watch`: one per line).";

/// Looks at, steers and diagnoses a venturi job queue on PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "venturi", version, after_help = CODES)]
pub(crate) struct Arguments {
    /// Where the server is, as a URL or as key=value pairs.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, global = true)]
    pub(crate) database_url: Option<String>,
    /// The schema of the queue's tables.
    #[arg(long, default_value = "venturi", global = true)]
    pub(crate) schema: String,
    /// Encrypts the connection, or fails; as does `sslmode=require` in the URL. Trusts the platform's authorities. A Unix
    /// socket is never encrypted, as with libpq.
    #[arg(long, global = true)]
    pub(crate) tls: bool,
    /// Encrypts the connection, and trusts only the authorities in this file of certificates in PEM (libpq's sslrootcert).
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// The URL leads to a pooler in transaction mode, such as PgBouncer's.
    #[arg(long, global = true)]
    pub(crate) pooled: bool,
    /// Prints JSON. `completions`, `man` and `migrate --sql` have none.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Makes the tables, or brings them to the version that this command needs.
    Migrate {
        /// Says what would be applied, and applies nothing.
        #[arg(long, conflicts_with = "sql")]
        dry_run: bool,
        /// Prints the statements, as one transaction to be run by hand; connects to nothing.
        #[arg(long)]
        sql: bool,
        /// The version that the schema has before them, as --dry-run tells; 0: there are no tables.
        #[arg(long, value_name = "VERSION", default_value_t = 0, requires = "sql")]
        from: i32,
    },
    /// Stores a job, and prints its number.
    Enqueue(Enqueue),
    /// Counts the jobs of each kind.
    Status {
        /// Shows it again and again, until it is interrupted.
        #[arg(long)]
        watch: bool,
        /// How long a showing stays.
        #[arg(long, default_value = "2s", value_parser = pause)]
        interval: Duration,
    },
    /// Lists, shows, cancels and requeues jobs.
    #[command(subcommand)]
    Jobs(Jobs),
    /// Lists and requeues dead jobs.
    #[command(subcommand)]
    Dead(Dead),
    /// Pauses and resumes kinds.
    #[command(subcommand)]
    Kinds(Kinds),
    /// Puts jobs back whose leases have run out.
    Recover,
    /// Deletes finished jobs of at least these ages.
    Cleanup(Ages),
    /// Lists the workers that hold claims, and how long their leases have left.
    Workers,
    /// Looks for what is wrong with the queue and its server.
    Doctor {
        /// Where workers listen, if that is elsewhere: past the pooler.
        #[arg(long, value_name = "URL")]
        listen_on: Option<String>,
    },
    /// Prints completions for a shell.
    Completions { shell: Shell },
    /// Prints the man page.
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct Enqueue {
    /// What kind of job it is: the `KIND` of the handler that is to run it.
    pub(crate) kind: String,
    /// The payload, as JSON; `@FILE` or `-` (standard input): what is read there.
    #[arg(long, default_value = "null", value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    pub(crate) payload: String,
    #[arg(long, value_enum, default_value = "normal")]
    pub(crate) priority: Urgency,
    /// So much later, as 90s or 2h; at most 36500 days, longer delays are cut.
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "due_at")]
    pub(crate) delay: Option<Duration>,
    /// At this instant in UTC, as 2030-01-31T12:00:00Z; if it is past: now.
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) due_at: Option<SystemTime>,
    /// The dedup key: a pending job of the kind with the same key is not doubled.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) key: Option<String>,
    /// What becomes of such a job. A task's own `merge` is not known here.
    #[arg(long, value_enum, default_value = "replace", requires = "key")]
    pub(crate) on_duplicate: Duplicate,
    /// The context of the trace that it belongs to, such as a W3C traceparent; at most 512 bytes.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) trace: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Urgency {
    High,
    Normal,
    Low,
}

impl From<Urgency> for Priority {
    fn from(urgency: Urgency) -> Self {
        match urgency {
            Urgency::High => Self::High,
            Urgency::Normal => Self::Normal,
            Urgency::Low => Self::Low,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Duplicate {
    /// It gets this payload and priority, loses its carry and its failures; the earlier due time wins.
    Replace,
    /// It stays as it is, and nothing is stored.
    Keep,
    /// It stays, and this job is stored beside it.
    Independent,
}

impl From<Duplicate> for OnDuplicate {
    fn from(duplicate: Duplicate) -> Self {
        match duplicate {
            Duplicate::Replace => Self::Replace,
            Duplicate::Keep => Self::Keep,
            Duplicate::Independent => Self::Independent,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// Lists jobs, the newest first.
    List {
        #[command(flatten)]
        which: Which,
        /// At most so many, 1 to 1000.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Shows one job and its journal.
    Show { id: i64 },
    /// Cancels a job, or all that fit.
    Cancel {
        #[command(flatten)]
        target: Target,
    },
    /// Makes a finished job pending again, or all that fit (dead ones, unless a status is given).
    Requeue {
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// Lists dead jobs, the newest first.
    List {
        #[arg(long)]
        kind: Option<String>,
        /// At most so many, 1 to 1000.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Makes all dead jobs pending again, or those of a kind.
    Requeue {
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Kinds {
    /// Leaves a kind's jobs pending until it is resumed.
    Pause { kind: String },
    /// Lets a kind's jobs be claimed again.
    Resume { kind: String },
}

#[derive(Debug, Args)]
pub(crate) struct Ages {
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(crate) completed_older_than: Option<Duration>,
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(crate) cancelled_older_than: Option<Duration>,
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(crate) dead_older_than: Option<Duration>,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Only jobs of this kind.
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only jobs of this status; may be repeated.
    #[arg(long, value_enum)]
    pub(crate) status: Vec<Status>,
    /// Only jobs with this dedup key.
    #[arg(long)]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The job's number; without it, --all is needed.
    #[arg(required_unless_present = "all", conflicts_with_all = ["kind", "status", "key"])]
    pub(crate) id: Option<i64>,
    /// All jobs that fit.
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) which: Which,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct Consent {
    /// Does not ask before many jobs are written; needed where there is no terminal to ask on.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Status {
    Pending,
    Claimed,
    Completed,
    Dead,
    Cancelled,
}

impl From<Status> for JobStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Claimed => Self::Claimed,
            Status::Completed => Self::Completed,
            Status::Dead => Self::Dead,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

/// An instant of the years 0 to 9999. The calendar repeats itself after 400 years, so that one before 1970, which the
/// parser does not know, is found some such times later.
fn instant(text: &str) -> Result<SystemTime, String> {
    const FIRST_YEAR: u32 = 1970;
    const YEARS: u32 = 400;
    const SECONDS: u64 = 146_097 * 86_400;
    let parse = |text: &str| humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string());
    // Without a sign, which a number may have and a year may not.
    let digits = text.split_at_checked(4).filter(|(year, _)| year.bytes().all(|digit| digit.is_ascii_digit()));
    let early = digits.and_then(|(year, rest)| Some((year.parse::<u32>().ok()?, rest)));
    let Some((year, rest)) = early.filter(|(year, _)| *year < FIRST_YEAR) else { return parse(text) };
    let times = (FIRST_YEAR - year).div_ceil(YEARS);
    let later = parse(&format!("{:04}{rest}", year + times * YEARS))?;
    later.checked_sub(Duration::from_secs(u64::from(times) * SECONDS)).ok_or_else(|| "too long ago".to_owned())
}

/// A time between two looks that leaves the server time for others.
fn pause(text: &str) -> Result<Duration, String> {
    let pause = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if pause < Duration::from_millis(100) { Err("at least 100ms".to_owned()) } else { Ok(pause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before 1970.
    fn seconds_before(text: &str) -> u64 {
        SystemTime::UNIX_EPOCH.duration_since(instant(text).unwrap()).unwrap().as_secs()
    }

    #[test]
    fn instants_before_1970_are_read() {
        assert_eq!(instant("1970-01-01T00:00:00Z"), Ok(SystemTime::UNIX_EPOCH));
        assert_eq!(seconds_before("1969-12-31 23:59:59"), 1, "in UTC, as the one with a Z");
        assert_eq!(seconds_before("1600-02-29T00:00:00Z"), 11_670_998_400);
        assert_eq!(seconds_before("0000-01-01T00:00:00Z"), 62_167_219_200);
        for nonsense in [
            "1900-02-29T00:00:00Z",
            "1969",
            "",
            "-001-01-01T00:00:00Z",
            "+969-01-01T00:00:00Z",
            "ä",
            "2030-01-01T00:00:00+02:00",
        ] {
            assert!(instant(nonsense).is_err(), "{nonsense}");
        }
    }
}

//! What is wrong with a queue and its server: pure rules over the facts that one statement has gathered.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::migration::latest;

/// The indexes that the migrations make.
pub(crate) const INDEXES: [&str; 12] = [
    "live_pkey",
    "live_ready",
    "live_scheduled",
    "live_lease",
    "live_dedup",
    "payload_pkey",
    "finished_pkey",
    "finished_age",
    "finished_failed",
    "journal_pkey",
    "journal_run",
    "kind_state_pkey",
];

/// A transaction of this age keeps thousands of dead entries in the way of claims at a usual rate.
const OLD: f64 = 60.0;
const VERY_OLD: f64 = 3_600.0;

/// What autovacuum leaves on `live` by the table's own settings, with room for a round that is under way.
const DEAD_ROWS: u64 = 50_000;

/// Clocks differ by the time that the answer takes, and nothing depends on a second.
const SKEW: Duration = Duration::from_secs(5);

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing; also that something could not be checked.
    Note,
    /// It costs speed, or will be an error some day.
    Warning,
    /// Jobs do not run, or are not safe.
    Error,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that [`doctor`](crate::blocking::Queue::doctor) has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, as a stable word for programs, such as `old_transaction`.
    pub code: &'static str,
    /// What was seen. May hold text that others have chosen, such as names of applications and kinds.
    pub evidence: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// What the statement has gathered.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) at: SystemTime,
    pub(crate) version: i32,
    /// The oldest transaction of another session in this database: seconds, and whose.
    pub(crate) transaction: Option<(f64, String)>,
    /// Sessions of which this role sees nothing.
    pub(crate) hidden: u64,
    /// Replication slots that hold dead rows back, and that nobody uses.
    pub(crate) slots: Option<String>,
    pub(crate) prepared: Option<(f64, String)>,
    pub(crate) live_rows: u64,
    pub(crate) dead_rows: u64,
    pub(crate) bytes: u64,
    pub(crate) autovacuum: bool,
    pub(crate) autovacuum_live: bool,
    pub(crate) missing: Vec<String>,
    pub(crate) invalid: Vec<String>,
    pub(crate) expired: u64,
    pub(crate) unserved: Vec<String>,
    pub(crate) commits: String,
    pub(crate) connections: u64,
    pub(crate) room: u64,
}

/// The worst first. `wall` is the application's own clock, which is compared here and nowhere else.
pub(crate) fn findings(facts: &Facts, wall: SystemTime) -> Vec<Finding> {
    let groups = [holders(facts), storage(facts), indexes(facts), server(facts, wall), work(facts)];
    let mut all: Vec<Finding> = groups.into_iter().flatten().collect();
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}

fn found(severity: Severity, code: &'static str, evidence: String, remedy: &'static str) -> Finding {
    Finding { severity, code, evidence, remedy }
}

fn by_age(seconds: f64) -> Severity {
    if seconds >= VERY_OLD { Severity::Error } else { Severity::Warning }
}

/// Who keeps vacuum from removing dead rows.
fn holders(facts: &Facts) -> Vec<Finding> {
    let old = |held: &Option<(f64, String)>| held.clone().filter(|(seconds, _)| *seconds >= OLD);
    let transaction = old(&facts.transaction).map(|(seconds, who)| {
        let evidence = format!("a transaction has been open for {seconds:.0} s: {who}");
        let remedy = "End it, or set idle_in_transaction_session_timeout: dead rows of `live` stay until it ends.";
        found(by_age(seconds), "old_transaction", evidence, remedy)
    });
    let prepared = old(&facts.prepared).map(|(seconds, who)| {
        let evidence = format!("a transaction has been prepared for {seconds:.0} s: {who}");
        found(by_age(seconds), "prepared_transaction", evidence, "COMMIT PREPARED or ROLLBACK PREPARED it.")
    });
    let slots = facts.slots.as_ref().map(|slots| {
        let evidence = format!("replication slots that nobody uses hold dead rows back: {slots}");
        found(Severity::Warning, "replication_slot", evidence, "Connect their standby, or drop them.")
    });
    let hidden = (facts.hidden > 0).then(|| {
        let evidence =
            format!("not checked: the transactions of {} sessions, which this role may not see", facts.hidden);
        found(Severity::Note, "sessions_hidden", evidence, "GRANT pg_read_all_stats to the role, and ask again.")
    });
    [transaction, prepared, slots, hidden].into_iter().flatten().collect()
}

fn storage(facts: &Facts) -> Vec<Finding> {
    let dead = (facts.dead_rows >= DEAD_ROWS && facts.dead_rows > facts.live_rows).then(|| {
        let evidence = format!(
            "`live` has {} dead rows beside {} live ones, in {} bytes",
            facts.dead_rows, facts.live_rows, facts.bytes
        );
        let remedy = "See who holds them back; if nobody does, VACUUM the table and look at autovacuum_max_workers.";
        found(Severity::Warning, "dead_rows", evidence, remedy)
    });
    let off = (!facts.autovacuum).then(|| {
        let evidence = "autovacuum is off on the whole server".to_owned();
        found(Severity::Error, "autovacuum_off", evidence, "Set autovacuum = on: claims slow down without it.")
    });
    let off_here = (!facts.autovacuum_live).then(|| {
        let evidence = "autovacuum_enabled is off on the table `live`".to_owned();
        found(Severity::Error, "autovacuum_off_live", evidence, "ALTER TABLE … RESET (autovacuum_enabled).")
    });
    [dead, off, off_here].into_iter().flatten().collect()
}

fn indexes(facts: &Facts) -> Vec<Finding> {
    let missing = (!facts.missing.is_empty()).then(|| facts.missing.join(", ")).map(|names| {
        let remedy = "Create it as the files in `migrations/` do.";
        found(Severity::Error, "index_missing", format!("not there: {names}"), remedy)
    });
    let invalid = (!facts.invalid.is_empty())
        .then(|| facts.invalid.join(", "))
        .map(|names| found(Severity::Error, "index_invalid", format!("not usable: {names}"), "REINDEX INDEX it."));
    [missing, invalid].into_iter().flatten().collect()
}

fn server(facts: &Facts, wall: SystemTime) -> Vec<Finding> {
    let version = (facts.version > latest()).then(|| {
        let evidence = format!("the schema has version {}, this code knows {}", facts.version, latest());
        found(Severity::Note, "schema_newer", evidence, "It works; update venturi in this program some day.")
    });
    let skew = facts.at.duration_since(wall).unwrap_or_else(|earlier| earlier.duration());
    let skewed = (skew >= SKEW).then(|| {
        let evidence = format!("this machine's clock and the server's differ by {:.1} s", skew.as_secs_f64());
        let remedy = "Synchronise them. venturi compares the server's only; `due_at` instants are taken as they are.";
        found(Severity::Warning, "clock_skew", evidence, remedy)
    });
    let commits = (facts.commits == "off").then(|| {
        let evidence = "synchronous_commit is off for this role or database".to_owned();
        let remedy = "Set it to on or local: a crash of the server loses jobs that were reported as enqueued.";
        found(Severity::Warning, "synchronous_commit_off", evidence, remedy)
    });
    let full = (facts.connections.saturating_mul(10) >= facts.room.saturating_mul(9)).then(|| {
        let evidence = format!("{} of {} connections are taken", facts.connections, facts.room);
        found(Severity::Warning, "connections", evidence, "Raise max_connections, or put a pooler before the server.")
    });
    [version, skewed, commits, full].into_iter().flatten().collect()
}

fn work(facts: &Facts) -> Vec<Finding> {
    let expired = (facts.expired > 0).then(|| {
        let evidence = format!("{} claimed jobs have leases that ran out", facts.expired);
        let remedy =
            "A worker puts them back within its poll interval; if none runs, start one or call `recover_stale`.";
        found(Severity::Warning, "expired_leases", evidence, remedy)
    });
    let unserved = (!facts.unserved.is_empty()).then(|| facts.unserved.join(", ")).map(|kinds| {
        let evidence = format!(
            "due for over a minute, claimed by nobody, none completed or dead in 10 minutes (which kinds workers have \
             registered is not stored, so this is inferred): {kinds}"
        );
        found(Severity::Error, "kind_unserved", evidence, "Start a worker that has these kinds, or cancel the jobs.")
    });
    [expired, unserved].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Facts {
        Facts {
            at: SystemTime::UNIX_EPOCH,
            version: latest(),
            transaction: Some((1.0, "somebody".to_owned())),
            hidden: 0,
            slots: None,
            prepared: None,
            live_rows: 10,
            dead_rows: 100,
            bytes: 8_192,
            autovacuum: true,
            autovacuum_live: true,
            missing: Vec::new(),
            invalid: Vec::new(),
            expired: 0,
            unserved: Vec::new(),
            commits: "on".to_owned(),
            connections: 10,
            room: 97,
        }
    }

    fn codes(facts: &Facts) -> Vec<&'static str> {
        findings(facts, SystemTime::UNIX_EPOCH).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_healthy_queue_has_no_findings() {
        assert_eq!(codes(&healthy()), Vec::<&str>::new());
    }

    #[test]
    fn the_worst_finding_comes_first() {
        let facts = Facts { hidden: 1, expired: 2, autovacuum: false, ..healthy() };
        assert_eq!(codes(&facts), ["autovacuum_off", "expired_leases", "sessions_hidden"]);
    }

    #[test]
    fn an_old_transaction_is_a_warning_and_after_an_hour_an_error() {
        let severity = |seconds| {
            let facts = Facts { transaction: Some((seconds, "x".to_owned())), ..healthy() };
            findings(&facts, facts.at).first().map(|finding| finding.severity)
        };
        assert_eq!(
            [severity(59.0), severity(60.0), severity(3_600.0)],
            [None, Some(Severity::Warning), Some(Severity::Error)]
        );
    }

    #[test]
    fn clocks_may_differ_by_a_few_seconds_in_either_direction() {
        let seconds = Duration::from_secs;
        let at = SystemTime::UNIX_EPOCH + seconds(100);
        let facts = Facts { at, ..healthy() };
        let skewed = |wall| findings(&facts, SystemTime::UNIX_EPOCH + seconds(wall)).len();
        assert_eq!([95, 96, 104, 105].map(skewed), [1, 0, 0, 1]);
    }

    #[test]
    fn what_the_server_cannot_tell_from_its_views_is_judged_by_these_limits() {
        assert_eq!(codes(&Facts { dead_rows: 50_000, ..healthy() }), ["dead_rows"]);
        assert_eq!(codes(&Facts { dead_rows: 50_000, live_rows: 50_000, ..healthy() }), Vec::<&str>::new());
        assert_eq!(codes(&Facts { connections: 88, ..healthy() }), ["connections"]);
        assert_eq!(codes(&Facts { commits: "off".to_owned(), ..healthy() }), ["synchronous_commit_off"]);
        assert_eq!(codes(&Facts { slots: Some("s".to_owned()), ..healthy() }), ["replication_slot"]);
        assert_eq!(codes(&Facts { prepared: Some((61.0, "p".to_owned())), ..healthy() }), ["prepared_transaction"]);
        assert_eq!(codes(&Facts { version: latest() + 1, ..healthy() }), ["schema_newer"]);
    }
}

//! From facts to findings.
#![deny(clippy::disallowed_methods)]

use std::time::{Duration, SystemTime};

use crate::migration::latest;

use super::facts::{Facts, Numbers, Taken};
use super::{Finding, Severity, found};

/// A transaction of this age keeps thousands of dead entries in the way of claims at a usual rate.
const OLD: f64 = 60.0;
const VERY_OLD: f64 = 3_600.0;

/// What autovacuum leaves on `live` by the table's own settings, with room for a round that is under way.
const DEAD_ROWS: u64 = 50_000;

/// What a row takes with its part of the indexes, when its payload is as large as one that lies in it may be.
const ROW_BYTES: u64 = 2_000;

/// So many times of that are no room for the work that goes on, but left over from a backlog; what is smaller costs
/// nothing that could be noticed.
const BLOATED: u64 = 10;
const BLOAT_BYTES: u64 = 64_000_000;

/// With more than these, `live` waits for its vacuum until claims have slowed down.
const LARGEST_SCALE: f64 = 0.01;
const LARGEST_THRESHOLD: f64 = 50_000.0;
const LONGEST_NAP: u64 = 300;

/// Clocks differ by the time that the answer takes, and nothing depends on a second.
const SKEW: Duration = Duration::from_secs(5);

pub(super) fn of(facts: &Facts, wall: SystemTime) -> Vec<Finding> {
    let groups = [holders(facts), storage(facts), server(facts, wall), work(facts)];
    groups.into_iter().flatten().collect()
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
        let evidence = format!("replication slots hold dead rows back: {slots}");
        let remedy =
            "Connect their standby, or drop them; end what runs long on it, or set hot_standby_feedback = off.";
        found(Severity::Warning, "replication_slot", evidence, remedy)
    });
    let standbys = facts.standbys.as_ref().map(|standbys| {
        let evidence = format!("standbys hold dead rows back: {standbys}");
        let remedy = "End what runs long on them, or set hot_standby_feedback = off there.";
        found(Severity::Warning, "standby_feedback", evidence, remedy)
    });
    let hidden = (facts.hidden > 0).then(|| {
        let evidence =
            format!("not checked: the transactions of {} sessions, which this role may not see", facts.hidden);
        found(Severity::Note, "sessions_hidden", evidence, "GRANT pg_read_all_stats to the role, and ask again.")
    });
    [transaction, prepared, slots, standbys, hidden].into_iter().flatten().collect()
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
        let evidence = "autovacuum is off on the whole server, or does not know what to do (track_counts)".to_owned();
        let remedy = "Set autovacuum = on and track_counts = on: claims slow down without it.";
        found(Severity::Error, "autovacuum_off", evidence, remedy)
    });
    let off_here = (!facts.autovacuum_live).then(|| {
        let evidence = "autovacuum_enabled is off on the table `live`".to_owned();
        found(Severity::Error, "autovacuum_off_live", evidence, "ALTER TABLE … RESET (autovacuum_enabled).")
    });
    let found = [dead, bloat(facts), off, off_here, lazy(facts)];
    found.into_iter().chain(behind(facts)).flatten().collect()
}

fn bloat(facts: &Facts) -> Option<Finding> {
    let bytes = facts.bytes.saturating_add(facts.index_bytes);
    let expected = facts.live_rows.saturating_mul(ROW_BYTES).saturating_mul(BLOATED);
    (bytes >= BLOAT_BYTES && bytes > expected).then(|| {
        let megabytes = |bytes: u64| bytes / 1_000_000;
        let evidence = format!(
            "`live` takes {} MB and its indexes {} MB, for {} rows",
            megabytes(facts.bytes),
            megabytes(facts.index_bytes),
            facts.live_rows
        );
        let remedy = "After a backlog files keep their size: REINDEX TABLE CONCURRENTLY live, and VACUUM FULL live in a \
                      quiet minute, which locks it. If it comes back, look for who holds dead rows back.";
        found(Severity::Warning, "bloat", evidence, remedy)
    })
}

/// Whether autovacuum comes to `live` as seldom as it does to tables that are not queues.
fn lazy(facts: &Facts) -> Option<Finding> {
    let set = |name: &str, most: f64| facts.option(name).is_some_and(|value| value <= most);
    let mut why = Vec::new();
    if !set("autovacuum_vacuum_scale_factor", LARGEST_SCALE) || !set("autovacuum_vacuum_threshold", LARGEST_THRESHOLD) {
        why.push(
            "`live` does not have the scale factor 0 and the threshold 5000 that the migration gave it".to_owned(),
        );
    }
    if facts.naptime > LONGEST_NAP {
        why.push(format!("autovacuum_naptime is {} s", facts.naptime));
    }
    (!why.is_empty()).then(|| {
        let remedy = "ALTER TABLE live SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000); \
                      autovacuum_naptime is 1 min by default.";
        found(Severity::Warning, "autovacuum_lazy", why.join("; "), remedy)
    })
}

/// Whether the sequences are going to give ids that jobs or entries have.
fn behind(facts: &Facts) -> [Option<Finding>; 2] {
    let found = |numbers: Option<Numbers>, sequence, whose, remedy| {
        let numbers = numbers.filter(|it| it.last.is_none_or(|last| last < it.highest))?;
        let given = numbers
            .last
            .map_or_else(|| "has given no id since it was restarted".to_owned(), |last| format!("is at {last}"));
        let evidence = format!("the sequence {sequence} {given}, and there are {whose} up to id {}", numbers.highest);
        Some(found(Severity::Error, "sequence_behind", evidence, remedy))
    };
    let of_jobs = "SELECT setval('job_id', greatest((SELECT max(id) FROM live), (SELECT max(id) FROM finished))), in the \
                   schema: an id that a job has is refused, or names two jobs.";
    let of_entries = "SELECT setval(pg_get_serial_sequence('journal', 'id'), (SELECT max(id) FROM journal)), in the schema: \
                      an entry whose id another of its job has is left out.";
    [found(facts.numbers, "job_id", "jobs", of_jobs), found(facts.entries, "of the journal", "entries", of_entries)]
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
    let unsafe_disk = (!facts.fsync).then(|| {
        let evidence = "fsync is off: a crash of the machine can destroy the database, jobs and all".to_owned();
        found(Severity::Error, "fsync_off", evidence, "Set fsync = on, unless the data may be lost as a whole.")
    });
    [version, skewed, commits, unsafe_disk, connections(facts)].into_iter().flatten().collect()
}

fn connections(facts: &Facts) -> Option<Finding> {
    let scarce = |it: &&Taken| it.taken.saturating_mul(10) >= it.room.saturating_mul(9);
    let words = |it: &Taken| format!("{} of {} connections of {} are taken", it.taken, it.room, it.whose);
    let scarce: Vec<String> = facts.connections.iter().filter(scarce).map(words).collect();
    (!scarce.is_empty()).then(|| {
        let remedy = "Raise the limit (max_connections, or CONNECTION LIMIT of the role or database), or put a pooler \
                      before the server.";
        found(Severity::Warning, "connections", scarce.join("; "), remedy)
    })
}

fn work(facts: &Facts) -> Vec<Finding> {
    let expired = (facts.expired > 0).then(|| {
        let evidence = format!("{} claimed jobs have leases that ran out", facts.expired);
        let remedy = "A worker puts them back within its poll interval; if none runs, start one, or `venturi recover` \
                      (`Queue::recover_stale`). One whose transaction holds the row (`complete_in`) for longer than its \
                      lease is seen here, too, and ends well.";
        found(Severity::Warning, "expired_leases", evidence, remedy)
    });
    let unserved = (!facts.unserved.is_empty()).then(|| facts.unserved.join(", ")).map(|kinds| {
        let evidence = format!(
            "due for over a minute, claimed by nobody, none completed or dead in 10 minutes (which kinds workers have \
             registered is not stored, so this is inferred): {kinds}"
        );
        found(Severity::Error, "kind_unserved", evidence, "Start a worker that has these kinds, or cancel the jobs.")
    });
    let paused = (!facts.paused.is_empty()).then(|| facts.paused.join(", ")).map(|kinds| {
        let evidence = format!("paused, with jobs that are due: {kinds}");
        found(
            Severity::Note,
            "kind_paused",
            evidence,
            "When they shall run: `venturi kinds resume` (`Queue::resume_kind`).",
        )
    });
    [expired, unserved, paused].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use crate::error::{Error, ErrorKind};
    use crate::inventory::tests::whole;
    use crate::inventory::{Class, Piece};

    use super::super::{Hearing, findings};
    use super::*;

    fn healthy() -> Facts {
        Facts {
            at: SystemTime::UNIX_EPOCH,
            version: latest(),
            transaction: Some((1.0, "somebody".to_owned())),
            hidden: 0,
            slots: None,
            standbys: None,
            prepared: None,
            live_rows: 10,
            dead_rows: 100,
            bytes: 8_192,
            index_bytes: 8_192,
            autovacuum: true,
            naptime: 60,
            autovacuum_live: true,
            options: vec![
                "fillfactor=70".to_owned(),
                "autovacuum_vacuum_scale_factor=0".to_owned(),
                "autovacuum_vacuum_threshold=5000".to_owned(),
            ],
            expired: 0,
            unserved: Vec::new(),
            paused: Vec::new(),
            numbers: Some(Numbers { last: Some(7), highest: 7 }),
            entries: Some(Numbers { last: Some(9), highest: 9 }),
            commits: "on".to_owned(),
            fsync: true,
            connections: vec![Taken { whose: "the server", taken: 10, room: 97 }],
        }
    }

    fn codes(facts: &Facts) -> Vec<&'static str> {
        of(facts, SystemTime::UNIX_EPOCH).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_healthy_queue_has_no_findings() {
        assert_eq!(codes(&healthy()), Vec::<&str>::new());
    }

    #[test]
    fn the_worst_finding_comes_first() {
        let facts = Facts { hidden: 1, expired: 2, autovacuum: false, ..healthy() };
        let at = facts.at;
        let codes = all_codes(&whole(), Ok(facts), &Hearing::Failed("no".to_owned()), at);
        assert_eq!(codes, ["autovacuum_off", "listener_unreachable", "expired_leases", "sessions_hidden"]);
    }

    fn all_codes(
        pieces: &[Piece],
        facts: Result<Facts, Error>,
        hearing: &Hearing,
        wall: SystemTime,
    ) -> Vec<&'static str> {
        let all = findings(pieces, facts, hearing, wall).unwrap();
        all.into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn without_facts_the_schema_is_told_of_if_it_explains_that() {
        let failed = || Error::new(ErrorKind::SchemaMissing, "diagnosing: no");
        let wall = SystemTime::UNIX_EPOCH;
        assert!(findings(&whole(), Err(failed()), &Hearing::Off, wall).is_err());
        let without: Vec<_> = whole().into_iter().filter(|it| it.name != "live").collect();
        let codes = all_codes(&without, Err(failed()), &Hearing::Off, wall);
        assert_eq!(codes, ["schema_missing", "not_checked", "listener_off"]);
    }

    #[test]
    fn what_later_code_has_made_of_the_schema_is_no_damage() {
        let later = || Facts { version: latest() + 1, ..healthy() };
        let mut pieces: Vec<_> = whole().into_iter().filter(|it| it.name != "live_ready").collect();
        let codes = |pieces: &[Piece]| all_codes(pieces, Ok(later()), &Hearing::Off, later().at);
        assert_eq!(codes(&pieces), ["schema_newer", "listener_off"]);
        let name = "live".to_owned();
        pieces.push(Piece { class: Class::Unlogged, owner: "-".to_owned(), name, shape: "-".to_owned() });
        assert_eq!(codes(&pieces), ["table_unlogged", "schema_newer", "listener_off"]);
    }

    #[test]
    fn a_table_is_bloated_when_it_is_large_and_its_rows_do_not_explain_it() {
        let sized = |bytes, live_rows| codes(&Facts { bytes, index_bytes: 0, live_rows, ..healthy() });
        assert_eq!(sized(BLOAT_BYTES, 10), ["bloat"]);
        assert_eq!(sized(BLOAT_BYTES - 1, 10), Vec::<&str>::new());
        assert_eq!(sized(BLOAT_BYTES, 10_000), Vec::<&str>::new());
    }

    #[test]
    fn the_sequence_is_behind_when_it_will_give_an_id_that_is_taken() {
        let codes = |numbers| codes(&Facts { numbers, ..healthy() });
        assert_eq!(codes(Some(Numbers { last: Some(6), highest: 7 })), ["sequence_behind"]);
        assert_eq!(codes(Some(Numbers { last: None, highest: 7 })), ["sequence_behind"]);
        assert_eq!(codes(None), Vec::<&str>::new());
        let entries = Some(Numbers { last: Some(8), highest: 9 });
        assert_eq!(of(&Facts { entries, ..healthy() }, healthy().at)[0].code, "sequence_behind");
    }

    #[test]
    fn vacuum_is_lazy_where_the_tables_own_settings_are_gone_or_its_rounds_are_rare() {
        assert_eq!(codes(&Facts { options: Vec::new(), ..healthy() }), ["autovacuum_lazy"]);
        assert_eq!(codes(&Facts { naptime: 301, ..healthy() }), ["autovacuum_lazy"]);
        let stricter =
            vec!["autovacuum_vacuum_scale_factor=0.0".to_owned(), "autovacuum_vacuum_threshold=100".to_owned()];
        assert_eq!(codes(&Facts { options: stricter, ..healthy() }), Vec::<&str>::new());
    }

    #[test]
    fn an_old_transaction_is_a_warning_and_after_an_hour_an_error() {
        let severity = |seconds| {
            let facts = Facts { transaction: Some((seconds, "x".to_owned())), ..healthy() };
            of(&facts, facts.at).first().map(|finding| finding.severity)
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
        let skewed = |wall| of(&facts, SystemTime::UNIX_EPOCH + seconds(wall)).len();
        assert_eq!([95, 96, 104, 105].map(skewed), [1, 0, 0, 1]);
    }

    #[test]
    fn what_the_server_cannot_tell_from_its_views_is_judged_by_these_limits() {
        assert_eq!(codes(&Facts { dead_rows: 50_000, ..healthy() }), ["dead_rows"]);
        assert_eq!(codes(&Facts { dead_rows: 50_000, live_rows: 50_000, ..healthy() }), Vec::<&str>::new());
        let taken = |taken| vec![Taken { whose: "this role", taken, room: 10 }];
        assert_eq!(codes(&Facts { connections: taken(9), ..healthy() }), ["connections"]);
        assert_eq!(codes(&Facts { connections: taken(8), ..healthy() }), Vec::<&str>::new());
        assert_eq!(codes(&Facts { fsync: false, ..healthy() }), ["fsync_off"]);
        assert_eq!(codes(&Facts { paused: vec!["a".to_owned()], ..healthy() }), ["kind_paused"]);
        assert_eq!(codes(&Facts { standbys: Some("s".to_owned()), ..healthy() }), ["standby_feedback"]);
        assert_eq!(codes(&Facts { commits: "off".to_owned(), ..healthy() }), ["synchronous_commit_off"]);
        assert_eq!(codes(&Facts { slots: Some("s".to_owned()), ..healthy() }), ["replication_slot"]);
        assert_eq!(codes(&Facts { prepared: Some((61.0, "p".to_owned())), ..healthy() }), ["prepared_transaction"]);
        assert_eq!(codes(&Facts { version: latest() + 1, ..healthy() }), ["schema_newer"]);
    }
}

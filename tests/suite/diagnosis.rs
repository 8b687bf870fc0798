//! What the queue tells of its workers, and what the doctor finds on a server where it was planted.

use venturi::Severity;

use super::front::{Front, WorkerSpec};
use super::probe::{Step, job};
use super::stage::Stage;

/// The severity of a finding of this code, with what was seen.
fn found(stage: &Stage<'_>, code: &str) -> Option<(Severity, String)> {
    let findings = stage.queue().doctor().expect("a diagnosis");
    findings.into_iter().find(|finding| finding.code == code).map(|finding| (finding.severity, finding.evidence))
}

/// Plants something, and looks for what is found of it and was not before.
fn planted(stage: &Stage<'_>, code: &str, sql: &str) -> (Severity, String) {
    assert_eq!(found(stage, code), None, "before it is planted");
    stage.place.run(sql);
    found(stage, code).unwrap_or_else(|| panic!("{code} is not found"))
}

pub(crate) fn those_who_hold_claims_are_listed(front: &dyn Front) {
    let stage = Stage::new(front);
    assert!(stage.queue().workers().expect("an answer").is_empty());
    let spec = WorkerSpec { claimed_by: Some("ada".to_owned()), ..WorkerSpec::without_polls() };
    stage.work_idle(&spec);
    let held = stage.enqueue(job("held").run([Step::WaitForSignal, Step::Complete]));
    stage.wait_start("held", 1);
    let workers = stage.queue().workers().expect("an answer");
    let [worker] = workers.as_slice() else { panic!("{workers:?}") };
    assert!(worker.worker.starts_with("ada"), "{worker:?}");
    assert_eq!((worker.claims, worker.expired, worker.kinds.len()), (1, 0, 1));
    assert!(worker.lease_left.is_some(), "{worker:?}");
    assert_eq!(stage.queue().cancel(held).expect("an answer"), venturi::CancelOutcome::Requested);
    stage.place.wait_status(held, "completed");
}

pub(crate) fn the_doctor_finds_indexes_that_are_missing_or_invalid(front: &dyn Front) {
    let stage = Stage::new(front);
    let (severity, evidence) = planted(&stage, "index_missing", "DROP INDEX live_ready");
    assert_eq!((severity, evidence.as_str()), (Severity::Error, "not there: live_ready"));
    let spoil = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'live_lease'::regclass";
    let (severity, evidence) = planted(&stage, "index_invalid", spoil);
    assert_eq!((severity, evidence.as_str()), (Severity::Error, "not usable: live_lease"));
}

pub(crate) fn the_doctor_finds_that_autovacuum_is_off_for_live(front: &dyn Front) {
    let stage = Stage::new(front);
    let off = "ALTER TABLE live SET (autovacuum_enabled = false)";
    assert_eq!(planted(&stage, "autovacuum_off_live", off).0, Severity::Error);
}

pub(crate) fn the_doctor_finds_leases_that_ran_out(front: &dyn Front) {
    let stage = Stage::new(front);
    let expired = "INSERT INTO live (kind, payload, state, run_count, claimed_by, claim_expires_at) \
                   VALUES ('gone', '1', 2, 1, 'nobody', now() - interval '1 minute')";
    let (severity, evidence) = planted(&stage, "expired_leases", expired);
    assert_eq!(severity, Severity::Warning);
    assert!(evidence.starts_with("1 claimed"), "{evidence}");
    let workers = stage.queue().workers().expect("an answer");
    assert!(workers.iter().all(|worker| worker.expired == 1 && worker.lease_left.is_none()), "{workers:?}");
}

pub(crate) fn the_doctor_finds_kinds_that_nobody_serves(front: &dyn Front) {
    let stage = Stage::new(front);
    let waits = "INSERT INTO live (kind, payload, visible_at) VALUES ('orphan', '1', now() - interval '2 minutes')";
    let (severity, evidence) = planted(&stage, "kind_unserved", waits);
    assert_eq!(severity, Severity::Error);
    assert!(evidence.ends_with(": orphan") && evidence.contains("inferred"), "{evidence}");
    stage.queue().pause_kind("orphan").expect("an answer");
    assert_eq!(found(&stage, "kind_unserved"), None, "a kind that is paused is meant to wait");
}

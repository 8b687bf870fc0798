//! The server has committed, and nobody hears of it.

use std::time::Duration;

use super::front::{Front, WorkerSpec};
use super::place::eventually;
use super::probe::{Step, job};
use super::proxy::Proxy;
use super::stage::Stage;

/// The order in which a worker makes its connections.
const WORK: usize = 0;
const WATCH: usize = 1;

/// A worker behind a proxy, listening and idle.
fn behind_proxy(stage: &Stage<'_>, spec: &WorkerSpec) -> (Proxy, std::rc::Rc<super::front::Running>) {
    let proxy = Proxy::start(&stage.place);
    let running = stage.work_on(spec, proxy.database(&stage.place));
    eventually("the worker listens", || (!stage.listeners().is_empty()).then_some(()));
    stage.assert_works("warm-up");
    (proxy, running)
}

pub(crate) fn a_claim_whose_reply_was_lost_is_no_failure_and_runs_soon(front: &dyn Front) {
    // On a busy machine another statement may be on its way when the wire goes mute; then that is what is lost, and the
    // claim comes over another wire.
    let lost = (0..5).any(|_| loses_a_claim(front));
    assert!(lost, "no reply to a claim was lost");
}

/// Whether it was a claim whose reply was lost.
fn loses_a_claim(front: &dyn Front) -> bool {
    let stage = Stage::new(front);
    let (proxy, worker) = behind_proxy(&stage, &WorkerSpec::without_polls());
    proxy.wire(WORK).mute();
    let id = stage.enqueue(job("unheard"));
    stage.place.wait_status(id, "claimed");
    proxy.wire(WORK).cut();
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.failure_count, stage.starts("unheard")), (0, 1));
    assert!(worker.stop().left_claimed.is_empty());
    if row.run_count == 1 {
        return false;
    }
    assert_eq!((row.run_count, stage.place.events(id)), (2, ["released", "completed"].map(str::to_owned).to_vec()));
    true
}

pub(crate) fn a_result_whose_reply_was_lost_is_stored_once(front: &dyn Front) {
    let stage = Stage::new(front);
    let (proxy, worker) = behind_proxy(&stage, &WorkerSpec::without_polls());
    let ends = [
        job("done").run([Step::Wait("end".to_owned()), Step::Note("done".to_owned())]),
        job("failed").run([Step::Wait("end".to_owned()), Step::Fail("no luck".to_owned())]).run([Step::Complete]),
    ];
    let [done, failed] = ends.map(|end| stage.enqueue(end));
    stage.wait_starts(3);
    proxy.wire(WORK).mute();
    stage.open("end");
    // One of them or both, as they happen to share an exchange; the warm-up's is there already.
    eventually("a result is stored", || {
        let stored = "SELECT (SELECT count(*) FROM journal) + (SELECT count(*) FROM finished)";
        (stage.place.number(stored) >= 2).then_some(())
    });
    proxy.wire(WORK).cut();
    stage.place.wait_status(failed, "completed");
    stage.assert_works("after it");
    let row = stage.place.job(done);
    assert_eq!(
        (row.status.as_str(), row.run_count, stage.place.events(done)),
        ("completed", 1, vec!["completed".to_owned()])
    );
    let row = stage.place.job(failed);
    assert_eq!((row.failure_count, stage.starts("failed")), (1, 2));
    assert_eq!(stage.place.events(failed).iter().filter(|event| *event == "retried").count(), 1);
    let report = worker.stop();
    assert_eq!((report.late, report.left_claimed.len()), (0, 0), "{report:?}");
    assert_eq!(report.settled, 5, "each result counts, also the ones whose reply was lost: {report:?}");
}

pub(crate) fn a_renewal_whose_reply_was_lost_costs_nothing(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { lease: Some(Duration::from_secs(3)), ..WorkerSpec::without_polls() };
    let (proxy, worker) = behind_proxy(&stage, &spec);
    let id = stage.enqueue(job("going").waiting("end"));
    stage.wait_start("going", 1);
    let expiry =
        || stage.place.rows("SELECT claim_expires_at::text FROM live WHERE state = 2", &[])[0].get::<_, String>(0);
    // Once it has renewed a lease, renewing takes one message and no reply.
    let stamped = expiry();
    eventually("the lease is renewed", || (expiry() != stamped).then_some(()));
    proxy.wire(WATCH).mute();
    let before = expiry();
    let unheard = eventually("the lease is renewed unheard", || Some(expiry()).filter(|now| *now != before));
    proxy.wire(WATCH).cut();
    // It goes on over another connection, beyond what the last renewal gave.
    let heard = eventually("the lease is renewed again", || Some(expiry()).filter(|now| *now != unheard));
    eventually("the lease is renewed once more", || (expiry() != heard).then_some(()));
    stage.open("end");
    let row = stage.place.wait_status(id, "completed");
    assert_eq!((row.run_count, row.failure_count), (1, 0));
    assert_eq!(stage.look(|book| book.of("going")[0].cancelled), None);
    assert_eq!(worker.stop().late, 0);
}

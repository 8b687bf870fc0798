//! The queue's handle.

use std::collections::BTreeSet;
use std::thread;

use venturi::Effect;

use super::front::Front;
use super::place::eventually;
use super::probe::{Kind, job};
use super::stage::Stage;

pub(crate) fn many_callers_share_one_queue(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = stage.queue();
    let ids: Vec<i64> = thread::scope(|scope| {
        let call = |caller| {
            move || {
                (0..40)
                    .map(|nth| queue.enqueue(job(format!("{caller}.{nth}"))).expect("stored").id.get())
                    .collect::<Vec<_>>()
            }
        };
        let callers: Vec<_> = (0..6).map(|caller| scope.spawn(call(caller))).collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect()
    });
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 240);
    assert_eq!(stage.place.number("SELECT count(DISTINCT payload::text) FROM live"), 240);
    let connections = stage.place.rows("SELECT 1 FROM pg_stat_activity WHERE application_name = 'producer'", &[]);
    assert!(!connections.is_empty());
}

pub(crate) fn jobs_that_are_stored_together_keep_their_order(front: &dyn Front) {
    let stage = Stage::new(front);
    assert!(stage.enqueue_many(Kind::Plain, []).is_empty(), "nothing at all is no error");
    let ids = stage.enqueue_many(Kind::Plain, (0..2_500).map(|nth| job(format!("{nth}"))));
    assert_eq!(ids.len(), 2_500);
    assert!(ids.is_sorted());
    let stored = stage.queue().enqueue(job("one")).expect("stored");
    assert_eq!(stored.effect, Effect::Inserted);
    let tags = stage.place.rows("SELECT payload->'script'->>'tag' FROM live ORDER BY created_at, id LIMIT 2500", &[]);
    let wanted = (0..2_500).map(|nth| nth.to_string());
    assert!(tags.iter().map(|row| row.get::<_, String>(0)).eq(wanted));
}

/// The end of a quiet connection is found out before anything is sent over it, so the call is not left in doubt.
pub(crate) fn a_queue_whose_connection_was_cut_connects_again(front: &dyn Front) {
    let stage = Stage::new(front);
    let queue = front.connect(&stage.place.database()).expect("a queue");
    for nth in 0..3 {
        queue.enqueue(job(format!("before {nth}"))).expect("stored");
        let quiet = "clock_timestamp() - state_change > interval '50 ms'";
        eventually("the connection is quiet", || (stage.place.backends(quiet).len() == 1).then_some(()));
        stage.place.terminate(&stage.place.backends("true"));
        queue.enqueue(job(format!("after {nth}"))).expect("stored");
    }
    assert_eq!(stage.place.number("SELECT count(*) FROM live"), 6);
}

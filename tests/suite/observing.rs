//! What observers are told.

use super::front::{Front, WorkerSpec};
use super::place::eventually;
use super::probe::{Step, job};
use super::stage::Stage;

pub(crate) fn an_observer_hears_what_became_of_each_run(front: &dyn Front) {
    let stage = Stage::new(front);
    let worker = stage.work(&WorkerSpec { claimed_by: Some("observed".to_owned()), ..WorkerSpec::default() });
    let id = stage.enqueue(job("twice").run([Step::Fail("no luck".to_owned())]).run([Step::Complete]));
    stage.place.wait_status(id, "completed");
    // The lab's observer panics each time a run starts, which costs neither the job nor an event.
    let heard = eventually("the end is told", || Some(stage.heard_of(id)).filter(|heard| heard.len() >= 4));
    assert!(heard.iter().all(|(worker, event)| worker.starts_with("observed:") && event.kind().is_some()), "{heard:?}");
    let told: Vec<_> = heard.iter().map(|(_, event)| (event.name(), event.run())).collect();
    assert_eq!(told, [("started", Some(1)), ("settled", Some(1)), ("started", Some(2)), ("settled", Some(2))]);
    assert!(heard[1].1.to_string().contains("run 1: retried after"), "{heard:?}");
    assert!(heard[3].1.to_string().contains("run 2: completed after"), "{heard:?}");
    worker.stop();
}

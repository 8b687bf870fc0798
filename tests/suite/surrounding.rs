//! Middleware around runs.

use std::sync::Arc;

#[cfg(not(feature = "blocking"))]
use venturi::r#async::{BlockingMiddleware, BlockingNext};
#[cfg(feature = "blocking")]
use venturi::blocking::{Middleware as BlockingMiddleware, Next as BlockingNext};
use venturi::{Outcome, RunInfo, TaskError};

use super::front::{Front, Handlers, WorkerSpec};
use super::lab::{Charge, Lab};
use super::place::eventually;
use super::probe::{Blast, Step, job};
use super::stage::Stage;

/// A layer that notes what it sees, and does what the payload says.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) lab: Arc<Lab>,
    pub(crate) charge: Charge,
}

/// Notes the end of a run that was dropped.
struct Inside<'a>(&'a Layer, bool);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.note("dropped");
        }
    }
}

impl Layer {
    fn note(&self, what: impl AsRef<str>) {
        self.lab.note(format!("{} {}", self.name, what.as_ref()));
    }

    fn enter(&self, run: &RunInfo<'_>) -> Inside<'_> {
        assert!(run.worker().contains(':') && run.job_id().get() > 0 && run.created_at() <= run.due_at());
        self.note(format!("{} {} {}", run.kind(), run.run_count(), run.failure_count()));
        assert!(!self.is_told(run, "panics before"), "{} before", self.name);
        Inside(self, false)
    }

    fn leave(
        &self,
        run: &RunInfo<'_>,
        mut inside: Inside<'_>,
        result: Result<Outcome, TaskError>,
    ) -> Result<Outcome, TaskError> {
        inside.1 = true;
        match &result {
            Ok(_) => self.note("well"),
            Err(error) => self.note(format!("{}{error}", if error.is_panic() { "caught: " } else { "failed: " })),
        }
        assert!(!self.is_told(run, "panics after"), "{} after", self.name);
        if self.is_told(run, "replaces") { Ok(Outcome::completed_with("replaced")) } else { result }
    }

    fn is_told(&self, run: &RunInfo<'_>, what: &str) -> bool {
        run.run_count() == 1 && run.payload().contains(&format!("{} {what}", self.name))
    }
}

impl BlockingMiddleware for Layer {
    fn around(&self, run: &RunInfo<'_>, next: BlockingNext<'_>) -> Result<Outcome, TaskError> {
        let inside = self.enter(run);
        self.leave(run, inside, next.run())
    }
}

#[cfg(feature = "async")]
impl venturi::r#async::Middleware for Layer {
    async fn around(&self, run: &RunInfo<'_>, next: venturi::r#async::Next<'_>) -> Result<Outcome, TaskError> {
        let inside = self.enter(run);
        self.leave(run, inside, next.run().await)
    }
}

fn surrounded() -> WorkerSpec {
    WorkerSpec { surrounded: true, ..WorkerSpec::serial() }
}

pub(crate) fn layers_surround_each_run_in_their_order_and_see_its_result(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&surrounded());
    let (id, row) = stage.finish(job("plain").run([Step::Fail("no luck".to_owned())]).run([Step::Complete]));
    assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 2, 1));
    assert_eq!(stage.place.journal(id)[0].note.as_deref(), Some("no luck"));
    let expected = [
        "outer plain 1 0",
        "inner plain 1 0",
        "inner failed: no luck",
        "outer failed: no luck",
        "outer plain 2 1",
        "inner plain 2 1",
        "inner well",
        "outer well",
    ];
    assert_eq!(stage.lab.notes(), expected);
}

pub(crate) fn a_layer_may_replace_the_result(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.work(&surrounded());
    let (id, row) = stage.finish(job("inner replaces").run([Step::Permanent("no luck".to_owned())]));
    assert_eq!((row.status.as_str(), row.run_count), ("completed", 1));
    assert_eq!(stage.place.journal(id)[0].note.as_deref(), Some("replaced"));
    assert_eq!(stage.lab.notes()[2..], ["inner failed: no luck", "outer well"]);
}

pub(crate) fn a_panic_in_a_layer_is_the_runs_and_outer_layers_see_it(front: &dyn Front) {
    let panics = |tag: &str, steps: &[Step], seen: &[&str], note: &str| {
        let stage = Stage::new(front);
        stage.work(&surrounded());
        let (id, row) = stage.finish(job(tag).run(steps).run([Step::Complete]));
        assert_eq!((row.status.as_str(), row.run_count, row.failure_count), ("completed", 2, 1), "{tag}");
        let first = &stage.place.journal(id)[0];
        assert_eq!((first.event.as_str(), first.note.as_deref()), ("retried", Some(note)), "{tag}");
        assert_eq!(first.attachment, None, "{tag}");
        let notes = stage.lab.notes();
        assert_eq!(notes[..notes.len() - 4], *seen, "{tag}");
    };
    let (outer, inner) = ("outer plain 1 0", "inner plain 1 0");
    let attach = Step::Attach("lost".to_owned());
    panics(
        "inner panics before",
        &[],
        &[outer, inner, "outer caught: panicked: inner before"],
        "panicked: inner before",
    );
    panics(
        "inner panics after",
        std::slice::from_ref(&attach),
        &[outer, inner, "inner well", "outer caught: panicked: inner after"],
        "panicked: inner after",
    );
    panics("outer panics before", &[], &[outer], "panicked: outer before");
    let caught = ["inner caught: panicked: a plain text", "outer caught: panicked: a plain text"];
    panics(
        "the handler",
        &[attach, Step::Panic(Blast::Text)],
        &[outer, inner, caught[0], caught[1]],
        "panicked: a plain text",
    );
}

pub(crate) fn layers_of_a_run_that_is_dropped_are_dropped_with_it(front: &dyn Front) {
    if front.handlers() == Handlers::Threads {
        return; // Nobody drops what runs on a thread.
    }
    let stage = Stage::new(front);
    stage.work(&WorkerSpec { timeout: Some(std::time::Duration::from_millis(300)), ..surrounded() });
    let id = stage.enqueue(job("stuck").waiting("never").run([Step::Complete]));
    stage.place.wait_status(id, "completed");
    let dropped = || Some(stage.lab.notes()).filter(|notes| notes.len() == 8);
    let notes = eventually("both runs are over", dropped);
    assert!(notes[2..4].iter().all(|note| note.ends_with("dropped")), "{notes:?}");
}

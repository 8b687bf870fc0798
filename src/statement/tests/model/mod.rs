//! The model of the database that the engine is simulated with (`src/engine/tests/server.rs`), against the server: the
//! same statements to both, and after each one the same answer and the same tables.
//!
//! A seed that shows a difference prints the shortest script that still does, which `scripts/check-model --replay FILE`
//! performs again. More seeds: `scripts/check-model --seeds N --from S`.

mod found;
mod lighter;
mod picture;
mod real;
mod script;
mod stage;

use std::time::Duration;

use super::*;
use crate::engine::tests::failure::{Failure, script_in, script_of_file};
use crate::engine::tests::seeds::{self, Figures};
use crate::engine::tests::server::{Flaw, Server};
use crate::engine::tests::shrink::shrink;
use real::Real;
use script::Step;
use stage::perform;

/// How often a script that fails is tried with something left out.
const ASKS: usize = 400;

/// What differs, without the details, to tell one difference from another.
fn rule_of(why: &str) -> (&str, &str) {
    let (step, rest) = why.split_once(" at step ").unwrap_or_default();
    (step, rest.split(':').nth(1).unwrap_or_default())
}

fn try_script(real: &mut Real, script: Vec<Step>, flaw: Option<Flaw>) -> Result<Figures, Failure<Step>> {
    perform(real, &script, flaw).map_err(|why| {
        let mut same =
            |script: &[Step]| perform(real, script, flaw).is_err_and(|other| rule_of(&other) == rule_of(&why));
        let script = lighter::lighten(shrink(script, ASKS, &mut same), &mut same);
        // The details may be others now.
        let why = perform(real, &script, flaw).err().unwrap_or(why);
        Failure { script, why }
    })
}

fn try_seeds(first: u64, seeds: u64, progress: bool) -> Result<Figures, String> {
    let tell = |real: &mut Real, seed| {
        try_script(real, script::script(seed), None).map_err(|difference| difference.text(seed))
    };
    seeds::try_each(first..first + seeds, progress, Real::new, tell)
}

/// What must have been answered in that many scripts, or they compare less than they say.
const EXPECTED: [&str; 41] = [
    "claimed",
    "accepted",
    "refused",
    "busy",
    "landed",
    "overruled",
    "cancelled by its run",
    "completed by the run",
    "completed by the run before",
    "no completion by the run",
    "inserted with a key",
    "kept",
    "replaced",
    "merged",
    "another candidate",
    "no candidate any more",
    "busy candidate",
    "cancelled",
    "asked to end",
    "finished before it was cancelled",
    "cancelled, not there",
    "cancelled, busy",
    "cancelled, not touched",
    "requeued",
    "requeued, not finished",
    "requeued, not there",
    "requeued, conflict",
    "requeued, not touched",
    "deleted",
    "found asked to end",
    "recovered",
    "dead when it was recovered",
    "cancelled when it was recovered",
    "renewed",
    "renewed, asked to end",
    "held",
    "held, completed",
    "promoted some",
    "promoted all",
    "checkpoint",
    "stale in a survey",
];

#[test]
fn the_model_answers_and_stores_as_the_server_does() {
    let figures = try_seeds(0, 50, false).unwrap_or_else(|differences| panic!("{differences}"));
    for what in EXPECTED {
        assert!(figures.contains_key(what), "no script has {what}: {figures:?}");
    }
}

#[test]
fn a_row_that_somebody_holds_is_left_alone_in_both() {
    let script = script_in(include_str!("held.jsonl"));
    let figures = perform(&mut Real::new(), &script, None).unwrap_or_else(|why| panic!("{why}"));
    let seen = ["claimed", "another candidate", "busy candidate", "replaced"].map(|it| figures.get(it));
    assert_eq!(seen, [Some(&1); 4], "{figures:?}");
}

#[test]
fn jobs_that_are_copied_long_after_their_numbers_were_given_out_count_from_then() {
    let mut model = Server::default();
    model.now += Duration::from_secs(1_000);
    let Reply::Reserved(numbers) = model.execute(&Statement::Reserve(2)) else { panic!() };
    model.now += Duration::from_secs(60);
    let rows = vec![job("a"), NewJob { delay: 5.0, ..job("a") }];
    let copy = CopyJobs { jobs: NewJobs::new(rows), numbers };
    let told = copy.ids();
    let Reply::Enqueued(answered) = model.execute(&Statement::Copy(copy)) else { panic!() };
    assert_eq!(answered, told);
    let stored = model.live.values().map(|row| (row.created.as_secs(), row.visible.as_secs()));
    assert_eq!(stored.collect::<Vec<_>>(), [(1_000, 1_000), (1_000, 1_005)]);
}

#[test]
#[ignore = "as many seeds as wanted: `scripts/check-model`"]
fn compare() {
    seeds::try_many("the model did as the server in the scripts", |first, seeds| try_seeds(first, seeds, true));
}

#[test]
#[ignore = "a script from a file: `scripts/check-model --replay FILE`"]
fn replay() {
    let script = script_of_file();
    let figures = perform(&mut Real::new(), &script, None).unwrap_or_else(|why| panic!("{why}"));
    seeds::show(&figures);
}

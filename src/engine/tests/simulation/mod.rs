//! Deterministic simulation: several engines with clocks of their own, one model of the database, and a script of what
//! is done and what goes wrong, made from a seed. What must hold is looked at after every step (`world/audit.rs`).
//!
//! A seed that fails tells why, and prints the shortest script that still fails, which `scripts/simulate --replay FILE`
//! performs again. More seeds: `scripts/simulate --seeds N --from S`.

mod planted;
mod script;
mod stage;

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use super::failure::{Failure, script_of_file};
use super::seeds::{self, Figures};
use super::server::Flaw;
use super::shrink::shrink;
use script::Step;
use stage::perform;

/// How often a script that fails is tried with something left out: some seconds.
const ASKS: usize = 2_000;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Performs a script; what broke, if anything did.
fn outcome(script: &[Step], flaw: Option<Flaw>) -> Result<Figures, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| perform(script, flaw)));
    QUIET.set(false);
    outcome.map_err(|panic| text_of(&*panic))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// What a message says without its details, to tell one failure from another.
fn rule_of(message: &str) -> &str {
    message.split(':').next().unwrap_or_default()
}

fn try_seed(seed: u64, flaw: Option<Flaw>) -> Result<Figures, Failure<Step>> {
    let script = script::script(seed);
    outcome(&script, flaw).map_err(|why| {
        let same = |script: &[Step]| outcome(script, flaw).is_err_and(|other| rule_of(&other) == rule_of(&why));
        let script = shrink(script, ASKS, same);
        // The details may be others now.
        let why = outcome(&script, flaw).err().unwrap_or_default();
        Failure { script, why }
    })
}

/// Performs the stories of these seeds, and adds up what happened in them.
fn try_seeds(first: u64, seeds: u64, progress: bool) -> Result<Figures, String> {
    let tell = |(): &mut (), seed| try_seed(seed, None).map_err(|failure| failure.text(seed));
    seeds::try_each(first..first + seeds, progress, || (), tell)
}

/// What must have happened in that many stories, or they test less than they say.
const EXPECTED: [&str; 29] = [
    "completed",
    "dead",
    "cancelled",
    "retried",
    "paused",
    "released",
    "stale-recovered",
    "claims lost",
    "late results",
    "claims never heard of",
    "results overruled",
    "links lost",
    "jobs left claimed",
    "draining",
    "forced",
    "grace",
    "waiting_for_thread",
    "stopped",
    "told to stop while running",
    "told to stop while draining",
    "told to stop while forced",
    "told to stop when stopped",
    "keyed jobs inserted",
    "keyed jobs merged",
    "running jobs asked to end",
    "pending jobs cancelled",
    "jobs requeued",
    "statements",
    "most statements in a second",
];

#[test]
fn whatever_goes_wrong_every_rule_holds() {
    let figures = try_seeds(0, 200, false).unwrap_or_else(|failed| panic!("{failed}"));
    for what in EXPECTED {
        assert!(figures.contains_key(what), "no story has {what}: {figures:?}");
    }
}

#[test]
#[ignore = "as many seeds as wanted: `scripts/simulate`"]
fn simulate() {
    seeds::try_many("all rules held in the stories", |first, seeds| try_seeds(first, seeds, true));
}

#[test]
#[ignore = "a script from a file: `scripts/simulate --replay FILE`"]
fn replay() {
    let script = script_of_file();
    let figures = perform(&script, None);
    seeds::show(&figures);
}

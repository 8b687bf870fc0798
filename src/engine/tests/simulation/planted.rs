//! The simulation finds faults: each of these is planted in the model server, found, shortened, and found again by the
//! script that was printed.

use super::super::failure::script_in;
use super::*;

/// Enough for each of them, by far.
const SEEDS: u64 = 60;

fn is_found(flaw: Flaw, rule: &str, most: usize) {
    let found = (0..SEEDS).find_map(|seed| try_seed(seed, Some(flaw)).err());
    let failure = found.unwrap_or_else(|| panic!("{flaw:?} is not noticed"));
    let text = failure.text(0);
    assert_eq!(rule_of(&failure.why), rule, "{text}");
    assert!(failure.script.len() <= most, "{} steps:\n{text}", failure.script.len());
    let again = script_in(&text);
    assert_eq!(again, failure.script);
    assert_eq!(outcome(&again, Some(flaw)).err().as_deref().map(rule_of), Some(rule), "the script tells it again");
    outcome(&again, None).unwrap_or_else(|why| panic!("without the flaw nothing is wrong, but {why}"));
}

#[test]
fn a_settlement_that_ignores_the_fence_is_found() {
    is_found(Flaw::NoFence, "a run ends once", 16);
}

#[test]
fn a_job_that_is_lost_is_found() {
    is_found(Flaw::LosesRetried, "no job is lost", 6);
}

#[test]
fn a_claim_that_takes_more_than_there_is_room_for_is_found() {
    is_found(Flaw::NoRoom, "never more handlers of a kind than its cap", 8);
}

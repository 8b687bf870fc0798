//! Differences are found: each of these is planted in the model, found, shortened, and found again by the script that
//! was printed.

use super::*;

/// Enough for each of them, by far.
const SEEDS: u64 = 30;

/// Steps of a script that was shortened, of the 80 that it had.
const MOST: usize = 8;

fn is_found(flaw: Flaw) {
    let mut real = Real::new();
    let found = (0..SEEDS).find_map(|seed| try_script(&mut real, script::script(seed), Some(flaw)).err());
    let difference = found.unwrap_or_else(|| panic!("{flaw:?} is not noticed"));
    let text = difference.text(0);
    assert!(difference.script.len() <= MOST, "{} steps:\n{text}", difference.script.len());
    let again = script_in(&text);
    assert_eq!(again, difference.script);
    let why = perform(&mut real, &again, Some(flaw)).expect_err("the script shows it again");
    assert_eq!(rule_of(&why), rule_of(&difference.why), "{text}");
    perform(&mut real, &again, None).unwrap_or_else(|why| panic!("without the flaw nothing differs, but {why}"));
}

#[test]
fn a_model_that_ignores_the_fence_differs() {
    is_found(Flaw::NoFence);
}

#[test]
fn a_model_that_loses_a_retried_job_differs() {
    is_found(Flaw::LosesRetried);
}

#[test]
fn a_model_that_claims_beyond_a_cap_differs() {
    is_found(Flaw::NoRoom);
}

//! Priority and anti-starvation.

use std::time::Duration;

use venturi::Priority;

use super::front::{Front, WorkerSpec};
use super::lab::Book;
use super::probe::{Kind, job};
use super::stage::Stage;

const TIERS: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

/// So many jobs of each tier, all there before the worker starts; returns the tiers in the order of their starts.
fn order_of_tiers(stage: &Stage<'_>, of_each: usize, spec: &WorkerSpec) -> Vec<Priority> {
    for tier in TIERS {
        stage.enqueue_many(Kind::Plain, (0..of_each).map(|nth| job(format!("{nth}")).with_priority(tier)));
    }
    stage.work(spec);
    stage.place.wait_all_finished();
    stage.look(|book| book.runs.iter().map(|run| run.priority).collect())
}

fn share(order: &[Priority], tier: Priority) -> usize {
    order.iter().filter(|priority| **priority == tier).count()
}

pub(crate) fn without_a_ratio_lower_priorities_wait_for_all_higher_ones(front: &dyn Front) {
    for ratio in [None, Some(1)] {
        let stage = Stage::new(front);
        let spec = WorkerSpec { priority_ratio: Some(ratio), ..WorkerSpec::serial() };
        let order = order_of_tiers(&stage, 15, &spec);
        assert!(order.is_sorted(), "{order:?}");
    }
}

/// With ratio 2 every second slot is owed to lower tiers: of four one to Low, one to Normal, two to High.
pub(crate) fn every_tier_gets_its_share_while_all_have_a_backlog(front: &dyn Front) {
    let stage = Stage::new(front);
    let spec = WorkerSpec { priority_ratio: Some(Some(2)), ..WorkerSpec::serial() };
    let order = order_of_tiers(&stage, 60, &spec);
    let first = &order[..100];
    let shares = TIERS.map(|tier| share(first, tier));
    assert!(
        (48..=52).contains(&shares[0]) && (23..=27).contains(&shares[1]) && (23..=27).contains(&shares[2]),
        "{shares:?}"
    );
    // Each tier starts within the square of the ratio, from wherever the rotation begins.
    for tier in TIERS {
        let longest = first.split(|priority| *priority == tier).map(<[Priority]>::len).max();
        assert!(longest <= Some(6), "{tier:?} waited for {longest:?} claims");
    }
}

pub(crate) fn by_default_high_priorities_get_three_quarters(front: &dyn Front) {
    let stage = Stage::new(front);
    let order = order_of_tiers(&stage, 130, &WorkerSpec { concurrency: Some(2), ..WorkerSpec::default() });
    let shares = TIERS.map(|tier| share(&order[..160], tier));
    // 75, 18.75 and 6.25 percent of 160, give or take what two slots may owe to a tier and start out of turn.
    assert!(
        (115..=125).contains(&shares[0]) && (26..=34).contains(&shares[1]) && (6..=14).contains(&shares[2]),
        "{shares:?}"
    );
}

/// As `scripts/figures` has it: with a ratio of 4, of 1,600 claims, sixteen slots at a time.
pub(crate) fn sixteen_slots_are_shared_in_the_promised_parts(front: &dyn Front) {
    const CLAIMS: usize = 1_600;
    let stage = Stage::new(front);
    for (tier, jobs) in TIERS.into_iter().zip([1_400, 500, 300]) {
        stage.enqueue_many(Kind::Plain, (0..jobs).map(|_| job("any").with_priority(tier).waiting("go")));
    }
    stage.work(&WorkerSpec { concurrency: Some(16), ..WorkerSpec::default() });
    stage.wait_starts(16);
    let first = |book: &Book| book.runs.iter().map(|run| run.priority).collect::<Vec<_>>();
    let started = stage.look(first);
    for tier in TIERS {
        assert!(share(&started, tier) > 0, "each tier starts within the square of the ratio: {started:?}");
    }
    stage.open("go");
    stage.wait_starts(CLAIMS);
    let shares = stage.look(|book| TIERS.map(|tier| share(&first(book)[..CLAIMS], tier)));
    println!("of {CLAIMS}: {shares:?}");
    for (found, wanted) in shares.into_iter().zip([1_200, 300, 100]) {
        assert!(found.abs_diff(wanted) <= CLAIMS / 50, "{shares:?}");
    }
}

pub(crate) fn a_slot_reserved_for_a_tier_without_jobs_is_not_wasted(front: &dyn Front) {
    let stage = Stage::new(front);
    stage.enqueue_many(Kind::Plain, (0..40).map(|nth| job(format!("{nth}")).with_priority(Priority::High)));
    let spec = WorkerSpec { concurrency: Some(1), ..WorkerSpec::without_polls() };
    stage.work(&WorkerSpec { priority_ratio: Some(Some(2)), ..spec });
    stage.place.wait_all_finished();
    assert_eq!(stage.look(|book| book.runs.len()), 40);
}

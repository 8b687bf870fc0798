//! Short runs of one claim, and how their results gather.

use std::time::Duration;

use super::world::*;
use crate::Priority;
use crate::engine::Input;

/// A statement takes 400 us here, so results are waited for at most a quarter of that.
const LONGEST: Duration = Duration::from_micros(100);

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// A worker that was idle finds so many jobs and has room for all. They take so long, counted from one.
fn burst(jobs: usize, takes: impl Fn(u64) -> Duration + 'static) -> (World, usize) {
    let mut world = World::new(1);
    world.behave(move |_, id| Behaviour::takes(takes(id.job.unsigned_abs())));
    let node = world.add(config(16), vec![kind("a")]);
    world.run_until(ms(500));
    arrive(&mut world, jobs);
    assert!(world.run_while(ms(600), |world| world.starts.is_empty()));
    (world, node)
}

/// So many jobs, and one notification.
fn arrive(world: &mut World, jobs: usize) {
    for _ in 1..jobs {
        world.server.enqueue("a", Priority::Normal, Duration::ZERO);
    }
    world.enqueue_many("a", 1);
}

/// When the first claim was answered, and when the exchanges after it were sent, counted from there.
fn exchanges(world: &World, node: usize) -> Vec<Duration> {
    let (claimed, _) = world.starts.first().expect("a run");
    let sent = world.nodes[node].statements.iter().filter(|(_, name)| *name == "exchange" || *name == "settle");
    sent.map(|(at, _)| *at - *claimed).collect()
}

#[test]
fn short_runs_that_were_claimed_together_are_settled_together() {
    let (mut world, node) = burst(4, |job| us(20 * job));
    world.run_until(ms(700));
    assert!(world.all_finished());
    assert_eq!(exchanges(&world, node), [us(80)]);
}

#[test]
fn the_result_of_a_run_that_was_alone_waits_for_nothing() {
    let (mut world, node) = burst(1, |_| us(20));
    world.run_until(ms(700));
    assert_eq!(exchanges(&world, node), [us(20)]);
}

#[test]
fn a_long_run_keeps_short_ones_waiting_for_a_quarter_of_what_the_claim_took() {
    let (mut world, node) = burst(4, |job| if job == 4 { ms(40) } else { us(20) });
    world.run_until(ms(700));
    assert!(world.all_finished());
    assert_eq!(exchanges(&world, node), [LONGEST, ms(40)]);
}

#[test]
fn a_result_that_comes_later_than_that_waits_for_nothing() {
    let (mut world, node) = burst(4, |job| ms(5 * job));
    world.run_until(ms(700));
    assert!(world.all_finished());
    assert_eq!(exchanges(&world, node), (1..=4).map(|nth| ms(5 * nth)).collect::<Vec<_>>());
}

#[test]
fn the_result_of_an_earlier_claim_does_not_wait_for_a_burst_of_which_nothing_has_ended() {
    // The others are claimed a moment before the first one ends.
    let (mut world, node) = burst(1, |job| if job == 1 { us(20_050) } else { ms(40) });
    let started = world.time;
    world.at(started + us(19_200), |world| arrive(world, 3));
    world.run_until(started + us(20_010));
    assert_eq!(world.starts.len(), 4, "{:?}", world.nodes[node].statements);
    world.run_until(started + ms(30));
    assert_eq!(exchanges(&world, node), [us(20_050)]);
}

#[test]
fn a_worker_that_stops_holds_nothing_back() {
    let (mut world, node) = burst(4, |job| if job == 4 { ms(40) } else { us(20) });
    let started = world.time;
    world.at(started + us(50), move |world| world.tell(node, Input::Shutdown));
    world.run_until(started + ms(10));
    assert_eq!(exchanges(&world, node), [us(50)]);
}

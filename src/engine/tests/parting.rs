//! Settling over a second connection.

use std::time::Duration;

use super::world::*;
use crate::engine::Link;
use crate::observer::Event;
use crate::report::Verdict;

const S: fn(u64) -> Duration = Duration::from_secs;

fn parted() -> (World, usize) {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(ms(3)));
    let mut config = config(8);
    config.connections = 2;
    let node = world.add(config, vec![kind("a")]);
    (world, node)
}

#[test]
fn completions_are_settled_over_one_connection_while_jobs_are_claimed_over_the_other() {
    let (mut world, node) = parted();
    world.enqueue_many("a", 1_000);
    world.run_until(S(20));
    assert!(world.all_finished());
    let sent = |name| world.nodes[node].sent(name);
    // Until the work link has shown that there is a queue at all, it does everything.
    assert!(sent("exchange") <= 2 && sent("settle") > 100 && sent("claim") > 100, "{:?}", world.nodes[node].statements);
    world.assert_sound();
}

#[test]
fn with_one_connection_there_is_no_second() {
    let mut world = World::new(1);
    let node = world.add(config(8), vec![kind("a")]);
    world.enqueue_many("a", 100);
    world.run_until(S(5));
    let up = |event: &Event| matches!(event, Event::LinkUp { link: "settle" });
    assert_eq!((world.all_finished(), world.nodes[node].events(up)), (true, 0));
}

#[test]
fn while_the_second_connection_is_down_the_first_settles_too() {
    let (mut world, node) = parted();
    world.enqueue_many("a", 200);
    world.run_until(ms(20));
    for at in 0..200 {
        world.at(ms(20 + at), move |world| world.cut(node, Link::Settle));
    }
    assert!(world.run_while(S(10), |world| !world.all_finished()));
    assert!(world.nodes[node].sent("exchange") > 5, "{:?}", world.nodes[node].statements);
    world.assert_sound();
}

#[test]
fn a_result_that_makes_its_job_claimable_again_goes_with_the_claims() {
    let (mut world, node) = parted();
    world.behave(|_, id| {
        let verdict = if id.run < 4 {
            Verdict::Paused { resume_in: Duration::ZERO, note: None }
        } else {
            Verdict::Completed { note: None }
        };
        Behaviour { verdict, ..Behaviour::takes(ms(3)) }
    });
    world.enqueue_many("a", 200);
    world.run_until(S(30));
    assert!(world.all_finished());
    assert_eq!((world.entries("paused"), world.entries("completed"), world.entries("released")), (600, 200, 0));
    assert!(world.nodes[node].sent("exchange") > 50, "{:?}", world.nodes[node].statements);
    world.assert_sound();
}

#[test]
fn claims_are_compared_while_nothing_is_being_settled() {
    let mut compared = 0;
    for at in 0..100 {
        let (mut world, node) = parted();
        world.enqueue_many("a", 400);
        world.at(Duration::from_micros(20_000 + at * 370), move |world| world.cut(node, Link::Work));
        assert!(world.run_while(S(60), |world| !world.all_finished()));
        let lost = |event: &Event| matches!(event, Event::ClaimLost { .. } | Event::LateResult { .. });
        assert_eq!(world.nodes[node].events(lost), 0, "cut at {at}");
        compared += world.nodes[node].sent("held");
        world.assert_sound();
    }
    assert!(compared > 30, "{compared} comparisons");
}

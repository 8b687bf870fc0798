//! What a worker says it listens for, and that no job is left waiting for it, in simulated time.

use std::time::Duration;

use super::world::{Behaviour, Mishap, World, config, kind, ms};
use crate::engine::{Input, Link};
use crate::registry::KindRule;
use crate::report::Verdict;
use crate::statement::Statement;
use crate::{Priority, notification};

const S: fn(u64) -> Duration = Duration::from_secs;
const US: fn(u64) -> Duration = Duration::from_micros;

/// A world with one worker.
fn one(kinds: Vec<KindRule>) -> (World, usize) {
    let mut world = World::new(1);
    let node = world.add(config(4), kinds);
    (world, node)
}

/// What the watch link says at the beginning of a connection.
fn introductions(world: &World, node: usize) -> Vec<&'static str> {
    let names = world.nodes[node].statements.iter().map(|(_, name)| *name);
    names.filter(|name| matches!(*name, "interest" | "listen")).collect()
}

#[test]
fn interest_is_said_before_listening_and_on_each_connection_anew() {
    let (mut world, node) = one(vec![kind("a"), kind("b")]);
    world.run_until(S(1));
    assert_eq!((introductions(&world, node), world.interests(node)), (vec!["interest", "listen"], 2));
    world.cut(node, Link::Watch);
    assert_eq!(world.interests(node), 0, "the session has taken it along");
    world.run_until(S(3));
    assert_eq!(introductions(&world, node), ["interest", "listen", "interest", "listen"]);
    assert_eq!(world.interests(node), 2);
}

#[test]
fn a_worker_of_many_kinds_has_one_interest_and_is_told_of_each() {
    let names: Vec<&'static str> = (0..17).map(|nth| &*Box::leak(format!("kind {nth}").into_boxed_str())).collect();
    let (mut world, node) = one(names.iter().copied().map(kind).collect());
    world.run_until(S(1));
    assert_eq!(world.interests(node), 1);
    world.enqueue(names[16], Priority::Normal, Duration::ZERO);
    assert!(world.run_while(S(1) + ms(20), |world| !world.all_finished()));
}

#[test]
fn a_worker_that_does_not_listen_has_no_interest() {
    let mut world = World::new(1);
    world.deaf = true;
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(S(100));
    assert_eq!((introductions(&world, node), world.interests(node)), (vec![], 0));
}

/// Whatever the link is doing at this moment.
#[test]
fn a_job_that_is_enqueued_while_a_worker_begins_to_listen_starts_at_once() {
    for (begun, lost) in [(Duration::ZERO, false), (S(10), true)] {
        for at in (0..600).map(|nth| begun + US(50 * nth)) {
            let (mut world, node) = one(vec![kind("a")]);
            if lost {
                world.run_until(begun);
                world.cut(node, Link::Watch);
            }
            world.run_until(at);
            world.enqueue("a", Priority::Normal, Duration::ZERO);
            // A worker connects again after a while.
            assert!(world.run_while(begun + ms(500), |world| !world.all_finished()), "enqueued at {at:?}");
        }
    }
}

#[test]
fn a_worker_whose_interest_is_refused_listens_all_the_same_and_says_it_again() {
    let mut world = World::new(1);
    world.mishaps.befall(0, Link::Watch, Mishap::Refused);
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(ms(300));
    assert_eq!((introductions(&world, node), world.interests(node)), (vec!["interest", "listen"], 0));
    world.server.enqueue("a", Priority::Normal, Duration::ZERO);
    world.broadcast(&notification::encode(&["a"], Duration::ZERO));
    assert!(world.run_while(ms(320), |world| !world.all_finished()), "it hears what is told for others");
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.run_until(ms(900));
    assert!(!world.all_finished(), "nobody was told");
    assert!(world.run_while(ms(1_200), |world| !world.all_finished()), "it looks when its interest is known");
    assert_eq!((introductions(&world, node), world.interests(node)), (vec!["interest", "listen", "interest"], 1));
}

#[test]
fn an_interest_that_is_always_refused_keeps_the_link_from_nothing() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour { cooperative: true, ..Behaviour::takes(S(100_000)) });
    world.refuses = |it| matches!(it, Statement::Interest(_));
    let node = world.add(config(4), vec![KindRule { lease: S(3), ..kind("a") }]);
    let id = world.server.enqueue("a", Priority::Normal, Duration::ZERO);
    world.run_until(S(60));
    assert_eq!((world.handlers(node), world.entries("stale-recovered")), (1, 0), "its lease is renewed");
    assert!((55..=62).contains(&world.nodes[node].sent("interest")), "once a second");
    world.request_cancel(&[id]);
    assert!(world.run_while(S(66), |world| world.entries("cancelled") == 0));
}

/// A world with one worker of two that has just sent a notification, "v1;a;0", in which nobody else is interested.
fn told_nobody() -> (World, usize) {
    let (mut world, node) = one(vec![kind("a")]);
    world.behave(|_, id| match (id.job, id.run) {
        (1, 1) => {
            Behaviour { verdict: Verdict::Paused { resume_in: Duration::ZERO, note: None }, ..Behaviour::takes(ms(1)) }
        }
        _ => Behaviour::takes(S(1_000)),
    });
    world.run_until(S(1));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    assert!(world.run_while(S(2), |world| world.nodes[node].sent("notify") == 0));
    (world, node)
}

#[test]
fn what_a_worker_told_nobody_is_not_mistaken_for_its_echo_afterwards() {
    let (mut world, node) = told_nobody();
    world.run_until(S(2));
    assert_eq!(world.handlers(node), 1);
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.run_until(S(2) + ms(20));
    assert_eq!(world.handlers(node), 2);
}

#[test]
fn what_others_tell_while_a_worker_tells_nobody_is_heard_in_the_end() {
    let (mut world, node) = told_nobody();
    // Behind the claim that follows the settlement, and before it is answered that nobody was told.
    world.run_until(world.time + US(300));
    world.server.enqueue("a", Priority::Normal, Duration::ZERO);
    world.tell(node, Input::Notified("v1;a;0".into()));
    world.run_until(world.time + ms(20));
    assert_eq!(world.handlers(node), 2);
}

#[test]
fn what_a_worker_puts_back_is_told_if_another_is_interested_and_else_not() {
    for (others, told) in [("b", 0), ("a", 1)] {
        let (mut world, node) = one(vec![kind("a")]);
        let other = world.add(config(1), vec![kind(others)]);
        world.behave(|_, id| {
            let verdict = Verdict::Paused { resume_in: S(100 * u64::from(id.run == 1)), note: None };
            Behaviour { verdict, ..Behaviour::takes(ms(1)) }
        });
        world.run_until(S(1));
        world.freeze(other);
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        let before = world.notified;
        world.run_until(S(2));
        assert_eq!((world.nodes[node].sent("notify"), world.notified - before), (1, told), "others run {others}");
    }
}

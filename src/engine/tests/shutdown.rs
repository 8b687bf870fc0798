use std::time::Duration;

use super::world::{Behaviour, World, config, kind, ms};
use crate::Priority;
use crate::engine::{Input, Link};
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::{LeftReason, ShutdownReport};

const S: fn(u64) -> Duration = Duration::from_secs;

fn blocking(name: &'static str) -> KindRule {
    KindRule { blocking: true, ..kind(name) }
}

fn impatient(concurrency: usize, timeout: Duration) -> crate::config::Config {
    let mut config = config(concurrency);
    config.shutdown_timeout = timeout;
    config
}

fn stopped(world: &World, node: usize) -> Option<(Duration, ShutdownReport)> {
    let (at, result) = world.nodes[node].stopped.as_ref()?;
    Some((*at, result.as_ref().unwrap().clone()))
}

#[test]
fn an_idle_worker_stops_at_once() {
    let mut world = World::new(1);
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(S(1));
    world.tell(node, Input::Shutdown);
    world.run_until(S(1) + ms(1));
    assert!(stopped(&world, node).is_some());
}

#[test]
fn a_run_that_ends_in_time_is_settled_and_nothing_new_is_claimed() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour::takes(ms(500));
    world.enqueue_many("a", 6);
    let node = world.add(impatient(1, S(10)), vec![kind("a")]);
    world.run_until(ms(100));
    world.tell(node, Input::Shutdown);
    world.run_until(S(5));
    let (at, report) = stopped(&world, node).unwrap();
    assert!(at < ms(600), "{at:?}");
    assert_eq!((report.settled, world.server.claims.len(), world.entries("released")), (1, 1, 0));
}

#[test]
fn a_future_that_does_not_end_is_dropped_then_released_without_a_failure() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour::takes(S(60));
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    let mut rules = impatient(1, S(1));
    rules.backstop = Some(1);
    let node = world.add(rules, vec![kind("a")]);
    world.run_until(S(2));
    world.tell(node, Input::Shutdown);
    world.run_until(S(9));
    let (at, report) = stopped(&world, node).unwrap();
    assert!(at >= S(3) && at < S(3) + ms(50), "{at:?}");
    assert_eq!((report.released, world.entries("released"), world.entries("dead")), (1, 1, 0));
    let row = &world.server.live[&job];
    assert_eq!((row.failures, row.run_count, row.visible <= world.server.now), (0, 1, true));
}

#[test]
fn a_cooperative_handler_pauses_at_once() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour { cooperative: true, ..Behaviour::takes(S(60)) };
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(impatient(1, S(10)), vec![kind("a")]);
    world.run_until(S(1));
    world.tell(node, Input::Shutdown);
    world.run_until(S(2));
    assert!(stopped(&world, node).is_some());
    assert_eq!((world.entries("paused"), world.entries("released")), (1, 0));
}

#[test]
fn a_future_that_never_yields_is_left_claimed_and_the_worker_stops_within_its_grace() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour { stuck: true, ..Behaviour::takes(S(60)) };
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(impatient(1, S(1)), vec![kind("a")]);
    world.run_until(S(2));
    world.tell(node, Input::Shutdown);
    world.run_until(S(20));
    let (at, report) = stopped(&world, node).unwrap();
    assert!(at >= S(8) && at < S(8) + ms(50), "{at:?}");
    assert_eq!(report.left_claimed[0].reason, LeftReason::NotStopped);
    assert_eq!((world.entries("released"), world.claimed_by(node)), (0, 1));
}

#[test]
fn a_started_thread_is_never_released_and_is_waited_for_without_bound() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour { stuck: true, ..Behaviour::takes(S(1)) };
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let mut rules = impatient(1, ms(500));
    rules.handler_grace = Some(S(2));
    let node = world.add(rules, vec![KindRule { lease: S(3), ..blocking("a") }]);
    world.run_until(S(1));
    world.tell(node, Input::Shutdown);
    world.add(config(1), vec![KindRule { lease: S(3), ..blocking("a") }]);
    let waiting = |event: &Event| matches!(event, Event::ShutdownState { state: "waiting_for_thread", .. });
    world.run_until(ms(3_400));
    assert_eq!(world.nodes[node].events(waiting), 0, "the grace counts from the force, on top of the drain");
    world.run_until(ms(3_600));
    assert_eq!(world.nodes[node].events(waiting), 1);
    world.run_until(S(600));
    assert_eq!((world.claimed_by(node), world.server.claims.len()), (1, 1), "its lease is renewed all the while");
    world.end_handlers(node);
    world.run_until(S(601));
    let (_, report) = stopped(&world, node).unwrap();
    assert_eq!((report.settled, world.entries("completed"), world.entries("released")), (1, 1, 0));
    assert!(report.left_claimed.is_empty());
}

#[test]
fn a_time_out_during_the_drain_is_a_failure_and_not_a_release() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour::takes(S(60));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(impatient(1, S(30)), vec![KindRule { timeout: Some(S(1)), ..kind("a") }]);
    world.run_until(ms(200));
    world.tell(node, Input::Shutdown);
    world.run_until(S(5));
    let (_, report) = stopped(&world, node).unwrap();
    assert_eq!((report.timed_out, world.entries("retried"), world.entries("released")), (1, 1, 0));
}

#[test]
fn a_thread_times_out_no_more_once_the_shutdown_is_forced() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour::takes(S(8));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(impatient(1, S(1)), vec![KindRule { timeout: Some(S(5)), ..blocking("a") }]);
    world.run_until(S(1));
    world.tell(node, Input::Shutdown);
    world.run_until(S(12));
    let (at, report) = stopped(&world, node).unwrap();
    assert!(at >= S(8));
    assert_eq!((report.settled, world.entries("completed"), world.entries("retried")), (1, 1, 0));
}

#[test]
fn a_worker_whose_server_is_away_stops_within_its_bound_and_says_what_it_left() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour::takes(ms(300));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(impatient(1, S(2)), vec![kind("a")]);
    world.run_until(ms(100));
    world.server_up = false;
    world.cut(node, Link::Work);
    world.cut(node, Link::Watch);
    world.run_until(S(1));
    world.tell(node, Input::Shutdown);
    world.run_until(S(20));
    let (at, report) = stopped(&world, node).unwrap();
    assert!(at <= S(8) + ms(50), "{at:?}");
    assert_eq!(report.left_claimed[0].reason, LeftReason::NotStored);
}

#[test]
fn a_second_request_changes_nothing_and_a_dropped_future_releases_at_once() {
    let mut world = World::new(1);
    world.behaviour = |_, _| Behaviour::takes(S(60));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(impatient(1, S(5)), vec![kind("a")]);
    world.run_until(S(1));
    world.tell(node, Input::Shutdown);
    world.run_until(S(2));
    world.tell(node, Input::Shutdown);
    world.run_until(S(5));
    assert!(stopped(&world, node).is_none());
    world.tell(node, Input::Abandoned);
    world.run_until(S(5) + ms(50));
    assert!(stopped(&world, node).is_some());
    assert_eq!(world.entries("released"), 1);
}

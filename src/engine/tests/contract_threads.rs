use std::time::Duration;

use super::contract::{S, SOON, impatient, released};
use super::server::State;
use super::world::{Behaviour, World, config, kind, ms};
use crate::Priority;
use crate::config::Config;
use crate::engine::{Input, Link};
use crate::job::RunId;
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::{LeftReason, Verdict};

fn threads(name: &'static str) -> KindRule {
    KindRule { blocking: true, lease: S(3), ..kind(name) }
}

/// Winds down for a second, and after that calls two more a grace.
fn windows(concurrency: usize) -> Config {
    let mut config = impatient(concurrency, S(1));
    config.handler_grace = Some(S(2));
    config
}

/// A worker of threads, one second old, with one job of the kind "a" that does this.
fn running(rules: Config, rule: KindRule, behaviour: fn(&str, RunId) -> Behaviour) -> (World, usize, i64) {
    let mut world = World::new(1);
    world.behave(behaviour);
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(rules, vec![rule]);
    world.run_until(S(1));
    (world, node, job)
}

fn late(event: &Event) -> bool {
    matches!(event, Event::LateResult { .. })
}

// C-02
#[test]
fn a_worker_of_threads_stops_with_its_last_run() {
    let (mut world, node, _) = running(windows(1), threads("a"), |_, _| Behaviour::takes(ms(1_400)));
    let (took, report) = world.stop(node, S(5));
    assert!(took <= ms(400) + SOON, "{took:?}");
    assert_eq!((report.settled, world.states(node)), (1, vec!["draining", "stopped"]));
}

// C-08, C-09, C-10
#[test]
fn the_windows_of_a_thread_add_up() {
    let told = S(1);
    let (mut world, node, _) = running(windows(1), threads("a"), |_, _| Behaviour::takes(ms(3_500)));
    let (took, report) = world.stop(node, S(9));
    assert!(took >= ms(2_480) && took <= ms(2_500) + SOON, "in its grace: {took:?}");
    assert_eq!((report.settled, world.states(node)), (1, vec!["draining", "forced", "grace", "stopped"]));

    let (mut world, node, _) = running(windows(1), threads("a"), |_, _| Behaviour::takes(ms(4_500)));
    let (took, report) = world.stop(node, S(9));
    assert!(took >= ms(3_480) && took <= ms(3_500) + SOON, "after its grace: {took:?}");
    assert_eq!((report.settled, world.entries("completed"), world.entries("released")), (1, 1, 0));
    let entries = [
        (told, "draining", 0, 1),
        (told + S(1), "forced", 0, 1),
        (told + S(1), "grace", 0, 1),
        (told + S(3), "waiting_for_thread", 0, 1),
    ];
    assert_eq!(world.nodes[node].states[..4], entries);
    assert_eq!(world.nodes[node].states[4].1, "stopped");
}

// C-11, C-12, C-39, C-40
#[test]
fn a_started_thread_is_waited_for_without_bound_and_keeps_its_claim() {
    let (mut world, node, job) = running(windows(1), threads("a"), |_, _| Behaviour::stuck());
    let peer = world.add(config(1), vec![threads("a")]);
    world.tell(node, Input::Shutdown);
    let mut expiry = Duration::ZERO;
    for minute in 1..=30 {
        world.run_until(S(60 * minute));
        world.tell(node, Input::Shutdown);
        let State::Claimed { by, expires } = &world.server.live[&job].state else { panic!("it is given back") };
        assert!(*by == world.nodes[node].name && *expires > world.time && *expires > expiry);
        expiry = *expires;
    }
    assert_eq!((world.stopped(node), world.server.claims.len()), (None, 1));
    world.end_handlers(node);
    world.run_until(world.time + SOON);
    let (_, report) = world.stopped(node).unwrap();
    assert_eq!((report.settled, report.left_claimed.len(), world.claimed_by(peer)), (1, 0, 0));
    assert_eq!(world.states(node), ["draining", "forced", "grace", "waiting_for_thread", "stopped"]);
    assert_eq!(world.server.journal.iter().map(|entry| entry.what).collect::<Vec<_>>(), ["completed"]);
}

// C-13
#[test]
fn what_a_late_thread_returns_is_settled_as_ever() {
    let verdicts: [(fn() -> Verdict, &str); 4] = [
        (|| Verdict::Failed { message: "no".into(), permanent: false }, "retried"),
        (|| Verdict::Failed { message: "no".into(), permanent: true }, "dead"),
        (|| Verdict::Panicked("panicked: oh".into()), "retried"),
        (|| Verdict::Paused { resume_in: S(1), note: None }, "paused"),
    ];
    for (verdict, entry) in verdicts {
        for returns_at in [ms(2_500), S(7)] {
            let (mut world, node, job) = running(windows(1), threads("a"), |_, _| Behaviour::stuck());
            world.tell(node, Input::Shutdown);
            world.run_until(returns_at);
            world.end_handlers_with(node, verdict);
            world.run_until(returns_at + SOON);
            assert_eq!(world.stopped(node).unwrap().1.settled, 1);
            assert_eq!((world.server.journal.len(), world.entries(entry)), (1, 1));
            let row = world.server.live.get(&job).unwrap_or_else(|| &world.server.finished[&job].0);
            assert_eq!(row.failures, i32::from(entry != "paused"));
        }
    }
}

// C-14
#[test]
fn a_worker_that_is_killed_while_it_waits_for_a_thread_leaves_the_job_to_the_lease() {
    let (mut world, node, job) = running(windows(1), threads("a"), |_, _| Behaviour::stuck());
    world.add(config(1), vec![threads("a")]);
    world.tell(node, Input::Shutdown);
    world.run_until(S(10));
    assert_eq!((world.states(node).last(), world.claimed_by(node)), (Some(&"waiting_for_thread"), 1));
    world.kill(node);
    world.run_until(S(15));
    let row = &world.server.live[&job];
    assert_eq!((row.run_count, row.failures, world.entries("stale-recovered")), (2, 1, 1));
}

// C-21, C-22, C-23
#[test]
fn a_thread_that_times_out_keeps_its_slot_and_delays_the_stop() {
    let mut world = World::new(1);
    world.behave(|kind, _| Behaviour::takes(if kind == "slow" { S(4) } else { ms(1) }));
    let job = world.enqueue("slow", Priority::High, Duration::ZERO);
    let node = world.add(windows(1), vec![KindRule { timeout: Some(S(1)), ..threads("slow") }, threads("b")]);
    world.run_until(ms(500));
    world.enqueue("b", Priority::Normal, Duration::ZERO);
    world.run_until(ms(1_050));
    assert_eq!((world.server.live[&job].failures, world.entries("retried"), world.handlers(node)), (1, 1, 1));
    world.run_until(ms(3_950));
    assert_eq!((world.starts.len(), world.server.claims.len()), (1, 1), "nobody else gets its slot");
    let (took, report) = world.stop(node, S(5));
    assert!(took <= ms(60) + SOON, "{took:?}");
    assert_eq!((report.timed_out, report.late, report.settled), (1, 1, 0));
    assert_eq!((world.nodes[node].events(late), world.server.journal.len()), (1, 1));
    assert_eq!(world.server.live[&job].run_count, 1, "what it returned changed nothing");
}

// C-21: the server is slow to take the time-out, so the thread returns first.
#[test]
fn a_thread_that_returns_while_its_time_out_is_being_stored_is_late_all_the_same() {
    let timed = KindRule { timeout: Some(ms(1_500)), ..threads("a") };
    let (mut world, node, _) =
        running(windows(1), timed, |_, id| Behaviour::takes(if id.run == 1 { S(2) } else { ms(1) }));
    world.locked = true;
    world.at(ms(2_500), |world| world.locked = false);
    world.run_until(S(10));
    let (_, report) = world.stop(node, S(9));
    assert_eq!((report.late, report.timed_out, report.settled), (1, 1, 1));
    assert_eq!((world.nodes[node].events(late), world.entries("retried"), world.entries("completed")), (1, 1, 1));
}

// C-23
#[test]
fn a_timed_out_thread_is_waited_for_when_the_shutdown_is_forced() {
    let timed = KindRule { timeout: Some(ms(1_500)), ..threads("a") };
    let (mut world, node, _) = running(windows(1), timed, |_, _| Behaviour::takes(S(9)));
    let (took, report) = world.stop(node, S(20));
    assert!(took >= ms(7_980) && took <= S(8) + SOON, "{took:?}");
    assert_eq!((report.timed_out, report.late, world.server.journal.len()), (1, 1, 1));
    assert_eq!(world.states(node), ["draining", "forced", "grace", "waiting_for_thread", "stopped"]);
}

/// A thread and its shutdown, with the time-out so long after the drain's end: what the journal says of it, and what
/// the worker counts as timed out and as late.
fn tie(gap_ms: i64) -> (Vec<&'static str>, u64, u64) {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(5)));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let timeout = ms(u64::try_from(1_500 + gap_ms).unwrap());
    let node = world.add(windows(1), vec![KindRule { timeout: Some(timeout), ..threads("a") }]);
    world.run_until(ms(100));
    world.run_until(world.starts[0].0 + ms(500));
    let (_, report) = world.stop(node, S(20));
    (world.server.journal.iter().map(|entry| entry.what).collect(), report.timed_out, report.late)
}

// C-19, C-21
#[test]
fn a_thread_times_out_no_more_once_the_shutdown_is_forced() {
    for gap in [-400, -2, -1] {
        assert_eq!(tie(gap), (vec!["retried"], 1, 1), "{gap}");
    }
    for gap in [1, 2, 400, 3_000] {
        assert_eq!(tie(gap), (vec!["completed"], 0, 0), "{gap}");
    }
    assert_eq!(tie(0).0.len(), 1, "either, but only one");
}

// C-21: its start is heard of after the force.
#[test]
fn a_thread_that_starts_when_the_shutdown_is_forced_times_out_no_more() {
    let timed = KindRule { timeout: Some(S(5)), ..threads("a") };
    let (mut world, node, _) = running(windows(1), timed, |_, _| Behaviour::takes(S(9)));
    let id = world.starts[0].1;
    world.at(S(2) + ms(1), move |world| world.tell(node, Input::Started(id)));
    let (_, report) = world.stop(node, S(20));
    assert_eq!((report.settled, report.timed_out, world.entries("completed")), (1, 0, 1));
}

// C-24
#[test]
fn a_slot_comes_back_however_a_run_ends() {
    let mut world = World::new(1);
    world.behave(|_, id| {
        let verdict = match id.job {
            1 => Verdict::Failed { message: "no".into(), permanent: true },
            2 if id.run == 1 => Verdict::Panicked("panicked: oh".into()),
            _ => Verdict::Completed { note: None },
        };
        Behaviour { verdict, ..Behaviour::takes(ms(10)) }
    });
    world.enqueue_many("a", 4);
    world.add(config(1), vec![threads("a")]);
    world.run_until(S(5));
    assert_eq!((world.entries("dead"), world.entries("retried"), world.entries("completed")), (1, 1, 3));
}

// C-25: that there are never more handlers than slots or caps is asserted by the world at each start.
#[test]
fn no_more_is_claimed_than_there_are_threads_for() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(ms(50)));
    world.enqueue_many("a", 8);
    let node = world.add(config(4), vec![KindRule { cap: Some(2), ..threads("a") }]);
    let mut most = 0;
    while !world.all_finished() {
        world.run_until(world.time + ms(1));
        most = most.max(world.claimed_by(node));
    }
    assert_eq!(most, 2);
}

// C-26
#[test]
fn a_job_without_a_thread_when_the_time_is_over_is_released_and_never_started() {
    let mut world = World::new(1);
    world.behave(|kind, _| Behaviour { waits: if kind == "b" { S(9) } else { S(0) }, ..Behaviour::takes(S(60)) });
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let waiting = world.enqueue("b", Priority::Normal, Duration::ZERO);
    let node = world.add(windows(2), vec![threads("a"), threads("b")]);
    world.run_until(S(1));
    assert_eq!(world.claimed_by(node), 2);
    world.tell(node, Input::Shutdown);
    world.run_until(S(2) + SOON);
    let row = &world.server.live[&waiting];
    assert_eq!((&row.state, row.failures, world.entries("released")), (&State::Ready, 0, 1));
    assert_eq!(world.nodes[node].events(released), 1);
    let why = Event::Released { job: waiting.into(), run: 1, kind: "b", reason: "shutdown_timeout" };
    assert!(world.nodes[node].events.contains(&why));
    world.run_until(S(70));
    let (_, report) = world.stopped(node).unwrap();
    assert_eq!((report.released, report.settled, world.starts.len()), (1, 1, 1));
}

// C-27
#[test]
fn a_job_that_gets_its_thread_during_the_drain_runs_or_is_released() {
    for waits in [500, 1_499, 1_500, 1_501, 3_000] {
        let mut world = World::new(1);
        world.behave(move |_, _| Behaviour { waits: ms(waits), ..Behaviour::takes(ms(700)) });
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        let node = world.add(windows(1), vec![threads("a")]);
        world.run_while(S(1), |world| world.handlers(node) == 0);
        world.run_until(world.time + ms(500));
        let (_, report) = world.stop(node, S(9));
        world.run_until(S(20));
        assert_eq!((report.settled + report.released, world.server.journal.len()), (1, 1), "{waits}");
        assert_eq!(world.starts.len() as u64, report.settled, "{waits}: started or taken back, never both");
        assert_eq!(report.settled, u64::from(waits <= 1_500));
    }
}

// C-34, C-35
#[test]
fn the_grace_is_the_workers_time_out_or_nothing() {
    let states = |timeout, grace| {
        let mut rules = impatient(1, Duration::ZERO);
        (rules.timeout, rules.handler_grace) = (timeout, grace);
        let (mut world, node, _) = running(rules, threads("a"), |_, _| Behaviour::takes(S(9)));
        world.stop(node, S(20));
        world.nodes[node].states.iter().map(|(at, state, ..)| (*state, (*at - S(1)).as_secs())).collect::<Vec<_>>()
    };
    let at_once = [("draining", 0), ("forced", 0), ("waiting_for_thread", 0), ("stopped", 8)];
    assert_eq!(states(None, None), at_once);
    assert_eq!(states(Some(S(3)), Some(S(0))), at_once);
    let with_grace =
        |grace| [("draining", 0), ("forced", 0), ("grace", 0), ("waiting_for_thread", grace), ("stopped", 8)];
    assert_eq!(states(Some(S(3)), None), with_grace(3));
    assert_eq!(states(Some(S(3)), Some(S(5))), with_grace(5));
}

fn mixed() -> Vec<KindRule> {
    vec![KindRule { lease: S(3), ..kind("future") }, threads("thread")]
}

/// A worker with futures and threads, one second old, with two jobs of each.
fn running_mixed(rules: Config, behaviour: fn(&str, RunId) -> Behaviour) -> (World, usize) {
    let mut world = World::new(1);
    world.behave(behaviour);
    for kind in ["future", "thread"] {
        world.enqueue_many(kind, 2);
    }
    let node = world.add(rules, mixed());
    world.run_until(S(1));
    (world, node)
}

// C-36
#[test]
fn futures_are_released_in_their_time_without_waiting_for_threads() {
    let (mut world, node) =
        running_mixed(windows(4), |kind, _| Behaviour::takes(if kind == "thread" { S(30) } else { S(99) }));
    let peer = world.add(config(4), vec![kind("future")]);
    world.tell(node, Input::Shutdown);
    world.run_until(S(2) + SOON);
    assert_eq!((world.entries("released"), world.claimed_by(node), world.claimed_by(peer)), (2, 2, 2));
    world.run_until(S(31));
    let (at, report) = world.stopped(node).unwrap();
    assert!(at >= S(29), "{at:?}");
    assert_eq!((report.released, report.settled, report.left_claimed.len()), (2, 2, 0));
    let entries =
        [(S(1), "draining", 2, 2), (S(2), "forced", 2, 2), (S(2), "grace", 2, 2), (S(4), "waiting_for_thread", 0, 2)];
    assert_eq!(world.nodes[node].states[..4], entries);
}

// C-28, C-36
#[test]
fn while_a_thread_is_waited_for_a_future_that_does_not_stop_is_not_given_up() {
    let deaf =
        |kind: &str, _| Behaviour { stops_in: None, ..Behaviour::takes(if kind == "thread" { S(30) } else { S(20) }) };
    let (mut world, node) = running_mixed(windows(4), deaf);
    let (took, report) = world.stop(node, S(60));
    assert!(took <= S(29) + SOON, "{took:?}");
    assert_eq!((report.settled, report.left_claimed.len(), world.entries("completed")), (4, 0, 4));

    let (mut world, node) = running_mixed(windows(4), |kind, _| match kind {
        "thread" => Behaviour::takes(S(30)),
        _ => Behaviour::stuck(),
    });
    let (took, report) = world.stop(node, S(60));
    assert!(took >= S(33) && took <= S(34) + SOON, "after the last thread the usual grace: {took:?}");
    assert_eq!((report.settled, world.claimed_by(node)), (2, 2));
    assert!(report.left_claimed.iter().all(|left| left.reason == LeftReason::NotStopped));
}

// C-12, C-36
#[test]
fn a_dropped_run_future_still_waits_for_threads() {
    let (mut world, node) = running_mixed(windows(4), |_, _| Behaviour::takes(S(30)));
    world.tell(node, Input::Abandoned);
    world.run_until(S(1) + SOON);
    assert_eq!((world.entries("released"), world.claimed_by(node)), (2, 2));
    world.run_until(S(29));
    assert_eq!((world.claimed_by(node), world.stopped(node)), (2, None), "their claims are renewed");
    world.run_until(S(31));
    assert_eq!((world.claimed_by(node), world.stopped(node).unwrap().1.settled), (0, 2));
}

// C-37
#[test]
fn a_worker_without_a_server_waits_for_its_threads_and_then_no_longer_than_its_bound() {
    let troubles: [fn(&mut World, usize); 3] = [
        |world, node| {
            world.server_up = false;
            world.cut(node, Link::Work);
            world.cut(node, Link::Watch);
        },
        |world, _| world.hung = true,
        |world, _| world.locked = true,
    ];
    for trouble in troubles {
        let (mut world, node, _) = running(windows(1), threads("a"), |_, _| Behaviour::takes(S(11)));
        world.run_until(S(2));
        trouble(&mut world, node);
        let (took, report) = world.stop(node, S(60));
        assert!(took >= ms(13_980) && took <= S(14) + SOON, "{took:?}");
        let left: Vec<_> = report.left_claimed.iter().map(|left| (left.kind, left.reason)).collect();
        assert_eq!((left, world.claimed_by(node)), (vec![("a", LeftReason::NotStored)], 1));
    }
}

// C-10, C-37
#[test]
fn a_thread_that_has_returned_is_waited_for_no_more_although_its_result_is() {
    let (mut world, node, _) = running(windows(1), threads("a"), |_, _| Behaviour::takes(S(3)));
    world.hung = true;
    world.stop(node, S(60));
    assert_eq!(world.states(node), ["draining", "forced", "grace", "stopped"]);
}

// C-37
#[test]
fn a_server_that_comes_back_within_the_bound_takes_a_late_threads_result() {
    let mut rules = windows(1);
    rules.abort_grace = S(10);
    let (mut world, node, _) = running(rules, threads("a"), |_, _| Behaviour::takes(S(11)));
    world.server_up = false;
    world.cut(node, Link::Work);
    world.cut(node, Link::Watch);
    world.at(S(13), |world| world.server_up = true);
    let (_, report) = world.stop(node, S(60));
    assert_eq!((report.settled, report.left_claimed.len(), world.entries("completed")), (1, 0, 1));
}

// C-37: the handler waits for an answer, and the worker for the handler.
#[test]
fn a_handlers_request_is_answered_when_the_shutdown_is_forced_and_the_server_hangs() {
    let (mut world, node, _) = running(windows(1), threads("a"), |_, _| Behaviour::stuck());
    world.locked = true;
    let (answerer, answer) = crate::answer::question();
    let carry = super::server::json("1");
    let id = world.starts[0].1;
    world.tell(node, Input::Asked(id, crate::ask::Ask::Checkpoint { carry, answerer }));
    world.tell(node, Input::Shutdown);
    world.run_until(S(9));
    let mut answer = std::pin::pin!(answer);
    let answered = answer.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(matches!(answered, std::task::Poll::Ready(Err(error)) if error.kind() == crate::ErrorKind::Unavailable));
}

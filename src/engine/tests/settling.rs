use std::time::Duration;

use super::world::{Behaviour, World, config, kind, ms};
use crate::config::{DecodePolicy, PanicPolicy};
use crate::job::RunId;
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::Verdict;
use crate::{Backoff, Priority};

const S: fn(u64) -> Duration = Duration::from_secs;

fn failing() -> Behaviour {
    let verdict = Verdict::Failed { message: "no".to_owned(), permanent: false };
    Behaviour { verdict, ..Behaviour::takes(ms(1)) }
}

#[test]
fn a_failing_job_waits_longer_each_time_and_dies_at_the_backstop() {
    let mut world = World::new(1);
    world.behave(|_, _| failing());
    let mut short = config(1);
    short.backstop = Some(5);
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.add(short, vec![kind("a")]);
    world.run_until(S(60));
    let times: Vec<Duration> = world.server.claims.iter().map(|(at, ..)| *at).collect();
    let waits: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis() as u64 / 100 * 100).collect();
    assert_eq!(waits, [0, 0, 500, 1_000]);
    assert_eq!((world.entries("retried"), world.entries("dead")), (4, 1));
    assert_eq!(world.server.finished.values().next().unwrap().0.failures, 5);
}

#[test]
fn a_permanent_failure_is_dead_at_once() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour { verdict: Verdict::Failed { message: "no".into(), permanent: true }, ..failing() });
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.add(config(1), vec![kind("a")]);
    world.run_until(S(5));
    assert_eq!((world.entries("dead"), world.server.claims.len()), (1, 1));
}

#[test]
fn a_paused_job_runs_again_when_its_time_has_come_and_is_no_failure() {
    let mut world = World::new(1);
    world.behave(|_, id| {
        let verdict = match id.run {
            1 => Verdict::Paused { resume_in: S(3), note: None },
            _ => Verdict::Completed { note: None },
        };
        Behaviour { verdict, ..Behaviour::takes(ms(1)) }
    });
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.add(config(1), vec![kind("a")]);
    world.run_until(S(5));
    let (row, how) = world.server.finished.values().next().unwrap();
    assert_eq!((row.failures, *how, row.run_count), (0, "completed", 2));
    let times: Vec<Duration> = world.server.claims.iter().map(|(at, ..)| *at).collect();
    assert!(times[1] - times[0] >= S(3) && times[1] - times[0] < S(3) + ms(30));
}

#[test]
fn a_panic_is_retried_or_dead_as_the_policy_says() {
    for (policy, entries) in [(PanicPolicy::Retry, (1, 0)), (PanicPolicy::Dead, (0, 1))] {
        let mut world = World::new(1);
        world.behave(|_, id| {
            let verdict = match id.run {
                1 => Verdict::Panicked("panicked: oh".into()),
                _ => Verdict::Completed { note: None },
            };
            Behaviour { verdict, ..Behaviour::takes(ms(1)) }
        });
        let mut rules = config(1);
        rules.panic_policy = policy;
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        world.add(rules, vec![kind("a")]);
        world.run_until(S(5));
        assert_eq!((world.entries("retried"), world.entries("dead")), entries);
    }
}

#[test]
fn an_undecodable_job_waits_for_the_longest_backoff_or_is_dead_as_the_policy_says() {
    for (policy, claims) in [(DecodePolicy::Retry, 3), (DecodePolicy::Dead, 1)] {
        let mut world = World::new(1);
        world.behave(|_, _| Behaviour { verdict: Verdict::Undecodable("cannot".into()), ..Behaviour::takes(ms(1)) });
        let mut rules = config(1);
        rules.decode_policy = policy;
        let rule = KindRule { backoff: Backoff::new(ms(500), S(10)), ..kind("a") };
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        world.add(rules, vec![rule]);
        world.run_until(S(25));
        assert_eq!(world.server.claims.len(), claims);
    }
}

#[test]
fn a_future_that_times_out_is_dropped_and_counted_as_a_failure() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(60)));
    let rule = KindRule { timeout: Some(S(1)), ..kind("a") };
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(config(1), vec![rule]);
    world.run_until(ms(1_200));
    assert_eq!((world.entries("retried"), world.handlers(node)), (1, 0));
    world.run_until(ms(1_400));
    assert_eq!(world.server.claims.len(), 1, "a timed-out job waits at least the base");
}

#[test]
fn a_future_that_ignores_its_time_out_is_not_put_back_while_it_runs() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::stuck());
    let rule = KindRule { timeout: Some(S(1)), lease: S(3), ..kind("a") };
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(config(1), vec![rule]);
    world.run_until(ms(5_500));
    assert_eq!((world.entries("retried"), world.claimed_by(node)), (0, 1));
    world.run_until(S(12));
    let lease = world.server.live.values().next().unwrap();
    let super::server::State::Claimed { expires, .. } = &lease.state else { panic!("still claimed") };
    assert!(*expires < S(10), "a run that will not stop is renewed no more once the grace is over");
}

#[test]
fn a_thread_that_times_out_keeps_its_slot_and_its_late_result_is_discarded() {
    let mut world = World::new(1);
    world.behave(|kind, _| Behaviour::takes(if kind == "slow" { S(4) } else { ms(1) }));
    let slow = KindRule { timeout: Some(S(1)), blocking: true, ..kind("slow") };
    let fast = KindRule { blocking: true, ..kind("fast") };
    world.enqueue("slow", Priority::High, Duration::ZERO);
    let node = world.add(config(1), vec![slow, fast]);
    world.run_until(ms(500));
    world.enqueue("fast", Priority::Normal, Duration::ZERO);
    world.run_until(S(2));
    assert_eq!(world.entries("retried"), 1, "the failure is stored at the deadline");
    assert_eq!((world.handlers(node), world.entries("completed")), (1, 0), "its thread still holds the slot");
    world.run_until(ms(4_100));
    assert_eq!(world.nodes[node].events(|event| matches!(event, Event::LateResult { .. })), 1);
    assert!(world.server.claims.len() >= 2);
    world.assert_sound();
}

#[test]
fn a_job_is_not_claimed_again_while_its_timed_out_thread_is_still_at_work_here() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(8)));
    let slow = KindRule { timeout: Some(S(1)), blocking: true, ..kind("slow") };
    world.enqueue("slow", Priority::Normal, Duration::ZERO);
    world.add(config(4), vec![slow]);
    world.run_until(S(7));
    assert_eq!((world.server.claims.len(), world.overlaps), (1, 0));
    world.run_until(S(12));
    assert_eq!((world.server.claims.len(), world.overlaps), (2, 0));
}

/// A job whose handler completes it after a second in a transaction of its own, and goes on for three more.
fn completing(rule: KindRule, ends: impl Fn() -> Verdict + 'static) -> (World, usize) {
    let mut world = World::new(1);
    world.behave(move |_, _| Behaviour { verdict: ends(), ..Behaviour::takes(S(4)) });
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(config(1), vec![KindRule { lease: S(3), ..rule }]);
    let name = world.nodes[node].name.clone();
    world.at(ms(900), move |world| world.hold_row(job));
    world.at(ms(1_400), move |world| assert!(world.server.complete(RunId { job, run: 1 }, &name)));
    (world, node)
}

fn lost_or_late(world: &World, node: usize) -> usize {
    world.nodes[node].events(|event| matches!(event, Event::ClaimLost { .. } | Event::LateResult { .. }))
}

#[test]
fn a_job_that_its_handler_has_completed_is_not_a_lost_claim() {
    let (mut world, node) = completing(kind("a"), || Verdict::CompletedItself);
    world.run_until(S(3));
    assert_eq!((world.handlers(node), lost_or_late(&world, node)), (1, 0), "it goes on undisturbed");
    world.run_until(S(5));
    let (_, report) = world.stop(node, S(5));
    assert_eq!((report.settled, report.overruled, report.late), (1, 0, 0));
    assert_eq!((world.entries("completed"), lost_or_late(&world, node)), (1, 0));
    world.assert_sound();
}

#[test]
fn what_a_handler_says_after_it_has_completed_its_job_is_overruled() {
    let ends: [fn() -> Verdict; 4] = [
        || Verdict::Failed { message: "no".into(), permanent: false },
        || Verdict::Failed { message: "no".into(), permanent: true },
        || Verdict::Panicked("panicked: oh".into()),
        || Verdict::Paused { resume_in: S(1), note: None },
    ];
    for end in ends {
        let (mut world, node) = completing(kind("a"), end);
        world.run_until(S(6));
        let (_, report) = world.stop(node, S(5));
        assert_eq!((report.settled, report.overruled, report.late), (1, 1, 0), "{:?}", end());
        assert_eq!((world.server.journal.len(), world.server.claims.len()), (1, 1));
        assert_eq!(lost_or_late(&world, node), 0);
        world.assert_sound();
    }
}

#[test]
fn a_handler_that_hangs_after_it_has_completed_its_job_is_still_stopped_by_its_time_out() {
    let rule = KindRule { timeout: Some(ms(2_500)), ..kind("a") };
    let (mut world, node) = completing(rule, || Verdict::CompletedItself);
    world.run_until(S(3));
    assert_eq!(world.handlers(node), 0, "its slot is free again");
    let (_, report) = world.stop(node, S(5));
    assert_eq!((report.settled, report.overruled, report.timed_out, report.late), (1, 1, 0, 0));
    world.assert_sound();
}

#[test]
fn a_thread_that_times_out_with_an_open_completion_is_settled_when_that_has_ended() {
    let rule = KindRule { timeout: Some(S(1)), blocking: true, ..kind("a") };
    let (mut world, node) = completing(rule, || Verdict::CompletedItself);
    world.run_until(S(3));
    let asked = world.nodes[node].statements.len();
    assert!(asked < 40, "a row that stays locked is not asked for all the time: {asked}");
    world.run_until(S(5));
    let (_, report) = world.stop(node, S(5));
    // The time-out was decided before the completion, which won; what the thread returned then changes nothing.
    assert_eq!((report.settled, report.overruled, report.timed_out, report.late), (1, 1, 0, 0));
    assert_eq!((world.entries("completed"), world.entries("retried")), (1, 0));
    world.assert_sound();
}

#[test]
fn a_worker_that_stops_does_not_give_back_what_its_handlers_have_completed() {
    let mut rules = config(1);
    (rules.shutdown_timeout, rules.abort_grace) = (S(1), S(1));
    for stops_in in [Some(ms(1)), None] {
        let mut world = World::new(1);
        world.behave(move |_, _| Behaviour { stops_in, ..Behaviour::takes(S(90)) });
        let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
        let node = world.add(rules.clone(), vec![KindRule { lease: S(3), ..kind("a") }]);
        world.run_until(S(1));
        let name = world.nodes[node].name.clone();
        assert!(world.server.complete(RunId { job, run: 1 }, &name));
        world.run_until(S(4));
        let (_, report) = world.stop(node, S(5));
        assert_eq!((report.settled, report.released, report.left_claimed.len()), (1, 0, 0), "{report:?}");
        world.assert_stopped_soundly(node, &report, S(1));
    }
}

#[test]
fn a_transaction_that_was_not_committed_makes_the_run_a_failure() {
    let mut world = World::new(1);
    world.behave(|_, id| {
        let verdict = if id.run == 1 { Verdict::CompletedItself } else { Verdict::Completed { note: None } };
        Behaviour { verdict, ..Behaviour::takes(ms(1)) }
    });
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(config(1), vec![kind("a")]);
    world.run_until(S(5));
    assert_eq!((world.entries("retried"), world.entries("completed"), world.server.claims.len()), (1, 1, 2));
    assert_eq!(world.nodes[node].events(|event| matches!(event, Event::Degraded { .. })), 1);
    let (_, report) = world.stop(node, S(5));
    assert_eq!((report.settled, report.overruled), (2, 0));
}

use std::time::Duration;

use super::server::State;
use super::world::{Behaviour, Faults, World, config, kind, ms};
use crate::Priority;
use crate::backoff::mix;
use crate::config::Config;
use crate::engine::Link;
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::Verdict;

const S: fn(u64) -> Duration = Duration::from_secs;

fn leased(name: &'static str, lease: u64) -> KindRule {
    KindRule { lease: S(lease), ..kind(name) }
}

#[test]
fn a_job_whose_worker_died_is_run_again_within_its_lease_and_two_seconds() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(100)));
    let mut patient = config(1);
    patient.poll_max = S(60);
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let first = world.add(patient.clone(), vec![leased("a", 5)]);
    world.run_until(S(1));
    world.add(patient, vec![leased("a", 5)]);
    world.run_until(S(30));
    world.kill(first);
    let died = world.time;
    assert!(world.run_while(S(60), |world| world.entries("stale-recovered") == 0));
    assert!(world.time - died <= S(7), "recovered after {:?}", world.time - died);
    assert!(world.run_while(world.time + S(2), |world| world.server.claims.len() < 2));
    world.assert_sound();
}

#[test]
fn a_job_that_runs_longer_than_its_lease_is_renewed_and_runs_once() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(30)));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.add(config(1), vec![leased("a", 3)]);
    world.add(config(1), vec![leased("a", 3)]);
    world.run_until(S(40));
    assert_eq!((world.entries("completed"), world.server.claims.len()), (1, 1));
}

#[test]
fn a_worker_that_slept_past_its_lease_is_told_so_and_its_result_is_refused() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(12)));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let sleeper = world.add(config(1), vec![leased("a", 3)]);
    world.run_until(S(1));
    world.freeze(sleeper);
    world.add(config(1), vec![leased("a", 3)]);
    world.run_until(S(10));
    assert_eq!(world.entries("stale-recovered"), 1);
    world.thaw(sleeper);
    world.run_until(S(40));
    let told = world.nodes[sleeper].events(|event| matches!(event, Event::ClaimLost { .. } | Event::LateResult { .. }));
    assert!(told >= 1, "{:?}", world.nodes[sleeper].events);
    assert_eq!(world.entries("completed"), 1);
    world.assert_sound();
}

#[test]
fn a_claim_whose_reply_was_lost_is_released_within_seconds_and_counts_no_failure() {
    let mut world = World::new(1);
    world.enqueue_many("a", 5);
    world.faults.lost_after = 1_000;
    world.add(config(4), vec![kind("a")]);
    world.run_until(ms(500));
    world.faults.lost_after = 0;
    assert!(world.run_while(S(15), |world| !world.all_finished()));
    assert_eq!(world.entries("stale-recovered"), 0);
    assert!(world.server.finished.values().all(|(row, _)| row.failures == 0));
    world.assert_sound();
}

#[test]
fn a_settlement_whose_reply_was_lost_is_stored_once() {
    for at in 0..40 {
        let mut world = World::new(at);
        world.behave(|_, _| Behaviour::takes(ms(3)));
        world.enqueue_many("a", 20);
        let node = world.add(config(4), vec![kind("a")]);
        world.at(ms(10 + at / 4), move |world| world.cut(node, Link::Work));
        assert!(world.run_while(S(30), |world| !world.all_finished()), "seed {at}");
        assert_eq!((world.entries("completed"), world.entries("stale-recovered")), (20, 0));
        let late = world.nodes[node].events(|event| matches!(event, Event::LateResult { .. }));
        assert_eq!(late, 0, "a result that had landed is not late");
        world.assert_sound();
    }
}

#[test]
fn an_outage_longer_than_a_lease_makes_no_run_of_a_live_worker_a_failure() {
    let mut world = World::new(3);
    world.behave(|_, _| Behaviour::takes(S(60)));
    world.enqueue_many("a", 8);
    let nodes = [world.add(config(4), vec![leased("a", 3)]), world.add(config(4), vec![leased("a", 3)])];
    world.run_until(S(2));
    world.server_up = false;
    for node in nodes {
        world.cut(node, Link::Work);
        world.cut(node, Link::Watch);
    }
    world.run_until(S(22));
    world.server_up = true;
    world.run_until(S(80));
    assert_eq!((world.entries("stale-recovered"), world.entries("completed")), (0, 8));
    world.assert_sound();
}

#[test]
fn a_worker_that_comes_back_first_leaves_the_others_time_to_come_back() {
    let mut world = World::new(3);
    world.behave(|_, _| Behaviour::takes(S(60)));
    world.enqueue_many("a", 4);
    world.enqueue_many("b", 4);
    let nodes = [world.add(config(8), vec![leased("a", 3)]), world.add(config(8), vec![leased("b", 3)])];
    world.run_until(S(2));
    world.server_up = false;
    for node in nodes {
        world.cut(node, Link::Work);
        world.cut(node, Link::Watch);
    }
    world.unreachable.insert(nodes[1]);
    world.run_until(S(12));
    world.server_up = true;
    world.run_until(S(18));
    world.unreachable.clear();
    world.run_until(S(80));
    assert_eq!((world.entries("stale-recovered"), world.entries("completed")), (0, 8));
}

#[test]
fn a_claim_that_was_refused_is_asked_again_without_a_poll() {
    let mut world = World::new(5);
    let node = world.add(config(2), vec![kind("a")]);
    world.run_until(S(10));
    world.faults.refused = 1_000;
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.run_until(S(10) + ms(30));
    world.faults.refused = 0;
    assert!(world.nodes[node].events(|event| matches!(event, Event::StatementFailed { .. })) > 0);
    assert!(world.run_while(S(11), |world| !world.all_finished()));
}

#[test]
fn a_job_enqueued_while_nobody_listened_is_found_when_listening_begins() {
    let mut world = World::new(5);
    let node = world.add(config(2), vec![kind("a")]);
    world.run_until(S(10));
    world.cut(node, Link::Watch);
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    assert!(world.run_while(S(11), |world| !world.all_finished()));
}

#[test]
fn everything_completes_within_seconds_after_the_server_came_back() {
    let mut world = World::new(3);
    world.behave(|_, _| Behaviour::takes(ms(50)));
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(S(1));
    world.enqueue_many("a", 100);
    world.run_until(S(1) + ms(100));
    world.server_up = false;
    world.cut(node, Link::Work);
    world.cut(node, Link::Watch);
    world.run_until(S(21));
    world.server_up = true;
    assert!(world.run_while(S(28), |world| !world.all_finished()));
    assert_eq!(world.entries("stale-recovered"), 0);
}

#[test]
fn a_watch_link_that_hangs_silently_is_replaced_within_a_minute() {
    let mut world = World::new(5);
    let node = world.add(config(2), vec![kind("a")]);
    world.run_until(S(10));
    world.mute(node, Link::Watch);
    world.run_until(S(60));
    let lost = |event: &Event| matches!(event, Event::LinkLost { link: "watch", .. });
    assert_eq!(world.nodes[node].events(lost), 1);
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    assert!(world.run_while(S(61), |world| !world.all_finished()), "notifications arrive again");
}

#[test]
fn failed_statements_are_retried_with_growing_waits_and_nothing_is_lost() {
    let mut world = World::new(5);
    world.faults.refused = 1_000;
    world.enqueue_many("a", 3);
    let node = world.add(config(2), vec![kind("a")]);
    world.run_until(S(60));
    let asked = world.nodes[node].statements.len();
    assert!((10..60).contains(&asked), "{asked} statements in a minute of refusals");
    world.faults.refused = 0;
    assert!(world.run_while(S(67), |world| !world.all_finished()));
}

#[test]
fn a_claim_that_a_crash_of_the_server_undid_is_called_lost_when_the_link_is_back() {
    let mut world = World::new(1);
    world.behave(|_, id| Behaviour::takes(if id.job == 1 { S(20) } else { ms(1) }));
    let node = world.add(Config { durable_claims: false, ..config(4) }, vec![kind("a")]);
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.run_until(S(2));
    let row = world.server.live.get_mut(&job).unwrap();
    (row.state, row.run_count) = (State::Ready, 0);
    world.cut(node, Link::Work);
    world.cut(node, Link::Watch);
    let lost = |event: &Event| matches!(event, Event::ClaimLost { .. });
    assert!(world.run_while(S(5), |world| world.nodes[node].events(lost) == 0), "within the time to reconnect");
    assert!(world.nodes[node].cancels.iter().any(|(_, id, _)| id.job == job));
    world.run_while(S(100), |world| !world.all_finished());
    assert_eq!(world.entries("completed"), 1);
}

/// One seeded story: three workers, every fault, a crash, a freeze and a shutdown; then calm, and everything settles.
fn story(seed: u64) {
    let mut world = World::new(seed);
    world.behave(|kind, id| {
        let luck = mix(id.job.unsigned_abs() ^ u64::from(id.run.unsigned_abs()) << 32);
        let verdict = match luck % 8 {
            0 => Verdict::Failed { message: "no".into(), permanent: false },
            1 => Verdict::Panicked("panicked: oh".into()),
            2 => Verdict::Paused { resume_in: ms(200), note: None },
            3 => Verdict::CompletedItself,
            _ => Verdict::Completed { note: None },
        };
        let takes = if kind == "slow" { ms(luck / 8 % 5_000) } else { ms(20) };
        let completes_at = (luck / 64 % 4 == 0).then_some(takes / 2);
        Behaviour { verdict, completes_at, ..Behaviour::takes(takes) }
    });
    world.faults = Faults { lost_before: 20, lost_after: 20, refused: 20, notification_lost: 100, slow: 20 };
    let backoff = crate::Backoff::new(ms(100), S(2));
    let kinds = || {
        let slow = KindRule {
            blocking: seed % 2 == 0,
            cap: Some(2),
            timeout: (seed % 3 == 0).then_some(S(3)),
            ..leased("slow", 3)
        };
        [leased("fast", 4), slow].map(|rule| KindRule { backoff, ..rule }).to_vec()
    };
    let mut rules = config(4);
    rules.backstop = None;
    rules.connections = if seed / 2 % 2 == 0 { 1 } else { 2 };
    rules.backoff = backoff;
    for _ in 0..3 {
        world.add(rules.clone(), kinds());
    }
    for _ in 0..60 {
        let at = ms(world.random(15_000));
        let delay = ms(world.random(3_000).saturating_sub(1_500));
        let kind = if world.random(4) == 0 { "slow" } else { "fast" };
        world.at(at, move |world| {
            world.enqueue(kind, Priority::Normal, delay);
        });
    }
    let crash = ms(world.random(20_000));
    let freeze = ms(world.random(20_000));
    let stop = ms(world.random(20_000));
    world.at(crash, |world| world.kill(0));
    world.at(freeze, |world| world.freeze(1));
    world.at(freeze + S(7), |world| world.thaw(1));
    world.at(stop, |world| world.tell(2, crate::engine::Input::Shutdown));
    world.run_until(S(30));
    world.faults = Faults::default();
    world.add(rules, kinds());
    let settled = world.run_while(S(180), |world| !world.all_finished());
    world.assert_sound();
    assert!(settled, "left: {:?}", world.server.live);
    let most = world.nodes.iter().map(|node| node.statements.len()).max().unwrap();
    assert!(most < 10_000, "{most} statements: a busy loop");
}

#[test]
fn whatever_goes_wrong_every_job_is_settled_exactly_once() {
    for_seeds(story);
}

/// One seeded story of a worker that is told to stop in the midst of everything, with a peer that goes on.
fn stopping_story(seed: u64) {
    let mut world = World::new(seed);
    world.behave(move |kind, id| {
        let luck = mix(seed ^ id.job.unsigned_abs() << 8 ^ u64::from(id.run.unsigned_abs()));
        let verdict = match luck % 6 {
            0 => Verdict::Failed { message: "no".into(), permanent: false },
            1 => Verdict::Paused { resume_in: ms(200), note: None },
            _ => Verdict::Completed { note: None },
        };
        Behaviour {
            verdict,
            waits: if luck / 8 % 5 == 0 { ms(luck / 64 % 4_000) } else { Duration::ZERO },
            cooperative: luck / 16 % 3 == 0,
            stops_in: (kind == "slow" || luck / 32 % 7 > 0).then(|| ms(luck / 128 % 1_500)),
            ..Behaviour::takes(ms(luck / 256 % 5_000))
        }
    });
    let mut rules = config(6);
    rules.shutdown_timeout = ms(world.random(3_000));
    rules.handler_grace = Some(ms(world.random(3_000)));
    rules.abort_grace = S(1);
    rules.connections = if seed / 2 % 2 == 0 { 1 } else { 2 };
    let threads = seed % 2 == 0;
    let timeout = (seed % 3 == 0).then_some(S(2));
    let kinds = || vec![KindRule { timeout, ..leased("fast", 3) }, KindRule { blocking: threads, ..leased("slow", 3) }];
    let node = world.add(rules.clone(), kinds());
    world.add(rules.clone(), kinds());
    world.enqueue_many("fast", 20);
    world.enqueue_many("slow", 20);
    world.faults = Faults { lost_before: 20, lost_after: 20, refused: 20, notification_lost: 100, slow: 20 };
    let trouble = world.random(5);
    let at = ms(world.random(6_000));
    world.at(at, move |world| match trouble {
        0 => world.hung = true,
        1 => world.locked = true,
        2 => world.server_up = false,
        3 => world.tell(node, crate::engine::Input::Abandoned),
        _ => {}
    });
    let told = ms(world.random(4_000));
    world.run_until(told);
    let (took, report) = world.stop(node, S(30));
    // A thread takes at most five seconds, and what started just before the force as long.
    let threads = if threads { S(5) } else { Duration::ZERO };
    assert!(took <= rules.shutdown_timeout + threads + rules.abort_grace + ms(50), "{took:?}: {report:?}");
    world.assert_stopped_soundly(node, &report, rules.abort_grace);
    world.assert_sound();
}

#[test]
fn whatever_goes_wrong_while_a_worker_stops_it_stops_in_its_time_and_tells_what_it_left() {
    for_seeds(stopping_story);
}

/// Runs the story for as many seeds as wanted, and names the one that fails.
fn for_seeds(story: fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (first, seeds) = (number("VENTURI_FIRST_SEED").unwrap_or(0), number("VENTURI_SEEDS").unwrap_or(200));
    for seed in first..first + seeds {
        if std::panic::catch_unwind(|| story(seed)).is_err() {
            panic!("seed {seed} fails; run it alone with VENTURI_FIRST_SEED={seed} VENTURI_SEEDS=1");
        }
    }
}

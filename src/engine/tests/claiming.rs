use std::time::Duration;

use super::world::{Behaviour, World, config, kind, ms};
use crate::Priority;
use crate::config::Config;
use crate::engine::Input;
use crate::registry::KindRule;

const S: fn(u64) -> Duration = Duration::from_secs;

fn capped(name: &'static str, cap: usize) -> KindRule {
    KindRule { cap: Some(cap), ..kind(name) }
}

#[test]
fn every_job_runs_once_and_completes() {
    let mut world = World::new(1);
    world.server.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(config(4), vec![kind("a")]);
    world.at(ms(50), |world| world.enqueue_many("a", 500));
    world.run_until(S(5));
    assert!(world.all_finished());
    assert_eq!(world.entries("completed"), 501);
    assert!(world.nodes[node].events.len() > 501);
    world.assert_sound();
}

#[test]
fn results_and_claims_share_their_exchanges() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(Duration::ZERO));
    world.enqueue_many("a", 1_600);
    let node = world.add(config(16), vec![kind("a")]);
    world.run_until(S(5));
    assert!(world.all_finished());
    let exchanges = world.nodes[node]
        .statements
        .iter()
        .filter(|(_, name)| matches!(*name, "exchange" | "claim" | "settle"))
        .count();
    // The first backlog takes two more, and a floor that finds nothing one.
    assert!(exchanges <= 115, "{exchanges} exchanges for 100 batches");
}

#[test]
fn an_idle_worker_asks_at_most_three_times_in_poll_max() {
    let mut world = World::new(1);
    let node = world.add(config(4), vec![kind("a"), kind("b")]);
    world.run_until(S(5));
    let before = world.nodes[node].statements.len();
    world.run_until(S(305));
    let asked = world.nodes[node].statements.len() - before;
    assert!((10..=30).contains(&asked), "{asked} statements in ten times poll_max");
}

#[test]
fn a_notification_starts_a_job_at_once_and_a_foreign_one_costs_nothing() {
    let mut world = World::new(1);
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(S(1));
    let before = world.nodes[node].statements.len();
    world.enqueue("foreign", Priority::Normal, Duration::ZERO);
    world.run_until(S(2));
    assert_eq!(world.nodes[node].statements.len(), before);
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    assert!(world.run_while(S(2) + ms(20), |world| world.entries("completed") == 0));
    world.assert_sound();
}

#[test]
fn a_lost_notification_delays_a_job_by_at_most_poll_max() {
    let mut world = World::new(1);
    world.add(config(4), vec![kind("a")]);
    world.run_until(S(40));
    world.server.enqueue("a", Priority::Normal, Duration::ZERO);
    assert!(world.run_while(S(71), |world| world.entries("completed") == 0));
}

#[test]
fn a_delayed_job_starts_when_it_is_due_without_a_poll() {
    let mut world = World::new(1);
    let mut patient = config(4);
    patient.poll_max = S(60);
    world.add(patient, vec![kind("a")]);
    world.run_until(S(5));
    world.enqueue("a", Priority::Normal, S(1));
    world.run_until(S(6) - ms(1));
    assert!(world.server.claims.is_empty());
    world.run_until(S(6) + ms(20));
    assert_eq!(world.server.claims.len(), 1);
}

#[test]
fn a_worker_with_one_slot_runs_one_job_at_a_time_in_order() {
    let mut world = World::new(1);
    let low = world.server.enqueue("a", Priority::Low, Duration::ZERO);
    let first = world.server.enqueue("a", Priority::High, Duration::ZERO);
    let second = world.server.enqueue("a", Priority::High, Duration::ZERO);
    let mut strict = config(1);
    strict.priority_ratio = None;
    world.add(strict, vec![kind("a")]);
    world.run_until(S(1));
    let order: Vec<i64> = world.server.claims.iter().map(|(_, id, ..)| id.job).collect();
    assert_eq!(order, [first, second, low]);
}

#[test]
fn a_kind_at_its_cap_stays_pending_and_delays_no_other() {
    let mut world = World::new(1);
    world.behave(|kind, _| Behaviour::takes(if kind == "tight" { ms(400) } else { ms(5) }));
    world.enqueue_many("tight", 20);
    world.enqueue_many("free", 100);
    world.add(config(8), vec![capped("tight", 2), kind("free")]);
    world.run_until(ms(350));
    let free = world.server.finished.values().filter(|(row, _)| row.kind == "free").count();
    assert_eq!(free, 100);
    world.run_until(S(10));
    assert!(world.all_finished());
    world.assert_sound();
}

#[test]
fn shares_follow_the_ratio_under_saturation() {
    for concurrency in [1, 16] {
        let mut world = World::new(7);
        world.behave(|_, _| Behaviour::takes(Duration::ZERO));
        for priority in [Priority::High, Priority::Normal, Priority::Low] {
            for _ in 0..2_000 {
                world.server.enqueue("a", priority, Duration::ZERO);
            }
        }
        world.add(config(concurrency), vec![kind("a")]);
        world.run_while(S(60), |world| world.server.claims.len() < 1_600);
        let first: Vec<Priority> = world.server.claims.iter().take(16).map(|(.., priority)| *priority).collect();
        for tier in [Priority::High, Priority::Normal, Priority::Low] {
            assert!(first.contains(&tier), "each tier starts within the square of the ratio: {first:?}");
        }
        let share = |wanted: Priority| {
            let of_it =
                world.server.claims.iter().take(1_600).filter(|(_, _, _, priority)| *priority == wanted).count();
            of_it as f64 / 16.0
        };
        assert!((share(Priority::High) - 75.0).abs() <= 2.0, "{concurrency}: {}", share(Priority::High));
        assert!((share(Priority::Normal) - 18.75).abs() <= 2.0, "{concurrency}: {}", share(Priority::Normal));
        assert!((share(Priority::Low) - 6.25).abs() <= 2.0, "{concurrency}: {}", share(Priority::Low));
    }
}

#[test]
fn a_saturated_worker_with_jobs_falling_due_does_little_housekeeping() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(ms(300)));
    world.enqueue_many("a", 400);
    for n in 0..500 {
        world.server.enqueue("a", Priority::Low, ms(1_000 + n * 9));
    }
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(S(1));
    let housekeeping = |world: &World| {
        let names = world.nodes[node].statements.iter().map(|(_, name)| *name);
        names.filter(|name| !matches!(*name, "exchange" | "claim" | "settle")).count()
    };
    let before = housekeeping(&world);
    world.run_until(S(6));
    let asked = housekeeping(&world) - before;
    assert!(asked <= 25, "{asked} housekeeping statements in five seconds");
}

/// A worker with a backlog while each look from the beginning takes so many seconds.
fn beside_an_old_snapshot(full_look: f64) -> (World, usize) {
    beside_an_old_snapshot_with(full_look, config(4))
}

fn beside_an_old_snapshot_with(full_look: f64, config: Config) -> (World, usize) {
    let mut world = World::new(1);
    (world.server.full_look, world.server.bounded_look) = (full_look, 0.0001);
    world.behave(|_, _| Behaviour::takes(ms(1)));
    world.enqueue_many("a", 4_000);
    let node = world.add(config, vec![kind("a"), kind("b")]);
    (world, node)
}

#[test]
fn a_quick_look_is_never_bounded() {
    let (mut world, node) = beside_an_old_snapshot(0.0002);
    world.run_until(S(10));
    assert!(world.all_finished());
    assert_eq!(world.nodes[node].sent("claim_from") + world.nodes[node].sent("exchange_from"), 0);
}

#[test]
fn where_a_bounded_look_costs_more_than_a_full_one_it_is_hardly_tried() {
    let (mut world, node) = beside_an_old_snapshot(0.001);
    world.server.bounded_look = 0.003;
    world.run_until(S(60));
    assert!(world.all_finished());
    let sent = |name| world.nodes[node].sent(name);
    let (full, bounded) = (sent("claim") + sent("exchange"), sent("claim_from") + sent("exchange_from"));
    assert!(bounded > 0 && bounded * 3 < full, "{bounded} bounded beside {full} full looks");
}

#[test]
fn slow_full_looks_take_a_tenth_of_the_time_and_one_comes_before_the_worker_sleeps() {
    let (mut world, node) = beside_an_old_snapshot(0.03);
    let looks = |world: &World| world.nodes[node].sent("claim") + world.nodes[node].sent("exchange");
    // One more is due when it begins to listen.
    world.run_until(ms(100));
    let before = looks(&world);
    world.run_until(S(1));
    let full = looks(&world) - before;
    assert!(world.nodes[node].sent("exchange_from") > 100, "{:?}", world.nodes[node].statements);
    assert!((2..=5).contains(&full), "{full} full looks in 0.9 s, with 0.3 s of rest between two");
    world.run_until(S(60));
    assert!(world.all_finished());
    let mut names = world.nodes[node].statements.iter().map(|(_, name)| *name);
    let last = names.rfind(|name| name.starts_with("claim") || name.starts_with("exchange"));
    assert!(matches!(last, Some("claim" | "exchange")), "{last:?} decided that there is no more");
    world.assert_sound();
}

#[test]
fn a_job_that_comes_back_behind_the_marks_waits_ten_full_looks_at_most() {
    for connections in [1, 2] {
        let (mut world, _) = beside_an_old_snapshot_with(0.03, Config { connections, ..config(4) });
        let late = world.server.enqueue("a", Priority::Normal, ms(600));
        // Older than all others, and due when the marks are far beyond it.
        for (id, row) in &mut world.server.live {
            row.created = if *id == late { Duration::ZERO } else { ms(1) };
        }
        world.run_while(S(60), |world| !world.server.claims.iter().any(|(_, id, ..)| id.job == late));
        let at = world.server.claims.iter().find(|(_, id, ..)| id.job == late).unwrap().0;
        assert!(at < ms(600) + ms(500) + ms(300) + ms(50), "{at:?}: due, promoted within 500 ms, seen within 300 ms");
    }
}

#[test]
fn workers_share_a_queue_without_running_a_job_twice() {
    let mut world = World::new(1);
    for _ in 0..4 {
        world.add(config(8), vec![kind("a")]);
    }
    world.run_until(ms(100));
    world.enqueue_many("a", 2_000);
    world.run_until(S(20));
    assert!(world.all_finished());
    assert_eq!((world.entries("completed"), world.overlaps), (2_000, 0));
    world.assert_sound();
}

#[test]
fn by_default_a_worker_waits_half_a_minute_for_a_poll_and_for_its_handlers() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(1_000)));
    let node = world.add(config(2), vec![kind("a")]);
    world.run_until(S(10));
    // Nobody is told of it.
    world.server.enqueue("a", Priority::Normal, Duration::ZERO);
    let polls = |world: &World| {
        world.nodes[node].statements.iter().filter(|(_, name)| *name == "survey").map(|(at, _)| *at).collect::<Vec<_>>()
    };
    world.run_until(S(50));
    let found = polls(&world);
    assert!(found.windows(2).any(|pair| pair[1] - pair[0] >= S(29) && pair[1] - pair[0] <= S(31)), "{found:?}");
    assert_eq!(world.claimed_by(node), 1);
    let (took, report) = world.stop(node, S(60));
    assert!(took >= S(30) && took <= S(31), "{took:?}");
    assert_eq!(report.released, 1);
}

#[test]
fn a_job_for_later_is_not_forgotten_for_an_answer_that_is_older_than_its_notification() {
    for question in ["survey", "promote"] {
        let mut world = World::new(1);
        let mut patient = config(4);
        patient.poll_max = S(60);
        let node = world.add(patient, vec![kind("a")]);
        world.run_until(S(5));
        // Due in time to be asked about before the poll, which asks by a survey.
        let early = if question == "promote" { S(2) } else { S(600) };
        world.enqueue("a", Priority::Normal, early);
        let asked = |world: &World| world.nodes[node].sent(question);
        let before = asked(&world);
        assert!(world.run_while(S(70), |world| asked(world) == before), "{question}");
        // The server has answered, and the answer is on its way.
        let sent = world.time;
        world.run_until(sent + Duration::from_micros(300));
        let job = world.server.enqueue("a", Priority::Normal, S(1));
        world.tell(node, Input::Notified(crate::notification::encode(&["a"], S(1))));
        world.run_until(sent + S(2));
        assert!(world.server.finished.contains_key(&job), "{question}");
    }
}

#[test]
fn a_job_that_somebody_holds_for_minutes_costs_few_statements_and_hides_no_other() {
    let mut world = World::new(1);
    let held = world.server.enqueue("a", Priority::High, Duration::ZERO);
    world.hold_row(held);
    let node = world.add(config(1), vec![kind("a"), capped("b", 1)]);
    world.run_until(S(10));
    let before = world.nodes[node].statements.len();
    world.run_until(S(70));
    let sent = world.nodes[node].statements.len() - before;
    assert!((60..=60 * 9).contains(&sent), "it looks again once a second: {sent} statements in a minute");
    for (nth, name) in ["a", "b"].into_iter().cycle().take(20).enumerate() {
        let now = world.time;
        let id = world.enqueue(name, Priority::Low, Duration::ZERO);
        world.run_until(now + ms(300));
        let started = world.starts.iter().find(|(_, run)| run.job == id).map(|(at, _)| *at - now);
        assert!(started.is_some_and(|took| took < ms(10)), "job {nth}: {started:?}");
    }
    world.server.locked.clear();
    let free = world.time;
    world.run_until(free + ms(1_100));
    assert!(world.all_finished(), "it runs within a second once it is free");
}

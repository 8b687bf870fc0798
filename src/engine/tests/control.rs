//! Cancelled jobs and swept ones, in simulated time.

use std::time::Duration;

use super::world::{Behaviour, Mishap, World, config, kind, ms};
use crate::cancellation::CancelReason;
use crate::engine::Link;
use crate::filter::Cleanup;
use crate::job_info::JobStatus;
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::Verdict;
use crate::{JournalEvent, Priority, notification};

const S: fn(u64) -> Duration = Duration::from_secs;

/// A world with one worker that runs so many jobs until they are told to end.
fn busy(jobs: usize) -> (World, usize, Vec<i64>) {
    busy_in(World::new(1), config(8), jobs, S(2))
}

fn busy_in(mut world: World, config: crate::config::Config, jobs: usize, begun: Duration) -> (World, usize, Vec<i64>) {
    world.behave(|_, _| Behaviour { cooperative: true, ..Behaviour::takes(S(100_000)) });
    let node = world.add(config, vec![kind("a")]);
    world.run_until(S(1));
    let ids = (0..jobs).map(|_| world.enqueue("a", Priority::Normal, Duration::ZERO)).collect();
    world.run_until(begun);
    assert_eq!(world.handlers(node), jobs);
    (world, node, ids)
}

#[test]
fn a_running_job_that_is_cancelled_hears_of_it_at_once() {
    let (mut world, node, ids) = busy(3);
    world.request_cancel(&ids[..1]);
    world.run_until(S(2) + ms(20));
    let told: Vec<_> = world.nodes[node].cancels.iter().map(|(_, id, reason)| (id.job, *reason)).collect();
    assert_eq!(told, [(ids[0], CancelReason::Requested)]);
    assert_eq!((world.entries("cancelled"), world.handlers(node)), (1, 2), "it paused, and so ends as cancelled");
    assert_eq!((world.nodes[node].sent("cancellations"), world.nodes[node].sent("renew")), (1, 0));
    world.assert_sound();
}

#[test]
fn a_job_that_completes_all_the_same_is_completed() {
    let (mut world, node, ids) = busy(1);
    world.behave(|_, _| Behaviour::takes(S(100_000)));
    world.request_cancel(&ids);
    world.run_until(S(3));
    assert_eq!(world.nodes[node].cancels.len(), 1);
    world.end_handlers(node);
    world.run_until(S(4));
    assert_eq!((world.entries("completed"), world.entries("cancelled")), (1, 0));
}

/// Retried, dead, paused or given back: it is told of as its row says, also when that is heard by a second asking only.
#[test]
fn a_run_whose_job_was_cancelled_is_told_of_as_cancelled_whatever_it_has_left() {
    let failed = |permanent| Verdict::Failed { message: "no".into(), permanent };
    let ends: [&dyn Fn() -> Verdict; 7] = [
        &|| failed(false),
        &|| failed(true),
        &|| Verdict::Panicked("panicked: oh".into()),
        &|| Verdict::Undecodable("cannot".into()),
        &|| Verdict::Paused { resume_in: S(3), note: None },
        &|| Verdict::CompletedItself,
        &|| Verdict::Discarded,
    ];
    for (end, lost) in ends.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let (mut world, node, ids) = stubborn(kind("a"));
        world.request_cancel(&ids);
        world.run_until(S(3));
        if lost {
            world.mishaps.befall(node, Link::Work, Mishap::LostAfter);
        }
        world.end_handlers_with(node, end);
        world.run_until(S(60));
        assert_eq!(told_of(&world, node), [JournalEvent::Cancelled], "{:?}, lost: {lost}", end());
        assert_eq!(world.server.finished[&ids[0]].1, "cancelled");
        assert_eq!((world.nodes[node].sent("notify"), world.server.claims.len()), (0, 1), "there is nothing to claim");
        let (_, report) = world.stop(node, S(5));
        assert_eq!((report.settled, report.released, report.late), (1, 0, 0), "{:?}", end());
    }
}

#[test]
fn a_run_that_times_out_or_is_given_back_by_a_stopping_worker_is_told_of_as_cancelled_too() {
    let (mut world, node, ids) = stubborn(KindRule { timeout: Some(S(5)), ..kind("a") });
    world.request_cancel(&ids);
    world.run_until(S(10));
    let (_, report) = world.stop(node, S(5));
    assert_eq!((told_of(&world, node), report.timed_out), (vec![JournalEvent::Cancelled], 1));
    let (mut world, node, ids) = stubborn(kind("a"));
    world.request_cancel(&ids);
    let (_, report) = world.stop(node, S(60));
    assert_eq!(told_of(&world, node), [JournalEvent::Cancelled]);
    assert_eq!((report.settled, report.released), (1, 0), "nobody has it back");
}

#[test]
fn a_cancelled_job_whose_worker_died_is_told_of_as_cancelled_by_whoever_recovers_it() {
    let (mut world, node, ids) = stubborn(KindRule { lease: S(3), ..kind("a") });
    world.request_cancel(&ids);
    world.kill(node);
    let heir = world.add(config(1), vec![kind("a")]);
    world.run_until(S(30));
    let told = |event: &Event| matches!(event, Event::Recovered { status: JobStatus::Cancelled, .. });
    assert_eq!((world.nodes[heir].events(told), world.nodes[heir].sent("notify")), (1, 0));
    assert_eq!(world.server.finished[&ids[0]].1, "cancelled");
}

/// A world with one worker, whose only job goes on until it is ended or aborted.
fn stubborn(rule: KindRule) -> (World, usize, Vec<i64>) {
    let mut world = World::new(1);
    world.watch_closely();
    world.behave(|_, _| Behaviour::takes(S(100_000)));
    let node = world.add(config(1), vec![rule]);
    world.run_until(S(1));
    let id = world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.run_until(S(2));
    assert_eq!(world.handlers(node), 1);
    (world, node, vec![id])
}

/// What the worker has told of how runs ended.
fn told_of(world: &World, node: usize) -> Vec<JournalEvent> {
    let told = |event: &Event| match event {
        Event::Settled { outcome, .. } => Some(*outcome),
        Event::Released { .. } => Some(JournalEvent::Released),
        _ => None,
    };
    world.nodes[node].events.iter().filter_map(told).collect()
}

#[test]
fn cancellations_that_come_together_are_looked_at_together() {
    let (mut world, node, ids) = busy(8);
    for id in &ids {
        world.request_cancel(&[*id]);
    }
    world.run_until(S(3));
    assert_eq!(world.entries("cancelled"), 8);
    assert!(world.nodes[node].sent("cancellations") <= 2, "{}", world.nodes[node].sent("cancellations"));
}

#[test]
fn cancellations_too_many_to_name_are_looked_for_among_all_that_runs() {
    let (mut world, node, ids) = busy(4);
    assert!(world.server.request_cancel(ids[2]));
    world.broadcast("v1;*;3153600000000;cancel=*");
    world.run_until(S(3));
    assert_eq!((world.entries("cancelled"), world.nodes[node].sent("cancellations")), (1, 1));
}

#[test]
fn cancellations_of_other_workers_cost_a_worker_nothing() {
    let (mut world, node, _) = busy(1);
    let idle = world.add(config(8), vec![kind("a")]);
    world.run_until(S(10));
    let before = [world.nodes[node].statements.len(), world.nodes[idle].statements.len()];
    for job in 1_000..1_050 {
        world.broadcast(&notification::encode_cancelled(&[job]));
    }
    world.run_until(S(12));
    assert_eq!([world.nodes[node].statements.len(), world.nodes[idle].statements.len()], before);
}

#[test]
fn a_cancellation_whose_notification_was_lost_is_found_by_the_next_renewal() {
    let (mut world, node, ids) = busy(1);
    world.faults.notification_lost = 1_000;
    world.request_cancel(&ids);
    world.run_until(S(299));
    assert!(world.nodes[node].cancels.is_empty());
    world.run_until(S(302));
    assert_eq!(world.entries("cancelled"), 1, "a third of the lease has passed");
}

/// As over a pooler. The lease is of no use where it is not renewed.
#[test]
fn a_worker_that_hears_nothing_looks_for_cancellations_as_often_as_it_polls() {
    for (poll_max, renew_leases) in [(S(2), true), (S(2), false), (ms(50), true)] {
        let (mut deaf, mut config) = (World::new(1), config(2));
        deaf.deaf = true;
        (config.poll_max, config.renew_leases) = (poll_max, renew_leases);
        // All slots are taken, so it has no other reason to poll.
        let (mut world, node, ids) = busy_in(deaf, config, 2, S(4));
        world.run_until(S(8));
        world.request_cancel(&ids[..1]);
        world.run_until(S(8) + poll_max.max(S(1)) + ms(50));
        assert_eq!((world.entries("cancelled"), world.handlers(node)), (1, 1), "{poll_max:?}");
        world.request_cancel(&ids[1..]);
        world.run_until(S(13));
        assert_eq!(world.entries("cancelled"), 2, "{poll_max:?}");
        let looks = world.nodes[node].sent("cancellations");
        assert!((3..=13).contains(&looks), "{poll_max:?}: {looks}");
        world.run_until(S(60));
        assert_eq!(world.nodes[node].sent("cancellations"), looks, "nothing runs, and nobody looks");
    }
}

#[test]
fn a_listener_that_comes_back_looks_for_what_it_has_missed() {
    let (mut world, node, ids) = busy(2);
    world.unreachable.insert(node);
    world.cut(node, Link::Watch);
    world.run_until(S(3));
    world.request_cancel(&ids[..1]);
    world.run_until(S(4));
    assert!(world.nodes[node].cancels.is_empty());
    world.unreachable.clear();
    world.run_until(S(12));
    assert_eq!(world.entries("cancelled"), 1);
}

#[test]
fn a_job_that_is_cancelled_while_the_reply_to_its_claim_is_on_its_way_hears_of_it() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour { cooperative: true, ..Behaviour::takes(S(100_000)) });
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(S(1));
    let id = world.enqueue("a", Priority::Normal, Duration::ZERO);
    // Hears of it after 0.4 ms; its claim takes effect 0.2 ms later, and the reply has come after another 0.2 ms.
    world.run_while(S(2), |world| world.server.claims.is_empty());
    assert!(world.server.request_cancel(id));
    world.tell(node, crate::engine::Input::Notified(notification::encode_cancelled(&[id])));
    assert_eq!(world.handlers(node), 0, "the reply is still on its way");
    world.run_until(S(2));
    assert_eq!(world.entries("cancelled"), 1);
}

#[test]
fn a_failed_look_for_cancellations_is_repeated() {
    let (mut world, _, ids) = busy(1);
    world.faults.refused = 1_000;
    world.request_cancel(&ids);
    world.run_until(S(2) + ms(300));
    world.faults.refused = 0;
    world.run_until(S(4));
    assert_eq!(world.entries("cancelled"), 1);
}

fn sweeper(retention: Cleanup) -> crate::config::Config {
    let mut config = config(2);
    config.retention = retention;
    config
}

#[test]
fn a_worker_deletes_nothing_unless_it_is_told_to() {
    let mut world = World::new(1);
    let node = world.add(config(2), vec![kind("a")]);
    world.run_until(S(600));
    assert_eq!(world.nodes[node].sent("cleanup"), 0);
}

#[test]
fn a_sweep_goes_batch_by_batch_through_each_status_and_then_rests() {
    let mut world = World::new(1);
    world.server.to_delete = 1_200;
    let node = world.add(sweeper(Cleanup::new().completed(S(60)).dead(S(3_600))), vec![kind("a")]);
    world.run_until(S(3));
    assert_eq!(world.nodes[node].sent("cleanup"), 0, "not while it starts");
    world.run_until(S(15));
    let sweeps = &world.server.sweeps;
    let wanted = [JobStatus::Completed, JobStatus::Completed, JobStatus::Completed, JobStatus::Dead];
    let statuses: Vec<_> = sweeps.iter().take(4).map(|(_, batch)| batch.status).collect();
    assert_eq!(statuses, wanted);
    assert!(sweeps[1].1.from > sweeps[0].1.from, "each batch goes on where the one before ended");
    assert_eq!(sweeps[3].1.age, 3_600.0);
    for pair in sweeps[..4].windows(2) {
        assert!(pair[1].0 - pair[0].0 >= ms(50), "one at a time, with room for others between");
    }
    world.run_until(S(3_600));
    let rounds = world.server.sweeps.iter().filter(|(_, batch)| batch.status == JobStatus::Dead).count();
    assert!((40..=120).contains(&rounds), "about one a minute: {rounds}");
}

#[test]
fn sweeping_delays_no_claim() {
    let mut world = World::new(1);
    world.server.to_delete = 1_000_000;
    let node = world.add(sweeper(Cleanup::new().completed(S(60))), vec![kind("a")]);
    world.run_until(S(15));
    let before = world.nodes[node].sent("cleanup");
    assert!(before > 0);
    for _ in 0..50 {
        let now = world.time;
        let id = world.enqueue("a", Priority::Normal, Duration::ZERO);
        world.run_until(now + ms(30));
        let started = world.starts.iter().find(|(_, run)| run.job == id).map(|(at, _)| *at - now);
        assert!(started.is_some_and(|took| took < ms(2)), "{started:?}");
    }
    assert!(world.nodes[node].sent("cleanup") > before, "it goes on meanwhile");
}

#[test]
fn workers_do_not_sweep_in_step() {
    let mut world = World::new(1);
    for _ in 0..3 {
        world.add(sweeper(Cleanup::new().completed(S(60))), vec![kind("a")]);
    }
    world.run_until(S(15));
    let times: std::collections::BTreeSet<_> = world.server.sweeps.iter().map(|(at, _)| at.as_millis() / 100).collect();
    assert!(times.len() >= 3, "{times:?}");
}

#[test]
fn a_sweep_that_fails_comes_back_smaller_and_later() {
    let mut world = World::new(1);
    world.server.to_delete = 10_000;
    let node = world.add(sweeper(Cleanup::new().cancelled(S(60))), vec![kind("a")]);
    world.run_until(S(3));
    world.faults.refused = 1_000;
    world.run_until(S(300));
    let failed = world.nodes[node].sent("cleanup");
    assert!((2..=12).contains(&failed), "{failed} in five minutes");
    world.faults.refused = 0;
    world.run_until(S(600));
    let first = &world.server.sweeps[0].1;
    assert!(first.most < 500, "{first:?}");
    assert_eq!(world.server.to_delete, 0, "and grows again");
}

#[test]
fn a_stopping_worker_sweeps_no_more() {
    let (mut world, _, _) = busy(0);
    world.server.to_delete = 1_000_000;
    let node = world.add(sweeper(Cleanup::new().completed(S(60))), vec![kind("a")]);
    world.run_while(S(200), |world| world.server.sweeps.is_empty());
    let (took, _) = world.stop(node, S(5));
    assert!(took < ms(20), "{took:?}");
}

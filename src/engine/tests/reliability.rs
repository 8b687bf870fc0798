use std::time::Duration;

use super::server::{Entry, State};
use super::world::{Behaviour, Mishap, World, config, kind, ms};
use crate::Priority;
use crate::config::Config;
use crate::engine::Link;
use crate::job::RunId;
use crate::observer::Event;
use crate::registry::KindRule;
use crate::statement::Statement;

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
fn a_link_that_is_lost_again_and_again_does_not_keep_a_worker_from_recovering() {
    for (lease, every) in [(3, 4), (900, 60)] {
        let mut world = World::new(1);
        world.behave(|_, _| Behaviour::takes(S(100_000)));
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        let first = world.add(config(1), vec![leased("a", lease)]);
        world.run_until(S(1));
        let second = world.add(config(1), vec![leased("a", lease)]);
        world.kill(first);
        let expired = world.time + S(lease);
        for nth in 1..100 {
            world.at(S(1 + nth * every), move |world| world.cut(second, Link::Work));
        }
        let hold = S(10.max(lease / 3));
        assert!(
            world.run_while(expired + 2 * hold, |world| world.entries("stale-recovered") == 0),
            "lease of {lease} s"
        );
    }
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

#[test]
fn a_worker_whose_last_renewal_failed_still_recovers_what_others_left() {
    let mut world = World::new(1);
    world.behave(|_, id| Behaviour::takes(if id.job == 1 { S(4) } else { S(1_000) }));
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let worker = world.add(config(2), vec![leased("a", 6)]);
    let other = world.add(config(2), vec![leased("b", 6)]);
    world.enqueue("b", Priority::Normal, Duration::ZERO);
    world.run_until(S(1));
    world.kill(other);
    // Its one renewal finds nobody, and when the link is up again its run has ended.
    world.mute(worker, Link::Watch);
    assert!(world.run_while(S(60), |world| world.entries("stale-recovered") == 0), "it goes on recovering");
}

#[cfg(feature = "testing")]
#[test]
fn a_worker_that_goes_on_keeps_no_list_of_what_it_ran() {
    let mut world = World::new(1);
    world.enqueue_many("a", 20);
    let node = world.add(config(2), vec![kind("a")]);
    world.run_while(S(60), |world| !world.all_finished());
    let (_, report) = world.stop(node, S(10));
    assert_eq!((report.settled, report.ran.len()), (20, 0));
}

#[test]
fn a_busy_worker_looks_once_a_second_for_claims_that_ran_out_and_not_far_back() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(ms(100)));
    world.enqueue_many("a", 2_100);
    world.add(config(2), vec![kind("a")]);
    world.run_until(S(100));
    let glances = &world.server.glances;
    assert!((90..=101).contains(&glances.len()), "{} in 100 s", glances.len());
    let far = glances.iter().filter(|(_, look_back)| *look_back > 12.0).count();
    assert!((3..=4).contains(&far), "{far} without bound in 100 s: at first, and every 30 s");
}

#[test]
fn a_busy_worker_recovers_soon_what_a_dead_one_left() {
    for seed in 0..5 {
        let mut world = World::new(seed);
        world.behave(|_, id| Behaviour::takes(if id.job == 1 && id.run == 1 { S(1_000) } else { ms(100) }));
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        let dead = world.add(config(1), vec![leased("a", 6)]);
        world.run_until(S(1));
        world.enqueue_many("b", 1_400);
        world.add(config(2), vec![kind("b")]);
        world.run_until(S(40) + ms(230 * seed));
        world.kill(dead);
        let died = world.time;
        assert!(world.run_while(S(60), |world| world.entries("stale-recovered") == 0));
        assert!(world.time - died <= S(8), "recovered after {:?}", world.time - died);
    }
}

#[test]
fn a_kind_at_its_cap_costs_no_statements_however_much_of_it_waits() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(1_000)));
    world.enqueue_many("a", 10);
    let node = world.add(config(4), vec![KindRule { cap: Some(1), ..kind("a") }, kind("b")]);
    world.run_until(S(2));
    let before = world.nodes[node].statements.len();
    world.run_until(S(12));
    assert_eq!(world.nodes[node].statements.len(), before);
}

#[test]
fn a_job_that_comes_back_before_its_earlier_run_has_heard_is_not_claimed_over_and_over() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(S(1_000)));
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(config(4), vec![kind("a")]);
    world.run_until(S(1));
    // As another worker does it whose recovery this one has not heard of.
    world.server.live.get_mut(&job).unwrap().state = State::Ready;
    let worker = world.nodes[node].name.clone();
    world.server.journal.push(Entry { id: RunId { job, run: 1 }, by: worker, what: "stale-recovered" });
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    world.run_until(S(2));
    assert!(world.server.live[&job].run_count <= 3, "{} runs", world.server.live[&job].run_count);
    assert_eq!(world.nodes[node].events(|event| matches!(event, Event::ClaimLost { .. })), 1);
}

#[test]
fn a_claim_that_takes_effect_long_after_its_link_was_lost_is_given_back() {
    for after in [1, 4, 9] {
        let mut world = World::new(1);
        let node = world.add(config(4), vec![leased("a", 3)]);
        world.run_until(S(1));
        world.mishaps.befall(node, Link::Work, Mishap::LostMeanwhile(S(after)));
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        // That job is claimed again before the lost claim takes effect; this one is there just in time for it.
        world.run_until(S(1 + after) + Duration::from_micros(300));
        assert!(world.all_finished());
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        assert!(world.run_while(S(20), |world| !world.all_finished()), "after {after} s");
        assert_eq!(world.entries("stale-recovered"), 0);
    }
}

#[test]
fn what_the_server_has_refused_for_long_holds_no_renewal_up() {
    let refused: [fn(&Statement) -> bool; 3] = [
        |it| matches!(it, Statement::Interest(_)),
        |it| matches!(it, Statement::Listen),
        |it| matches!(it, Statement::Interest(_) | Statement::Listen | Statement::Inquiry(_) | Statement::Notify(_)),
    ];
    for refuses in refused {
        let mut world = World::new(1);
        world.behave(|_, _| Behaviour::takes(S(7)));
        world.refuses = refuses;
        let node = world.add(config(1), vec![leased("a", 3)]);
        // An idle worker, none of whose statements over that link has succeeded.
        world.run_until(S(60));
        world.server.enqueue("a", Priority::Normal, Duration::ZERO);
        assert!(world.run_while(S(100), |world| world.starts.is_empty()));
        let (started, _) = world.starts[0];
        world.run_until(started + S(6));
        let renewed = world.nodes[node].statements.iter().filter(|(_, name)| *name == "renew").map(|(at, _)| *at);
        let times: Vec<Duration> = [started].into_iter().chain(renewed.filter(|at| *at > started)).collect();
        assert!(times.len() >= 6, "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] < ms(1_100)), "{times:?}");
    }
}

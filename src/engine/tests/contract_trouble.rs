use std::time::Duration;

use super::contract::{S, SOON, endless, impatient, left, running};
use super::server::State;
use super::world::{Behaviour, World, config, kind, ms};
use crate::config::Config;
use crate::engine::{Input, Link};
use crate::registry::KindRule;
use crate::report::LeftReason::NotStored;
use crate::report::Verdict;

/// Futures that end, are released, retried and paused, and a server that goes wrong at this moment of the drain: the
/// worker stops in its time, and every claimed row that it leaves is in its report.
fn trouble(at: Duration, wrong: fn(&mut World, usize)) {
    let mut world = World::new(at.as_millis() as u64);
    world.behave(|_, id| match id.job {
        1 => Behaviour::takes(ms(1_200)),
        2 => Behaviour {
            verdict: Verdict::Failed { message: "no".into(), permanent: false },
            ..Behaviour::takes(ms(1_210))
        },
        3 => Behaviour { cooperative: true, ..endless() },
        _ => endless(),
    });
    world.enqueue_many("a", 5);
    let node = world.add(impatient(4, S(2)), vec![KindRule { lease: S(3), ..kind("a") }]);
    world.at(at, move |world| wrong(world, node));
    world.run_until(ms(1_100));
    let (took, report) = world.stop(node, S(60));
    assert!(took <= S(2) + S(5) + SOON, "{took:?} with the server away at {at:?}");
    world.assert_stopped_soundly(node, &report, S(5));
}

/// Each moment of a drain that counts: before it, at its begin, when runs end, when it is forced, and right after.
fn moments() -> impl Iterator<Item = Duration> {
    let around = |ms: u64| (0..12).map(move |step| Duration::from_micros(ms * 1_000 + step * 250 - 1_000));
    [1_050, 1_101, 1_200, 1_210, 1_500, 3_101].into_iter().flat_map(around)
}

// C-37
#[test]
fn a_worker_whose_server_goes_away_stops_within_its_bound_and_says_what_it_left() {
    for at in moments() {
        trouble(at, |world, node| {
            world.server_up = false;
            world.cut(node, Link::Work);
            world.cut(node, Link::Watch);
        });
    }
}

// C-37
#[test]
fn a_worker_whose_server_hangs_stops_within_its_bound_and_says_what_it_left() {
    for at in moments() {
        trouble(at, |world, _| world.hung = true);
    }
}

// C-37
#[test]
fn a_worker_whose_table_is_locked_stops_within_its_bound_and_says_what_it_left() {
    for at in moments() {
        trouble(at, |world, _| world.locked = true);
    }
}

// C-37, C-39
#[test]
fn a_worker_that_is_cut_off_for_a_moment_while_it_stops_leaves_nothing_claimed() {
    for at in moments() {
        let mut world = World::new(1);
        world.behave(|_, id| Behaviour::takes(ms(400 + 400 * id.job.unsigned_abs())));
        world.enqueue_many("a", 30);
        let node = world.add(impatient(4, S(2)), vec![kind("a")]);
        world.at(at, move |world| world.cut(node, Link::Work));
        world.run_until(ms(1_100));
        let (_, report) = world.stop(node, S(60));
        assert_eq!((world.claimed_by(node), report.left_claimed.len()), (0, 0), "cut at {at:?}");
        let ended = |what| world.server.journal.iter().filter(|entry| entry.what == what).count() as u64;
        assert_eq!((report.settled, report.released), (ended("completed"), ended("released")), "cut at {at:?}");
    }
}

// C-37: what the server did not confirm is named as that.
#[test]
fn a_result_that_the_server_did_not_take_is_left_as_not_stored() {
    let (mut world, node, _) = running(impatient(1, S(2)), kind("a"), |_, _| Behaviour::takes(ms(1_300)));
    world.hung = true;
    let (took, report) = world.stop(node, S(60));
    assert!(took >= S(7) && took <= S(7) + SOON, "{took:?}");
    assert_eq!((left(&report), report.settled), (vec![NotStored], 0));
}

// C-31
#[test]
fn a_release_whose_reply_is_lost_is_sent_again_and_counts_once() {
    let (mut world, node, job) = running(impatient(1, S(1)), kind("a"), |_, _| endless());
    world.tell(node, Input::Shutdown);
    world.run_while(S(3), |world| world.entries("released") == 0);
    world.cut(node, Link::Work);
    world.run_until(S(5));
    let (_, report) = world.stopped(node).unwrap();
    assert_eq!((report.released, report.left_claimed.len(), world.entries("released")), (1, 0, 1));
    assert_eq!(world.server.live[&job].state, State::Ready);
}

// C-39: the claim's reply is lost, and the worker told to stop before it can ask what it holds.
#[test]
fn a_job_whose_claim_is_never_heard_of_during_the_drain_is_found_and_released() {
    let mut world = World::new(1);
    // Without turns one claim takes both.
    let strict = Config { priority_ratio: None, ..config(2) };
    let node = world.add(strict, vec![kind("a")]);
    world.run_until(S(1));
    world.enqueue_many("a", 2);
    world.run_while(S(2), |world| world.server.claims.is_empty());
    world.tell(node, Input::Shutdown);
    world.cut(node, Link::Work);
    world.run_until(S(3));
    let (_, report) = world.stopped(node).unwrap();
    assert_eq!((report.released, world.entries("released"), world.claimed_by(node)), (2, 2, 0));
}

// C-37: as before, and the server stays away.
#[test]
fn a_worker_that_cannot_ask_what_it_has_claimed_stops_within_its_bound() {
    let mut world = World::new(1);
    let node = world.add(impatient(2, S(2)), vec![kind("a")]);
    world.run_until(S(1));
    world.enqueue_many("a", 2);
    world.run_while(S(2), |world| world.server.claims.is_empty());
    world.server_up = false;
    world.cut(node, Link::Work);
    let (took, _) = world.stop(node, S(20));
    assert!(took >= S(7) && took <= S(7) + SOON, "{took:?}");
}

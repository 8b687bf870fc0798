//! The shutdown contract in simulated time, and where each of its rules is shown.
//!
//! The rules are those of the test plan, C-01 to C-42; `docs/shutdown.md` says what they promise. What only real rows,
//! threads or processes can show is on a server: `tests/suite/` is mounted for each front-end, `processes` is
//! `tests/shutdown_processes.rs`. Beside this file, `threads` is `contract_threads.rs`, `trouble` `contract_trouble.rs` and
//! `stories` `reliability.rs`. `pool`, `task` and `config` are the unit tests of `threads/pool.rs`, `async/task.rs` and
//! `src/config.rs`. `tests/contract.rs` checks that this table names tests that exist.
//!
//! ```text
//! C-01  an_idle_worker_stops_at_once_and_touches_no_row
//!       suite/shutdown: an_idle_worker_stops_at_once
//!       suite/shutdown: a_stopped_worker_leaves_no_connection
//! C-02  a_run_that_ends_in_time_is_settled_and_nothing_new_is_claimed
//!       threads: a_worker_of_threads_stops_with_its_last_run
//!       suite/shutdown: a_stopping_worker_lets_its_handlers_end_and_claims_nothing_more
//!       processes: sigterm_drains_and_loses_nothing
//! C-03  a_run_that_ends_in_time_is_settled_and_nothing_new_is_claimed
//!       a_job_whose_claim_comes_home_during_the_drain_is_released_unstarted
//!       suite/shutdown: a_stopping_worker_lets_its_handlers_end_and_claims_nothing_more
//! C-04  a_handler_that_heeds_the_signal_pauses_at_once
//!       suite/shutdown: a_handler_that_heeds_the_signal_pauses_and_loses_nothing
//!       processes: the_examples_end_in_good_order_and_at_the_second_signal_at_once
//! C-05  a_future_that_does_not_end_is_dropped_and_then_released_without_a_failure
//!       a_job_is_released_only_when_nothing_holds_its_run_any_more
//!       suite/contract: a_released_job_has_changed_in_nothing_but_its_claim
//!       suite/contract: a_held_run_delays_the_stop
//! C-06  another_worker_is_told_of_a_released_job_and_takes_it_at_once
//!       suite/shutdown: a_handler_that_does_not_end_in_time_loses_its_job_only_if_it_can_be_stopped
//! C-07  releases_never_use_up_a_job
//!       suite/contract: releases_never_use_up_a_job
//! C-08  threads: the_windows_of_a_thread_add_up
//!       suite/contract: a_thread_is_waited_for_through_all_windows
//! C-09  threads: the_windows_of_a_thread_add_up
//!       suite/contract: a_thread_is_waited_for_through_all_windows
//!       processes: a_job_whose_worker_gets_sigkill_while_it_stops_runs_again_after_its_lease
//! C-10  threads: the_windows_of_a_thread_add_up
//!       threads: a_thread_that_has_returned_is_waited_for_no_more_although_its_result_is
//! C-11  threads: a_started_thread_is_waited_for_without_bound_and_keeps_its_claim
//!       suite/contract: a_stopping_worker_keeps_the_claim_of_a_running_handler_beside_a_peer
//! C-12  threads: a_started_thread_is_waited_for_without_bound_and_keeps_its_claim
//!       threads: a_dropped_run_future_still_waits_for_threads
//!       stories: whatever_goes_wrong_every_rule_holds
//!       suite/contract/futures: a_dropped_run_still_settles_what_its_threads_return
//! C-13  threads: what_a_late_thread_returns_is_settled_as_ever
//!       suite/contract: what_a_late_thread_returns_is_settled_as_ever
//! C-14  threads: a_worker_that_is_killed_while_it_waits_for_a_thread_leaves_the_job_to_the_lease
//!       processes: a_job_whose_worker_gets_sigkill_while_it_stops_runs_again_after_its_lease
//! C-15  a_worker_that_is_killed_while_it_drains_leaves_its_job_to_the_lease
//!       processes: a_job_whose_worker_gets_sigkill_while_it_stops_runs_again_after_its_lease
//! C-16  a_claim_is_renewed_while_its_worker_drains
//!       suite/contract: a_stopping_worker_keeps_the_claim_of_a_running_handler_beside_a_peer
//!       processes: a_worker_that_is_stopped_beyond_its_lease_while_it_drains_has_its_late_result_refused
//! C-17  a_time_out_during_the_drain_is_a_failure_and_not_a_release
//!       a_future_that_ends_although_its_time_was_over_is_settled
//!       suite/contract: of_time_out_and_shutdown_the_one_that_comes_first_decides
//! C-18  of_time_out_and_shutdown_the_one_that_comes_first_decides
//!       suite/contract: of_time_out_and_shutdown_the_one_that_comes_first_decides
//! C-19  of_time_out_and_shutdown_the_one_that_comes_first_decides
//!       threads: a_thread_times_out_no_more_once_the_shutdown_is_forced
//!       suite/contract: a_thread_times_out_no_more_once_the_shutdown_is_forced
//! C-20  a_time_out_counts_from_the_start_of_the_handler
//!       suite/contract/futures: a_time_out_counts_from_the_start_of_the_handler
//! C-21  threads: a_thread_that_times_out_keeps_its_slot_and_delays_the_stop
//!       threads: a_thread_that_returns_while_its_time_out_is_being_stored_is_late_all_the_same
//!       threads: a_thread_that_starts_when_the_shutdown_is_forced_times_out_no_more
//!       suite/contract: a_thread_that_times_out_keeps_its_slot_and_delays_the_stop
//! C-22  threads: a_thread_that_times_out_keeps_its_slot_and_delays_the_stop
//!       suite/contract: a_thread_that_times_out_keeps_its_slot_and_delays_the_stop
//! C-23  threads: a_timed_out_thread_is_waited_for_when_the_shutdown_is_forced
//!       suite/contract: a_thread_that_times_out_keeps_its_slot_and_delays_the_stop
//! C-24  threads: a_slot_comes_back_however_a_run_ends
//!       suite/panics: one_panic_of_many_runs_at_once_disturbs_none_of_the_others
//! C-25  threads: no_more_is_claimed_than_there_are_threads_for
//!       pool: there_are_never_more_threads_than_slots
//!       suite/claiming: claimed_rows_never_exceed_the_slots_and_each_of_them_runs
//! C-26  a_future_that_has_not_begun_when_the_time_is_over_is_released_and_never_begins
//!       threads: a_job_without_a_thread_when_the_time_is_over_is_released_and_never_started
//!       pool: starting_and_taking_back_decide_once_between_threads
//!       suite/contract/futures: a_future_that_has_not_begun_when_the_time_is_over_is_released_and_never_begins
//! C-27  threads: a_job_that_gets_its_thread_during_the_drain_runs_or_is_released
//!       pool: a_run_that_has_started_cannot_be_taken_back
//!       task: an_abort_before_the_first_poll_never_starts_the_handler
//! C-28  a_future_that_never_yields_is_left_claimed_and_the_worker_stops_within_its_bound
//!       threads: while_a_thread_is_waited_for_a_future_that_does_not_stop_is_not_given_up
//!       suite/futures: a_future_that_never_yields_is_left_claimed
//!       suite/contract: a_future_that_ends_although_it_was_to_be_dropped_is_settled
//! C-29  a_job_is_released_only_when_nothing_holds_its_run_any_more
//!       suite/contract: a_held_run_delays_the_stop
//!       suite/contract: a_timed_out_job_is_retried_only_when_its_hold_is_gone
//! C-30  a_future_that_does_not_end_is_dropped_and_then_released_without_a_failure
//!       suite/contract: a_released_job_has_changed_in_nothing_but_its_claim
//!       suite/contract: a_job_whose_claim_comes_home_during_the_drain_is_released_unstarted
//! C-31  trouble: a_release_whose_reply_is_lost_is_sent_again_and_counts_once
//!       suite/contract: a_release_whose_reply_was_lost_is_stored_once
//! C-32  a_job_that_a_peer_has_recovered_is_not_released_under_it
//!       suite/contract: a_job_that_another_has_by_now_is_neither_settled_nor_released
//! C-33  a_future_that_does_not_end_is_dropped_and_then_released_without_a_failure
//!       a_job_whose_claim_comes_home_during_the_drain_is_released_unstarted
//!       stories: whatever_goes_wrong_every_rule_holds
//!       processes: sigterm_gives_back_the_futures_that_do_not_end_in_time
//! C-34  without_a_time_to_wind_down_futures_are_dropped_at_once
//!       threads: the_grace_is_the_workers_time_out_or_nothing
//!       suite/contract: without_a_time_to_wind_down_only_threads_are_waited_for
//! C-35  threads: the_grace_is_the_workers_time_out_or_nothing
//!       config: the_grace_of_a_blocking_handler_is_its_own_or_the_time_out_or_nothing
//! C-36  threads: futures_are_released_in_their_time_without_waiting_for_threads
//!       suite/futures: one_worker_runs_futures_and_threads_each_by_its_own_rules
//! C-37  trouble: a_worker_whose_server_goes_away_stops_within_its_bound_and_says_what_it_left
//!       trouble: a_worker_whose_server_hangs_stops_within_its_bound_and_says_what_it_left
//!       trouble: a_worker_whose_table_is_locked_stops_within_its_bound_and_says_what_it_left
//!       threads: a_worker_without_a_server_waits_for_its_threads_and_then_no_longer_than_its_bound
//!       suite/contract: a_worker_whose_server_hangs_ends_in_its_time_and_says_what_it_left
//!       suite/contract: a_worker_whose_table_is_locked_ends_in_its_time_and_says_what_it_left
//! C-38  a_future_that_ends_when_the_time_is_over_is_settled_once
//!       suite/contract: a_future_that_ends_although_it_was_to_be_dropped_is_settled
//! C-39  a_claim_is_renewed_while_its_worker_drains
//!       trouble: a_job_whose_claim_is_never_heard_of_during_the_drain_is_found_and_released
//!       trouble: a_worker_that_is_cut_off_for_a_moment_while_it_stops_leaves_nothing_claimed
//!       suite/contract: a_stopping_worker_keeps_the_claim_of_a_running_handler_beside_a_peer
//! C-40  releases_never_use_up_a_job
//!       threads: a_started_thread_is_waited_for_without_bound_and_keeps_its_claim
//!       suite/contract: a_stopping_worker_keeps_the_claim_of_a_running_handler_beside_a_peer
//! C-41  a_second_request_changes_nothing
//!       suite/contract: a_thread_is_waited_for_through_all_windows
//!       suite/contract/futures: a_token_that_was_cancelled_before_the_run_stops_it_at_once
//! C-42  processes: a_worker_leaves_the_signals_as_they_are
//! ```

use std::time::Duration;

use super::server::State;
use super::world::{Behaviour, World, config, kind, ms};
use crate::Priority;
use crate::config::Config;
use crate::engine::Input;
use crate::observer::Event;
use crate::registry::KindRule;
use crate::report::LeftReason::NotStopped;
use crate::report::{ShutdownReport, Verdict};

pub(super) const S: fn(u64) -> Duration = Duration::from_secs;

/// What a stop may take beyond its last wait: a few round trips.
pub(super) const SOON: Duration = ms_const(20);

const fn ms_const(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn impatient(concurrency: usize, timeout: Duration) -> Config {
    let mut config = config(concurrency);
    config.shutdown_timeout = timeout;
    config
}

/// A worker of futures, one second old, with one job of the kind "a" that does this.
pub(super) fn running(
    rules: Config,
    rule: KindRule,
    behaviour: fn(&str, crate::job::RunId) -> Behaviour,
) -> (World, usize, i64) {
    let mut world = World::new(1);
    world.behave(behaviour);
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(rules, vec![rule]);
    world.run_until(S(1));
    (world, node, job)
}

pub(super) fn endless() -> Behaviour {
    Behaviour::takes(S(60))
}

pub(super) fn released(event: &Event) -> bool {
    matches!(event, Event::Released { .. })
}

pub(super) fn left(report: &ShutdownReport) -> Vec<crate::LeftReason> {
    report.left_claimed.iter().map(|left| left.reason).collect()
}

// C-01
#[test]
fn an_idle_worker_stops_at_once_and_touches_no_row() {
    let mut world = World::new(1);
    let node = world.add(config(4), vec![kind("a")]);
    let foreign = world.enqueue("b", Priority::Normal, Duration::ZERO);
    world.run_until(S(1));
    let (took, report) = world.stop(node, S(1));
    assert_eq!((took, report, world.states(node)), (ms(0), ShutdownReport::default(), vec!["draining", "stopped"]));
    assert_eq!((&world.server.live[&foreign].state, world.server.journal.len()), (&State::Ready, 0));
}

// C-02, C-03
#[test]
fn a_run_that_ends_in_time_is_settled_and_nothing_new_is_claimed() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour::takes(ms(500)));
    world.enqueue_many("a", 6);
    let node = world.add(impatient(1, S(10)), vec![kind("a")]);
    world.run_until(ms(100));
    let (took, report) = world.stop(node, S(5));
    assert!(took < ms(450), "it ends with its last run: {took:?}");
    assert_eq!((report.settled, world.server.claims.len(), world.entries("released")), (1, 1, 0));
    assert!(world.server.live.values().all(|row| row.run_count == 0));
    assert_eq!(world.nodes[node].states[0], (ms(100), "draining", 1, 0));
}

// C-04
#[test]
fn a_handler_that_heeds_the_signal_pauses_at_once() {
    let (mut world, node, job) =
        running(impatient(1, S(10)), kind("a"), |_, _| Behaviour { cooperative: true, ..endless() });
    let (took, report) = world.stop(node, S(1));
    assert!(took <= SOON, "{took:?}");
    assert_eq!((report.settled, world.entries("paused"), world.entries("released")), (1, 1, 0));
    assert_eq!(world.server.live[&job].failures, 0);
}

// C-05, C-30, C-33, C-39
#[test]
fn a_future_that_does_not_end_is_dropped_and_then_released_without_a_failure() {
    let (mut world, node, job) = running(impatient(1, S(1)), kind("a"), |_, _| endless());
    let before = world.server.live[&job].clone();
    let (took, report) = world.stop(node, S(2));
    assert!(took >= S(1) && took <= S(1) + SOON, "{took:?}");
    assert_eq!((report.released, world.entries("released"), world.server.journal.len()), (1, 1, 1));
    let after = &world.server.live[&job];
    assert_eq!((&after.state, after.visible <= world.server.now), (&State::Ready, true));
    assert_eq!((after.failures, after.run_count, &after.carry), (before.failures, before.run_count, &before.carry));
    assert_eq!((after.priority, after.created), (before.priority, before.created));
    let why = Event::Released { job: job.into(), run: 1, kind: "a", reason: "shutdown_timeout" };
    assert!(world.nodes[node].events.contains(&why));
    assert_eq!(world.states(node), ["draining", "forced", "stopped"]);
    assert_eq!(world.claimed_by(node), 0);
}

// C-06
#[test]
fn another_worker_is_told_of_a_released_job_and_takes_it_at_once() {
    let (mut world, node, _) = running(impatient(1, S(1)), kind("a"), |_, _| endless());
    let mut patient = config(1);
    patient.poll_max = S(3_600);
    let peer = world.add(patient, vec![kind("a")]);
    world.run_until(S(2));
    world.stop(node, S(2));
    world.run_until(world.time + ms(10));
    let (_, id, by, _) = world.server.claims.last().unwrap();
    assert_eq!((id.run, by, world.claimed_by(peer)), (2, &world.nodes[peer].name, 1));
}

// C-07, C-40
#[test]
fn releases_never_use_up_a_job() {
    let mut world = World::new(1);
    world.behave(|_, id| if id.run < 4 { endless() } else { Behaviour::takes(ms(1)) });
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    let mut rules = impatient(1, ms(100));
    rules.backstop = Some(1);
    for _ in 0..3 {
        let node = world.add(rules.clone(), vec![kind("a")]);
        world.run_until(world.time + S(1));
        assert_eq!(world.stop(node, S(1)).1.released, 1);
    }
    world.add(rules, vec![kind("a")]);
    world.run_until(world.time + S(1));
    let (row, how) = &world.server.finished[&job];
    assert_eq!((*how, row.run_count, row.failures, world.entries("released")), ("completed", 4, 0, 3));
}

// C-15
#[test]
fn a_worker_that_is_killed_while_it_drains_leaves_its_job_to_the_lease() {
    let leased = || KindRule { lease: S(3), ..kind("a") };
    let (mut world, node, job) = running(impatient(1, S(30)), leased(), |_, _| endless());
    world.tell(node, Input::Shutdown);
    world.run_until(S(2));
    world.kill(node);
    world.add(config(1), vec![leased()]);
    world.run_until(S(8));
    let row = &world.server.live[&job];
    assert_eq!((row.run_count, row.failures, world.entries("stale-recovered")), (2, 1, 1));
}

// C-16, C-39, C-40
#[test]
fn a_claim_is_renewed_while_its_worker_drains() {
    let leased = || KindRule { lease: S(3), ..kind("a") };
    let (mut world, node, job) = running(impatient(1, S(30)), leased(), |_, _| Behaviour::takes(S(20)));
    let peer = world.add(config(1), vec![leased()]);
    world.tell(node, Input::Shutdown);
    while world.stopped(node).is_none() {
        world.run_until(world.time + ms(100));
        let claimed = world.claimed_by(node) + usize::from(world.server.finished.contains_key(&job));
        assert_eq!(claimed, 1, "at {:?}", world.time);
    }
    assert_eq!((world.server.finished[&job].0.run_count, world.claimed_by(peer)), (1, 0));
}

// C-17
#[test]
fn a_time_out_during_the_drain_is_a_failure_and_not_a_release() {
    let timed = KindRule { timeout: Some(ms(1_500)), ..kind("a") };
    let (mut world, node, job) = running(impatient(1, S(30)), timed, |_, _| endless());
    let (took, report) = world.stop(node, S(5));
    assert!(took < ms(520), "{took:?}");
    assert_eq!((report.timed_out, report.released, world.entries("retried"), world.entries("released")), (1, 0, 1, 0));
    assert_eq!(world.server.live[&job].failures, 1);
}

/// A future and its shutdown, with the time-out so long after the drain's end: what the journal says of it.
fn tie(gap_ms: i64) -> Vec<&'static str> {
    let mut world = World::new(1);
    // It takes its time to stop, so that the later of the two falls due while it does.
    world.behave(|_, _| Behaviour { stops_in: Some(ms(50)), ..endless() });
    let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
    let timeout = ms(u64::try_from(1_500 + gap_ms).unwrap());
    let node = world.add(impatient(1, S(1)), vec![KindRule { timeout: Some(timeout), ..kind("a") }]);
    world.run_until(ms(100));
    world.run_until(world.starts[0].0 + ms(500));
    let (_, report) = world.stop(node, S(2));
    let row = &world.server.live[&job];
    assert_eq!((report.timed_out, report.released), (row.failures as u64, 1 - row.failures as u64));
    world.server.journal.iter().map(|entry| entry.what).collect()
}

// C-18, C-19
#[test]
fn of_time_out_and_shutdown_the_one_that_comes_first_decides() {
    for gap in [-400, -49, -2, -1] {
        assert_eq!(tie(gap), ["retried"], "{gap}");
    }
    for gap in [1, 2, 49, 28_000] {
        assert_eq!(tie(gap), ["released"], "{gap}");
    }
    assert_eq!(tie(0).len(), 1, "either, but only one");
}

// C-17, C-38
#[test]
fn a_future_that_ends_although_its_time_was_over_is_settled() {
    let timed = KindRule { timeout: Some(ms(1_500)), ..kind("a") };
    let deaf = |_: &str, _| Behaviour { stops_in: None, ..Behaviour::takes(S(2)) };
    let (mut world, node, _) = running(impatient(1, S(30)), timed, deaf);
    let (_, report) = world.stop(node, S(5));
    assert_eq!((report.settled, report.timed_out, world.entries("completed")), (1, 0, 1));
}

// C-20
#[test]
fn a_time_out_counts_from_the_start_of_the_handler() {
    let mut world = World::new(1);
    world.behave(|_, _| Behaviour { waits: ms(700), ..endless() });
    world.enqueue("a", Priority::Normal, Duration::ZERO);
    let node = world.add(impatient(1, S(30)), vec![KindRule { timeout: Some(S(1)), ..kind("a") }]);
    world.run_until(ms(1_500));
    let started = world.starts[0].0;
    assert!(started >= ms(700), "{started:?}");
    let (took, report) = world.stop(node, S(5));
    assert!(took >= started + S(1) - ms(1_500) && took <= started + S(1) - ms(1_500) + SOON, "{took:?}");
    assert_eq!((report.timed_out, world.entries("retried")), (1, 1));
}

// C-26, C-27
#[test]
fn a_future_that_has_not_begun_when_the_time_is_over_is_released_and_never_begins() {
    for waits in [900, 999, 1_000, 1_001, 5_000] {
        let mut world = World::new(1);
        world.behave(move |_, _| Behaviour { waits: ms(waits), ..endless() });
        let job = world.enqueue("a", Priority::Normal, Duration::ZERO);
        let node = world.add(impatient(1, S(1)), vec![kind("a")]);
        world.run_while(S(1), |world| world.handlers(node) == 0);
        let (_, report) = world.stop(node, S(2));
        world.run_until(S(10));
        assert_eq!((report.released, world.entries("released")), (1, 1), "{waits}");
        assert_eq!(world.starts.len(), usize::from(waits <= 1_000), "{waits}: begun or taken back, never both");
        assert_eq!(world.server.live[&job].failures, 0);
    }
}

// C-03, C-26, C-33: the claim was on its way when the worker was told to stop.
#[test]
fn a_job_whose_claim_comes_home_during_the_drain_is_released_unstarted() {
    let mut world = World::new(1);
    // Without turns one claim takes both.
    let strict = Config { priority_ratio: None, ..config(2) };
    let node = world.add(strict, vec![kind("a")]);
    world.run_until(S(1));
    world.enqueue_many("a", 2);
    world.run_while(S(2), |world| world.server.claims.is_empty());
    let (_, report) = world.stop(node, S(2));
    assert_eq!((world.server.claims.len(), world.starts.len()), (2, 0));
    assert_eq!((report.released, world.entries("released"), world.nodes[node].events(released)), (2, 2, 2));
    assert_eq!(world.claimed_by(node), 0);
}

// C-28
#[test]
fn a_future_that_never_yields_is_left_claimed_and_the_worker_stops_within_its_bound() {
    let (mut world, node, _) = running(impatient(1, S(1)), kind("a"), |_, _| Behaviour::stuck());
    let (took, report) = world.stop(node, S(20));
    assert!(took >= S(6) && took <= S(6) + SOON, "{took:?}");
    assert_eq!(left(&report), [NotStopped]);
    assert_eq!((report.released, world.entries("released"), world.claimed_by(node)), (0, 0, 1));
}

// C-28, C-38
#[test]
fn a_future_that_ends_although_it_was_to_be_dropped_is_settled() {
    let deaf = |_: &str, _| Behaviour { stops_in: None, ..Behaviour::takes(S(6)) };
    let (mut world, node, _) = running(impatient(1, S(1)), kind("a"), deaf);
    let (took, report) = world.stop(node, S(20));
    assert!(took >= ms(4_900) && took <= S(5) + SOON, "{took:?}");
    assert_eq!((report.settled, world.entries("completed"), world.entries("released")), (1, 1, 0));
}

// C-05, C-29
#[test]
fn a_job_is_released_only_when_nothing_holds_its_run_any_more() {
    let held = |_: &str, _| Behaviour { stops_in: Some(S(3)), ..endless() };
    let (mut world, node, _) = running(impatient(1, S(1)), kind("a"), held);
    world.tell(node, Input::Shutdown);
    world.run_until(S(5) - ms(1));
    assert_eq!((world.claimed_by(node), world.handlers(node)), (1, 1));
    world.run_until(S(5) + SOON);
    assert_eq!((world.claimed_by(node), world.entries("released")), (0, 1));
    assert_eq!(world.stopped(node).unwrap().1.released, 1);
}

// C-31, C-32
#[test]
fn a_job_that_a_peer_has_recovered_is_not_released_under_it() {
    let mut fixed = impatient(1, S(10));
    fixed.renew_leases = false;
    let leased = || KindRule { lease: S(3), ..kind("a") };
    let (mut world, node, job) = running(fixed.clone(), leased(), |_, _| endless());
    fixed.lease = S(900);
    let peer = world.add(fixed, vec![KindRule { lease: S(900), ..kind("a") }]);
    let (_, report) = world.stop(node, S(12));
    assert_eq!((report.released, report.late, world.entries("released")), (0, 1, 0));
    assert_eq!((world.claimed_by(peer), world.server.live[&job].run_count), (1, 2));
}

// C-34
#[test]
fn without_a_time_to_wind_down_futures_are_dropped_at_once() {
    let (mut world, node, _) = running(impatient(1, S(0)), kind("a"), |_, _| endless());
    let (took, report) = world.stop(node, S(1));
    assert!(took <= SOON, "{took:?}");
    assert_eq!((report.released, world.states(node)), (1, vec!["draining", "forced", "stopped"]));
}

// C-38
#[test]
fn a_future_that_ends_when_the_time_is_over_is_settled_once() {
    // The force comes two seconds after its start, and it takes five milliseconds to be dropped.
    for (takes, in_time) in [(2_000, true), (2_001, true), (2_004, true), (2_006, false)] {
        let mut world = World::new(takes);
        world.behave(move |_, _| Behaviour { stops_in: Some(ms(5)), ..Behaviour::takes(ms(takes)) });
        world.enqueue("a", Priority::Normal, Duration::ZERO);
        let node = world.add(impatient(1, S(1)), vec![kind("a")]);
        world.run_until(ms(100));
        world.run_until(world.starts[0].0 + S(1));
        let (_, report) = world.stop(node, S(3));
        assert_eq!((report.settled, report.released), (u64::from(in_time), u64::from(!in_time)), "{takes}");
        assert_eq!(world.server.journal.len(), 1);
    }
}

// C-41
#[test]
fn a_second_request_changes_nothing() {
    let (mut world, node, _) = running(impatient(1, S(5)), kind("a"), |_, _| endless());
    world.tell(node, Input::Shutdown);
    world.at(S(3), move |world| world.tell(node, Input::Shutdown));
    world.at(S(6) + ms(1), move |world| world.tell(node, Input::Shutdown));
    world.run_until(S(7));
    let (at, _) = world.stopped(node).unwrap();
    assert!(at >= S(6) && at <= S(6) + SOON, "{at:?}");
    assert_eq!(world.states(node), ["draining", "forced", "stopped"]);
}

#[test]
fn a_dropped_run_future_releases_what_stops_and_waits_no_longer() {
    for told_before in [false, true] {
        let (mut world, node, _) = running(impatient(1, S(30)), kind("a"), |_, _| endless());
        if told_before {
            world.tell(node, Input::Shutdown);
        }
        world.run_until(S(2));
        world.tell(node, Input::Abandoned);
        world.run_until(S(2) + SOON);
        assert_eq!((world.stopped(node).unwrap().1.released, world.entries("released")), (1, 1));
    }
}

#[test]
fn a_worker_that_gives_up_winds_down_before_it_says_why() {
    let (mut world, node, _) = running(impatient(8, S(10)), kind("a"), |_, id| {
        let discarded = Behaviour { verdict: Verdict::Discarded, ..Behaviour::takes(ms(1)) };
        if id.job == 1 { Behaviour::takes(S(12)) } else { discarded }
    });
    world.enqueue_many("a", 20);
    world.run_until(S(3));
    assert!(world.states(node).is_empty(), "one bad moment ends no worker, however many runs it costs");
    world.run_until(S(60));
    let (_, result) = world.nodes[node].stopped.as_ref().unwrap();
    assert!(result.is_err());
    assert_eq!((world.claimed_by(node), world.entries("completed")), (0, 1));
}

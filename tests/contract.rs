//! The shutdown contract on both front-ends, and on a worker that has both kinds of handlers.

#[path = "suite/async_front.rs"]
mod async_front;
#[path = "suite/blocking_front.rs"]
mod blocking_front;
mod suite;

use std::fs;
use std::path::Path;

use blocking_front::Blocking;

macro_rules! both {
    () => {
        crate::suite::bodies! { tests: contract: [
            a_stopping_worker_keeps_the_claim_of_a_running_handler_beside_a_peer,
            a_job_whose_claim_comes_home_during_the_drain_is_released_unstarted,
            a_job_that_another_has_by_now_is_neither_settled_nor_released,
            without_a_time_to_wind_down_only_threads_are_waited_for,
            a_worker_whose_server_hangs_ends_in_its_time_and_says_what_it_left,
            a_worker_whose_table_is_locked_ends_in_its_time_and_says_what_it_left,
            a_held_run_delays_the_stop,
        ] }
    };
}

macro_rules! futures {
    () => {
        both!();
        crate::suite::bodies! { tests: contract: [
            a_released_job_has_changed_in_nothing_but_its_claim,
            releases_never_use_up_a_job,
            of_time_out_and_shutdown_the_one_that_comes_first_decides,
            a_future_that_ends_although_it_was_to_be_dropped_is_settled,
            a_timed_out_job_is_retried_only_when_its_hold_is_gone,
            a_release_whose_reply_was_lost_is_stored_once,
        ] }
    };
}

macro_rules! threads {
    () => {
        both!();
        crate::suite::bodies! { tests: contract: [
            a_thread_is_waited_for_through_all_windows,
            what_a_late_thread_returns_is_settled_as_ever,
            a_thread_that_times_out_keeps_its_slot_and_delays_the_stop,
            a_thread_times_out_no_more_once_the_shutdown_is_forced,
        ] }
    };
}

mod threads {
    fn front() -> crate::Blocking {
        crate::Blocking { mount: crate::suite::mount!(), inside_tokio: false }
    }

    threads!();
}

macro_rules! futures_only {
    () => {
        crate::suite::bodies! { tests: contract: [
            a_time_out_counts_from_the_start_of_the_handler,
            a_future_that_has_not_begun_when_the_time_is_over_is_released_and_never_begins,
            what_has_stopped_is_released_within_a_renewal_after_run_was_dropped,
            a_dropped_run_still_settles_what_its_threads_return,
            a_worker_that_is_dropped_unrun_does_nothing,
            a_token_that_was_cancelled_before_the_run_stops_it_at_once,
        ] }
    };
}

async_front::executors! {
    futures_on_tokio: TokioThreads, Spawned, futures!();
    futures_on_smol: Smol, Spawned, futures!();
    futures_inside: Bare, Inside, futures!();
    threads_beside_futures: TokioCurrent, Threads, threads!();
    /// What has no counterpart on threads.
    what_only_futures_can: Bare, Spawned, futures_only!();
}

/// The folders and files that the table of rules has short names for.
const PLACES: [(&str, &str); 8] = [
    ("threads", "src/engine/tests/contract_threads.rs"),
    ("trouble", "src/engine/tests/contract_trouble.rs"),
    ("stories", "src/engine/tests/simulation/mod.rs"),
    ("processes", "tests/shutdown_processes.rs"),
    ("pool", "threads/pool/tests.rs"),
    ("task", "async/task/tests.rs"),
    ("config", "src/config.rs"),
    ("", "src/engine/tests/contract.rs"),
];

#[test]
fn every_rule_of_the_contract_names_tests_that_exist() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let table = read("src/engine/tests/contract.rs");
    let lines = table.lines().skip_while(|line| *line != "//! ```text").skip(1).take_while(|line| *line != "//! ```");
    let mut rules = Vec::new();
    for line in lines.filter_map(|line| line.strip_prefix("//! ")) {
        let (rule, test) = line.split_at(6);
        rules.extend(Some(rule.trim_end()).filter(|rule| !rule.is_empty()));
        let (place, name) = test.split_once(": ").unwrap_or(("", test));
        let path =
            PLACES.iter().find(|(short, _)| *short == place).map_or(format!("tests/{place}.rs"), |it| it.1.to_owned());
        assert!(read(&path).contains(&format!("fn {name}(")), "{rule} {name} is not in {path}");
    }
    let all: Vec<_> = (1..=42).map(|number| format!("C-{number:02}")).collect();
    assert_eq!(rules, all);
}

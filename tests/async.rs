//! The conformance suite on the async front-end, with each executor that it may meet and with none.

#[path = "suite/async_front.rs"]
mod async_front;
mod suite;

use async_front::{Async, Executor, Hands};

/// What has no counterpart in the blocking front-end.
mod futures_only {
    fn front() -> crate::Async {
        crate::Async { mount: crate::suite::mount!(), executor: crate::Executor::Bare, hands: crate::Hands::Spawned }
    }

    crate::suite::bodies! { tests:
        futures: [
            a_spawner_that_throws_runs_away_ends_the_worker,
            a_spawner_that_panics_ends_the_worker,
            a_spawner_that_fails_now_and_then_costs_no_job_a_failure,
            a_worker_whose_future_is_dropped_gives_its_jobs_back,
            a_future_that_never_yields_is_left_claimed,
            one_worker_runs_futures_and_threads_each_by_its_own_rules,
            an_enqueue_that_is_dropped_may_be_stored_and_one_that_never_began_is_not,
        ]
    }
}

mod slow {
    fn front() -> crate::Async {
        let mount = crate::suite::mount!();
        crate::Async { mount, executor: crate::Executor::TokioThreads, hands: crate::Hands::Spawned }
    }

    crate::suite::bodies!(slow);
}

macro_rules! executors {
    ($($(#[$doc:meta])* $name:ident: $executor:ident, $hands:ident, $which:ident;)*) => {
        $(
            $(#[$doc])*
            mod $name {
                fn front() -> crate::Async {
                    let mount = crate::suite::mount!();
                    crate::Async { mount, executor: crate::Executor::$executor, hands: crate::Hands::$hands }
                }

                crate::suite::bodies!($which);
            }
        )*
    };
}

executors! {
    tokio_threads_spawning: TokioThreads, Spawned, all;
    tokio_threads: TokioThreads, Inside, brief;
    tokio_current_spawning: TokioCurrent, Spawned, brief;
    tokio_current: TokioCurrent, Inside, all;
    smol_spawning: Smol, Spawned, all;
    smol: Smol, Inside, brief;
    bare: Bare, Inside, all;
    /// Each run on a thread of its own.
    bare_spawning: Bare, Spawned, brief;
    /// Blocking handlers of an async worker.
    bare_blocking: Bare, Threads, brief;
}

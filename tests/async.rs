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

/// Layers around the blocking handlers of an async worker.
mod blocking_layers {
    fn front() -> crate::Async {
        crate::Async { mount: crate::suite::mount!(), executor: crate::Executor::Bare, hands: crate::Hands::Threads }
    }

    crate::suite::bodies! { tests:
        surrounding: [
            layers_surround_each_run_in_their_order_and_see_its_result,
            a_layer_may_replace_the_result,
            a_panic_in_a_layer_is_the_runs_and_outer_layers_see_it,
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

async_front::executors! {
    tokio_threads_spawning: TokioThreads, Spawned, crate::suite::bodies!(all);
    tokio_threads: TokioThreads, Inside, crate::suite::bodies!(brief);
    tokio_current_spawning: TokioCurrent, Spawned, crate::suite::bodies!(brief);
    tokio_current: TokioCurrent, Inside, crate::suite::bodies!(all);
    smol_spawning: Smol, Spawned, crate::suite::bodies!(all);
    smol: Smol, Inside, crate::suite::bodies!(brief);
    bare: Bare, Inside, crate::suite::bodies!(all);
    /// Each run on a thread of its own.
    bare_spawning: Bare, Spawned, crate::suite::bodies!(brief);
    /// Blocking handlers of an async worker.
    bare_blocking: Bare, Threads, crate::suite::bodies!(brief);
}

//! Both front-ends behind PgBouncer in transaction mode. Without PgBouncer these tests only say that they are skipped.

#[path = "suite/async_front.rs"]
mod async_front;
#[path = "suite/blocking_front.rs"]
mod blocking_front;
mod suite;

use blocking_front::Blocking;

macro_rules! pooling {
    () => {
        crate::suite::bodies! { tests: pooling: [
            over_a_pooler_everything_works_by_polling,
            over_a_pooler_jobs_are_merged_controlled_and_asked_about,
            over_a_pooler_what_is_given_up_is_left_to_its_time_out,
            a_worker_behind_a_pooler_listens_where_it_is_told_to,
            a_pooler_that_was_not_expected_is_named_in_the_error,
            the_doctor_tells_of_a_pooler_that_was_not_expected,
            what_a_pooler_does_not_let_in_is_an_error_that_says_so,
        ] }
    };
}

mod threads {
    fn front() -> crate::Blocking {
        crate::Blocking { mount: crate::suite::mount!(), inside_tokio: false }
    }

    pooling!();
}

async_front::executors! {
    tokio: TokioThreads, Spawned, pooling!();
    tokio_current: TokioCurrent, Inside, pooling!();
    smol: Smol, Inside, pooling!();
    bare: Bare, Inside, pooling!();
}

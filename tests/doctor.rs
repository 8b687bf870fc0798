//! Faults of whole servers, planted on servers of the tests' own, and found: each on threads, and on one of the executors.

#[path = "suite/async_front.rs"]
mod async_front;
#[path = "suite/blocking_front.rs"]
mod blocking_front;
mod suite;

macro_rules! planted {
    ($($body:ident)*) => {
        crate::suite::bodies! { tests: diagnosis: [$($body,)*] }
    };
}

mod threads {
    fn front() -> crate::blocking_front::Blocking {
        crate::blocking_front::Blocking { mount: crate::suite::mount!(), inside_tokio: false }
    }

    planted!(
        the_doctor_finds_what_a_server_was_told_to_leave_out_and_what_that_leaves_behind
        the_doctor_finds_transactions_that_somebody_has_forgotten
        the_doctor_finds_a_slot_that_its_standby_has_left
        the_doctor_finds_a_standby_whose_query_holds_dead_rows_back
    );
}

async_front::executors! {
    tokio: TokioThreads, Spawned,
        planted!(the_doctor_finds_what_a_server_was_told_to_leave_out_and_what_that_leaves_behind);
    smol: Smol, Inside, planted!(the_doctor_finds_transactions_that_somebody_has_forgotten);
    bare: Bare, Inside, planted!(the_doctor_finds_a_slot_that_its_standby_has_left);
    tokio_current: TokioCurrent, Inside, planted!(the_doctor_finds_leases_that_ran_out);
}

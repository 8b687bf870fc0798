//! The conformance suite on the blocking front-end.

#[path = "suite/blocking_front.rs"]
mod blocking_front;
mod suite;

use blocking_front::Blocking;

/// The table at the head of the suite names tests that exist.
#[test]
fn the_table_of_the_worker_model_names_tests_that_exist() {
    assert_eq!(suite::missing_tests(), Vec::<String>::new());
}

/// Called from plain threads.
mod threads {
    fn front() -> crate::Blocking {
        crate::Blocking { mount: crate::suite::mount!(), inside_tokio: false }
    }

    crate::suite::bodies!(all);
}

mod slow {
    fn front() -> crate::Blocking {
        crate::Blocking { mount: crate::suite::mount!(), inside_tokio: false }
    }

    crate::suite::bodies!(slow);
}

/// Called inside tokio tasks, where the `postgres` client itself would panic.
mod inside_tokio {
    fn front() -> crate::Blocking {
        crate::Blocking { mount: crate::suite::mount!(), inside_tokio: true }
    }

    crate::suite::bodies!(brief);
}

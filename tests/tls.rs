//! Encrypted connections, in both front-ends and on each executor.

#[path = "suite/async_front.rs"]
mod async_front;
#[path = "suite/blocking_front.rs"]
mod blocking_front;
mod suite;

macro_rules! encryption {
    () => {
        crate::suite::bodies! { tests: encryption: [
            all_that_is_said_is_encrypted,
            a_preferred_encryption_is_used_where_the_server_has_it,
            the_certificates_of_the_trusted_may_come_from_a_file,
            each_host_is_known_by_its_own_name,
            a_unix_socket_is_never_encrypted,
            a_server_that_cannot_be_trusted_is_refused_with_what_to_do,
            a_server_without_tls_is_refused_where_it_is_required,
            tls_without_its_settings_is_refused,
            tls_settings_that_panic_are_a_connection_that_fails,
        ] }
    };
}

mod threads {
    fn front() -> crate::blocking_front::Blocking {
        crate::blocking_front::Blocking { mount: crate::suite::mount!(), inside_tokio: false }
    }

    encryption!();
}

async_front::executors! {
    tokio: TokioThreads, Spawned, encryption!();
    tokio_current: TokioCurrent, Inside, encryption!();
    smol: Smol, Inside, encryption!();
    bare: Bare, Inside, encryption!();
}

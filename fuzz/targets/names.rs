//! Any text as a connection string around a secret, as the name of a schema, and as a kind, a key, a host, a cursor.
#![no_main]

use libfuzzer_sys::fuzz_target;
use venturi::fuzzing::{connection_string, names, schema_name};

fuzz_target!(|text: &str| {
    let half = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let (before, after) = text.split_at(half);
    connection_string(before, after);
    connection_string(&format!("postgres://worker:{before}"), &format!("{after}@localhost/app"));
    schema_name(text);
    names(text);
});

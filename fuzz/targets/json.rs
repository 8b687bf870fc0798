//! Any text as payload and carry: one, or two with a NUL between them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use venturi::fuzzing::json;

fuzz_target!(|text: &str| match text.split_once('\0') {
    Some((payload, carry)) => json(payload, Some(carry)),
    None => json(text, Some(text)),
});

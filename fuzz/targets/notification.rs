//! Any text on the channel.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| venturi::fuzzing::notification(text));

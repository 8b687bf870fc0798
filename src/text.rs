//! Text on its way into the database: notes, error chains, panic payloads.
#![deny(clippy::disallowed_methods)]

use std::any::Any;
use std::error::Error;

use crate::limits::MAX_NOTE;

/// Room for ` … [18446744073709551615 bytes cut]`.
const MARKER: usize = 40;

/// How deep a chain of errors is followed: a source may name itself as its own source.
const MAX_CHAIN: usize = 32;

/// What PostgreSQL's text cannot hold, and what stands for it.
const NUL: char = '\0';

/// The text as a note can be stored: without NUL, at most [`MAX_NOTE`] bytes, its end saying how much was cut.
pub(crate) fn note(text: &str) -> String {
    let (whole, used) = fitting(text, MAX_NOTE);
    if used == text.len() {
        return whole;
    }
    let (mut start, used) = fitting(text, MAX_NOTE - MARKER);
    start.push_str(&format!(" … [{} bytes cut]", text.len() - used));
    start
}

/// As much of `text` as fits into `room` bytes once NULs are replaced, and how many of its bytes that took.
fn fitting(text: &str, room: usize) -> (String, usize) {
    let mut out = String::with_capacity(text.len().min(room));
    for (at, letter) in text.char_indices() {
        let letter = if letter == NUL { char::REPLACEMENT_CHARACTER } else { letter };
        if out.len() + letter.len_utf8() > room {
            return (out, at);
        }
        out.push(letter);
    }
    (out, text.len())
}

/// An error and its sources as `outer: inner: innermost`, leaving out a source whose text has been said already.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    for _ in 0..MAX_CHAIN {
        let Some(inner) = source else { break };
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = inner.source();
    }
    text
}

/// What a panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a value that is not text".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Self>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|inner| inner as _)
        }
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let (first, rest) = texts.split_first().unwrap();
        Layer(first, (!rest.is_empty()).then(|| Box::new(layers(rest))))
    }

    #[derive(Debug)]
    struct Ouroboros;

    impl fmt::Display for Ouroboros {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round")
        }
    }

    impl Error for Ouroboros {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn a_short_note_stays_as_it_is() {
        assert_eq!(note("done: 3 päges"), "done: 3 päges");
        assert_eq!(note(""), "");
        let full = "x".repeat(MAX_NOTE);
        assert_eq!(note(&full), full);
    }

    #[test]
    fn nul_is_replaced_since_the_database_refuses_it() {
        assert_eq!(note("bad\0byte"), "bad\u{fffd}byte");
    }

    #[test]
    fn a_long_note_says_how_much_was_cut() {
        let cut = note(&"x".repeat(MAX_NOTE + 1));
        assert!(cut.len() <= MAX_NOTE);
        assert!(cut.ends_with("x … [41 bytes cut]"), "{}", &cut[MAX_NOTE - 60..]);
    }

    #[test]
    fn a_note_of_nuls_is_cut_by_its_stored_length() {
        let cut = note(&"\0".repeat(MAX_NOTE));
        assert!(cut.len() <= MAX_NOTE);
        assert!(cut.contains("bytes cut"));
    }

    proptest! {
        #[test]
        fn every_note_fits_and_keeps_the_start(text in ".{0,40}", times in 1_usize..1_000) {
            let text = text.repeat(times);
            let stored = note(&text);
            prop_assert!(stored.len() <= MAX_NOTE);
            prop_assert!(!stored.contains(NUL));
            let clean = text.replace(NUL, "\u{fffd}");
            let start = stored.split(" … [").next().unwrap();
            prop_assert!(stored == clean || clean.starts_with(start));
        }
    }

    #[test]
    fn a_chain_reads_from_the_outside_in() {
        let error = layers(&["cannot send", "connection refused", "os error 111"]);
        assert_eq!(chain(&error), "cannot send: connection refused: os error 111");
    }

    #[test]
    fn a_chain_says_nothing_twice() {
        let error = layers(&["cannot send: refused", "refused", "refused"]);
        assert_eq!(chain(&error), "cannot send: refused");
        assert_eq!(chain(&io::Error::other("plain")), "plain");
    }

    #[test]
    fn an_error_that_is_its_own_source_ends() {
        assert_eq!(chain(&Ouroboros), "round");
    }
}

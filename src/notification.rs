//! The text of a notification: which kinds have news, and when.
//!
//! `v1;resize,send_email;1500`: jobs of these kinds become claimable in 1,500 ms. It is a hint: a worker that
//! misunderstands one looks once too often, or finds the job at its next poll. The time is relative, so that clocks
//! need not agree.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::limits::MAX_DELAY;

const VERSION: &str = "v1";

/// Instead of kinds that are too many or cannot be written.
const ALL: &str = "*";

/// Half of what PostgreSQL takes: a text of this size names a hundred kinds, and a worker parses each one it hears.
const MAX_BYTES: usize = 4_000;

/// A semicolon and a century of milliseconds.
const TIME_BYTES: usize = 14;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    All,
    Some(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) kinds: Kinds,
    /// At most 100 years, so that it can be added to an instant.
    pub(crate) due_in: Duration,
}

impl Notification {
    /// What anything unintelligible means.
    const EVERYTHING_NOW: Self = Self { kinds: Kinds::All, due_in: Duration::ZERO };
}

/// The text that says that jobs of these kinds become claimable after `due_in`. No kinds at all means any.
pub(crate) fn encode(kinds: &[&str], due_in: Duration) -> String {
    format!("{};{}", encode_kinds(kinds), milliseconds(due_in))
}

/// The text without its time, where only the database knows when the jobs are due.
pub(crate) fn encode_kinds(kinds: &[&str]) -> String {
    if !kinds.is_empty() && kinds.iter().copied().all(is_plain) {
        let text = format!("{VERSION};{}", kinds.join(","));
        if text.len() <= MAX_BYTES - TIME_BYTES {
            return text;
        }
    }
    format!("{VERSION};{ALL}")
}

/// Whole milliseconds, rounded up: who looks too early finds nothing.
fn milliseconds(due_in: Duration) -> u128 {
    due_in.min(MAX_DELAY).as_nanos().div_ceil(1_000_000)
}

fn is_plain(kind: &str) -> bool {
    !kind.is_empty() && kind != ALL && !kind.contains(|letter: char| matches!(letter, ',' | ';') || letter.is_control())
}

/// Understands any text: any program can notify on the channel.
pub(crate) fn parse(text: &str) -> Notification {
    parts(text).unwrap_or(Notification::EVERYTHING_NOW)
}

fn parts(text: &str) -> Option<Notification> {
    let mut parts = text.split(';');
    if parts.next()? != VERSION {
        return None;
    }
    let kinds = kinds(parts.next()?)?;
    let due_in = Duration::from_millis(parts.next()?.parse().ok()?).min(MAX_DELAY);
    Some(Notification { kinds, due_in })
}

fn kinds(text: &str) -> Option<Kinds> {
    if text == ALL {
        return Some(Kinds::All);
    }
    let kinds = text.split(',');
    kinds.clone().all(is_plain).then(|| Kinds::Some(kinds.map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(kinds: &[&str], due_in: u64) -> Notification {
        let kinds = Kinds::Some(kinds.iter().map(|kind| (*kind).to_owned()).collect());
        Notification { kinds, due_in: Duration::from_millis(due_in) }
    }

    #[test]
    fn a_notification_names_its_kinds_and_its_time() {
        assert_eq!(encode(&["resize", "mail"], Duration::from_millis(1_500)), "v1;resize,mail;1500");
        assert_eq!(parse("v1;resize,mail;1500"), some(&["resize", "mail"], 1_500));
    }

    #[test]
    fn part_of_a_millisecond_is_rounded_up() {
        assert_eq!(encode(&["a"], Duration::from_nanos(1)), "v1;a;1");
        assert_eq!(encode(&["a"], Duration::ZERO), "v1;a;0");
    }

    #[test]
    fn kinds_that_cannot_be_written_become_all_kinds() {
        for kind in ["a,b", "a;b", "a\nb", "", "*"] {
            assert_eq!(encode(&["plain", kind], Duration::ZERO), "v1;*;0");
        }
        assert_eq!(encode(&[], Duration::ZERO), "v1;*;0");
    }

    #[test]
    fn kinds_that_are_too_long_together_become_all_kinds() {
        let kinds = vec!["a_kind_of_twenty_byte"; 200];
        assert_eq!(encode(&kinds, Duration::MAX), "v1;*;3153600000000");
        assert!(encode(&kinds[..150], Duration::MAX).len() <= MAX_BYTES);
        assert_ne!(parse(&encode(&kinds[..150], Duration::MAX)).kinds, Kinds::All);
    }

    #[test]
    fn what_is_not_understood_means_everything_now() {
        for text in ["", "v1", "v1;", "v1;a", "v1;a;", "v1;a;soon", "v1;a;-1", "v1;;5", "v1;a,,b;5", "v2;a;5", "hello"]
        {
            assert_eq!(parse(text), Notification::EVERYTHING_NOW, "{text:?}");
        }
    }

    #[test]
    fn a_later_version_may_add_parts() {
        assert_eq!(parse("v1;a;5;more;parts"), some(&["a"], 5));
    }

    #[test]
    fn the_furthest_time_can_still_be_added_to_an_instant() {
        assert_eq!(parse("v1;*;18446744073709551615").due_in, MAX_DELAY);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".*", kinds in ".*", due in ".*") {
            parse(&text);
            parse(&format!("v1;{kinds};{due}"));
        }

        #[test]
        fn what_is_written_is_read(
            kinds in prop::collection::vec("[a-z_]{1,30}|\\PC{1,30}", 0..20),
            due in any::<u32>(),
        ) {
            let names: Vec<&str> = kinds.iter().map(String::as_str).collect();
            let read = parse(&encode(&names, Duration::from_millis(due.into())));
            prop_assert_eq!(read.due_in, Duration::from_millis(due.into()));
            if read.kinds != Kinds::All {
                prop_assert_eq!(read.kinds, Kinds::Some(kinds));
            } else {
                prop_assert!(names.is_empty() || names.iter().any(|kind| !is_plain(kind)));
            }
        }
    }
}

//! The text of a notification: which kinds have news, and when.
//!
//! `v1;resize,send_email;1500`: jobs of these kinds become claimable in 1,500 ms. It is a hint: a worker that
//! misunderstands one looks once too often, or finds the job at its next poll. The time is relative, so that clocks
//! need not agree. Whether it is sent at all: `src/interest.rs`.
//!
//! A fourth part, `;cancel=17,18`, names running jobs that were asked to end (`cancel=*`: too many to name). Code that
//! does not know it reads the rest. With no news but that the text is `v1;*;3153600000000;cancel=17`: something becomes
//! claimable in a hundred years, which makes nobody look.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::limits::MAX_DELAY;

const VERSION: &str = "v1";

/// Begins the part that names jobs that were asked to end.
const CANCEL: &str = "cancel=";

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

/// Running jobs that were asked to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// Some, and nobody says which.
    Any,
    These(Vec<i64>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) kinds: Kinds,
    /// At most 100 years, so that it can be added to an instant.
    pub(crate) due_in: Duration,
    pub(crate) cancelled: Cancelled,
}

impl Notification {
    /// What anything unintelligible means.
    const EVERYTHING_NOW: Self =
        Self { kinds: Kinds::All, due_in: Duration::ZERO, cancelled: Cancelled::These(Vec::new()) };

    /// Whether it is about jobs that become claimable in anybody's lifetime.
    pub(crate) fn is_about_jobs(&self) -> bool {
        self.due_in < MAX_DELAY
    }
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

/// The same, with the running jobs that were asked to end.
pub(crate) fn encode_all(kinds: &[&str], due_in: Duration, cancelled: &[i64]) -> String {
    let text = encode(kinds, due_in);
    if cancelled.is_empty() {
        return text;
    }
    let ids: Vec<String> = cancelled.iter().map(i64::to_string).collect();
    let named = format!("{text};{CANCEL}{}", ids.join(","));
    // Still less than PostgreSQL takes.
    if named.len() < MAX_BYTES + MAX_BYTES / 2 { named } else { format!("{text};{CANCEL}{ALL}") }
}

/// The text that says only that these running jobs were asked to end.
#[cfg(test)]
pub(crate) fn encode_cancelled(cancelled: &[i64]) -> String {
    encode_all(&[], MAX_DELAY, cancelled)
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
    let cancelled = parts.find_map(|part| part.strip_prefix(CANCEL)).map_or(Cancelled::These(Vec::new()), cancelled);
    Some(Notification { kinds, due_in, cancelled })
}

/// What cannot be read means any.
fn cancelled(text: &str) -> Cancelled {
    let ids: Result<Vec<i64>, _> = text.split(',').map(str::parse).collect();
    ids.map_or(Cancelled::Any, Cancelled::These)
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
        Notification { kinds, due_in: Duration::from_millis(due_in), cancelled: Cancelled::These(Vec::new()) }
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
    fn running_jobs_that_shall_end_are_named_beside_the_kinds() {
        assert_eq!(encode_all(&["a"], Duration::ZERO, &[]), "v1;a;0");
        let text = encode_all(&["a"], Duration::ZERO, &[17, 18]);
        assert_eq!(text, "v1;a;0;cancel=17,18");
        assert_eq!(parse(&text).cancelled, Cancelled::These(vec![17, 18]));
        assert_eq!(parse("v1;a;0;later;cancel=17").cancelled, Cancelled::These(vec![17]));
        assert_eq!(parse("v1;a;0;cancel=x").cancelled, Cancelled::Any);
        assert_eq!(parse("v1;a;0;cancel=").cancelled, Cancelled::Any);
    }

    #[test]
    fn a_cancellation_alone_makes_nobody_look_for_jobs() {
        let text = encode_cancelled(&[17]);
        assert_eq!(text, "v1;*;3153600000000;cancel=17");
        assert!(!parse(&text).is_about_jobs());
        assert!(parse(&encode(&[], Duration::from_secs(86_400))).is_about_jobs());
    }

    #[test]
    fn too_many_cancellations_to_name_are_any() {
        let ids: Vec<i64> = (0..1_000).map(|n| i64::MAX - n).collect();
        let text = encode_cancelled(&ids);
        assert_eq!(parse(&text).cancelled, Cancelled::Any);
        let kinds = vec!["a_kind_of_twenty_byte"; 150];
        assert!(encode_all(&kinds, Duration::ZERO, &ids[..120]).len() < 8_000, "PostgreSQL takes no more");
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

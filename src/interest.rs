//! Interest: which kinds' notifications somebody listens for.
//!
//! PostgreSQL runs a transaction in each session that listens for each notification, whatever it is about. So one that no
//! worker waits for is not sent. A worker holds, in the session that listens, an advisory lock for each of its kinds,
//! shared with all who have the same interest (`interest.sql`). Whoever has stored something tries to have these locks
//! alone, without waiting and for a moment; if they are refused, somebody is interested and is told (`notify.sql`). The
//! end of a session gives its locks back, however it ends.
//!
//! Why nobody is left waiting: what is told of is committed before the locks are tried. A worker has its locks before it
//! looks, and listens before it looks. So either the locks are refused, or the worker's look comes after the commit.
#![deny(clippy::disallowed_methods)]

/// How many locks a session takes at most. They lie in the server's shared memory, which has room for
/// `max_locks_per_transaction` (64 by default) for each connection that it takes; this is a quarter of one's share.
const MOST: usize = 16;

/// The interest of those who have more kinds than that: any.
const ANY: &str = "*";

/// Keeps our locks apart from other programs'.
const PREFIX: &str = "venturi interest";

/// The keys of the locks that a worker of these kinds holds.
pub(crate) fn of_worker(channel: &str, kinds: &[&str]) -> Vec<i64> {
    let kinds: &[&str] = if kinds.len() > MOST { &[ANY] } else { kinds };
    kinds.iter().map(|kind| key(channel, kind)).collect()
}

/// The keys of the locks that somebody holds who waits for news of these kinds. None: they are too many, or not known, so
/// that everybody is told.
pub(crate) fn in_news_of(channel: &str, kinds: &[&str]) -> Vec<i64> {
    if kinds.is_empty() || kinds.len() > MOST {
        return Vec::new();
    }
    kinds.iter().chain([&ANY]).map(|kind| key(channel, kind)).collect()
}

/// The same in every version, or workers and producers of two of them would not find each other. Two kinds with the same
/// key are told of each other's jobs, and that is all. A name has no zero byte.
fn key(channel: &str, kind: &str) -> i64 {
    let text = [PREFIX, channel, kind].join("\0");
    i64::from_ne_bytes(fnv_1a(text.as_bytes()).to_ne_bytes())
}

/// FNV-1a with 64 bits, of Fowler, Noll and Vo (draft-eastlake-fnv): short, and written down where everybody can read it.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Test values of the draft.
    #[test]
    fn the_hash_is_the_published_one() {
        let known = [("", 0xCBF2_9CE4_8422_2325), ("a", 0xAF63_DC4C_8601_EC8C), ("foobar", 0x8594_4171_F739_67E8)];
        for (text, hash) in known {
            assert_eq!(fnv_1a(text.as_bytes()), hash, "{text:?}");
        }
    }

    /// Workers of one version have to hear of producers of another.
    #[test]
    fn the_keys_never_change() {
        assert_eq!(key("venturi", "send_email"), 2_183_372_280_222_626_302);
        assert_eq!(key("venturi", ANY), -3_828_136_907_586_729_809);
    }

    #[test]
    fn keys_differ_by_schema_and_by_kind() {
        let names = ["a", "b", "ab", "", "*", "venturi"];
        let keys: BTreeSet<i64> = names.iter().flat_map(|it| names.map(|kind| key(it, kind))).collect();
        assert_eq!(keys.len(), names.len() * names.len());
    }

    #[test]
    fn news_of_a_kind_find_whoever_has_it_and_whoever_has_too_many() {
        let kinds: Vec<String> = (0..=MOST).map(|nth| format!("kind {nth}")).collect();
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        let (few, many) = (of_worker("s", &kinds[..MOST]), of_worker("s", &kinds));
        assert_eq!((few.len(), many.len()), (MOST, 1), "more kinds than locks are one interest");
        for kind in &kinds[..MOST] {
            let keys = in_news_of("s", &[kind]);
            assert!(keys.iter().any(|key| few.contains(key)) && keys.contains(&many[0]), "{kind}");
        }
        let foreign = in_news_of("s", &["foreign"]);
        assert!(!foreign.iter().any(|key| few.contains(key)) && foreign.contains(&many[0]));
    }

    #[test]
    fn news_of_no_kind_or_of_too_many_are_for_everybody() {
        assert!(in_news_of("s", &[]).is_empty());
        assert!(in_news_of("s", &["a"; MOST + 1]).is_empty());
        assert_eq!(in_news_of("s", &["a"; MOST]).len(), MOST + 1);
    }
}

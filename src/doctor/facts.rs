//! What the statement has gathered.
#![deny(clippy::disallowed_methods)]

use std::time::SystemTime;

#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) at: SystemTime,
    pub(crate) version: i32,
    /// The oldest transaction of another session in this database: seconds, and whose.
    pub(crate) transaction: Option<(f64, String)>,
    /// Sessions of which this role sees nothing.
    pub(crate) hidden: u64,
    /// Replication slots that hold dead rows back, since nobody uses them or their standby is far behind.
    pub(crate) slots: Option<String>,
    /// Standbys without a slot that do so.
    pub(crate) standbys: Option<String>,
    pub(crate) prepared: Option<(f64, String)>,
    pub(crate) live_rows: u64,
    pub(crate) dead_rows: u64,
    /// Of `live` and of its indexes.
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    /// Whether the server's autovacuum works.
    pub(crate) autovacuum: bool,
    /// Seconds between its rounds.
    pub(crate) naptime: u64,
    pub(crate) autovacuum_live: bool,
    /// The storage parameters of `live`, as `name=value`.
    pub(crate) options: Vec<String>,
    pub(crate) expired: u64,
    pub(crate) unserved: Vec<String>,
    /// Kinds that are paused and have jobs that are due.
    pub(crate) paused: Vec<String>,
    /// Of the sequence of ids, where this role may see it and there are jobs.
    pub(crate) numbers: Option<Numbers>,
    /// Of the sequence of journal entries, as well.
    pub(crate) entries: Option<Numbers>,
    pub(crate) commits: String,
    pub(crate) fsync: bool,
    /// Of the server, of this role and of this database, as far as each has a limit.
    pub(crate) connections: Vec<Taken>,
}

/// How many connections there are, and how many there may be.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) whose: &'static str,
    pub(crate) taken: u64,
    pub(crate) room: u64,
}

/// How far the ids of a sequence are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// What the sequence gave last; `None`: nothing since it was restarted.
    pub(crate) last: Option<i64>,
    /// Of those that have one.
    pub(crate) highest: i64,
}

impl Facts {
    /// A storage parameter of `live` that is a number.
    pub(super) fn option(&self, name: &str) -> Option<f64> {
        let value = |option: &String| option.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        self.options.iter().find_map(value)
    }
}

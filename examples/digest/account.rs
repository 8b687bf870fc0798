//! What became of every file.

use std::time::SystemTime;

use crate::Result;
use crate::content::Digest;
use crate::folder::{Found, Walk};
use crate::results::Results;

/// Every file of the walk, in exactly one of the lists.
pub(crate) struct Account<'a> {
    /// Has a row of this run, or one of an earlier run that is still true.
    pub(crate) digested: Vec<(&'a Found, Digest)>,
    /// Its job is dead, with this reason.
    pub(crate) unreadable: Vec<(&'a Found, String)>,
    /// Neither: something is wrong.
    pub(crate) missing: Vec<&'a Found>,
    /// How many of the digested were left out by this run.
    pub(crate) unchanged: usize,
}

impl<'a> Account<'a> {
    pub(crate) fn new(walk: &'a Walk, results: &Results, started: SystemTime) -> Result<Self> {
        let (mut rows, mut dead) = (results.rows()?, results.dead_since(started)?);
        let mut account = Self { digested: Vec::new(), unreadable: Vec::new(), missing: Vec::new(), unchanged: 0 };
        for file in &walk.files {
            match rows.remove(&file.path) {
                Some(row) if row.digested_at >= started => account.digested.push((file, row.digest)),
                Some(row) if row.is_of(file) => {
                    account.digested.push((file, row.digest));
                    account.unchanged += 1;
                }
                _ => match dead.remove(&file.path) {
                    Some(reason) => account.unreadable.push((file, reason)),
                    None => account.missing.push(file),
                },
            }
        }
        Ok(account)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.digested.iter().map(|(_, digest)| digest.size).sum()
    }

    pub(crate) fn lines(&self) -> u64 {
        self.digested.iter().map(|(_, digest)| digest.lines).sum()
    }
}

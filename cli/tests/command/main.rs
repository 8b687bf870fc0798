//! The real binary on a real server: the one that `DATABASE_URL` names, as `scripts/test` starts it.
#![expect(clippy::expect_used, reason = "what cannot be prepared fails the test")]

#[path = "../../../tests/cluster/mod.rs"]
mod cluster;
mod enqueueing;
mod jobs;
mod json;
mod migrating;
mod page;
mod place;
mod terminal;
mod tls;
mod watching;

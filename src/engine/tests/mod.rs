//! The engine's rules in simulated time.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod claiming;
mod contract;
mod contract_threads;
mod reliability;
mod server;
mod settling;
mod world;

//! The engine's rules in simulated time.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the numbers are the tests' own")]
#![allow(clippy::type_complexity, reason = "a table of cases is read once")]

mod burst;
mod claiming;
mod contract;
mod contract_threads;
mod contract_trouble;
mod control;
pub(crate) mod dice;
pub(crate) mod failure;
mod interest;
mod measuring;
mod parting;
mod reliability;
pub(crate) mod seeds;
pub(crate) mod server;
mod settling;
pub(crate) mod shrink;
mod simulation;
mod world;

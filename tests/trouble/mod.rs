//! What `tests/chaos.rs` is made of.

mod chronicle;
mod dice;
mod fault;
mod ledger;
mod member;
mod proxy;
mod scene;
mod task;

use std::error::Error;
use std::time::Duration;

pub(crate) use self::dice::Dice;
pub(crate) use self::fault::{Fault, Pace, of_members, of_the_server};
pub(crate) use self::member::serve;
pub(crate) use self::scene::{Scene, Verdict, find_what_is_planted};

use super::cluster;

pub(crate) type Outcomes<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The shortest that is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

//! A kit for tests of applications: a schema of each test's own, workers that stop by themselves, and time that passes
//! when it is told to.
//!
//! [`TestSchema`] makes the tables in a new schema and drops it with the test. `Worker::drain`, `run_next` and `run_one`
//! of both front-ends run jobs, by all rules, before they return. [`Expected`] says which jobs should have been enqueued.
//! The page `docs/testing.md` shows a test for each front-end.
//!
//! What is here needs a server; it does not replace one. It waits on the thread that calls, also inside async tests: some
//! milliseconds for each call, and some tens for a new schema.

mod drained;
mod expected;
mod schema;

pub use crate::stint::Ran;
pub use drained::Drained;
pub use expected::Expected;
pub use schema::TestSchema;

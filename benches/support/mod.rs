//! What the benches share.
#![allow(dead_code, reason = "each bench uses a part of it")]

pub(crate) mod front;
pub(crate) mod meter;
pub(crate) mod numbers;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod process;
pub(crate) mod reference;
pub(crate) mod server;
pub(crate) mod session;

use std::error::Error;
use std::process::ExitCode;
use std::thread;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What `main` answers.
pub(crate) fn exit(bench: &str, done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{bench}: {error} ({error:?})");
            ExitCode::FAILURE
        }
    }
}

/// Does `work` on so many threads at once, each told its number, and returns when all have done it.
pub(crate) fn each_on_a_thread<T: Send>(count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|nth| scope.spawn(move || work(nth))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a measured thread panicked")?).collect()
    })
}

//! What the benches share.
#![allow(dead_code, reason = "each bench uses a part of it")]

pub(crate) mod front;
pub(crate) mod meter;
pub(crate) mod nothing;
pub(crate) mod numbers;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod process;
pub(crate) mod reference;
pub(crate) mod server;
pub(crate) mod session;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

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

/// Does `one` so many times on each of so many threads, with what `make` makes for each: how long it takes from the first
/// that begins to the last that ends. They all begin when everything is made.
pub(crate) fn at_once<P>(
    threads: usize,
    times: usize,
    make: impl Fn() -> Result<P> + Sync,
    one: impl Fn(&mut P) -> Result<()> + Sync,
) -> Result<Duration> {
    let start = Barrier::new(threads);
    let spans = each_on_a_thread(threads, |_| {
        let made = make();
        // The others wait for this one, whether it could be made or not.
        start.wait();
        let mut made = made?;
        let began = Instant::now();
        (0..times).try_for_each(|_| one(&mut made))?;
        Ok((began, Instant::now()))
    })?;
    let began = spans.iter().map(|(began, _)| *began).min();
    let ended = spans.iter().map(|(_, ended)| *ended).max();
    Ok(began.zip(ended).map(|(began, ended)| ended - began).ok_or("nobody does anything")?)
}

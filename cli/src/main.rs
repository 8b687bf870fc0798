//! The `venturi` command.

mod args;
mod cleanup;
mod connect;
mod enqueue;
mod failure;
mod out;
mod run;
mod show;

use std::process::ExitCode;

use clap::Parser;

use self::args::Arguments;
use self::failure::{Failure, complain};

fn main() -> ExitCode {
    let failure = match run::run(Arguments::parse()) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    complain(&failure);
    match failure {
        Failure::NobodyReads => ExitCode::SUCCESS,
        Failure::Failed(_) => ExitCode::from(1),
        Failure::Usage(_) => ExitCode::from(2),
    }
}

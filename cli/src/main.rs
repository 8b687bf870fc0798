//! The `venturi` command.

mod args;
mod cleanup;
mod connect;
mod enqueue;
mod failure;
mod out;
mod run;
mod show;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use self::args::Arguments;
use self::failure::Failure;

fn main() -> ExitCode {
    let failure = match run::run(Arguments::parse()) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    // If nobody reads what went wrong, the code still says it.
    let _ = match &failure {
        Failure::NobodyReads => Ok(()),
        Failure::Failed(_) | Failure::Usage(_) => writeln!(std::io::stderr(), "venturi: {failure}"),
    };
    match failure {
        Failure::NobodyReads => ExitCode::SUCCESS,
        Failure::Failed(_) => ExitCode::from(1),
        Failure::Usage(_) => ExitCode::from(2),
    }
}

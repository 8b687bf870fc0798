//! Runs a command with a private PostgreSQL server: `cargo run --example cluster -- COMMAND ARGUMENTS…`.
//!
//! The command finds the server in `DATABASE_URL`, and its binaries in `VENTURI_PG_BIN`. Both server and data are gone
//! when the command has ended. With `DATABASE_URL` set already, the command is run with that and no server is started.

#[path = "../tests/cluster/mod.rs"]
mod cluster;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

use cluster::{BINARIES_VARIABLE, Cluster, ClusterError, URL_VARIABLE, find_server_binaries};

/// As shells have it: the command was not found, or a signal ended it.
const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: cargo run --example cluster -- COMMAND ARGUMENTS…");
        return ExitCode::from(2);
    };
    match run(program, arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: OsString, arguments: impl Iterator<Item = OsString>) -> Result<u8, ClusterError> {
    let mut command = Command::new(&program);
    command.args(arguments);
    if let Ok(binaries) = find_server_binaries() {
        command.env(BINARIES_VARIABLE, binaries);
    }
    let given = env::var_os(URL_VARIABLE).is_some_and(|url| !url.is_empty());
    let cluster = if given { None } else { Some(Cluster::start()?) };
    if let Some(cluster) = &cluster {
        command.env(URL_VARIABLE, cluster.url());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("cluster: cannot run {}: {error}", program.to_string_lossy());
            return Ok(NOT_FOUND);
        }
    };
    if let Some(cluster) = &cluster {
        // Ctrl-C reaches us both. We end at once, while the command may still need the database to end well.
        cluster.outlive_us_for(child.id())?;
    }
    Ok(child.wait().map_or(1, code))
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

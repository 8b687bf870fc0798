use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::error::ClusterError;

/// Runs statements against any DSN; `binaries` is looked in first, then `PATH`.
///
/// Returns the rows, one a line, columns separated by `|`. The first error ends the run and is returned.
pub(crate) fn psql_at(binaries: &Path, url: &str, sql: &str) -> Result<String, ClusterError> {
    let program = Some(binaries.join("psql")).filter(|psql| psql.is_file());
    let mut command = Command::new(program.unwrap_or_else(|| "psql".into()));
    command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--no-password"]);
    command.args(["--set", "ON_ERROR_STOP=1", "--dbname", url, "--file", "-"]);
    without_postgres_variables(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(ClusterError::io("cannot run psql"))?;
    let output = feed(child, sql).map_err(ClusterError::io("cannot talk to psql"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(ClusterError::new(format!("psql failed: {}", said.trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The variables of the caller's own PostgreSQL (`PGHOST`, `PGDATA`, `PGOPTIONS` …) are not meant for ours.
pub(super) fn without_postgres_variables(command: &mut Command) {
    let is_theirs = |name: &OsString| name.as_encoded_bytes().starts_with(b"PG");
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_theirs(name)) {
        command.env_remove(name);
    }
}

/// Writes beside reading: rows and statements may both be larger than a pipe holds.
fn feed(mut child: Child, sql: &str) -> std::io::Result<Output> {
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // A failed write means that psql has gone; its exit status and its words tell more.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(sql.as_bytes())));
        child.wait_with_output()
    })
}

pub(super) fn quoted_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

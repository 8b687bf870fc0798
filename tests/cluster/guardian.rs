use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::account::Account;
use super::error::ClusterError;
use super::psql::without_postgres_variables;
use super::{PASSWORD, USER, port};

const SCRIPT: &str = include_str!("guardian.sh");

/// `fsync` stays on, so that what is measured and killed here behaves as in production.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = '128MB'
fsync = on
logging_collector = off
log_line_prefix = '%m [%p] %a '
";

/// The longest folder in which a server's socket, `/.s.PGSQL.12345`, still has a valid name: 104 bytes with its end
/// mark on macOS, 108 on Linux.
const LONGEST_FOLDER: usize = 85;

/// A process that outlives us by as long as it takes to stop our server and remove its folder.
///
/// `Drop` does not run when we are killed or interrupted. But the system closes our end of a pipe in every case, and
/// the guardian reads the other end. It is in a process group of its own, out of reach of Ctrl-C. It runs as the
/// server's user, and so can neither signal nor remove what is not that user's.
#[derive(Debug)]
pub(super) struct Guardian {
    folder: PathBuf,
    child: Child,
    // Closed on `exec` like all that the standard library opens, so neither a server nor any other child of ours keeps
    // it open.
    line: Mutex<Option<ChildStdin>>,
}

impl Guardian {
    /// Starts the guardian and returns when it has made the folder and the data in it.
    pub(super) fn start(binaries: &Path, account: Account) -> Result<Self, ClusterError> {
        let folder = unused_folder(account)?;
        let mut child =
            spawn(&folder, binaries, account).map_err(ClusterError::io("cannot run `sh`, to guard a cluster"))?;
        let line = Mutex::new(child.stdin.take());
        let answers = child.stdout.take();
        let guardian = Self { folder, child, line };
        let mut answer = String::new();
        if let Some(mut answers) = answers {
            // To its end: the guardian closes it when the cluster is made.
            answers.read_to_string(&mut answer).map_err(ClusterError::io("cannot hear the guardian"))?;
        }
        match answer.trim_end() {
            "ready" => Ok(guardian),
            trouble => Err(ClusterError::new(format!("cannot make a cluster:\n{trouble}"))),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn note_running(&self) -> Result<(), ClusterError> {
        self.tell("running\n")
    }

    pub(super) fn note_stopped(&self) -> Result<(), ClusterError> {
        self.tell("stopped\n")
    }

    pub(super) fn hold_for(&self, pid: u32) -> Result<(), ClusterError> {
        self.tell(&format!("hold {pid}\n"))
    }

    fn tell(&self, words: &str) -> Result<(), ClusterError> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        match line.as_mut() {
            Some(line) => line.write_all(words.as_bytes()),
            None => Ok(()),
        }
        .map_err(ClusterError::io("the cluster's guardian has gone"))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Dropped on purpose, not ended by a signal: nobody is waited for.
        let _ = self.tell("hold\n");
        self.line.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, binaries: &Path, account: Account) -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "venturi-guardian"]).arg(folder).arg(binaries);
    command.args([USER, PASSWORD, SETTINGS]).current_dir("/");
    // Messages in one language; and a zone, which `initdb` would otherwise look for at length.
    command.env("LC_ALL", "C").env("TZ", "UTC");
    without_postgres_variables(&mut command);
    account.apply(&mut command);
    // Stderr is not inherited: who reads ours to its end would wait for the guardian too.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn()
}

/// A new name in the system's folder for temporary files, or in `/tmp` where that one is of no use to a server.
fn unused_folder(account: Account) -> Result<PathBuf, ClusterError> {
    let name = format!("venturi-{}-{:08x}", std::process::id(), port::random() & 0xffff_ffff);
    [std::env::temp_dir(), PathBuf::from("/tmp")]
        .iter()
        .filter(|parent| parent.is_absolute() && is_usable(parent, account))
        .map(|parent| parent.join(&name))
        .find(|folder| folder.as_os_str().len() <= LONGEST_FOLDER)
        .ok_or_else(|| {
            ClusterError::new(format!(
                "the server's user can't write to {} or /tmp, or the name is too long for a socket",
                std::env::temp_dir().display()
            ))
        })
}

/// Root's own `TMPDIR` may be closed to the user that the server runs as.
fn is_usable(parent: &Path, account: Account) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", r#"[ -w "$1" ] && [ -x "$1" ]"#, "sh"]).arg(parent).current_dir("/");
    account.apply(&mut command);
    command.status().is_ok_and(|status| status.success())
}

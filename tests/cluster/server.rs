use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::USER;
use super::account::Account;
use super::error::ClusterError;
use super::guardian::Guardian;
use super::psql::without_postgres_variables;

/// Recovery after a crash included; a loaded machine is slow.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// A fast stop writes a checkpoint; an immediate one waits 5 s for its backends before it kills them.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the server says when it only came too early: its port or its memory still belongs to another.
const OCCUPIED: &[&str] = &["Address already in use", "pre-existing shared memory block"];

/// Where a cluster is, and what and who runs it.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) folder: PathBuf,
    pub(super) binaries: PathBuf,
    pub(super) account: Account,
}

impl Site {
    pub(super) fn log(&self) -> Result<String, ClusterError> {
        let bytes = std::fs::read(self.log_file()).map_err(ClusterError::io("cannot read the server's log"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Makes of these data a standby of the server there, from a copy of its data; it has to be stopped meanwhile.
    pub(super) fn follow(&self, primary: &Self, port: u16) -> Result<(), ClusterError> {
        let settings = format!("primary_conninfo = 'host={} port={port} user={USER}'\n", primary.folder.display());
        let mut command = Command::new("sh");
        command.args(["-c", FOLLOW, "sh"]).arg(self.data()).arg(primary.data()).arg(settings).current_dir("/");
        self.account.apply(&mut command);
        let copied = command.output().map_err(ClusterError::io("cannot copy a server's data"))?;
        let said = String::from_utf8_lossy(&copied.stderr);
        if copied.status.success() { Ok(()) } else { Err(ClusterError::new(format!("no standby: {said}"))) }
    }
}

/// A cold copy needs no program of the server's, of which packages leave out some.
const FOLLOW: &str = r#"rm -r "$1" && cp -a "$2" "$1" && rm -f "$1/postmaster.pid" && touch "$1/standby.signal" &&
    printf '%s' "$3" >>"$1/postgresql.auto.conf""#;

/// Why a server did not start.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// Something of another process is in the way; later, or on another port, it may work.
    Occupied(ClusterError),
    Other(ClusterError),
}

impl From<ClusterError> for StartFailure {
    fn from(error: ClusterError) -> Self {
        Self::Other(error)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Fast,
    Immediate,
    Kill,
}

impl Stop {
    /// The signal that the postmaster takes for this.
    fn signal(self) -> &'static str {
        match self {
            Self::Fast => "INT",
            Self::Immediate => "QUIT",
            Self::Kill => "KILL",
        }
    }
}

/// A postmaster, our child: only its parent can tell that it has ended from that it is slow.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
}

impl Server {
    /// Starts a server and returns when it accepts connections.
    pub(super) fn start(site: &Site, port: u16, guardian: &Guardian) -> Result<Self, StartFailure> {
        let logged_before = site.log().map_or(0, |log| log.len());
        // Told first: were we killed between the two, the guardian would still look for a server.
        guardian.note_running()?;
        let mut server = Self { child: spawn(site, port)? };
        match server.await_ready(site) {
            Ok(()) => Ok(server),
            Err(error) => Err(server.failure(site, logged_before, error)),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn stop(mut self, how: Stop) -> Result<(), ClusterError> {
        signal(self.pid(), how.signal())?;
        let deadline = Instant::now() + STOPPED_WITHIN;
        while self.ended()?.is_none() {
            if Instant::now() >= deadline {
                return Err(ClusterError::new(format!(
                    "the server did not stop within {STOPPED_WITHIN:?} ({how:?}); it was killed"
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn await_ready(&mut self, site: &Site) -> Result<(), ClusterError> {
        let deadline = Instant::now() + READY_WITHIN;
        while !self.is_ready(site) {
            if let Some(status) = self.ended()? {
                return Err(ClusterError::new(format!("the server ended at its start ({status})")));
            }
            if Instant::now() >= deadline {
                return Err(ClusterError::new(format!("the server was not ready within {READY_WITHIN:?}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// As `pg_ctl` does it: the eighth line of `postmaster.pid` is the state. The first is the owner, and after a crash
    /// the file may still be the last server's.
    fn is_ready(&self, site: &Site) -> bool {
        let text = std::fs::read_to_string(site.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        let state = |line| matches!(line, "ready" | "standby");
        lines.next() == Some(self.pid().to_string().as_str()) && lines.nth(6).is_some_and(state)
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, ClusterError> {
        self.child.try_wait().map_err(ClusterError::io("cannot wait for the server"))
    }

    fn failure(self, site: &Site, logged_before: usize, error: ClusterError) -> StartFailure {
        // Ended before its log is read, so that the log is complete.
        drop(self);
        let log = site.log().unwrap_or_default();
        let said = log.get(logged_before..).unwrap_or(&log);
        let error = ClusterError::new(format!("{error}; it said:\n{}", said.trim_end()));
        if OCCUPIED.iter().any(|phrase| said.contains(phrase)) {
            StartFailure::Occupied(error)
        } else {
            StartFailure::Other(error)
        }
    }
}

impl Drop for Server {
    /// For the ways out that did not stop it. A child that has ended is only reaped.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(site: &Site, port: u16) -> Result<Child, ClusterError> {
    let log = File::options()
        .append(true)
        .create(true)
        .open(site.log_file())
        .map_err(ClusterError::io("cannot open the server's log"))?;
    let log_too = log.try_clone().map_err(ClusterError::io("cannot open the server's log"))?;
    let mut command = Command::new(site.binaries.join("postgres"));
    command.arg("-D").arg(site.data()).arg("-p").arg(port.to_string());
    command.arg("-k").arg(&site.folder).current_dir(&site.folder);
    command.env("LC_ALL", "C");
    without_postgres_variables(&mut command);
    site.account.apply(&mut command);
    // A group of its own: Ctrl-C is for us, and would be a fast shutdown for a postmaster.
    command.process_group(0).stdin(Stdio::null()).stdout(log).stderr(log_too);
    command.spawn().map_err(ClusterError::io("cannot run `postgres`"))
}

/// Through the shell's built-in: the `kill` program is not installed everywhere.
pub(crate) fn signal(pid: u32, name: &str) -> Result<(), ClusterError> {
    let doing = || format!("cannot send SIG{name} to process {pid}");
    let status = Command::new("sh")
        .args(["-c", r#"kill -s "$1" "$2""#, "sh", name, &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .map_err(ClusterError::io(doing()))?;
    // It may have ended by itself already; but until we reap it its process id is nobody else's, and takes signals.
    if status.success() { Ok(()) } else { Err(ClusterError::new(doing())) }
}

//! The harness that the other tests stand on: private clusters start, crash, come back, and always go away.

#![allow(clippy::disallowed_methods, reason = "real processes are waited for by the real clock")]

mod cluster;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cluster::{Cluster, find_server_binaries, psql_at};

/// Set for a copy of this test binary that owns clusters until it is ended: what it does before it waits.
const OWNER: &str = "VENTURI_HARNESS_OWNER";
/// Long enough for a loaded machine; a cluster normally goes in a fifth of a second.
const GONE_WITHIN: Duration = Duration::from_secs(30);

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[test]
fn a_cluster_runs_with_the_settings_that_the_tests_rely_on() -> Outcome {
    let cluster = Cluster::start()?;
    let setting = |name: &str| cluster.psql(&format!("SHOW {name}"));
    assert_eq!(setting("fsync")?, "on");
    assert_eq!(setting("listen_addresses")?, "127.0.0.1");
    assert_eq!(setting("max_connections")?, "200");
    assert_eq!(setting("server_encoding")?, "UTF8");
    assert_eq!(setting("lc_collate").unwrap_or_else(|_| "C".to_owned()), "C");
    assert_eq!(setting("port")?, cluster.port().to_string());
    assert!(cluster.log()?.contains("ready to accept connections"));
    Ok(())
}

#[test]
fn a_password_is_asked_for_over_tcp_but_not_over_the_socket() -> Outcome {
    let cluster = Cluster::start()?;
    let binaries = find_server_binaries()?;
    let whoami = "SELECT current_user || '@' || current_database()";
    assert_eq!(psql_at(&binaries, &cluster.url(), whoami)?, "venturi@venturi");
    assert_eq!(psql_at(&binaries, &cluster.socket_url(), whoami)?, "venturi@venturi");

    let wrong = cluster.url().replace(cluster::PASSWORD, "wrong");
    let refusal = psql_at(&binaries, &wrong, whoami).err().map(|error| error.to_string());
    assert!(refusal.as_ref().is_some_and(|said| said.contains("password authentication failed")), "{refusal:?}");
    Ok(())
}

#[test]
fn a_stopped_cluster_comes_back_on_the_same_port_with_its_data() -> Outcome {
    let cluster = Cluster::start()?;
    let (url, binaries) = (cluster.url(), find_server_binaries()?);
    cluster.psql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")?;

    cluster.stop_fast()?;
    assert!(psql_at(&binaries, &url, "SELECT 1").is_err());
    assert_eq!(cluster.pid(), None);
    cluster.stop_fast()?; // Nothing left to do, and no error.
    cluster.restart()?;
    assert_eq!(psql_at(&binaries, &url, "SELECT n FROM kept")?, "1");

    cluster.stop_immediate()?;
    cluster.restart()?;
    assert_eq!(psql_at(&binaries, &url, "SELECT n FROM kept")?, "1");

    // A restart of a running server is a stop and a start.
    let before = cluster.pid();
    cluster.restart()?;
    assert_ne!(cluster.pid(), before);
    assert_eq!(cluster.url(), url);
    Ok(())
}

#[test]
fn a_killed_server_recovers_what_was_committed() -> Outcome {
    let cluster = Cluster::start()?;
    cluster.psql("CREATE TABLE kept (n int)")?;
    for round in 1..=3 {
        cluster.psql(&format!("INSERT INTO kept VALUES ({round})"))?;
        // A backend that computes when its postmaster dies goes on until it next waits, with the shared memory in hand.
        let mut busy = Busy::start(&cluster)?;
        cluster.kill()?;
        cluster.restart()?;
        busy.0.wait()?;
        assert_eq!(cluster.psql("SELECT count(*) FROM kept")?, round.to_string());
    }
    assert!(cluster.log()?.contains("was not properly shut down; automatic recovery in progress"));
    Ok(())
}

#[test]
fn a_restart_waits_for_its_port() -> Outcome {
    let cluster = Cluster::start()?;
    cluster.stop_fast()?;
    let intruder = TcpListener::bind((Ipv4Addr::LOCALHOST, cluster.port()))?;
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| cluster.restart());
        std::thread::sleep(Duration::from_millis(500));
        assert!(!restart.is_finished(), "the port was taken, and yet the restart has ended");
        drop(intruder);
        restart.join().map_err(|_| "the restart panicked")?.map_err(Box::from)
    })
}

#[test]
fn two_clusters_run_at_once_and_go_one_by_one() -> Outcome {
    let (first, second) = (Cluster::start()?, Cluster::start()?);
    assert_ne!(first.port(), second.port());
    first.psql("CREATE TABLE only_here ()")?;
    assert!(second.psql("SELECT FROM only_here").is_err());

    // Were the first's pipe open in the second's processes, its guardian would not see it close.
    let folder = first.folder().to_owned();
    drop(first);
    assert!(!folder.exists());
    assert_eq!(second.psql("SELECT 1")?, "1");
    Ok(())
}

#[test]
fn a_created_database_is_reached_through_its_url() -> Outcome {
    let cluster = Cluster::start()?;
    let binaries = find_server_binaries()?;
    for name in ["other", "with space, \"quotes\" & ünïcode/%"] {
        let url = cluster.create_database(name)?;
        assert_eq!(psql_at(&binaries, &url, "SELECT current_database()")?, name);
    }
    let twice = cluster.create_database("other").err().map(|error| error.to_string());
    assert!(twice.as_ref().is_some_and(|said| said.contains("already exists")), "{twice:?}");
    Ok(())
}

#[test]
fn psql_takes_and_returns_more_than_a_pipe_holds() -> Outcome {
    let cluster = Cluster::start()?;
    let statement = "SELECT repeat('x', 1000);\n";
    let rows = cluster.psql(&statement.repeat(2_000))?;
    assert_eq!(rows.lines().count(), 2_000);
    Ok(())
}

#[test]
fn a_dropped_cluster_leaves_nothing_behind() -> Outcome {
    for stopped in [false, true] {
        let cluster = Cluster::start()?;
        let (folder, pid) = (cluster.folder().to_owned(), cluster.pid());
        if stopped {
            cluster.kill()?;
        }
        drop(cluster);
        assert!(!folder.exists());
        assert!(!pid.is_some_and(is_running));
    }
    Ok(())
}

#[test]
fn a_cluster_is_removed_when_its_owner_is_killed() -> Outcome {
    let mut owner = Owner::start("clusters")?;
    owner.child.kill()?; // SIGKILL
    owner.assert_all_gone()
}

#[test]
fn a_cluster_is_removed_when_its_owner_is_interrupted() -> Outcome {
    let mut owner = Owner::start("clusters")?;
    // To the whole group, as a terminal does it for Ctrl-C.
    signal("INT", &format!("-{}", owner.child.id()))?;
    owner.assert_all_gone()
}

#[test]
fn a_cluster_is_removed_when_its_owner_panics() -> Outcome {
    Owner::start("panic")?.assert_all_gone()
}

#[test]
fn a_cluster_is_removed_when_its_owner_is_killed_while_making_it() -> Outcome {
    // From before the folder is there to when the server runs; the owner has a folder for temporary files of its own.
    for delay in [20, 100, 300, 500, 700, 900, 1100] {
        let temporary = Temporary::new(delay)?;
        let mut owner = Owner::command("silent")?.env("TMPDIR", &temporary.0).spawn()?;
        std::thread::sleep(Duration::from_millis(delay));
        owner.kill()?;
        owner.wait()?;
        eventually(|| temporary.is_abandoned(), "the temporary folder is empty again, and nobody works in it")?;
        // What the owner had started may have been too slow to be there yet; it goes, too, once it finds its owner gone.
        std::thread::sleep(Duration::from_millis(200));
        eventually(|| temporary.is_abandoned(), "what came late has gone as well")?;
    }
    Ok(())
}

#[test]
fn a_cluster_outlives_its_owner_for_the_process_that_it_is_held_for() -> Outcome {
    let mut owner = Owner::start("hold")?;
    owner.child.kill()?;
    std::thread::sleep(Duration::from_millis(500));
    let (folder, server) = owner.owned.first().ok_or("the owner told of no cluster")?.clone();
    assert!(folder.exists() && is_running(server), "gone although it was held");
    signal("KILL", &owner.held.ok_or("the owner told of no held process")?.to_string())?;
    owner.assert_all_gone()
}

/// Not a test of its own: what the copies do that the tests above start and end.
#[test]
fn an_owner_of_clusters() -> Outcome {
    match std::env::var(OWNER).as_deref() {
        Ok("silent") => own_one_silently(),
        Ok(task) => own_two(task),
        Err(_) => Ok(()),
    }
}

fn own_one_silently() -> Outcome {
    let _cluster = Cluster::start()?;
    wait_for_the_end()
}

fn own_two(task: &str) -> Outcome {
    let clusters = [Cluster::start()?, Cluster::start()?];
    for cluster in &clusters {
        let pid = cluster.pid().ok_or("no server")?;
        eprintln!("owns {pid} {}", cluster.folder().display());
    }
    if task == "hold" {
        let held = Command::new("sleep").arg("60").stderr(Stdio::null()).spawn()?;
        for cluster in &clusters {
            cluster.outlive_us_for(held.id())?;
        }
        eprintln!("holds {}", held.id());
    }
    eprintln!("owns all");
    assert_ne!(task, "panic", "as told");
    wait_for_the_end()
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// A copy of this binary, and the clusters that it says it owns.
struct Owner {
    child: Child,
    owned: Vec<(PathBuf, u32)>,
    held: Option<u32>,
}

impl Owner {
    fn start(task: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut child = Self::command(task)?.stderr(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stderr.take().ok_or("no pipe")?).lines();
        let mut owner = Self { child, owned: Vec::new(), held: None };
        for line in lines {
            match line?.split(' ').collect::<Vec<_>>().as_slice() {
                ["owns", "all"] => return Ok(owner),
                ["owns", pid, folder] => owner.owned.push((folder.into(), pid.parse()?)),
                ["holds", pid] => owner.held = Some(pid.parse()?),
                _ => {}
            }
        }
        Err("the owner ended early".into())
    }

    /// In a process group of its own, for a Ctrl-C that is not for us; which we may have been started to ignore, as what
    /// runs in a shell's background is.
    fn command(task: &str) -> std::io::Result<Command> {
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(std::env::current_exe()?);
        command.args(["--exact", "an_owner_of_clusters", "--nocapture"]).env(OWNER, task);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    fn assert_all_gone(&mut self) -> Outcome {
        assert_eq!(self.owned.len(), 2);
        let mut status = None;
        eventually(
            || {
                status = self.child.try_wait().ok().flatten();
                status.is_some()
            },
            "the owner has ended",
        )?;
        assert!(status.is_some_and(|status| !status.success()));
        for (folder, server) in &self.owned {
            eventually(|| !folder.exists(), "the folder is removed")?;
            eventually(|| !is_running(*server), "the server has ended")?;
        }
        Ok(())
    }
}

/// A session that is computing, not waiting, when its server is killed.
struct Busy(Child);

impl Busy {
    fn start(cluster: &Cluster) -> Result<Self, Box<dyn std::error::Error>> {
        let sql = "SELECT count(sqrt(a * b)) FROM generate_series(1, 3000) a, generate_series(1, 3000) b";
        let psql = find_server_binaries()?.join("psql");
        let mut command = Command::new(if psql.is_file() { psql } else { "psql".into() });
        command.args(["--no-psqlrc", "--dbname", &cluster.url(), "--command", sql]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%sqrt(a%' \
             AND pid <> pg_backend_pid()";
        eventually(|| cluster.psql(active).is_ok_and(|n| n == "1"), "the session is busy")?;
        Ok(Self(child))
    }
}

/// A folder for temporary files that the server's user may write to, whoever that is.
struct Temporary(PathBuf);

impl Temporary {
    fn new(delay: u64) -> std::io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("harness-{}-{delay}", std::process::id()));
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
        Ok(Self(path))
    }

    /// Empty alone could mean that the guardian has not got to it yet.
    fn is_abandoned(&self) -> bool {
        self.0.read_dir().is_ok_and(|mut entries| entries.next().is_none()) && !self.is_in_a_command_line()
    }

    /// As it is in the guardian's, the server's and `initdb`'s.
    fn is_in_a_command_line(&self) -> bool {
        let Ok(processes) = Path::new("/proc").read_dir() else {
            let ps = Command::new("ps").args(["-A", "-o", "args="]).output();
            return ps.is_ok_and(|ps| self.is_in(&ps.stdout));
        };
        processes.flatten().any(|process| std::fs::read(process.path().join("cmdline")).is_ok_and(|it| self.is_in(&it)))
    }

    fn is_in(&self, text: &[u8]) -> bool {
        let path = self.0.as_os_str().as_encoded_bytes();
        text.windows(path.len()).any(|window| window == path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn eventually(mut condition: impl FnMut() -> bool, what: &str) -> Outcome {
    let deadline = Instant::now() + GONE_WITHIN;
    while !condition() {
        if Instant::now() >= deadline {
            return Err(format!("not within {GONE_WITHIN:?}: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A zombie whose new parent is slow to reap it has ended too.
fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    match status {
        Ok(status) => !status.lines().any(|line| line.starts_with("State:\tZ")),
        Err(_) => signal("0", &pid.to_string()).is_ok(),
    }
}

fn signal(name: &str, target: &str) -> Outcome {
    let status = Command::new("sh")
        .args(["-c", r#"kill -s "$1" -- "$2""#, "sh", name, target])
        .stderr(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("no process {target}").into()) }
}

//! Workers in a process of their own, for what kills, stops or aborts a whole process.
//!
//! The child is this test program again, told to run the one test that [`serve`] stands behind. Its handlers have a
//! lab of their own, so parent and child meet only in the database.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use venturi::Database;

use super::front::{Front, WorkerSpec};
use super::lab::Lab;
use super::place::eventually;
use super::stage::Stage;

const VARIABLE: &str = "VENTURI_SUITE_CHILD";

/// A worker whose parent has vanished ends with it, or after this time.
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    url: String,
    schema: String,
    worker: WorkerSpec,
    mood: Mood,
}

/// What is special about the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mood {
    Usual,
    /// The logger panics with each line.
    LoggerPanics,
}

/// What the test `child_process` of each mount does: nothing, unless it is the child.
pub(crate) fn serve(front: &dyn Front) {
    let Ok(orders) = std::env::var(VARIABLE) else { return };
    let Orders { url, schema, worker, mood } = serde_json::from_str(&orders).expect("orders from the parent");
    match mood {
        Mood::Usual => {}
        Mood::LoggerPanics => {
            std::panic::set_hook(Box::new(|_| {}));
            log::set_logger(&PanickingLogger).expect("the only logger");
            log::set_max_level(log::LevelFilter::Trace);
        }
    }
    let database = Database::new(&url).and_then(|it| it.schema(&schema)).expect("a database");
    let lab = Arc::<Lab>::default();
    let _ = lab.place.set((url.clone(), schema.clone()));
    let running = front.start(&worker, database, Arc::clone(&lab)).expect("a worker");
    // The parent lets go of the other end when the worker shall stop, or when it dies.
    std::thread::scope(|scope| {
        scope.spawn(|| drop(std::io::stdin().read(&mut [0])));
    });
    running.tell_to_stop();
    let report = running.end_within(LONGEST).expect("a report");
    let signals: Vec<_> = lab.look(|book| book.runs.iter().filter_map(|run| run.cancelled).collect());
    println!("report: settled={} late={} signals={signals:?}", report.settled, report.late);
}

struct PanickingLogger;

impl log::Log for PanickingLogger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        assert!(record.target() != "venturi", "the logger");
    }

    fn flush(&self) {}
}

/// A child process; killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Worker {
    pub(crate) fn start(stage: &Stage<'_>, spec: &WorkerSpec, mood: Mood) -> Self {
        let orders =
            Orders { url: stage.place.url.clone(), schema: stage.place.schema.clone(), worker: spec.clone(), mood };
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([&format!("{}::child_process", stage.front.mount()), "--exact", "--nocapture"]);
        command.env(VARIABLE, serde_json::to_string(&orders).expect("orders"));
        Self::spawn(command)
    }

    /// A worker in a program that was built to abort on panic, as test programs never are; its handler panics.
    pub(crate) fn start_aborting(stage: &Stage<'_>) -> Self {
        let mut command = Command::new(super::aborting::program());
        command.args([stage.front.name(), &stage.place.url, &stage.place.schema]);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a child");
        let stdin = child.stdin.take();
        Self { child, stdin }
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "sh", name, &pid]).status();
        assert!(status.is_ok_and(|status| status.success()), "SIG{name}");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// Waits until the process has ended by itself, and says how.
    pub(crate) fn wait_end(&mut self) -> ExitStatus {
        eventually("the child has ended", || self.child.try_wait().expect("a child of ours"))
    }

    /// Tells the worker to stop, and returns what it says of itself.
    pub(crate) fn stop(mut self) -> String {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(b".");
        }
        self.wait_end();
        let mut said = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut said).expect("the child's words");
        }
        said.lines().find(|line| line.starts_with("report: ")).map_or(said.clone(), str::to_owned)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A stopped process can be killed too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

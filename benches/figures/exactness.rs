//! Several worker processes on one queue: every run counted, every entry there.

use std::env;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use venturi::Database;

use crate::support::Result;
use crate::support::front::{self, Front, Lab, Spec, Tick};
use crate::support::server::Server;

const JOBS: usize = 2_000;

/// A process that works until it is killed.
pub(crate) fn serve(mut words: impl Iterator<Item = String>) -> Result<()> {
    let (name, dsn) = words.next().zip(words.next()).ok_or("--worker FRONT DSN")?;
    let front = Front::BOTH.into_iter().find(|front| front.name() == name).ok_or("no such front-end")?;
    let database = Database::new(&dsn)?.schema("figures_exact")?;
    let _running = front.start(&database, &Lab::new(), Spec { concurrency: 8, ..Spec::default() })?;
    // Longer than the figures take: whoever started this process ends it.
    thread::sleep(Duration::from_secs(300));
    Ok(())
}

/// Jobs that fail never, once or twice, shared by processes of eight slots.
pub(crate) fn report(server: &Server, front: Front, processes: usize) -> Result<()> {
    let database = server.queue("figures_exact")?;
    let queue = venturi::blocking::Queue::connect(&database)?;
    queue.enqueue_many((0..JOBS).map(|nth| Tick { nap_ms: 0, failures: u32::try_from(nth % 3).unwrap_or(0) }))?;
    let began = Instant::now();
    let workers = (0..processes).map(|_| Worker::start(server, front)).collect::<Result<Vec<_>>>()?;
    let mut client = server.connect()?;
    let open = "SELECT count(*) FROM figures_exact.jobs WHERE status IN ('pending', 'claimed')";
    front::poll(Duration::from_secs(120), || Ok((client.query_one(open, &[])?.get::<_, i64>(0) == 0).then_some(())))?;
    let took = began.elapsed();
    drop(workers);
    let wrong: i64 = client.query_one(WRONG, &[])?.get(0);
    println!("  {processes} processes × 8 slots, {JOBS} jobs failing 0 to 2 times: {wrong} wrong, {took:.1?}");
    if wrong == 0 { Ok(()) } else { Err("run counts and journals are exact".into()) }
}

/// Jobs that are not completed, were not run as often as they should, or whose journal has a gap.
const WRONG: &str = "
SELECT count(*) FROM figures_exact.jobs j
WHERE j.status <> 'completed'
   OR j.failure_count <> (j.payload ->> 'failures')::int
   OR j.run_count <> 1 + (j.payload ->> 'failures')::int
   OR (SELECT array_agg(e.run_no ORDER BY e.run_no) FROM figures_exact.journal_entries e WHERE e.job_id = j.id)
      IS DISTINCT FROM ARRAY(SELECT generate_series(1, j.run_count))";

/// A worker process; killed when it is dropped.
struct Worker(Child);

impl Worker {
    fn start(server: &Server, front: Front) -> Result<Self> {
        Ok(Self(Command::new(env::current_exe()?).args(["--worker", front.name(), &server.dsn]).spawn()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

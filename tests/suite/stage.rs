//! One test: its schema, its lab, its workers, and the end of all of them.

use std::cell::{OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use venturi::Database;

use super::front::{Front, Handlers, Job, Producer, Running, WorkerSpec};
use super::lab::{Lab, Run};
use super::place::{self, JobRow, Place};
use super::probe::Kind;

/// How long a test that is over waits for its workers. They are told to stop and their handlers are let go.
const WIND_DOWN: Duration = Duration::from_secs(20);

pub(crate) struct Stage<'a> {
    pub(crate) front: &'a dyn Front,
    pub(crate) place: Place,
    pub(crate) lab: Arc<Lab>,
    queue: OnceCell<Box<dyn Producer>>,
    workers: RefCell<Vec<Rc<Running>>>,
}

impl<'a> Stage<'a> {
    /// A migrated schema on the shared server.
    pub(crate) fn new(front: &'a dyn Front) -> Self {
        Self::at(front, place::url())
    }

    /// A migrated schema on this server.
    pub(crate) fn at(front: &'a dyn Front, url: String) -> Self {
        let stage = Self::bare(front, url);
        front.migrate(&stage.place.database()).expect("migrating an empty schema");
        stage
    }

    /// A schema that is not there yet.
    pub(crate) fn bare(front: &'a dyn Front, url: String) -> Self {
        // With RUST_LOG set, a failing test shows what the workers had to say.
        let _ = env_logger::builder().is_test(true).try_init();
        let (queue, workers) = (OnceCell::new(), RefCell::default());
        let (place, lab) = (Place::new(url), Arc::<Lab>::default());
        let _ = lab.place.set((place.url.clone(), place.schema.clone()));
        Self { front, place, lab, queue, workers }
    }

    pub(crate) fn on_threads(&self) -> bool {
        self.front.handlers() == Handlers::Threads
    }

    pub(crate) fn queue(&self) -> &dyn Producer {
        let connect = || self.front.connect(&self.place.database_named("producer")).expect("connecting the queue");
        &**self.queue.get_or_init(connect)
    }

    /// Enqueues a job, and returns its number.
    pub(crate) fn enqueue(&self, job: Job) -> i64 {
        self.queue().enqueue(job).expect("enqueueing").id.get()
    }

    pub(crate) fn enqueue_many(&self, kind: Kind, jobs: impl IntoIterator<Item = Job>) -> Vec<i64> {
        let stored = self.queue().enqueue_many(kind, jobs.into_iter().collect()).expect("enqueueing");
        stored.into_iter().map(|it| it.id.get()).collect()
    }

    /// Starts a worker, which is stopped at the end of the test at the latest.
    pub(crate) fn work(&self, spec: &WorkerSpec) -> Rc<Running> {
        self.work_on(spec, self.place.database())
    }

    /// The same, where the database is reached in another way.
    pub(crate) fn work_on(&self, spec: &WorkerSpec, database: Database) -> Rc<Running> {
        self.keep(self.front.start(spec, database, Arc::clone(&self.lab)).expect("building a worker"))
    }

    pub(crate) fn keep(&self, running: Running) -> Rc<Running> {
        let running = Rc::new(running);
        self.workers.borrow_mut().push(Rc::clone(&running));
        running
    }

    /// Starts a worker that is listening and has found nothing to do.
    pub(crate) fn work_idle(&self, spec: &WorkerSpec) -> Rc<Running> {
        let before = self.listeners();
        let running = self.work(spec);
        place::eventually("the worker listens", || {
            self.listeners().iter().any(|pid| !before.contains(pid)).then_some(())
        });
        running
    }

    /// The connections of workers whose latest statement was to listen. One that has said anything since is not among
    /// them, so they cannot be counted.
    pub(crate) fn listeners(&self) -> Vec<i32> {
        self.place.backends("query LIKE '%LISTEN%'")
    }

    /// Completes a job that is enqueued now: whatever happened before, the worker works.
    pub(crate) fn assert_works(&self, tag: &str) {
        let id = self.enqueue(super::probe::job(tag));
        self.place.wait_status(id, "completed");
    }

    /// Runs one job to its end, and returns its row.
    pub(crate) fn finish(&self, job: Job) -> (i64, JobRow) {
        let id = self.enqueue(job);
        let row = self.place.wait_job(id, "finished", |row| !matches!(row.status.as_str(), "pending" | "claimed"));
        (id, row)
    }
}

/// What handlers have seen is asked for most of all.
impl Deref for Stage<'_> {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.lab.open_all();
        let workers = self.workers.take();
        workers.iter().for_each(|worker| worker.tell_to_stop());
        workers.iter().for_each(|worker| worker.wind_down(WIND_DOWN));
        self.place.clean_up();
    }
}

/// The times between the starts of consecutive runs.
pub(crate) fn gaps(runs: &[Run]) -> Vec<Duration> {
    runs.windows(2).map(|pair| pair[1].started - pair[0].started).collect()
}

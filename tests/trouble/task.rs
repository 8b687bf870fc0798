//! The jobs: each writes what it does, and by which claim, into the table of effects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postgres::NoTls;
use serde::{Deserialize, Serialize};
use venturi::{Context, DedupKey, ErrorKind, Merge, Outcome, Pending, Task, TaskError};

const BREATH: Duration = Duration::from_millis(20);

/// `execution` tells a statement that is said again from a second execution.
const NOTE: &str = "INSERT INTO ledger.effects (job, run, execution, worker, tags) VALUES ($1, $2, $3, $4, $5) \
                    ON CONFLICT (job, run, execution) DO NOTHING";

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Deed {
    /// So many milliseconds.
    Work(u64),
    FailAtFirst,
    PanicAtFirst,
    PauseAtFirst,
}

/// Its effect is outside the completing transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Errand {
    /// What it was asked for by; more than one, when jobs were merged.
    pub(crate) tags: Vec<String>,
    pub(crate) deed: Deed,
    pub(crate) key: Option<String>,
}

impl Task for Errand {
    const KIND: &'static str = "errand";
    type Carry = ();

    fn dedup_key(&self) -> Option<DedupKey> {
        self.key.as_deref().map(Into::into)
    }

    fn merge(&self, pending: &Pending<Self>) -> Merge<Self> {
        let tags = pending.task.tags.iter().chain(&self.tags).cloned().collect();
        Merge::with(Self { tags, ..self.clone() })
    }
}

/// Its effect is in the completing transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Exact {
    pub(crate) tags: Vec<String>,
}

impl Task for Exact {
    const KIND: &'static str = "exact";
    type Carry = ();
}

/// What handlers share: how they reach the table of effects, behind the faults of the wire.
#[derive(Clone)]
pub(crate) struct Room(Arc<Shared>);

struct Shared {
    url: String,
    worker: String,
    executions: AtomicU64,
    blocking: Mutex<Vec<postgres::Client>>,
    asynchronous: Mutex<Vec<tokio_postgres::Client>>,
}

/// One execution, as its effect has it.
struct Effect {
    job: i64,
    run: i32,
    execution: i64,
    worker: String,
    tags: Vec<String>,
}

impl Effect {
    fn parameters(&self) -> [&(dyn postgres::types::ToSql + Sync); 5] {
        [&self.job, &self.run, &self.execution, &self.worker, &self.tags]
    }
}

impl Room {
    pub(crate) fn new(url: String, worker: String) -> Self {
        let (blocking, asynchronous) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { url, worker, executions: AtomicU64::new(0), blocking, asynchronous }))
    }

    fn effect<C>(&self, context: &Context<C>, tags: &[String]) -> Result<Effect, TaskError> {
        let nth = self.0.executions.fetch_add(1, Ordering::Relaxed);
        let execution = i64::from(std::process::id()) << 32 | i64::try_from(nth)?;
        let (job, run) = (context.job_id().get(), i32::try_from(context.run_count())?);
        Ok(Effect { job, run, execution, worker: self.0.worker.clone(), tags: tags.to_vec() })
    }

    fn client(&self) -> Result<postgres::Client, postgres::Error> {
        let kept = self.0.blocking.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.filter(|it| !it.is_closed()).map_or_else(|| postgres::Client::connect(&self.0.url, NoTls), Ok)
    }

    fn keep(&self, client: postgres::Client) {
        self.0.blocking.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    async fn async_client(&self) -> Result<tokio_postgres::Client, postgres::Error> {
        let kept = self.0.asynchronous.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(client) = kept.filter(|it| !it.is_closed()) {
            return Ok(client);
        }
        let (client, connection) = tokio_postgres::connect(&self.0.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    fn keep_async(&self, client: tokio_postgres::Client) {
        self.0.asynchronous.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    fn note(&self, effect: &Effect) -> Result<(), postgres::Error> {
        let mut client = self.client()?;
        client.execute(NOTE, &effect.parameters())?;
        self.keep(client);
        Ok(())
    }

    async fn note_async(&self, effect: &Effect) -> Result<(), postgres::Error> {
        let client = self.async_client().await?;
        client.execute(NOTE, &effect.parameters()).await?;
        self.keep_async(client);
        Ok(())
    }
}

impl Deed {
    /// What is left to do after the effect: to work so long, or to end at once.
    fn at(self, run: u32) -> Result<Duration, Result<Outcome, TaskError>> {
        match self {
            Self::Work(millis) => Ok(Duration::from_millis(millis)),
            Self::FailAtFirst if run == 1 => Err(Err("as it was told".into())),
            Self::PanicAtFirst if run == 1 => panic!("as it was told"),
            Self::PauseAtFirst if run == 1 => Err(Ok(Outcome::pause_in(Duration::from_millis(300)))),
            _ => Ok(Duration::ZERO),
        }
    }
}

fn lost() -> TaskError {
    "the run was told to end".into()
}

impl venturi::blocking::Handler<Room> for Errand {
    fn handle(&self, context: &mut Context<()>, room: &Room) -> Result<Outcome, TaskError> {
        let effect = room.effect(context, &self.tags)?;
        while let Err(error) = room.note(&effect) {
            log::debug!("no effect yet: {error}");
            if context.is_cancelled() {
                return Err(lost());
            }
            std::thread::sleep(5 * BREATH);
        }
        let work = match self.deed.at(context.run_count()) {
            Ok(work) => work,
            Err(end) => return end,
        };
        let until = Instant::now() + work;
        while Instant::now() < until {
            if context.is_cancelled() {
                return Err(lost());
            }
            std::thread::sleep(BREATH.min(work));
        }
        Ok(Outcome::completed())
    }
}

impl venturi::r#async::Handler<Room> for Errand {
    async fn handle(&self, context: &mut Context<()>, room: &Room) -> Result<Outcome, TaskError> {
        let effect = room.effect(context, &self.tags)?;
        while let Err(error) = room.note_async(&effect).await {
            log::debug!("no effect yet: {error}");
            if context.is_cancelled() {
                return Err(lost());
            }
            tokio::time::sleep(5 * BREATH).await;
        }
        let work = match self.deed.at(context.run_count()) {
            Ok(work) => work,
            Err(end) => return end,
        };
        let until = Instant::now() + work;
        while Instant::now() < until {
            if context.is_cancelled() {
                return Err(lost());
            }
            tokio::time::sleep(BREATH.min(work)).await;
        }
        Ok(Outcome::completed())
    }
}

/// What a handler says when its transaction is not to be committed.
fn uncommitted(error: venturi::Error) -> Result<Outcome, TaskError> {
    // The commit of which an earlier execution of this run never heard.
    if error.kind() == ErrorKind::AlreadyCompleted { Ok(Outcome::completed()) } else { Err(error.into()) }
}

impl venturi::blocking::Handler<Room> for Exact {
    fn handle(&self, context: &mut Context<()>, room: &Room) -> Result<Outcome, TaskError> {
        use venturi::blocking::CompleteIn;
        let effect = room.effect(context, &self.tags)?;
        let mut client = room.client()?;
        let mut transaction = client.transaction()?;
        transaction.execute(NOTE, &effect.parameters())?;
        if let Err(error) = context.complete_in(&mut transaction) {
            return uncommitted(error);
        }
        transaction.commit()?;
        room.keep(client);
        Ok(Outcome::completed())
    }
}

impl venturi::r#async::Handler<Room> for Exact {
    async fn handle(&self, context: &mut Context<()>, room: &Room) -> Result<Outcome, TaskError> {
        use venturi::r#async::CompleteIn;
        let effect = room.effect(context, &self.tags)?;
        let mut client = room.async_client().await?;
        let transaction = client.transaction().await?;
        transaction.execute(NOTE, &effect.parameters()).await?;
        if let Err(error) = context.complete_in(&transaction).await {
            return uncommitted(error);
        }
        transaction.commit().await?;
        room.keep_async(client);
        Ok(Outcome::completed())
    }
}

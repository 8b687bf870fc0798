//! What the program keeps: one row per file, in a schema of its own beside the queue's.
//!
//! It speaks with the server through the synchronous client, in both front-ends: the async handlers are on a thread
//! for blocking work anyway, because files are read there.

use std::collections::{HashMap, HashSet};
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use postgres::{Client, Config, NoTls, Statement};
use venturi::Task;

use crate::Result;
use crate::content::Digest;
use crate::folder::Found;
use crate::task::{DigestFile, Run};

/// What PostgreSQL takes as a name without cutting it.
const MAX_NAME: usize = 63;

/// The table of results, and a few views on the queue. A clone shares the connections.
#[derive(Clone)]
pub(crate) struct Results(Arc<Inner>);

struct Inner {
    config: Config,
    /// Connections that nobody uses right now: never more than were used at once.
    idle: Mutex<Vec<Connection>>,
    /// The name of the queue's schema, and it as SQL.
    name: String,
    queue: String,
    /// The schema of the table, as SQL.
    own: String,
}

struct Connection {
    client: Client,
    store: Option<Statement>,
}

/// A stored digest.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) digest: Digest,
    pub(crate) digested_at: SystemTime,
}

impl Row {
    /// Whether the file is, as far as one can tell without reading it, the one that was digested.
    pub(crate) fn is_of(&self, file: &Found) -> bool {
        self.digest.size == file.size && self.digest.mtime == file.mtime
    }
}

/// How many jobs of this program are in which status.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) pending: i64,
    pub(crate) claimed: i64,
    pub(crate) completed: i64,
    pub(crate) dead: i64,
}

/// The right to plan and enqueue; it ends with its connection, also when the program is killed.
pub(crate) struct Turn {
    _connection: Client,
}

impl Results {
    pub(crate) fn open(schema: &str) -> Result<Self> {
        let own = format!("{schema}_results");
        if own.len() > MAX_NAME {
            return Err(format!("the schema's name is too long: {own} has more than {MAX_NAME} bytes").into());
        }
        let mut config: Config = env::var("DATABASE_URL")?.parse()?;
        config.application_name("digest");
        let (queue, own) = (quoted(schema), quoted(&own));
        Ok(Self(Arc::new(Inner { config, idle: Mutex::default(), name: schema.to_owned(), queue, own })))
    }

    /// Waits until no other process plans and enqueues for this schema: two at a time would enqueue the same files.
    pub(crate) fn take_turn(&self) -> Result<Turn> {
        let mut client = self.connect()?.client;
        client.execute("SELECT pg_advisory_lock(hashtextextended('digest ' || $1, 0))", &[&self.0.name])?;
        Ok(Turn { _connection: client })
    }

    pub(crate) fn create_table(&self) -> Result<()> {
        let own = &self.0.own;
        self.with(|it| {
            it.client.batch_execute(&format!(
                "CREATE SCHEMA IF NOT EXISTS {own};
                 CREATE TABLE IF NOT EXISTS {own}.files (
                   path        text        COLLATE \"C\" PRIMARY KEY,
                   size        bigint      NOT NULL,
                   lines       bigint      NOT NULL,
                   sha256      bytea       NOT NULL CHECK (octet_length(sha256) = 32),
                   mtime       bigint      NOT NULL,
                   job         bigint      NOT NULL,
                   run         int         NOT NULL,
                   front       text        NOT NULL,
                   digested_at timestamptz NOT NULL);
                 COMMENT ON COLUMN {own}.files.path IS 'Bytes that are not UTF-8, and %, are written as %XX';
                 COMMENT ON COLUMN {own}.files.mtime IS 'Nanoseconds since 1970'"
            ))
        })
    }

    /// Writes the row of a file, new or again.
    pub(crate) fn store(&self, path: &str, digest: &Digest, run: &Run) -> Result<()> {
        let sql = format!(
            "INSERT INTO {}.files (path, size, lines, sha256, mtime, job, run, front, digested_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())
             ON CONFLICT (path) DO UPDATE SET
               size = EXCLUDED.size, lines = EXCLUDED.lines, sha256 = EXCLUDED.sha256, mtime = EXCLUDED.mtime,
               job = EXCLUDED.job, run = EXCLUDED.run, front = EXCLUDED.front, digested_at = EXCLUDED.digested_at",
            self.0.own
        );
        let (size, lines) = (i64::try_from(digest.size)?, i64::try_from(digest.lines)?);
        let (number, front) = (i32::try_from(run.number)?, run.front.name());
        self.with(|it| {
            let statement = match &it.store {
                Some(statement) => statement.clone(),
                None => it.store.insert(it.client.prepare(&sql)?).clone(),
            };
            let sha256 = digest.sha256.as_slice();
            it.client.execute(&statement, &[&path, &size, &lines, &sha256, &digest.mtime, &run.job, &number, &front])
        })?;
        Ok(())
    }

    /// Everything that is stored, by path.
    pub(crate) fn rows(&self) -> Result<HashMap<String, Row>> {
        let sql = format!("SELECT path, size, lines, sha256, mtime, digested_at FROM {}.files", self.0.own);
        let rows = self.with(|it| it.client.query(&sql, &[]))?;
        let mut by_path = HashMap::with_capacity(rows.len());
        for row in rows {
            let path: String = row.try_get("path")?;
            let sha256: Vec<u8> = row.try_get("sha256")?;
            let digest = Digest {
                size: u64::try_from(row.try_get::<_, i64>("size")?)?,
                lines: u64::try_from(row.try_get::<_, i64>("lines")?)?,
                sha256: sha256.as_slice().try_into()?,
                mtime: row.try_get("mtime")?,
            };
            let row = Row { digest, digested_at: row.try_get("digested_at")? };
            if by_path.insert(path.clone(), row).is_some() {
                return Err(format!("{path} has more than one row").into());
            }
        }
        Ok(by_path)
    }

    /// The files whose jobs wait or run.
    pub(crate) fn underway(&self) -> Result<HashSet<String>> {
        let sql = format!(
            "SELECT payload ->> 'path' AS path FROM {}.jobs WHERE kind = $1 AND status IN ('pending', 'claimed')",
            self.0.queue
        );
        let rows = self.with(|it| it.client.query(&sql, &[&DigestFile::KIND]))?;
        Ok(rows.iter().filter_map(|row| row.get("path")).collect())
    }

    /// The files whose jobs have died since then, and of what.
    pub(crate) fn dead_since(&self, then: SystemTime) -> Result<HashMap<String, String>> {
        let sql = format!(
            "SELECT payload ->> 'path' AS path, coalesce(note, 'no reason') AS note FROM {}.jobs
             WHERE kind = $1 AND status = 'dead' AND finished_at >= $2 AND payload ->> 'path' IS NOT NULL",
            self.0.queue
        );
        let rows = self.with(|it| it.client.query(&sql, &[&DigestFile::KIND, &then]))?;
        Ok(rows.iter().map(|row| (row.get("path"), row.get("note"))).collect())
    }

    pub(crate) fn counts(&self) -> Result<Counts> {
        let sql = format!("SELECT status, count(*) AS count FROM {}.jobs WHERE kind = $1 GROUP BY 1", self.0.queue);
        let rows = self.with(|it| it.client.query(&sql, &[&DigestFile::KIND]))?;
        let mut counts = Counts::default();
        for row in rows {
            match row.get("status") {
                "pending" => counts.pending = row.get("count"),
                "claimed" => counts.claimed = row.get("count"),
                "completed" => counts.completed = row.get("count"),
                "dead" => counts.dead = row.get("count"),
                _ => {}
            }
        }
        Ok(counts)
    }

    /// The server's time, which is also what its rows say.
    pub(crate) fn now(&self) -> Result<SystemTime> {
        self.with(|it| it.client.query_one("SELECT clock_timestamp()", &[])?.try_get(0))
    }

    /// Lends a connection, an idle one if there is one.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> std::result::Result<T, postgres::Error>) -> Result<T> {
        let mut connection = self.idle().map_or_else(|| self.connect(), Ok)?;
        let result = work(&mut connection);
        if !connection.client.is_closed() {
            self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        Ok(result?)
    }

    /// The server may have closed some meanwhile.
    fn idle(&self) -> Option<Connection> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.client.is_closed());
        idle.pop()
    }

    fn connect(&self) -> Result<Connection> {
        let mut client = self.0.config.connect(NoTls)?;
        // Safe: the write-ahead log is one sequence. When the job's completion, which comes later and waits for the
        // disk, is there after a crash, then so is the row.
        client.batch_execute("SET synchronous_commit = off")?;
        Ok(Connection { client, store: None })
    }
}

/// A name as an SQL identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

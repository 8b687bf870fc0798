//! What lies in the tables while the statements look for work.

use postgres::Client;

use crate::support::Result;
use crate::support::options::Options;
use crate::support::server::Server;

pub(crate) const OWN: &str = "own";

/// How much of what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Ready, scheduled and own rows each.
    pub(crate) rows: usize,
    pub(crate) finished: usize,
    pub(crate) dead: usize,
    /// Of the worker's own backlog, where it is small.
    pub(crate) backlog: usize,
}

impl Sizes {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            rows: options.count("ROWS", 1_000_000, 2_000)?,
            finished: options.count("FINISHED", 2_000_000, 2_000)?,
            dead: options.count("DEAD", 200_000, 2_000)?,
            backlog: 1_000,
        })
    }
}

/// One state of the tables, in a schema of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) name: &'static str,
    /// How many kinds the worker has registered.
    pub(crate) kinds: usize,
    /// Whether there is something to claim.
    pub(crate) has_own: bool,
    filling: Filling,
}

/// What there is besides the small backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    Nothing,
    Foreign,
    Scheduled,
    Finished,
    Own,
    EachKind,
    Dead,
}

impl Situation {
    /// With what the others are compared: a small backlog of the one registered kind, and nothing else.
    pub(crate) const BASELINE: &'static str = "small";

    pub(crate) const ALL: [Self; 10] = [
        Self { name: "empty", kinds: 1, has_own: false, filling: Filling::Nothing },
        Self { name: "small", kinds: 1, has_own: true, filling: Filling::Nothing },
        Self { name: "foreign", kinds: 1, has_own: true, filling: Filling::Foreign },
        Self { name: "scheduled", kinds: 1, has_own: true, filling: Filling::Scheduled },
        Self { name: "finished", kinds: 1, has_own: true, filling: Filling::Finished },
        Self { name: "own", kinds: 1, has_own: true, filling: Filling::Own },
        Self { name: "kinds_idle", kinds: 100, has_own: true, filling: Filling::Nothing },
        Self { name: "kinds_busy", kinds: 100, has_own: true, filling: Filling::EachKind },
        Self { name: "dead", kinds: 1, has_own: true, filling: Filling::Dead },
        Self { name: "dead_only", kinds: 1, has_own: false, filling: Filling::Dead },
    ];

    pub(crate) fn schema(&self) -> String {
        format!("claim_{}", self.name)
    }

    /// Whether dead index entries have to stay, because somebody could still see their rows.
    pub(crate) fn is_pinned(&self) -> bool {
        self.filling == Filling::Dead
    }

    /// What has to be there before somebody takes a snapshot.
    pub(crate) fn prepare(&self, server: &Server, sizes: &Sizes) -> Result<()> {
        server.queue(&self.schema())?;
        let mut client = server.connect()?;
        let Sizes { rows, finished, dead, backlog } = *sizes;
        match self.filling {
            Filling::Nothing => {}
            Filling::Foreign => self.load(&mut client, FOREIGN, rows)?,
            Filling::Scheduled => self.load(&mut client, SCHEDULED, rows)?,
            Filling::Finished => self.load(&mut client, FINISHED, finished)?,
            Filling::Own => self.load(&mut client, BACKLOG, rows)?,
            Filling::EachKind => self.load(&mut client, EACH_KIND, backlog * 10)?,
            Filling::Dead => self.load(&mut client, DUE, dead)?,
        }
        if self.has_own && !matches!(self.filling, Filling::Own | Filling::EachKind | Filling::Dead) {
            self.load(&mut client, BACKLOG, backlog)?;
        }
        server.tidy_up(&self.schema())
    }

    /// Lets rows go through their lives while a snapshot is held; what is left of them is dead and stays.
    pub(crate) fn bury(&self, server: &Server, sizes: &Sizes) -> Result<()> {
        let mut client = server.connect()?;
        for sql in LIVES {
            self.load(&mut client, sql, sizes.dead)?;
        }
        if self.has_own {
            self.load(&mut client, BACKLOG, sizes.backlog)?;
        }
        Ok(())
    }

    fn load(&self, client: &mut Client, sql: &str, rows: usize) -> Result<()> {
        let sql = sql.replace("{schema}", &self.schema()).replace("{rows}", &rows.to_string());
        client.batch_execute(&sql).map_err(|error| format!("{}: {error} ({error:?})", self.name))?;
        Ok(())
    }
}

const BACKLOG: &str = "
INSERT INTO {schema}.live (kind, payload, created_at)
SELECT 'own', '{}', now() + i * interval '1 us' FROM generate_series(1, {rows}) i";

/// Older than all else, of fifty kinds, before and behind the worker's own in the alphabet.
const FOREIGN: &str = "
INSERT INTO {schema}.live (kind, payload, created_at)
SELECT CASE WHEN i % 2 = 0 THEN 'a' ELSE 'z' END || i % 50, '{}', now() - interval '1 h' + i * interval '1 us'
FROM generate_series(1, {rows}) i";

/// Of the worker's own kind, due from in an hour on.
const SCHEDULED: &str = "
INSERT INTO {schema}.live (kind, payload, created_at, state, visible_at)
SELECT 'own', '{}', now() - interval '1 h', 1, now() + interval '1 h' + i * interval '1 s'
FROM generate_series(1, {rows}) i";

const FINISHED: &str = "
INSERT INTO {schema}.finished (id, created_at, visible_at, finished_at, run_count, failure_count, priority, status,
  outcome, kind, claimed_by, payload)
SELECT nextval('{schema}.job_id'), at, at, at, 1, 0, 1, 3, 3, 'own', 'there:2:other', '{}'
FROM generate_series(1, {rows}) i, LATERAL (SELECT now() - i * interval '1 s' AS at) t";

const EACH_KIND: &str = "
INSERT INTO {schema}.live (kind, payload, created_at)
SELECT CASE i % 100 WHEN 0 THEN 'own' ELSE 'own_' || i % 100 END, '{}', now() + i * interval '1 us'
FROM generate_series(1, {rows}) i";

/// The first step of a life: scheduled, and due in the last quarter of an hour.
const DUE: &str = "
INSERT INTO {schema}.live (kind, payload, created_at, state, visible_at)
SELECT 'own', '{}', now() - interval '1 h', 1, now() - i * interval '15 min' / {rows}
FROM generate_series(1, {rows}) i";

/// The others: promoted; claimed, with leases that would have ended in the half hour around now; finished.
const LIVES: [&str; 3] = [
    "UPDATE {schema}.live SET state = 0",
    "UPDATE {schema}.live SET state = 2, run_count = 1, claimed_by = 'there:2:other',
       claim_expires_at = visible_at + random() * interval '30 min'",
    "DELETE FROM {schema}.live",
];

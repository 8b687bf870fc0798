//! Enqueueing by hand, and with either front-end.

use std::time::Duration;

use futures_lite::future::block_on;
use postgres::binary_copy::BinaryCopyInWriter;
use postgres::types::{Json, ToSql, Type};
use postgres::{Client, Statement};
use serde_json::value::{RawValue, to_raw_value};
use venturi::{Database, Task, r#async, blocking};

use crate::case::{Case, Settings, Way};
use crate::interest::in_everything;
use crate::support::nothing::Nothing;
use crate::support::server::Server;
use crate::support::{Result, at_once, session};

/// Both schemas, and one who listens to them and is interested in everything.
pub(crate) fn prepare(server: &Server, settings: &Settings) -> Result<Client> {
    let mut client = server.connect()?;
    for case in settings.cases() {
        let schema = case.schema();
        let exists = client.query_one("SELECT to_regnamespace($1) IS NOT NULL", &[&schema])?;
        if exists.try_get(0)? {
            continue;
        }
        blocking::migrate(&database(server, case)?)?;
        client.batch_execute(&format!("LISTEN {schema}"))?;
        client.query("SELECT pg_advisory_lock_shared($1)", &[&in_everything(schema)])?;
        if case.history {
            let finished = i64::try_from(settings.finished)?;
            client.execute(
                &format!(
                    "INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, \
                     status, outcome, kind, claimed_by, payload) \
                     SELECT nextval('{schema}.job_id'), now(), now(), 1, 0, 1, 3, 3, 'nothing', 'me', \
                     to_json(repeat('x', 183)) FROM generate_series(1, $1::bigint)"
                ),
                &[&finished],
            )?;
            client.batch_execute(&format!("VACUUM (ANALYZE) {schema}.finished"))?;
            // So that none falls into a round. Not everybody may.
            let _ = client.batch_execute("CHECKPOINT");
        }
    }
    Ok(client)
}

fn database(server: &Server, case: Case) -> Result<Database> {
    Ok(Database::new(&server.dsn)?.schema(case.schema())?)
}

/// The time in which all producers made their calls.
pub(crate) fn measure(server: &Server, case: Case, way: Way, calls: usize) -> Result<Duration> {
    match way {
        Way::Insert | Way::Copy => warmed_up(case, calls, || Hand::new(server, case, way), Hand::call),
        Way::Blocking => {
            let queue = blocking::Queue::builder(&database(server, case)?).notify(case.notify).connect()?;
            let call = |queue: &mut blocking::Queue| match case.rows {
                1 => Ok(queue.enqueue(Nothing::new()).map(drop)?),
                rows => check(rows, queue.enqueue_many((0..rows).map(|_| Nothing::new()))?.len()),
            };
            warmed_up(case, calls, || Ok(queue.clone()), call)
        }
        Way::Async => {
            let connecting = r#async::Queue::builder(&database(server, case)?).notify(case.notify).connect();
            let queue = block_on(connecting)?;
            let call = |queue: &mut r#async::Queue| match case.rows {
                1 => Ok(block_on(queue.enqueue(Nothing::new())).map(drop)?),
                rows => check(rows, block_on(queue.enqueue_many((0..rows).map(|_| Nothing::new())))?.len()),
            };
            warmed_up(case, calls, || Ok(queue.clone()), call)
        }
    }
}

fn check(asked: usize, stored: usize) -> Result<()> {
    if asked == stored { Ok(()) } else { Err(format!("{stored} of {asked} jobs are stored").into()) }
}

/// Everybody makes one call that does not count, so that statements are prepared.
fn warmed_up<P>(
    case: Case,
    calls: usize,
    make: impl Fn() -> Result<P> + Sync,
    call: impl Fn(&mut P) -> Result<()> + Sync,
) -> Result<Duration> {
    let ready = || make().and_then(|mut producer| call(&mut producer).map(|()| producer));
    at_once(case.producers, calls, ready, &call)
}

/// What one would write for speed.
struct Hand {
    client: Client,
    case: Case,
    way: Way,
    store: Statement,
    notify: Statement,
}

impl Hand {
    fn new(server: &Server, case: Case, way: Way) -> Result<Self> {
        let mut client = session::open(server)?;
        let table = format!("{}.live", case.schema());
        let store = client.prepare(&match way {
            Way::Copy => format!("COPY {table} (kind, priority, payload) FROM STDIN (FORMAT binary)"),
            _ => format!(
                "INSERT INTO {table} (kind, priority, payload) \
                 SELECT * FROM unnest($1::text[], $2::smallint[], $3::json[]) RETURNING id"
            ),
        })?;
        let notify = client.prepare("SELECT pg_notify($1, $2)")?;
        Ok(Self { client, case, way, store, notify })
    }

    fn call(&mut self) -> Result<()> {
        let write = |_| to_raw_value(&Nothing::new());
        let payloads = (0..self.case.rows).map(write).collect::<std::result::Result<Vec<_>, _>>()?;
        if self.way == Way::Copy {
            self.copy(&payloads)?
        } else {
            self.insert(&payloads)?
        }
        if self.case.notify {
            self.client.query(&self.notify, &[&self.case.schema(), &"v1;nothing;0"])?;
        }
        Ok(())
    }

    fn insert(&mut self, payloads: &[Box<RawValue>]) -> Result<()> {
        let kinds = vec![Nothing::KIND; payloads.len()];
        let priorities = vec![1_i16; payloads.len()];
        let payloads: Vec<Json<&RawValue>> = payloads.iter().map(|payload| Json(&**payload)).collect();
        let rows = self.client.query(&self.store, &[&kinds, &priorities, &payloads])?;
        let ids = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<i64>, _>>()?;
        check(payloads.len(), ids.len())
    }

    fn copy(&mut self, payloads: &[Box<RawValue>]) -> Result<()> {
        let types = [Type::TEXT, Type::INT2, Type::JSON];
        let mut writer = BinaryCopyInWriter::new(self.client.copy_in(&self.store)?, &types);
        for payload in payloads {
            let row: [&(dyn ToSql + Sync); 3] = [&Nothing::KIND, &1_i16, &Json(&**payload)];
            writer.write(&row)?;
        }
        check(payloads.len(), usize::try_from(writer.finish()?)?)
    }
}

//! The context of a job's trace: how it comes to its row, and that it stays there.

use super::*;
use crate::{Database, Submit, Task};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn traced(kind: &str) -> NewJob {
    NewJob { trace: Some(TRACE.into()), ..job(kind) }
}

impl Db {
    fn trace(&mut self, id: i64) -> Option<String> {
        self.value(&format!("SELECT trace FROM {{schema}}.jobs WHERE id = {id}"))
    }

    /// Claims the one job that there is; with its context.
    fn claim_traced(&mut self) -> (RunId, Option<String>) {
        let reply = self.claim(claim(ME));
        let [job] = reply.jobs.as_slice() else { panic!("{reply:?}") };
        (job.id, job.trace.as_deref().map(str::to_owned))
    }

    fn complete_inside(&mut self, id: RunId) {
        let inside = Inside::Complete(Complete { worker: ME.into(), id, note: None, attachment: None });
        let params = inside.params();
        let rows = self.client.query_typed(self.texts.sql(inside.text()), &typed(&params)).unwrap();
        assert!(matches!(inside.read(&rows), Ok(Reply::Completed(Settled::Accepted))));
    }

    fn end(&mut self, settlement: Settlement) {
        assert_eq!(self.settle_one(ME, settlement), Settled::Accepted);
    }

    fn recover_one(&mut self, id: RunId, dead: bool) {
        self.expire();
        let row = Recovery { id, claimed_by: ME.into(), dead, delay: 0.0 };
        let Reply::Recovered(rows) = self.ask(&Statement::Recover(Recover { rows: vec![row] })) else { panic!() };
        assert_eq!(rows.len(), 1);
    }

    fn touch(&mut self, inquiry: fn(Touch) -> Inquiry, id: i64, status: JobStatus) {
        self.inquire(inquiry(Touch { ids: vec![id], statuses: vec![status], patient: true }));
    }
}

#[test]
fn a_job_keeps_its_context_to_whatever_end_and_through_every_return() {
    type End = (&'static str, fn(&mut Db, RunId));
    let ends: [End; 9] = [
        ("retried", |db, id| db.end(bare(id, Ending::Retried))),
        ("released", |db, id| db.end(bare(id, Ending::Released))),
        ("recovered", |db, id| db.recover_one(id, false)),
        ("completed", |db, id| db.end(bare(id, Ending::Completed))),
        ("completed briefly", |db, id| drop(db.ask(&brief(vec![bare(id, Ending::Completed)], false)))),
        ("completed by itself", |db, id| db.complete_inside(id)),
        ("dead", |db, id| db.end(bare(id, Ending::Dead))),
        ("dead at the backstop", |db, id| db.recover_one(id, true)),
        ("cancelled", |db, id| {
            db.end(bare(id, Ending::Paused));
            db.touch(Inquiry::Cancel, id.job, JobStatus::Pending);
        }),
    ];
    for (end, act) in ends {
        let mut db = Db::new();
        let id = db.enqueue(vec![traced("a")])[0];
        let (run, trace) = db.claim_traced();
        assert_eq!((run.job, trace.as_deref()), (id, Some(TRACE)));
        act(&mut db, run);
        assert_eq!(db.trace(id).as_deref(), Some(TRACE), "{end}");
        let finished = "SELECT count(*) FROM {schema}.finished";
        if db.value::<i64>(finished) == 1 {
            let status: i16 = db.value("SELECT status FROM {schema}.finished");
            db.touch(Inquiry::Requeue, id, JobStatus::from_code(status).unwrap());
        }
        assert_eq!(db.claim_traced().1.as_deref(), Some(TRACE), "{end}, and claimed again");
    }
}

#[test]
fn whoever_enqueues_in_a_transaction_may_name_the_context_for_all_its_jobs() {
    let mut db = Db::new();
    let old = "SELECT id FROM {schema}.enqueue_keyed('a', '1', 1, 0, NULL, 'k', NULL, NULL, NULL, NULL, true, false)";
    let by_hand = "INSERT INTO {schema}.live (kind, payload) VALUES ('a', '1') RETURNING id";
    let function = "SELECT {schema}.enqueue('a')";
    let ways = [function, "SELECT {schema}.enqueue('a', dedup_key => 'l')", old, by_hand];
    for (set, expected) in [
        (format!("SET LOCAL venturi.trace = '{TRACE}'"), Some(TRACE)),
        ("SET LOCAL venturi.trace = ''".to_owned(), None),
        (format!("SET LOCAL venturi.trace = '{}'", "x".repeat(513)), None),
        (r"SET LOCAL venturi.trace = E'a\nb'".to_owned(), None),
        ("SELECT".to_owned(), None),
    ] {
        db.run(&format!("BEGIN; {set}"));
        let ids: Vec<i64> = ways.iter().map(|sql| db.value(sql)).collect();
        db.run("COMMIT");
        for (id, way) in ids.iter().zip(ways) {
            assert_eq!(db.trace(*id).as_deref(), expected, "{set}: {way}");
        }
        let after: i64 = db.value(function);
        assert_eq!(db.trace(after), None, "after the transaction");
        db.run("DELETE FROM {schema}.live");
    }
}

#[test]
fn a_context_follows_what_becomes_of_the_two_jobs_that_merge() {
    let mut db = Db::new();
    let sql = "SELECT e.id, e.version FROM {schema}.enqueue_keyed('a', '1', 1, 0, NULL, 'k', $1, $2, NULL, NULL, true, false, $3) e";
    let sql = db.render(sql);
    let (old, new) = (Some("old"), Some("new"));
    for (decision, stored, given, expected) in [
        ("keep", old, new, old),
        ("keep", None, new, None),
        ("replace", old, new, new),
        ("replace", old, None, old),
        ("replace", old, Some(""), old),
        ("with", old, new, new),
        ("with", old, None, old),
        ("with", None, new, new),
    ] {
        let mut ask = |decision: Option<&str>, expected: Option<&str>, trace: Option<&str>| {
            let row = db.client.query_one(&sql, &[&decision, &expected, &trace]).unwrap();
            (row.get::<_, i64>("id"), row.get::<_, Option<String>>("version"))
        };
        let (id, _) = ask(None, None, stored);
        let (_, version) = ask(None, None, None);
        let (merged, _) = ask(Some(decision), version.as_deref(), given);
        assert_eq!(merged, id);
        assert_eq!(db.trace(id).as_deref(), expected, "{decision} {stored:?} {given:?}");
        db.run("DELETE FROM {schema}.live");
    }
    let error = db.client.query_one(&sql, &[&None::<&str>, &None::<&str>, &"x".repeat(513)]).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22023");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Page(u8);

impl Task for Page {
    const KIND: &'static str = "page";
    type Carry = ();
}

#[test]
fn a_prepared_job_brings_its_context_along() {
    let mut db = Db::new();
    let database = Database::new("host=localhost").unwrap().schema(db.schema.as_str()).unwrap();
    let job = Submit::from(Page(7)).trace(TRACE).dedup_key("k").prepare().unwrap();
    let sql = job.sql(&database);
    let id: i64 = db
        .client
        .query_one(
            &sql,
            &[
                &job.kind(),
                &job.payload(),
                &job.priority(),
                &job.delay(),
                &job.dedup_key(),
                &job.due_at(),
                &job.trace(),
            ],
        )
        .unwrap()
        .get(0);
    assert_eq!(db.trace(id).as_deref(), Some(TRACE));
}

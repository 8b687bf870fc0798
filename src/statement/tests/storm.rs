//! All statements at once, from several workers whose leases are shorter than their work.

use std::collections::BTreeMap;

use super::*;

const WORKERS: u64 = 4;
const JOBS: usize = 300;
/// Seconds; shorter than a few exchanges, so that live claims are lost all the time.
const LEASE: f64 = 0.02;

#[test]
fn a_storm_of_everything_loses_doubles_and_miscounts_nothing() {
    let mut db = Db::new();
    let jobs = (0..JOBS).map(|n| NewJob { delay: if n % 5 == 0 { 0.05 } else { 0.0 }, ..job("a") }).collect();
    db.enqueue(jobs);
    let texts = db.texts.clone();
    let accepted: Vec<(RunId, Ending)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS)
            .map(|n| {
                scope.spawn({
                    let texts = &texts;
                    move || Worker::new(texts, n).work()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    check_entries(&mut db, &accepted);
    check_counts(&mut db);
}

/// Each accepted result is stored once, and each stored result was accepted once.
fn check_entries(db: &mut Db, accepted: &[(RunId, Ending)]) {
    let by_run: BTreeMap<RunId, &str> = accepted.iter().map(|(id, ending)| (*id, ending.name())).collect();
    assert_eq!(by_run.len(), accepted.len(), "no run was accepted twice");
    let rows = db.rows("SELECT job_id, run_no, event FROM {schema}.journal_entries WHERE event <> 'stale-recovered'");
    let stored: Vec<(RunId, String)> =
        rows.iter().map(|row| (RunId { job: row.get(0), run: row.get(1) }, row.get(2))).collect();
    assert_eq!(stored.len(), accepted.len(), "as many results were stored as were accepted");
    for (id, event) in &stored {
        assert_eq!(by_run.get(id).copied(), Some(event.as_str()), "{id}");
    }
}

fn check_counts(db: &mut Db) {
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.live"), 0, "nothing was lost on the way");
    assert_eq!(usize::try_from(db.value::<i64>("SELECT count(*) FROM {schema}.finished")).unwrap(), JOBS);
    let wrong = db.value::<i64>(
        "SELECT count(*) FROM {schema}.finished f CROSS JOIN LATERAL (\
           SELECT count(*) AS runs, count(DISTINCT e.run_no) AS numbers, \
                  count(*) FILTER (WHERE e.event IN ('retried', 'dead', 'stale-recovered')) AS failures \
           FROM {schema}.journal_entries e WHERE e.job_id = f.id) e \
         WHERE f.run_count <> e.runs OR e.numbers <> e.runs OR f.failure_count <> e.failures",
    );
    assert_eq!(wrong, 0, "each run has one entry, and each failure was counted once");
}

struct Worker<'a> {
    client: Client,
    texts: &'a Texts,
    name: Arc<str>,
    seed: u64,
    open: Vec<Settlement>,
    accepted: Vec<(RunId, Ending)>,
}

impl<'a> Worker<'a> {
    fn new(texts: &'a Texts, number: u64) -> Self {
        let name = format!("worker {number}").as_str().into();
        Self { client: session(), texts, name, seed: number * 7 + 1, open: Vec::new(), accepted: Vec::new() }
    }

    fn work(mut self) -> Vec<(RunId, Ending)> {
        while !self.is_over() {
            self.recover();
            self.ask(&Statement::Promote(Promote { kinds: vec!["a"], look_back: ALWAYS, most: 10 }));
            self.renew();
            self.exchange();
            self.settle_again();
        }
        self.accepted
    }

    fn ask(&mut self, statement: &Statement) -> Reply {
        ask(&mut self.client, self.texts, statement)
    }

    fn is_over(&mut self) -> bool {
        let survey = survey_of(&["a"], &self.name);
        let Reply::Survey(seen) = self.ask(&Statement::Survey(survey)) else { panic!() };
        let nothing = SurveyReply { ready: false, due: false, stale: false, next_due: None, next_expiry: None };
        seen == nothing
            && matches!(self.ask(&Statement::Held(Held { worker: self.name.clone(), runs: Vec::new() })), Reply::Held(held) if held.is_empty())
    }

    /// As if by somebody else: our own claims run out like all others.
    fn recover(&mut self) {
        let Reply::Stale(rows) =
            self.ask(&Statement::Stale(Stale { worker: "nobody".into(), look_back: ALWAYS, most: 10 }))
        else {
            panic!()
        };
        let rows = rows.into_iter().map(|row| Recovery {
            id: row.id,
            claimed_by: row.claimed_by,
            dead: row.failure_count >= 8,
            delay: 0.0,
        });
        self.ask(&Statement::Recover(Recover { rows: rows.collect() }));
    }

    fn renew(&mut self) {
        let rows = self.open.iter().map(|row| (row.id, LEASE)).collect();
        self.ask(&Statement::Renew(Renew { worker: self.name.clone(), rows }));
    }

    fn exchange(&mut self) {
        let rows = std::mem::take(&mut self.open);
        let claim = Claim { kinds: vec!["a"], leases: vec![LEASE], room: vec![5], want: 5, ..claim(&self.name) };
        let brief = !rows.is_empty() && rows.iter().all(|row| row.outcome == Ending::Completed);
        let worker = self.name.clone();
        let settle = |rows, brief| Settle { worker: worker.clone(), rows, discard: false, brief };
        let exchange = Statement::Exchange { settle: Some(settle(rows.clone(), brief)), claim: Some(claim) };
        let rest = |answered: &[(RunId, Settled)]| {
            let told = |row: &&Settlement| !answered.iter().any(|(id, _)| *id == row.id);
            settle(rows.iter().filter(told).cloned().collect(), false)
        };
        let Reply::Exchange { mut settled, claim: Some(claimed) } = self.ask(&exchange) else { panic!() };
        if brief {
            // What became of the others is asked in full.
            let rest = Statement::Exchange { settle: Some(rest(&settled)), claim: None };
            let Reply::Exchange { settled: others, .. } = self.ask(&rest) else { panic!() };
            settled.extend(others);
        }
        self.take_answers(rows, &settled);
        for job in claimed.jobs {
            if self.random(10) > 0 {
                let delay = if self.random(2) == 0 { 0.0 } else { 0.01 };
                let row = Settlement { delay, ..bare(job.id, self.ending()) };
                self.open.push(row);
            }
        }
    }

    fn take_answers(&mut self, rows: Vec<Settlement>, settled: &[(RunId, Settled)]) {
        let answers: BTreeMap<RunId, Settled> = settled.iter().copied().collect();
        for row in rows {
            match answers[&row.id] {
                Settled::Accepted | Settled::Cancelled => self.accepted.push((row.id, row.outcome)),
                Settled::Busy => self.open.push(row),
                Settled::Refused => {}
                Settled::Completed => panic!("{row:?} has not completed itself"),
                Settled::Landed => panic!("{row:?} had never been accepted"),
            }
        }
    }

    /// Sends what was accepted once more, as after a lost reply.
    fn settle_again(&mut self) {
        let Some((id, ending)) = self.accepted.last().copied() else { return };
        let reply = self.ask(&settlement(&self.name.clone(), vec![bare(id, ending)]));
        let expected = if ending == Ending::Cancelled { Settled::Cancelled } else { Settled::Landed };
        assert!(matches!(reply, Reply::Exchange { settled, .. } if settled == [(id, expected)]), "{id} {ending:?}");
    }

    fn ending(&mut self) -> Ending {
        match self.random(10) {
            0 => Ending::Retried,
            1 => Ending::Paused,
            2 => Ending::Released,
            3 => Ending::Dead,
            4 => Ending::Cancelled,
            _ => Ending::Completed,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }
}

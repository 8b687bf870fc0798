//! Performs a script on the model and on a server, and compares after every step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::super::*;
use super::picture::{self, difference};
use super::real::Real;
use super::script::{self, About, Choice, End, Run, Step};
use crate::engine::tests::seeds::Figures;
use crate::engine::tests::server::{Flaw, Server, State};

/// What times may differ by beside what passes while a statement is on its way: what is lost by rounding.
const ROUNDING: f64 = 0.001;

/// A limit on rows that is none.
const ALL: i32 = 100;

const KINDS: [&str; 2] = ["a", "b"];

/// What was counted, or the first difference.
pub(super) fn perform(real: &mut Real, script: &[Step], flaw: Option<Flaw>) -> Result<Figures, String> {
    real.clear();
    let (_, clock) = real.tables();
    let mut stage = Stage {
        real,
        model: Server::default(),
        clock,
        slack: 0.0,
        seen: BTreeMap::new(),
        settled: BTreeMap::new(),
        payloads: 0,
        figures: Figures::new(),
    };
    stage.model.flaw = flaw;
    for (nth, step) in script.iter().enumerate() {
        stage.step(step).map_err(|why| format!("{} at step {}: {why}", name(step), nth + 1))?;
    }
    Ok(stage.figures)
}

/// As it is written in a script.
pub(super) fn name(step: &Step) -> String {
    match serde_json::to_value(step).unwrap() {
        serde_json::Value::Object(step) => step.keys().next().unwrap().clone(),
        other => other.to_string(),
    }
}

struct Stage<'a> {
    real: &'a mut Real,
    model: Server,
    /// The server's, when it was last looked at, in seconds since 1970.
    clock: f64,
    /// By how much times may differ by now.
    slack: f64,
    /// The versions of candidates that were last told of, by kind and key: the model's and the server's.
    seen: BTreeMap<(u8, u8), (String, String)>,
    /// The last settlement of each worker.
    settled: BTreeMap<u8, Settle>,
    payloads: usize,
    figures: Figures,
}

type Outcome = Result<(), String>;

fn worker(number: u8) -> Arc<str> {
    format!("w{number}").into()
}

fn kinds(bits: u8) -> Vec<&'static str> {
    KINDS.into_iter().enumerate().filter(|(nth, _)| bits & (1 << nth) != 0).map(|(_, kind)| kind).collect()
}

#[expect(clippy::cast_precision_loss, reason = "whole seconds, and few")]
fn seconds(whole: u64) -> f64 {
    whole as f64
}

impl Stage<'_> {
    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Enqueue { jobs, copied } => self.enqueue(jobs, *copied),
            Step::Merge(rows) => self.merge(rows),
            Step::Exchange(exchange) => self.exchange(exchange),
            Step::SettleAgain { worker } => match self.settled.get(worker).cloned() {
                Some(settle) => self.both(&Statement::Exchange { settle: Some(settle), claim: None }),
                None => Ok(()),
            },
            Step::Complete { worker, run } => self.complete(*worker, *run),
            Step::Checkpoint { worker, run, carry } => self.checkpoint(*worker, *run, *carry),
            Step::Promote { kinds: bits, look_back, most } => self.both(&Statement::Promote(Promote {
                kinds: kinds(*bits),
                look_back: seconds(*look_back),
                most: (*most).into(),
            })),
            Step::Stale { worker: number, look_back, most } => self.both(&Statement::Stale(Stale {
                worker: worker(*number),
                look_back: seconds(*look_back),
                most: (*most).into(),
            })),
            Step::Recover(rows) => self.recover(rows),
            Step::Hold { job } => self.hold(*job),
            Step::Pass { time } => self.pass(*time),
            Step::Renew { .. } | Step::Held { .. } | Step::Survey { .. } => self.both(&self.read(step)),
            _ => self.both(&Statement::Inquiry(self.inquiry(step))),
        }
    }

    /// What is the same for both.
    fn both(&mut self, statement: &Statement) -> Outcome {
        self.ask(statement, statement).map(drop)
    }

    fn ask(&mut self, for_model: &Statement, for_server: &Statement) -> Result<(Reply, Reply), String> {
        self.set_clock();
        let model = self.model.execute(for_model);
        let server = self.real.execute(for_server).map_err(|error| format!("fails: {error}\n{for_server:?}"))?;
        let partly = matches!(for_server, Statement::Stale(stale) if stale.most < ALL);
        self.compare(&model, &server, partly).map_err(|why| format!("{why}\n{for_server:?}"))?;
        Ok((model, server))
    }

    fn set_clock(&mut self) {
        // Never the same twice, as on a server.
        let earliest = self.model.now + Duration::from_micros(1);
        self.model.now = Duration::from_secs_f64(self.clock).max(earliest);
    }

    /// `partly`: which of several rows come is not said, only how many.
    fn compare(&mut self, model: &Reply, server: &Reply, partly: bool) -> Outcome {
        let (tables, clock) = self.real.tables();
        self.slack = self.slack.max(clock - self.clock + ROUNDING);
        self.clock = clock;
        let (told, answered) = (picture::answer(model), picture::answer(server));
        let differ =
            if partly && told.len() == answered.len() { None } else { difference(&told, &answered, self.slack) };
        if let Some(differ) = differ {
            return Err(format!("answers differ: {differ}"));
        }
        if let Some(differ) = difference(&picture::tables(&self.model), &tables, self.slack) {
            return Err(format!("tables differ: {differ}"));
        }
        *self.figures.entry("answers").or_default() += 1;
        for sort in picture::sorts(server) {
            *self.figures.entry(sort).or_default() += 1;
        }
        Ok(())
    }

    /// The number of a job, or of none.
    fn job(&self, nth: u8) -> i64 {
        let jobs = i64::try_from(self.model.enqueued()).unwrap();
        1 + i64::from(nth) % (jobs + 1)
    }

    fn jobs(&self, nths: &[u8]) -> Vec<i64> {
        nths.iter().map(|nth| self.job(*nth)).collect()
    }

    /// Even numbers: of all jobs; odd ones: of these.
    fn some_of<T>(&self, these: &BTreeMap<i64, T>, nths: &[u8]) -> Vec<i64> {
        let these: Vec<i64> = these.keys().copied().collect();
        let one_of_these = |nth: u8| these.get(usize::from(nth / 2) % these.len().max(1)).copied();
        let odd = |nth: u8| if nth.is_multiple_of(2) { None } else { one_of_these(nth) };
        nths.iter().map(|nth| odd(*nth).unwrap_or_else(|| self.job(*nth))).collect()
    }

    fn claims(&self) -> impl Iterator<Item = (RunId, &str)> {
        self.model.live.iter().filter_map(|(id, row)| match &row.state {
            State::Claimed { by, .. } => Some((RunId { job: *id, run: row.run_count }, by.as_str())),
            _ => None,
        })
    }

    fn run(&self, worker: u8, run: Run) -> RunId {
        let (name, none) = (self::worker(worker), RunId { job: 1_000, run: 1 });
        let pick = |runs: Vec<RunId>, nth: u8| runs.get(usize::from(nth) % runs.len().max(1)).copied().unwrap_or(none);
        let held = |ours: bool| self.claims().filter(|(_, by)| (*by == &*name) == ours).map(|(id, _)| id).collect();
        match run {
            Run::Held(nth) => pick(held(true), nth),
            Run::Others(nth) => pick(held(false), nth),
            Run::Ended(nth) => {
                let ended = self.model.journal.iter().filter(|entry| entry.by == *name);
                pick(ended.map(|entry| entry.id).collect(), nth)
            }
            Run::Beside(nth) => {
                let held = pick(held(true), nth);
                RunId { run: if nth.is_multiple_of(2) { held.run + 1 } else { held.run - 1 }, ..held }
            }
            Run::OfNoJob => none,
        }
    }

    /// Each job once, as an engine has it.
    fn runs(&self, worker: u8, runs: impl IntoIterator<Item = Run>) -> Vec<RunId> {
        let mut jobs = BTreeSet::new();
        runs.into_iter().map(|run| self.run(worker, run)).filter(|id| jobs.insert(id.job)).collect()
    }

    fn enqueue(&mut self, jobs: &[script::Job], copied: bool) -> Outcome {
        self.set_clock();
        let jobs = NewJobs::new(jobs.iter().map(|job| self.new_job(job)).collect());
        if !copied {
            return self.both(&Statement::Enqueue(Enqueue { calls: vec![jobs], channel: None }));
        }
        let reserve = Statement::Reserve(i32::try_from(jobs.len()).unwrap());
        let (Reply::Reserved(model), Reply::Reserved(server)) = self.ask(&reserve, &reserve)? else { panic!() };
        let copy = |numbers| Statement::Copy(CopyJobs { jobs: jobs.clone(), numbers });
        self.ask(&copy(model), &copy(server)).map(drop)
    }

    fn new_job(&mut self, it: &script::Job) -> NewJob {
        self.payloads += 1;
        let payload =
            format!("[{:06}{}]", 100_000 + self.payloads, if it.large { " ".repeat(2_000) } else { String::new() });
        let due_at = SystemTime::UNIX_EPOCH + self.model.now + Duration::from_secs(it.delay);
        NewJob {
            kind: KINDS[usize::from(it.kind) % KINDS.len()].into(),
            priority: Priority::from_code(it.priority.into()).unwrap_or_default(),
            payload: json(&payload),
            trace: it.traced.then(|| format!("t{}", self.payloads)),
            dedup_key: it.key.map(|key| format!("k{key}")),
            delay: seconds(it.delay),
            due_at: it.by_instant.then_some(due_at),
        }
    }

    fn merge(&mut self, rows: &[script::Merge]) -> Outcome {
        self.set_clock();
        let jobs: Vec<Arc<NewJob>> = rows.iter().map(|row| self.new_job(&row.job).into()).collect();
        let place = |row: &script::Merge| (row.job.kind, row.job.key.unwrap_or_default());
        let row = |(row, job): (&script::Merge, &Arc<NewJob>), of_model: bool| {
            let seen = self.seen.get(&place(row)).map(|(model, server)| if of_model { model } else { server });
            let expected = match row.about {
                About::Nobody => None,
                About::Seen => seen.cloned(),
                About::Anybody => Some("*".to_owned()),
            };
            let stance = expected.map(|expected| Stance { decision: decision(row.decision), expected });
            Arc::new(KeyedJob { job: Arc::clone(job), stance, skip: self.jobs(&row.skip) })
        };
        let call = |of_model| {
            let rows = rows.iter().zip(&jobs).map(|it| row(it, of_model)).collect();
            Statement::EnqueueKeyed(EnqueueKeyed { rows, wait: false, notify: false })
        };
        let (Reply::Keyed(model), Reply::Keyed(server)) = self.ask(&call(true), &call(false))? else { panic!() };
        for ((row, model), server) in rows.iter().zip(model).zip(server) {
            if let (KeyedAnswer::Changed(Some(model)), KeyedAnswer::Changed(Some(server))) = (model, server) {
                self.seen.insert(place(row), (model.version, server.version));
            }
        }
        Ok(())
    }

    fn exchange(&mut self, it: &script::Exchange) -> Outcome {
        let settle = self.settle(it);
        if let Some(settle) = settle.clone().filter(|settle| !settle.brief) {
            self.settled.insert(it.worker, settle);
        }
        if settle.is_none() && it.claim.is_none() {
            return Ok(());
        }
        let places: Vec<i64> =
            it.claim.iter().flat_map(|claim| claim.from.iter().flatten().flatten()).map(|nth| self.job(*nth)).collect();
        let in_model = |id: &i64| self.model.live.get(id).or_else(|| Some(&self.model.finished.get(id)?.0));
        let of_model: HashMap<i64, SystemTime> =
            places.iter().filter_map(|id| Some((*id, SystemTime::UNIX_EPOCH + in_model(id)?.created))).collect();
        let of_server = self.real.created(&places);
        let statement = |created: &HashMap<i64, SystemTime>| {
            let claim = it.claim.as_ref().map(|claim| self.claim(it.worker, claim, created));
            Statement::Exchange { settle: settle.clone(), claim }
        };
        self.ask(&statement(&of_model), &statement(&of_server)).map(drop)
    }

    fn settle(&self, it: &script::Exchange) -> Option<Settle> {
        let mut jobs = BTreeSet::new();
        let results = it.results.iter().map(|result| (self.run(it.worker, result.run), result));
        let rows = results.filter(|(id, _)| jobs.insert(id.job)).map(|(id, result)| Settlement {
            delay: seconds(result.delay),
            carry: result.carry.map(|carry| json(&carry.to_string())),
            ..bare(id, ending(result.end))
        });
        let rows: Vec<Settlement> = rows.collect();
        let brief = it.brief && rows.iter().all(|row| row.outcome == Ending::Completed);
        (!rows.is_empty()).then(|| Settle { worker: worker(it.worker), rows, discard: it.discard, brief })
    }

    fn claim(&self, number: u8, it: &script::Claim, created: &HashMap<i64, SystemTime>) -> Claim {
        let kinds = kinds(it.kinds);
        let bounds = it.from.as_ref().map(|from| {
            let place = |nth: &Option<u8>| {
                let id = nth.map(|nth| self.job(nth));
                (id.and_then(|id| created.get(&id).copied()), id.unwrap_or_default())
            };
            let (created_at, ids) = from.iter().take(3 * kinds.len()).map(place).unzip();
            Bounds { created_at, ids }
        });
        Claim {
            worker: worker(number),
            leases: kinds.iter().map(|_| seconds(it.lease)).collect(),
            room: kinds.iter().zip(it.room).map(|(_, room)| room.into()).collect(),
            floor: it.floor.into(),
            want: it.want.into(),
            spare: it.spare.into(),
            look_back: seconds(it.look_back),
            skip: self.jobs(&it.skip),
            durable: true,
            bounds,
            kinds,
        }
    }

    fn complete(&mut self, number: u8, run: Run) -> Outcome {
        let (name, id) = (worker(number), self.run(number, run));
        self.let_go();
        self.set_clock();
        let model = match self.model.complete(id, &name) {
            true => Settled::Accepted,
            false if self.model.completed(id, &name) => Settled::Completed,
            false => Settled::Refused,
        };
        let complete = Complete { worker: name, id, note: None, attachment: None };
        let server =
            self.real.execute_inside(&Inside::Complete(complete)).map_err(|error| format!("fails: {error}"))?;
        self.compare(&Reply::Completed(model), &server, false).map_err(|why| format!("{why}\n{id}"))
    }

    fn checkpoint(&mut self, number: u8, run: Run, carry: u8) -> Outcome {
        let (worker, id) = (worker(number), self.run(number, run));
        self.let_go();
        self.both(&Statement::Checkpoint(Checkpoint { worker, id, carry: json(&carry.to_string()) }))
    }

    fn read(&self, step: &Step) -> Statement {
        match step {
            Step::Renew { worker, runs, lease } => {
                let runs = self.runs(*worker, runs.iter().copied());
                let rows = runs.into_iter().map(|id| (id, seconds(*lease))).collect();
                Statement::Renew(Renew { worker: self::worker(*worker), rows })
            }
            Step::Held { worker, runs } => {
                let runs = self.runs(*worker, runs.iter().copied());
                Statement::Held(Held { worker: self::worker(*worker), runs })
            }
            Step::Survey { worker, kinds: bits, open, look_back, horizon, skip } => Statement::Survey(Survey {
                kinds: kinds(*bits),
                worker: self::worker(*worker),
                look_back: seconds(*look_back),
                horizon: seconds(*horizon),
                open: kinds(*open),
                skip: self.jobs(skip),
            }),
            other => panic!("{other:?}"),
        }
    }

    fn inquiry(&self, step: &Step) -> Inquiry {
        match step {
            Step::Cancellations { worker, runs } => {
                let runs = self.runs(*worker, runs.iter().copied());
                Inquiry::Cancellations { worker: self::worker(*worker), runs }
            }
            Step::Cancel { jobs, pending, claimed } => {
                let may = [(*pending, JobStatus::Pending), (*claimed, JobStatus::Claimed)];
                Inquiry::Cancel(touch(self.some_of(&self.model.live, jobs), &may))
            }
            Step::Requeue { jobs, completed, dead, cancelled } => {
                let may =
                    [(*completed, JobStatus::Completed), (*dead, JobStatus::Dead), (*cancelled, JobStatus::Cancelled)];
                Inquiry::Requeue(touch(self.some_of(&self.model.finished, jobs), &may))
            }
            Step::PauseKind { kind } => Inquiry::PauseKind(KINDS[usize::from(*kind)].to_owned()),
            Step::ResumeKind { kind } => Inquiry::ResumeKind(KINDS[usize::from(*kind)].to_owned()),
            Step::Cleanup { status, age } => {
                let status = JobStatus::from_code((*status).into()).unwrap();
                Inquiry::Cleanup(CleanupBatch { status, age: seconds(*age), from: f64::NEG_INFINITY, most: ALL })
            }
            other => panic!("{other:?}"),
        }
    }

    fn recover(&mut self, rows: &[script::Recovery]) -> Outcome {
        let claims: Vec<(RunId, String)> = self.claims().map(|(id, by)| (id, by.to_owned())).collect();
        let mut jobs = BTreeSet::new();
        let row = |it: &script::Recovery| {
            let (id, by) = claims.get(usize::from(it.claim) % claims.len().max(1))?.clone();
            let claimed_by = if it.wrong { "somebody else".to_owned() } else { by };
            Some(Recovery { id, claimed_by, dead: it.dead, delay: seconds(it.delay) })
        };
        let rows = rows.iter().filter_map(row).filter(|row| jobs.insert(row.id.job)).collect();
        self.both(&Statement::Recover(Recover { rows }))
    }

    fn hold(&mut self, job: Option<u8>) -> Outcome {
        self.let_go();
        let live: Vec<i64> = self.model.live.keys().copied().collect();
        if let Some(id) = job.and_then(|nth| live.get(usize::from(nth) % live.len().max(1)).copied()) {
            self.model.locked.insert(id);
            self.real.hold(id);
        }
        Ok(())
    }

    fn let_go(&mut self) {
        if !self.model.locked.is_empty() {
            self.model.locked.clear();
            self.real.let_go();
        }
    }

    /// All that is stored gets older.
    fn pass(&mut self, time: u64) -> Outcome {
        self.let_go();
        // On the server each row has another version now.
        self.seen.clear();
        self.real.pass(time);
        let passed = Duration::from_secs(time);
        for row in self.model.live.values_mut() {
            (row.created, row.visible) = (row.created - passed, row.visible - passed);
            if let State::Claimed { expires, .. } = &mut row.state {
                *expires -= passed;
            }
        }
        for (row, _) in self.model.finished.values_mut() {
            (row.created, row.visible, row.ended) = (row.created - passed, row.visible - passed, row.ended - passed);
        }
        Ok(())
    }
}

fn touch(ids: Vec<i64>, may: &[(bool, JobStatus)]) -> Touch {
    let statuses = may.iter().filter(|(may, _)| *may).map(|(_, status)| *status).collect();
    Touch { ids, statuses, patient: false }
}

fn decision(choice: Choice) -> Decision {
    match choice {
        Choice::Keep => Decision::Keep,
        Choice::Replace => Decision::Replace,
        Choice::With => Decision::With(None),
        Choice::WithCarry => Decision::With(Some(json("77"))),
        Choice::Independent => Decision::Independent,
    }
}

fn ending(end: End) -> Ending {
    match end {
        End::Completed => Ending::Completed,
        End::Dead => Ending::Dead,
        End::Cancelled => Ending::Cancelled,
        End::Retried => Ending::Retried,
        End::Paused => Ending::Paused,
        End::Released => Ending::Released,
    }
}

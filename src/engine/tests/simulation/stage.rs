//! Performs a script: every deed at its time, then calm, in which everything settles, then the end of all workers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::script::{CALM, Choice, Deed, End, Job, Line, Step, Worker, kind as kind_of};
use crate::Backoff;
use crate::engine::tests::seeds::Figures;
use crate::engine::tests::server::{Flaw, json};
use crate::engine::tests::world::{Behaviour, Clock, Mishap, Mishaps, World, config, kind, ms};
use crate::engine::{Input, Link};
use crate::job::RunId;
use crate::job_info::JobStatus;
use crate::registry::KindRule;
use crate::report::Verdict;
use crate::statement::{
    CancelAnswer, Decision, Finding, Inquiry, KeyedAnswer, KeyedJob, NewJob, Reply, RequeueAnswer, Stance, Statement,
    Touch,
};

/// How long everything may take to settle when nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long the workers are idle afterwards, and how many statements each may send meanwhile.
const IDLE: (Duration, usize) = (Duration::from_secs(60), 40);

const LINKS: [Link; 3] = [Link::Work, Link::Watch, Link::Settle];

/// Who is who in a script.
#[derive(Default)]
struct Cast {
    workers: BTreeMap<u8, usize>,
    jobs: BTreeMap<u8, i64>,
    /// What a job's runs do, by its number.
    plays: BTreeMap<i64, Job>,
}

/// Performs the script, and panics where a rule is broken.
pub(super) fn perform(script: &[Step], flaw: Option<Flaw>) -> Figures {
    let mut world = World::new(1);
    world.server.flaw = flaw;
    world.watch_closely();
    let cast = Rc::new(RefCell::new(Cast::default()));
    let play = Rc::clone(&cast);
    world.behave(move |_, id| behaviour(play.borrow().plays.get(&id.job), id));
    for step in script {
        let (deed, cast) = (step.deed.clone(), Rc::clone(&cast));
        world.at(ms(step.at), move |world| do_deed(world, &cast, deed));
    }
    world.run_until(ms(CALM));
    calm(&mut world);
    settle(&mut world);
    stop_all(&mut world);
    world.assert_sound();
    let audit = world.audit.take().unwrap();
    let mut figures = audit.seen;
    figures.insert("most statements in a second", u64::try_from(audit.busiest).unwrap());
    figures
}

fn behaviour(job: Option<&Job>, id: RunId) -> Behaviour {
    let Some(job) = job.filter(|job| id.run <= job.runs) else { return Behaviour::takes(ms(20)) };
    let verdict = match job.end {
        End::Completes => Verdict::Completed { note: None },
        End::SaysThatItHasCompleted => Verdict::CompletedItself,
        End::Fails => Verdict::Failed { message: "no".into(), permanent: false },
        End::FailsForGood => Verdict::Failed { message: "never".into(), permanent: true },
        End::Panics => Verdict::Panicked("panicked: oh".into()),
        End::Pauses => Verdict::Paused { resume_in: ms(200), note: None },
        End::CannotDecode => Verdict::Undecodable("cannot decode".into()),
        End::IsThrownAway => Verdict::Discarded,
    };
    Behaviour {
        verdict,
        waits: ms(job.waits),
        takes: ms(job.takes),
        cooperative: job.heeds,
        stops_in: job.stops_in.map(ms),
        completes_at: job.commits_at.map(ms),
    }
}

fn do_deed(world: &mut World, cast: &Rc<RefCell<Cast>>, deed: Deed) {
    let node = |worker| cast.borrow().workers.get(&worker).copied();
    let job = |job| cast.borrow().jobs.get(&job).copied();
    let befall = |world: &mut World, worker, link: Line, mishap| {
        if let Some(node) = node(worker) {
            world.mishaps.befall(node, link.into(), mishap);
        }
    };
    match deed {
        Deed::Start(worker) => {
            let node = start(world, &worker);
            cast.borrow_mut().workers.insert(worker.worker, node);
        }
        Deed::Enqueue(job) => {
            let id = world.server.enqueue(job.kind(), job.priority(), job.delay());
            enqueued(world, cast, job, id, true);
        }
        Deed::Merge { job, key, decision, after } => merge(world, cast, Keyed { job, key, decision, after }, None),
        Deed::LoseBefore { worker, link } => befall(world, worker, link, Mishap::LostBefore),
        Deed::LoseAfter { worker, link } => befall(world, worker, link, Mishap::LostAfter),
        Deed::LoseMeanwhile { worker, link, executed_after } => {
            befall(world, worker, link, Mishap::LostMeanwhile(ms(executed_after)));
        }
        Deed::Refuse { worker, link } => befall(world, worker, link, Mishap::Refused),
        Deed::Slow { worker, link, time } => befall(world, worker, link, Mishap::Slow(ms(time))),
        Deed::ServerDown { time } => server_down(world, time),
        Deed::ServerHangs { time } => for_a_while(world, time, |world, on| world.hung = on),
        Deed::TableLocked { time } => for_a_while(world, time, |world, on| world.locked = on),
        Deed::RowLocked { job: name, time } => {
            if let Some(id) = job(name) {
                world.hold_row(id);
                world.at(world.time + ms(time), move |world| _ = world.server.locked.remove(&id));
            }
        }
        Deed::Cancel { job: name } => job(name).into_iter().for_each(|id| cancel(world, id)),
        Deed::Requeue { job: name } => job(name).into_iter().for_each(|id| requeue(world, id)),
        Deed::PauseKind { slow, time } => {
            world.server.paused_kinds.insert(kind_of(slow).to_owned());
            world.at(world.time + ms(time), move |world| resume(world, slow));
        }
        Deed::LoseNotification { worker }
        | Deed::DelayNotification { worker, .. }
        | Deed::Cut { worker, .. }
        | Deed::Mute { worker, .. }
        | Deed::Kill { worker }
        | Deed::Freeze { worker, .. }
        | Deed::Stop { worker }
        | Deed::Abandon { worker }
        | Deed::Unreachable { worker, .. } => {
            if let Some(node) = node(worker) {
                to_worker(world, node, &deed);
            }
        }
    }
}

/// What happens to one worker.
fn to_worker(world: &mut World, node: usize, deed: &Deed) {
    match *deed {
        Deed::LoseNotification { .. } => world.mishaps.befall_notification(node, None),
        Deed::DelayNotification { time, .. } => world.mishaps.befall_notification(node, Some(ms(time))),
        Deed::Cut { link, .. } => world.cut(node, link.into()),
        Deed::Mute { link, .. } => world.mute(node, link.into()),
        Deed::Kill { .. } => world.kill(node),
        Deed::Freeze { time, .. } => {
            world.freeze(node);
            world.at(world.time + ms(time), move |world| world.thaw(node));
        }
        Deed::Stop { .. } => stop(world, node),
        Deed::Abandon { .. } => {
            world.must_stop_within(node, world.nodes[node].abort_grace);
            world.tell(node, Input::Abandoned);
        }
        Deed::Unreachable { time, .. } => {
            world.unreachable.insert(node);
            world.at(world.time + ms(time), move |world| _ = world.unreachable.remove(&node));
        }
        _ => {}
    }
}

fn start(world: &mut World, worker: &Worker) -> usize {
    let mut rules = config(worker.slots);
    rules.backstop = None;
    rules.connections = worker.connections;
    rules.backoff = Backoff::new(ms(100), ms(2_000));
    rules.shutdown_timeout = ms(worker.shutdown_timeout);
    rules.handler_grace = Some(ms(worker.handler_grace));
    rules.abort_grace = ms(1_000);
    let rule = |slow| KindRule {
        lease: ms(if slow { 3_000 } else { 4_000 }),
        backoff: rules.backoff,
        timeout: worker.timeout.map(ms),
        cap: worker.cap.filter(|_| slow),
        blocking: worker.threads && slow,
        ..kind(kind_of(slow))
    };
    let kinds = vec![rule(false), rule(true)];
    world.add_with(rules, kinds, Clock { ahead: ms(worker.ahead), drift: worker.drift })
}

fn stop(world: &mut World, node: usize) {
    let state = world.states(node).last().copied().unwrap_or("running");
    world.count(match state {
        "draining" => "told to stop while draining",
        "forced" | "grace" | "waiting_for_thread" => "told to stop while forced",
        "stopped" => "told to stop when stopped",
        _ => "told to stop while running",
    });
    let time = world.nodes[node].shutdown_timeout + world.nodes[node].abort_grace;
    world.must_stop_within(node, time);
    world.tell(node, Input::Shutdown);
}

/// Switches something on, and off after a while unless it was switched on again for longer.
fn for_a_while(world: &mut World, time: u64, switch: fn(&mut World, bool)) {
    switch(world, true);
    world.at(world.time + ms(time), move |world| switch(world, false));
}

fn server_down(world: &mut World, time: u64) {
    // The transactions of handlers end with it.
    world.server.locked.clear();
    for_a_while(world, time, |world, on| world.server_up = !on);
    for node in 0..world.nodes.len() {
        LINKS.into_iter().for_each(|link| world.cut(node, link));
    }
}

fn enqueued(world: &mut World, cast: &Rc<RefCell<Cast>>, job: Job, id: i64, tell: bool) {
    let mut cast = cast.borrow_mut();
    cast.jobs.insert(job.job, id);
    if tell {
        world.announce(job.kind(), job.delay());
    }
    cast.plays.entry(id).or_insert(job);
}

/// A producer with a task that has a dedup key.
struct Keyed {
    job: Job,
    key: u8,
    decision: Choice,
    after: u64,
}

/// One round; the next one follows when the producer has decided.
fn merge(world: &mut World, cast: &Rc<RefCell<Cast>>, keyed: Keyed, expected: Option<String>) {
    let new = NewJob {
        kind: keyed.job.kind().into(),
        priority: keyed.job.priority(),
        payload: json("null"),
        dedup_key: Some(keyed.key.to_string()),
        delay: keyed.job.delay().as_secs_f64(),
        due_at: None,
        trace: None,
    };
    let decision = match keyed.decision {
        Choice::Keep => Decision::Keep,
        Choice::Replace => Decision::Replace,
        Choice::With => Decision::With(Some(json("1"))),
        Choice::Independent => Decision::Independent,
    };
    let stance = expected.clone().map(|expected| Stance { decision, expected });
    match world.server.enqueue_keyed(&KeyedJob { job: new.into(), stance, skip: Vec::new() }) {
        KeyedAnswer::Stored { id, effect, wakes, .. } => {
            world.count(match effect {
                crate::Effect::Inserted => "keyed jobs inserted",
                _ => "keyed jobs merged",
            });
            enqueued(world, cast, keyed.job, id, wakes);
        }
        KeyedAnswer::Changed(found) => {
            let (expected, cast) = (found.map(|found| found.version), Rc::clone(cast));
            world.at(world.time + ms(keyed.after), move |world| merge(world, &cast, keyed, expected));
        }
        KeyedAnswer::Busy => {
            world.count("keyed jobs that met a held row");
            let cast = Rc::clone(cast);
            world.at(world.time + ms(50), move |world| merge(world, &cast, keyed, expected));
        }
    }
}

fn cancel(world: &mut World, id: i64) {
    let statuses = vec![JobStatus::Pending, JobStatus::Claimed];
    let cancel = Inquiry::Cancel(Touch { ids: vec![id], statuses, patient: false });
    let Reply::Inquiry(Finding::Cancelled(answers)) = world.server.execute(&Statement::Inquiry(cancel)) else { return };
    match answers[..] {
        [(_, CancelAnswer::Requested)] => {
            world.count("running jobs asked to end");
            world.broadcast(&crate::notification::encode_cancelled(&[id]));
        }
        [(_, CancelAnswer::Cancelled)] => world.count("pending jobs cancelled"),
        _ => {}
    }
}

fn requeue(world: &mut World, id: i64) {
    let statuses = vec![JobStatus::Completed, JobStatus::Dead, JobStatus::Cancelled];
    let requeue = Inquiry::Requeue(Touch { ids: vec![id], statuses, patient: false });
    let Reply::Inquiry(Finding::Requeued(answers)) = world.server.execute(&Statement::Inquiry(requeue)) else { return };
    if let [(_, RequeueAnswer::Requeued(kind))] = &answers[..] {
        world.count("jobs requeued");
        world.announce(kind, Duration::ZERO);
    }
}

fn resume(world: &mut World, slow: bool) {
    if world.server.paused_kinds.remove(kind_of(slow)) {
        world.announce(kind_of(slow), Duration::ZERO);
    }
}

/// From here on nothing goes wrong.
fn calm(world: &mut World) {
    world.mishaps = Mishaps::default();
    (world.server_up, world.hung, world.locked) = (true, false, false);
    world.unreachable.clear();
    world.server.locked.clear();
    [false, true].into_iter().for_each(|slow| resume(world, slow));
    for node in 0..world.nodes.len() {
        world.thaw(node);
    }
    if running(world).next().is_none() {
        let worker = Worker {
            worker: u8::MAX,
            slots: 4,
            connections: 1,
            cap: None,
            threads: false,
            timeout: None,
            shutdown_timeout: 1_000,
            handler_grace: 0,
            ahead: 0,
            drift: 0,
        };
        start(world, &worker);
    }
}

/// Workers that are alive and were not told to stop.
fn running(world: &World) -> impl Iterator<Item = usize> + use<'_> {
    (0..world.nodes.len()).filter(|node| world.nodes[*node].engine.is_some() && !world.is_stopping(*node))
}

fn settle(world: &mut World) {
    let settled = world.run_while(world.time + PATIENCE, |world| !world.all_finished());
    assert!(settled, "everything settles when nothing goes wrong: {:?} are left", world.server.live);
    // What a worker has begun to look for after the last fault ends as well.
    world.run_until(world.time + IDLE.0);
    let before: Vec<usize> = world.nodes.iter().map(|node| node.statements.len()).collect();
    world.run_until(world.time + IDLE.0);
    for (node, before) in world.nodes.iter().zip(before) {
        let sent = node.statements.len() - before;
        assert!(sent <= IDLE.1, "an idle worker is quiet: {} sent {sent} statements in {:?}", node.name, IDLE.0);
    }
}

fn stop_all(world: &mut World) {
    let left: Vec<usize> = running(world).collect();
    for node in &left {
        stop(world, *node);
    }
    world.run_until(world.time + Duration::from_secs(30));
    for (node, it) in world.nodes.iter().enumerate() {
        let stopped = it.engine.is_none() || it.stopped.is_some();
        assert!(stopped, "a worker stops in time: {} has not, node {node}", it.name);
    }
}

//! What must hold after every step, whatever has gone wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{World, ms};
use crate::JobId;
use crate::job::RunId;
use crate::observer::Event;
use crate::report::ShutdownReport;

/// Statements that a worker may send in any second without a reason; jobs that come due are none that is counted.
const IDLE_STATEMENTS: usize = 40;

/// How many more it may send in it for each thing that has happened to it: a run's start or end, a notification, a
/// failure.
const STATEMENTS_PER_STIR: usize = 6;

const SECOND: Duration = Duration::from_secs(1);

/// What is known from the steps before.
#[derive(Debug, Default)]
pub(in crate::engine::tests) struct Audit {
    /// The runs that have ended, with the word for how.
    ended: BTreeMap<RunId, &'static str>,
    claimed: BTreeSet<RunId>,
    /// Runs whose results were accepted, as the workers say.
    accepted: BTreeSet<RunId>,
    entries: usize,
    claims: usize,
    nodes: BTreeMap<usize, Watched>,
    /// The most statements that a worker has sent in a second.
    pub(in crate::engine::tests) busiest: usize,
    /// How often what has happened, for the figures.
    pub(in crate::engine::tests) seen: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
struct Watched {
    statements: VecDeque<Duration>,
    stirs: VecDeque<Duration>,
    stops_by: Option<Duration>,
    frozen_at: Option<Duration>,
}

fn forget_older(times: &mut VecDeque<Duration>, now: Duration) {
    while times.front().is_some_and(|at| *at + SECOND < now) {
        times.pop_front();
    }
}

impl Audit {
    pub(in crate::engine::tests) fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// A worker says that a run's result was stored, and as what.
    fn result(&mut self, job: JobId, run: u32, told: &str) {
        let id = RunId { job: job.get(), run: i32::try_from(run).unwrap() };
        assert!(self.accepted.insert(id), "a result is accepted once: that of {id} was again");
        let stored = self.ended.get(&id).copied();
        assert!(stored == Some(told), "what is told was stored: of {id} it is {told}, and {stored:?} was");
    }
}

impl World {
    /// From now on each step is looked at.
    pub(in crate::engine::tests) fn watch_closely(&mut self) {
        self.audit = Some(Audit::default());
    }

    pub(in crate::engine::tests) fn count(&mut self, what: &'static str) {
        if let Some(audit) = &mut self.audit {
            audit.count(what);
        }
    }

    pub(super) fn audit(&mut self) {
        let Some(audit) = &mut self.audit else { return };
        let server = &self.server;
        for entry in &server.journal[audit.entries..] {
            let before = audit.ended.insert(entry.id, entry.what);
            assert!(before.is_none(), "a run ends once: {} has ended again, as {}", entry.id, entry.what);
            audit.count(entry.what);
        }
        audit.entries = server.journal.len();
        for (_, id, by, _) in &server.claims[audit.claims..] {
            assert!(audit.claimed.insert(*id), "a run is claimed once: {id} was claimed again, by {by}");
            let before = RunId { run: id.run - 1, ..*id };
            let alone = before.run == 0 || audit.ended.contains_key(&before);
            assert!(alone, "a job has one claim at a time: {id} was claimed by {by} before {before} had ended");
        }
        audit.claims = server.claims.len();
        let there = server.live.len() + server.finished.len() + server.discarded.len();
        assert!(there == server.enqueued(), "no job is lost: of {} jobs {there} are left", server.enqueued());
        self.audit_stops();
    }

    fn audit_stops(&self) {
        let Some(audit) = &self.audit else { return };
        for (node, watched) in &audit.nodes {
            let it = &self.nodes[*node];
            let Some(by) = watched.stops_by.filter(|_| watched.frozen_at.is_none()) else { continue };
            let waits = it.engine.is_none() || it.stopped.is_some() || self.threads(*node) > 0;
            assert!(waits || self.time <= by, "a worker stops in time: {} should have by {by:?}", it.name);
        }
    }

    /// A worker is told to stop: from now on its time is limited.
    pub(in crate::engine::tests) fn must_stop_within(&mut self, node: usize, own: Duration) {
        let by = self.time + self.nodes[node].clock.longest(own) + ms(100);
        let Some(audit) = &mut self.audit else { return };
        audit.nodes.entry(node).or_default().stops_by.get_or_insert(by);
    }

    pub(in crate::engine::tests) fn is_stopping(&self, node: usize) -> bool {
        let told = self.audit.as_ref().and_then(|audit| audit.nodes.get(&node)?.stops_by).is_some();
        told || !self.nodes[node].states.is_empty()
    }

    /// A thread has returned, or the worker has slept: it may take so much longer from now on.
    pub(super) fn may_stop_later(&mut self, node: usize) {
        let by = self.time + self.nodes[node].clock.longest(self.nodes[node].abort_grace) + ms(100);
        let Some(audit) = &mut self.audit else { return };
        if let Some(stops_by) = audit.nodes.get_mut(&node).and_then(|it| it.stops_by.as_mut()) {
            *stops_by = by.max(*stops_by);
        }
    }

    pub(super) fn freezes(&mut self, node: usize) {
        let Some(audit) = &mut self.audit else { return };
        audit.nodes.entry(node).or_default().frozen_at.get_or_insert(self.time);
    }

    pub(super) fn thaws(&mut self, node: usize) {
        let Some(audit) = &mut self.audit else { return };
        let watched = audit.nodes.entry(node).or_default();
        if let (Some(at), Some(by)) = (watched.frozen_at.take(), watched.stops_by.as_mut()) {
            *by += self.time - at;
        }
        self.may_stop_later(node);
    }

    /// Something has happened to this worker that may need statements.
    pub(super) fn stirs(&mut self, node: usize) {
        let Some(audit) = &mut self.audit else { return };
        audit.nodes.entry(node).or_default().stirs.push_back(self.time);
    }

    pub(super) fn audit_rate(&mut self, node: usize) {
        let Some(audit) = &mut self.audit else { return };
        let watched = audit.nodes.entry(node).or_default();
        watched.statements.push_back(self.time);
        forget_older(&mut watched.statements, self.time);
        forget_older(&mut watched.stirs, self.time);
        let (sent, stirs) = (watched.statements.len(), watched.stirs.len());
        let most = IDLE_STATEMENTS + STATEMENTS_PER_STIR * stirs;
        let lately = self.nodes[node].statements.iter().filter(|(at, _)| *at + SECOND >= self.time);
        let names = || lately.map(|(at, name)| format!("{} {name}", at.as_millis())).collect::<Vec<_>>().join(", ");
        assert!(sent <= most, "no busy loop: {sent} statements in a second, for {stirs} reasons: {}", names());
        audit.busiest = audit.busiest.max(sent);
        audit.count("statements");
    }

    pub(super) fn audit_event(&mut self, event: &Event) {
        let Some(audit) = &mut self.audit else { return };
        match event {
            Event::Settled { job, run, outcome, .. } => audit.result(*job, *run, outcome.as_str()),
            Event::Released { job, run, .. } => audit.result(*job, *run, "released"),
            Event::ClaimLost { .. } => audit.count("claims lost"),
            Event::LateResult { .. } => audit.count("late results"),
            Event::Orphan { .. } => audit.count("claims never heard of"),
            Event::Overruled { .. } => audit.count("results overruled"),
            Event::LinkLost { .. } => audit.count("links lost"),
            Event::LeftClaimed { .. } => audit.count("jobs left claimed"),
            Event::ShutdownState { state, .. } => audit.count(state),
            _ => {}
        }
    }

    pub(super) fn audit_report(&self, node: usize, report: &ShutdownReport) {
        if self.audit.is_some() {
            self.assert_stopped_soundly(node, report, self.nodes[node].abort_grace);
        }
    }
}

//! What handlers do in a simulated worker.

use std::time::Duration;

use super::{Happening, World, ms};
use crate::engine::{Input, Start};
use crate::job::RunId;
use crate::report::{Report, Verdict};
use crate::statement::{Ending, Statement};

/// Longer than any story.
const FOREVER: Duration = Duration::from_secs(1_000_000);

/// What a handler does.
#[derive(Debug)]
pub(in crate::engine::tests) struct Behaviour {
    /// How long it has to wait for a thread or its executor before it starts.
    pub(in crate::engine::tests) waits: Duration,
    pub(in crate::engine::tests) takes: Duration,
    pub(in crate::engine::tests) verdict: Verdict,
    /// Ends at once with a pause when it is cancelled.
    pub(in crate::engine::tests) cooperative: bool,
    /// How soon everything of it is gone when it is aborted, if it is a future; `None`: it never yields.
    pub(in crate::engine::tests) stops_in: Option<Duration>,
    /// When it commits a transaction that completes its job.
    pub(in crate::engine::tests) completes_at: Option<Duration>,
}

impl Behaviour {
    pub(in crate::engine::tests) fn takes(takes: Duration) -> Self {
        let verdict = Verdict::Completed { note: None };
        Self { waits: Duration::ZERO, takes, verdict, cooperative: false, stops_in: Some(ms(1)), completes_at: None }
    }

    /// It never ends by itself, nor when it is told to.
    pub(in crate::engine::tests) fn stuck() -> Self {
        Self { stops_in: None, ..Self::takes(FOREVER) }
    }
}

/// A handler, or a run that waits for one.
#[derive(Debug)]
pub(super) struct Handler {
    kind: usize,
    started: bool,
    report_start: bool,
}

impl World {
    /// What handlers of this kind do in this run.
    pub(in crate::engine::tests) fn behave(&mut self, behaviour: impl Fn(&str, RunId) -> Behaviour + 'static) {
        self.behaviour = Box::new(behaviour);
    }

    pub(super) fn start(&mut self, node: usize, start: Start) {
        let Start { id, kind, report_start, .. } = start;
        let twin = self.nodes[node].handlers.keys().any(|run| run.job == id.job);
        assert!(!twin, "a worker runs a job once at a time: {id} starts beside an earlier run");
        if self.nodes.iter().flat_map(|other| other.handlers.keys()).any(|run| run.job == id.job) {
            self.overlaps += 1;
        }
        self.nodes[node].handlers.insert(id, Handler { kind, started: false, report_start });
        self.assert_room(node, kind);
        let waits = self.behaviour_of(node, id).map(|it| it.waits).unwrap_or_default();
        if waits.is_zero() {
            self.handler_starts(node, id);
        } else {
            self.schedule(waits, Happening::HandlerStarts(node, id));
        }
    }

    fn assert_room(&self, node: usize, kind: usize) {
        let running = &self.nodes[node].handlers;
        assert!(running.len() <= self.nodes[node].concurrency, "never more handlers than slots");
        let of_kind = running.values().filter(|other| other.kind == kind).count();
        let cap = self.nodes[node].caps[kind];
        assert!(cap.is_none_or(|cap| of_kind <= cap), "never more handlers of a kind than its cap");
    }

    pub(super) fn handler_starts(&mut self, node: usize, id: RunId) {
        let Some(behaviour) = self.behaviour_of(node, id) else { return };
        let Some(handler) = self.nodes[node].handlers.get_mut(&id) else { return };
        handler.started = true;
        let kind = handler.kind;
        let report_start = handler.report_start;
        if self.nodes[node].blocking.contains(&kind) {
            self.nodes[node].threads.insert(id);
        }
        self.starts.push((self.time, id));
        if report_start {
            self.schedule(Duration::ZERO, Happening::Tell(node, Input::Started(id)));
        }
        if let Some(after) = behaviour.completes_at {
            self.at(self.time + after, move |world| world.complete(node, id));
        }
        self.schedule(behaviour.takes, Happening::HandlerEnds(node, id, Some(behaviour.verdict)));
    }

    /// Its transaction is over the handler's own connection, so no fault of the worker's reaches it.
    fn complete(&mut self, node: usize, id: RunId) {
        if self.server_up && !self.hung && self.nodes[node].handlers.contains_key(&id) {
            let name = self.nodes[node].name.clone();
            self.server.complete(id, &name);
        }
    }

    pub(super) fn cancel(&mut self, node: usize, id: RunId) {
        if self.behaviour_of(node, id).is_some_and(|it| it.cooperative) {
            let paused = Verdict::Paused { resume_in: Duration::ZERO, note: None };
            self.schedule(ms(1), Happening::HandlerEnds(node, id, Some(paused)));
        }
    }

    pub(super) fn abort(&mut self, node: usize, id: RunId) {
        let Some(behaviour) = self.behaviour_of(node, id) else { return };
        let handler = &self.nodes[node].handlers[&id];
        if !handler.started {
            // One decision: from here on it can't start.
            self.nodes[node].handlers.remove(&id);
            let report = Report::new(Verdict::NotStarted);
            self.schedule(Duration::ZERO, Happening::Tell(node, Input::Finished(id, report)));
        } else if let Some(stops_in) = behaviour.stops_in.filter(|_| !self.nodes[node].blocking.contains(&handler.kind))
        {
            self.schedule(stops_in, Happening::HandlerEnds(node, id, Some(Verdict::Aborted)));
        }
    }

    fn behaviour_of(&self, node: usize, id: RunId) -> Option<Behaviour> {
        let kind = self.nodes[node].handlers.get(&id)?.kind;
        let rules = &self.nodes[node].engine.as_ref()?.rules;
        Some((self.behaviour)(rules.kinds[kind].kind, id))
    }

    pub(super) fn handler_ends(&mut self, node: usize, id: RunId, verdict: Option<Verdict>) {
        if let Some(handler) = self.nodes[node].handlers.remove(&id) {
            let mut verdict = verdict.unwrap_or(Verdict::Completed { note: None });
            if self.nodes[node].blocking.contains(&handler.kind) {
                self.may_stop_later(node);
                if verdict == Verdict::Discarded {
                    // Only an executor throws a run away.
                    verdict = Verdict::Panicked("panicked: oh".into());
                }
            }
            self.tell(node, Input::Finished(id, Report::new(verdict)));
        }
    }

    /// A handler that was waiting for something ends now.
    pub(in crate::engine::tests) fn end_handlers(&mut self, node: usize) {
        self.end_handlers_with(node, || Verdict::Completed { note: None });
    }

    pub(in crate::engine::tests) fn end_handlers_with(&mut self, node: usize, verdict: impl Fn() -> Verdict) {
        let going: Vec<RunId> = self.nodes[node].handlers.keys().copied().collect();
        for id in going {
            self.handler_ends(node, id, Some(verdict()));
        }
    }

    pub(in crate::engine::tests) fn handlers(&self, node: usize) -> usize {
        self.nodes[node].handlers.len()
    }

    /// Blocking handlers that have started and not returned.
    pub(super) fn threads(&self, node: usize) -> usize {
        let it = &self.nodes[node];
        it.handlers.values().filter(|handler| handler.started && it.blocking.contains(&handler.kind)).count()
    }

    /// Nothing is given back while it is worked on, whatever has gone wrong.
    pub(super) fn assert_released_jobs_rest(&self, node: usize, statement: &Statement) {
        let Statement::Exchange { settle: Some(settle), .. } = statement else { return };
        for row in settle.rows.iter().filter(|row| row.outcome == Ending::Released) {
            assert!(!self.nodes[node].handlers.contains_key(&row.id), "run {} is released under its handler", row.id);
            let threads = &self.nodes[node].threads;
            assert!(!threads.contains(&row.id), "a started thread's run is never released: {}", row.id);
        }
    }
}

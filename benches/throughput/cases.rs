//! What is measured, and how often.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Result;
use crate::support::nothing::PAYLOAD;
use crate::support::options::Options;

/// A round that would probably end later than this is not begun.
const AT_MOST_SECONDS: usize = 300;

#[derive(Debug)]
pub(crate) struct Settings {
    /// In a drain at 64 slots and more; fewer where a job takes longer.
    jobs: usize,
    pub(crate) rounds: usize,
    concurrency: Vec<usize>,
    processes: Vec<usize>,
    connections: Vec<usize>,
    pub(crate) at_most: Duration,
    filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Reference,
    Blocking,
    Async,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) who: Who,
    /// Jobs taken at once on each connection.
    pub(crate) concurrency: usize,
    /// Connections for claims and settlements: of the reference, which is one process, or of all workers.
    pub(crate) count: usize,
    /// How many of them each worker has. There is one worker to a process.
    pub(crate) each: usize,
}

impl Settings {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let seconds = options.count("SECONDS", AT_MOST_SECONDS, AT_MOST_SECONDS)?;
        Ok(Self {
            jobs: options.count("JOBS", 100_000, 1_000)?,
            rounds: options.count("ROUNDS", 3, 1)?,
            concurrency: options.counts("CONCURRENCY", &[1, 16, 64, 256], &[16])?,
            processes: options.counts("PROCESSES", &[1, 2], &[1, 2])?,
            connections: options.counts("CONNECTIONS", &[1, 2], &[1, 2])?,
            at_most: Duration::from_secs(seconds.try_into()?),
            filter: options.filter.clone(),
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "jobs": self.jobs, "rounds": self.rounds, "concurrency": self.concurrency, "processes": self.processes,
            "connections": self.connections,
            "payload_bytes": PAYLOAD,
        })
    }

    /// In the order of a round. What is compared is measured side by side.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = vec![Case::SINGLE, Case::BATCHED];
        for concurrency in self.concurrency.iter().copied() {
            for count in self.processes.iter().copied() {
                cases.extend(Who::ALL.map(|who| Case { who, concurrency, count, each: 1 }));
            }
            if self.connections.contains(&2) && self.processes.contains(&2) {
                let apart = |who| Case { who, concurrency, count: 2, each: 2 };
                cases.extend([Who::Blocking, Who::Async].map(apart));
            }
        }
        cases.retain(|case| case.name().contains(&self.filter));
        cases
    }

    pub(crate) fn jobs(&self, case: Case) -> usize {
        // One job a flight takes ten times as long as many do.
        let part = match (case.concurrency, case.count) {
            (1, 1..4) => 10,
            (1, _) => 5,
            (2..64, _) => 2,
            _ => 1,
        };
        self.jobs.div_ceil(part)
    }
}

impl Case {
    /// What most people write: a job at a time, on sixteen connections.
    pub(crate) const SINGLE: Self = Self { who: Who::Reference, concurrency: 1, count: 16, each: 1 };
    /// What those write who want it fast.
    pub(crate) const BATCHED: Self = Self { who: Who::Reference, concurrency: 256, count: 4, each: 1 };

    /// As in `async/256/2x1`: who, how many at once, in how many processes and over how many connections each.
    pub(crate) fn name(self) -> String {
        format!("{}/{}/{}x{}", self.who.name(), self.concurrency, self.count / self.each, self.each)
    }

    /// The reference that takes as many jobs at once on as many connections.
    pub(crate) fn same(self) -> Self {
        Self { who: Who::Reference, each: 1, ..self }
    }

    pub(crate) fn processes(self) -> usize {
        if self.who == Who::Reference { 1 } else { self.count / self.each }
    }
}

impl Who {
    pub(crate) const ALL: [Self; 3] = [Self::Reference, Self::Blocking, Self::Async];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Blocking => "blocking",
            Self::Async => "async",
        }
    }
}

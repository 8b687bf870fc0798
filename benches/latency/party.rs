//! Whose jobs start: a worker of a front-end, or the reference.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_hand::Loops;
use crate::support::front::{Front, Lab, Producer, Running, Spec, Tick};
use crate::support::reference::{self, Reference};
use crate::support::server::Server;
use crate::support::{Result, each_on_a_thread};

const SCHEMA: &str = "latency";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Reference,
    Front(Front),
    /// With `durable_claims(false)`.
    Relaxed(Front),
}

/// A worker at work.
pub(crate) struct Party<'a> {
    server: &'a Server,
    lab: Arc<Lab>,
    inner: Inner,
}

enum Inner {
    Reference(Loops),
    Front { front: Front, database: Box<venturi::Database>, running: Running },
}

/// What enqueues its jobs, one after the other.
pub(crate) enum Source {
    Reference(Box<Reference>),
    Front(Producer),
}

/// A job, and the moment before it was enqueued.
pub(crate) type Sent = (i64, Instant);

impl Who {
    pub(crate) const ALL: [Self; 5] = [
        Self::Reference,
        Self::Front(Front::Blocking),
        Self::Front(Front::Async),
        Self::Relaxed(Front::Blocking),
        Self::Relaxed(Front::Async),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Front(front) => front.name(),
            Self::Relaxed(Front::Blocking) => "blocking*",
            Self::Relaxed(Front::Async) => "async*",
        }
    }
}

impl<'a> Party<'a> {
    /// On empty tables.
    pub(crate) fn start(server: &'a Server, who: Who, slots: usize) -> Result<Self> {
        let lab = Lab::new();
        let inner = match who {
            Who::Reference => {
                reference::create(server)?;
                Inner::Reference(Loops::start(server, slots, &lab)?)
            }
            Who::Front(front) | Who::Relaxed(front) => {
                let database = Box::new(server.queue(SCHEMA)?);
                let durable_claims = !matches!(who, Who::Relaxed(_));
                let spec = Spec { concurrency: slots, durable_claims, ..Spec::default() };
                let running = front.start(&database, &lab, spec)?;
                Inner::Front { front, database, running }
            }
        };
        Ok(Self { server, lab, inner })
    }

    pub(crate) fn source(&self) -> Result<Source> {
        Ok(match &self.inner {
            Inner::Reference(_) => Source::Reference(Box::new(Reference::connect(self.server)?)),
            Inner::Front { front, database, .. } => Source::Front(front.queue(database)?),
        })
    }

    /// Has `send` done on as many threads as there are sources; answers how long each of their jobs waited to start.
    /// `known` jobs have been sent before.
    pub(crate) fn waits(
        &self,
        sources: usize,
        known: usize,
        send: impl Fn(usize, &mut Source) -> Result<Vec<Sent>> + Sync,
    ) -> Result<Vec<Duration>> {
        let sent = each_on_a_thread(sources, |nth| send(nth, &mut self.source()?))?.concat();
        let starts = self.wait_starts(known + sent.len())?;
        Ok(sent.iter().filter_map(|(job, before)| Some(*starts.get(job)? - *before)).collect())
    }

    /// When each job started, as soon as so many have.
    fn wait_starts(&self, count: usize) -> Result<HashMap<i64, Instant>> {
        Ok(self.lab.wait_starts(count)?.iter().map(|start| (start.job, start.at)).collect())
    }

    pub(crate) fn wait(&self, count: usize) -> Result<()> {
        self.lab.wait_starts(count).map(drop)
    }

    pub(crate) fn stop(self) -> Result<()> {
        match self.inner {
            Inner::Reference(loops) => loops.stop(),
            Inner::Front { running, .. } => running.stop(),
        }
    }
}

impl Source {
    pub(crate) fn send(&mut self, nap_ms: u64) -> Result<Sent> {
        let (task, before) = (Tick { nap_ms, failures: 0 }, Instant::now());
        let job = match self {
            Self::Reference(reference) => reference.insert(&task, true)?,
            Self::Front(producer) => producer.enqueue(task)?,
        };
        Ok((job, before))
    }
}

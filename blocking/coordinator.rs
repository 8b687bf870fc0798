//! The loop around the engine. It runs on the thread that called `run`, and only receives: what waits for the database
//! or runs handlers has a thread of its own.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::cancellation::CancellationToken;
use crate::context::Home;
use crate::engine::{Engine, Input, Link, Output, Rules};
use crate::error::Error;
use crate::link::Epoch;
use crate::panic_boundary::Contained;
use crate::registry::Registry;
use crate::report::ShutdownReport;
use crate::threads::{Audience, Pool, Runner};
use crate::{Database, time};

use super::clock::now;
use super::link::{LinkThreads, News};

/// How long a stopped worker waits for its threads. They end within a few milliseconds, a listening one within 100;
/// one that hangs in a connection is not worth more.
const END_WITHIN: Duration = Duration::from_millis(300);

/// What a worker is made of.
pub(super) struct Parts<S> {
    pub(super) rules: Rules,
    pub(super) database: Database,
    pub(super) registry: Registry<Runner<S>>,
    pub(super) state: Arc<Contained<S>>,
}

pub(super) struct Coordinator<S> {
    engine: Engine,
    inputs: Receiver<Input>,
    sender: Sender<Input>,
    work: LinkThreads,
    settle: LinkThreads,
    watch: LinkThreads,
    handlers: Pool<S>,
    audience: Audience,
    shutdown: CancellationToken,
}

impl<S: Send + Sync + 'static> Coordinator<S> {
    /// Runs a worker to its end.
    pub(super) fn run(parts: Parts<S>, shutdown: &CancellationToken) -> Result<ShutdownReport, Error> {
        let mut this = Self::new(parts, shutdown);
        let sender = this.sender.clone();
        // Called at once if it is cancelled already.
        let _hook = shutdown.on_cancel(Box::new(move || drop(sender.send(Input::Shutdown))));
        let result = this.drive();
        this.end();
        result
    }

    fn new(parts: Parts<S>, shutdown: &CancellationToken) -> Self {
        let Parts { rules, database, registry, state } = parts;
        let (sender, inputs) = unbounded();
        let most = rules.config.concurrency;
        let home = Home::new(&rules, &database);
        let runners = registry.into_runners().into_iter().map(Some).collect();
        let inbox = sender.clone();
        let tell = move |input| drop(inbox.send(input));
        let audience = Audience::new(rules.config.observers.clone(), Some(Arc::clone(&rules.worker)));
        Self {
            audience,
            engine: Engine::new(rules, now()),
            handlers: Pool::new(runners, state, tell, shutdown.clone(), most, home),
            work: LinkThreads::new("venturi-work", &database),
            settle: LinkThreads::new("venturi-settle", &database),
            watch: LinkThreads::new("venturi-watch", &database.watched()),
            inputs,
            sender,
            shutdown: shutdown.clone(),
        }
    }

    /// The three steps of [`Engine`]'s contract.
    fn drive(&mut self) -> Result<ShutdownReport, Error> {
        loop {
            let time = now();
            while let Some(output) = self.engine.output(time) {
                if let Output::Stopped(result) = output {
                    return result;
                }
                self.perform(output);
            }
            let first = self.wait();
            // Who is about to send something may do so first: handlers that end together then share an exchange.
            thread::yield_now();
            self.pass(first);
            while let Ok(input) = self.inputs.try_recv() {
                self.pass(input);
            }
        }
    }

    fn wait(&self) -> Input {
        let input = match self.engine.deadline() {
            Some(deadline) => self.inputs.recv_deadline(deadline).ok(),
            None => self.inputs.recv().ok(),
        };
        input.unwrap_or(Input::Tick)
    }

    fn pass(&mut self, input: Input) {
        // A handler that the shutdown woke may report before the shutdown does, and must not seem to make room for a
        // claim. The engine takes note once.
        if self.shutdown.is_cancelled() {
            self.engine.input(now(), Input::Shutdown);
        }
        if let Input::Finished(id, _) = &input {
            self.handlers.forget(*id);
        }
        self.engine.input(now(), input);
    }

    /// Sets going what the engine wants; waits for nothing.
    fn perform(&mut self, output: Output) {
        match output {
            Output::Connect(link, epoch) => {
                let tell = self.teller(link, epoch);
                self.link(link).connect(tell);
            }
            Output::Disconnect(link) => self.link(link).disconnect(),
            Output::Execute(link, id, statement) => self.link(link).execute(id, *statement),
            Output::Start(start) => self.handlers.start(*start),
            Output::Cancel(id, reason) => self.handlers.cancel(id, reason),
            Output::Abort(id) => self.handlers.revoke(id),
            Output::Observe(event) => self.audience.tell(event),
            Output::Stopped(_) => {}
        }
    }

    fn link(&mut self, link: Link) -> &mut LinkThreads {
        match link {
            Link::Work => &mut self.work,
            Link::Settle => &mut self.settle,
            Link::Watch => &mut self.watch,
        }
    }

    /// Makes inputs of what a connection of this link and epoch tells.
    fn teller(&self, link: Link, epoch: Epoch) -> impl Fn(News) + Clone + Send + use<S> {
        let sender = self.sender.clone();
        move |news| {
            let input = match news {
                News::Connected => Input::Connected(link, epoch),
                News::Lost(fault) => Input::Lost(link, epoch, fault),
                News::Reply(id, reply) => Input::Reply(id, reply),
                News::Notified(payload) => Input::Notified(payload),
            };
            // Nobody listens any more when the worker has stopped.
            let _ = sender.send(input);
        }
    }

    fn end(mut self) {
        let deadline = time::later(now(), END_WITHIN);
        // All are told before the first is waited for.
        self.work.disconnect();
        self.settle.disconnect();
        self.watch.disconnect();
        self.handlers.end_by(deadline);
        self.work.end_by(deadline);
        self.settle.end_by(deadline);
        self.watch.end_by(deadline);
        self.audience.end_by(deadline);
    }
}

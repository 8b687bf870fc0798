//! A worker's own thread: it owns the engine, talks to the server, and never runs a handler.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};

use crate::Database;
use crate::cancellation::{CancelReason, CancellationToken};
use crate::context::{Home, Ties};
use crate::engine::{Engine, Input, Link, Output, Rules, Start};
use crate::error::Error;
use crate::job::RunId;
use crate::panic_boundary::{Contained, guarded};
use crate::report::{Report, ShutdownReport, Verdict};
use crate::threads::{Audience, Pool, Runner};
use crate::time::later;

use super::arrivals::{Arrival, Arrivals};
use super::task::{Fate, Inbox};
use super::thread::{self, now};
use super::wire::{self, Wire};

/// How long the threads of blocking handlers are waited for when the worker has stopped. They are idle by then.
const END_WITHIN: Duration = Duration::from_millis(300);

/// What the thread asks of the `run` future.
pub(super) enum Order {
    /// All that begin at once: each message wakes the executor, and one does for many.
    Start(Vec<Ticket>),
    /// The last one.
    Stopped(Result<ShutdownReport, Error>),
}

/// A run to be put onto the executor. Thrown away, it reports itself as discarded.
pub(super) struct Ticket {
    pub(super) start: Box<Start>,
    pub(super) ties: Ties,
    pub(super) fate: Arc<Fate>,
}

/// Both ends of what connects the thread with the `run` future and its tasks.
pub(super) struct Channels {
    pub(super) inbox: Inbox,
    pub(super) orders: Receiver<Order>,
}

/// What the thread needs for the kinds that are registered as blocking.
pub(super) struct Blocking<S> {
    /// By kind; nothing for those that are futures.
    pub(super) runners: Vec<Option<Runner<S>>>,
    pub(super) state: Arc<Contained<S>>,
}

/// Starts the thread. The tokens of its runs are children of `shutdown`; somebody has to send [`Input::Shutdown`] when
/// that is cancelled.
pub(super) fn start<S: Send + Sync + 'static>(
    rules: Rules,
    database: Database,
    blocking: Blocking<S>,
    shutdown: CancellationToken,
) -> Result<Channels, Error> {
    // Not bounded: each run has room for one order, and for two inputs.
    let (inputs, receiver) = async_channel::unbounded();
    let (outbox, orders) = async_channel::unbounded();
    let home = Home::new(&rules, &database);
    let front = Inbox::new(inputs, home.clone());
    let (inbox, own_outbox) = (front.clone(), outbox.clone());
    let make = move || {
        let (told, most) = (inbox.clone(), rules.config.concurrency);
        let blocks = blocking.runners.iter().map(Option::is_some).collect();
        let tell = move |input| told.send(input);
        let driver = Driver {
            pool: Pool::new(blocking.runners, blocking.state, tell, shutdown.clone(), most, home),
            blocks,
            audience: Audience::new(rules.config.observers.clone(), Some(Arc::clone(&rules.worker))),
            engine: Engine::new(rules, now()),
            wires: [Wire::new(database.clone()), Wire::new(database.clone()), Wire::new(database.watched())],
            arrivals: Arrivals::new(receiver),
            runs: Runs::default(),
            tickets: Vec::new(),
            inbox,
            orders: own_outbox,
            shutdown,
        };
        driver.run()
    };
    // By then the driver and its connections are gone.
    let end = move |result| drop(outbox.try_send(Order::Stopped(result)));
    thread::start("venturi-io", make, end)?;
    Ok(Channels { inbox: front, orders })
}

struct Driver<S> {
    /// The threads of blocking handlers; there are none until one is needed.
    pool: Pool<S>,
    /// Which kinds run there.
    blocks: Vec<bool>,
    engine: Engine,
    wires: [Wire; 3],
    arrivals: Arrivals<Input>,
    runs: Runs,
    /// For runs that the executor has not been given yet.
    tickets: Vec<Ticket>,
    inbox: Inbox,
    orders: Sender<Order>,
    audience: Audience,
    shutdown: CancellationToken,
}

impl<S: Send + Sync + 'static> Driver<S> {
    /// The loop that [`Engine`] asks for.
    async fn run(mut self) -> Result<ShutdownReport, Error> {
        loop {
            let time = now();
            while let Some(output) = self.engine.output(time) {
                if let Output::Stopped(result) = output {
                    self.hand_over();
                    let deadline = later(now(), END_WITHIN);
                    self.pool.end_by(deadline);
                    self.audience.end_by(deadline);
                    return result;
                }
                self.carry_out(output);
            }
            self.hand_over();
            let news = self.arrivals.wait(&mut self.wires, self.engine.deadline()).await;
            let now = now();
            // The token wakes handlers before it tells us, so a result could overtake the shutdown that caused it, and
            // one more job be claimed. Telling the engine again changes nothing.
            if self.shutdown.is_cancelled() {
                self.engine.input(now, Input::Shutdown);
            } else if news.is_empty() {
                self.engine.input(now, Input::Tick);
            }
            for input in news.into_iter().map(into_input) {
                if let Input::Finished(id, _) = input {
                    self.runs.0.remove(&id);
                    self.pool.forget(id);
                }
                self.engine.input(now, input);
            }
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect(link, epoch) => self.wire(link).connect(epoch),
            Output::Disconnect(link) => self.wire(link).disconnect(),
            Output::Execute(link, id, statement) => self.wire(link).execute(id, *statement),
            Output::Start(start) => self.start(start),
            Output::Cancel(id, reason) => {
                self.runs.cancel(id, reason);
                self.pool.cancel(id, reason);
            }
            Output::Abort(id) => self.abort(id),
            Output::Observe(event) => self.audience.tell(event),
            Output::Stopped(_) => debug_assert!(false, "the loop ends with it"),
        }
    }

    fn wire(&mut self, link: Link) -> &mut Wire {
        // In the order of `Link::ALL`.
        let [work, settle, watch] = &mut self.wires;
        match link {
            Link::Work => work,
            Link::Settle => settle,
            Link::Watch => watch,
        }
    }

    fn start(&mut self, start: Box<Start>) {
        if self.blocks.get(start.kind).is_some_and(|blocks| *blocks) {
            self.pool.start(*start);
            return;
        }
        let (id, fate) = (start.id, Arc::<Fate>::default());
        let ties = self.inbox.ties(id, self.shutdown.child_token(), &fate);
        self.runs.0.insert(id, Going { token: ties.token.clone(), fate: Arc::clone(&fate) });
        self.tickets.push(Ticket { start, ties, fate });
    }

    fn hand_over(&mut self) {
        if !self.tickets.is_empty() {
            // If nobody takes orders any more, the tickets come back, and with each the report that it was discarded.
            drop(self.orders.try_send(Order::Start(mem::take(&mut self.tickets))));
        }
    }

    fn abort(&mut self, id: RunId) {
        self.pool.revoke(id);
        if self.runs.abort(id) {
            // Through the inbox, as every report: just now the engine is asked for outputs.
            self.inbox.send(Input::Finished(id, Report::new(Verdict::NotStarted)));
        }
    }
}

fn into_input(news: Arrival<Input>) -> Input {
    // In the order of the wires.
    let link = |nth| Link::ALL.get(nth).copied().unwrap_or(Link::Watch);
    match news {
        Arrival::Wire(nth, wire::News::Connected(epoch)) => Input::Connected(link(nth), epoch),
        Arrival::Wire(nth, wire::News::Lost(epoch, fault)) => Input::Lost(link(nth), epoch, fault),
        Arrival::Wire(_, wire::News::Reply(id, reply)) => Input::Reply(id, reply),
        Arrival::Wire(_, wire::News::Notified(payload)) => Input::Notified(payload),
        Arrival::Message(input) => input,
        // Cannot be: the driver has a sender itself.
        Arrival::Closed => Input::Abandoned,
    }
}

/// The runs that have not reported yet. What is left when the thread ends, for whatever reason, is aborted.
#[derive(Default)]
struct Runs(HashMap<RunId, Going>);

struct Going {
    token: CancellationToken,
    fate: Arc<Fate>,
}

impl Runs {
    fn cancel(&self, id: RunId, reason: CancelReason) {
        if let Some(run) = self.0.get(&id) {
            // What waits for the token is woken in here, which is code of the application's executor.
            drop(guarded(|| run.token.cancel_because(reason)));
        }
    }

    /// Whether it was taken back before it began; then nobody else reports it.
    fn abort(&self, id: RunId) -> bool {
        // A waker is code of the application's executor, too.
        self.0.get(&id).is_some_and(|run| guarded(|| run.fate.abort()).unwrap_or(false))
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        for id in self.0.keys() {
            self.abort(*id);
        }
    }
}

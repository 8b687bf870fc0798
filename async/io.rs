//! A worker's own thread: it owns the engine, talks to the server, and never runs a handler.

use std::collections::HashMap;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use crate::Database;
use crate::cancellation::{CancelReason, CancellationToken};
use crate::context::Ties;
use crate::engine::{Engine, Input, Link, Output, Rules, Start};
use crate::error::Error;
use crate::job::RunId;
use crate::panic_boundary::guarded;
use crate::report::{Report, ShutdownReport, Verdict};

use super::arrivals::{Arrival, Arrivals};
use super::task::{Fate, Inbox};
use super::thread::{self, now};
use super::wire::{self, Wire};

/// What the thread asks of the `run` future.
pub(super) enum Order {
    Start(Ticket),
    /// The last one.
    Stopped(Result<ShutdownReport, Error>),
}

/// A run to be put onto the executor. Thrown away, it reports itself as discarded.
pub(super) struct Ticket {
    pub(super) start: Start,
    pub(super) ties: Ties,
    pub(super) fate: Arc<Fate>,
}

/// Both ends of what connects the thread with the `run` future and its tasks.
pub(super) struct Channels {
    pub(super) inputs: Sender<Input>,
    pub(super) orders: Receiver<Order>,
}

/// Starts the thread. The tokens of its runs are children of `shutdown`; somebody has to send [`Input::Shutdown`] when
/// that is cancelled.
pub(super) fn start(rules: Rules, database: Database, shutdown: CancellationToken) -> Result<Channels, Error> {
    // Not bounded: each run has room for one order, and for two inputs.
    let (inputs, receiver) = async_channel::unbounded();
    let (outbox, orders) = async_channel::unbounded();
    let (own_inputs, own_outbox) = (inputs.clone(), outbox.clone());
    let make = move || {
        let driver = Driver {
            engine: Engine::new(rules, now()),
            wires: [Wire::new(database.clone()), Wire::new(database)],
            arrivals: Arrivals::new(receiver),
            runs: Runs::default(),
            inbox: Inbox::new(own_inputs),
            orders: own_outbox,
            shutdown,
        };
        driver.run()
    };
    // By then the driver and its connections are gone.
    let end = move |result| drop(outbox.try_send(Order::Stopped(result)));
    thread::start("venturi-io", make, end)?;
    Ok(Channels { inputs, orders })
}

struct Driver {
    engine: Engine,
    wires: [Wire; 2],
    arrivals: Arrivals<Input>,
    runs: Runs,
    inbox: Inbox,
    orders: Sender<Order>,
    shutdown: CancellationToken,
}

impl Driver {
    /// The loop that [`Engine`] asks for.
    async fn run(mut self) -> Result<ShutdownReport, Error> {
        loop {
            while let Some(output) = self.engine.output(now()) {
                if let Output::Stopped(result) = output {
                    return result;
                }
                self.carry_out(output);
            }
            let news = self.arrivals.wait(&mut self.wires, self.engine.deadline()).await;
            let now = now();
            if news.is_empty() {
                self.engine.input(now, Input::Tick);
            }
            for input in news.into_iter().map(into_input) {
                if let Input::Finished(id, _) = input {
                    self.runs.0.remove(&id);
                }
                self.engine.input(now, input);
            }
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect(link, epoch) => self.wire(link).connect(epoch),
            Output::Disconnect(link) => self.wire(link).disconnect(),
            Output::Execute(link, id, statement) => self.wire(link).execute(id, statement),
            Output::Start(start) => self.start(start),
            Output::Cancel(id, reason) => self.runs.cancel(id, reason),
            Output::Abort(id) => self.abort(id),
            // A logger is code of the application's.
            Output::Observe(event) => drop(guarded(|| event.log())),
            Output::Stopped(_) => debug_assert!(false, "the loop ends with it"),
        }
    }

    fn wire(&mut self, link: Link) -> &mut Wire {
        let [work, watch] = &mut self.wires;
        match link {
            Link::Work => work,
            Link::Watch => watch,
        }
    }

    fn start(&mut self, start: Start) {
        let (id, fate) = (start.id, Arc::<Fate>::default());
        let ties = self.inbox.ties(id, self.shutdown.child_token(), &fate);
        self.runs.0.insert(id, Going { token: ties.token.clone(), fate: Arc::clone(&fate) });
        // If nobody takes orders any more, the ticket comes back, and with it the report that it was discarded.
        drop(self.orders.try_send(Order::Start(Ticket { start, ties, fate })));
    }

    fn abort(&mut self, id: RunId) {
        if self.runs.abort(id) {
            // Through the inbox, as every report: just now the engine is asked for outputs.
            self.inbox.send(Input::Finished(id, Report::new(Verdict::NotStarted)));
        }
    }
}

fn into_input(news: Arrival<Input>) -> Input {
    let link = |nth| if nth == 0 { Link::Work } else { Link::Watch };
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

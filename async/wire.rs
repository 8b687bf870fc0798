//! A link as the thread that drives it has it: down, on its way, or up with at most one statement in flight.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::Database;
use crate::fault::Fault;
use crate::link::{Epoch, StatementId};
use crate::statement::{Reply, Statement, Texts};

use super::connection::{Connection, Traffic};
use super::execute::Speaker;

/// What a link has to tell.
#[derive(Debug)]
pub(super) enum News {
    Connected(Epoch),
    Lost(Epoch, Fault),
    Reply(StatementId, Result<Reply, Fault>),
    Notified(String),
}

/// The engine says when to connect, what to execute and when to give up; this does it, and tells what comes of it.
pub(super) struct Wire {
    database: Database,
    texts: Texts,
    epoch: Epoch,
    state: State,
}

enum State {
    Down,
    Connecting(Pin<Box<dyn Future<Output = Result<Connection, Fault>>>>),
    Up(Box<Up>),
}

struct Up {
    speaker: Rc<Speaker>,
    in_flight: Option<InFlight>,
    /// Dropped last, so that nothing in flight sees its end before its own.
    traffic: Traffic,
}

struct InFlight {
    id: StatementId,
    answer: Pin<Box<dyn Future<Output = Result<Reply, Fault>>>>,
}

impl Wire {
    pub(super) fn new(database: Database) -> Self {
        let texts = Texts::new(database.schema_name());
        Self { database, texts, epoch: 0, state: State::Down }
    }

    /// Drops what there is, and begins to connect.
    pub(super) fn connect(&mut self, epoch: Epoch) {
        // The old socket is closed before there is a new one.
        self.state = State::Down;
        self.epoch = epoch;
        let database = self.database.clone();
        self.state = State::Connecting(Box::pin(async move { Connection::open(&database).await }));
    }

    /// Drops what there is, at once and whatever it is doing.
    pub(super) fn disconnect(&mut self) {
        self.state = State::Down;
    }

    pub(super) fn execute(&mut self, id: StatementId, statement: Statement) {
        let State::Up(up) = &mut self.state else {
            debug_assert!(false, "a statement is sent only while the link is up");
            return;
        };
        debug_assert!(up.in_flight.is_none(), "one statement in flight per link");
        let speaker = Rc::clone(&up.speaker);
        let answer = Box::pin(async move { speaker.execute(&statement).await });
        up.in_flight = Some(InFlight { id, answer });
    }

    /// The next news; to be polled until it is pending.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        match &mut self.state {
            State::Down => Poll::Pending,
            State::Connecting(connecting) => match connecting.as_mut().poll(cx) {
                Poll::Ready(Ok(connection)) => {
                    self.state =
                        State::Up(Box::new(Up::new(connection, self.texts.clone(), self.database.is_pooled())));
                    Poll::Ready(News::Connected(self.epoch))
                }
                Poll::Ready(Err(fault)) => self.lost(fault),
                Poll::Pending => Poll::Pending,
            },
            State::Up(up) => match up.poll(cx) {
                Poll::Ready(Ok(news)) => Poll::Ready(news),
                Poll::Ready(Err(fault)) => self.lost(fault),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn lost(&mut self, fault: Fault) -> Poll<News> {
        self.state = State::Down;
        Poll::Ready(News::Lost(self.epoch, fault))
    }
}

impl Up {
    fn new(connection: Connection, texts: Texts, pooled: bool) -> Self {
        let Connection { client, traffic } = connection;
        Self { speaker: Rc::new(Speaker::new(client, texts, pooled)), in_flight: None, traffic }
    }

    /// First what is said, then the transport, then what that brought. `Err`: the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<News, Fault>> {
        if let Poll::Ready(reply) = self.poll_answer(cx) {
            return Poll::Ready(Ok(reply));
        }
        match self.traffic.poll(cx) {
            Poll::Ready(Ok(payload)) => Poll::Ready(Ok(News::Notified(payload))),
            Poll::Ready(Err(fault)) => Poll::Ready(match self.poll_answer(cx) {
                Poll::Ready(reply) if !only_says_closed(&reply) => Ok(reply),
                _ => Err(fault),
            }),
            Poll::Pending => self.poll_answer(cx).map(Ok),
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        let Some(in_flight) = &mut self.in_flight else { return Poll::Pending };
        let id = in_flight.id;
        in_flight.answer.as_mut().poll(cx).map(|answer| {
            self.in_flight = None;
            News::Reply(id, answer)
        })
    }
}

/// Whether a reply knows less about the connection's end than the connection itself.
fn only_says_closed(news: &News) -> bool {
    let News::Reply(_, Err(fault)) = news else { return false };
    fault.source.as_ref().is_some_and(|error| error.is_closed())
}

//! A link: its connection, on a thread that is started for it and is given up with it.
//!
//! Connecting and querying wait, so whoever decides does neither. It hands a command over and hears the answer through
//! the channel that it waits on for everything else. A thread that hangs is not waited for: it is forgotten, its
//! statement cancelled, and a new one takes its place.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use log::Level;
use parking_lot::Mutex;
use postgres::CancelToken;

use crate::Database;
use crate::fault::Fault;
use crate::link::StatementId;
use crate::notice::notice;
use crate::panic_boundary::guarded;
use crate::statement::{Reply, Statement};
use crate::threads::Threads;

use super::clock::now;
use super::connection::{Address, Connection};

/// How long a listening thread hears before it looks for a command; nothing can interrupt the client in between.
/// Ten times a second costs nothing that can be measured, and an idle worker still stops well within half a second.
const LISTENING_ROUND: Duration = Duration::from_millis(100);

/// How often an idle connection that doesn't listen is looked at, so that a restart of the server is noticed when it
/// happens and not by the next statement.
const IDLE_ROUND: Duration = Duration::from_secs(1);

/// How long after a statement the connection counts as alive without another look, which costs a round trip.
const FRESH: Duration = Duration::from_millis(5);

/// How many threads a link has at most, those included that hang in a connection that was given up. A server that
/// accepts connections and never answers would else cost a thread for each attempt.
const MAX_THREADS: usize = 16;

/// What a connection has to tell.
#[derive(Debug)]
pub(super) enum News {
    Connected,
    Lost(Fault),
    Reply(StatementId, Result<Reply, Fault>),
    /// The payload of a notification.
    Notified(String),
}

/// Starts a thread per connection, and knows the one that counts.
pub(super) struct LinkThreads {
    name: &'static str,
    address: Arc<Address>,
    /// Whether a quiet connection is asked for a sign of life before a statement is sent over it.
    probing: bool,
    current: Option<Current>,
    threads: Threads,
}

/// The owner's end of the thread that counts.
struct Current {
    commands: Sender<Command>,
    hold: Arc<Mutex<Hold>>,
}

type Command = (StatementId, Statement);

/// What the owner and the thread know of each other, although neither waits for the other.
enum Hold {
    Idle,
    /// A statement runs, and can be cancelled with this.
    Running(Option<CancelToken>),
    /// The owner has given this thread up: it starts nothing more.
    Forgotten,
}

impl LinkThreads {
    /// `name` is the threads' name.
    pub(super) fn new(name: &'static str, database: &Database) -> Self {
        let address = Arc::new(Address::new(database));
        Self { name, address, probing: false, current: None, threads: Threads::new() }
    }

    /// For an owner that cannot find out what became of a statement whose answer never came.
    pub(super) fn probing(self) -> Self {
        Self { probing: true, ..self }
    }

    /// Connects, in place of what was there before. `tell` hears of it, from the thread.
    pub(super) fn connect(&mut self, tell: impl Fn(News) + Clone + Send + 'static) {
        self.disconnect();
        if self.threads.running() >= MAX_THREADS {
            let why = format!("{MAX_THREADS} earlier connections hang and have not ended");
            return tell(News::Lost(Fault::link(why).not_sent()));
        }
        let (commands, inbox) = unbounded();
        let hold = Arc::new(Mutex::new(Hold::Idle));
        let (address, probing) = (Arc::clone(&self.address), self.probing);
        let session = Session { address, probing, inbox, hold: Arc::clone(&hold) };
        let teller = tell.clone();
        match self.threads.spawn(self.name.to_owned(), move || session.run(&teller)) {
            Ok(()) => self.current = Some(Current { commands, hold }),
            Err(error) => {
                let why = format!("the thread {} cannot be started: {error}", self.name);
                tell(News::Lost(Fault::link(why).not_sent()));
            }
        }
    }

    /// Hands a statement to the connection.
    pub(super) fn execute(&self, id: StatementId, statement: Statement) {
        if let Some(current) = &self.current {
            // A thread that has ended has told of it.
            let _ = current.commands.send((id, statement));
        }
    }

    /// Gives the connection up, whatever it is doing.
    pub(super) fn disconnect(&mut self) {
        let Some(Current { commands, hold }) = self.current.take() else { return };
        drop(commands);
        let before = mem::replace(&mut *hold.lock(), Hold::Forgotten);
        if let Hold::Running(Some(token)) = before {
            self.cancel(token);
        }
    }

    /// Gives the connection up and waits for the threads, at most until `deadline`.
    pub(super) fn end_by(mut self, deadline: Instant) {
        self.disconnect();
        self.threads.end_by(deadline);
    }

    /// The request goes over a connection of its own, so it takes its time on a thread of its own.
    fn cancel(&mut self, token: CancelToken) {
        let encryption = self.address.encryption();
        let request = move || {
            if let Err(error) = token.cancel_query(encryption) {
                notice(Level::Debug, format_args!("a statement that was given up could not be cancelled: {error}"));
            }
        };
        if let Err(error) = self.threads.spawn("venturi-cancel".to_owned(), request) {
            notice(Level::Debug, format_args!("a statement that was given up could not be cancelled: {error}"));
        }
    }
}

/// The thread's part.
struct Session {
    address: Arc<Address>,
    probing: bool,
    inbox: Receiver<Command>,
    hold: Arc<Mutex<Hold>>,
}

impl Session {
    fn run(&self, tell: &impl Fn(News)) {
        // Whoever waits for an answer must hear of the end, also of one that should not be.
        let end = guarded(|| self.serve(tell))
            .unwrap_or_else(|panic| Err(Fault::link(format!("the connection's thread {panic}"))));
        if let Err(fault) = end {
            tell(News::Lost(fault));
        }
    }

    /// `Ok` when the owner has given the connection up, `Err` when it was lost.
    fn serve(&self, tell: &impl Fn(News)) -> Result<(), Fault> {
        let mut connection = Connection::open(&self.address)?;
        tell(News::Connected);
        let mut listening = false;
        let mut looked_at = now();
        loop {
            // A listening thread waits for notifications, any other for commands.
            let (for_commands, for_news) =
                if listening { (Duration::ZERO, LISTENING_ROUND) } else { (IDLE_ROUND, Duration::ZERO) };
            match self.inbox.recv_timeout(for_commands) {
                Ok((id, statement)) => {
                    // A connection that has ended since it was last looked at must be found out before the statement
                    // is sent: after that nobody could say whether it took effect.
                    if self.probing && looked_at.elapsed() >= FRESH {
                        if let Err(fault) = connection.probe() {
                            tell(News::Reply(id, Err(fault)));
                            return Ok(());
                        }
                    }
                    let Some(reply) = self.execute(&mut connection, &statement) else { return Ok(()) };
                    listening |= reply.is_ok() && matches!(statement, Statement::Listen);
                    tell(News::Reply(id, reply));
                    looked_at = now();
                }
                Err(RecvTimeoutError::Timeout) => {
                    connection.hear(for_news)?.into_iter().for_each(|payload| tell(News::Notified(payload)));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Nothing when the owner has given this connection up before the statement began.
    fn execute(&self, connection: &mut Connection<'_>, statement: &Statement) -> Option<Result<Reply, Fault>> {
        self.pass(Hold::Running(connection.cancel_token()))?;
        let reply = connection.execute(statement);
        self.pass(Hold::Idle);
        Some(reply)
    }

    /// Says what the thread does from here on, unless it is forgotten.
    fn pass(&self, next: Hold) -> Option<()> {
        let mut hold = self.hold.lock();
        if matches!(*hold, Hold::Forgotten) {
            return None;
        }
        *hold = next;
        Some(())
    }
}

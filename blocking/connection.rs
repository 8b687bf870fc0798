//! One connection, and how a statement runs on it.
//!
//! A client must be created, used and dropped outside async tasks, so all of this happens on venturi's own threads.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use postgres::{CancelToken, Client, Row, Statement as Prepared, ToStatement};

use crate::Database;
use crate::fault::{Fault, FaultKind, OutcomeKnown};
use crate::statement::{Command, Intake, Reply, Statement, Text, Texts, begin, typed};
use crate::tls::Encryption;

use super::host::Host;

/// How long a server may take to give a sign of life; no longer than any other statement.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// Where a connection leads, and the statements of the schema there.
pub(super) struct Address {
    /// Or why the settings cannot be followed.
    hosts: Result<Vec<Host>, Fault>,
    texts: Texts,
    encryption: Encryption,
    pooled: bool,
}

impl Address {
    pub(super) fn new(database: &Database) -> Self {
        let hosts = database.check_tls().map(|()| Host::all(database));
        Self {
            hosts: hosts.map_err(|error| Fault::of_settings(&error)),
            texts: Texts::new(database.schema_name()),
            encryption: Encryption::of(database),
            pooled: database.is_pooled(),
        }
    }

    /// Opens a client with the session's settings made.
    pub(super) fn open(&self) -> Result<Client, Fault> {
        Host::open_any(self.hosts.as_ref().map_err(Fault::clone)?)
    }

    /// For the connection that a request to cancel goes over, which is as encrypted as the other.
    pub(super) fn encryption(&self) -> Encryption {
        self.encryption.clone()
    }
}

/// An open connection with the statements that were prepared on it.
pub(super) struct Connection<'a> {
    client: Client,
    texts: &'a Texts,
    /// Whether the connection is somebody else's after each transaction.
    pooled: bool,
    prepared: HashMap<Text, Prepared>,
}

impl<'a> Connection<'a> {
    pub(super) fn open(address: &'a Address) -> Result<Self, Fault> {
        let (texts, pooled) = (&address.texts, address.pooled);
        Ok(Self { client: address.open()?, texts, pooled, prepared: HashMap::new() })
    }

    /// What cancels the statement that runs at the time it is used.
    ///
    /// Nothing over a pooler: by the time a request arrives there, another client may have the connection to the server;
    /// and PgBouncer 1.18 can die of one whose sender has gone (its issue 801), and with it everybody's connections. What
    /// runs there is ended by the time-out that each transaction sets.
    pub(super) fn cancel_token(&self) -> Option<CancelToken> {
        (!self.pooled).then(|| self.client.cancel_token())
    }

    /// Runs a statement; several commands as one transaction.
    pub(super) fn execute(&mut self, statement: &Statement) -> Result<Reply, Fault> {
        if self.client.is_closed() {
            return Err(closed().not_sent());
        }
        let commands = statement.commands();
        if self.pooled {
            Ok(statement.read(&self.transaction(&commands, Self::query_once)?)?)
        } else {
            self.own(statement, &commands)
        }
    }

    /// Over a connection of our own, where statements stay prepared.
    fn own(&mut self, statement: &Statement, commands: &[Command<'_>]) -> Result<Reply, Fault> {
        let prepared = commands.iter().map(|command| self.prepare(command.text)).collect::<Result<Vec<_>, _>>();
        let prepared = prepared.map_err(Fault::not_sent)?;
        let ready: Vec<_> = prepared.iter().zip(commands).collect();
        match ready.as_slice() {
            [(prepared, command)] => self.take_in(statement, prepared, command),
            ready => {
                let results = self.transaction(ready, |this, (prepared, command)| this.query(prepared, command))?;
                Ok(statement.read(&results)?)
            }
        }
    }

    /// A single command: its rows are read while they come.
    fn take_in(&mut self, statement: &Statement, prepared: &Prepared, command: &Command<'_>) -> Result<Reply, Fault> {
        if command.data.is_some() {
            return Ok(statement.read(&[self.query(prepared, command)?])?);
        }
        let params = command.params.iter().map(|param| param.as_sql());
        let mut rows = self.client.query_raw(prepared, params).map_err(Fault::from_postgres)?;
        let mut intake = Intake::new(statement);
        while let Some(row) = rows.next().map_err(Fault::from_postgres)? {
            intake.take(row);
        }
        Ok(intake.end()?)
    }

    /// Asks the server for a sign of life, with a statement that does nothing.
    pub(super) fn probe(&mut self) -> Result<(), Fault> {
        self.client.is_valid(PROBE_PATIENCE).map_err(|error| Fault::from_postgres(error).not_sent())
    }

    /// Waits for notifications, at most for `patience`, and returns the payloads of all that have come.
    ///
    /// Also the way to learn that an idle connection has ended: a client looks at its socket only when it is asked to.
    pub(super) fn hear(&mut self, patience: Duration) -> Result<Vec<String>, Fault> {
        let mut payloads = Vec::new();
        let mut notifications = self.client.notifications();
        // A new iterator each time: one whose time is over doesn't wait again.
        let first = notifications.timeout_iter(patience).next().map_err(Fault::from_postgres)?;
        payloads.extend(first.map(|it| it.payload().to_owned()));
        // No more than are here already, so that a flood can't keep the thread from its commands.
        for _ in 0..notifications.len() {
            let next = notifications.iter().next().map_err(Fault::from_postgres)?;
            payloads.extend(next.map(|it| it.payload().to_owned()));
        }
        drop(notifications);
        // Nothing within the time, and the end of the connection, look the same up to here.
        if self.client.is_closed() { Err(closed()) } else { Ok(payloads) }
    }

    fn prepare(&mut self, text: Text) -> Result<Prepared, Fault> {
        if let Some(prepared) = self.prepared.get(&text) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(self.texts.sql(text)).map_err(Fault::from_postgres)?;
        self.prepared.insert(text, prepared.clone());
        Ok(prepared)
    }

    fn query(&mut self, prepared: &Prepared, command: &Command<'_>) -> Result<Vec<Row>, Fault> {
        if let Some(data) = &command.data {
            return self.copy(prepared, data.as_ref()).map(|()| Vec::new());
        }
        let params: Vec<_> = command.params.iter().map(|param| param.as_sql()).collect();
        self.client.query(prepared, &params).map_err(Fault::from_postgres)
    }

    /// Leaves nothing on the connection. A copy is prepared first, but gone again before the transaction ends.
    fn query_once(&mut self, command: &Command<'_>) -> Result<Vec<Row>, Fault> {
        let sql = self.texts.sql(command.text);
        if let Some(data) = &command.data {
            return self.copy(sql, data.as_ref()).map(|()| Vec::new());
        }
        self.client.query_typed(sql, &typed(&command.params)).map_err(Fault::from_postgres)
    }

    fn copy(&mut self, what: &(impl ToStatement + ?Sized), data: &[u8]) -> Result<(), Fault> {
        let mut writer = self.client.copy_in(what).map_err(Fault::from_postgres)?;
        // It only fills a buffer; what goes wrong on the way is said at the end.
        writer.write_all(data).map_err(|error| Fault::link(error.to_string()))?;
        writer.finish().map(drop).map_err(Fault::from_postgres)
    }

    fn transaction<C>(
        &mut self,
        commands: &[C],
        query: impl Fn(&mut Self, &C) -> Result<Vec<Row>, Fault>,
    ) -> Result<Vec<Vec<Row>>, Fault> {
        self.batch(begin(self.pooled)).map_err(Fault::not_sent)?;
        let results: Result<Vec<_>, Fault> = commands.iter().map(|command| query(self, command)).collect();
        match results {
            Ok(results) => self.commit().map(|()| results),
            // Without a commit nothing has happened, whatever became of the connection.
            Err(fault) => Err(self.roll_back(fault).not_sent()),
        }
    }

    /// What became of a commit that failed is not known, whatever the error says.
    fn commit(&mut self) -> Result<(), Fault> {
        self.batch("COMMIT").map_err(|fault| Fault { kind: FaultKind::Link, outcome: OutcomeKnown::Unknown, ..fault })
    }

    /// Ends the transaction that `fault` has spoilt. If that fails too, the connection is of no more use.
    fn roll_back(&mut self, fault: Fault) -> Fault {
        match self.batch("ROLLBACK") {
            Ok(()) => fault,
            Err(_) => Fault { kind: FaultKind::Link, ..fault },
        }
    }

    fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.client.batch_execute(sql).map_err(Fault::from_postgres)
    }
}

fn closed() -> Fault {
    Fault::link("the connection has ended")
}

//! One statement of the engine as a conversation with the server.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::Cursor;
use std::pin::pin;

use futures_util::future::{join_all, join3, try_join_all};
use futures_util::{FutureExt, SinkExt, TryStreamExt};
use tokio_postgres::{Client, Error, Row, Statement as Prepared, ToStatement};

use crate::fault::{Fault, FaultKind, OutcomeKnown};
use crate::statement::{Command, Encoded, Intake, Reply, Statement, Text, Texts, begin, typed};

/// What speaks over one connection, with the statements that are prepared on it.
pub(super) struct Speaker {
    client: Client,
    texts: Texts,
    /// Whether the connection is somebody else's after each transaction.
    pooled: bool,
    prepared: RefCell<HashMap<Text, Prepared>>,
}

impl Speaker {
    pub(super) fn new(client: Client, texts: Texts, pooled: bool) -> Self {
        Self { client, texts, pooled, prepared: RefCell::default() }
    }

    /// Runs the statement's commands, more than one of them as one transaction, and reads what comes back.
    ///
    /// Something else has to poll the connection meanwhile. Dropped half-way, the future leaves the connection in an
    /// unknown state, so the connection has to be dropped with it.
    pub(super) async fn execute(&self, statement: &Statement) -> Result<Reply, Fault> {
        let commands = statement.commands();
        if self.pooled {
            Ok(statement.read(&self.borrow(&commands).await?)?)
        } else {
            self.own(statement, &commands).await
        }
    }

    /// Over a connection of our own, where statements stay prepared.
    async fn own(&self, statement: &Statement, commands: &[Command<'_>]) -> Result<Reply, Fault> {
        let prepared = try_join_all(commands.iter().map(|command| self.prepare(command.text)));
        let prepared = prepared.await.map_err(|error| Fault::from_postgres(error).not_sent())?;
        let ready: Vec<_> = prepared.iter().zip(commands).collect();
        match ready.as_slice() {
            [(prepared, command)] => self.take_in(statement, prepared, command).await,
            ready => {
                let queries = ready.iter().map(|(prepared, command)| self.query(prepared, command));
                Ok(statement.read(&self.transaction(queries).await?)?)
            }
        }
    }

    /// A single command: its rows are read while they come.
    async fn take_in(&self, statement: &Statement, prepared: &Prepared, command: &Command<'_>) -> Result<Reply, Fault> {
        if command.data.is_some() {
            let none = self.query(prepared, command).await.map_err(Fault::from_postgres)?;
            return Ok(statement.read(&[none])?);
        }
        let params = command.params.iter().map(|param| param.as_sql());
        let rows = self.client.query_raw(prepared, params).await.map_err(Fault::from_postgres)?;
        let (mut rows, mut intake) = (pin!(rows), Intake::new(statement));
        while let Some(row) = rows.try_next().await.map_err(Fault::from_postgres)? {
            intake.take(row);
        }
        Ok(intake.end()?)
    }

    /// Over one that is lent for a transaction, which leaves nothing there.
    async fn borrow(&self, commands: &[Command<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        if commands.iter().any(|command| command.data.is_some()) {
            return self.borrow_to_copy(commands).await;
        }
        self.transaction(commands.iter().map(|command| self.query_once(command))).await
    }

    async fn query_once(&self, command: &Command<'_>) -> Result<Vec<Row>, Error> {
        self.client.query_typed(self.texts.sql(command.text), &typed(&command.params)).await
    }

    /// A copy is prepared first, and gone again when its end has been answered; so this is not one flight.
    async fn borrow_to_copy(&self, commands: &[Command<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        let not_sent = |error| Fault::from_postgres(error).not_sent();
        self.client.batch_execute(begin(true)).await.map_err(not_sent)?;
        let mut copied = Ok(());
        for command in commands {
            let Some(data) = &command.data else { continue };
            copied = copied.and(self.copy(self.texts.sql(command.text), data.clone()).await);
        }
        match copied {
            Ok(()) => self.client.batch_execute("COMMIT").await.map_err(unknown)?,
            Err(error) => {
                // If it fails, so has the connection.
                let _ = self.client.batch_execute("ROLLBACK").await;
                return Err(not_sent(error));
            }
        }
        Ok(vec![Vec::new(); commands.len()])
    }

    async fn prepare(&self, text: Text) -> Result<Prepared, Error> {
        let known = self.prepared.borrow().get(&text).cloned();
        match known {
            Some(prepared) => Ok(prepared),
            None => {
                let prepared = self.client.prepare(self.texts.sql(text)).await?;
                self.prepared.borrow_mut().insert(text, prepared.clone());
                Ok(prepared)
            }
        }
    }

    async fn query(&self, prepared: &Prepared, command: &Command<'_>) -> Result<Vec<Row>, Error> {
        if let Some(data) = &command.data {
            return self.copy(prepared, data.clone()).await.map(|()| Vec::new());
        }
        let params: Vec<_> = command.params.iter().map(|param| param.as_sql()).collect();
        self.client.query(prepared, &params).await
    }

    /// Keeps its place among what is sent before and after it: the connection sends nothing else until it is finished.
    async fn copy(&self, what: &(impl ToStatement + ?Sized), data: Encoded) -> Result<(), Error> {
        let mut sink = pin!(self.client.copy_in(what).await?);
        // It fails only when the connection has ended or the server has refused, which the end tells better.
        let sent = sink.send(Cursor::new(data)).await;
        sink.as_mut().finish().await?;
        sent
    }

    /// `BEGIN`, the commands and `COMMIT` in one flight.
    ///
    /// All of them are sent before the first answer is awaited: each future sends when it is first polled, and `join`
    /// polls in order. A transaction in which something failed is rolled back by its `COMMIT`, which the client takes
    /// for success; so the commands' errors count first.
    async fn transaction<F>(&self, commands: impl Iterator<Item = F>) -> Result<Vec<Vec<Row>>, Fault>
    where
        F: Future<Output = Result<Vec<Row>, Error>>,
    {
        // Set before the end is sent, when the client could not even write a command.
        let failed = Cell::new(false);
        let noted = |result: &Result<Vec<Row>, Error>| failed.set(failed.get() || result.is_err());
        let queries = commands.map(|command| command.inspect(noted));
        let begin = self.client.batch_execute(begin(self.pooled));
        let end = async {
            let end = if failed.get() { "ROLLBACK" } else { "COMMIT" };
            self.client.batch_execute(end).await
        };
        let (begun, results, ended) = join3(begin, join_all(queries), end).await;
        begun.map_err(unknown)?;
        let rows = results.into_iter().collect::<Result<Vec<_>, Error>>().map_err(Fault::from_postgres)?;
        ended.map_err(unknown)?;
        Ok(rows)
    }
}

/// The transaction's own commands failed: what became of it is to be found out over a new connection.
fn unknown(error: Error) -> Fault {
    Fault { kind: FaultKind::Link, outcome: OutcomeKnown::Unknown, ..Fault::from_postgres(error) }
}

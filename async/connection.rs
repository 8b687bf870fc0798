//! One connection: opened with our session settings, and moving only while it is polled.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::try_join;
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Error, SimpleQueryMessage};

use crate::Database;
use crate::fault::Fault;
use crate::panic_boundary::GuardedFuture;
use crate::statement::{Attempts, IS_READ_ONLY, SESSION, trial};
use crate::tls::{Connector, Encryption};

use super::net::{Address, Host, Stream, within};

/// Used only where a time-out was taken out of the settings by hand.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open connection; its two halves may be borrowed apart.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) traffic: Traffic,
}

impl Connection {
    /// Connects to the first server that takes writes, and makes the session's settings.
    ///
    /// Each address has the whole of `connect_timeout` for socket, encryption, start-up, log-in and settings together.
    pub(super) async fn open(database: &Database) -> Result<Self, Fault> {
        database.check_tls().map_err(|error| Fault::of_settings(&error))?;
        let mut faults = Vec::new();
        for host in Host::all(database) {
            let way = Way::to(&host, database);
            match way.open().await {
                Ok(connection) => return Ok(connection),
                Err(fault) => faults.push(Fault { message: format!("{host}: {}", fault.message), ..fault }),
            }
        }
        Err(Fault::weightiest(faults))
    }
}

/// What it takes to get to one host.
struct Way<'a> {
    host: &'a Host,
    config: Config,
    encryption: Encryption,
    pooled: bool,
    patience: Duration,
}

impl<'a> Way<'a> {
    fn to(host: &'a Host, database: &Database) -> Self {
        let (mut config, encryption) = (database.config().clone(), Encryption::of(database));
        config.ssl_mode(host.ssl_mode());
        let patience = config.get_connect_timeout().copied().unwrap_or(PATIENCE);
        Self { host, config, encryption, pooled: database.is_pooled(), patience }
    }

    async fn open(&self) -> Result<Connection, Fault> {
        let addresses = self.host.addresses(self.patience).await.map_err(|error| unreachable(&error))?;
        let several = addresses.len() > 1;
        let mut faults = Vec::new();
        for address in addresses {
            let opened = within(self.patience, async { Ok(self.open_guarded(&address).await) }).await;
            match opened.unwrap_or_else(|late| Err(unreachable(&late))) {
                Ok(connection) => return Ok(connection),
                Err(fault) if several => {
                    faults.push(Fault { message: format!("{address}: {}", fault.message), ..fault });
                }
                Err(fault) => faults.push(fault),
            }
        }
        Err(Fault::weightiest(faults))
    }

    /// TLS settings are the user's code.
    async fn open_guarded(&self, address: &Address) -> Result<Connection, Fault> {
        let opened = GuardedFuture::new(|| self.open_address(address)).await;
        opened.unwrap_or_else(|panic| Err(Fault::client_panicked(&panic)))
    }

    async fn open_address(&self, address: &Address) -> Result<Connection, Fault> {
        let stream = Stream::connect(address, &self.config).await.map_err(|error| unreachable(&error))?;
        let connector = self.encryption.connector(self.host.server_name());
        let login = self.config.connect_raw(stream, connector).await;
        let (client, raw) = login.map_err(|error| Fault::from_postgres(error).not_sent())?;
        let mut connection = Connection { client, traffic: Traffic(Ok(raw)) };
        if self.pooled {
            connection.try_out().await?
        } else {
            connection.settle_in().await?
        }
        Ok(connection)
    }
}

impl Connection {
    /// What is set over a pooler would be set for others.
    async fn try_out(&mut self) -> Result<(), Fault> {
        self.traffic.carry(self.client.batch_execute(trial())).await.map_err(Fault::not_sent)
    }

    async fn settle_in(&mut self) -> Result<(), Fault> {
        let mut attempts = Attempts::new();
        loop {
            match self.send_settings().await {
                Err(fault) if attempts.may_go_on(&fault) => {}
                settled => return settled,
            }
        }
    }

    async fn send_settings(&mut self) -> Result<(), Fault> {
        // After the settings, which undo a role's own default of read-only transactions.
        let questions = try_join(self.client.batch_execute(SESSION), self.client.simple_query(IS_READ_ONLY));
        let ((), answer) = self.traffic.carry(questions).await.map_err(Fault::not_sent)?;
        let read_only = answer.iter().any(|it| matches!(it, SimpleQueryMessage::Row(row) if row.get(0) == Some("on")));
        if read_only { Err(Fault::takes_no_writes()) } else { Ok(()) }
    }
}

fn unreachable(error: &io::Error) -> Fault {
    Fault::link(error.to_string()).not_sent()
}

type Raw = tokio_postgres::Connection<Stream, <Connector as TlsConnect<Stream>>::Stream>;

/// Both directions of a connection. Nothing is sent or received unless it is polled. Once it has ended, it goes on
/// telling why.
pub(super) struct Traffic(Result<Raw, Fault>);

impl Traffic {
    /// The text of the next notification, or why there will be none. To be polled until it is pending.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<String, Fault>> {
        let raw = match &mut self.0 {
            Ok(raw) => raw,
            Err(fault) => return Poll::Ready(Err(fault.clone())),
        };
        let end = loop {
            // Not its `Future`, which throws notifications away.
            match raw.poll_message(cx) {
                Poll::Ready(Some(Ok(AsyncMessage::Notification(it)))) => {
                    return Poll::Ready(Ok(it.payload().to_owned()));
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => break Fault::from_postgres(error),
                Poll::Ready(None) => break Fault::link("the connection was closed"),
                Poll::Pending => return Poll::Pending,
            }
        };
        // Dropping it fails what still waits for answers.
        self.0 = Err(end.clone());
        Poll::Ready(Err(end))
    }

    /// Completes `talk`, a conversation over this connection.
    pub(super) async fn carry<T>(&mut self, talk: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
        let mut talk = pin!(talk);
        poll_fn(|cx| {
            // First what is said, then the transport, then what that brought.
            if let Poll::Ready(result) = talk.as_mut().poll(cx) {
                return Poll::Ready(result.map_err(Fault::from_postgres));
            }
            let end = loop {
                match self.poll(cx) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(fault)) => break Some(fault),
                    Poll::Pending => break None,
                }
            };
            match (talk.as_mut().poll(cx), end) {
                (Poll::Ready(Err(error)), Some(fault)) if error.is_closed() => Poll::Ready(Err(fault)),
                (Poll::Ready(result), _) => Poll::Ready(result.map_err(Fault::from_postgres)),
                (Poll::Pending, Some(fault)) => Poll::Ready(Err(fault)),
                (Poll::Pending, None) => Poll::Pending,
            }
        })
        .await
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traffic").field(&self.0.as_ref().map(|_| "up")).finish()
    }
}

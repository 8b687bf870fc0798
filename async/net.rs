//! Sockets to the server, on any executor: where it may be, and how to get there.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(unix)]
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_io::{Async, Timer};
use futures_lite::{AsyncRead as _, AsyncWrite as _, future};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{Host as HostName, SslMode};

use crate::Database;

const DEFAULT_PORT: u16 = 5432;

/// One of the places that the settings name.
#[derive(Debug)]
pub(super) struct Host {
    name: Name,
    port: u16,
    ssl_mode: SslMode,
    /// What its certificate has to be for.
    server_name: String,
}

#[derive(Debug)]
enum Name {
    Named(String),
    Numbered(IpAddr),
    #[cfg(unix)]
    Folder(PathBuf),
}

/// Where exactly a socket goes.
#[derive(Debug)]
pub(super) enum Address {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

impl Host {
    /// All of them, in the order in which they are to be tried.
    pub(super) fn all(database: &Database) -> Vec<Self> {
        let config = database.config();
        let (names, numbers, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let port = |nth: usize| ports.get(nth).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        let name = |nth: usize| match (numbers.get(nth), names.get(nth)) {
            // A number is there to save the look-up of the name.
            (Some(number), _) => Some(Name::Numbered(*number)),
            (None, Some(HostName::Tcp(name))) => Some(Name::of(name)),
            #[cfg(unix)]
            (None, Some(HostName::Unix(folder))) => Some(Name::Folder(folder.clone())),
            (None, None) => None,
        };
        let server_name = |nth: usize| match (names.get(nth), numbers.get(nth)) {
            (Some(HostName::Tcp(name)), _) => name.clone(),
            (_, number) => number.map(ToString::to_string).unwrap_or_default(),
        };
        let host = |nth| {
            let ssl_mode = database.ssl_mode(names.get(nth));
            Some(Self { name: name(nth)?, port: port(nth), ssl_mode, server_name: server_name(nth) })
        };
        (0..names.len().max(numbers.len())).filter_map(host).collect()
    }

    pub(super) fn ssl_mode(&self) -> SslMode {
        self.ssl_mode
    }

    pub(super) fn server_name(&self) -> &str {
        &self.server_name
    }

    /// What the name stands for. Looked up on another thread: the system's resolver can block for many seconds.
    pub(super) async fn addresses(&self, patience: Duration) -> Result<Vec<Address>> {
        let port = self.port;
        match &self.name {
            Name::Numbered(number) => Ok(vec![Address::Tcp(SocketAddr::new(*number, port))]),
            #[cfg(unix)]
            Name::Folder(folder) => Ok(vec![Address::Unix(folder.join(format!(".s.PGSQL.{port}")))]),
            Name::Named(name) => {
                let name = name.clone();
                let look_up = blocking::unblock(move || (name.as_str(), port).to_socket_addrs());
                Ok(within(patience, look_up).await?.map(Address::Tcp).collect())
            }
        }
    }
}

impl Name {
    fn of(name: &str) -> Self {
        name.parse().map_or_else(|_| Self::Named(name.to_owned()), Self::Numbered)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Named(name) => write!(f, "{name}:{}", self.port),
            Name::Numbered(number) => SocketAddr::new(*number, self.port).fmt(f),
            #[cfg(unix)]
            Name::Folder(folder) => write!(f, "{}:{}", folder.display(), self.port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.ip().fmt(f),
            #[cfg(unix)]
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The future's result, or a time-out.
pub(super) async fn within<T>(patience: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let alarm = async {
        Timer::after(patience).await;
        Err(Error::new(ErrorKind::TimedOut, format!("no answer within {patience:?}")))
    };
    future::or(work, alarm).await
}

/// A connected socket, with the traits of tokio that `tokio_postgres` asks for, and no runtime behind them.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(Async<TcpStream>),
    #[cfg(unix)]
    Unix(Async<UnixStream>),
}

impl Stream {
    pub(super) async fn connect(address: &Address, config: &Config) -> Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = Async::<TcpStream>::connect(*address).await?;
                tune(stream.get_ref(), config)?;
                Ok(Self::Tcp(stream))
            }
            #[cfg(unix)]
            Address::Unix(path) => Ok(Self::Unix(Async::<UnixStream>::connect(path).await?)),
        }
    }

    fn shut_down(&self) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.get_ref().shutdown(Shutdown::Write),
            #[cfg(unix)]
            Self::Unix(stream) => stream.get_ref().shutdown(Shutdown::Write),
        }
    }
}

/// Sends at once what is written, and finds out about a peer that has silently gone.
fn tune(stream: &TcpStream, config: &Config) -> Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if config.get_keepalives() {
        socket.set_tcp_keepalive(&keepalive(config))?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if let Some(timeout) = config.get_tcp_user_timeout() {
        socket.set_tcp_user_timeout(Some(*timeout))?;
    }
    Ok(())
}

fn keepalive(config: &Config) -> TcpKeepalive {
    let keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
    #[cfg(any(
        target_os = "android",
        target_os = "freebsd",
        target_os = "ios",
        target_os = "linux",
        target_os = "macos"
    ))]
    let keepalive = {
        let keepalive = config.get_keepalives_interval().map_or(keepalive.clone(), |it| keepalive.with_interval(it));
        config.get_keepalives_retries().map_or(keepalive.clone(), |it| keepalive.with_retries(it))
    };
    keepalive
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let room = buf.initialize_unfilled();
        let read = again(|| match this {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, room),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, room),
        });
        buf.advance(ready!(read)?);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        again(|| match this {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        // The system has it; there is no buffer of ours.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(match self.shut_down() {
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            result => result,
        })
    }
}

/// A signal may interrupt a call that did nothing yet.
fn again(mut call: impl FnMut() -> Poll<Result<usize>>) -> Poll<Result<usize>> {
    loop {
        match call() {
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn hosts(dsn: &str) -> Vec<String> {
        Host::all(&Database::new(dsn).unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hosts_are_tried_in_their_order_with_their_ports() {
        assert_eq!(hosts("host=db1,db2 port=1,2"), ["db1:1", "db2:2"]);
        assert_eq!(hosts("host=db1,db2 port=7"), ["db1:7", "db2:7"]);
        assert_eq!(hosts("host=db1,/run/pg,::1"), ["db1:5432", "/run/pg:5432", "[::1]:5432"]);
    }

    #[test]
    fn a_number_saves_the_look_up_of_its_name() {
        assert_eq!(hosts("host=db1,db2 hostaddr=10.0.0.1,10.0.0.2"), ["10.0.0.1:5432", "10.0.0.2:5432"]);
        assert_eq!(hosts("hostaddr=10.0.0.1"), ["10.0.0.1:5432"]);
    }

    #[test]
    fn a_certificate_has_to_be_for_the_name_and_only_without_one_for_the_number() {
        let names = |dsn: &str| {
            let hosts = Host::all(&Database::new(dsn).unwrap());
            hosts.iter().map(|host| host.server_name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("host=db1,10.0.0.9 hostaddr=10.0.0.1,10.0.0.2"), ["db1", "10.0.0.9"]);
        assert_eq!(names("hostaddr=10.0.0.1,::1"), ["10.0.0.1", "::1"]);
        assert_eq!(names("host=db1,/run/pg"), ["db1", ""]);
    }

    #[test]
    fn a_name_is_looked_up_and_an_unknown_one_is_an_error() {
        let look_up = |dsn: &str| {
            let host = Host::all(&Database::new(dsn).unwrap()).pop().unwrap();
            future::block_on(host.addresses(Duration::from_secs(10)))
        };
        assert!(matches!(look_up("host=localhost").unwrap().first(), Some(Address::Tcp(it)) if it.ip().is_loopback()));
        assert!(look_up("host=no-such-host.invalid").is_err());
    }

    #[test]
    fn what_takes_too_long_times_out() {
        let never = std::future::pending::<Result<()>>();
        let error = future::block_on(within(Duration::from_millis(5), never)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_socket_gets_the_time_outs_of_the_settings() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = "host=x keepalives_idle=31 keepalives_interval=11 keepalives_retries=4 tcp_user_timeout=29";
        let address = Address::Tcp(listener.local_addr().unwrap());
        let Stream::Tcp(stream) = future::block_on(Stream::connect(&address, &config.parse().unwrap())).unwrap() else {
            panic!("a TCP socket")
        };
        let socket = SockRef::from(stream.get_ref());
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(31));
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(29)));
    }
}

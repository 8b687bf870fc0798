//! A wire between worker and server that can lose what the server says.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio_postgres::config::Host;
use venturi::Database;

use super::place::{Place, eventually, for_a_while};

/// How long nothing passes on a wire where nobody waits for an answer.
const QUIET: Duration = Duration::from_millis(150);

/// Passes everything on, until it is told otherwise.
pub(crate) struct Proxy {
    port: u16,
    wires: Arc<Mutex<Vec<Arc<Wire>>>>,
}

/// One connection through the proxy.
pub(crate) struct Wire {
    client: TcpStream,
    server: TcpStream,
    mute: AtomicBool,
    passed: AtomicUsize,
}

impl Proxy {
    pub(crate) fn start(place: &Place) -> Self {
        let config: tokio_postgres::Config = place.url.parse().expect("a proper DSN");
        let Some(Host::Tcp(host)) = config.get_hosts().first().cloned() else { panic!("the server is reached by TCP") };
        let target = (host, config.get_ports().first().copied().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let wires = Arc::<Mutex<Vec<_>>>::default();
        let accepted = Arc::clone(&wires);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect((target.0.as_str(), target.1))) else {
                    return;
                };
                accepted.lock().unwrap_or_else(PoisonError::into_inner).push(Wire::join(client, server));
            }
        });
        Self { port, wires }
    }

    /// The test's database, by way of the proxy.
    pub(crate) fn database(&self, place: &Place) -> Database {
        let direct: tokio_postgres::Config = place.url.parse().expect("a proper DSN");
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.port).application_name(&place.name);
        direct.get_user().map(|user| config.user(user));
        direct.get_password().map(|password| config.password(password));
        direct.get_dbname().map(|name| config.dbname(name));
        Database::from_config(config).and_then(|it| it.schema(&place.schema)).expect("a database")
    }

    /// The connections in the order in which they were made: a worker's first is for statements, its second listens.
    pub(crate) fn wire(&self, nth: usize) -> Arc<Wire> {
        let wires = self.wires.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(wires.get(nth).unwrap_or_else(|| panic!("connection {nth} of {}", wires.len())))
    }
}

impl Wire {
    fn join(client: TcpStream, server: TcpStream) -> Arc<Self> {
        let twin = |stream: &TcpStream| stream.try_clone().expect("another handle");
        let (from_client, to_server) = (twin(&client), twin(&server));
        let (from_server, to_client) = (twin(&server), twin(&client));
        let wire = Arc::new(Self { client, server, mute: AtomicBool::new(false), passed: AtomicUsize::new(0) });
        let (upwards, downwards) = (Arc::clone(&wire), Arc::clone(&wire));
        thread::spawn(move || upwards.pass(from_client, to_server, false));
        thread::spawn(move || downwards.pass(from_server, to_client, true));
        wire
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, may_be_lost: bool) {
        let mut buffer = [0; 16_384];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let lost = may_be_lost && self.mute.load(Ordering::Acquire);
            if !lost && to.write_all(&buffer[..count]).is_err() {
                break;
            }
            self.passed.fetch_add(1, Ordering::AcqRel);
        }
        self.cut();
    }

    /// From here on the server is not heard any more; what it is sent still arrives. What it has said by now is.
    pub(crate) fn mute(&self) {
        eventually("the wire is quiet", || {
            let before = self.passed.load(Ordering::Acquire);
            for_a_while(QUIET, "what the server has said may still be on its way");
            (self.passed.load(Ordering::Acquire) == before).then_some(())
        });
        self.mute.store(true, Ordering::Release);
    }

    pub(crate) fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

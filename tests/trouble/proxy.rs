//! A wire that somebody sits on: it stalls, drops, refuses, and cuts between a commit and its reply.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Outcomes;

/// How often the door looks whether it is to be closed.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// What is sent waits, in both directions.
    Stall,
    /// What is sent is gone, in both directions, and nobody is told: for connections that are there, and that are made
    /// meanwhile, to their ends.
    Drop,
    /// Nobody listens, and connections are cut.
    Refuse,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    mode: Mutex<Mode>,
    changed: Condvar,
    /// How many of the next replies are to be cut off.
    cuts: AtomicUsize,
    over: AtomicBool,
    wires: Mutex<Vec<Arc<Wire>>>,
}

#[derive(Debug)]
struct Wire {
    client: TcpStream,
    server: TcpStream,
    dropping: AtomicBool,
}

impl Proxy {
    /// A proxy for the server on this port of 127.0.0.1.
    pub(crate) fn start(target: u16) -> Outcomes<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            target,
            mode: Mutex::new(Mode::Pass),
            changed: Condvar::new(),
            cuts: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            wires: Mutex::default(),
        });
        let ours = Arc::clone(&shared);
        thread::spawn(move || ours.serve(listener, port));
        Ok(Self { port, shared })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode() = mode;
        self.shared.changed.notify_all();
        for wire in self.shared.wires().iter() {
            match mode {
                Mode::Refuse => wire.cut(),
                Mode::Drop => wire.dropping.store(true, Ordering::Release),
                Mode::Pass | Mode::Stall => {}
            }
        }
    }

    /// The server does what it is told next, so often, and nobody hears of it: the connection is cut instead.
    pub(crate) fn cut_replies(&self, count: usize) {
        self.shared.cuts.store(count, Ordering::Release);
    }

    /// How many of them are still to come.
    pub(crate) fn cuts_left(&self) -> usize {
        self.shared.cuts.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.set(Mode::Refuse);
    }
}

impl Shared {
    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wires(&self) -> MutexGuard<'_, Vec<Arc<Wire>>> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>, listener: TcpListener, port: u16) {
        let mut door = Some(listener);
        while !self.over.load(Ordering::Acquire) {
            let mode = *self.mode();
            if mode == Mode::Refuse {
                door = None;
            } else if door.is_none() {
                door = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
            }
            let came = door.as_ref().map(|door| door.set_nonblocking(true).and_then(|()| door.accept()));
            match came {
                Some(Ok((client, _))) => self.join(client, mode == Mode::Drop),
                Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => {}
                _ => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// A server that is away is heard of as a connection that is closed at once.
    fn join(self: &Arc<Self>, client: TcpStream, dropping: bool) {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)) else { return };
        let twins = (client.set_nonblocking(false), client.try_clone(), server.try_clone());
        let (Ok(()), Ok(from_client), Ok(from_server)) = twins else { return };
        let wire = Arc::new(Wire { client, server, dropping: AtomicBool::new(dropping) });
        self.wires().push(Arc::clone(&wire));
        let (up, down) = ((Arc::clone(self), Arc::clone(&wire)), (Arc::clone(self), wire));
        thread::spawn(move || up.0.pass(&up.1, from_client, &up.1.server, false));
        thread::spawn(move || down.0.pass(&down.1, from_server, &down.1.client, true));
    }

    fn pass(&self, wire: &Wire, mut from: TcpStream, mut to: &TcpStream, is_reply: bool) {
        let mut buffer = [0; 16_384];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let said = buffer.get(..count).unwrap_or_default();
            let stalled = |mode: &mut Mode| *mode == Mode::Stall;
            drop(self.changed.wait_while(self.mode(), stalled));
            if wire.dropping.load(Ordering::Acquire) {
                continue;
            }
            if is_reply && is_done(said) && self.takes_a_cut() || to.write_all(said).is_err() {
                break;
            }
        }
        // Of a wire that drops, the other end does not hear that this one has gone.
        if !wire.dropping.load(Ordering::Acquire) {
            wire.cut();
        }
    }

    fn takes_a_cut(&self) -> bool {
        self.cuts.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
    }
}

/// Whether a statement is done: `CommandComplete`, whose length is small.
fn is_done(said: &[u8]) -> bool {
    said.windows(4).any(|it| it == b"C\0\0\0")
}

impl Wire {
    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

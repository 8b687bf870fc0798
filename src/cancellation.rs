//! Cancellation that threads and futures can both wait for.
//!
//! The one file of the core that may block and that defines a future: a token is what the caller, the engine and the
//! handlers of both front-ends share.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use log::Level;

use crate::notice::notice;
use crate::panic_boundary::guarded;
use crate::sync::{AtomicU8, Event, EventListener, Listener, Mutex, MutexGuard};

/// Why a run is told to wind down.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// The worker is shutting down.
    Shutdown,
    /// Another worker may have the job: the result of this run will be refused.
    ClaimLost,
    /// Somebody asked for this job to be cancelled.
    Requested,
    /// The run took longer than it may.
    TimedOut,
}

impl CancelReason {
    const ALL: [Self; 4] = [Self::Shutdown, Self::ClaimLost, Self::Requested, Self::TimedOut];

    /// Never [`LIVE`].
    fn code(self) -> u8 {
        match self {
            Self::Shutdown => 1,
            Self::ClaimLost => 2,
            Self::Requested => 3,
            Self::TimedOut => 4,
        }
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shutdown => "shutdown",
            Self::ClaimLost => "claim lost",
            Self::Requested => "cancel requested",
            Self::TimedOut => "timed out",
        })
    }
}

/// A signal that is raised once, and that any number of threads and futures can wait for.
///
/// Pass one to a worker's `run` and cancel it, for example from a signal handler's thread, to shut the worker down.
/// Clones are the same token. Dropping tokens cancels nothing.
///
/// ```
/// use venturi::CancellationToken;
///
/// let shutdown = CancellationToken::new();
/// let run = shutdown.child_token();
/// shutdown.cancel();
/// assert!(run.is_cancelled());
/// ```
#[derive(Clone)]
pub struct CancellationToken {
    node: Arc<Node>,
}

const LIVE: u8 = 0;

struct Node {
    /// [`LIVE`], or the code of the reason. Written under the lock of `waiting`, so that nothing is added to a node
    /// whose waiting parties have been taken away.
    state: AtomicU8,
    event: Event,
    waiting: Mutex<Waiting>,
    parent: Option<Parent>,
}

/// Holds the parent, since a token further up may still cancel it when nobody else does.
struct Parent {
    node: Arc<Node>,
    /// This node among the parent's children.
    key: u64,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    children: BTreeMap<u64, Weak<Node>>,
    hooks: BTreeMap<u64, Callback>,
}

type Callback = Box<dyn FnOnce() + Send>;

impl Default for CancellationToken {
    fn default() -> Self {
        Self::new()
    }
}

impl CancellationToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self { node: Arc::new(Node::new(LIVE, None)) }
    }

    /// Cancels this token and its children, and wakes all that wait for them. A second call does nothing.
    ///
    /// It never waits, and may be called from a thread or a future.
    pub fn cancel(&self) {
        self.cancel_because(CancelReason::Shutdown);
    }

    /// Cancels with a reason; the first one stays.
    pub(crate) fn cancel_because(&self, reason: CancelReason) {
        let mut nodes = vec![Arc::clone(&self.node)];
        let mut hooks = Vec::new();
        while let Some(node) = nodes.pop() {
            let Some(waiting) = node.close(reason) else { continue };
            node.event.notify(usize::MAX);
            nodes.extend(waiting.children.into_values().filter_map(|child| child.upgrade()));
            hooks.extend(waiting.hooks.into_values());
        }
        // Last, so that a hook finds the whole family cancelled and cannot keep anybody from being told.
        for hook in hooks {
            call(hook);
        }
    }

    /// Whether the token, or one that it is a child of, has been cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.node.is_cancelled()
    }

    /// Why it was cancelled; `None` while it is not.
    ///
    /// A token that was cancelled with [`cancel`](Self::cancel) says [`CancelReason::Shutdown`].
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        self.node.reason()
    }

    /// A future that completes when the token is cancelled, on any executor.
    ///
    /// It borrows nothing and may be dropped at any time.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { node: Arc::clone(&self.node), listener: None }
    }

    /// Blocks the thread until the token is cancelled.
    ///
    /// Not for async code, where [`cancelled`](Self::cancelled) is the way to wait.
    pub fn wait(&self) {
        if let Some(listener) = self.node.listen() {
            listener.wait();
        }
    }

    /// Blocks the thread until the token is cancelled or `timeout` is over, and says whether it is cancelled.
    ///
    /// Zero only looks. In a blocking handler it takes the place of sleeping.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        if let Some(listener) = self.node.listen() {
            listener.wait_timeout(timeout);
        }
        self.is_cancelled()
    }

    /// A token that is cancelled together with this one, and can be cancelled alone.
    ///
    /// Nothing is left of it in this token when it is dropped.
    #[must_use]
    pub fn child_token(&self) -> Self {
        Self { node: Node::child(&self.node) }
    }

    /// Calls `hook` once when the token is cancelled, on the thread that cancels it; at once if it already is.
    ///
    /// A hook that panics stops no other. Dropping the [`Hook`] takes it back, unless a cancellation has already
    /// begun: then it may still be called.
    pub(crate) fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>) -> Hook {
        let key = match self.node.lock_live() {
            Some(mut waiting) => {
                let key = waiting.next_key();
                waiting.hooks.insert(key, hook);
                key
            }
            None => {
                call(hook);
                return Hook { place: None };
            }
        };
        Hook { place: Some((Arc::clone(&self.node), key)) }
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("reason", &self.reason()).finish_non_exhaustive()
    }
}

fn call(hook: Callback) {
    if let Err(panic) = guarded(hook) {
        notice(Level::Error, format_args!("a cancellation hook {panic}"));
    }
}

impl Node {
    fn new(state: u8, parent: Option<Parent>) -> Self {
        Self { state: AtomicU8::new(state), event: Event::new(), waiting: Mutex::default(), parent }
    }

    fn child(parent: &Arc<Self>) -> Arc<Self> {
        let Some(mut waiting) = parent.lock_live() else {
            return Arc::new(Self::new(parent.state.load(Ordering::Acquire), None));
        };
        let key = waiting.next_key();
        let child = Arc::new(Self::new(LIVE, Some(Parent { node: Arc::clone(parent), key })));
        waiting.children.insert(key, Arc::downgrade(&child));
        child
    }

    fn is_cancelled(&self) -> bool {
        self.state.load(Ordering::Acquire) != LIVE
    }

    fn reason(&self) -> Option<CancelReason> {
        CancelReason::of(self.state.load(Ordering::Acquire))
    }

    /// A listener that no cancellation can have passed by: look, listen, look again.
    fn listen(&self) -> Option<EventListener> {
        if self.is_cancelled() {
            return None;
        }
        let listener = self.event.listen();
        (!self.is_cancelled()).then_some(listener)
    }

    /// Marks the node as cancelled and takes what waits for it; nothing if it was cancelled before.
    fn close(&self, reason: CancelReason) -> Option<Waiting> {
        let mut waiting = self.lock_live()?;
        self.state.store(reason.code(), Ordering::Release);
        Some(mem::take(&mut *waiting))
    }

    fn lock_live(&self) -> Option<MutexGuard<'_, Waiting>> {
        let waiting = self.lock();
        (!self.is_cancelled()).then_some(waiting)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No user code runs under this lock, so a panic cannot have left it half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn next_key(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A loop, since a chain of children may be longer than the stack is deep.
        let mut parent = self.parent.take();
        while let Some(Parent { node, key }) = parent {
            node.lock().children.remove(&key);
            parent = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}

/// The future of [`CancellationToken::cancelled`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Cancelled {
    node: Arc<Node>,
    listener: Option<EventListener>,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.listener.is_none() {
            this.listener = this.node.listen();
        }
        match &mut this.listener {
            Some(listener) if !this.node.is_cancelled() => Pin::new(listener).poll(cx),
            _ => Poll::Ready(()),
        }
    }
}

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").field("reason", &self.node.reason()).finish_non_exhaustive()
    }
}

/// Takes its callback back when it is dropped. It keeps the token alive, so that a cancellation can reach it.
#[must_use = "dropping a hook takes it back"]
pub(crate) struct Hook {
    place: Option<(Arc<Node>, u64)>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        let Some((node, key)) = self.place.take() else { return };
        let callback = node.lock().hooks.remove(&key);
        // After the lock is released: what the callback captured may use this token when it is dropped.
        drop(callback);
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

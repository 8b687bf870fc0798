//! As much of `event-listener` as is used, in its words. The crate's own is tested by its authors; here it has to be seen
//! by the scheduler.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::sync::{Condvar, Mutex};

pub(crate) struct Event(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Who listens, with the waker of a future; those that were notified are gone.
    listeners: Mutex<(u64, BTreeMap<u64, Option<Waker>>)>,
    notified: Condvar,
}

impl Event {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn listen(&self) -> EventListener {
        let mut listeners = self.0.listeners.lock().unwrap();
        listeners.0 += 1;
        let key = listeners.0;
        listeners.1.insert(key, None);
        EventListener { event: Arc::clone(&self.0), key }
    }

    pub(crate) fn notify(&self, all: usize) {
        assert_eq!(all, usize::MAX);
        let listeners = std::mem::take(&mut self.0.listeners.lock().unwrap().1);
        self.0.notified.notify_all();
        listeners.into_values().flatten().for_each(Waker::wake);
    }
}

pub(crate) struct EventListener {
    event: Arc<Shared>,
    key: u64,
}

pub(crate) trait Listener {
    fn wait(self);
    fn wait_timeout(self, timeout: Duration);
}

impl Listener for EventListener {
    fn wait(self) {
        let mut listeners = self.event.listeners.lock().unwrap();
        while listeners.1.contains_key(&self.key) {
            listeners = self.event.notified.wait(listeners).unwrap();
        }
    }

    fn wait_timeout(self, _: Duration) {
        panic!("there is no time here");
    }
}

impl Future for EventListener {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.event.listeners.lock().unwrap().1.get_mut(&self.key) {
            Some(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        self.event.listeners.lock().unwrap().1.remove(&self.key);
    }
}

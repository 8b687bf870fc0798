//! As much of `crossbeam-channel` as is used, in its words. The crate's own is tested by its authors; here it has to be
//! seen by the scheduler. There is no time: a deadline never comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{RecvError, RecvTimeoutError, SendError, TrySendError};
use shuttle::sync::{Condvar, Mutex};

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    most: usize,
    senders: usize,
    receivers: usize,
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);
pub(crate) struct Receiver<T>(Arc<Shared<T>>);

pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

pub(crate) fn bounded<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let state = Mutex::new(State { queue: VecDeque::new(), most, senders: 1, receivers: 1 });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.try_send(value).map_err(|error| match error {
            TrySendError::Disconnected(value) => SendError(value),
            TrySendError::Full(_) => panic!("nobody here waits for room"),
        })
    }

    pub(crate) fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state.lock().unwrap();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        if state.queue.len() >= state.most {
            return Err(TrySendError::Full(value));
        }
        state.queue.push_back(value);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock().unwrap();
        loop {
            match state.queue.pop_front() {
                Some(value) => return Ok(value),
                None if state.senders == 0 => return Err(RecvError),
                None => state = self.0.changed.wait(state).unwrap(),
            }
        }
    }

    pub(crate) fn recv_deadline(&self, _: Instant) -> Result<T, RecvTimeoutError> {
        self.recv().map_err(|RecvError| RecvTimeoutError::Disconnected)
    }
}

pub(crate) struct Iter<R>(R);

impl<T> Iterator for Iter<Receiver<T>> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> Iterator for Iter<&Receiver<T>> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = Iter<Self>;

    fn into_iter(self) -> Iter<Self> {
        Iter(self)
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<Self>;

    fn into_iter(self) -> Iter<Self> {
        Iter(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().unwrap().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().unwrap().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().senders -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap();
        state.receivers -= 1;
        // What nobody will get is dropped by the last one, as by the crate.
        let unheard = if state.receivers == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        drop(state);
        drop(unheard);
    }
}

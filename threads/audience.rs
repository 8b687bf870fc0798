//! Where events go: to the log at once, and to the application's observers on a thread of their own.

use std::sync::Arc;
use std::time::Instant;

use log::Level;

use crate::notice::notice;
use crate::observer::{Event, Observed, Observers};
use crate::panic_boundary::guarded;

use super::named::Threads;
use super::primitives::{Receiver, Sender, bounded};

/// How many events may wait for observers that are slow; some megabytes at most.
const WAITING: usize = 10_000;

pub(crate) struct Audience {
    worker: Option<Arc<str>>,
    /// Nothing when nobody observes.
    events: Option<Sender<Event>>,
    thread: Threads,
    missed: u64,
}

impl Audience {
    /// Starts no thread when there are no observers.
    pub(crate) fn new(observers: Observers, worker: Option<Arc<str>>) -> Self {
        let mut this = Self { worker, events: None, thread: Threads::new(), missed: 0 };
        if observers.is_empty() {
            return this;
        }
        let (sender, events) = bounded(WAITING);
        let worker = this.worker.clone();
        match this.thread.spawn("venturi-observer".to_owned(), move || tell_all(&observers, worker.as_deref(), &events))
        {
            Ok(()) => this.events = Some(sender),
            Err(error) => {
                notice(Level::Warn, format_args!("observers hear nothing, their thread cannot be started: {error}"))
            }
        }
        this
    }

    /// Waits for nobody.
    pub(crate) fn tell(&mut self, event: Event) {
        // The logger is the application's code, too.
        let _ = guarded(|| event.log(self.worker.as_deref()));
        let Some(events) = &self.events else { return };
        if self.missed > 0 && events.try_send(Event::Missed { events: self.missed }).is_ok() {
            self.missed = 0;
        }
        if self.missed > 0 || events.try_send(event).is_err() {
            self.missed += 1;
        }
    }

    /// Lets the observers hear what waits for them, until `deadline`.
    pub(crate) fn end_by(mut self, deadline: Instant) {
        self.events = None;
        self.thread.end_by(deadline);
    }
}

fn tell_all(observers: &Observers, worker: Option<&str>, events: &Receiver<Event>) {
    for event in events {
        for observer in &observers.0 {
            if let Err(panic) = guarded(|| observer.observe(&Observed::new(worker, &event))) {
                notice(Level::Error, format_args!("an observer {panic}"));
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

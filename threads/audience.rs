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
    /// For what was missed last, which they hear at the end.
    rest: Option<Sender<Event>>,
    thread: Threads,
    missed: u64,
    /// The last one of those.
    latest: Option<Event>,
}

impl Audience {
    /// Starts no thread when there are no observers.
    pub(crate) fn new(observers: Observers, worker: Option<Arc<str>>) -> Self {
        let mut this = Self { worker, events: None, rest: None, thread: Threads::new(), missed: 0, latest: None };
        if observers.is_empty() {
            return this;
        }
        let (sender, events) = bounded(WAITING);
        let (last, rest) = bounded(2);
        let worker = this.worker.clone();
        let tell = move || [events, rest].iter().for_each(|events| tell_all(&observers, worker.as_deref(), events));
        match this.thread.spawn("venturi-observer".to_owned(), tell) {
            Ok(()) => (this.events, this.rest) = (Some(sender), Some(last)),
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
        let refused =
            if self.missed > 0 { Some(event) } else { events.try_send(event).err().map(|it| it.into_inner()) };
        if refused.is_some() {
            self.missed += 1;
            self.latest = refused;
        }
    }

    /// Lets the observers hear what waits for them, until `deadline`: also how much they missed and have not been told of,
    /// and the last event, which says that this is the end.
    pub(crate) fn end_by(mut self, deadline: Instant) {
        if let (Some(rest), 1.., Some(latest)) = (self.rest.take(), self.missed, self.latest.take()) {
            // There is room for both.
            let before = Some(self.missed - 1).filter(|before| *before > 0).map(|events| Event::Missed { events });
            before.into_iter().chain([latest]).for_each(|event| drop(rest.try_send(event)));
        }
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

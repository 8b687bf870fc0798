#![allow(clippy::disallowed_methods, reason = "a test reads the clock itself")]

use std::sync::mpsc::{self, channel};
use std::time::Duration;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn claimed(count: usize) -> Event {
    Event::Claimed { count }
}

#[test]
fn a_panic_of_an_observer_costs_nobody_an_event() {
    let (heard, events) = channel();
    let mut observers = Observers::default();
    observers.add(|_: &Observed<'_>| panic!("observed"));
    observers.add(move |observed: &Observed<'_>| {
        heard.send((observed.worker.map(str::to_owned), observed.event.clone())).unwrap();
    });
    let mut audience = Audience::new(observers, Some("here".into()));
    audience.tell(claimed(1));
    audience.tell(claimed(2));
    audience.end_by(Instant::now() + PATIENCE);
    let told: Vec<_> = events.iter().collect();
    assert_eq!(told, [1, 2].map(|count| (Some("here".to_owned()), claimed(count))));
}

/// An audience that was told more than waits for its only observer, who hears nothing until what holds it is dropped.
fn overwhelmed() -> (Audience, Sender<()>, mpsc::Receiver<Event>) {
    let (open, gate) = bounded::<()>(0);
    let (heard, events) = channel();
    let mut observers = Observers::default();
    observers.add(move |observed: &Observed<'_>| {
        let _ = gate.recv();
        heard.send(observed.event.clone()).unwrap();
    });
    let mut audience = Audience::new(observers, None);
    for count in 0..WAITING + 100 {
        audience.tell(claimed(count));
    }
    (audience, open, events)
}

#[test]
fn a_slow_observer_keeps_nobody_waiting_and_hears_how_much_it_missed() {
    let (mut audience, open, events) = overwhelmed();
    drop(open);
    // By then there is room again.
    events.recv_timeout(PATIENCE).unwrap();
    events.recv_timeout(PATIENCE).unwrap();
    audience.tell(claimed(0));
    audience.end_by(Instant::now() + PATIENCE);
    let missed = events.iter().find_map(|event| if let Event::Missed { events } = event { Some(events) } else { None });
    assert!(matches!(missed, Some(99 | 100)), "{missed:?}");
}

#[test]
fn who_is_slow_to_the_end_hears_how_much_was_missed_and_the_last_event() {
    let (mut audience, open, events) = overwhelmed();
    let end = Event::ShutdownState { state: "stopped", asynchronous: 0, blocking: 0 };
    audience.tell(end.clone());
    drop(open);
    audience.end_by(Instant::now() + PATIENCE);
    let events: Vec<_> = events.iter().collect();
    let [told @ .., Event::Missed { events: missed }, last] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(last, &end);
    assert_eq!(told.len() as u64 + missed, WAITING as u64 + 100);
}

//! Events on their way to observers that may be slow.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::in_many_orders;
use crate::observer::{Event, Observed, Observers};
use crate::threads::Audience;

#[test]
fn every_event_is_heard_in_order_and_before_the_end() {
    in_many_orders(|| {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ears = Arc::clone(&heard);
        let mut observers = Observers::default();
        observers.add(move |observed: &Observed<'_>| {
            shuttle::thread::yield_now();
            ears.lock().unwrap().push(observed.event.clone());
        });
        let mut audience = Audience::new(observers, None);
        let events: Vec<Event> = (1..=3).map(|count| Event::Claimed { count }).collect();
        events.iter().cloned().for_each(|event| audience.tell(event));
        audience.end_by(Instant::now());
        assert_eq!(*heard.lock().unwrap(), events);
    });
}

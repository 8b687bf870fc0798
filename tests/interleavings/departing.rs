//! A run's report, and what still holds on to the run.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread::spawn;

use super::in_many_orders;
use crate::departure::Departure;
use crate::report::{Report, Verdict};

#[test]
fn a_report_is_sent_once_and_after_the_last_hold() {
    in_many_orders(|| {
        let (sent, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, looked_at) = (Arc::clone(&sent), Arc::clone(&gone));
        let departure = Departure::new(move |report| {
            assert_eq!(report.verdict, Verdict::Completed { note: None });
            assert_eq!(looked_at.load(Ordering::SeqCst), 2, "every hold is let go of before");
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let holders = [departure.hold(), departure.hold()].map(|hold| {
            let gone = Arc::clone(&gone);
            spawn(move || {
                gone.fetch_add(1, Ordering::SeqCst);
                drop(hold);
            })
        });
        departure.report(Report::new(Verdict::Completed { note: None }));
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        assert_eq!(sent.load(Ordering::SeqCst), 1);
    });
}

//! What one would write by hand: LISTEN, claim a job, run it, settle it; wait for a notification when there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use venturi::Priority;

use crate::support::Result;
use crate::support::front::{Lab, Tick};
use crate::support::reference::{CHANNEL, Reference};
use crate::support::server::Server;

/// How long a loop waits for a notification before it looks whether it has to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Loops on threads of their own, one for each slot.
pub(crate) struct Loops {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Loops {
    pub(crate) fn start(server: &Server, slots: usize, lab: &Arc<Lab>) -> Result<Self> {
        let (stop, mut threads) = (Arc::new(AtomicBool::new(false)), Vec::new());
        for _ in 0..slots {
            let (told, lab, mut reference) = (Arc::clone(&stop), Arc::clone(lab), Reference::connect(server)?);
            threads.push(thread::spawn(move || work(&mut reference, &lab, &told)));
        }
        Ok(Self { stop, threads })
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "the reference panicked")?)
    }
}

fn work(reference: &mut Reference, lab: &Lab, stop: &AtomicBool) -> Result<()> {
    reference.client.batch_execute(&format!("LISTEN {CHANNEL}"))?;
    while !stop.load(Ordering::Relaxed) {
        let jobs = reference.claim::<Tick>(1)?;
        for (id, job) in &jobs {
            lab.note(*id, Priority::Normal);
            thread::sleep(Duration::from_millis(job.nap_ms));
            reference.settle(&[*id])?;
        }
        if jobs.is_empty() {
            let mut notifications = reference.client.notifications();
            notifications.timeout_iter(LOOK_EVERY).next()?;
            // The others say the same.
            notifications.iter().for_each(|_| Ok(()))?;
        }
    }
    Ok(())
}

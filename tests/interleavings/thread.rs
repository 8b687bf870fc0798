//! Threads of the scheduler, with what it lacks.

use std::io;
use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, Ordering};
pub(crate) use shuttle::thread::{Result, current};

pub(crate) struct Builder(shuttle::thread::Builder);

pub(crate) struct JoinHandle<T> {
    handle: shuttle::thread::JoinHandle<T>,
    ended: Arc<AtomicBool>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self(shuttle::thread::Builder::new())
    }

    pub(crate) fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    pub(crate) fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let handle = self.0.spawn(move || {
            let value = body();
            end.store(true, Ordering::SeqCst);
            value
        })?;
        Ok(JoinHandle { handle, ended })
    }
}

impl<T> JoinHandle<T> {
    pub(crate) fn is_finished(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub(crate) fn join(self) -> Result<T> {
        self.handle.join()
    }
}

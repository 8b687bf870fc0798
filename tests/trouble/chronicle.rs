//! What was done to whom, and when: for the reader of a failure, and for the rules about time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, by the clock that the server has too.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64())
}

/// A time in which somebody was disturbed.
#[derive(Clone, Debug)]
struct Trouble {
    from: f64,
    to: f64,
    /// Whose; `None`: the server's, and so everybody's.
    seat: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Chronicle {
    began: f64,
    lines: Mutex<Vec<String>>,
    troubles: Mutex<Vec<Trouble>>,
}

impl Chronicle {
    pub(crate) fn new() -> Self {
        Self { began: now(), lines: Mutex::default(), troubles: Mutex::default() }
    }

    pub(crate) fn note(&self, text: impl AsRef<str>) {
        lock(&self.lines).push(format!("{:8.3}  {}", now() - self.began, text.as_ref()));
    }

    pub(crate) fn note_trouble(&self, from: f64, seat: Option<usize>) {
        lock(&self.troubles).push(Trouble { from, to: now(), seat });
    }

    pub(crate) fn text(&self) -> String {
        lock(&self.lines).join("\n")
    }

    pub(crate) fn events(&self) -> usize {
        lock(&self.troubles).len()
    }

    /// Seconds from the beginning, as the lines have them.
    pub(crate) fn since_beginning(&self, at: f64) -> f64 {
        at - self.began
    }

    /// Whether the server and this one were left alone.
    pub(crate) fn was_calm(&self, seat: usize, from: f64, to: f64) -> bool {
        let disturbs = |it: &Trouble| it.seat.is_none_or(|whose| whose == seat) && it.from < to && it.to > from;
        !lock(&self.troubles).iter().any(disturbs)
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

//! An answer that a handler waits for: on a thread by `wait`, in a future by `.await`.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use crate::error::{Error, ErrorKind};
use crate::panic_boundary::guarded;
use crate::sync::{Condvar, Mutex};

/// What the database says to a handler's request; it arrives while the handler goes on.
///
/// A blocking handler calls [`wait`](Self::wait), an async one awaits it. Dropping it does not take the request back.
///
/// # Cancellation
/// The request has been made when this value exists; dropping the future loses only the answer.
#[must_use = "call `wait` on it on a thread, or await it in a future"]
pub struct Answer<T> {
    slot: Arc<Slot<T>>,
}

/// The end that gives the answer; dropped without one, it answers that the worker has stopped.
pub(crate) struct Answerer<T> {
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

struct State<T> {
    answer: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

/// A question's two ends.
pub(crate) fn question<T>() -> (Answerer<T>, Answer<T>) {
    let slot = Arc::new(Slot { state: Mutex::new(State { answer: None, waker: None }), arrived: Condvar::new() });
    (Answerer { slot: Arc::clone(&slot) }, Answer { slot })
}

impl<T> Answerer<T> {
    pub(crate) fn answer(self, answer: Result<T, Error>) {
        self.slot.put(answer);
    }
}

impl<T> Drop for Answerer<T> {
    fn drop(&mut self) {
        self.slot.put(Err(Error::new(ErrorKind::Unavailable, "the worker stopped before it could ask the database")));
    }
}

impl<T> Slot<T> {
    /// The first answer counts.
    fn put(&self, answer: Result<T, Error>) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.answer.is_none() {
                state.answer = Some(answer);
            }
            state.waker.take()
        };
        self.arrived.notify_all();
        if let Some(waker) = waker {
            // A waker is code of the application's executor, and whoever answers must go on.
            let _ = guarded(|| waker.wake());
        }
    }
}

impl<T> Answer<T> {
    /// An answer that needs nobody to be asked.
    pub(crate) fn known(answer: Result<T, Error>) -> Self {
        let (answerer, this) = question();
        answerer.answer(answer);
        this
    }

    /// Waits for the answer on this thread. Not for futures: it would block their executor.
    ///
    /// # Errors
    /// What the request failed with.
    pub fn wait(self) -> Result<T, Error> {
        let mut state = self.slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            state = self.slot.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Answerer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answerer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_given_before_anybody_waits_is_kept() {
        let (answerer, answer) = question();
        answerer.answer(Ok(7));
        assert_eq!(answer.wait().unwrap(), 7);
    }

    #[test]
    fn a_question_nobody_answers_is_answered_with_an_error() {
        let (answerer, answer) = question::<()>();
        drop(answerer);
        assert_eq!(answer.wait().unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn a_future_is_woken_by_its_answer() {
        let (answerer, answer) = question();
        let mut answer = std::pin::pin!(answer);
        let mut context = TaskContext::from_waker(Waker::noop());
        assert!(answer.as_mut().poll(&mut context).is_pending());
        answerer.answer(Ok(1));
        assert!(matches!(answer.as_mut().poll(&mut context), Poll::Ready(Ok(1))));
    }
}

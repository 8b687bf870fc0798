//! The one place where a panic of the user's code becomes a value.
#![deny(clippy::disallowed_methods)]

use std::any::{Any, type_name};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "async")]
use std::pin::Pin;
#[cfg(feature = "async")]
use std::task::{Context, Poll};

use log::Level;

use crate::notice::notice;
use crate::text;

/// Runs the user's code and returns "panicked: …" when it panics.
///
/// What `f` captures is dropped inside as well. With `panic = "abort"` there is nothing to catch and the process ends.
pub(crate) fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(describe)
}

/// A value of the user's that must not be dropped anyhow: were its `Drop` to panic while another's panic unwinds, the
/// process would end.
#[derive(Debug)]
pub(crate) struct Contained<T>(pub(crate) Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Drops it, and tells of a panic.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        let value = self.0.take();
        guarded(|| drop(value))
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if let Err(panic) = self.end() {
            notice(Level::Error, format_args!("a {} {panic} while it was dropped", type_name::<T>()));
        }
    }
}

/// The user's future: made when it is first polled, and gone when it is complete. Neither polling nor dropping it panics.
#[cfg(feature = "async")]
pub(crate) struct GuardedFuture<M, F> {
    make: Option<M>,
    future: Contained<Pin<Box<F>>>,
}

#[cfg(feature = "async")]
impl<F: Future, M: FnOnce() -> F> GuardedFuture<M, F> {
    pub(crate) fn new(make: M) -> Self {
        Self { make: Some(make), future: Contained(None) }
    }
}

/// Gives the text of the first panic, if there was one.
#[cfg(feature = "async")]
impl<F: Future, M: FnOnce() -> F + Unpin> Future for GuardedFuture<M, F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(make) = self.make.take() {
            match guarded(|| Box::pin(make())) {
                Ok(future) => self.future = Contained::new(future),
                Err(panic) => return Poll::Ready(Err(panic)),
            }
        }
        let Some(future) = &mut self.future.0 else { return Poll::Pending };
        // A panic must not leave this function: it would unwind through what the future has borrowed.
        let result = match guarded(|| future.as_mut().poll(cx)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(panic),
        };
        Poll::Ready(match (result, self.future.end()) {
            (Ok(output), Err(panic)) => {
                drop(Contained::new(output));
                Err(panic)
            }
            (result, _) => result,
        })
    }
}

fn describe(payload: Box<dyn Any + Send>) -> String {
    let text = format!("panicked: {}", text::panic_text(&*payload));
    discard(payload);
    text
}

/// Drops a panic's payload, whose `Drop` is the user's code and may panic too.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Leaked: dropping it could panic for ever.
        mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use std::panic;

    use super::*;

    struct Hostile;

    impl Drop for Hostile {
        fn drop(&mut self) {
            panic::panic_any(Self);
        }
    }

    #[test]
    fn a_value_passes_through() {
        assert_eq!(guarded(|| 7), Ok(7));
    }

    #[test]
    fn a_panic_becomes_its_text() {
        assert_eq!(guarded(|| panic!("no such file")), Err::<(), _>("panicked: no such file".to_owned()));
        assert_eq!(guarded(|| panic!("row {}", 3)), Err::<(), _>("panicked: row 3".to_owned()));
    }

    #[test]
    fn a_payload_that_is_not_text_is_named_as_such() {
        let caught = guarded(|| panic::panic_any(42_u8));
        assert_eq!(caught, Err("panicked: a value that is not text".to_owned()));
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_contained() {
        let caught = guarded(|| panic::panic_any(Hostile));
        assert_eq!(caught, Err("panicked: a value that is not text".to_owned()));
    }

    #[test]
    fn contained_values_that_panic_when_dropped_do_not_end_a_process_that_unwinds() {
        let caught = guarded(|| {
            let _values = [Contained::new(Hostile), Contained::new(Hostile)];
            panic!("first");
        });
        assert_eq!(caught, Err::<(), _>("panicked: first".to_owned()));
        assert!(Contained::new(Hostile).end().is_err());
    }

    #[test]
    fn captures_that_panic_when_dropped_are_contained() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let bomb = Bomb;
        let caught = guarded(move || drop(bomb));
        assert_eq!(caught, Err("panicked: dropped".to_owned()));
    }
}

//! What is logged beside events.
#![deny(clippy::disallowed_methods)]

use std::fmt;

use log::Level;

use crate::panic_boundary::guarded;

/// Tells the log. The logger is the application's code: one that panics disturbs nobody here, not even where a panic is on
/// its way already.
pub(crate) fn notice(level: Level, what: fmt::Arguments<'_>) {
    // There is nobody left to tell.
    let _ = guarded(|| log::log!(target: "venturi", level, "{what}"));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use log::{LevelFilter, Log, Metadata, Record};

    use crate::panic_boundary::Contained;

    thread_local! {
        static LOUD: Cell<usize> = const { Cell::new(0) };
    }

    /// Panics on the thread that asked for it.
    struct Bomb;

    impl Log for Bomb {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &Record<'_>) {
            let left = LOUD.get();
            if left > 0 {
                LOUD.set(left - 1);
                panic!("a logger that was told: {}", record.args());
            }
        }

        fn flush(&self) {}
    }

    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("fragile");
        }
    }

    #[test]
    fn a_logger_that_panics_while_a_panic_unwinds_ends_nothing() {
        log::set_boxed_logger(Box::new(Bomb)).unwrap();
        log::set_max_level(LevelFilter::Warn);
        LOUD.set(2);
        drop(Contained::new(Fragile));
        let caught = crate::panic_boundary::guarded(|| {
            let _on_the_way = Contained::new(Fragile);
            panic!("the first");
        });
        assert_eq!((caught, LOUD.get()), (Err("panicked: the first".to_owned()), 0));
    }
}

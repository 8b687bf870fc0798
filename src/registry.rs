//! The kinds that a worker can run.
#![deny(clippy::disallowed_methods)]

use std::any::type_name;
use std::time::Duration;

use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::panic_boundary::guarded;
use crate::task::check_kind;
use crate::{Backoff, Task};

/// What the engine knows of a kind.
#[derive(Clone, Debug)]
pub(crate) struct KindRule {
    pub(crate) kind: &'static str,
    pub(crate) lease: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) backoff: Backoff,
    /// How many runs of this kind the worker has at once, below its concurrency.
    pub(crate) cap: Option<usize>,
    /// Whether a started run can be stopped only by itself.
    pub(crate) blocking: bool,
}

/// The kinds of a worker with what runs them; `R` is the front-end's type-erased runner.
pub(crate) struct Registry<R> {
    entries: Vec<Entry<R>>,
}

struct Entry<R> {
    kind: &'static str,
    type_name: &'static str,
    cap: Option<usize>,
    blocking: bool,
    policies: fn() -> Policies,
    runner: R,
}

/// The per-kind policies as the task's type states them.
struct Policies {
    lease: Option<Duration>,
    timeout: Option<Duration>,
    backoff: Option<Backoff>,
}

impl<R> Registry<R> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(crate) fn add<T: Task>(&mut self, runner: R, cap: Option<usize>, blocking: bool) {
        self.entries.push(Entry {
            kind: T::KIND,
            type_name: type_name::<T>(),
            cap: cap.map(|most| most.max(1)),
            blocking,
            policies: || Policies { lease: T::lease(), timeout: T::timeout(), backoff: T::backoff() },
            runner,
        });
    }

    /// What runs each kind, in the order in which [`rules`](Self::rules) lists them.
    pub(crate) fn into_runners(self) -> Vec<R> {
        self.entries.into_iter().map(|entry| entry.runner).collect()
    }

    /// Checks the kinds and reads their policies.
    pub(crate) fn rules(&self, config: &Config) -> Result<Vec<KindRule>, Error> {
        if self.entries.is_empty() {
            return Err(Error::new(
                ErrorKind::NoKinds,
                "the worker has no kinds to claim; register at least one task before `build`",
            ));
        }
        self.check_distinct()?;
        self.entries.iter().map(|entry| entry.rule(config)).collect()
    }

    fn check_distinct(&self) -> Result<(), Error> {
        for (index, entry) in self.entries.iter().enumerate() {
            let earlier = self.entries.iter().take(index).find(|earlier| earlier.kind == entry.kind);
            if let Some(earlier) = earlier {
                return Err(Error::new(
                    ErrorKind::DuplicateKind,
                    format!(
                        "the kind {:?} is registered twice, by {} and by {}; give each type its own `Task::KIND`",
                        entry.kind, earlier.type_name, entry.type_name
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl<R> Entry<R> {
    fn rule(&self, config: &Config) -> Result<KindRule, Error> {
        check_kind(self.kind)?;
        let policies = guarded(self.policies).map_err(|panic| {
            Error::new(
                ErrorKind::Config,
                format!("{} {panic} in `lease`, `timeout` or `backoff`; they must not panic", self.type_name),
            )
        })?;
        Ok(KindRule {
            kind: self.kind,
            lease: config.clamp_lease(policies.lease.unwrap_or(config.lease)),
            timeout: policies.timeout.or(config.timeout),
            backoff: policies.backoff.unwrap_or(config.backoff),
            cap: self.cap,
            blocking: self.blocking,
        })
    }
}

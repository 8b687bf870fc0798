//! What both worker builders have in common: every knob, and the checks that `build` makes.
#![deny(clippy::disallowed_methods)]

use std::hash::{BuildHasher, RandomState};

use crate::Database;
use crate::config::{Config, worker_name};
use crate::engine::Rules;
use crate::error::Error;
use crate::registry::Registry;

/// The setters of a builder that has a field `config: Config` and a field `database: Option<Database>`.
///
/// Written once so that the two front-ends cannot drift apart.
#[cfg(any(feature = "blocking", feature = "async"))]
macro_rules! knobs {
    () => {
        /// The database whose queue this worker serves. Default: what `DATABASE_URL` names.
        #[must_use]
        pub fn database(mut self, database: $crate::Database) -> Self {
            self.database = Some(database);
            self
        }

        /// How many jobs run at once. Default: half the machine's cores, at least 1 and at most 8.
        ///
        /// 0 counts as 1, with which the worker is strictly serial; more than 10,000 is refused by `build`.
        #[must_use]
        pub fn concurrency(mut self, concurrency: usize) -> Self {
            self.config.set_concurrency(concurrency);
            self
        }

        /// How many connections share the work of claiming and settling. Default: 1; at most 2.
        ///
        /// With 2, completed jobs are settled over the second while the next ones are claimed over the first. One is right
        /// for most; try 2 when the worker's connection is always busy with short jobs, the server has cores to spare and
        /// `concurrency` is 64 or more (`docs/scaling.md` has figures). While the second is down, the first does all. 0
        /// counts as 1, more than 2 is refused by `build`. Listening and renewing have one more connection of their own.
        #[must_use]
        pub fn connections(mut self, connections: usize) -> Self {
            self.config.set_connections(connections);
            self
        }

        /// Whether a claim waits until the server has it on disk. Default: yes.
        ///
        /// Without, an idle worker starts a job sooner by the time that one commit takes, which is what a slow disk or a
        /// synchronous standby makes of it; results are on disk before they count, as ever, and so are claims that
        /// share their transaction. The price: when the *server* crashes within the next moments (three times
        /// `wal_writer_delay`, 0.6 seconds by default), claims may be forgotten. Their jobs are then pending although their
        /// handlers run, and mostly run again: the first run is told that its claim is lost, and one result counts.
        #[must_use]
        pub fn durable_claims(mut self, durable: bool) -> Self {
            self.config.durable_claims = durable;
            self
        }

        /// The longest time between two looks at an idle queue. Default: 30 seconds; at least 1 ms.
        ///
        /// Jobs start by notification, not by polling; this bounds what a lost notification costs.
        #[must_use]
        pub fn poll_max(mut self, poll_max: std::time::Duration) -> Self {
            self.config.set_poll_max(poll_max);
            self
        }

        /// How long a claim stays valid without being renewed, unless the task says otherwise. Default: 15 minutes.
        ///
        /// Range 1 second to 365 days; values outside are clamped. Less than 3 seconds is refused by `build` while leases
        /// are renewed. After a crash it is the longest time until the job runs again.
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.config.set_lease(lease);
            self
        }

        /// Whether claims of running jobs are renewed, every third of their lease. Default: yes.
        ///
        /// Without renewal a job that runs longer than its lease is run again elsewhere while it still runs here.
        #[must_use]
        pub fn renew_leases(mut self, renew: bool) -> Self {
            self.config.renew_leases = renew;
            self
        }

        /// How long running jobs have to wind down when the worker is told to stop. Default: 30 seconds.
        ///
        /// Zero forces at once.
        #[must_use]
        pub fn shutdown_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.config.set_shutdown_timeout(timeout);
            self
        }

        /// How long started blocking handlers are waited for, after the shutdown's time is over, before the wait is
        /// reported as one for a thread. Default: the worker's time-out, or nothing.
        ///
        /// It is added to `shutdown_timeout` and changes nothing but what is reported: a started blocking handler is
        /// waited for without bound.
        #[must_use]
        pub fn handler_grace(mut self, grace: std::time::Duration) -> Self {
            self.config.set_handler_grace(grace);
            self
        }

        /// How long a future that was told to stop may take to do so, and how long results that the server does not
        /// take are kept when the worker is stopping. Default: 5 seconds.
        ///
        /// With `shutdown_timeout` it bounds how long a worker without blocking handlers takes to stop.
        #[must_use]
        pub fn abort_grace(mut self, grace: std::time::Duration) -> Self {
            self.config.set_abort_grace(grace);
            self
        }

        /// How long one run may take, unless the task says otherwise. Default: no limit. Less than 1 ms is refused by
        /// `build`.
        #[must_use]
        pub fn timeout(mut self, timeout: Option<std::time::Duration>) -> Self {
            self.config.set_timeout(timeout);
            self
        }

        /// How strongly higher priorities are favoured: of so many claims one is reserved for the lower tiers.
        /// Default: 4, which gives 75, 18.75 and 6.25 percent under saturation.
        ///
        /// `None`, 0 and 1 mean strict priority: lower tiers may then starve.
        #[must_use]
        pub fn priority_ratio(mut self, ratio: Option<u32>) -> Self {
            self.config.priority_ratio = ratio;
            self
        }

        /// How long failed jobs wait, unless the task says otherwise. Default: 500 ms growing to 2 minutes.
        #[must_use]
        pub fn backoff(mut self, backoff: $crate::Backoff) -> Self {
            self.config.backoff = backoff;
            self
        }

        /// Which part of a backoff is left to chance, so that jobs that failed together do not return together.
        /// Default: 0.5.
        ///
        /// Range 0 to 1; values outside are clamped, and what is not a number is refused by `build`.
        #[must_use]
        pub fn jitter(mut self, fraction: f64) -> Self {
            self.config.set_jitter(fraction);
            self
        }

        /// At how many failures a job goes to dead. Default: 20. `None`: never.
        #[must_use]
        pub fn backstop(mut self, failures: Option<u32>) -> Self {
            self.config.backstop = failures;
            self
        }

        /// What becomes of a job whose handler panics. Default: it is retried like any failure.
        #[must_use]
        pub fn panic_policy(mut self, policy: $crate::PanicPolicy) -> Self {
            self.config.panic_policy = policy;
            self
        }

        /// What becomes of a job whose payload or carry cannot be decoded. Default: it is retried after the longest
        /// backoff, because a worker that can decode it may be on its way.
        #[must_use]
        pub fn decode_policy(mut self, policy: $crate::DecodePolicy) -> Self {
            self.config.decode_policy = policy;
            self
        }

        /// Has this worker delete completed jobs when they ended so long ago, with their payloads and journals.
        /// Default: they are kept until somebody deletes them.
        ///
        /// It looks about once a minute and deletes small batches beside its other work; workers that do so share it.
        /// Zero: about a minute after the end; to keep none at all, [`discard_completed`](Self::discard_completed) costs
        /// less.
        #[must_use]
        pub fn retain_completed(mut self, age: std::time::Duration) -> Self {
            self.config.retention = self.config.retention.completed(age);
            self
        }

        /// Likewise for cancelled jobs.
        #[must_use]
        pub fn retain_cancelled(mut self, age: std::time::Duration) -> Self {
            self.config.retention = self.config.retention.cancelled(age);
            self
        }

        /// Likewise for dead jobs, which somebody may still want to look at and requeue.
        #[must_use]
        pub fn retain_dead(mut self, age: std::time::Duration) -> Self {
            self.config.retention = self.config.retention.dead(age);
            self
        }

        /// Deletes a job when it completes, with its payload and journal, instead of keeping it as finished.
        /// Default: completed jobs are kept.
        ///
        /// Nothing tells afterwards that there was such a job. Dead and cancelled jobs are kept, and so are those that a
        /// handler completes in its own transaction.
        #[must_use]
        pub fn discard_completed(mut self) -> Self {
            self.config.discard_completed = true;
            self
        }

        /// Tells an [`Observer`](crate::Observer) what happens in this worker. Default: only the log is told.
        ///
        /// Called several times, each is told, in that order, on a thread named `venturi-observer`.
        #[must_use]
        pub fn observer(mut self, observer: impl $crate::Observer) -> Self {
            self.config.observers.add(observer);
            self
        }

        /// The identity that claims are recorded under. Default: `host:pid`.
        ///
        /// A random suffix is always appended, so that two workers never share one. At most 200 bytes without control
        /// characters; others are refused by `build`.
        #[must_use]
        pub fn claimed_by(mut self, name: impl Into<String>) -> Self {
            self.config.claimed_by = Some(name.into());
            self
        }
    };
}
#[cfg(any(feature = "blocking", feature = "async"))]
pub(crate) use knobs;

/// Checks what was set, and makes of it what the engine works by.
pub(crate) fn assemble<R>(
    config: Config,
    database: Option<Database>,
    registry: &Registry<R>,
) -> Result<(Rules, Database), Error> {
    config.validate()?;
    let kinds = registry.rules(&config)?;
    let database = database.map_or_else(Database::from_env, Ok)?;
    database.check_tls()?;
    database.watched().check_tls()?;
    let seed = random_seed();
    let worker = worker_name(config.claimed_by.as_deref(), &host(), std::process::id(), seed);
    let rules = Rules {
        kinds,
        worker: worker.into(),
        channel: database.schema_name().as_str().to_owned(),
        listen: database.listens(),
        seed,
        config,
    };
    Ok((rules, database))
}

fn host() -> String {
    whoami::hostname().unwrap_or_else(|_| "unknown".to_owned())
}

/// The standard library seeds its hash maps from the system's randomness; that is random enough for a suffix.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

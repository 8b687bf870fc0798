//! Every knob of a worker, with its default and its bounds.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::Backoff;
use crate::error::{Error, ErrorKind};
use crate::filter::Cleanup;
use crate::middleware::Layers;
use crate::observer::Observers;

/// Half the cores, since a job also keeps the database busy; more than 8 are worth a decision.
pub(crate) const MAX_DEFAULT_CONCURRENCY: usize = 8;
pub(crate) const MIN_CONCURRENCY: usize = 1;
/// A claim of more rows would hold its transaction open for longer than other workers should wait.
pub(crate) const MAX_CONCURRENCY: usize = 10_000;

/// A second one gains a busy worker with 256 slots 10 to 20 %, one with 16 nothing, and costs the server a connection.
pub(crate) const DEFAULT_CONNECTIONS: usize = 1;
pub(crate) const MAX_CONNECTIONS: usize = 2;

pub(crate) const DEFAULT_POLL_MAX: Duration = Duration::from_secs(30);
pub(crate) const MIN_POLL_MAX: Duration = Duration::from_millis(1);

pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(15 * 60);
pub(crate) const MIN_LEASE: Duration = Duration::from_secs(1);
/// A third of it must leave time for a round trip and for one that failed.
pub(crate) const MIN_RENEWED_LEASE: Duration = Duration::from_secs(3);
pub(crate) const MAX_LEASE: Duration = MAX_TIME;

pub(crate) const DEFAULT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const DEFAULT_ABORT_GRACE: Duration = Duration::from_secs(5);
/// A run that may take less has no time to begin; zero is more often a wish for "none".
pub(crate) const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// What every time is clamped to, so that adding it to an instant cannot overflow.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(365 * 86_400);

pub(crate) const DEFAULT_PRIORITY_RATIO: Option<u32> = Some(4);
pub(crate) const DEFAULT_JITTER: f64 = 0.5;
pub(crate) const DEFAULT_BACKSTOP: Option<u32> = Some(20);

/// It stands in every claimed row and in the journal.
pub(crate) const MAX_CLAIMED_BY: usize = 200;

/// What becomes of a job whose handler panicked.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PanicPolicy {
    /// It is retried with backoff, like after an error, until the backstop.
    #[default]
    Retry,
    /// It is dead at once.
    Dead,
}

/// What becomes of a job whose payload or carry cannot be decoded.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DecodePolicy {
    /// It is retried at the backoff's cap, until the backstop: a worker of another version may understand it.
    #[default]
    Retry,
    /// It is dead at once; its JSON is kept as it was.
    Dead,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) concurrency: usize,
    /// For claims and settlements; one more listens and renews.
    pub(crate) connections: usize,
    /// Whether a claim that goes alone waits for the disk.
    pub(crate) durable_claims: bool,
    pub(crate) poll_max: Duration,
    pub(crate) lease: Duration,
    pub(crate) renew_leases: bool,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) abort_grace: Duration,
    /// `None`: the run's time-out, or nothing.
    pub(crate) handler_grace: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) priority_ratio: Option<u32>,
    pub(crate) backoff: Backoff,
    pub(crate) jitter: f64,
    pub(crate) backstop: Option<u32>,
    pub(crate) panic_policy: PanicPolicy,
    pub(crate) decode_policy: DecodePolicy,
    pub(crate) claimed_by: Option<String>,
    /// Which finished jobs this worker deletes.
    pub(crate) retention: Cleanup,
    pub(crate) discard_completed: bool,
    pub(crate) observers: Observers,
    /// When the worker stops by itself.
    #[cfg(feature = "testing")]
    pub(crate) stint: Option<crate::stint::Stint>,
    pub(crate) layers: Layers,
}

impl Config {
    /// The defaults on a machine with this many cores.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            concurrency: default_concurrency(cores),
            connections: DEFAULT_CONNECTIONS,
            durable_claims: true,
            poll_max: DEFAULT_POLL_MAX,
            lease: DEFAULT_LEASE,
            renew_leases: true,
            shutdown_timeout: DEFAULT_SHUTDOWN_TIMEOUT,
            abort_grace: DEFAULT_ABORT_GRACE,
            handler_grace: None,
            timeout: None,
            priority_ratio: DEFAULT_PRIORITY_RATIO,
            backoff: Backoff::default(),
            jitter: DEFAULT_JITTER,
            backstop: DEFAULT_BACKSTOP,
            panic_policy: PanicPolicy::default(),
            decode_policy: DecodePolicy::default(),
            claimed_by: None,
            retention: Cleanup::new(),
            discard_completed: false,
            observers: Observers::default(),
            #[cfg(feature = "testing")]
            stint: None,
            layers: Layers::default(),
        }
    }

    /// Zero counts as 1; more than [`MAX_CONCURRENCY`] is refused by [`validate`](Self::validate).
    pub(crate) fn set_concurrency(&mut self, n: usize) {
        self.concurrency = n.max(MIN_CONCURRENCY);
    }

    /// Zero counts as 1; more than [`MAX_CONNECTIONS`] is refused by [`validate`](Self::validate).
    pub(crate) fn set_connections(&mut self, n: usize) {
        self.connections = n.max(1);
    }

    pub(crate) fn set_poll_max(&mut self, time: Duration) {
        self.poll_max = time.clamp(MIN_POLL_MAX, MAX_TIME);
    }

    /// Clamped to 1 s … 365 d; less than 3 s is refused while leases are renewed.
    pub(crate) fn set_lease(&mut self, time: Duration) {
        self.lease = time.clamp(MIN_LEASE, MAX_LEASE);
    }

    pub(crate) fn set_shutdown_timeout(&mut self, time: Duration) {
        self.shutdown_timeout = time.min(MAX_TIME);
    }

    pub(crate) fn set_handler_grace(&mut self, time: Duration) {
        self.handler_grace = Some(time.min(MAX_TIME));
    }

    pub(crate) fn set_abort_grace(&mut self, time: Duration) {
        self.abort_grace = time.min(MAX_TIME);
    }

    /// Zero is refused.
    pub(crate) fn set_timeout(&mut self, time: Option<Duration>) {
        self.timeout = time.map(|time| time.min(MAX_TIME));
    }

    /// Clamped to 0 … 1; what is not a number is refused.
    pub(crate) fn set_jitter(&mut self, fraction: f64) {
        self.jitter = fraction.clamp(0.0, 1.0);
    }

    /// One that ends after a job has no share for less urgent ones: the first is the first.
    #[cfg(all(feature = "testing", any(feature = "blocking", feature = "async")))]
    pub(crate) fn set_stint(&mut self, stint: crate::stint::Stint) {
        if stint.most.is_some() {
            self.priority_ratio = None;
        }
        self.stint = Some(stint);
    }

    /// The lease of a kind that asks for `time`.
    pub(crate) fn clamp_lease(&self, time: Duration) -> Duration {
        time.clamp(self.min_lease(), MAX_LEASE)
    }

    fn min_lease(&self) -> Duration {
        if self.renew_leases { MIN_RENEWED_LEASE } else { MIN_LEASE }
    }

    /// How long a blocking handler with this time-out is waited for after the shutdown's time is over.
    pub(crate) fn handler_grace(&self, timeout: Option<Duration>) -> Duration {
        self.handler_grace.or(timeout).unwrap_or(Duration::ZERO)
    }

    /// Refuses what no clamping can make sense of, all of it at once.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let problems: Vec<String> = [
            self.concurrency_problem(),
            self.connections_problem(),
            self.lease_problem(),
            self.timeout_problem(),
            self.jitter_problem(),
            self.claimed_by_problem(),
        ]
        .into_iter()
        .flatten()
        .collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Config, format!("building the worker: {}", problems.join("; "))))
    }

    fn concurrency_problem(&self) -> Option<String> {
        let n = self.concurrency;
        (n > MAX_CONCURRENCY).then(|| {
            format!("concurrency is {n}, at most {MAX_CONCURRENCY} is possible; start several workers instead")
        })
    }

    fn connections_problem(&self) -> Option<String> {
        let n = self.connections;
        (n > MAX_CONNECTIONS).then(|| {
            format!("connections is {n}, at most {MAX_CONNECTIONS} is possible; start several workers instead")
        })
    }

    fn lease_problem(&self) -> Option<String> {
        let (lease, least) = (self.lease, self.min_lease());
        (lease < least).then(|| {
            format!("lease is {lease:?}, at least {least:?} is needed to renew it; raise it or set renew_leases(false)")
        })
    }

    fn timeout_problem(&self) -> Option<String> {
        let timeout = self.timeout.filter(|timeout| *timeout < MIN_TIMEOUT)?;
        Some(format!("timeout is {timeout:?}, at least {MIN_TIMEOUT:?} is needed; leave it out for no time-out"))
    }

    fn jitter_problem(&self) -> Option<String> {
        self.jitter.is_nan().then(|| "jitter is not a number; give a fraction from 0 to 1".to_owned())
    }

    fn claimed_by_problem(&self) -> Option<String> {
        let name = self.claimed_by.as_deref()?;
        let problem = if name.is_empty() {
            "is empty".to_owned()
        } else if name.len() > MAX_CLAIMED_BY {
            format!("has {} bytes, at most {MAX_CLAIMED_BY} are stored", name.len())
        } else if name.contains(char::is_control) {
            format!("{name:?} contains a control character")
        } else {
            return None;
        };
        Some(format!("claimed_by {problem}; choose another name"))
    }
}

/// Half the cores, from 1 to 8.
pub(crate) fn default_concurrency(cores: usize) -> usize {
    (cores / 2).clamp(MIN_CONCURRENCY, MAX_DEFAULT_CONCURRENCY)
}

/// The identity that a worker writes into the rows it claims: `host:pid:xxxxxxxx`, or the given name with the suffix.
///
/// The random suffix is always there: reconciliation must never take another worker's rows for its own.
pub(crate) fn worker_name(claimed_by: Option<&str>, host: &str, pid: u32, suffix: u64) -> String {
    let suffix = suffix & u64::from(u32::MAX);
    match claimed_by {
        Some(name) => format!("{name}:{suffix:08x}"),
        None => format!("{}:{pid}:{suffix:08x}", clean_host(host)),
    }
}

/// A host name comes from the system unchecked, and must not be able to fail a claim.
fn clean_host(host: &str) -> String {
    let plain = host.chars().filter(|letter| !letter.is_control());
    let name = plain.scan(0, |bytes, letter| {
        *bytes += letter.len_utf8();
        (*bytes <= MAX_CLAIMED_BY).then_some(letter)
    });
    let name: String = name.collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(4)
    }

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = config();
        change(&mut config);
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    }

    #[test]
    fn what_is_not_set_has_the_documented_default() {
        let config = Config::new(16);
        assert_eq!((config.poll_max, config.shutdown_timeout), (Duration::from_secs(30), Duration::from_secs(30)));
        assert_eq!((config.lease, config.renew_leases), (Duration::from_secs(900), true));
        assert_eq!((config.priority_ratio, config.backstop, config.jitter), (Some(4), Some(20), 0.5));
        assert_eq!((config.timeout, config.handler_grace, config.abort_grace), (None, None, Duration::from_secs(5)));
        assert_eq!((config.panic_policy, config.decode_policy), (PanicPolicy::Retry, DecodePolicy::Retry));
        assert_eq!((config.concurrency, config.claimed_by), (8, None));
    }

    #[test]
    fn the_defaults_are_valid() {
        for cores in [0, 1, 4, 64] {
            Config::new(cores).validate().unwrap();
        }
    }

    #[test]
    fn the_default_concurrency_is_half_the_cores_from_one_to_eight() {
        let found = [0, 1, 2, 3, 4, 15, 16, 17, 400].map(default_concurrency);
        assert_eq!(found, [1, 1, 1, 1, 2, 7, 8, 8, 8]);
    }

    #[test]
    fn degenerate_values_are_clamped() {
        let mut config = config();
        config.set_concurrency(0);
        config.set_connections(0);
        config.set_poll_max(Duration::ZERO);
        config.set_lease(Duration::ZERO);
        config.set_jitter(7.0);
        assert_eq!((config.concurrency, config.connections), (1, 1));
        assert_eq!((config.poll_max, config.lease), (MIN_POLL_MAX, MIN_LEASE));
        assert!((config.jitter - 1.0).abs() < f64::EPSILON);
        config.set_jitter(f64::NEG_INFINITY);
        assert!(config.jitter.abs() < f64::EPSILON);
        config.set_poll_max(Duration::MAX);
        config.set_lease(Duration::MAX);
        config.set_shutdown_timeout(Duration::MAX);
        config.set_handler_grace(Duration::MAX);
        config.set_timeout(Some(Duration::MAX));
        let times = [config.poll_max, config.lease, config.shutdown_timeout, config.handler_grace(None)];
        assert_eq!(times, [MAX_TIME; 4]);
        assert_eq!(config.timeout, Some(MAX_TIME));
        config.validate().unwrap();
    }

    #[test]
    fn a_short_lease_is_refused_only_while_it_is_renewed() {
        let text = refused(|config| config.set_lease(Duration::from_secs(2)));
        assert!(text.contains("lease is 2s, at least 3s") && text.contains("renew_leases(false)"), "{text}");
        let mut fixed = config();
        fixed.set_lease(Duration::from_secs(2));
        fixed.renew_leases = false;
        fixed.validate().unwrap();
    }

    #[test]
    fn the_lease_of_a_kind_is_clamped() {
        let mut config = config();
        assert_eq!(config.clamp_lease(Duration::ZERO), MIN_RENEWED_LEASE);
        assert_eq!(config.clamp_lease(Duration::MAX), MAX_LEASE);
        config.renew_leases = false;
        assert_eq!(config.clamp_lease(Duration::ZERO), MIN_LEASE);
    }

    #[test]
    fn values_without_a_meaning_are_refused_by_name() {
        assert!(refused(|it| it.set_concurrency(10_001)).contains("concurrency is 10001, at most 10000"));
        assert!(refused(|it| it.set_connections(3)).contains("connections is 3, at most 2"));
        assert!(refused(|it| it.set_timeout(Some(Duration::ZERO))).contains("timeout is 0ns, at least 1ms"));
        assert!(refused(|it| it.set_jitter(f64::NAN)).contains("jitter is not a number"));
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let text = refused(|it| {
            it.set_concurrency(usize::MAX);
            it.claimed_by = Some("a\nb".to_owned());
        });
        assert!(text.contains("concurrency") && text.contains("control character"), "{text}");
    }

    #[test]
    fn a_name_that_does_not_fit_into_a_row_is_refused() {
        let name = |name: String| refused(|it| it.claimed_by = Some(name));
        assert!(name(String::new()).contains("is empty"));
        assert!(name("x".repeat(201)).contains("has 201 bytes, at most 200"));
        assert!(name("a\0b".to_owned()).contains("control character"));
        let mut longest = config();
        longest.claimed_by = Some("x".repeat(200));
        longest.validate().unwrap();
    }

    #[test]
    fn the_grace_of_a_blocking_handler_is_its_own_or_the_time_out_or_nothing() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let mut config = config();
        assert_eq!(config.handler_grace(None), Duration::ZERO);
        assert_eq!(config.handler_grace(Some(minute)), minute);
        config.set_handler_grace(second);
        assert_eq!(config.handler_grace(Some(minute)), second);
    }

    #[test]
    fn a_worker_is_named_by_host_process_and_suffix() {
        assert_eq!(worker_name(None, "db-1", 42, 0xab), "db-1:42:000000ab");
        assert_eq!(worker_name(Some("mailer"), "db-1", 42, u64::MAX), "mailer:ffffffff");
        assert_eq!(worker_name(None, "\n", 1, 0), "unknown:1:00000000");
        assert!(worker_name(None, &"ü".repeat(500), 1, 0).len() <= MAX_CLAIMED_BY + 20);
    }
}

//! How far the work has come, on one line of the standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime};

use venturi::CancellationToken;

use crate::results::{Counts, Results};
use crate::{Result, with_causes};

/// How often the queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Counting must not slow down what is counted: at most one part in so many of the time.
const COUNTING_SHARE: u32 = 10;
/// A file or a pipe gets a line less often than a terminal.
const TELL_A_FILE_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct Progress<'a> {
    results: &'a Results,
    /// As the server has it.
    started: SystemTime,
    before: Counts,
    now: Counts,
    /// When the workers began, and how long they have worked.
    since: Instant,
    took: Duration,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(results: &'a Results) -> Result<Self> {
        let (started, before) = (results.now()?, results.counts()?);
        Ok(Self { results, started, before, now: before, since: Instant::now(), took: Duration::ZERO })
    }

    pub(crate) fn started(&self) -> SystemTime {
        self.started
    }

    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// Jobs completed and jobs dead since the start, of this and any other process.
    pub(crate) fn ended(&self) -> (i64, i64) {
        (self.now.completed - self.before.completed, self.now.dead - self.before.dead)
    }

    pub(crate) fn rate(&self) -> f64 {
        let (done, dead) = self.ended();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let ended = (done + dead) as f64;
        ended / self.took.as_secs_f64().max(0.001)
    }

    /// Looks and tells until no job is left, or `enough` is cancelled.
    pub(crate) fn watch(&mut self, enough: &CancellationToken) -> Result<()> {
        let mut line = Line::new();
        self.since = Instant::now();
        loop {
            let looked = Instant::now();
            match self.results.counts() {
                Ok(counts) => {
                    (self.now, self.took) = (counts, self.since.elapsed());
                    line.tell(&self.line())?;
                    if counts.pending + counts.claimed == 0 {
                        return line.end();
                    }
                }
                // The workers go on when the database is back, and so does this.
                Err(error) => line.tell(&format!("cannot count jobs: {}", with_causes(&*error)))?,
            }
            if enough.wait_timeout(LOOK_EVERY.max(looked.elapsed() * (COUNTING_SHARE - 1))) {
                return line.end();
            }
        }
    }

    fn line(&self) -> String {
        let (Counts { pending, claimed, .. }, (done, dead)) = (self.now, self.ended());
        let rate = self.rate();
        format!("{pending} pending, {claimed} running, {done} done, {dead} dead, {rate:.0} jobs/s")
    }
}

/// A line that is written over on a terminal, and now and then repeated elsewhere.
struct Line {
    terminal: bool,
    told: Option<Instant>,
    /// What was not written yet because it came too soon.
    kept: Option<String>,
}

impl Line {
    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), told: None, kept: None }
    }

    fn tell(&mut self, text: &str) -> Result<()> {
        if self.terminal {
            write!(io::stderr(), "\r\x1b[K{text}")?;
        } else if self.told.is_some_and(|told| told.elapsed() < TELL_A_FILE_EVERY) {
            self.kept = Some(text.to_owned());
        } else {
            writeln!(io::stderr(), "digest: {text}")?;
            (self.told, self.kept) = (Some(Instant::now()), None);
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        match self.kept {
            _ if self.terminal => writeln!(io::stderr())?,
            Some(text) => writeln!(io::stderr(), "digest: {text}")?,
            None => {}
        }
        Ok(())
    }
}

//! Whether a notification can be heard where a worker would listen.
//!
//! A front-end makes a [`Trial`] and does as it says: it opens a connection as a worker's for listening, listens there,
//! asks how old the server's process is, has the queue send the trial's text, and waits for that until
//! [`Trial::PATIENCE`] is over.
#![deny(clippy::disallowed_methods)]

use std::time::Duration;

use crate::Database;
use crate::errand::{self, Errand};
use crate::error::Error;
use crate::limits::MAX_DELAY;
use crate::notification;
use crate::statement::{Finding as Answer, Inquiry, Reply, Statement};

use super::{Finding, Severity, found};

/// A process that is older than the connection by more than this was there before it. A log-in that takes so long is of
/// no use to a worker either.
const OLDER: f64 = 2.0;

/// An attempt to hear a notification.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    channel: String,
    text: String,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Hearing {
    /// Workers with these settings do not listen.
    Off,
    /// There is no such connection, or it was lost.
    Failed(String),
    Ended(Ending),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    heard: bool,
    /// Seconds since the server's process began, and since the connection was asked for.
    process: f64,
    connection: f64,
}

impl Trial {
    /// How long a notification may take, which has usually come within milliseconds.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
    /// As the words of an error have it.
    pub(crate) const DOING: &str = "listening for a notification";

    /// `None`: workers do not listen there.
    pub(crate) fn new(database: &Database, seed: u64) -> Option<Self> {
        // Of a kind that nobody has and due in a hundred years, it makes no worker look.
        let text = notification::encode(&[&format!("doctor {seed:016x}")], MAX_DELAY);
        database.listens().then(|| Self { channel: database.schema_name().as_str().to_owned(), text })
    }

    pub(crate) fn announcement(&self) -> Errand<()> {
        errand::announce(self.channel.clone(), self.text.clone())
    }

    /// What to ask where it is listened, for [`Hearing::ended`].
    pub(crate) fn question() -> Statement {
        Statement::Inquiry(Inquiry::BackendAge)
    }

    /// Whether this is what was sent; others may be heard before it.
    pub(crate) fn is_it(&self, payload: &str) -> bool {
        payload == self.text
    }
}

impl Hearing {
    /// `answer` is that to [`Trial::question`], which came when the connection was so old.
    pub(crate) fn ended(heard: bool, answer: &Reply, connection: Duration) -> Self {
        let process = if let Reply::Inquiry(Answer::BackendAge(age)) = answer { *age } else { 0.0 };
        Self::Ended(Ending { heard, process, connection: connection.as_secs_f64() })
    }

    pub(crate) fn failed(error: &Error) -> Self {
        Self::Failed(error.to_string())
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Off => {
                let evidence =
                    "workers with these settings do not listen, so a job starts when they next poll".to_owned();
                let remedy =
                    "Behind a pooler in transaction mode, set Database::listen_on; or poll more often (poll_max).";
                vec![found(Severity::Note, "listener_off", evidence, remedy)]
            }
            Self::Failed(why) => {
                let evidence = format!("no connection for listening, which renews leases as well: {why}");
                let remedy = "Let workers through to where they listen: Database::listen_on, or the same address.";
                vec![found(Severity::Error, "listener_unreachable", evidence, remedy)]
            }
            Self::Ended(ending) => ending.findings(),
        }
    }
}

impl Ending {
    fn findings(&self) -> Vec<Finding> {
        let silent = (!self.heard).then(|| {
            let patience = Trial::PATIENCE.as_secs();
            let evidence = format!("LISTEN was accepted, and a notification was not heard within {patience} s");
            let remedy = "A pooler in transaction mode does that: set Database::pooled(true), and listen_on past it; or listen_on \
                          leads to another database.";
            found(Severity::Warning, "listener_silent", evidence, remedy)
        });
        let pooler = (self.process > self.connection + OLDER).then(|| {
            let severity = if self.heard { Severity::Note } else { Severity::Warning };
            let evidence = format!(
                "the server's process is {:.0} s old and this connection {:.1} s, so something between them lends \
                 connections (inferred)",
                self.process, self.connection
            );
            let remedy = "A pooler in session mode needs nothing; in transaction mode set Database::pooled(true), and \
                          listen_on: docs/pgbouncer.md.";
            found(severity, "pooler", evidence, remedy)
        });
        silent.into_iter().chain(pooler).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(hearing: &Hearing) -> Vec<(&'static str, Severity)> {
        hearing.findings().into_iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    #[test]
    fn a_process_that_was_there_before_the_connection_is_a_poolers() {
        let answer = |process| Reply::Inquiry(Answer::BackendAge(process));
        let ended = |heard, process| Hearing::ended(heard, &answer(process), Duration::from_secs(1));
        assert_eq!(codes(&ended(true, 3.0)), []);
        assert_eq!(codes(&ended(true, 3.1)), [("pooler", Severity::Note)]);
        let both = [("listener_silent", Severity::Warning), ("pooler", Severity::Warning)];
        assert_eq!(codes(&ended(false, 60.0)), both);
        assert_eq!(codes(&Hearing::Off), [("listener_off", Severity::Note)]);
        assert_eq!(codes(&Hearing::Failed("no".to_owned())), [("listener_unreachable", Severity::Error)]);
    }

    #[test]
    fn the_text_is_one_that_makes_nobody_look() {
        let database = Database::new("host=localhost").unwrap();
        let trial = Trial::new(&database, 7).unwrap();
        assert!(!notification::parse(&trial.text).is_about_jobs());
        assert!(trial.is_it(&trial.text) && !trial.is_it("v1;*;0"));
        assert!(Trial::new(&database.listen(false), 7).is_none());
    }
}

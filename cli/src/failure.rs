//! Why the command ends without success, and with which code.

use std::fmt;
use std::io::{self, Write};

use venturi::ErrorKind;

#[derive(Debug)]
pub(crate) enum Failure {
    /// 1
    Failed(String),
    /// 2
    Usage(String),
    /// Whoever read the output has gone, which is no failure.
    NobodyReads,
}

/// To people, whatever the answer is written in. If nobody reads what went wrong, the exit code still says it.
pub(crate) fn complain(failure: &Failure) {
    let _ = match failure {
        Failure::NobodyReads => Ok(()),
        Failure::Failed(_) | Failure::Usage(_) => writeln!(io::stderr(), "venturi: {failure}"),
    };
}

impl From<venturi::Error> for Failure {
    fn from(error: venturi::Error) -> Self {
        let text = std::iter::successors(std::error::Error::source(&error), |error| error.source())
            .fold(error.to_string(), |text, source| format!("{text}: {source}"));
        match error.kind() {
            ErrorKind::Config | ErrorKind::Payload | ErrorKind::DedupKey => Self::Usage(text),
            _ => Self::Failed(text),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::NobodyReads,
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) | Self::Usage(text) => f.write_str(&super::show::plain(text)),
            Self::NobodyReads => Ok(()),
        }
    }
}

use std::error::Error;
use std::fmt;
use std::io;

/// What the harness could not do, and why.
pub(crate) struct ClusterError {
    what: String,
    source: Option<io::Error>,
}

impl ClusterError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// For `map_err`: what was being done when the system said no.
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |error| Self { what: doing.into(), source: Some(error) }
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

/// As `Display`: a test that returns or unwraps this error prints `Debug`, and a server's log is read line by line.
impl fmt::Debug for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ClusterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

//! What is wrong with a queue and its server: pure rules over the schema's inventory, over the facts that one statement has
//! gathered, and over what became of an attempt to hear a notification.
#![deny(clippy::disallowed_methods)]

mod facts;
mod hearing;
mod rules;
mod shape;

use std::fmt;
use std::time::SystemTime;

use crate::error::Error;
use crate::inventory::{self, Piece};
use crate::migration::latest;

pub(crate) use facts::{Facts, Numbers, Taken};
pub(crate) use hearing::{Hearing, Trial};

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing; also that something could not be checked.
    Note,
    /// It costs speed, or will be an error some day.
    Warning,
    /// Jobs do not run, or are not safe.
    Error,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that [`doctor`](crate::blocking::Queue::doctor) has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, as a stable word for programs, such as `old_transaction`.
    pub code: &'static str,
    /// What was seen. May hold text that others have chosen, such as names of applications and kinds.
    pub evidence: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The worst first. `wall` is the application's own clock, which is compared here and nowhere else.
///
/// # Errors
/// Why there are no facts, unless the schema explains that.
pub(crate) fn findings(
    pieces: &[Piece],
    facts: Result<Facts, Error>,
    hearing: &Hearing,
    wall: SystemTime,
) -> Result<Vec<Finding>, Error> {
    let differences = inventory::compare(pieces);
    let mut all = match &facts {
        // What later code has made of the schema is not known here.
        Ok(facts) if facts.version > latest() => shape::flaws(&differences),
        _ => shape::of(&differences),
    };
    match facts {
        Ok(facts) => all.extend(rules::of(&facts, wall)),
        Err(error) if differences.missing.is_empty() => return Err(error),
        Err(error) => {
            let evidence = format!("nothing but the schema and the listener could be looked at: {error}");
            all.push(found(Severity::Note, "not_checked", evidence, "Mend the schema, and ask again."));
        }
    }
    all.extend(hearing.findings());
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(all)
}

fn found(severity: Severity, code: &'static str, evidence: String, remedy: &'static str) -> Finding {
    Finding { severity, code, evidence, remedy }
}

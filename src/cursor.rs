//! Where a page ended.
#![deny(clippy::disallowed_methods)]

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorKind};

/// Where a page of a listing ended, so that the next one begins there.
///
/// Its text (by [`Display`](fmt::Display), [`FromStr`] or serde) may be kept or sent to a browser and back; what it says
/// is nobody's business and may change. It stays valid whatever happens to the jobs meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(Place);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Only jobs below this number are still to come.
    Jobs { below: i64 },
    /// Only entries behind this one are still to come.
    Journal { job: i64, after: i64 },
}

impl Cursor {
    pub(crate) fn below(id: i64) -> Self {
        Self(Place::Jobs { below: id })
    }

    pub(crate) fn behind(job: i64, entry: i64) -> Self {
        Self(Place::Journal { job, after: entry })
    }

    /// The number below which a listing of jobs goes on.
    pub(crate) fn job(self) -> Result<i64, Error> {
        match self.0 {
            Place::Jobs { below } => Ok(below),
            Place::Journal { .. } => Err(unfit("it is of a journal, and a listing of jobs is asked for")),
        }
    }

    /// The entry behind which the journal of this job goes on.
    pub(crate) fn entry(self, of: i64) -> Result<i64, Error> {
        match self.0 {
            Place::Journal { job, after } if job == of => Ok(after),
            _ => Err(unfit("it is not of this job's journal")),
        }
    }
}

fn unfit(why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("a cursor cannot be used: {why}; pass the one that the page before gave"))
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Jobs { below } => write!(f, "jobs.{below}"),
            Place::Journal { job, after } => write!(f, "journal.{job}.{after}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::Config`] when the text was not made by this type.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split('.');
        let number = |parts: &mut std::str::Split<'_, char>| parts.next()?.parse().ok();
        let place = match parts.next() {
            Some("jobs") => number(&mut parts).map(|below| Place::Jobs { below }),
            Some("journal") => {
                number(&mut parts).zip(number(&mut parts)).map(|(job, after)| Place::Journal { job, after })
            }
            _ => None,
        };
        place.filter(|_| parts.next().is_none()).map(Self).ok_or_else(|| unfit("its text was not made by venturi"))
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_survives_the_way_through_its_text_and_through_json() {
        for cursor in [Cursor::below(7), Cursor::below(i64::MIN), Cursor::behind(i64::MAX, 0)] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
            let json = serde_json::to_string(&cursor).unwrap();
            assert_eq!(serde_json::from_str::<Cursor>(&json).unwrap(), cursor);
        }
    }

    #[test]
    fn a_cursor_of_something_else_is_refused() {
        assert!(Cursor::behind(1, 2).job().is_err());
        assert!(Cursor::below(1).entry(1).is_err());
        assert!(Cursor::behind(1, 2).entry(3).is_err());
        assert_eq!(Cursor::behind(1, 2).entry(1).unwrap(), 2);
        for text in ["", "jobs", "jobs.", "jobs.x", "jobs.1.2", "journal.1", "journal.1.2.3", "other.1"] {
            assert_eq!(text.parse::<Cursor>().unwrap_err().kind(), ErrorKind::Config, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_parsing_panic(text in ".*") {
            let _ = text.parse::<Cursor>();
        }
    }
}

//! What is asked for: by words after the bench's name, or by variables.

use std::env;

use super::Result;
use super::numbers::{count, counts};

/// A setting `JOBS` is given as the variable of this name, or as `--jobs`.
#[derive(Debug)]
pub(crate) struct Options {
    /// Without `--bench`, which `cargo bench` passes: do as little as shows that it works.
    pub(crate) trial: bool,
    /// Part of the names of the cases that are wanted; empty: all.
    pub(crate) filter: String,
    given: Vec<(String, String)>,
}

impl Options {
    pub(crate) fn new() -> Self {
        let mut options = Self { trial: true, filter: String::new(), given: Vec::new() };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            match word.strip_prefix("--") {
                Some("bench") => options.trial = false,
                Some(name) => options.given.extend(words.next().map(|value| (name.to_uppercase(), value))),
                None => options.filter = word,
            }
        }
        options
    }

    /// A count that is `usual` in a measurement and `trial` in a trial, unless it is given.
    pub(crate) fn count(&self, name: &str, usual: usize, trial: usize) -> Result<usize> {
        self.text(name).map_or(Ok(if self.trial { trial } else { usual }), |text| count(&text))
    }

    pub(crate) fn counts(&self, name: &str, usual: &[usize], trial: &[usize]) -> Result<Vec<usize>> {
        self.text(name).map_or(Ok(if self.trial { trial } else { usual }.to_vec()), |text| counts(&text))
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let given = self.given.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone());
        given.or_else(|| env::var(name).ok()).filter(|text| !text.is_empty())
    }
}

//! What is measured, and how often.

use std::time::Duration;

use super::Result;

/// A round that would probably end later than this is not begun.
pub(crate) const AT_MOST: Duration = Duration::from_secs(110);

/// At the highest concurrency; half of it at the lower ones, where a job takes longer.
const JOBS: usize = 20_000;
const ROUNDS: usize = 3;
const TRIAL_JOBS: usize = 1_000;

pub(crate) const CONCURRENCIES: [usize; 2] = [16, 256];
const MAX_CONCURRENCY: usize = 256;
pub(crate) const CONNECTIONS: [usize; 2] = [1, 4];

#[derive(Debug)]
pub(crate) struct Settings {
    jobs: usize,
    pub(crate) rounds: usize,
    /// Part of the names of the cases that are wanted; empty: all.
    filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Reference,
    Blocking,
    Async,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) who: Who,
    /// Jobs taken at once on each connection.
    pub(crate) concurrency: usize,
    /// Connections of the reference, workers of a front-end.
    pub(crate) connections: usize,
}

impl Settings {
    /// From `JOBS` and `ROUNDS`, or `--jobs N` and `--rounds N`, and a filter. Other options, cargo's, are not for us.
    pub(crate) fn new(words: impl Iterator<Item = String>, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut words = words;
        let (mut jobs, mut rounds, mut filter, mut trial) = (variable("JOBS"), variable("ROUNDS"), None, true);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--bench" => trial = false,
                "--jobs" => jobs = words.next(),
                "--rounds" => rounds = words.next(),
                option if option.starts_with('-') => {}
                _ => filter = Some(word),
            }
        }
        let (usual_jobs, usual_rounds) = if trial { (TRIAL_JOBS, 1) } else { (JOBS, ROUNDS) };
        Ok(Self {
            jobs: jobs.map_or(Ok(usual_jobs), |text| count(&text))?,
            rounds: rounds.map_or(Ok(usual_rounds), |text| count(&text))?,
            filter: filter.unwrap_or_default(),
        })
    }

    /// In the order of a round.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        Case::all().filter(|case| case.name().contains(&self.filter))
    }

    pub(crate) fn jobs(&self, case: Case) -> usize {
        if case.concurrency < MAX_CONCURRENCY { self.jobs.div_ceil(2) } else { self.jobs }
    }
}

fn count(text: &str) -> Result<usize> {
    let count = text.replace('_', "").parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("{text:?} is not a count").into())
}

impl Case {
    /// What is compared is measured side by side.
    fn all() -> impl Iterator<Item = Self> {
        CONCURRENCIES.into_iter().flat_map(|concurrency| {
            CONNECTIONS.into_iter().flat_map(move |connections| {
                let all = [Who::Reference, Who::Blocking, Who::Async];
                all.into_iter().map(move |who| Self { who, concurrency, connections })
            })
        })
    }

    /// As in `async/256/1`: who, how many at once, and on how many connections.
    pub(crate) fn name(self) -> String {
        format!("{}/{}/{}", self.who.name(), self.concurrency, self.connections)
    }

    pub(crate) fn reference(self) -> Self {
        Self { who: Who::Reference, ..self }
    }

    pub(crate) fn schema(self) -> &'static str {
        match self.who {
            Who::Reference => super::reference::SCHEMA,
            Who::Blocking | Who::Async => super::fronts::SCHEMA,
        }
    }
}

impl Who {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Blocking => "blocking",
            Self::Async => "async",
        }
    }
}

//! What is measured, and how often.

use serde_json::{Value, json};

use crate::support::Result;
use crate::support::nothing::PAYLOAD;
use crate::support::options::Options;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    /// How many finished jobs there are in the schema that has some.
    pub(crate) finished: usize,
    trial: bool,
    /// Part of the names of the cases that are wanted; empty: all.
    filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Of each call.
    pub(crate) rows: usize,
    pub(crate) producers: usize,
    pub(crate) notify: bool,
    /// Whether many jobs are finished already.
    pub(crate) history: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By hand: `INSERT … SELECT … FROM unnest(…) RETURNING id`.
    Insert,
    /// By hand: a binary COPY.
    Copy,
    Blocking,
    Async,
}

impl Settings {
    /// From `ROUNDS` and `FINISHED`, and a filter.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            rounds: options.count("ROUNDS", 7, 1)?,
            finished: options.count("FINISHED", 1_000_000, 1_000)?,
            trial: options.trial,
            filter: options.filter.clone(),
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "rounds": self.rounds, "finished": self.finished, "payload_bytes": PAYLOAD })
    }

    /// In the order of a round.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        let plain = [1, 100, 10_000].into_iter().flat_map(|rows| {
            [1, 8]
                .into_iter()
                .flat_map(move |producers| [false, true].map(|notify| Case { rows, producers, notify, history: false }))
        });
        let history = [1, 100, 10_000].map(|rows| Case { rows, producers: 1, notify: true, history: true });
        plain.chain(history).filter(|case| case.name().contains(&self.filter))
    }

    /// How many each producer makes.
    pub(crate) fn calls(&self, case: Case) -> usize {
        let calls = match case.rows {
            1 => 200,
            100 => 60,
            _ => 4,
        };
        if self.trial { 1 } else { (calls / case.producers.min(4)).max(1) }
    }
}

impl Case {
    /// As in `10000/8/notify`: rows of a call, producers, and what else there is.
    pub(crate) fn name(self) -> String {
        let Self { rows, producers, notify, history } = self;
        let notify = if notify { "notify" } else { "quiet" };
        format!("{rows}/{producers}/{notify}{}", if history { "/history" } else { "" })
    }

    /// To copy few rows makes no sense.
    pub(crate) fn ways(self) -> impl Iterator<Item = Way> {
        let all = [Way::Insert, Way::Copy, Way::Blocking, Way::Async];
        all.into_iter().filter(move |way| *way != Way::Copy || self.rows >= 100)
    }

    pub(crate) fn schema(self) -> &'static str {
        if self.history { "enqueue_history" } else { "enqueue" }
    }
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Copy => "COPY",
            Self::Blocking => "blocking",
            Self::Async => "async",
        }
    }
}

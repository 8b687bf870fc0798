//! A story as a list of what is done and what goes wrong, each at its time. Any part of a script is a script: what it
//! names and is not there does not matter. Written as a line of JSON each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Priority;
use crate::engine::Link;
use crate::engine::tests::dice::Dice;

/// When deeds end, and calm begins.
pub(super) const CALM: u64 = 30_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Milliseconds from the beginning.
    pub(super) at: u64,
    #[serde(flatten)]
    pub(super) deed: Deed,
}

/// All times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Deed {
    Start(Worker),
    Enqueue(Job),
    /// A task with a dedup key; it decides so late about what it has found.
    Merge {
        job: Job,
        key: u8,
        decision: Choice,
        after: u64,
    },
    LoseBefore {
        worker: u8,
        link: Line,
    },
    LoseAfter {
        worker: u8,
        link: Line,
    },
    LoseMeanwhile {
        worker: u8,
        link: Line,
        executed_after: u64,
    },
    Refuse {
        worker: u8,
        link: Line,
    },
    Slow {
        worker: u8,
        link: Line,
        time: u64,
    },
    LoseNotification {
        worker: u8,
    },
    DelayNotification {
        worker: u8,
        time: u64,
    },
    Cut {
        worker: u8,
        link: Line,
    },
    Mute {
        worker: u8,
        link: Line,
    },
    Kill {
        worker: u8,
    },
    Freeze {
        worker: u8,
        time: u64,
    },
    Stop {
        worker: u8,
    },
    Abandon {
        worker: u8,
    },
    Unreachable {
        worker: u8,
        time: u64,
    },
    ServerDown {
        time: u64,
    },
    ServerHangs {
        time: u64,
    },
    TableLocked {
        time: u64,
    },
    RowLocked {
        job: u8,
        time: u64,
    },
    Cancel {
        job: u8,
    },
    Requeue {
        job: u8,
    },
    PauseKind {
        slow: bool,
        time: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Worker {
    pub(super) worker: u8,
    pub(super) slots: usize,
    /// Over which it works.
    pub(super) connections: usize,
    /// Of the kind "slow".
    pub(super) cap: Option<usize>,
    /// Whether the kind "slow" has blocking handlers.
    pub(super) threads: bool,
    pub(super) timeout: Option<u64>,
    pub(super) shutdown_timeout: u64,
    pub(super) handler_grace: u64,
    /// How its clock is wrong.
    pub(super) ahead: u64,
    pub(super) drift: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) job: u8,
    pub(super) slow: bool,
    pub(super) priority: u8,
    pub(super) delay: u64,
    /// What so many first runs do; those that follow complete at once.
    pub(super) runs: i32,
    pub(super) end: End,
    pub(super) waits: u64,
    pub(super) takes: u64,
    /// Whether it ends when it is told to.
    pub(super) heeds: bool,
    /// How long it takes to stop when it is aborted; `None`: it cannot be.
    pub(super) stops_in: Option<u64>,
    /// When it completes the job in a transaction of its own.
    pub(super) commits_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Completes,
    SaysThatItHasCompleted,
    Fails,
    FailsForGood,
    Panics,
    Pauses,
    CannotDecode,
    IsThrownAway,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Choice {
    Keep,
    Replace,
    With,
    Independent,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Work,
    Watch,
    Settle,
}

impl From<Line> for Link {
    fn from(line: Line) -> Self {
        match line {
            Line::Work => Self::Work,
            Line::Watch => Self::Watch,
            Line::Settle => Self::Settle,
        }
    }
}

impl Job {
    pub(super) fn kind(&self) -> &'static str {
        kind(self.slow)
    }

    pub(super) fn priority(&self) -> Priority {
        Priority::from_code(self.priority.into()).unwrap_or_default()
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay)
    }
}

pub(super) fn kind(slow: bool) -> &'static str {
    if slow { "slow" } else { "fast" }
}

const JOBS: u64 = 40;
const WORKERS: u64 = 3;

/// The story of a seed.
pub(super) fn script(seed: u64) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let mut steps = Vec::new();
    for worker in 0..WORKERS {
        // One that comes late takes the place of one that was killed or has stopped.
        let at = if worker == 0 || !dice.one_in(4) { 0 } else { dice.below(20_000) };
        steps.push(Step { at, deed: Deed::Start(new_worker(&mut dice, worker)) });
    }
    for job in 0..JOBS {
        let at = if dice.one_in(3) { 0 } else { dice.below(15_000) };
        let job = new_job(&mut dice, job);
        let deed = if dice.one_in(4) {
            let decision = dice.pick(&[Choice::Keep, Choice::Replace, Choice::With, Choice::With, Choice::Independent]);
            let after = dice.below(3) * dice.below(2_000);
            Deed::Merge { job, key: dice.small(3), decision, after }
        } else {
            Deed::Enqueue(job)
        };
        steps.push(Step { at, deed });
    }
    let most = dice.pick(&[10, 30, 80]);
    let faults = dice.below(most);
    for _ in 0..faults {
        steps.push(Step { at: dice.below(22_000), deed: trouble(&mut dice) });
    }
    steps.sort_by_key(|step| step.at);
    steps
}

fn new_worker(dice: &mut Dice, worker: u64) -> Worker {
    Worker {
        worker: u8::try_from(worker).unwrap(),
        slots: usize::try_from(1 + dice.below(6)).unwrap(),
        connections: usize::try_from(1 + dice.below(2)).unwrap(),
        cap: dice.one_in(2).then(|| usize::try_from(1 + dice.below(2)).unwrap()),
        threads: dice.one_in(2),
        timeout: dice.one_in(3).then(|| 500 + dice.below(3_000)),
        shutdown_timeout: dice.below(3_000),
        handler_grace: dice.below(3_000),
        ahead: dice.below(2) * dice.below(100_000_000),
        drift: i32::try_from(dice.below(40_000)).unwrap() - 20_000,
    }
}

fn new_job(dice: &mut Dice, job: u64) -> Job {
    let slow = dice.one_in(3);
    let takes = if slow { dice.below(5_000) } else { 20 + dice.below(200) };
    let ends = [
        End::Completes,
        End::Completes,
        End::SaysThatItHasCompleted,
        End::Fails,
        End::FailsForGood,
        End::Panics,
        End::Pauses,
        End::CannotDecode,
    ];
    let end = if dice.one_in(60) { End::IsThrownAway } else { dice.pick(&ends) };
    Job {
        job: u8::try_from(job).unwrap(),
        slow,
        priority: dice.small(3),
        delay: dice.below(2) * dice.below(3_000),
        runs: 1 + i32::from(dice.small(3)),
        end,
        waits: if dice.one_in(5) { dice.below(4_000) } else { 0 },
        takes,
        heeds: dice.one_in(3),
        stops_in: (!dice.one_in(8)).then(|| dice.below(1_500)),
        commits_at: dice.one_in(6).then(|| dice.below(1 + takes)),
    }
}

fn trouble(dice: &mut Dice) -> Deed {
    let (worker, link) = (dice.small(WORKERS), dice.pick(&[Line::Work, Line::Work, Line::Watch, Line::Settle]));
    let job = dice.small(JOBS);
    match dice.below(40) {
        0..=3 => Deed::LoseBefore { worker, link },
        4..=8 => Deed::LoseAfter { worker, link },
        9..=10 => Deed::LoseMeanwhile { worker, link, executed_after: dice.below(9_900) },
        11..=13 => Deed::Refuse { worker, link },
        14..=16 => Deed::Slow { worker, link, time: dice.below(9_900) },
        17..=18 => Deed::LoseNotification { worker },
        19 => Deed::DelayNotification { worker, time: dice.below(5_000) },
        20..=21 => Deed::Cut { worker, link },
        22 => Deed::Mute { worker, link },
        23 => Deed::Kill { worker },
        24..=25 => Deed::Freeze { worker, time: dice.below(9_000) },
        26 => Deed::Stop { worker },
        27 => Deed::Abandon { worker },
        28 => Deed::Unreachable { worker, time: dice.below(6_000) },
        29 => Deed::ServerDown { time: dice.below(6_000) },
        30 => Deed::ServerHangs { time: dice.below(6_000) },
        31 => Deed::TableLocked { time: dice.below(6_000) },
        32 => Deed::RowLocked { job, time: dice.below(6_000) },
        33..=35 => Deed::Cancel { job },
        36..=38 => Deed::Requeue { job },
        _ => Deed::PauseKind { slow: dice.one_in(2), time: dice.below(5_000) },
    }
}

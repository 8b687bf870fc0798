//! Statements, one after the other. Whom they name is looked up when they are asked: any part of a script is a script,
//! and what is not there does not matter. Written as a line of JSON each.

use serde::{Deserialize, Serialize};

use crate::engine::tests::dice::Dice;

/// How much of the time that passes is one unit. Whatever is to happen in the future happens half a unit or so beside
/// any whole number of them, so that it makes no difference how fast a server is.
pub(super) const UNIT: u64 = 1_000;

/// All times are in seconds; workers, kinds and keys are numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Enqueue {
        jobs: Vec<Job>,
        /// By COPY, with numbers that were reserved.
        copied: bool,
    },
    Merge(Vec<Merge>),
    Exchange(Exchange),
    /// The worker sends its last settlement once more.
    SettleAgain {
        worker: u8,
    },
    Complete {
        worker: u8,
        run: Run,
    },
    Checkpoint {
        worker: u8,
        run: Run,
        carry: u8,
    },
    Renew {
        worker: u8,
        runs: Vec<Run>,
        lease: u64,
    },
    Held {
        worker: u8,
        runs: Vec<Run>,
    },
    Cancellations {
        worker: u8,
        runs: Vec<Run>,
    },
    Promote {
        kinds: u8,
        look_back: u64,
        most: u8,
    },
    Survey {
        worker: u8,
        kinds: u8,
        open: u8,
        look_back: u64,
        horizon: u64,
        skip: Vec<u8>,
    },
    Stale {
        worker: u8,
        look_back: u64,
        most: u8,
    },
    /// Claims of whomever, as they are or with a wrong claimant; those that have run out are recovered.
    Recover(Vec<Recovery>),
    /// Even numbers: of all jobs; odd ones: of those that are live, or have finished.
    Cancel {
        jobs: Vec<u8>,
        pending: bool,
        claimed: bool,
    },
    /// As to cancel.
    Requeue {
        jobs: Vec<u8>,
        completed: bool,
        dead: bool,
        cancelled: bool,
    },
    PauseKind {
        kind: u8,
    },
    ResumeKind {
        kind: u8,
    },
    /// Of what has finished as 3 completed, 4 dead, 5 cancelled.
    Cleanup {
        status: u8,
        age: u64,
    },
    /// A transaction of somebody else's holds the row of one of the live jobs, until the next of these, until time passes,
    /// or until something comes that would wait.
    Hold {
        job: Option<u8>,
    },
    Pass {
        time: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) kind: u8,
    pub(super) priority: u8,
    pub(super) delay: u64,
    /// The delay becomes an instant.
    pub(super) by_instant: bool,
    /// More than fits in the row.
    pub(super) large: bool,
    pub(super) key: Option<u8>,
    /// Of whatever trace.
    #[serde(default)]
    pub(super) traced: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Merge {
    /// With a key.
    pub(super) job: Job,
    pub(super) decision: Choice,
    pub(super) about: About,
    /// Jobs that are left alone.
    pub(super) skip: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Choice {
    Keep,
    Replace,
    With,
    WithCarry,
    Independent,
}

/// What is decided about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum About {
    /// Nothing is decided yet.
    Nobody,
    /// The version that the last answer about this kind and key told.
    Seen,
    Anybody,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Exchange {
    pub(super) worker: u8,
    pub(super) results: Vec<Result>,
    pub(super) discard: bool,
    /// As one that says only what was accepted, if all have completed.
    pub(super) brief: bool,
    pub(super) claim: Option<Claim>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Result {
    pub(super) run: Run,
    pub(super) end: End,
    pub(super) delay: u64,
    pub(super) carry: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    Completed,
    Dead,
    Cancelled,
    Retried,
    Paused,
    Released,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) kinds: u8,
    pub(super) lease: u64,
    pub(super) room: [u8; 2],
    pub(super) floor: u8,
    pub(super) want: u8,
    pub(super) spare: u8,
    pub(super) look_back: u64,
    pub(super) skip: Vec<u8>,
    /// From the places of these jobs on: three per kind, and `None` from the beginning.
    pub(super) from: Option<Vec<Option<u8>>>,
}

/// Which run, as the number among those of its sort.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Run {
    /// That this worker has.
    Held(u8),
    /// That another worker has.
    Others(u8),
    /// That this worker had once.
    Ended(u8),
    /// The one before or after it of a job that this worker has.
    Beside(u8),
    OfNoJob,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Recovery {
    pub(super) claim: u8,
    pub(super) wrong: bool,
    pub(super) dead: bool,
    pub(super) delay: u64,
}

const STEPS: usize = 80;
const WORKERS: u64 = 2;
const KEYS: u64 = 3;
/// Numbers of jobs and runs, of which there may be fewer.
const ANY: u64 = 40;
/// Further than all that passes.
const ALWAYS: u64 = 1_000_000;

/// The script of a seed.
pub(super) fn script(seed: u64) -> Vec<Step> {
    let mut author = Author { dice: Dice::new(seed), delays: 0 };
    (0..STEPS).map(|_| author.step()).collect()
}

struct Author {
    dice: Dice,
    /// How many delays there are: none is like another, so that all servers agree on which job is due first.
    delays: u64,
}

impl Author {
    fn step(&mut self) -> Step {
        let worker = self.dice.small(WORKERS);
        match self.dice.below(54) {
            0..=5 => Step::Enqueue { jobs: self.some(4, |it| it.job(4)), copied: self.dice.one_in(4) },
            6..=10 => Step::Merge(self.some(3, Self::merge)),
            11..=22 => Step::Exchange(self.exchange(worker)),
            23 => Step::SettleAgain { worker },
            24..=25 => Step::Complete { worker, run: self.run() },
            26 => Step::Checkpoint { worker, run: self.run(), carry: self.dice.small(9) },
            27..=28 => Step::Renew { worker, runs: self.some(3, Self::run), lease: self.lease() },
            29 => Step::Held { worker, runs: self.some(4, Self::run) },
            30 => Step::Cancellations { worker, runs: self.some(4, Self::run) },
            31..=33 => {
                Step::Promote { kinds: self.kinds(), look_back: self.look_back(), most: self.dice.pick(&[1, 2, 100]) }
            }
            34..=35 => self.survey(worker),
            36 => Step::Stale { worker, look_back: self.look_back(), most: self.dice.pick(&[1, 100, 100]) },
            37..=38 => Step::Recover(self.some(4, Self::recovery)),
            39..=40 => self.cancel(),
            41..=42 => self.requeue(),
            43 => Step::PauseKind { kind: self.dice.small(2) },
            44 => Step::ResumeKind { kind: self.dice.small(2) },
            45 => Step::Cleanup { status: 3 + self.dice.small(3), age: self.dice.below(3) * UNIT + UNIT / 2 },
            46..=49 => Step::Hold { job: (!self.dice.one_in(4)).then(|| self.dice.small(ANY)) },
            _ => Step::Pass { time: UNIT * (1 + self.dice.below(3)) },
        }
    }

    /// One to `most` of them.
    fn some<T>(&mut self, most: u64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..=self.dice.below(most)).map(|_| one(self)).collect()
    }

    /// Sometimes none at all.
    fn few(&mut self) -> Vec<u8> {
        if self.dice.one_in(3) { self.some(2, |it| it.dice.small(ANY)) } else { Vec::new() }
    }

    fn job(&mut self, keyless: u64) -> Job {
        let key = (keyless == 0 || self.dice.one_in(keyless)).then(|| self.dice.small(KEYS));
        Job {
            kind: self.dice.small(2),
            priority: self.dice.small(3),
            delay: self.delay(),
            by_instant: self.dice.one_in(4),
            large: self.dice.one_in(5),
            key,
            traced: self.dice.one_in(2),
        }
    }

    fn delay(&mut self) -> u64 {
        if self.dice.one_in(2) {
            return 0;
        }
        self.delays += 1;
        UNIT * self.dice.below(3) + UNIT / 2 + self.delays
    }

    fn merge(&mut self) -> Merge {
        let mut decision =
            self.dice.pick(&[Choice::Keep, Choice::Replace, Choice::With, Choice::WithCarry, Choice::Independent]);
        let about = self.dice.pick(&[About::Nobody, About::Seen, About::Seen, About::Anybody]);
        if about == About::Anybody && matches!(decision, Choice::With | Choice::WithCarry) {
            // What is made of both needs a certain one.
            decision = Choice::Keep;
        }
        Merge { job: self.job(0), decision, about, skip: if self.dice.one_in(6) { self.few() } else { Vec::new() } }
    }

    fn exchange(&mut self, worker: u8) -> Exchange {
        let brief = self.dice.one_in(3);
        let results = if self.dice.one_in(3) { Vec::new() } else { self.some(4, |it| it.result(brief)) };
        let claims = results.is_empty() || self.dice.one_in(2);
        let claim = claims.then(|| self.claim());
        Exchange { worker, results, discard: self.dice.one_in(4), brief, claim }
    }

    fn result(&mut self, completed: bool) -> Result {
        let ends = [End::Completed, End::Dead, End::Cancelled, End::Retried, End::Paused, End::Released];
        Result {
            run: self.run(),
            end: if completed { End::Completed } else { self.dice.pick(&ends) },
            delay: self.delay(),
            carry: self.dice.one_in(2).then(|| self.dice.small(9)),
        }
    }

    fn claim(&mut self) -> Claim {
        Claim {
            kinds: self.kinds(),
            lease: self.lease(),
            room: [self.dice.pick(&[0, 1, 2, 100]), self.dice.pick(&[1, 2, 100, 100])],
            floor: self.dice.pick(&[0, 0, 0, 1, 2]),
            want: self.dice.pick(&[1, 2, 3, 8]),
            spare: self.dice.pick(&[0, 1, 4]),
            look_back: self.look_back(),
            skip: self.few(),
            from: self.dice.one_in(4).then(|| self.places()),
        }
    }

    fn places(&mut self) -> Vec<Option<u8>> {
        (0..6).map(|_| self.dice.one_in(2).then(|| self.dice.small(ANY))).collect()
    }

    fn run(&mut self) -> Run {
        let nth = self.dice.small(ANY);
        match self.dice.below(12) {
            0 => Run::Others(nth),
            1..=2 => Run::Ended(nth),
            3 => Run::Beside(nth),
            4 if nth == 0 => Run::OfNoJob,
            _ => Run::Held(nth),
        }
    }

    /// At another distance from whole units than delays.
    fn lease(&mut self) -> u64 {
        UNIT * self.dice.below(3) + UNIT * 2 / 5
    }

    fn look_back(&mut self) -> u64 {
        if self.dice.one_in(4) { UNIT * self.dice.below(4) } else { ALWAYS }
    }

    /// One of them or both, as bits.
    fn kinds(&mut self) -> u8 {
        self.dice.pick(&[1, 2, 3, 3, 3])
    }

    fn survey(&mut self, worker: u8) -> Step {
        let kinds = self.kinds();
        let open = kinds & self.dice.pick(&[0, 1, 3, 3]);
        let horizon = if self.dice.one_in(3) { UNIT * self.dice.below(3) } else { ALWAYS };
        Step::Survey { worker, kinds, open, look_back: self.look_back(), horizon, skip: self.few() }
    }

    fn recovery(&mut self) -> Recovery {
        Recovery {
            claim: self.dice.small(ANY),
            wrong: self.dice.one_in(6),
            dead: self.dice.one_in(3),
            delay: self.delay(),
        }
    }

    fn cancel(&mut self) -> Step {
        let (pending, claimed) = self.dice.pick(&[(true, true), (true, true), (true, false), (false, true)]);
        Step::Cancel { jobs: self.some(3, |it| it.dice.small(ANY)), pending, claimed }
    }

    fn requeue(&mut self) -> Step {
        Step::Requeue {
            jobs: self.some(4, |it| it.dice.small(ANY)),
            completed: !self.dice.one_in(3),
            dead: !self.dice.one_in(3),
            cancelled: !self.dice.one_in(3),
        }
    }
}

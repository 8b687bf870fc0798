//! Random stories: callers of several queues add to a few counters, while workers take the jobs, pause and complete
//! them. Whatever the order of events, each amount is counted once. A failing seed tells the same story again.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::backoff::mix;
use crate::fault::Fault;
use crate::link::{Epoch, StatementId};
use crate::migration::latest;
use crate::producer::{Input, Output, Producer, Rules};
use crate::statement::{KeyedAnswer, Reply, Statement};

const QUEUES: usize = 3;
const CALLERS: usize = 12;
const COUNTERS: u64 = 2;

/// Adds itself to what is pending.
#[derive(Serialize, Deserialize)]
struct Add(u64, u64);

impl Task for Add {
    const KIND: &'static str = "add";
    type Carry = u32;

    fn dedup_key(&self) -> Option<DedupKey> {
        Some(self.0.into())
    }

    fn merge(&self, pending: &Pending<Self>) -> Merge<Self> {
        Merge::With { task: Self(self.0, self.1 + pending.task.1), carry: Some(pending.carry + 1) }
    }
}

/// A job as the model of the database has it.
#[derive(Clone, Debug)]
struct Row {
    key: String,
    payload: String,
    carry: u32,
    runs: i32,
    claimed: bool,
    version: u64,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<i64, Row>,
    completed: u64,
    versions: u64,
    inserted: usize,
    merged: u32,
    /// What runs have added to the carries of jobs that are done.
    carried: u32,
    next: i64,
}

fn amount(payload: &str) -> u64 {
    serde_json::from_str::<Add>(payload).unwrap().1
}

impl Table {
    /// What the function `enqueue_keyed` does, without the locks.
    fn enqueue(&mut self, it: &KeyedJob) -> KeyedAnswer {
        let key = it.job.dedup_key.clone().unwrap();
        self.versions += 1;
        let version = self.versions;
        let pending = self.rows.iter_mut().find(|(_, row)| row.key == key && !row.claimed);
        let expected = it.stance.as_ref().map(|stance| stance.expected.clone());
        if pending.as_ref().map(|(_, row)| row.version.to_string()) != expected {
            return KeyedAnswer::Changed(pending.map(|(id, row)| row.candidate(*id)));
        }
        let payload = it.job.payload.get().to_owned();
        let stored = |id, effect| KeyedAnswer::Stored { id, effect, due_in: 0.0, wakes: false };
        if let Some((id, row)) = pending {
            let Some(Stance { decision: Decision::With(Some(carry)), .. }) = &it.stance else { panic!("{it:?}") };
            *row = Row { payload, carry: carry.get().parse().unwrap(), version, ..row.clone() };
            self.merged += 1;
            return stored(*id, Effect::Merged);
        }
        self.next += 1;
        self.rows.insert(self.next, Row { key, payload, carry: 0, runs: 0, claimed: false, version });
        self.inserted += 1;
        stored(self.next, Effect::Inserted)
    }

    /// A worker takes a job, or the run of one ends: with a pause that adds to the carry, or for good.
    fn work(&mut self, random: u64) {
        self.versions += 1;
        let Some(nth) = random.checked_rem(self.rows.len() as u64) else { return };
        let (&id, row) = self.rows.iter_mut().nth(usize::try_from(nth).unwrap()).unwrap();
        row.version = self.versions;
        if !row.claimed {
            row.claimed = true;
            row.runs += 1;
        } else if random % 3 == 0 {
            row.claimed = false;
            row.carry += 1_000;
        } else {
            let row = self.rows.remove(&id).unwrap();
            assert_eq!(row.carry / 1_000, u32::try_from(row.runs - 1).unwrap(), "what a pause has left is never lost");
            self.completed += amount(&row.payload);
            self.carried += row.carry % 1_000;
        }
    }
}

impl Row {
    fn candidate(&self, id: i64) -> Candidate {
        let found = Found {
            payload: self.payload.clone(),
            carry: Some(self.carry.to_string()),
            priority: Priority::Normal,
            created_at: SystemTime::UNIX_EPOCH,
            visible_at: SystemTime::UNIX_EPOCH,
            run_count: self.runs,
            failure_count: 0,
        };
        Candidate { id, version: self.version.to_string(), found: Ok(found) }
    }
}

/// A queue: its producer, and the statement on its way, there or back.
struct Queue {
    producer: Producer,
    epoch: Epoch,
    there: Option<(StatementId, Statement)>,
    back: Option<(StatementId, Result<Reply, Fault>)>,
}

struct Story {
    random: u64,
    now: Instant,
    table: Table,
    queues: Vec<Queue>,
    callers: Vec<Offers<'static, Add>>,
    /// Callers that have something to ask.
    asking: VecDeque<usize>,
}

impl Story {
    fn new(seed: u64) -> Self {
        let now = until();
        let queue = |nth| {
            let producer = Producer::new("venturi".into(), Rules::default(), seed ^ nth, now);
            Queue { producer, epoch: 0, there: None, back: None }
        };
        let caller = |nth: u64| {
            let task = Submit::from(Add(nth % COUNTERS, nth + 1));
            Offers::new(vec![task.into_job(MB).unwrap()], MB)
        };
        Self {
            random: seed,
            now,
            table: Table::default(),
            queues: (0..QUEUES as u64).map(queue).collect(),
            callers: (0..CALLERS as u64).map(caller).collect(),
            asking: (0..CALLERS).collect(),
        }
    }

    fn pick(&mut self, most: usize) -> usize {
        self.random = mix(self.random);
        usize::try_from(self.random % most as u64).unwrap()
    }

    fn step(&mut self) {
        let passed = self.pick(3_000);
        self.now += Duration::from_micros(passed as u64);
        let queue = self.pick(QUEUES);
        match self.pick(6) {
            0 => {
                if let Some(caller) = self.asking.pop_front() {
                    let request = self.callers[caller].ask().pop().unwrap();
                    self.tell(caller % QUEUES, Input::Call(caller as u64, request));
                }
            }
            1 | 2 => self.execute(queue),
            3 | 4 => {
                if let Some((id, reply)) = self.queues[queue].back.take() {
                    self.tell(queue, Input::Reply(id, reply));
                }
            }
            _ => {
                let random = self.pick(1_000_000) as u64;
                // Not often, or nothing would be pending.
                if self.pick(8) == 0 {
                    self.table.work(random);
                }
                self.tell(queue, Input::Tick);
            }
        }
    }

    /// The statement arrives; once in a while another transaction has one of its keys, or it is refused for now.
    fn execute(&mut self, queue: usize) {
        let Some((id, statement)) = self.queues[queue].there.take() else { return };
        let reply = match statement {
            Statement::Check => Ok(Reply::Version { version: latest(), compatible_from: 1 }),
            Statement::EnqueueKeyed(_) if self.pick(10) == 0 => Err(Fault::link("cut").not_sent()),
            Statement::EnqueueKeyed(it) => {
                let mut answers = Vec::new();
                for row in &it.rows {
                    let busy = self.pick(5) == 0;
                    answers.push(if busy { KeyedAnswer::Busy } else { self.table.enqueue(row) });
                }
                Ok(Reply::Keyed(answers))
            }
            other => panic!("{other:?}"),
        };
        self.queues[queue].back = Some((id, reply));
    }

    fn tell(&mut self, nth: usize, input: Input) {
        let now = self.now;
        self.queues[nth].producer.input(now, input);
        while let Some(output) = self.queues[nth].producer.output(now) {
            let queue = &mut self.queues[nth];
            match output {
                Output::Connect(epoch) => {
                    queue.epoch = epoch;
                    queue.producer.input(now, Input::Connected(epoch));
                }
                Output::Observe(_) => {}
                Output::Disconnect => (queue.there, queue.back) = (None, None),
                Output::Execute(id, statement) => queue.there = Some((id, statement)),
                Output::Answer(call, answer) => {
                    let caller = usize::try_from(call).unwrap();
                    self.callers[caller].answered([answer]);
                    if !self.callers[caller].is_over() {
                        self.asking.push_back(caller);
                    }
                }
                Output::Stopped => panic!("nobody closed it"),
            }
        }
    }
}

/// Returns how many merges there were.
fn tell(seed: u64) -> u32 {
    let mut story = Story::new(seed);
    for _ in 0..20_000 {
        story.step();
        if story.callers.iter().all(Offers::is_over) {
            break;
        }
    }
    for caller in &mut story.callers {
        let failure = caller.take_failure();
        assert!(failure.is_none() && caller.is_over(), "seed {seed}: {failure:?}");
    }
    let table = story.table;
    let pending: u64 = table.rows.values().map(|row| amount(&row.payload)).sum();
    let total: u64 = (1..=CALLERS as u64).sum();
    assert_eq!(table.completed + pending, total, "seed {seed}: each amount is there once");
    assert_eq!(table.inserted + table.merged as usize, CALLERS, "seed {seed}");
    let carried: u32 = table.rows.values().map(|row| row.carry % 1_000).sum();
    assert_eq!(table.carried + carried, table.merged, "seed {seed}: each merge is in a carry");
    table.merged
}

#[test]
fn whatever_the_order_of_events_each_amount_is_counted_once() {
    let merges: u32 = (0..300).map(tell).sum();
    assert!(merges > 300, "there was something to tell: {merges}");
}

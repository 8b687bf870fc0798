//! The tasks of the suite. Each does what its payload says, the same way on a thread and in a future.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize};
use venturi::{
    Answer, Backoff, CancellationToken, Context, DedupKey, Error, JournalEntry, Merge, Outcome, Pending, Task,
    TaskError,
};

#[cfg(not(feature = "blocking"))]
use venturi::r#async::BlockingHandler;
#[cfg(feature = "blocking")]
use venturi::blocking::Handler as BlockingHandler;

use super::effects;
use super::front::Job;
use super::lab::{Charge, Lab, Run, Visit};
use super::purse::{Brittle, Count, DefaultPanics, Purse, Unwritable, Words, WritingPanics};

/// The longest that a handler waits for anything, so that a test that fails doesn't hang as well.
pub(crate) const LONGEST: Duration = Duration::from_secs(300);

/// How long a handler computes between two looks at its signal.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// What a job does in its first run, its second, and so on; the last entry stands for all runs after it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) tag: String,
    runs: Vec<Vec<Step>>,
    /// Makes the payload longer.
    filler: String,
    #[serde(deserialize_with = "spring")]
    decoding_panics: bool,
    #[serde(default)]
    key: Option<String>,
    /// What merging adds up.
    #[serde(default)]
    pub(crate) amount: i64,
    #[serde(default)]
    manner: Manner,
}

/// How a task merges into a pending one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    /// As tasks do that say nothing.
    #[default]
    Unsaid,
    Keep,
    Replace,
    Independent,
    /// The pending task with both amounts.
    Sum,
    /// The same, and a hundred more in the carry.
    SumAndCarry,
    /// As `SumAndCarry`, but first it meets whoever waits for this meeting, and waits to be let go.
    Meet(String),
    Panic,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Adds to the carry.
    Add(i64),
    Attach(String),
    /// The attachment is refused; the run goes on.
    AttachTooMuch,
    /// Waits for a gate of the lab, whatever else is said.
    Wait(String),
    /// Waits for the context's signal, as a cooperative handler does.
    WaitForSignal,
    /// Asks the context for its signal again and again, as a handler does that computes.
    AskForSignal,
    /// Stores the carry now, and notes the answer.
    Checkpoint,
    /// Asks for the newest entries of the journal, and notes them.
    Recall(u32),
    /// Keeps the run from having ended until the gate opens, whatever becomes of the handler.
    Hold(String),
    /// Writes an effect and completes the job, in a transaction of the handler's own, and notes the answer.
    CompleteIn(Finish),
    /// Keeps the thread busy that it runs on.
    Block(Duration),
    /// From here on dropping the task panics.
    DropPanics,
    /// From here on dropping what the handler holds panics.
    Charge,
    Panic(Blast),
    // The ends; a run without one completes.
    Complete,
    Note(String),
    Fail(String),
    /// Fails with an error that has two sources.
    FailDeep,
    /// Fails with an error that panics when it is dropped.
    FailCharged,
    Permanent(String),
    /// Fails for good with a text of so many bytes.
    Rant(usize),
    Pause(Duration),
}

/// How a handler's transaction ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Finish {
    Commit,
    /// When the gate opens.
    CommitAfter(String),
    RollBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Blast {
    Text,
    Formatted,
    Number,
    /// A payload whose own `Drop` panics.
    Bomb,
    /// As the first step: before the handler has made its future.
    AtOnce,
}

/// A job of the plain kind that completes.
pub(crate) fn job(tag: impl Into<String>) -> Job {
    let script = Script { tag: tag.into(), ..Script::default() };
    Job { kind: Kind::Plain, script, delay: Duration::ZERO, due_at: None, priority: None, trace: None }
}

impl Job {
    /// What the next run does.
    pub(crate) fn run(mut self, steps: impl Into<Vec<Step>>) -> Self {
        self.script.runs.push(steps.into());
        self
    }

    /// Fails so often, then completes.
    pub(crate) fn failing(self, times: usize) -> Self {
        (0..times).fold(self, |job, _| job.run([Step::Fail("not yet".to_owned())])).run([Step::Complete])
    }

    /// Waits for the gate in every run.
    pub(crate) fn waiting(self, gate: &str) -> Self {
        self.run([Step::Wait(gate.to_owned())])
    }

    pub(crate) fn with_filler(mut self, bytes: usize) -> Self {
        self.script.filler = "x".repeat(bytes);
        self
    }

    /// Has a dedup key, an amount of 1, and merges like this.
    pub(crate) fn keyed(mut self, key: impl Into<String>, manner: Manner) -> Self {
        self.script.key = Some(key.into());
        self.script.manner = manner;
        self.amount(1)
    }

    pub(crate) fn amount(mut self, amount: i64) -> Self {
        self.script.amount = amount;
        self
    }

    pub(crate) fn whose_decoding_panics(mut self) -> Self {
        self.script.decoding_panics = true;
        self
    }
}

impl Script {
    fn steps(&self, run: u32) -> &[Step] {
        let nth = usize::try_from(run).unwrap_or(1).saturating_sub(1);
        self.runs.get(nth).or(self.runs.last()).map_or(&[], Vec::as_slice)
    }
}

fn spring<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let panics = bool::deserialize(deserializer)?;
    assert!(!panics, "decoding sprang the trap");
    Ok(panics)
}

/// What tells one kind from another.
pub(crate) trait Breed: Send + Sync + 'static {
    const KIND: &'static str;
    type Purse: Purse;

    fn lease() -> Option<Duration> {
        None
    }

    fn timeout() -> Option<Duration> {
        None
    }

    fn backoff() -> Option<Backoff> {
        None
    }
}

/// Declares the breeds with what they override, and the enum that names them where types cannot go.
macro_rules! breeds {
    ($($(#[$doc:meta])* $name:ident = $kind:literal, $purse:ty $(, $item:item)*;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum Kind { $($name,)* }

        impl Kind {
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => $kind,)* }
            }
        }

        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) struct $name;

            impl Breed for $name {
                const KIND: &'static str = $kind;
                type Purse = $purse;
                $($item)*
            }
        )*
    };
}

breeds! {
    Plain = "plain", Count;
    Other = "other", Count;
    Third = "third", Count;
    /// The same kind as `Plain`.
    Twin = "plain", Count;
    Verbose = "verbose", Words;
    Day = "day", Count, fn lease() -> Option<Duration> { Some(Duration::from_secs(86_400)) };
    Brisk = "brisk", Count, fn timeout() -> Option<Duration> { Some(Duration::from_millis(300)) };
    Steady = "steady", Count, fn backoff() -> Option<Backoff> {
        Some(Backoff::new(Duration::from_millis(700), Duration::from_millis(700)))
    };
    Moody = "moody", Count, fn lease() -> Option<Duration> { panic!("no lease today") };
    NoDefault = "no_default", DefaultPanics;
    NoWriting = "no_writing", Unwritable;
    Stubborn = "stubborn", WritingPanics;
    Fragile = "fragile", Brittle;
    /// Looks like SQL, and like what the statements' texts are made with.
    Sharp = r#"'; DROP SCHEMA "{schema}" CASCADE; -- $1 \ % "#, Count;
}

/// Runs the code with the type of the kind's task.
macro_rules! for_kind {
    (@ $task:ident, $breed:ident, $body:expr) => {{
        type $task = $crate::suite::probe::Probe<$crate::suite::probe::$breed>;
        $body
    }};
    ($value:expr, $task:ident => $body:expr) => {
        match $value {
            $crate::suite::probe::Kind::Plain => $crate::suite::probe::for_kind!(@ $task, Plain, $body),
            $crate::suite::probe::Kind::Other => $crate::suite::probe::for_kind!(@ $task, Other, $body),
            $crate::suite::probe::Kind::Third => $crate::suite::probe::for_kind!(@ $task, Third, $body),
            $crate::suite::probe::Kind::Twin => $crate::suite::probe::for_kind!(@ $task, Twin, $body),
            $crate::suite::probe::Kind::Verbose => $crate::suite::probe::for_kind!(@ $task, Verbose, $body),
            $crate::suite::probe::Kind::Day => $crate::suite::probe::for_kind!(@ $task, Day, $body),
            $crate::suite::probe::Kind::Brisk => $crate::suite::probe::for_kind!(@ $task, Brisk, $body),
            $crate::suite::probe::Kind::Steady => $crate::suite::probe::for_kind!(@ $task, Steady, $body),
            $crate::suite::probe::Kind::Moody => $crate::suite::probe::for_kind!(@ $task, Moody, $body),
            $crate::suite::probe::Kind::NoDefault => $crate::suite::probe::for_kind!(@ $task, NoDefault, $body),
            $crate::suite::probe::Kind::NoWriting => $crate::suite::probe::for_kind!(@ $task, NoWriting, $body),
            $crate::suite::probe::Kind::Stubborn => $crate::suite::probe::for_kind!(@ $task, Stubborn, $body),
            $crate::suite::probe::Kind::Sharp => $crate::suite::probe::for_kind!(@ $task, Sharp, $body),
            $crate::suite::probe::Kind::Fragile => $crate::suite::probe::for_kind!(@ $task, Fragile, $body),
        }
    };
}
pub(crate) use for_kind;

/// The task: a script, under the name of its breed.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Probe<B: Breed> {
    script: Script,
    #[serde(skip)]
    drop_panics: AtomicBool,
    #[serde(skip)]
    breed: PhantomData<fn() -> B>,
}

impl<B: Breed> From<Script> for Probe<B> {
    fn from(script: Script) -> Self {
        Self { script, drop_panics: AtomicBool::new(false), breed: PhantomData }
    }
}

impl<B: Breed> Task for Probe<B> {
    const KIND: &'static str = B::KIND;
    type Carry = B::Purse;

    fn dedup_key(&self) -> Option<DedupKey> {
        self.script.key.as_deref().map(DedupKey::from)
    }

    fn merge(&self, pending: &Pending<Self>) -> Merge<Self> {
        let sum = || {
            let amount = pending.task.script.amount + self.script.amount;
            Self::from(Script { amount, ..pending.task.script.clone() })
        };
        match &self.script.manner {
            Manner::Unsaid => Merge::default(),
            Manner::Keep => Merge::Keep,
            Manner::Replace => Merge::Replace,
            Manner::Independent => Merge::Independent,
            Manner::Sum => Merge::with(sum()),
            Manner::SumAndCarry => Merge::With { task: sum(), carry: Some(with_a_hundred_more(&pending.carry)) },
            Manner::Meet(name) => {
                meeting(name).hold();
                Merge::With { task: sum(), carry: Some(with_a_hundred_more(&pending.carry)) }
            }
            Manner::Panic => panic!("no way to merge"),
        }
    }

    fn lease() -> Option<Duration> {
        B::lease()
    }

    fn timeout() -> Option<Duration> {
        B::timeout()
    }

    fn backoff() -> Option<Backoff> {
        B::backoff()
    }
}

impl<B: Breed> Drop for Probe<B> {
    fn drop(&mut self) {
        assert!(!self.drop_panics.load(Ordering::Relaxed), "dropping the task");
    }
}

fn with_a_hundred_more<P: Purse>(carry: &P) -> P {
    let mut purse = P::default();
    purse.add(carry.total() + 100);
    purse
}

/// Where a merge, which knows no lab, meets the test that waits for it.
#[derive(Clone, Default)]
pub(crate) struct Meeting {
    pub(crate) begun: CancellationToken,
    pub(crate) go_on: CancellationToken,
}

impl Meeting {
    fn hold(&self) {
        self.begun.cancel();
        self.go_on.wait_timeout(LONGEST);
    }
}

/// The meeting of this name, which nobody else in this program has.
pub(crate) fn meeting(name: &str) -> Meeting {
    static ALL: Mutex<BTreeMap<String, Meeting>> = Mutex::new(BTreeMap::new());
    ALL.lock().expect("nobody panics in here").entry(name.to_owned()).or_default().clone()
}

/// What a step asks of the loop around it, which is the one thing that differs between threads and futures.
enum Next {
    GoOn,
    WaitFor(CancellationToken),
    WaitForSignal,
    AskForSignal,
    Stored(Answer<()>),
    Recalled(Answer<Vec<JournalEntry>>),
    Transact(Finish),
    Hold(Charge),
    End(Result<Outcome, TaskError>),
}

impl<B: Breed> Probe<B> {
    /// Notes the start; before a future is made, where there is one.
    fn begin(&self, context: &Context<B::Purse>, lab: &Arc<Lab>) -> Visit {
        let visit = lab.enter(Run {
            tag: self.script.tag.clone(),
            amount: self.script.amount,
            kind: context.kind(),
            job: context.job_id().get(),
            run: context.run_count(),
            failures: context.failure_count(),
            priority: context.priority(),
            created_at: context.created_at(),
            due_at: context.due_at(),
            trace: context.trace().map(str::to_owned),
            carry: context.carry().total(),
            started: Instant::now(),
            end: None,
            cancelled: None,
            answers: Vec::new(),
        });
        if self.script.steps(context.run_count()).first() == Some(&Step::Panic(Blast::AtOnce)) {
            panic!("at once");
        }
        visit
    }

    fn take(&self, step: &Step, context: &mut Context<B::Purse>, lab: &Lab) -> Next {
        match step {
            Step::Add(amount) => context.carry_mut().add(*amount),
            Step::Attach(text) => context.set_attachment(text).expect("a short text can be attached"),
            Step::AttachTooMuch => drop(context.set_attachment(&"x".repeat(65_000)).expect_err("it is too large")),
            Step::Wait(gate) => return Next::WaitFor(lab.gate(gate)),
            Step::WaitForSignal => return Next::WaitForSignal,
            Step::AskForSignal => return Next::AskForSignal,
            Step::Checkpoint => return Next::Stored(context.checkpoint()),
            Step::Recall(most) => return Next::Recalled(context.history(*most)),
            Step::CompleteIn(finish) => return Next::Transact(finish.clone()),
            Step::Hold(gate) => {
                let (hold, gate) = (context.hold(), lab.gate(gate));
                std::thread::spawn(move || {
                    gate.wait_timeout(LONGEST);
                    drop(hold);
                });
            }
            Step::Block(time) => std::thread::sleep(*time),
            Step::Charge => return Next::Hold(Charge(true)),
            Step::DropPanics => self.drop_panics.store(true, Ordering::Relaxed),
            Step::Panic(blast) => blast.go_off(),
            end => return Next::End(end.result()),
        }
        Next::GoOn
    }
}

impl<B: Breed, S: Borrow<Arc<Lab>> + Send + Sync + 'static> BlockingHandler<S> for Probe<B> {
    fn handle(&self, context: &mut Context<B::Purse>, state: &S) -> Result<Outcome, TaskError> {
        let lab = state.borrow();
        let visit = self.begin(context, lab);
        let (mut result, mut held) = (Ok(Outcome::completed()), Vec::new());
        for step in self.script.steps(context.run_count()) {
            match self.take(step, context, lab) {
                Next::GoOn => {}
                Next::Hold(charge) => held.push(charge),
                Next::WaitFor(token) => {
                    token.wait_timeout(LONGEST);
                    visit.cancelled(context.cancel_reason());
                }
                Next::WaitForSignal => {
                    context.token().wait_timeout(LONGEST);
                    visit.cancelled(context.cancel_reason());
                }
                Next::AskForSignal => {
                    let begun = Instant::now();
                    while !context.is_cancelled() && begun.elapsed() < LONGEST {
                        std::thread::sleep(ASK_AGAIN);
                    }
                    visit.cancelled(context.cancel_reason());
                }
                Next::Stored(answer) => visit.answered(stored(answer.wait())),
                Next::Recalled(answer) => visit.answered(recalled(answer.wait())),
                Next::Transact(finish) => visit.answered(effects::on_thread(context, lab, &finish)),
                Next::End(end) => {
                    result = end;
                    break;
                }
            }
        }
        visit.leave();
        result
    }
}

#[cfg(feature = "async")]
impl<B: Breed, S: Borrow<Arc<Lab>> + Send + Sync + 'static> venturi::r#async::Handler<S> for Probe<B> {
    fn handle(
        &self,
        context: &mut Context<B::Purse>,
        state: &S,
    ) -> impl Future<Output = Result<Outcome, TaskError>> + Send {
        let lab = state.borrow();
        let visit = self.begin(context, lab);
        async move {
            let (mut result, mut held) = (Ok(Outcome::completed()), Vec::new());
            for step in self.script.steps(context.run_count()) {
                match self.take(step, context, lab) {
                    Next::GoOn => {}
                    Next::Hold(charge) => held.push(charge),
                    Next::WaitFor(token) => {
                        let too_long = async { _ = smol::Timer::after(LONGEST).await };
                        futures_lite::future::or(token.cancelled(), too_long).await;
                        visit.cancelled(context.cancel_reason());
                    }
                    Next::WaitForSignal => {
                        let too_long = async { _ = smol::Timer::after(LONGEST).await };
                        futures_lite::future::or(context.cancelled(), too_long).await;
                        visit.cancelled(context.cancel_reason());
                    }
                    Next::AskForSignal => {
                        let begun = Instant::now();
                        while !context.is_cancelled() && begun.elapsed() < LONGEST {
                            smol::Timer::after(ASK_AGAIN).await;
                        }
                        visit.cancelled(context.cancel_reason());
                    }
                    Next::Stored(answer) => visit.answered(stored(answer.await)),
                    Next::Recalled(answer) => visit.answered(recalled(answer.await)),
                    Next::Transact(finish) => visit.answered(effects::in_future(context, lab, &finish).await),
                    Next::End(end) => {
                        result = end;
                        break;
                    }
                }
            }
            visit.leave();
            result
        }
    }
}

pub(crate) fn stored(answer: Result<(), Error>) -> String {
    answer.map_or_else(|error| format!("{:?}", error.kind()), |()| "stored".to_owned())
}

/// `1 Retried no luck, 2 Paused a pause`
fn recalled(answer: Result<Vec<JournalEntry>, Error>) -> String {
    let line = |entry: &JournalEntry| {
        let note = entry.note.as_deref().unwrap_or("-");
        format!("{} {:?} {note}", entry.run_count, entry.event)
    };
    match answer {
        Ok(entries) => entries.iter().map(line).collect::<Vec<_>>().join(", "),
        Err(error) => format!("{:?}", error.kind()),
    }
}

impl Step {
    fn result(&self) -> Result<Outcome, TaskError> {
        match self {
            Self::Note(text) => Ok(Outcome::completed_with(text)),
            Self::Fail(text) => Err(text.as_str().into()),
            Self::FailCharged => Err(ChargedError(Charge(true)).into()),
            Self::FailDeep => Err(Layer("outer", Some(&Layer("middle", Some(&Layer("innermost", None))))).into()),
            Self::Rant(bytes) => Err(TaskError::permanent("x".repeat(*bytes))),
            Self::Permanent(text) => Err(TaskError::permanent(text.as_str())),
            Self::Pause(time) => Ok(Outcome::pause_in_with(*time, "a pause")),
            _ => Ok(Outcome::completed()),
        }
    }
}

impl Blast {
    fn go_off(self) {
        match self {
            Self::Text => panic!("a plain text"),
            Self::Formatted => panic!("text number {}", 7),
            Self::Number => panic_any(7_u8),
            Self::Bomb => panic_any(Bomb),
            Self::AtOnce => {}
        }
    }
}

/// Panics when it is dropped, each time with another of its kind.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

struct ChargedError(Charge);

impl fmt::Debug for ChargedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChargedError({})", self.0.0)
    }
}

impl fmt::Display for ChargedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no luck")
    }
}

impl StdError for ChargedError {}

#[derive(Clone, Copy, Debug)]
struct Layer(&'static str, Option<&'static Self>);

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Layer {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.1.map(|inner| inner as _)
    }
}

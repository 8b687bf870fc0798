//! The conversation with the database: text, typed parameters and row decoding of each statement, once for both
//! front-ends. What a statement does is told at the head of its file in `src/sql`.
#![deny(clippy::disallowed_methods)]

mod copy;
mod finding;
mod inquiry;
mod inside;
mod intake;
mod keyed;
mod param;
mod reply;
mod request;
mod session;
#[cfg(test)]
mod tests;
mod text;

use tokio_postgres::Row;

pub(crate) use copy::{CopyJobs, Encoded};
pub(crate) use finding::{CancelAnswer, Deleted, Finding, FoundJobs, FoundJournal, RequeueAnswer};
pub(crate) use inquiry::{CleanupBatch, Find, Inquiry, Touch};
pub(crate) use inside::Inside;
pub(crate) use intake::Intake;
pub(crate) use keyed::{Candidate, Decision, EnqueueKeyed, Found, KeyedAnswer, KeyedJob, Stance};
pub(crate) use param::{Param, Parameter, typed};
pub(crate) use reply::{
    ClaimReply, Malformed, NewId, Numbers, ReadError, Recovered, Reply, Settled, StaleRow, SurveyReply,
};
pub(crate) use request::{
    Bounds, Checkpoint, Claim, Complete, Ending, Enqueue, Held, History, NewJob, NewJobs, Notify, Promote, Recover,
    Recovery, Renew, Settle, Settlement, Stale, Survey,
};
pub(crate) use session::{Attempts, IS_READ_ONLY, SESSION, begin, trial};
pub(crate) use text::{Text, Texts, render};

/// One text and what goes with it.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    pub(crate) text: Text,
    pub(crate) params: Vec<Param<'a>>,
    /// Of a `COPY … FROM STDIN`: what is copied.
    pub(crate) data: Option<Encoded>,
}

/// What the engine or a queue wants from the database.
#[derive(Debug)]
pub(crate) enum Statement {
    /// Settle, then claim, as one transaction when both are there.
    Exchange {
        settle: Option<Settle>,
        claim: Option<Claim>,
    },
    Stale(Stale),
    Recover(Recover),
    Promote(Promote),
    Survey(Survey),
    Renew(Renew),
    Held(Held),
    Enqueue(Enqueue),
    EnqueueKeyed(EnqueueKeyed),
    /// Numbers for so many new jobs.
    Reserve(i32),
    Copy(CopyJobs),
    Checkpoint(Checkpoint),
    History(History),
    Notify(Notify),
    Inquiry(Inquiry),
    Check,
    /// The keys of what this session listens for.
    Interest(Vec<i64>),
    Listen,
}

impl<'a> Command<'a> {
    fn new(text: Text, params: Vec<Param<'a>>) -> Self {
        Self { text, params, data: None }
    }
}

impl Statement {
    /// What to send, in this order; more than one: as one transaction.
    pub(crate) fn commands(&self) -> Vec<Command<'_>> {
        let one = |text, params| vec![Command::new(text, params)];
        match self {
            Self::Exchange { settle, claim } => exchange(settle.as_ref(), claim.as_ref()),
            Self::Stale(stale) => one(Text::Stale, stale.params()),
            Self::Recover(recover) => one(Text::Recover, recover.params()),
            Self::Promote(promote) => one(Text::Promote, promote.params()),
            Self::Survey(survey) => one(Text::Survey, survey.params()),
            Self::Renew(renew) => one(Text::Renew, renew.params()),
            Self::Held(held) => one(Text::Held, held.params()),
            Self::Enqueue(enqueue) => one(Text::Enqueue, enqueue.params()),
            Self::EnqueueKeyed(keyed) => one(Text::EnqueueKeyed, keyed.params()),
            Self::Reserve(count) => one(Text::Reserve, vec![Box::new(*count)]),
            Self::Copy(copy) => copy.commands(),
            Self::Checkpoint(checkpoint) => one(Text::Checkpoint, checkpoint.params()),
            Self::History(history) => one(Text::History, history.params()),
            Self::Notify(notify) => one(Text::Notify, notify.params()),
            Self::Inquiry(inquiry) => inquiry.commands(),
            Self::Check => one(Text::Check, Vec::new()),
            Self::Interest(keys) => one(Text::Interest, vec![Box::new(keys)]),
            Self::Listen => one(Text::Listen, Vec::new()),
        }
    }

    /// Makes sense of the rows: one list per command, in the same order.
    pub(crate) fn read(&self, results: &[Vec<Row>]) -> Result<Reply, ReadError> {
        if let Self::Exchange { settle, claim } = self {
            return reply::exchange(settle.as_ref(), claim.is_some(), results);
        }
        if let Self::Copy(copy) = self {
            return Ok(Reply::Enqueued(copy.ids()));
        }
        if let Self::Inquiry(inquiry) = self {
            return finding::read(inquiry, results).map(Reply::Inquiry);
        }
        let [rows] = results else {
            return Err(ReadError::new(format!("{} results of one command", results.len())));
        };
        match self {
            Self::Exchange { .. } | Self::Copy(_) | Self::Inquiry(_) | Self::Interest(_) | Self::Listen => {
                Ok(Reply::Done)
            }
            Self::Notify(_) => reply::notified(rows),
            Self::Stale(_) => Ok(reply::stale(rows)),
            Self::Recover(_) => reply::recovered(rows),
            Self::Promote(_) => reply::promoted(rows),
            Self::Survey(_) => reply::survey(rows),
            Self::Renew(_) => reply::renewed(rows),
            Self::Held(_) => reply::held(rows),
            Self::Enqueue(enqueue) => reply::enqueued(enqueue.len(), rows),
            Self::EnqueueKeyed(keyed) => keyed::answers(keyed.rows.len(), rows),
            Self::Reserve(count) => reply::reserved(*count, rows),
            Self::Checkpoint(_) => Ok(Reply::Checkpointed(!rows.is_empty())),
            Self::History(_) => reply::history(rows),
            Self::Check => reply::version(rows),
        }
    }

    #[cfg(test)]
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Exchange { settle: Some(_), claim: Some(Claim { bounds: Some(_), .. }) } => "exchange_from",
            Self::Exchange { settle: None, claim: Some(Claim { bounds: Some(_), .. }) } => "claim_from",
            Self::Exchange { settle: Some(_), claim: Some(_) } => "exchange",
            Self::Exchange { settle: Some(_), claim: None } => "settle",
            Self::Exchange { settle: None, .. } => "claim",
            Self::Stale(_) => "stale",
            Self::Recover(_) => "recover",
            Self::Promote(_) => "promote",
            Self::Survey(_) => "survey",
            Self::Renew(_) => "renew",
            Self::Held(_) => "held",
            Self::Enqueue(_) => "enqueue",
            Self::EnqueueKeyed(_) => "enqueue_keyed",
            Self::Reserve(_) => "reserve",
            Self::Copy(_) => "copy",
            Self::Checkpoint(_) => "checkpoint",
            Self::History(_) => "history",
            Self::Notify(_) => "notify",
            Self::Inquiry(inquiry) => inquiry.name(),
            Self::Check => "check",
            Self::Interest(_) => "interest",
            Self::Listen => "listen",
        }
    }
}

/// The settlement first: the claim then sees its slots' jobs gone, and what came back ready. A brief one leaves nothing
/// for the claim to see, so that both can be one statement.
fn exchange<'a>(settle: Option<&'a Settle>, claim: Option<&'a Claim>) -> Vec<Command<'a>> {
    if let (Some(settle), Some(claim)) = (settle, claim) {
        if let Some(text) = fused(settle, claim) {
            let params = claim.params().into_iter().chain(settle.params().into_iter().skip(1)).collect();
            return vec![Command::new(text, params)];
        }
    }
    // What is settled must be on disk before it is answered, and the claim with it.
    let relax =
        (settle.is_none() && claim.is_some_and(|claim| !claim.durable)).then(|| Command::new(Text::Relax, Vec::new()));
    let settle = settle.map(|settle| Command::new(settle.text(), settle.params()));
    let claim = claim.map(|claim| Command::new(claim.text(), claim.params()));
    relax.into_iter().chain(settle).chain(claim).collect()
}

fn fused(settle: &Settle, claim: &Claim) -> Option<Text> {
    match (settle.text(), claim.text()) {
        (Text::SettleCompleted, Text::Claim) => Some(Text::ExchangeCompleted),
        (Text::SettleCompleted, Text::ClaimFrom) => Some(Text::ExchangeCompletedFrom),
        (Text::SettleCompleted, Text::ClaimMany) => Some(Text::ExchangeCompletedMany),
        (Text::SettleDiscarded, Text::Claim) => Some(Text::ExchangeDiscarded),
        (Text::SettleDiscarded, Text::ClaimFrom) => Some(Text::ExchangeDiscardedFrom),
        (Text::SettleDiscarded, Text::ClaimMany) => Some(Text::ExchangeDiscardedMany),
        _ => None,
    }
}

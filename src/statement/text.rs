//! The SQL texts, one file each under `src/sql`, and what they look like for one schema.
#![deny(clippy::disallowed_methods)]

use std::borrow::Cow;
use std::sync::Arc;

use crate::database::SchemaName;

/// A statement's text, before its schema is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Text {
    Claim,
    ClaimFrom,
    ClaimMany,
    Relax,
    Settle,
    SettleCompleted,
    SettleDiscarded,
    ExchangeCompleted,
    ExchangeCompletedFrom,
    ExchangeCompletedMany,
    ExchangeDiscarded,
    ExchangeDiscardedFrom,
    ExchangeDiscardedMany,
    Stale,
    Recover,
    Promote,
    Survey,
    Renew,
    Held,
    Enqueue,
    EnqueueKeyed,
    Reserve,
    CopyPayload,
    CopyLive,
    Checkpoint,
    Complete,
    LockTimeout,
    History,
    Notify,
    Check,
    Interest,
    Listen,
    Job,
    Find,
    Journal,
    Stats,
    Cancel,
    LockKeys,
    Requeue,
    PauseKind,
    ResumeKind,
    PausedKinds,
    Cleanup,
    CleanupCount,
    Cancellations,
    Workers,
    Diagnose,
    Inventory,
    BackendAge,
}

impl Text {
    /// In the order of the variants.
    pub(crate) const ALL: [Self; 49] = [
        Self::Claim,
        Self::ClaimFrom,
        Self::ClaimMany,
        Self::Relax,
        Self::Settle,
        Self::SettleCompleted,
        Self::SettleDiscarded,
        Self::ExchangeCompleted,
        Self::ExchangeCompletedFrom,
        Self::ExchangeCompletedMany,
        Self::ExchangeDiscarded,
        Self::ExchangeDiscardedFrom,
        Self::ExchangeDiscardedMany,
        Self::Stale,
        Self::Recover,
        Self::Promote,
        Self::Survey,
        Self::Renew,
        Self::Held,
        Self::Enqueue,
        Self::EnqueueKeyed,
        Self::Reserve,
        Self::CopyPayload,
        Self::CopyLive,
        Self::Checkpoint,
        Self::Complete,
        Self::LockTimeout,
        Self::History,
        Self::Notify,
        Self::Check,
        Self::Interest,
        Self::Listen,
        Self::Job,
        Self::Find,
        Self::Journal,
        Self::Stats,
        Self::Cancel,
        Self::LockKeys,
        Self::Requeue,
        Self::PauseKind,
        Self::ResumeKind,
        Self::PausedKinds,
        Self::Cleanup,
        Self::CleanupCount,
        Self::Cancellations,
        Self::Workers,
        Self::Diagnose,
        Self::Inventory,
        Self::BackendAge,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::ClaimFrom => "claim_from",
            Self::ClaimMany => "claim_many",
            Self::Relax => "relax",
            Self::Settle => "settle",
            Self::SettleCompleted => "settle_completed",
            Self::SettleDiscarded => "settle_discarded",
            Self::ExchangeCompleted => "exchange_completed",
            Self::ExchangeCompletedFrom => "exchange_completed_from",
            Self::ExchangeCompletedMany => "exchange_completed_many",
            Self::ExchangeDiscarded => "exchange_discarded",
            Self::ExchangeDiscardedFrom => "exchange_discarded_from",
            Self::ExchangeDiscardedMany => "exchange_discarded_many",
            Self::Stale => "stale",
            Self::Recover => "recover",
            Self::Promote => "promote",
            Self::Survey => "survey",
            Self::Renew => "renew",
            Self::Held => "held",
            Self::Enqueue => "enqueue",
            Self::EnqueueKeyed => "enqueue_keyed",
            Self::Reserve => "reserve",
            Self::CopyPayload => "copy_payload",
            Self::CopyLive => "copy_live",
            Self::Checkpoint => "checkpoint",
            Self::Complete => "complete",
            Self::LockTimeout => "lock_timeout",
            Self::History => "history",
            Self::Notify => "notify",
            Self::Check => "check",
            Self::Interest => "interest",
            Self::Listen => "listen",
            Self::Job => "job",
            Self::Find => "find",
            Self::Journal => "journal",
            Self::Stats => "stats",
            Self::Cancel => "cancel",
            Self::LockKeys => "lock_keys",
            Self::Requeue => "requeue",
            Self::PauseKind => "pause_kind",
            Self::ResumeKind => "resume_kind",
            Self::PausedKinds => "paused_kinds",
            Self::Cleanup => "cleanup",
            Self::CleanupCount => "cleanup_count",
            Self::Cancellations => "cancellations",
            Self::Workers => "workers",
            Self::Diagnose => "diagnose",
            Self::Inventory => "inventory",
            Self::BackendAge => "backend_age",
        }
    }

    /// As it is sent to one schema.
    pub(crate) fn render(self, schema: &SchemaName) -> String {
        render(&self.template(), schema)
    }

    fn template(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Claim => return Cow::Owned(claim(Look::Plain)),
            Self::ClaimFrom => return Cow::Owned(headed("claim_from: claim, from known keys on.", Look::From)),
            Self::ClaimMany => return Cow::Owned(headed("claim_many: claim, when there are many kinds.", Look::Many)),
            Self::SettleCompleted => {
                let whole = include_str!("../sql/settle_completed.sql");
                return Cow::Owned(whole.replace("{completed}", &settled(COMPLETED)));
            }
            Self::SettleDiscarded => {
                let whole = include_str!("../sql/settle_discarded.sql");
                return Cow::Owned(whole.replace("{discarded}", &settled(DISCARDED)));
            }
            Self::ExchangeCompleted => return Cow::Owned(exchange(self, COMPLETED, Look::Plain)),
            Self::ExchangeCompletedFrom => return Cow::Owned(exchange(self, COMPLETED, Look::From)),
            Self::ExchangeCompletedMany => return Cow::Owned(exchange(self, COMPLETED, Look::Many)),
            Self::ExchangeDiscarded => return Cow::Owned(exchange(self, DISCARDED, Look::Plain)),
            Self::ExchangeDiscardedFrom => return Cow::Owned(exchange(self, DISCARDED, Look::From)),
            Self::ExchangeDiscardedMany => return Cow::Owned(exchange(self, DISCARDED, Look::Many)),
            Self::Relax => include_str!("../sql/relax.sql"),
            Self::Settle => include_str!("../sql/settle.sql"),
            Self::Stale => include_str!("../sql/stale.sql"),
            Self::Recover => include_str!("../sql/recover.sql"),
            Self::Promote => include_str!("../sql/promote.sql"),
            Self::Survey => include_str!("../sql/survey.sql"),
            Self::Renew => include_str!("../sql/renew.sql"),
            Self::Held => include_str!("../sql/held.sql"),
            Self::Enqueue => include_str!("../sql/enqueue.sql"),
            Self::EnqueueKeyed => include_str!("../sql/enqueue_keyed.sql"),
            Self::Reserve => include_str!("../sql/reserve.sql"),
            Self::CopyPayload => include_str!("../sql/copy_payload.sql"),
            Self::CopyLive => include_str!("../sql/copy_live.sql"),
            Self::Checkpoint => include_str!("../sql/checkpoint.sql"),
            Self::Complete => include_str!("../sql/complete.sql"),
            Self::LockTimeout => include_str!("../sql/lock_timeout.sql"),
            Self::History => include_str!("../sql/history.sql"),
            Self::Notify => include_str!("../sql/notify.sql"),
            Self::Check => include_str!("../sql/check.sql"),
            Self::Interest => include_str!("../sql/interest.sql"),
            Self::Listen => include_str!("../sql/listen.sql"),
            Self::Job => include_str!("../sql/job.sql"),
            Self::Find => include_str!("../sql/find.sql"),
            Self::Journal => include_str!("../sql/journal.sql"),
            Self::Stats => include_str!("../sql/stats.sql"),
            Self::Cancel => include_str!("../sql/cancel.sql"),
            Self::LockKeys => include_str!("../sql/lock_keys.sql"),
            Self::Requeue => include_str!("../sql/requeue.sql"),
            Self::PauseKind => include_str!("../sql/pause_kind.sql"),
            Self::ResumeKind => include_str!("../sql/resume_kind.sql"),
            Self::PausedKinds => include_str!("../sql/paused_kinds.sql"),
            Self::Cleanup => include_str!("../sql/cleanup.sql"),
            Self::CleanupCount => include_str!("../sql/cleanup_count.sql"),
            Self::Cancellations => include_str!("../sql/cancellations.sql"),
            Self::Workers => include_str!("../sql/workers.sql"),
            Self::Diagnose => include_str!("../sql/diagnose.sql"),
            Self::Inventory => include_str!("../sql/inventory.sql"),
            Self::BackendAge => include_str!("../sql/backend_age.sql"),
        })
    }
}

/// How a claim looks for what is ready.
#[derive(Clone, Copy)]
enum Look {
    Plain,
    /// From known keys on, which two parameters more tell.
    From,
    /// When there are more kinds than rows that are looked at.
    Many,
}

impl Look {
    fn params(self) -> usize {
        match self {
            Self::Plain | Self::Many => 9,
            Self::From => 11,
        }
    }

    fn kinds(self) -> String {
        let all = include_str!("../sql/parts/kinds.sql").trim_end();
        match self {
            Self::Plain | Self::From => all.to_owned(),
            Self::Many => {
                let many = include_str!("../sql/parts/kinds_many.sql").trim_end();
                many.replace("    {kinds}", all).replace("    {first}", &self.head("1"))
            }
        }
    }

    /// Looks so deep into one kind.
    fn head(self, depth: &str) -> String {
        let head = match self {
            Self::Plain | Self::Many => include_str!("../sql/parts/head.sql"),
            Self::From => include_str!("../sql/parts/head_from.sql"),
        };
        head.trim_end().replace("{depth}", depth)
    }
}

const COMPLETED: &str = include_str!("../sql/parts/completed.sql");
const DISCARDED: &str = include_str!("../sql/parts/discarded.sql");

fn claim(look: Look) -> String {
    claim_between("", "", "", look)
}

fn headed(head: &str, look: Look) -> String {
    format!("-- {head}\n{}", claim(look))
}

/// What a brief settlement does.
fn settled(part: &str) -> String {
    part.trim_end().replace("    {locked}", include_str!("../sql/parts/locked.sql").trim_end())
}

/// A settlement and a claim as one statement, which needs no `BEGIN` and no `COMMIT` around it.
///
/// The claim's parameters come first, then those of the settlement without the worker, which both have.
fn exchange(text: Text, settle: &str, look: Look) -> String {
    let settled = format!("\n{},\n", behind(&settled(settle), look.params()));
    let both = include_str!("../sql/parts/both.sql");
    let claim = claim_between(&settled, ",\ntaken AS (", both.trim_end(), look);
    format!(
        "-- {}: settles as its part says, then claims. The first row tells what was settled, the others what was claimed.\n{claim}",
        text.name()
    )
}

fn claim_between(settled: &str, taken: &str, both: &str, look: Look) -> String {
    let claim = include_str!("../sql/claim.sql");
    let (kinds, head) = (look.kinds(), look.head("$6::int + $7::int"));
    let looks = [("    {kinds}", kinds.as_str()), ("    {head}", &head)];
    let places = looks.into_iter().chain([("{settled}", settled), ("{taken}", taken), ("{both}", both)]);
    places.fold(claim.to_owned(), |sql, (place, part)| sql.replace(place, part))
}

/// The text with its parameters from the second on behind so many others.
fn behind(sql: &str, others: usize) -> String {
    let moved = |sql: String, nth: usize| {
        let place = |mark: char| (format!("${nth}{mark}"), format!("${}{mark}", nth + others - 1));
        [place(':'), place(' ')].into_iter().fold(sql, |sql, (from, to)| sql.replace(&from, &to))
    };
    (2..=6).rev().fold(sql.to_owned(), moved)
}

/// All texts, rendered for one schema. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct Texts(Arc<[String]>);

impl Texts {
    pub(crate) fn new(schema: &SchemaName) -> Self {
        Self(Text::ALL.iter().map(|text| text.render(schema)).collect())
    }

    pub(crate) fn sql(&self, text: Text) -> &str {
        let sql = self.0.get(text as usize).map_or("", String::as_str);
        debug_assert!(!sql.is_empty(), "each text is listed in ALL, in the order of the variants: {text:?}");
        sql
    }
}

/// Puts the schema into a template.
///
/// `{schema}` and `{channel}` (which is named like the schema) become a quoted identifier; `{schema_in_text}` the same
/// inside an `E'…'` literal. In one pass, so that a name that looks like a placeholder stays a name.
pub(crate) fn render(template: &str, schema: &SchemaName) -> String {
    let quoted = schema.quoted();
    let in_text = quoted.replace('\\', r"\\").replace('\'', "''");
    let places = [("schema}", &quoted), ("channel}", &quoted), ("schema_in_text}", &in_text)];
    let mut sql = String::with_capacity(template.len() + 256);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        sql.push_str(before);
        let found = places.iter().find_map(|(place, value)| Some((value.as_str(), after.strip_prefix(place)?)));
        let (value, remaining) = found.unwrap_or(("{", after));
        sql.push_str(value);
        rest = remaining;
    }
    sql.push_str(rest);
    sql
}

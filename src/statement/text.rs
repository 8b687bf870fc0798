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
    Settle,
    SettleCompleted,
    SettleDiscarded,
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
    Cancellations,
}

impl Text {
    /// In the order of the variants.
    pub(crate) const ALL: [Self; 35] = [
        Self::Claim,
        Self::ClaimFrom,
        Self::Settle,
        Self::SettleCompleted,
        Self::SettleDiscarded,
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
        Self::Cancellations,
    ];

    #[cfg(test)]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::ClaimFrom => "claim_from",
            Self::Settle => "settle",
            Self::SettleCompleted => "settle_completed",
            Self::SettleDiscarded => "settle_discarded",
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
            Self::Cancellations => "cancellations",
        }
    }

    fn template(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Claim => return Cow::Owned(claim(include_str!("../sql/parts/head.sql"))),
            Self::ClaimFrom => return Cow::Owned(claim_from()),
            Self::Settle => include_str!("../sql/settle.sql"),
            Self::SettleCompleted => include_str!("../sql/settle_completed.sql"),
            Self::SettleDiscarded => include_str!("../sql/settle_discarded.sql"),
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
            Self::Cancellations => include_str!("../sql/cancellations.sql"),
        })
    }
}

fn claim(head: &str) -> String {
    include_str!("../sql/claim.sql").replace("    {head}", head.trim_end())
}

fn claim_from() -> String {
    format!("-- claim_from: claim, from known keys on.\n{}", claim(include_str!("../sql/parts/head_from.sql")))
}

/// All texts, rendered for one schema. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct Texts(Arc<[String]>);

impl Texts {
    pub(crate) fn new(schema: &SchemaName) -> Self {
        Self(Text::ALL.iter().map(|text| render(&text.template(), schema)).collect())
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

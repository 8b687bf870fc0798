//! Answers and tables as lines of text, with the times that belong to each apart: those are the same only roughly.

use std::time::{Duration, SystemTime};

use super::super::*;
use crate::engine::tests::server::{Row as ModelRow, Server, State};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) text: String,
    /// Seconds: from now, or since 1970.
    pub(super) times: Vec<f64>,
}

fn line(text: String, times: impl IntoIterator<Item = f64>) -> Line {
    Line { text, times: times.into_iter().collect() }
}

fn plain(text: String) -> Line {
    line(text, [])
}

/// What is in one and not in the other; nothing if they are the same but for so many seconds.
pub(super) fn difference(model: &[Line], server: &[Line], slack: f64) -> Option<String> {
    let near = |a: &Line, b: &Line| {
        let times = || a.times.iter().zip(&b.times).all(|(a, b)| (a - b).abs() <= slack);
        a.text == b.text && a.times.len() == b.times.len() && times()
    };
    let lacking = |some: &[Line], others: &[Line]| -> Vec<Line> {
        some.iter().filter(|line| !others.iter().any(|other| near(line, other))).cloned().collect()
    };
    let (only_model, only_server) = (lacking(model, server), lacking(server, model));
    let same = only_model.is_empty() && only_server.is_empty() && model.len() == server.len();
    (!same).then(|| format!("\nthe model  {}\nthe server {}", all(&only_model), all(&only_server)))
}

fn all(lines: &[Line]) -> String {
    let texts: Vec<String> = lines.iter().map(|line| format!("{} {:?}", line.text, line.times)).collect();
    if texts.is_empty() { "has nothing else".to_owned() } else { texts.join("\n           ") }
}

/// What an answer says.
pub(super) fn answer(reply: &Reply) -> Vec<Line> {
    match reply {
        Reply::Exchange { settled, claim } => {
            let settled = settled.iter().map(|(id, answer)| plain(format!("settled {id} {answer:?}")));
            settled.chain(claim.iter().flat_map(claimed)).collect()
        }
        Reply::Stale(rows) => rows.iter().map(|row| plain(format!("{row:?}"))).collect(),
        Reply::Recovered(rows) => rows.iter().map(|row| plain(format!("{row:?}"))).collect(),
        Reply::Promoted { promoted, more_due, next_due } => {
            vec![line(format!("promoted {promoted}, more due: {more_due}, next: {}", next_due.is_some()), *next_due)]
        }
        Reply::Survey(seen) => vec![surveyed(*seen)],
        Reply::Renewed(rows) => rows.iter().map(|(id, asked)| plain(format!("renewed {id}, asked: {asked}"))).collect(),
        Reply::Held(rows) => rows.iter().map(|(id, done)| plain(format!("held {id}, completed: {done}"))).collect(),
        Reply::Enqueued(ids) => {
            let one =
                |(nth, it): (usize, &NewId)| line(format!("new {nth}: {} {}", it.id, it.due_in.is_some()), it.due_in);
            ids.iter().enumerate().map(one).collect()
        }
        Reply::Keyed(answers) => answers.iter().enumerate().map(|(nth, it)| keyed(nth, it)).collect(),
        Reply::Reserved(numbers) => vec![plain(format!("reserved {:?}", numbers.ids))],
        Reply::Inquiry(finding) => found(finding),
        Reply::Checkpointed(_) | Reply::Completed(_) | Reply::Changed(_) | Reply::Done => {
            vec![plain(format!("{reply:?}"))]
        }
        Reply::History(_) | Reply::Version { .. } | Reply::Notified(_) => panic!("not compared: {reply:?}"),
    }
}

fn claimed(reply: &ClaimReply) -> Vec<Line> {
    let one = |(nth, job): (usize, &ClaimedJob)| {
        let ClaimedJob { id, kind, priority, failure_count, payload, carry, trace, .. } = job;
        let text =
            format!("claimed {nth}: {id} {kind} {priority:?} failures {failure_count} {payload} {carry:?} {trace:?}");
        line(text, [since_1970(job.created_at), since_1970(job.visible_at)])
    };
    let ClaimReply { malformed, looked, stale, looked_for, .. } = reply;
    let rest = format!("looked at {looked}, stale: {stale}, timed: {}, malformed: {malformed:?}", looked_for.is_some());
    reply.jobs.iter().enumerate().map(one).chain([plain(rest)]).collect()
}

fn surveyed(seen: SurveyReply) -> Line {
    let SurveyReply { ready, due, stale, next_due, next_expiry } = seen;
    let (has_due, has_expiry) = (next_due.is_some(), next_expiry.is_some());
    let text = format!("ready: {ready}, due: {due}, stale: {stale}, next due: {has_due}, next expiry: {has_expiry}");
    line(text, next_due.into_iter().chain(next_expiry))
}

fn keyed(nth: usize, answer: &KeyedAnswer) -> Line {
    match answer {
        KeyedAnswer::Stored { id, effect, due_in, wakes } => {
            line(format!("{nth}: {id} {effect:?}, wakes: {wakes}"), [*due_in])
        }
        // Versions are each server's own.
        KeyedAnswer::Changed(Some(Candidate { id, found: Ok(found), .. })) => {
            let Found { payload, carry, priority, run_count, failure_count, .. } = found;
            let text =
                format!("{nth}: {id} {payload} {carry:?} {priority:?} runs {run_count} failures {failure_count}");
            line(text, [since_1970(found.created_at), since_1970(found.visible_at)])
        }
        KeyedAnswer::Changed(_) | KeyedAnswer::Busy => plain(format!("{nth}: {answer:?}")),
    }
}

fn found(finding: &Finding) -> Vec<Line> {
    match finding {
        Finding::Cancelled(answers) => answers.iter().map(|(id, it)| plain(format!("{id} {it:?}"))).collect(),
        Finding::Requeued(answers) => answers.iter().map(|(id, it)| plain(format!("{id} {it:?}"))).collect(),
        Finding::Switched(changed) => vec![plain(format!("changed: {changed}"))],
        Finding::Deleted(Deleted { jobs, reached }) => vec![line(format!("deleted {jobs}"), *reached)],
        Finding::Cancellations(runs) => runs.iter().map(|id| plain(format!("asked to end: {id}"))).collect(),
        other => panic!("not compared: {other:?}"),
    }
}

fn since_1970(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// One row for each line. Of a payload the beginning and the length.
pub(super) const TABLES: &str = "\
    SELECT format('job %s %s %s priority %s runs %s failures %s key %s payload %s %s carry %s trace %s asked %s', j.id, j.kind, \
             coalesce(CASE l.state WHEN 0 THEN 'ready' WHEN 1 THEN 'scheduled' WHEN 2 THEN 'claimed by ' || j.claimed_by END, \
                      j.status), \
             j.priority, j.run_count, j.failure_count, coalesce(j.dedup_key, '-'), left(j.payload::text, 8), \
             octet_length(j.payload::text), coalesce(j.carry::text, '-'), coalesce(j.trace, '-'), j.cancel_requested_at IS NOT NULL), \
           array_remove(ARRAY[extract(epoch FROM j.created_at), extract(epoch FROM j.visible_at), \
             extract(epoch FROM coalesce(j.claim_expires_at, j.finished_at))], NULL)::float8[] \
    FROM {schema}.jobs j LEFT JOIN {schema}.live l ON l.id = j.id \
    UNION ALL \
    SELECT format('entry of %s run %s: %s by %s', job_id, run_no, event, coalesce(claimed_by, '-')), '{}' \
    FROM {schema}.journal_entries \
    UNION ALL SELECT format('apart: %s', job_id), '{}' FROM {schema}.payload \
    UNION ALL SELECT format('paused: %s', kind), '{}' FROM {schema}.kind_state WHERE paused_at IS NOT NULL \
    UNION ALL SELECT '', ARRAY[extract(epoch FROM clock_timestamp())::float8]";

/// Larger payloads lie apart.
const INLINE: usize = 1_024;

/// What the model's tables hold.
pub(super) fn tables(model: &Server) -> Vec<Line> {
    let live = model.live.iter().map(|(id, row)| live_job(*id, row));
    let finished = model.finished.iter().map(|(id, (row, how))| job(*id, row, how, false, Some(row.ended)));
    let ends = model.journal.iter().map(|it| (it.id.job, it.id.run, it.what, it.by.as_str()));
    let events = model.events.iter().map(|(id, runs, what)| (*id, *runs, *what, "-"));
    let entries = ends.chain(events).filter(|(id, ..)| !model.discarded.contains(id));
    let entries = entries.map(|(id, run, what, by)| plain(format!("entry of {id} run {run}: {what} by {by}")));
    let rows = model.live.iter().chain(model.finished.iter().map(|(id, (row, _))| (id, row)));
    let apart = rows.filter(|(_, row)| row.payload.len() > INLINE).map(|(id, _)| plain(format!("apart: {id}")));
    let paused = model.paused_kinds.iter().map(|kind| plain(format!("paused: {kind}")));
    live.chain(finished).chain(entries).chain(apart).chain(paused).collect()
}

fn live_job(id: i64, row: &ModelRow) -> Line {
    let (state, expires) = match &row.state {
        State::Ready => ("ready".to_owned(), None),
        State::Scheduled => ("scheduled".to_owned(), None),
        State::Claimed { by, expires } => (format!("claimed by {by}"), Some(*expires)),
    };
    job(id, row, &state, row.cancel_requested, expires)
}

fn job(id: i64, row: &ModelRow, state: &str, asked: bool, until: Option<Duration>) -> Line {
    let ModelRow { kind, priority, run_count, failures, payload, carry, key, trace, .. } = row;
    let [key, carry, trace] = [key, carry, trace].map(|it| it.as_deref().unwrap_or("-"));
    let (start, length, priority) = (&payload[..8], payload.len(), priority.code());
    let asked = if asked { "t" } else { "f" };
    let text = format!(
        "job {id} {kind} {state} priority {priority} runs {run_count} failures {failures} key {key} \
         payload {start} {length} carry {carry} trace {trace} asked {asked}"
    );
    line(text, [row.created, row.visible].into_iter().chain(until).map(|at| at.as_secs_f64()))
}

/// What an answer is an example of.
pub(super) fn sorts(reply: &Reply) -> Vec<&'static str> {
    match reply {
        Reply::Exchange { settled, claim } => {
            let jobs = claim.iter().flat_map(|claim| &claim.jobs).map(|_| "claimed");
            settled.iter().map(|(_, answer)| settled_sort(*answer)).chain(jobs).collect()
        }
        Reply::Completed(answer) => match answer {
            Settled::Accepted => vec!["completed by the run"],
            Settled::Completed => vec!["completed by the run before"],
            _ => vec!["no completion by the run"],
        },
        Reply::Keyed(answers) => answers.iter().map(keyed_sort).collect(),
        Reply::Inquiry(Finding::Cancelled(answers)) => answers.iter().map(|(_, it)| cancel_sort(*it)).collect(),
        Reply::Inquiry(Finding::Requeued(answers)) => answers.iter().map(|(_, it)| requeue_sort(it)).collect(),
        Reply::Inquiry(Finding::Deleted(Deleted { jobs: 1.., .. })) => vec!["deleted"],
        Reply::Inquiry(Finding::Cancellations(runs)) => runs.iter().map(|_| "found asked to end").collect(),
        Reply::Recovered(rows) => rows.iter().map(|row| recovered_sort(row.status)).collect(),
        Reply::Renewed(rows) => {
            rows.iter().map(|(_, asked)| if *asked { "renewed, asked to end" } else { "renewed" }).collect()
        }
        Reply::Held(rows) => rows.iter().map(|(_, done)| if *done { "held, completed" } else { "held" }).collect(),
        Reply::Promoted { promoted: 1.., more_due, .. } => {
            vec![if *more_due { "promoted some" } else { "promoted all" }]
        }
        Reply::Checkpointed(stored) => vec![if *stored { "checkpoint" } else { "checkpoint refused" }],
        Reply::Survey(SurveyReply { stale: true, .. }) => vec!["stale in a survey"],
        _ => Vec::new(),
    }
}

fn recovered_sort(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Pending => "recovered",
        JobStatus::Dead => "dead when it was recovered",
        _ => "cancelled when it was recovered",
    }
}

fn settled_sort(answer: Settled) -> &'static str {
    match answer {
        Settled::Accepted => "accepted",
        Settled::Refused => "refused",
        Settled::Busy => "busy",
        Settled::Landed => "landed",
        Settled::Completed => "overruled",
        Settled::Cancelled => "cancelled by its run",
    }
}

fn keyed_sort(answer: &KeyedAnswer) -> &'static str {
    match answer {
        KeyedAnswer::Stored { effect: crate::Effect::Inserted, .. } => "inserted with a key",
        KeyedAnswer::Stored { effect: crate::Effect::Kept, .. } => "kept",
        KeyedAnswer::Stored { effect: crate::Effect::Replaced, .. } => "replaced",
        KeyedAnswer::Stored { effect: crate::Effect::Merged, .. } => "merged",
        KeyedAnswer::Changed(Some(_)) => "another candidate",
        KeyedAnswer::Changed(None) => "no candidate any more",
        KeyedAnswer::Busy => "busy candidate",
    }
}

fn cancel_sort(answer: CancelAnswer) -> &'static str {
    match answer {
        CancelAnswer::Cancelled => "cancelled",
        CancelAnswer::Requested => "asked to end",
        CancelAnswer::Finished => "finished before it was cancelled",
        CancelAnswer::NotThere => "cancelled, not there",
        CancelAnswer::Busy => "cancelled, busy",
        CancelAnswer::NotTouched => "cancelled, not touched",
    }
}

fn requeue_sort(answer: &RequeueAnswer) -> &'static str {
    match answer {
        RequeueAnswer::Requeued(_) => "requeued",
        RequeueAnswer::NotFinished => "requeued, not finished",
        RequeueAnswer::NotThere => "requeued, not there",
        RequeueAnswer::Conflict(_) => "requeued, conflict",
        RequeueAnswer::Busy => "requeued, busy",
        RequeueAnswer::NotTouched => "requeued, not touched",
    }
}

//! A job by the name of its kind.

use std::fs;
use std::io::{self, Read};

use serde_json::json;
use venturi::blocking::Queue;
use venturi::{Effect, RawJob};

use crate::args::Enqueue;
use crate::failure::Failure;
use crate::out::print;

pub(crate) fn enqueue(queue: &Queue, it: &Enqueue, as_json: bool) -> Result<(), Failure> {
    let stored = queue.enqueue_raw(job(it)?)?;
    let said = match stored.effect {
        Effect::Kept => format!("job {} is pending with this key, and was kept", stored.id),
        Effect::Replaced => format!("job {} was pending with this key, and is replaced", stored.id),
        _ => format!("job {}", stored.id),
    };
    print(as_json, || json!({ "id": stored.id.get(), "effect": stored.effect.as_str() }), || said)
}

fn job(it: &Enqueue) -> Result<RawJob, Failure> {
    let job = RawJob::new(&it.kind, payload(&it.payload)?)?.priority(it.priority.into());
    let job = it.delay.iter().fold(job, |job, delay| job.delay(*delay));
    let job = it.due_at.iter().fold(job, |job, instant| job.due_at(*instant));
    let job = job.trace(it.trace.as_deref())?;
    match &it.key {
        Some(key) => Ok(job.dedup_key(key.as_str())?.on_duplicate(it.on_duplicate.into())),
        None => Ok(job),
    }
}

/// No JSON text begins with `@` or is `-`.
fn payload(given: &str) -> Result<String, Failure> {
    let unread = |error: io::Error| Failure::Usage(format!("the payload cannot be read: {given}: {error}"));
    let text = if let Some(file) = given.strip_prefix('@') {
        fs::read_to_string(file).map_err(unread)?
    } else if given == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(unread)?;
        text
    } else {
        given.to_owned()
    };
    Ok(text.trim().to_owned())
}

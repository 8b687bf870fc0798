//! A job by the name of its kind.

use std::fs::File;
use std::io::{self, Read};

use serde_json::json;
use venturi::blocking::Queue;
use venturi::{Effect, RawJob};

use crate::args::Enqueue;
use crate::failure::Failure;
use crate::out::print;

/// Bytes of a payload that a queue takes unless it is told otherwise, and this command tells it nothing.
const MOST: u64 = 1_000_000;

/// Bytes of white space around it that are read, too: they are not stored.
const AROUND: u64 = 1_000;

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
    let read = if let Some(file) = given.strip_prefix('@') {
        File::open(file).and_then(beginning)
    } else if given == "-" {
        beginning(io::stdin().lock())
    } else {
        return Ok(given.trim().to_owned());
    };
    let bytes = read.map_err(unread)?;
    if bytes.len() as u64 > MOST + AROUND {
        let what = format!("the payload is too large: {given}: at most {MOST} bytes are stored");
        return Err(Failure::Usage(format!("{what}; store the data elsewhere and enqueue its name")));
    }
    let text = String::from_utf8(bytes).map_err(|error| unread(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    Ok(text.trim().to_owned())
}

/// As much as shows whether there is too much: what is read there may have no end.
fn beginning(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST + AROUND + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

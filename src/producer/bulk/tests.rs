//! Batches of tasks from iterators that are long, large, or broken.

use std::borrow::Cow;
use std::cell::Cell;
use std::iter;

use serde::{Deserialize, Serialize, Serializer};

use super::*;
use crate::DedupKey;

#[derive(Deserialize)]
struct Text(usize);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, 13, "unlucky");
        serializer.serialize_str(&"x".repeat(self.0 - 2))
    }
}

impl Task for Text {
    const KIND: &'static str = "text";
    type Carry = ();
}

const MB: usize = 1_000_000;

/// The sizes of the batches, when all goes well.
fn lengths(payloads: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut bulk = Bulk::new(payloads.into_iter().map(Text), 100 * MB);
    let mut lengths = Vec::new();
    while let Some(asked) = next_batch(&mut bulk) {
        lengths.push(asked);
        bulk.answered([stored(asked)]);
    }
    assert_eq!(bulk.finish().unwrap().len(), lengths.iter().sum::<usize>());
    lengths
}

/// How many rows are asked for.
fn next_batch(bulk: &mut Bulk<'static, Text, impl Iterator<Item = Text>>) -> Option<usize> {
    let requests = bulk.ask()?;
    let [Request::Enqueue(rows)] = &requests[..] else { panic!("{requests:?}") };
    Some(rows.len())
}

fn stored(count: usize) -> Result<Response, Error> {
    Ok(Response::Enqueued(vec![1; count]))
}

#[test]
fn a_batch_is_bounded_in_rows_and_in_bytes() {
    assert_eq!(lengths(vec![2; 25_000]), [10_000, 10_000, 5_000]);
    assert_eq!(lengths([MB; 17]), [8, 8, 1]);
    assert_eq!(lengths([MAX_BYTES, 2, MAX_BYTES + 1, 2]), [1, 1, 1, 1]);
    assert!(lengths([]).is_empty());
}

#[test]
fn an_iterator_is_pulled_no_further_than_the_next_batch() {
    let pulled = Cell::new(0);
    let mut bulk = Bulk::new((0..1_000_000).map(|_| Text(2)).inspect(|_| pulled.set(pulled.get() + 1)), MB);
    for nth in 1..=3 {
        assert_eq!(next_batch(&mut bulk), Some(MAX_BATCH));
        for _ in 0..2 {
            bulk.look_ahead();
            assert_eq!(pulled.get(), (nth + 1) * MAX_BATCH);
        }
        bulk.answered([stored(MAX_BATCH)]);
    }
}

#[test]
fn a_task_that_cannot_be_stored_keeps_its_batch_from_being_stored() {
    for (broken, why) in [(13, "unlucky"), (2 * MB, "at most 1000000")] {
        let mut bulk = Bulk::new([2, 2, broken, 2].map(Text), MB);
        assert!(bulk.ask().is_none());
        let error = bulk.finish().unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Payload, false));
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(error.partial().unwrap(), &Partial { enqueued: Vec::new(), in_doubt: 0 });
    }
}

#[test]
fn a_panic_of_the_iterator_is_an_error_that_says_what_is_stored() {
    let tasks = (0..2 * MAX_BATCH).map(|nth| if nth < MAX_BATCH + 5 { Text(2) } else { panic!("no more") });
    let mut bulk = Bulk::new(tasks, MB);
    let first = next_batch(&mut bulk).unwrap();
    bulk.look_ahead();
    bulk.answered([stored(first)]);
    assert!(bulk.ask().is_none(), "what has panicked is not asked again");
    let error = bulk.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Partly);
    assert_eq!(error.partial().map(|it| (it.enqueued.len(), it.in_doubt)), Some((MAX_BATCH, 0)));
    let text = error.to_string();
    assert!(text.starts_with("the first 10000 jobs are enqueued, none after them is: ") && text.contains("no more"));
}

#[test]
fn the_first_failure_counts_and_says_what_is_in_doubt() {
    let fail = |kind| Err(Error::new(kind, "cut"));
    for (kind, in_doubt) in [(ErrorKind::NotEnqueued, 0), (ErrorKind::Unknown, MAX_BATCH)] {
        let mut bulk = Bulk::new((0..3 * MAX_BATCH).map(|nth| Text(if nth == 2 * MAX_BATCH { 13 } else { 2 })), MB);
        bulk.ask().unwrap();
        bulk.look_ahead();
        bulk.answered([stored(MAX_BATCH)]);
        bulk.ask().unwrap();
        bulk.look_ahead();
        assert!(bulk.next.is_none(), "the third cannot be written");
        bulk.answered([fail(kind)]);
        assert!(bulk.ask().is_none());
        let error = bulk.finish().unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Partly, false));
        assert_eq!(error.partial().map(|it| (it.enqueued.len(), it.in_doubt)), Some((MAX_BATCH, in_doubt)));
        let source = std::error::Error::source(&error).unwrap().downcast_ref::<Error>().unwrap();
        assert_eq!(source.kind(), kind);
    }
}

#[test]
fn a_first_batch_that_was_not_stored_can_be_tried_again() {
    let mut bulk = Bulk::new([2].map(Text), MB);
    bulk.ask().unwrap();
    bulk.answered([Err(Error::new(ErrorKind::NotEnqueued, "no"))]);
    let error = bulk.finish().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::NotEnqueued, true));
}

/// Has its own text as its key; panics when it is dropped.
#[derive(Deserialize, Serialize)]
struct Brittle(String);

impl Task for Brittle {
    const KIND: &'static str = "brittle";
    type Carry = ();

    fn dedup_key(&self) -> Option<DedupKey> {
        (!self.0.is_empty()).then(|| self.0.as_str().into())
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        panic!("dropping {}", self.0);
    }
}

#[test]
fn tasks_that_panic_when_dropped_do_not_end_the_process_when_something_else_fails() {
    let keyed = || ["a", "b", "c"].map(|key| Brittle(key.to_owned()));
    let mut panics = Bulk::new(keyed().into_iter().chain(iter::once_with(|| panic!("no more"))), MB);
    assert!(panics.ask().is_none());
    assert!(panics.finish().unwrap_err().to_string().contains("no more"));

    let keys = ["a", "b", "\n"];
    let mut misnamed =
        Bulk::new(keyed().into_iter().zip(keys).map(|(task, key)| Submit::from(task).dedup_key(key)), MB);
    assert!(misnamed.ask().is_none());
    assert_eq!(misnamed.finish().unwrap_err().kind(), ErrorKind::DedupKey);

    let mut refused = Bulk::new(keyed(), MB);
    refused.ask().unwrap();
    refused.look_ahead();
    refused.answered((0..3).map(|_| Err(Error::new(ErrorKind::NotEnqueued, "no"))));
    assert_eq!(refused.finish().unwrap_err().kind(), ErrorKind::NotEnqueued);
}

/// With a key, if it has a text.
#[derive(Deserialize, Serialize)]
struct Note(Cow<'static, str>);

impl Task for Note {
    const KIND: &'static str = "note";
    type Carry = ();

    fn dedup_key(&self) -> Option<DedupKey> {
        (!self.0.is_empty()).then(|| self.0.as_ref().into())
    }
}

#[test]
fn a_keyed_task_that_fails_beside_others_that_are_stored_is_no_reason_to_try_again() {
    for kind in [ErrorKind::Contended, ErrorKind::Merge, ErrorKind::NotEnqueued] {
        let mut bulk = Bulk::new(["held", "", "", "", ""].map(|text| Note(text.into())), MB);
        assert_eq!(bulk.ask().unwrap().len(), 2);
        bulk.answered([stored(4), Err(Error::new(kind, "the job was not enqueued: why"))]);
        assert!(bulk.ask().is_none());
        let error = bulk.finish().unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Partly, false));
        assert_eq!(error.partial().map(|it| (it.enqueued.len(), it.in_doubt)), Some((0, 5)));
        assert!(error.to_string().starts_with("some of the first 5 jobs may be enqueued"), "{error}");
    }
}

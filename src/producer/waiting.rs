//! The calls that wait, oldest first, and how much they hold.
#![deny(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::time::Instant;

use super::call::{Call, Request};

/// Bytes that a job holds besides its payload, and that a call holds besides its jobs, roughly.
const JOB: usize = 200;

/// All wait equally long, so the oldest is also the first whose time is over.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    calls: VecDeque<Call>,
    bytes: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// How much they hold.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, call: Call) {
        self.bytes += weight(&call.request);
        self.calls.push_back(call);
    }

    /// For a call that waited before.
    pub(super) fn push_first(&mut self, call: Call) {
        self.bytes += weight(&call.request);
        self.calls.push_front(call);
    }

    pub(super) fn first(&self) -> Option<&Call> {
        self.calls.front()
    }

    pub(super) fn pop(&mut self) -> Option<Call> {
        let call = self.calls.pop_front()?;
        self.bytes -= weight(&call.request);
        Some(call)
    }

    /// The next call whose time is over.
    pub(super) fn pop_late(&mut self, now: Instant) -> Option<Call> {
        if self.deadline()? > now {
            return None;
        }
        self.pop()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.first().map(|call| call.deadline)
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Call> {
        std::mem::take(self).calls
    }

    /// Takes those that only want to know whether the queue can be used.
    pub(super) fn take_probes(&mut self) -> Vec<Call> {
        let is_probe = |call: &Call| matches!(call.request, Request::Probe);
        let (probes, calls) = self.take_all().into_iter().partition(is_probe);
        let others: Vec<Call> = calls;
        others.into_iter().for_each(|call| self.push(call));
        probes
    }
}

pub(super) fn weight(request: &Request) -> usize {
    match request {
        Request::Enqueue(jobs) => JOB + jobs.bytes() + JOB * jobs.len(),
        Request::Keyed(call) => call.keyed.weight(),
        Request::Probe | Request::RecoverStale | Request::Inquire(_) => JOB,
    }
}

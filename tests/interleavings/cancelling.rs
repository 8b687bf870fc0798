//! Tokens that are cancelled while others wait for them, are born from them, or let them go.

use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread::spawn;

use super::in_many_orders;
use crate::CancellationToken;
use crate::cancellation::CancelReason;

#[test]
fn whoever_waits_hears_of_it() {
    in_many_orders(|| {
        let token = CancellationToken::new();
        let (thread, future) = (token.clone(), token.child_token());
        let thread = spawn(move || thread.wait());
        let future = spawn(move || block_on(future.cancelled()));
        token.cancel();
        thread.join().unwrap();
        future.join().unwrap();
    });
}

#[test]
fn a_child_that_is_born_meanwhile_is_cancelled_too() {
    in_many_orders(|| {
        let token = CancellationToken::new();
        let parent = token.clone();
        let family = spawn(move || {
            let child = parent.child_token();
            let grandchild = child.child_token();
            grandchild.wait();
            child.wait();
            assert_eq!(grandchild.reason(), child.reason());
        });
        token.cancel_because(CancelReason::Requested);
        family.join().unwrap();
    });
}

#[test]
fn a_hook_is_called_once_by_whoever_comes_last() {
    in_many_orders(|| {
        let token = CancellationToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let (other, counted) = (token.clone(), Arc::clone(&calls));
        let hooking = spawn(move || other.on_cancel(Box::new(move || _ = counted.fetch_add(1, Ordering::SeqCst))));
        let again = token.clone();
        let again = spawn(move || again.cancel_because(CancelReason::TimedOut));
        token.cancel();
        let hook = hooking.join().unwrap();
        again.join().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop(hook);
    });
}

#[test]
fn a_hook_that_is_taken_back_is_called_at_most_once() {
    in_many_orders(|| {
        let token = CancellationToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let (counted, held) = (Arc::clone(&calls), token.clone());
        let hook = token.on_cancel(Box::new(move || {
            // It may use the token that calls it.
            assert!(held.is_cancelled());
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        let back = spawn(move || drop(hook));
        token.cancel();
        back.join().unwrap();
        assert!(calls.load(Ordering::SeqCst) <= 1);
    });
}

#[test]
fn a_family_may_fall_apart_while_it_is_cancelled() {
    in_many_orders(|| {
        let token = CancellationToken::new();
        let child = token.child_token();
        let grandchild = child.child_token();
        let leaving = spawn(move || drop(child));
        let cancelling = spawn(move || {
            token.cancel();
            drop(token);
        });
        grandchild.wait();
        drop(grandchild);
        leaving.join().unwrap();
        cancelling.join().unwrap();
    });
}

#[test]
fn the_first_reason_stays_for_everybody() {
    in_many_orders(|| {
        let token = CancellationToken::new();
        let (one, two) = (token.clone(), token.clone());
        let one = spawn(move || {
            one.cancel_because(CancelReason::ClaimLost);
            one.reason()
        });
        let two = spawn(move || {
            two.cancel_because(CancelReason::Requested);
            two.reason()
        });
        let reason = one.join().unwrap();
        assert!(reason.is_some());
        assert_eq!((two.join().unwrap(), token.reason()), (reason, reason));
    });
}

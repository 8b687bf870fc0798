use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::future::block_on;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{Config, NoTls};

use super::*;
use crate::statement::{Attempts, SESSION};

/// A server that says one thing to whoever connects, and hangs up.
struct Server {
    says: Vec<u8>,
    breaks: bool,
}

impl AsyncRead for Server {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.breaks {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buf.put_slice(&std::mem::take(&mut self.says));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Server {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn hear(says: Vec<u8>, breaks: bool) -> Fault {
    let mut config = Config::new();
    config.user("worker");
    let error = block_on(config.connect_raw(Server { says, breaks }, NoTls)).map(drop).unwrap_err();
    Fault::from_postgres(error)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

fn refusal(severity: &str, code: &str, text: &str) -> Fault {
    let body = format!("S{severity}\0V{severity}\0C{code}\0M{text}\0DFailing row contains (secret).\0\0");
    hear(message(b'E', body.as_bytes()), false)
}

fn error(code: &str) -> (FaultKind, OutcomeKnown) {
    let fault = refusal("ERROR", code, "no");
    assert_eq!(fault.code.as_ref().map(SqlState::code), Some(code));
    (fault.kind, fault.outcome)
}

fn fatal(code: &str) -> (FaultKind, OutcomeKnown) {
    let fault = refusal("FATAL", code, "no");
    (fault.kind, fault.outcome)
}

use FaultKind::{Fatal, Link, Statement, Transient};
use OutcomeKnown::{NotDone, Unknown};

#[test]
fn what_the_server_refuses_for_now_is_transient() {
    for code in ["40001", "40P01", "55P03", "57014", "53100", "53200", "53400", "58030"] {
        assert_eq!(error(code), (Transient, NotDone), "{code}");
    }
}

#[test]
fn what_the_statement_contains_is_the_statements_fault() {
    for code in
        ["22021", "22P02", "23505", "23514", "42601", "42883", "42703", "P0001", "54000", "XX000", "0A000", "ZZZZZ"]
    {
        assert_eq!(error(code), (Statement, NotDone), "{code}");
    }
}

#[test]
fn what_no_waiting_mends_is_fatal() {
    assert_eq!(fatal("28P01"), (Fatal(ErrorKind::Authentication), NotDone));
    assert_eq!(fatal("28000"), (Fatal(ErrorKind::Authentication), NotDone));
    assert_eq!(fatal("3D000"), (Fatal(ErrorKind::Config), NotDone));
    assert_eq!(error("3F000"), (Fatal(ErrorKind::SchemaMissing), NotDone));
    assert_eq!(error("42P01"), (Fatal(ErrorKind::SchemaMissing), NotDone));
    assert_eq!(error("42501"), (Fatal(ErrorKind::Permission), NotDone));
}

#[test]
fn a_session_that_the_server_ended_leaves_the_outcome_unknown() {
    for code in ["57P01", "57P02", "57P05", "25P03", "XX000", "58030"] {
        assert_eq!(fatal(code), (Link, Unknown), "{code}");
    }
    for code in ["08006", "08P01", "40003"] {
        assert_eq!(error(code), (Link, Unknown), "{code}");
    }
}

#[test]
fn a_server_that_takes_no_sessions_has_done_nothing() {
    assert_eq!(fatal("57P03"), (Link, NotDone));
    assert_eq!(fatal("53300"), (Link, NotDone));
}

#[test]
fn what_only_a_new_connection_mends_is_the_links_fault() {
    assert_eq!(error("26000"), (Link, NotDone));
    assert_eq!(error("25P02"), (Link, NotDone));
    let plan = refusal("ERROR", "0A000", "cached plan must not change result type");
    assert_eq!((plan.kind, plan.outcome), (Link, NotDone));
}

#[test]
fn what_a_pooler_mixes_up_is_the_links_fault_and_says_what_to_do() {
    for code in ["26000", "42P05"] {
        let fault = refusal("ERROR", code, "prepared statement \"s0\"");
        assert_eq!((fault.kind, fault.outcome), (Link, NotDone), "{code}");
        assert!(fault.message.contains("set `Database::pooled(true)`"), "{}", fault.message);
    }
}

#[test]
fn what_a_pooler_refuses_at_the_log_in_is_fatal_whatever_its_code() {
    let fault = refusal("FATAL", "08P01", "unsupported startup parameter: options");
    assert_eq!(fault.kind, Fatal(ErrorKind::Config));
    assert!(fault.message.contains("leave that option out"), "{}", fault.message);
    assert_eq!(refusal("FATAL", "08P01", "no such database: x").kind, Fatal(ErrorKind::Config));
    let failed = refusal("FATAL", "08P01", "password authentication failed");
    assert_eq!(failed.kind, Fatal(ErrorKind::Authentication));
    assert_eq!(refusal("FATAL", "08P01", "query_wait_timeout").kind, Link);
}

#[test]
fn a_standby_is_known_by_its_refusal_of_a_transaction_that_writes() {
    let fault = refusal("ERROR", "0A000", "cannot set transaction read-write mode during recovery");
    assert_eq!((fault.kind, fault.outcome), (Link, NotDone));
    assert_eq!(fault.to_error("connecting").kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_server_that_became_a_standby_is_left_for_the_primary() {
    let fault = refusal("ERROR", "25006", "cannot execute UPDATE in a read-only transaction");
    assert_eq!((fault.kind, fault.outcome), (Link, NotDone));
    let error = fault.to_error("claiming jobs");
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.is_retryable());
}

#[test]
fn a_connection_that_breaks_or_closes_leaves_the_outcome_unknown() {
    let broken = hear(Vec::new(), true);
    assert_eq!((broken.kind, broken.outcome), (Link, Unknown));
    assert!(broken.message.contains("connection reset"), "{}", broken.message);
    let closed = hear(Vec::new(), false);
    assert_eq!((closed.kind, closed.outcome), (Link, Unknown));
}

#[test]
fn an_answer_that_makes_no_sense_is_the_links_fault() {
    let fault = hear(message(b'Z', b"I"), false);
    assert_eq!((fault.kind, fault.outcome), (Link, Unknown));
    let fault = Fault::malformed("no such column");
    assert_eq!((fault.kind, fault.outcome), (Link, Unknown));
}

#[test]
fn a_client_that_cannot_log_in_is_told_at_once() {
    // AuthenticationCleartextPassword, and the configuration has no password.
    let fault = hear(message(b'R', &3_u32.to_be_bytes()), false);
    assert!(matches!(fault.kind, Fatal(ErrorKind::Config | ErrorKind::Authentication)), "{fault:?}");
}

#[test]
fn the_clients_own_errors_are_told_apart() {
    assert_eq!(broken("error serializing parameter 3"), (Statement, NotDone));
    assert_eq!(broken("expected 2 parameters but got 1"), (Statement, NotDone));
    assert_eq!(broken("error deserializing column 1"), (Link, Unknown));
    assert_eq!(broken("error connecting to server"), (Link, NotDone));
    assert_eq!(broken("connection closed"), (Link, Unknown));
}

#[test]
fn a_fault_without_a_server_knows_whether_it_was_sent() {
    assert_eq!(Fault::link("refused").outcome, Unknown);
    assert_eq!(Fault::link("refused").not_sent().outcome, NotDone);
    assert_eq!(Fault::deadline().to_error("claiming jobs").kind(), ErrorKind::Unavailable);
}

#[test]
fn an_error_says_what_was_done_and_why_it_failed_but_not_the_rows_values() {
    let error = refusal("ERROR", "23505", "duplicate key").to_error("enqueueing a job");
    assert_eq!(error.to_string(), "enqueueing a job: duplicate key (SQLSTATE 23505)");
    assert_eq!(error.kind(), ErrorKind::Database);
    let source = error.source().unwrap().downcast_ref::<tokio_postgres::Error>().unwrap();
    assert_eq!(source.code(), Some(&SqlState::UNIQUE_VIOLATION));
    let missing = refusal("ERROR", "42P01", "relation \"live\" does not exist").to_error("claiming jobs");
    assert_eq!(missing.kind(), ErrorKind::SchemaMissing);
    assert!(
        missing
            .to_string()
            .ends_with("run `migrate`, which makes what is missing or says why not, and check the schema's name")
    );
}

#[test]
fn a_transaction_that_takes_too_many_locks_is_told_what_to_do() {
    let error = refusal("ERROR", "53200", "out of shared memory").to_callers_error("enqueueing");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Database, false));
    let text = error.to_string();
    assert!(text.contains("enqueue fewer") && text.contains("max_locks_per_transaction"), "{text}");
}

fn of_kind(kind: FaultKind, message: &str) -> Fault {
    Fault { kind, ..Fault::link(message) }
}

#[test]
fn a_refusal_outweighs_a_server_that_is_away() {
    let refusal = of_kind(Fatal(ErrorKind::Authentication), "b: no");
    let away = || of_kind(Link, "a: away");
    let sum = Fault::weightiest(vec![away(), refusal, away()]);
    assert!(matches!(sum.kind, Fatal(ErrorKind::Authentication)));
    assert_eq!(sum.message, "a: away; b: no; a: away");
}

#[test]
fn a_standby_outweighs_a_server_that_is_away() {
    let sum = Fault::weightiest(vec![Fault::takes_no_writes(), of_kind(Link, "a: away")]);
    assert_eq!(sum.to_error("connecting").kind(), ErrorKind::ReadOnly);
    assert_eq!(Fault::weightiest(Vec::new()).to_error("connecting").kind(), ErrorKind::Unavailable);
}

#[test]
fn settings_that_were_cancelled_are_sent_again_until_it_has_been_tried_enough() {
    let cancelled = refusal("ERROR", "57014", "canceling statement due to statement timeout");
    let mut attempts = Attempts::new();
    let again: Vec<bool> = (0..6).map(|_| attempts.may_go_on(&cancelled)).collect();
    assert_eq!(again, [true, true, true, true, false, false]);
    assert!(!Attempts::new().may_go_on(&refusal("ERROR", "42501", "permission denied")));
    assert!(!Attempts::new().may_go_on(&Fault::link("cut")));
}

#[test]
fn no_setting_precedes_the_one_that_lifts_a_roles_own_time_out() {
    assert!(SESSION.starts_with("SET statement_timeout"));
}

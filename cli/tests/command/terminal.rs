//! What is asked and drawn on a terminal.

use rexpect::process::wait::WaitStatus;
use rexpect::session::{PtySession, spawn_command};

use super::place::Place;

const PATIENCE: Option<u64> = Some(30_000);

fn on_terminal(place: &Place, arguments: &[&str]) -> PtySession {
    let mut command = place.command(arguments);
    command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CI");
    spawn_command(command, PATIENCE).expect("a terminal")
}

fn code(session: PtySession) -> i32 {
    match session.process.wait() {
        Ok(WaitStatus::Exited(_, code)) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bulk_write_is_done_only_after_a_yes() {
    let place = Place::new("asked");
    place.add_dead();
    for answer in ["n", ""] {
        let mut session = on_terminal(&place, &["dead", "requeue"]);
        session.exp_string("Requeue all jobs that fit? [y/N]").expect("a question");
        session.send_line(answer).expect("an answer");
        session.exp_string("nothing was done").expect("a refusal");
        session.exp_eof().expect("the end");
        assert_eq!(code(session), 2, "{answer:?}");
    }
    assert_eq!(place.value::<i64>("SELECT count(*) FROM {schema}.live"), 0);
    let mut session = on_terminal(&place, &["dead", "requeue"]);
    session.exp_string("[y/N]").expect("a question");
    session.send_line("y").expect("an answer");
    session.exp_string("1 requeued").expect("what was done");
    session.exp_eof().expect("the end");
    assert_eq!(code(session), 0);
}

#[test]
fn a_cleanup_asks_with_the_number_and_shows_how_far_it_is() {
    let place = Place::new("bar");
    place.run(
        "INSERT INTO {schema}.finished (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, \
         kind, claimed_by, payload, finished_at) \
         SELECT i, now(), now(), 1, 0, 1, 3, 3, 'mail', 'ada', '1', now() - interval '8 days' \
         FROM generate_series(1, 1700) i",
    );
    let mut session = on_terminal(&place, &["cleanup", "--completed-older-than", "7d"]);
    session.exp_string("Delete 1700 finished jobs of these ages? [y/N]").expect("a question");
    session.send_line("y").expect("an answer");
    session.exp_string("/1700").expect("a bar");
    session.exp_string("deleted: 1700 completed, 0 cancelled, 0 dead").expect("what was done");
    session.exp_eof().expect("the end");
    assert_eq!(code(session), 0);
}

#[test]
fn a_watched_status_takes_the_place_of_the_one_before_until_it_is_interrupted() {
    let place = Place::new("watched");
    assert_eq!(place.venturi(&["enqueue", "mail"]).code, 0);
    let mut session = on_terminal(&place, &["status", "--watch", "--interval", "100ms"]);
    session.exp_string("mail").expect("the first showing");
    session.exp_string("\u{1b}[J").expect("its end");
    session.exp_string("\u{1b}[H").expect("the beginning of the next, at the top");
    assert_eq!(place.venturi(&["enqueue", "newer"]).code, 0);
    session.exp_string("newer").expect("what has changed");
    session.send_control('c').expect("an interruption");
    session.exp_eof().expect("the end");
}

#[test]
fn there_is_colour_on_a_terminal_only_and_not_where_it_is_unwanted() {
    let place = Place::new("colour");
    place.add_dead();
    let list = ["dead", "list"];
    assert!(!place.venturi(&list).out.contains('\u{1b}'), "there is no terminal");
    assert!(on_terminal(&place, &list).exp_eof().expect("the end").contains("\u{1b}["));
    let mut command = place.command(&list);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let shown = spawn_command(command, PATIENCE).and_then(|mut it| it.exp_eof()).expect("the end");
    assert!(shown.contains("mail") && !shown.contains("\u{1b}["), "{shown:?}");
}

//! Looking at jobs, and changing what becomes of them.

use super::place::Place;

#[test]
fn a_dead_job_is_listed_shown_requeued_and_cancelled() {
    let place = Place::new("dead");
    place.add_dead();
    let listed = place.venturi(&["dead", "list"]);
    assert!(listed.out.contains("mail") && listed.out.contains("red \\u{1b}[31m"), "{}", listed.out);
    assert_eq!(place.venturi(&["jobs", "list", "--status", "dead", "--json"]).json()[0]["id"], 7);
    assert_eq!(place.venturi(&["jobs", "list", "--status", "pending", "--json"]).json(), serde_json::json!([]));
    let shown = place.venturi(&["jobs", "show", "7", "--json"]).json();
    assert_eq!((&shown["job"]["payload"]["to"], &shown["journal"][0]["event"]), (&1.into(), &"dead".into()));
    assert!(!place.venturi(&["jobs", "show", "7"]).out.contains('\u{1b}'));
    assert_eq!(place.venturi(&["status", "--json"]).json()["kinds"][0]["dead"], 1);
    assert_eq!(place.venturi(&["dead", "requeue", "--yes"]).out, "1 requeued, 0 in conflict, 0 skipped\n");
    assert!(place.venturi(&["status"]).out.contains("mail"));
    assert_eq!(place.venturi(&["jobs", "cancel", "7"]).out, "cancelled\n");
    assert_eq!(place.venturi(&["jobs", "cancel", "7"]).code, 1);
    assert_eq!(place.venturi(&["jobs", "requeue", "7"]).out, "pending again\n");
    assert_eq!(place.venturi(&["jobs", "cancel", "--all", "--kind", "mail", "--yes"]).code, 0);
}

#[test]
fn many_jobs_are_written_only_when_somebody_says_yes() {
    let place = Place::new("consent");
    place.add_dead();
    let bulk: [&[&str]; 4] = [
        &["dead", "requeue"],
        &["jobs", "cancel", "--all"],
        &["jobs", "requeue", "--all"],
        &["cleanup", "--dead-older-than", "0s"],
    ];
    for arguments in bulk {
        let refused = place.venturi(arguments);
        assert!(refused.code == 2 && refused.err.contains("--yes"), "{arguments:?}: {}", refused.err);
    }
    assert_eq!(place.venturi(&["dead", "list", "--json"]).json()[0]["id"], 7, "nothing was done");
    let done = place.venturi(&["cleanup", "--dead-older-than", "0s", "--yes"]);
    assert_eq!(done.out, "deleted: 0 completed, 0 cancelled, 1 dead\n");
}

#[test]
fn of_all_jobs_the_dead_ones_are_requeued_unless_a_status_is_given() {
    let place = Place::new("which");
    place.add_dead();
    assert_eq!(place.venturi(&["enqueue", "mail"]).code, 0);
    assert_eq!(place.venturi(&["jobs", "cancel", "--all", "--status", "pending", "--yes"]).code, 0);
    let requeue = |more: &[&str]| place.venturi(&[&["jobs", "requeue", "--all", "--yes"], more].concat()).out;
    assert_eq!(requeue(&[]), "1 requeued, 0 in conflict, 0 skipped\n");
    assert_eq!(place.venturi(&["jobs", "list", "--status", "cancelled", "--json"]).json()[0]["kind"], "mail");
    assert_eq!(requeue(&["--status", "cancelled"]), "1 requeued, 0 in conflict, 0 skipped\n");
}

#[test]
fn kinds_are_paused_and_leases_that_ran_out_recovered() {
    let place = Place::new("kinds");
    assert_eq!(place.venturi(&["kinds", "pause", "mail"]).out, "paused\n");
    assert_eq!(place.venturi(&["status", "--json"]).json()["kinds"][0]["paused"], true);
    assert_eq!(place.venturi(&["kinds", "resume", "mail"]).out, "resumed\n");
    place.run(
        "INSERT INTO {schema}.live (kind, payload, state, run_count, claimed_by, claim_expires_at) \
         VALUES ('mail', '1', 2, 1, 'gone', now() - interval '1 minute')",
    );
    let workers = place.venturi(&["workers", "--json"]).json();
    assert_eq!((&workers[0]["worker"], &workers[0]["expired"]), (&"gone".into(), &1.into()));
    assert!(place.venturi(&["workers"]).out.contains("expired"));
    assert_eq!(place.venturi(&["recover"]).out, "1 pending again, 0 dead, 0 cancelled\n");
    assert_eq!(place.venturi(&["workers", "--json"]).json(), serde_json::json!([]));
}

#[test]
fn the_doctor_ends_with_three_when_it_finds_an_error() {
    let place = Place::new("doctor");
    place.run("DROP INDEX {schema}.live_ready");
    let found = place.venturi(&["doctor", "--json"]);
    assert_eq!(found.code, 3, "{}", found.out);
    assert_eq!(found.json()[0]["severity"], "error");
    assert!(place.venturi(&["doctor"]).out.contains("error index_missing: not there: live_ready"));
    let astray = place.venturi(&["doctor", "--listen-on", "host=127.0.0.1 port=1 user=nobody", "--json"]).json();
    assert!(astray.as_array().expect("a list").iter().any(|it| it["code"] == "listener_unreachable"), "{astray}");
}

#[test]
fn what_cannot_be_done_is_said_with_its_code() {
    let place = Place::empty("errors");
    let cases: [(&[&str], i32); 8] = [
        (&["status"], 1), // There are no tables.
        (&["nonsense"], 2),
        (&["jobs", "cancel"], 2),
        (&["jobs", "list", "--limit", "0"], 2),
        (&["status", "--watch", "--interval", "0s"], 2),
        (&["cleanup", "--completed-older-than", "long ago"], 2),
        (&["completions", "bash"], 0),
        (&["man"], 0),
    ];
    for (arguments, code) in cases {
        let ended = place.venturi(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
    }
    assert_eq!(place.venturi_at("postgres://127.0.0.1:1/nowhere?connect_timeout=1", &["status"]).code, 1);
    assert_eq!(place.venturi_at("host=localhost port=many", &["status"]).code, 2);
    assert_eq!(place.venturi(&["migrate"]).code, 0);
    assert_eq!(place.venturi(&["cleanup", "--yes"]).code, 2);
    let missing = place.venturi(&["jobs", "show", "12345"]);
    assert_eq!((missing.code, missing.err.as_str()), (1, "venturi: there is no job 12345\n"));
}

//! With `--json` every command answers in JSON, or says that it cannot.

use serde_json::{Value, json};

use super::place::Place;

fn answer(place: &Place, arguments: &[&str]) -> Value {
    let done = place.venturi(&[arguments, &["--json"]].concat());
    assert!(matches!(done.code, 0 | 3), "{arguments:?}: {} {}", done.code, done.err);
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", done.out))
}

#[test]
fn what_is_done_is_told_as_json_as_well() {
    let place = Place::empty("json");
    let made = answer(&place, &["migrate"]);
    assert_eq!(made["applied"][0], json!({"version": 1, "name": "create_queue"}));
    assert_eq!(answer(&place, &["migrate"]), json!({"version": made["version"], "applied": []}));
    place.add_dead();
    assert_eq!(answer(&place, &["jobs", "requeue", "7"]), json!({"id": 7, "outcome": "requeued"}));
    assert_eq!(answer(&place, &["jobs", "cancel", "7"]), json!({"id": 7, "outcome": "cancelled"}));
    let all = answer(&place, &["jobs", "requeue", "--all", "--status", "cancelled", "--yes"]);
    assert_eq!(all, json!({"requeued": 1, "conflicts": 0, "skipped": 0}));
    let all = answer(&place, &["jobs", "cancel", "--all", "--yes"]);
    assert_eq!(all, json!({"cancelled": 1, "requested": 0, "skipped": 0}));
    let none = json!({"requeued": 0, "conflicts": 0, "skipped": 0});
    assert_eq!(answer(&place, &["dead", "requeue", "--yes"]), none);
    let kind = |paused, changed| json!({"kind": "mail", "paused": paused, "changed": changed});
    assert_eq!(answer(&place, &["kinds", "pause", "mail"]), kind(true, true));
    assert_eq!(answer(&place, &["kinds", "pause", "mail"]), kind(true, false));
    assert_eq!(answer(&place, &["kinds", "resume", "mail"]), kind(false, true));
    let ages = ["cleanup", "--completed-older-than", "0s", "--cancelled-older-than", "0s", "--yes"];
    assert_eq!(answer(&place, &ages), json!({"completed": 0, "cancelled": 1, "dead": 0}));
    place.run(
        "INSERT INTO {schema}.live (kind, payload, state, run_count, claimed_by, claim_expires_at) \
         VALUES ('mail', '1', 2, 1, 'nobody', now() - interval '1 minute')",
    );
    assert_eq!(answer(&place, &["recover"]), json!({"pending": 1, "dead": 0, "cancelled": 0}));
}

#[test]
fn what_is_read_is_told_as_json() {
    let place = Place::new("reads");
    let id = answer(&place, &["enqueue", "mail"])["id"].to_string();
    let arrays: [&[&str]; 4] = [&["jobs", "list"], &["dead", "list"], &["workers"], &["doctor"]];
    for arguments in arrays {
        assert!(answer(&place, arguments).is_array(), "{arguments:?}");
    }
    let objects: [&[&str]; 3] = [&["status"], &["jobs", "show", &id], &["migrate", "--dry-run"]];
    for arguments in objects {
        assert!(answer(&place, arguments).is_object(), "{arguments:?}");
    }
}

#[test]
fn what_is_text_for_other_programs_is_not_asked_for_in_json() {
    let place = Place::empty("text");
    let texts: [&[&str]; 3] = [&["migrate", "--sql"], &["completions", "bash"], &["man"]];
    for arguments in texts {
        assert_eq!(place.venturi(arguments).code, 0, "{arguments:?}");
        let refused = place.venturi(&[arguments, &["--json"]].concat());
        assert!(refused.code == 2 && refused.out.is_empty() && refused.err.contains("--json"), "{arguments:?}");
    }
}

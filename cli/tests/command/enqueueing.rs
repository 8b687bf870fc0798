use std::fs;

use serde_json::json;

use super::place::Place;

#[test]
fn a_payload_comes_from_the_arguments_a_file_or_standard_input() {
    let place = Place::new("payload");
    let file = std::env::temp_dir().join(format!("{}.json", place.schema));
    fs::write(&file, "{\"from\": \"a file\"}\n").expect("a file");
    let given = ["{\"from\": 1}".to_owned(), format!("@{}", file.display()), "-".to_owned()];
    for payload in &given {
        let done = place.venturi_reading(&["enqueue", "mail", "--payload", payload, "--json"], "[\"piped\"]");
        assert_eq!((done.code, &done.json()["effect"]), (0, &"inserted".into()), "{payload}: {}", done.err);
    }
    assert!(place.venturi(&["enqueue", "mail"]).out.starts_with("job "));
    let mut found = place.venturi(&["jobs", "list", "--json"]).json();
    let payloads: Vec<_> = found.as_array_mut().expect("a list").iter_mut().map(|job| job["payload"].take()).collect();
    assert_eq!(payloads, [json!(null), json!(["piped"]), json!({"from": "a file"}), json!({"from": 1})]);
    fs::remove_file(file).expect("it is there");
}

#[test]
fn no_more_of_a_payload_is_read_than_can_be_stored() {
    let place = Place::new("large");
    let file = std::env::temp_dir().join(format!("{}_large.json", place.schema));
    let from_file = format!("@{}", file.display());
    let enqueue =
        |payload: &str, piped: &str| place.venturi_reading(&["enqueue", "mail", "--payload", payload, "--json"], piped);
    let largest = format!("\"{}\"\r\n", "x".repeat(999_998));
    fs::write(&file, &largest).expect("a file");
    for (payload, piped) in [(from_file.as_str(), ""), ("-", &largest)] {
        let done = enqueue(payload, piped);
        assert_eq!(done.code, 0, "{payload}: {}", done.err);
    }
    let larger = format!("\"{}\"", "x".repeat(999_999));
    fs::write(&file, &larger).expect("a file");
    let endless = "1".repeat(3_000_000);
    let refused = |payload: &str, piped: &str| {
        let refused = enqueue(payload, piped);
        assert!(refused.code == 2 && refused.err.contains("1000000"), "{payload}: {} {}", refused.code, refused.err);
    };
    refused(&from_file, "");
    refused("-", &larger);
    refused("-", &endless);
    refused("@/dev/zero", "");
    // A hole: it takes no place on the disk, but would in memory.
    fs::File::options().write(true).open(&file).and_then(|it| it.set_len(300_000_000)).expect("a larger file");
    refused(&from_file, "");
    fs::remove_file(file).expect("it is there");
    assert_eq!(place.value::<i64>("SELECT count(*) FROM {schema}.live"), 2);
}

#[test]
fn a_job_is_as_urgent_and_as_late_as_it_was_given() {
    let place = Place::new("late");
    let enqueue = |more: &[&str]| {
        let all: Vec<&str> = ["enqueue", "mail", "--json"].iter().chain(more).copied().collect();
        let done = place.venturi(&all);
        let id = done.json()["id"].as_i64().unwrap_or_else(|| panic!("{more:?}: {}", done.err));
        let sql = format!(
            "SELECT priority || ' ' || round(extract(epoch FROM visible_at - now()) / 60) FROM {{schema}}.live WHERE id = {id}"
        );
        place.value::<String>(&sql)
    };
    assert_eq!(enqueue(&["--priority", "high", "--delay", "2h"]), "0 120");
    assert_eq!(enqueue(&["--priority", "low"]), "2 0");
    assert!(enqueue(&["--due-at", "2999-01-31T12:00:00Z"]).starts_with("1 5"));
    for past in ["2001-01-01 00:00:00", "1969-07-20T20:17:40Z", "0001-01-01T00:00:00Z"] {
        assert_eq!(enqueue(&["--due-at", past]), "1 0", "what is past is due now");
    }
}

#[test]
fn a_key_that_is_pending_is_replaced_kept_or_doubled_as_asked() {
    let place = Place::new("keys");
    let enqueue = |payload: &str, more: &[&str]| {
        let fixed = ["enqueue", "page", "--key", "7", "--payload", payload, "--json"];
        let done = place.venturi(&fixed.iter().chain(more).copied().collect::<Vec<_>>());
        assert_eq!(done.code, 0, "{}", done.err);
        let done = done.json();
        (done["id"].clone(), done["effect"].clone())
    };
    let (first, effect) = enqueue("1", &[]);
    assert_eq!(effect, "inserted");
    assert_eq!(enqueue("2", &[]), (first.clone(), "replaced".into()));
    assert_eq!(enqueue("3", &["--on-duplicate", "keep"]), (first.clone(), "kept".into()));
    assert_eq!(place.value::<String>("SELECT string_agg(payload::text, ',') FROM {schema}.live"), "2");
    let (second, effect) = enqueue("4", &["--on-duplicate", "independent"]);
    assert!(second != first && effect == "inserted");
}

#[test]
fn a_job_belongs_to_the_trace_that_is_given() {
    let place = Place::new("trace");
    let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let job = place.venturi(&["enqueue", "mail", "--trace", context, "--json"]).json()["id"].to_string();
    assert_eq!(place.venturi(&["jobs", "show", &job, "--json"]).json()["job"]["trace"], context);
    let keyed =
        place.venturi(&["enqueue", "mail", "--key", "1", "--trace", context, "--json"]).json()["id"].to_string();
    assert_eq!(place.venturi(&["jobs", "show", &keyed, "--json"]).json()["job"]["trace"], context);
    assert_eq!(place.venturi(&["enqueue", "mail", "--trace", &"x".repeat(513)]).code, 2);
}

#[test]
fn what_cannot_be_a_job_is_refused_with_two() {
    let place = Place::new("refused");
    let long = "k".repeat(201);
    let cases: [&[&str]; 9] = [
        &["enqueue"],
        &["enqueue", ""],
        &["enqueue", "mail", "--payload", "{"],
        &["enqueue", "mail", "--payload", "@/nowhere/at/all"],
        &["enqueue", "mail", "--key", &long],
        &["enqueue", "mail", "--on-duplicate", "keep"],
        &["enqueue", "mail", "--priority", "urgent"],
        &["enqueue", "mail", "--delay", "1h", "--due-at", "2030-01-01T00:00:00Z"],
        &["enqueue", "mail", "--due-at", "tomorrow"],
    ];
    for arguments in cases {
        let refused = place.venturi(arguments);
        assert!(refused.code == 2 && !refused.err.is_empty(), "{arguments:?}: {} {}", refused.code, refused.err);
    }
    assert_eq!(place.value::<i64>("SELECT count(*) FROM {schema}.live"), 0);
}

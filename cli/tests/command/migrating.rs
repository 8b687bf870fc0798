use std::path::PathBuf;

use serde_json::json;

use super::cluster::{find_server_binaries, psql_at};
use super::place::Place;

fn psql(place: &Place, sql: &str) -> Result<String, String> {
    // Where none is found, psql of the PATH is taken.
    let binaries = find_server_binaries().unwrap_or_else(|_| PathBuf::from("/usr/bin"));
    psql_at(&binaries, &place.url, sql).map_err(|error| error.to_string())
}

#[test]
fn a_dry_run_says_what_would_be_applied_and_applies_nothing() {
    let place = Place::empty("dry");
    let before = place.venturi(&["migrate", "--dry-run", "--json"]).json();
    assert_eq!((&before["version"], &before["steps"][0]), (&json!(0), &json!({"version": 1, "name": "create_queue"})));
    assert!(place.venturi(&["migrate", "--dry-run"]).out.contains("0001 create_queue"));
    assert_eq!(place.venturi(&["status"]).code, 1, "there are no tables");
    assert_eq!(place.venturi(&["migrate"]).code, 0);
    let after = place.venturi(&["migrate", "--dry-run"]);
    assert!(after.code == 0 && after.out.contains("nothing would be applied"), "{}", after.out);
}

#[test]
fn the_printed_statements_make_the_same_tables_by_hand() {
    let (by_hand, by_us) = (Place::empty("by \"hand"), Place::new("by_us"));
    let script = by_hand.venturi_at("", &["migrate", "--sql"]);
    assert_eq!(script.code, 0, "it connects to nothing: {}", script.err);
    psql(&by_hand, &script.out).expect("the script runs");
    assert_eq!(by_hand.venturi(&["enqueue", "mail", "--key", "1"]).code, 0);
    assert_eq!(by_hand.venturi(&["migrate"]).out, "the schema is as this version needs it\n");
    let columns = |place: &Place| {
        let sql = format!(
            "SELECT string_agg(concat_ws(' ', c.relname, a.attname, a.atttypid::regtype, a.attnotnull), ', ' \
             ORDER BY c.relname, a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{}'",
            place.schema
        );
        place.value::<String>(&sql)
    };
    assert_eq!(columns(&by_hand), columns(&by_us));
    let again = psql(&by_hand, &script.out).expect_err("once is enough");
    assert!(again.contains("this script is for version 0"), "{again}");
}

#[test]
fn the_printed_statements_bring_an_older_schema_on() {
    let place = Place::empty("older");
    let whole = place.venturi(&["migrate", "--sql"]).out;
    let second = whole
        .find("\n-- Safe before")
        .and_then(|first| whole.get(first + 1..)?.find("\n-- Safe before").map(|second| first + 1 + second));
    let first = whole.get(..second.expect("there are several steps")).expect("text");
    psql(&place, &format!("{first}\nCOMMIT;")).expect("a part of the script runs");
    let version = place.venturi(&["migrate", "--dry-run", "--json"]).json()["version"].to_string();
    assert_ne!(version, "0");
    let rest = place.venturi(&["migrate", "--sql", "--from", &version]).out;
    psql(&place, &rest).expect("the rest runs");
    assert_eq!(place.venturi(&["status"]).code, 0);
    assert_eq!(place.venturi(&["migrate", "--sql", "--from", "99"]).code, 2);
    assert_eq!(place.venturi(&["migrate", "--from", "1"]).code, 2);
}

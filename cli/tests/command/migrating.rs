use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use super::cluster::{find_server_binaries, psql_at};
use super::place::Place;

fn psql(place: &Place, sql: &str) -> Result<String, String> {
    // Where none is found, psql of the PATH is taken.
    let binaries = find_server_binaries().unwrap_or_else(|_| PathBuf::from("/usr/bin"));
    psql_at(&binaries, &place.url, sql).map_err(|error| error.to_string())
}

/// As people run it, who see what it prints.
fn said_by_psql(place: &Place, script: &str) -> String {
    let file = std::env::temp_dir().join(format!("{}.sql", place.schema.replace('"', "")));
    std::fs::write(&file, script).expect("a file");
    let binary = find_server_binaries().map(|folder| folder.join("psql")).ok().filter(|psql| psql.is_file());
    let mut psql = Command::new(binary.unwrap_or_else(|| "psql".into()));
    let psql = psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &place.url, "-f"]).arg(&file);
    let done = psql.stdin(Stdio::null()).output().expect("psql");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::remove_file(file).expect("it is there");
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

#[test]
fn a_dry_run_says_what_would_be_applied_and_applies_nothing() {
    let place = Place::empty("dry");
    let before = place.venturi(&["migrate", "--dry-run", "--json"]).json();
    assert_eq!((&before["version"], &before["steps"][0]), (&json!(0), &json!({"version": 1, "name": "create_queue"})));
    assert!(place.venturi(&["migrate", "--dry-run"]).out.contains("0001 create_queue"));
    assert_eq!(place.venturi(&["status"]).code, 1, "there are no tables");
    assert!(
        place.venturi(&["migrate", "--dry-run"]).out.starts_with("there are no tables yet; these would be applied:")
    );
    let made = place.venturi(&["migrate"]);
    assert!(made.code == 0 && made.out.starts_with("the tables are made"), "{} {}", made.out, made.err);
    assert!(made.out.contains("0001 create_queue\n"), "{}", made.out);
    let after = place.venturi(&["migrate", "--dry-run"]);
    assert!(after.code == 0 && after.out.contains("nothing would be applied"), "{}", after.out);
}

#[test]
fn the_printed_statements_make_the_same_tables_by_hand() {
    let (by_hand, by_us) = (Place::empty("by \"hand"), Place::new("by_us"));
    let script = by_hand.venturi_at("", &["migrate", "--sql"]);
    assert_eq!(script.code, 0, "it connects to nothing: {}", script.err);
    assert_eq!(said_by_psql(&by_hand, &script.out), "", "nobody wants to read tables without rows");
    assert_eq!(by_hand.venturi(&["enqueue", "mail", "--key", "1"]).code, 0);
    let version = by_us.venturi(&["migrate", "--json"]).json()["version"].clone();
    assert_eq!(
        by_hand.venturi(&["migrate"]).out,
        format!("the schema has version {version}, as this version of venturi needs it: nothing to do\n")
    );
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

#[test]
fn a_schema_that_is_newer_is_called_newer() {
    let place = Place::new("newer");
    place.run("INSERT INTO {schema}.migration (version, name, compatible_from) VALUES (77, 'later', 1)");
    let newer = "the schema has version 77, which is newer than this version of venturi and works with it";
    assert_eq!(place.venturi(&["migrate"]).out, format!("{newer}: nothing to do\n"));
    assert_eq!(place.venturi(&["migrate", "--dry-run"]).out, format!("{newer}, and nothing would be applied\n"));
    assert_eq!(place.venturi(&["enqueue", "mail"]).code, 0, "it works with it");
    place.run("UPDATE {schema}.migration SET compatible_from = 77 WHERE version = 77");
    assert_eq!(place.venturi(&["migrate"]).code, 1);
}

#[test]
fn what_has_the_name_of_an_index_is_met_only_when_it_is_made_and_nothing_is_changed() {
    let place = Place::empty("index_name");
    place.run("CREATE SCHEMA {schema}; CREATE TABLE {schema}.live_ready ()");
    assert_eq!(place.venturi(&["migrate", "--dry-run"]).code, 0, "as the page says");
    let failed = place.venturi(&["migrate"]);
    assert!(failed.code == 1 && failed.err.contains("live_ready"), "{}", failed.err);
    place.run("DROP TABLE {schema}.live_ready");
    let left = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('{schema}')";
    assert_eq!(place.value::<i64>(left), 0);
    assert_eq!(place.venturi(&["migrate", "--dry-run", "--json"]).json()["version"], 0);
    assert_eq!(place.venturi(&["migrate"]).code, 0);
}

#[test]
fn a_schema_that_lost_a_table_is_told_of_by_all_who_are_asked() {
    let place = Place::new("lost");
    place.run("DROP TABLE {schema}.live CASCADE");
    let failed = place.venturi(&["enqueue", "mail"]);
    assert!(failed.code == 1 && failed.err.contains("`migrate`"), "{}", failed.err);
    for arguments in [["migrate"].as_slice(), &["migrate", "--dry-run"]] {
        let failed = place.venturi(arguments);
        let says = |word| failed.err.contains(word);
        assert!(failed.code == 1 && says("lacks table live") && says("`doctor`"), "{arguments:?}: {}", failed.err);
    }
    let found = place.venturi(&["doctor"]);
    assert!(found.code == 3 && found.out.contains("schema_missing: not there: table live, view jobs"), "{}", found.out);
}

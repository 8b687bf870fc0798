//! The schema's versions: what to run, and which code works with which.
//!
//! A front-end sends, on one connection and in this order: `BEGIN`, [`lock`], [`bootstrap`], [`applied`] and [`inventory`]
//! (whose rows are read), each batch of [`plan`], [`inventory`] again if there was any, for [`check_whole`], `COMMIT`. All in
//! one transaction, so that a crash half-way leaves nothing behind; and under a lock, so that runners who come together run
//! each migration once.
#![deny(clippy::disallowed_methods)]

use tokio_postgres::Row;

use crate::Database;
use crate::database::SchemaName;
use crate::error::{Error, ErrorKind};
use crate::inventory::{self, Piece};
use crate::statement::{Finding, Inquiry, Param, Reply, Statement, render};

/// One step of the schema. Forward only, and never edited once published.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
    /// The oldest code that works with the schema after this step, named by the last migration that code knows.
    pub(crate) compatible_from: i32,
}

/// What `migrate` would do: see [`pending_migrations`](crate::blocking::pending_migrations).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingMigrations {
    /// The version that the schema has; 0: there are no tables.
    pub version: i32,
    /// The newest version that this code knows. One that is newer still is told of only where this code works with it.
    pub newest_known: i32,
    /// What would be applied, in this order. None: the schema is as this code needs it.
    pub steps: Vec<MigrationStep>,
}

/// One step of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationStep {
    /// The version that the schema has after it.
    pub version: i32,
    /// What it does, in a word or two: the name of its file in `migrations/`.
    pub name: &'static str,
}

/// All of them, in order, without gaps.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "create_queue",
        sql: include_str!("../migrations/0001_create_queue.sql"),
        compatible_from: 1,
    },
    Migration {
        version: 2,
        name: "enqueue_function",
        sql: include_str!("../migrations/0002_enqueue_function.sql"),
        compatible_from: 1,
    },
    Migration { version: 3, name: "control", sql: include_str!("../migrations/0003_control.sql"), compatible_from: 1 },
    Migration { version: 4, name: "trace", sql: include_str!("../migrations/0004_trace.sql"), compatible_from: 1 },
];

/// The version this code was written for.
pub(crate) fn latest() -> i32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// The first batch: lets one runner per schema through at a time, to the end of its transaction.
///
/// A migration may take as long as it needs, and so may the wait for another runner.
pub(crate) fn lock(schema: &SchemaName) -> String {
    let key = literal(&format!("venturi migrate {}", schema.as_str()));
    // Not a SELECT, whose row psql would print.
    let body =
        literal(&format!("BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended({key}, 0)); END"));
    format!("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; DO LANGUAGE plpgsql {body}")
}

/// The second batch: the schema and the table of versions, where they are missing.
///
/// Looked for first, because `IF NOT EXISTS` asks for the right to create even when there is nothing to create; so a role
/// that may only use the schema can call `migrate` at its start.
pub(crate) fn bootstrap(schema: &SchemaName) -> String {
    let name = literal(schema.as_str());
    let create_schema = literal(&render("CREATE SCHEMA {schema}", schema));
    let create_table = literal(&render(
        "CREATE TABLE {schema}.migration (\
         version int NOT NULL CONSTRAINT migration_pkey PRIMARY KEY, \
         name text NOT NULL, \
         applied_at timestamptz NOT NULL DEFAULT now(), \
         compatible_from int NOT NULL, \
         CONSTRAINT migration_valid CHECK (version > 0 AND compatible_from BETWEEN 1 AND version))",
        schema,
    ));
    let body = literal(&format!(
        "BEGIN \
         IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = {name}) THEN EXECUTE {create_schema}; END IF; \
         IF NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {name} AND c.relname = 'migration') THEN EXECUTE {create_table}; END IF; \
         END"
    ));
    format!("DO LANGUAGE plpgsql {body}")
}

/// The query: one row per migration that was run, `version int` and `compatible_from int`.
pub(crate) fn applied(schema: &SchemaName) -> String {
    render("SELECT m.version, m.compatible_from FROM {schema}.migration m ORDER BY m.version", schema)
}

/// The query for what there is in the schema: its text and parameters, and what to make of its rows.
pub(crate) fn inventory(schema: &SchemaName) -> (String, Vec<Param<'static>>) {
    let mut commands = Inquiry::Inventory.commands();
    commands.pop().map(|command| (command.text.render(schema), command.params)).unwrap_or_default()
}

pub(crate) fn pieces(rows: Vec<Row>) -> Result<Vec<Piece>, Error> {
    match Statement::Inquiry(Inquiry::Inventory).read(&[rows]) {
        Ok(Reply::Inquiry(Finding::Inventory(pieces))) => Ok(pieces),
        unfit => Err(Error::new(ErrorKind::Internal, format!("migrating the schema: its inventory is {unfit:?}"))),
    }
}

/// The batches to run, in order, when `applied` and `pieces` are what the queries gave. None: the schema is as this code
/// needs it.
///
/// # Errors
///
/// [`ErrorKind::SchemaTooNew`] when later code has changed the schema in a way that this code cannot work with,
/// [`ErrorKind::SchemaDamaged`] when there is something in the way.
pub(crate) fn plan(schema: &SchemaName, applied: &[(i32, i32)], pieces: &[Piece]) -> Result<Vec<String>, Error> {
    let (version, compatible_from) = last(applied);
    check_not_too_new(version, compatible_from)?;
    check_free(version, pieces)?;
    Ok(after(version).map(|step| batch(step, schema)).collect())
}

/// Before the commit: whether there is all that is recorded. `applied` is what was before.
///
/// # Errors
///
/// [`ErrorKind::SchemaDamaged`] when not, so that nobody who is told to run `migrate` is told by it that all is well.
pub(crate) fn check_whole(applied: &[(i32, i32)], pieces: &[Piece]) -> Result<(), Error> {
    let (version, _) = last(applied);
    // What later code has made of the schema is not known here.
    let missing = if version > latest() { Vec::new() } else { inventory::needed_and_missing(pieces) };
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::SchemaDamaged,
        format!(
            "migrating the schema: its migrations are recorded, and yet it lacks {}; restore that from a backup or, if its \
             jobs may be lost, drop the schema and migrate again; `doctor` looks for what else is wrong",
            listed(&missing)
        ),
    ))
}

fn check_free(version: i32, pieces: &[Piece]) -> Result<(), Error> {
    let in_the_way = inventory::in_the_way(pieces);
    if version > 0 || in_the_way.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::SchemaDamaged,
        format!(
            "migrating the schema: no migration is recorded, and yet it has {}; choose another schema or, if these are \
             venturi's, restore the table `migration` from a backup",
            listed(in_the_way)
        ),
    ))
}

fn listed<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> String {
    pieces.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn last(applied: &[(i32, i32)]) -> (i32, i32) {
    applied.iter().copied().max().unwrap_or((0, 0))
}

/// What [`plan`] would do, in words. `applied` is the query's answer, or that there is no such table.
///
/// # Errors
///
/// As [`plan`] and [`check_whole`].
pub(crate) fn pending(applied: Result<Vec<(i32, i32)>, Error>, pieces: &[Piece]) -> Result<PendingMigrations, Error> {
    let applied = match applied {
        Err(error) if error.kind() == ErrorKind::SchemaMissing => Vec::new(),
        applied => applied?,
    };
    let (version, compatible_from) = last(&applied);
    check_not_too_new(version, compatible_from)?;
    check_free(version, pieces)?;
    let steps: Vec<_> = after(version).map(|step| MigrationStep { version: step.version, name: step.name }).collect();
    if steps.is_empty() {
        check_whole(&applied, pieces)?;
    }
    Ok(PendingMigrations { version, newest_known: latest(), steps })
}

fn after(version: i32) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(move |migration| migration.version > version)
}

impl Database {
    /// What `migrate` would run on a schema of version `from` (0: there are no tables), as one transaction in SQL: for
    /// those whose changes of schemas are read and run by hand. Connects to nothing.
    ///
    /// It is plain SQL, for psql and any other client; its first failure undoes all of it, and it fails where the schema
    /// does not have that version. Which one it has tells `pending_migrations`.
    ///
    /// ```
    /// # fn main() -> Result<(), venturi::Error> {
    /// let script = venturi::Database::new("host=localhost")?.schema("jobs")?.migration_script(0)?;
    /// assert!(script.contains(r#"CREATE TABLE "jobs".live"#) && script.ends_with("COMMIT;\n"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when this code knows no version `from`.
    pub fn migration_script(&self, from: i32) -> Result<String, Error> {
        if !(0..=latest()).contains(&from) {
            let what = format!("there is no version {from}; this code knows 0 (no tables) to {}", latest());
            return Err(Error::new(ErrorKind::Config, what));
        }
        let schema = self.schema_name();
        let head = [lock(schema), bootstrap(schema), expect_version(schema, from)];
        let steps = after(from).map(|step| batch(step, schema));
        let body: Vec<String> = head.into_iter().chain(steps).collect();
        Ok(format!("BEGIN;\n{};\nCOMMIT;\n", body.join(";\n\n")))
    }
}

/// Fails on a schema of another version.
fn expect_version(schema: &SchemaName, version: i32) -> String {
    let found = render("SELECT coalesce(max(m.version), 0) INTO found FROM {schema}.migration m", schema);
    let body = literal(&format!(
        "DECLARE found int; BEGIN {found}; IF found <> {version} THEN \
         RAISE EXCEPTION 'venturi: the schema has version %, and this script is for version {version}', found; \
         END IF; END"
    ));
    format!("DO LANGUAGE plpgsql {body}")
}

fn batch(migration: &Migration, schema: &SchemaName) -> String {
    let Migration { version, name, sql, compatible_from } = migration;
    let name = literal(name);
    let note = format!(
        "INSERT INTO {{schema}}.migration (version, name, compatible_from) VALUES ({version}, {name}, {compatible_from})"
    );
    render(&format!("{sql}\n;\n{note}"), schema)
}

/// Whether this code may work with a schema of that version, as `check.sql` reports it.
///
/// # Errors
///
/// [`ErrorKind::SchemaMissing`] or [`ErrorKind::SchemaTooOld`] when `migrate` has to be run first,
/// [`ErrorKind::SchemaTooNew`] when this code is the one that is too old.
pub(crate) fn check_version(version: i32, compatible_from: i32) -> Result<(), Error> {
    let latest = latest();
    if version == 0 {
        return Err(Error::new(
            ErrorKind::SchemaMissing,
            "checking the schema: it has no tables yet; run `migrate` once, with a role that may create them",
        ));
    }
    if version < latest {
        return Err(Error::new(
            ErrorKind::SchemaTooOld,
            format!(
                "checking the schema: it has version {version}, and this code needs {latest}; \
                 run the `migrate` of this code before it starts"
            ),
        ));
    }
    check_not_too_new(version, compatible_from)
}

fn check_not_too_new(version: i32, compatible_from: i32) -> Result<(), Error> {
    let latest = latest();
    if version <= latest || compatible_from <= latest {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::SchemaTooNew,
        format!(
            "checking the schema: it has version {version}, which needs code of version {compatible_from} or later, \
             and this code has {latest}; update venturi in this program"
        ),
    ))
}

/// A string literal for any text, also where `standard_conforming_strings` is off.
fn literal(text: &str) -> String {
    let escape = if text.contains('\\') { "E" } else { "" };
    format!("{escape}'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::inventory::tests::whole;

    #[test]
    fn the_list_is_the_folder_in_order_and_without_gaps() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let mut files: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        let listed: Vec<String> = MIGRATIONS.iter().map(|it| format!("{:04}_{}.sql", it.version, it.name)).collect();
        assert_eq!(files, listed);
        for (migration, version) in MIGRATIONS.iter().zip(1..) {
            assert_eq!(migration.version, version);
            assert!((1..=version).contains(&migration.compatible_from), "{version}");
            assert!(migration.sql.starts_with("-- Safe "), "line 1 of {version} says when it is safe");
        }
    }

    #[test]
    fn each_mismatch_of_code_and_schema_says_what_to_do() {
        let kind = |version, compatible_from| check_version(version, compatible_from).map_err(|error| error.kind());
        let latest = latest();
        assert_eq!(kind(latest, 1), Ok(()));
        assert_eq!(kind(0, 0), Err(ErrorKind::SchemaMissing));
        assert_eq!(kind(latest + 1, latest), Ok(()), "later code left the schema usable for us");
        assert_eq!(kind(latest + 1, latest + 1), Err(ErrorKind::SchemaTooNew));
        let error = check_version(latest + 1, latest + 1).unwrap_err().to_string();
        assert!(error.contains("update venturi"), "{error}");
    }

    #[test]
    fn what_is_pending_is_what_would_be_applied() {
        let versions = |applied: &[(i32, i32)]| {
            let pieces = if applied.is_empty() { Vec::new() } else { whole() };
            pending(Ok(applied.to_vec()), &pieces)
                .map(|it| it.steps.iter().map(|step| step.version).collect::<Vec<_>>())
        };
        assert_eq!(versions(&[]).unwrap(), (1..=latest()).collect::<Vec<_>>());
        assert_eq!(versions(&[(1, 1), (2, 1)]).unwrap(), (3..=latest()).collect::<Vec<_>>());
        assert_eq!(versions(&[(latest(), 1)]).unwrap(), Vec::<i32>::new());
        let newer = pending(Ok(vec![(latest() + 1, 1)]), &whole()).unwrap();
        assert_eq!((newer.version, newer.newest_known, newer.steps.len()), (latest() + 1, latest(), 0));
        assert!(versions(&[(latest() + 1, latest() + 1)]).is_err());
        let missing = pending(Err(Error::new(ErrorKind::SchemaMissing, "no tables")), &[]).unwrap();
        assert_eq!((missing.version, missing.steps.len()), (0, MIGRATIONS.len()));
        assert!(pending(Err(Error::new(ErrorKind::Permission, "no")), &[]).is_err());
    }

    #[test]
    fn what_is_there_has_to_fit_what_is_recorded() {
        let damaged = |applied: &[(i32, i32)], pieces: &[Piece]| {
            let error = pending(Ok(applied.to_vec()), pieces).err();
            error.map(|error| (error.kind() == ErrorKind::SchemaDamaged, error.to_string()))
        };
        let (all, now) = (whole(), [(latest(), 1)]);
        assert_eq!(damaged(&now, &all), None);
        let (is_damage, said) = damaged(&now, &[]).unwrap();
        assert!(is_damage && said.contains("lacks table finished") && said.contains("doctor"), "{said}");
        assert_eq!(damaged(&[(latest() + 1, 1)], &[]), None, "later code may need less");
        let (is_damage, said) = damaged(&[], &all).unwrap();
        assert!(is_damage && said.contains("another schema") && said.contains("table live"), "{said}");
    }

    #[test]
    fn there_is_a_script_from_each_version_that_is_known() {
        let database = Database::new("host=localhost").unwrap();
        assert!(database.migration_script(-1).is_err() && database.migration_script(latest() + 1).is_err());
        let nothing = database.migration_script(latest()).unwrap();
        assert!(!nothing.contains("CREATE FUNCTION"), "{nothing}");
    }

    #[test]
    fn a_literal_holds_any_text() {
        assert_eq!(literal("plain"), "'plain'");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\b'c"), r"E'a\\b''c'");
    }
}

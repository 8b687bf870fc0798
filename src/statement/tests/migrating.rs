//! Migrations against a server.

use super::*;

#[test]
fn migrating_twice_is_migrating_once() {
    let mut db = Db::without_schema();
    let steps = migration::MIGRATIONS.len();
    assert_eq!(migrate(&mut db.client, &db.schema).unwrap(), steps);
    assert_eq!(migrate(&mut db.client, &db.schema).unwrap(), 0);
    let stored: i64 = db.value("SELECT count(*) FROM {schema}.migration");
    assert_eq!(usize::try_from(stored).unwrap(), steps);
}

#[test]
fn runners_at_the_same_time_run_each_migration_once() {
    let db = Db::without_schema();
    let schema = &db.schema;
    let ran: usize = std::thread::scope(|scope| {
        let runners: Vec<_> = (0..3).map(|_| scope.spawn(|| migrate(&mut session(), schema).unwrap())).collect();
        runners.into_iter().map(|runner| runner.join().unwrap()).sum()
    });
    assert_eq!(ran, migration::MIGRATIONS.len());
}

#[test]
fn the_version_of_a_migrated_schema_is_the_one_that_the_code_wants() {
    let mut db = Db::new();
    let Reply::Version { version, compatible_from } = db.ask(&Statement::Check) else { panic!() };
    assert_eq!(version, migration::latest());
    assert!(migration::check_version(version, compatible_from).is_ok());
    db.run("DELETE FROM {schema}.migration");
    let Reply::Version { version, compatible_from } = db.ask(&Statement::Check) else { panic!() };
    assert_eq!((version, compatible_from), (0, 0));
}

#[test]
fn checking_where_nothing_was_migrated_fails_with_the_servers_own_code() {
    let mut db = Db::without_schema();
    let check = |db: &mut Db| try_ask(&mut db.client, &db.texts, &Statement::Check).unwrap_err();
    assert_eq!(check(&mut db).code().unwrap().code(), "42P01");
    db.run("CREATE SCHEMA {schema}");
    assert_eq!(check(&mut db).code().unwrap().code(), "42P01");
}

#[test]
fn a_newer_schema_is_taken_when_it_says_that_this_code_may_use_it() {
    let mut db = Db::new();
    db.run("INSERT INTO {schema}.migration (version, name, compatible_from) VALUES (999, 'later', 1)");
    assert_eq!(migrate(&mut db.client, &db.schema).unwrap(), 0);
    db.run("UPDATE {schema}.migration SET compatible_from = 999 WHERE version = 999");
    let error = migrate(&mut db.client, &db.schema).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::SchemaTooNew);
}

#[test]
fn a_role_that_may_create_nothing_can_migrate_what_is_migrated() {
    let mut db = Db::new();
    let role = format!("{}_user", db.schema.as_str());
    db.run(&format!("CREATE ROLE {role}; GRANT USAGE ON SCHEMA {{schema}} TO {role}"));
    db.run(&format!("GRANT SELECT ON {{schema}}.migration TO {role}; SET ROLE {role}"));
    assert_eq!(migrate(&mut db.client, &db.schema).unwrap(), 0);
    db.run(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_role_without_create_on_the_database_can_migrate_into_a_schema_made_for_it() {
    let mut db = Db::without_schema();
    let role = format!("{}_owner", db.schema.as_str());
    db.run(&format!("CREATE ROLE {role}; CREATE SCHEMA {{schema}} AUTHORIZATION {role}; SET ROLE {role}"));
    assert_eq!(migrate(&mut db.client, &db.schema).unwrap(), migration::MIGRATIONS.len());
    db.run(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_schema_may_have_any_name() {
    let schema = schema_named(&format!(r#"odd "'\ {{schema}} $$ {:x}"#, RandomState::new().build_hasher().finish()));
    let mut db = Db { client: session(), texts: Texts::new(&schema), schema };
    migrate(&mut db.client, &db.schema).unwrap();
    assert_eq!(migrate(&mut db.client, &db.schema).unwrap(), 0);
    let run = db.claimed_one(ME);
    assert_eq!(db.settle_one(ME, bare(run, Ending::Completed)), Settled::Accepted);
    db.ask(&Statement::Listen);
    db.client.batch_execute("SET standard_conforming_strings = off").unwrap();
    db.enqueue_one("a");
}

/// Of everything that is there, whether it is listed or not.
#[test]
fn the_inventory_of_a_migrated_schema_is_the_one_that_is_listed() {
    let mut db = Db::new();
    let mut names = |table: &str, column: &str, owner: &str| -> Vec<String> {
        let sql = format!(
            "SELECT {column}::text FROM pg_catalog.{table} WHERE {owner} = E'{{schema_in_text}}'::pg_catalog.regnamespace"
        );
        db.rows(&sql).iter().map(|row| row.get(0)).collect()
    };
    let relations = names("pg_class", "relname", "relnamespace");
    let functions = names("pg_proc", "proname", "pronamespace");
    let params: Vec<Param<'_>> = vec![Box::new(relations), Box::new(functions)];
    let found = db.client.query_typed(db.texts.sql(Text::Inventory), &typed(&params)).unwrap();
    let listed = crate::inventory::tests::listed(&migration::pieces(found).unwrap());
    assert!(listed == include_str!("../../inventory.txt"), "src/inventory.txt has to be:\n{listed}");
}

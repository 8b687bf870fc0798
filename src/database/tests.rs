use super::*;

mod tls;

const LOCAL: &str = "postgres://worker@localhost/app";

fn database(dsn: &str) -> Database {
    Database::new(dsn).unwrap()
}

fn refusal(dsn: &str) -> String {
    let error = Database::new(dsn).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(!error.is_retryable());
    error.to_string()
}

#[test]
fn a_url_and_pairs_say_the_same() {
    let (url, pairs) = (database(LOCAL), database("host=localhost port=5432 user=worker dbname=app"));
    assert_eq!(url.config(), pairs.config());
    assert_eq!(url.config().get_dbname(), Some("app"));
    assert_eq!(url.schema_name().as_str(), "venturi");
    assert!(url.listens());
    assert!(!url.listen(false).listens());
}

#[test]
fn what_the_user_left_out_is_filled_in() {
    let database = database(LOCAL);
    let config = database.config();
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(10)));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(30)));
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(30));
    assert_eq!(config.get_keepalives_interval(), Some(Duration::from_secs(10)));
    assert_eq!(config.get_keepalives_retries(), Some(3));
    assert_eq!(config.get_application_name(), Some("venturi"));
    assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
}

#[test]
fn what_the_user_set_stays() {
    let dsn = format!(
        "{LOCAL}?connect_timeout=3&tcp_user_timeout=7&keepalives_idle=8&keepalives_interval=9&keepalives_retries=4&\
         application_name=mine&target_session_attrs=any&keepalives=0"
    );
    let database = database(&dsn);
    let config = database.config();
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(3)));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(7)));
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(8));
    assert_eq!(config.get_keepalives_interval(), Some(Duration::from_secs(9)));
    assert_eq!(config.get_keepalives_retries(), Some(4));
    assert_eq!(config.get_application_name(), Some("mine"));
    assert!(!config.get_keepalives());
}

#[test]
fn jobs_are_never_looked_for_on_a_standby() {
    let database = database("postgres://a,b/app?target_session_attrs=read-only");
    assert_eq!(database.config().get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
}

#[test]
fn a_time_out_in_libpqs_milliseconds_is_understood() {
    let timeout =
        |text: &str| database(&format!("{LOCAL}?tcp_user_timeout={text}")).config().get_tcp_user_timeout().copied();
    assert_eq!(timeout("30000"), Some(Duration::from_secs(30)));
    assert_eq!(timeout("600"), Some(Duration::from_secs(600)));
}

#[test]
fn behind_a_pooler_one_listens_only_where_it_is_said() {
    let pooled = database(LOCAL).pooled(true);
    assert!(pooled.is_pooled() && !pooled.listens() && pooled.watched().is_pooled());
    let direct = pooled.schema("jobs").unwrap().listen_on("postgres://server/app").unwrap();
    assert!(direct.is_pooled() && direct.listens() && !direct.clone().listen(false).listens());
    let watched = direct.connect_timeout(Duration::from_secs(7)).watched();
    assert!(!watched.is_pooled());
    assert_eq!(watched.schema_name().as_str(), "jobs");
    assert_eq!(watched.config().get_hosts(), [Host::Tcp("server".to_owned())]);
    assert_eq!(watched.config().get_connect_timeout(), Some(&Duration::from_secs(7)));
    assert!(!format!("{:?}", database(LOCAL).listen_on("host=a password=hunter2").unwrap()).contains("hunter2"));
    assert_eq!(database(LOCAL).listen_on("nonsense").unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn the_connect_time_out_is_clamped() {
    let set = |time| database(LOCAL).connect_timeout(time).config().get_connect_timeout().copied();
    assert_eq!(set(Duration::ZERO), Some(MIN_CONNECT_TIMEOUT));
    assert_eq!(set(Duration::MAX), Some(MAX_CONNECT_TIMEOUT));
}

#[test]
fn a_malformed_text_is_refused_in_words_that_help() {
    assert!(refusal("host=localhost port=many").contains("invalid value for \"port\""));
    assert!(refusal("postgres://localhost/app?sslmode=allow").contains("disable, prefer, require"));
    assert!(refusal("host=localhost sslrootcert=/etc/ca.pem").contains("Database::tls_root_file"));
    assert!(refusal("host=localhost sslcert=/etc/own.pem").contains("\"sslcert\", which is not supported"));
    assert!(refusal("host=localhost sslcolour=red").contains("unknown option"));
    assert!(refusal("not a connection string").contains("malformed"));
}

#[test]
fn a_database_without_a_host_is_refused() {
    for dsn in ["", "dbname=app", "postgres:///app"] {
        assert!(refusal(dsn).contains("no host is named"), "{dsn}");
    }
}

#[test]
fn hosts_addresses_and_ports_must_match() {
    assert!(refusal("host=a,b,c port=1,2").contains("2 ports for 3 hosts"));
    assert!(refusal("host=a,b hostaddr=127.0.0.1").contains("2 hosts but 1 hostaddrs"));
    database("host=a,b,c port=5433");
    database("hostaddr=127.0.0.1");
}

#[test]
fn no_message_and_no_debug_text_tells_the_password() {
    for dsn in [
        "host=localhost password=hunter2 secret=x",
        "host=localhost password=open hunter2=x",
        "host=localhost password='hunter2",
        "host=localhost password=a hunter2",
        "postgres://worker:hunter2@localhost:many/app",
        "postgres://worker:a@hunter2@localhost/app",
        "postgres://worker:a@hunter2:5@localhost/app",
        "postgres://worker:a@hunter2/b@localhost/app?x=y",
        "postgres://worker:a/hunter2?b@localhost/app?hunter2",
    ] {
        let text = match Database::new(dsn) {
            Ok(database) => format!("{database:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!text.contains("hunter2"), "{dsn}: {text}");
    }
    let debug = format!("{:?}", database("postgres://worker:hunter2@localhost/app?options=-c%20my.token%3Dhunter2"));
    assert!(debug.contains("localhost") && debug.contains("worker") && !debug.contains("hunter2"), "{debug}");
}

#[test]
fn the_environment_names_a_database_or_says_what_is_missing() {
    let text = |value| Database::from_variable(value).unwrap_err().to_string();
    assert!(text(Err(VarError::NotPresent)).contains("DATABASE_URL is not set"));
    assert!(text(Ok("  ".to_owned())).contains("DATABASE_URL is empty"));
    assert!(text(Err(VarError::NotUnicode("hunter2".into()))).contains("not UTF-8"));
    Database::from_variable(Ok(LOCAL.to_owned())).unwrap();
}

#[test]
fn a_schema_is_validated_and_quoted() {
    fn name(name: &str) -> Result<Database, Error> {
        database(LOCAL).schema(name)
    }
    assert_eq!(name("Jobs \"2\"").unwrap().schema_name().quoted(), "\"Jobs \"\"2\"\"\"");
    assert_eq!(name(&"x".repeat(63)).unwrap().schema_name().as_str().len(), 63);
    for (bad, why) in [("", "empty"), ("a\0b", "control"), ("a\nb", "control"), ("pg_jobs", "begins with pg_")] {
        assert!(name(bad).unwrap_err().to_string().contains(why));
    }
    assert!(name(&"ü".repeat(32)).unwrap_err().to_string().contains("64 bytes, at most 63"));
}

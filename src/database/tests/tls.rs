#[cfg(feature = "tls")]
use tokio_postgres::config::ChannelBinding;
use tokio_postgres::config::SslMode;

use super::*;

/// What a worker, a queue or `migrate` would say; without the feature it is said at once.
fn check(dsn: &str) -> Result<(), String> {
    let checked = Database::new(dsn).and_then(|database| database.check_tls());
    checked.map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    })
}

fn modes(database: &Database) -> Vec<SslMode> {
    database.config().get_hosts().iter().map(|host| database.ssl_mode(Some(host))).collect()
}

#[test]
fn without_settings_for_tls_what_needs_it_is_refused_and_the_rest_is_plain() {
    for dsn in ["postgres://localhost/app?sslmode=require", "host=/var/run/postgresql,elsewhere sslmode=require"] {
        let refusal = check(dsn).unwrap_err();
        assert!(refusal.contains("sslmode=require needs TLS") && refusal.contains("tls`"), "{refusal}");
    }
    let refusal = check("postgres://localhost/app?channel_binding=require").unwrap_err();
    assert!(refusal.contains("channel_binding=require needs TLS"), "{refusal}");
    for dsn in [LOCAL, "postgres://localhost/app?sslmode=disable"] {
        assert_eq!(check(dsn), Ok(()));
        assert_eq!(modes(&database(dsn)), [SslMode::Disable]);
    }
}

#[test]
fn a_unix_socket_needs_no_tls_and_binds_no_channel() {
    assert_eq!(check("host=/var/run/postgresql dbname=app sslmode=require"), Ok(()));
    assert_eq!(modes(&database("host=/var/run/postgresql dbname=app sslmode=require")), [SslMode::Disable]);
    let refusal = check("host=/var/run/postgresql channel_binding=require").unwrap_err();
    assert!(refusal.contains("a Unix socket has none"), "{refusal}");
    let refusal = check("host=localhost sslmode=disable channel_binding=require").unwrap_err();
    assert!(refusal.contains("sslmode=disable rules it out"), "{refusal}");
}

#[cfg(feature = "tls")]
mod with_settings {
    use rustls::{ClientConfig, RootCertStore};

    use super::*;

    fn encrypted(dsn: &str) -> Database {
        let trusted = RootCertStore::empty();
        database(dsn).tls(ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth())
    }

    #[test]
    fn every_host_is_spoken_to_as_it_can_and_must_be() {
        let mode = |mode: &str| encrypted(&format!("host=db1,/run/pg,db2 sslmode={mode}"));
        assert_eq!(modes(&mode("require")), [SslMode::Require, SslMode::Disable, SslMode::Require]);
        assert_eq!(modes(&mode("prefer")), [SslMode::Prefer, SslMode::Disable, SslMode::Prefer]);
        assert_eq!(modes(&mode("disable")), [SslMode::Disable; 3]);
        assert_eq!(encrypted("hostaddr=10.0.0.1 sslmode=require").ssl_mode(None), SslMode::Require);
        mode("require").check_tls().unwrap();
        encrypted("host=db1 channel_binding=require").check_tls().unwrap();
    }

    #[test]
    fn the_words_of_libpq_for_a_verified_certificate_mean_that_tls_is_required() {
        for word in ["verify-ca", "verify-full"] {
            for dsn in
                [format!("postgres://db/app?sslmode={word}&channel_binding=require"), format!("host=db sslmode={word}")]
            {
                assert_eq!(encrypted(&dsn).config().get_ssl_mode(), SslMode::Require, "{dsn}");
            }
        }
        let config = encrypted("postgres://db/app?sslmode=verify-full&channel_binding=require");
        assert_eq!(config.config().get_channel_binding(), ChannelBinding::Require);
        // What only looks like an option stays what it is.
        let password = encrypted("host=db password='a sslmode=verify-full'");
        assert_eq!(password.config().get_password(), Some(&b"a sslmode=verify-full"[..]));
        assert!(refusal("host=db password='a sslmode=verify-full' sslmode=verify-full").contains("verify-full"));
    }

    #[test]
    fn a_handshake_that_is_not_announced_takes_a_server_that_has_tls() {
        let refusal = encrypted("host=db sslnegotiation=direct").check_tls().unwrap_err().to_string();
        assert!(refusal.contains("sslmode=require"), "{refusal}");
    }

    #[test]
    fn a_file_without_certificates_is_refused_by_its_name() {
        let of = |path: &str| database(LOCAL).tls_root_file(path).unwrap_err();
        for path in ["/nowhere/ca.pem", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")] {
            assert_eq!(of(path).kind(), ErrorKind::Config);
            assert!(of(path).to_string().contains(path));
        }
    }
}

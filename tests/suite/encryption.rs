//! Encrypted connections: what is encrypted, and which servers are refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use venturi::{Database, Error, ErrorKind};

use super::cluster::{Cluster, PASSWORD, USER};
use super::front::{Front, WorkerSpec, refusals};
use super::place::{self, Place, eventually};
use super::probe::{Kind, job};
use super::stage::Stage;

/// The name that the server's certificate is for, beside its address.
const NAME: &str = "db.test";
/// When the certificate has long expired, in seconds since 1970.
const LONG_AFTER: u64 = 4_000_000_000;

/// A server with TLS, and the authority that signed its certificate.
struct Encrypted {
    cluster: Cluster,
    authority: String,
}

impl Encrypted {
    fn shared() -> &'static Self {
        static SHARED: OnceLock<Encrypted> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let cluster = Cluster::start().expect("a server");
        let authority = authority("the authority of a test");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([NAME.to_owned(), "127.0.0.1".to_owned()]).expect("names");
        params.not_after = date_time_ymd(2090, 1, 1);
        let certificate = params.signed_by(&key, &authority).expect("a signature");
        // Written by the server, whose the key has to be.
        for (file, text) in [("server.crt", certificate.pem()), ("server.key", key.serialize_pem())] {
            let lines = format!("regexp_split_to_table('{}', '\\r?\\n')", text.trim_end());
            let write = format!("COPY (SELECT {lines}) TO PROGRAM 'umask 077; cat > {file}'");
            cluster.psql(&write).expect("the server writes its own files");
        }
        cluster.psql("ALTER SYSTEM SET ssl = on").expect("a superuser");
        cluster.psql("SELECT pg_reload_conf()").expect("a superuser");
        eventually("the server has TLS", || (cluster.psql("SHOW ssl").ok()? == "on").then_some(()));
        Self { cluster, authority: authority.pem() }
    }

    fn stage<'a>(&self, front: &'a dyn Front) -> Stage<'a> {
        Stage::bare(front, self.cluster.url())
    }

    /// A connection string for this server; `host` says where and by which name.
    fn dsn(&self, place: &Place, host: &str) -> String {
        let (port, name) = (self.cluster.port(), &place.name);
        format!("{host} port={port} user={USER} password={PASSWORD} dbname=venturi application_name={name}")
    }

    fn trusted(&self) -> RootCertStore {
        trusting(&self.authority)
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

fn trusting(authority: &str) -> RootCertStore {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("a certificate");
    trusted
}

fn settings(trusted: RootCertStore) -> ClientConfig {
    ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth()
}

fn database(place: &Place, dsn: &str) -> Database {
    Database::new(dsn).and_then(|it| it.schema(&place.schema)).expect("a database")
}

fn complete_one(stage: &Stage<'_>, database: &Database) {
    stage.front.migrate(database).expect("migrating");
    let queue = stage.front.connect(database).expect("connecting");
    let worker = stage.work_on(&WorkerSpec::default(), database.clone());
    let id = queue.enqueue(job("a").with_filler(100_000)).expect("enqueueing").id.get();
    stage.place.wait_status(id, "completed");
    worker.stop();
}

/// How many of the connections that live are encrypted, and how many there are.
fn encrypted(place: &Place) -> (i64, i64) {
    let rows = place.rows(
        "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = $1",
        &[&place.name],
    );
    (rows[0].get(0), rows[0].get(1))
}

/// Two connections of the worker, and the queue's.
fn assert_all_are_encrypted(place: &Place) {
    let (secure, all) = eventually("all connect", || Some(encrypted(place)).filter(|(_, all)| *all >= 3));
    assert_eq!(secure, all);
}

pub(crate) fn all_that_is_said_is_encrypted(front: &dyn Front) {
    let server = Encrypted::shared();
    let stage = server.stage(front);
    let place = &stage.place;
    let dsn = server.dsn(place, &format!("host={NAME} hostaddr=127.0.0.1 sslmode=require channel_binding=require"));
    let database = database(place, &dsn).tls(settings(server.trusted()));
    front.migrate(&database).expect("migrating");
    let queue = front.connect(&database).expect("connecting");
    let worker = stage.work_on(&WorkerSpec::default(), database);
    let one = queue.enqueue(job("a").with_filler(300_000)).expect("enqueueing").id.get();
    place.wait_status(one, "completed");
    assert_all_are_encrypted(place);
    queue.enqueue_many(Kind::Plain, (0..2_000).map(|nth| job(nth.to_string())).collect()).expect("enqueueing");
    place.wait_all_finished();
    // What was cut comes back encrypted.
    place.terminate(&place.backends("true"));
    let one = eventually("the queue works again", || queue.enqueue(job("b")).ok()).id.get();
    place.wait_status(one, "completed");
    assert_all_are_encrypted(place);
    worker.stop();
}

pub(crate) fn a_preferred_encryption_is_used_where_the_server_has_it(front: &dyn Front) {
    let server = Encrypted::shared();
    let stage = server.stage(front);
    let place = &stage.place;
    for (mode, wanted) in [("prefer", 1), ("disable", 0)] {
        let dsn = server.dsn(place, &format!("host=127.0.0.1 sslmode={mode}"));
        let database = database(place, &dsn).tls(settings(server.trusted()));
        front.migrate(&database).expect("migrating");
        place.wait_no_backends();
        let queue = front.connect(&database).expect("connecting");
        assert_eq!(encrypted(place), (wanted, 1), "{mode}");
        drop(queue);
        place.wait_no_backends();
    }
}

pub(crate) fn the_certificates_of_the_trusted_may_come_from_a_file(front: &dyn Front) {
    let server = Encrypted::shared();
    let stage = server.stage(front);
    let place = &stage.place;
    let file = server.cluster.folder().join(format!("{}.pem", place.schema));
    std::fs::write(&file, &server.authority).expect("a file");
    let dsn = server.dsn(place, &format!("host={NAME} hostaddr=127.0.0.1 sslmode=verify-full"));
    let database = database(place, &dsn).tls_root_file(&file).expect("a certificate");
    complete_one(&stage, &database);
}

pub(crate) fn each_host_is_known_by_its_own_name(front: &dyn Front) {
    let server = Encrypted::shared();
    let stage = server.stage(front);
    let place = &stage.place;
    let two = format!("host=other.test,{NAME} hostaddr=127.0.0.1,127.0.0.1 sslmode=require");
    for hosts in [two.as_str(), "hostaddr=127.0.0.1 sslmode=require"] {
        let database = database(place, &server.dsn(place, hosts)).tls(settings(server.trusted()));
        complete_one(&stage, &database);
    }
}

pub(crate) fn a_unix_socket_is_never_encrypted(front: &dyn Front) {
    let server = Encrypted::shared();
    let stage = server.stage(front);
    let place = &stage.place;
    let folder = server.cluster.folder().display();
    let dsn = server.dsn(place, &format!("host='{folder}' sslmode=require"));
    complete_one(&stage, &database(place, &dsn).tls(settings(server.trusted())));
}

pub(crate) fn a_server_that_cannot_be_trusted_is_refused_with_what_to_do(front: &dyn Front) {
    let server = Encrypted::shared();
    let stage = server.stage(front);
    let place = &stage.place;
    let by_name = format!("host={NAME} hostaddr=127.0.0.1 sslmode=require");
    let is_refused = |host: &str, settings: ClientConfig, words: &[&str]| {
        let database = database(place, &server.dsn(place, host)).tls(settings);
        refuse(front, &database, ErrorKind::Tls, words);
    };
    is_refused(&by_name, settings(foreign("a foreign one")), &["UnknownIssuer", "Database::tls_root_file"]);
    // Preferring is no reason to take any server, nor to go on in plain text.
    let preferring = by_name.replace("require", "prefer");
    is_refused(&preferring, settings(foreign("a foreign one")), &["UnknownIssuer"]);
    // One that has the same name and another key.
    is_refused(&by_name, settings(foreign("the authority of a test")), &["BadSignature", "Database::tls_root_file"]);
    let by_another = by_name.replace(NAME, "other.test");
    is_refused(&by_another, settings(server.trusted()), &["other.test", NAME, "connect by a name"]);
    is_refused(&by_name, long_after(server.trusted()), &["expired", "renew the server's certificate"]);
    assert_eq!(encrypted(place), (0, 0));
}

fn foreign(name: &str) -> RootCertStore {
    trusting(&authority(name).pem())
}

fn long_after(trusted: RootCertStore) -> ClientConfig {
    #[derive(Debug)]
    struct LongAfter;
    impl TimeProvider for LongAfter {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(LONG_AFTER)))
        }
    }
    settings_by(Arc::new(LongAfter), trusted)
}

fn settings_by(clock: Arc<dyn TimeProvider>, trusted: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_details(provider, clock)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider has")
        .with_root_certificates(trusted)
        .with_no_client_auth()
}

/// They are the user's code, and run wherever a connection is made.
pub(crate) fn tls_settings_that_panic_are_a_connection_that_fails(front: &dyn Front) {
    #[derive(Debug, Default)]
    struct Clock {
        asked: AtomicUsize,
        is_mended: AtomicBool,
    }
    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            assert!(self.is_mended.load(Ordering::SeqCst), "the clock has stopped");
            UnixTime::now().into()
        }
    }
    let server = Encrypted::shared();
    let stage = server.stage(front);
    let clock = Arc::new(Clock::default());
    let dsn = server.dsn(&stage.place, "host=127.0.0.1 sslmode=require");
    let database = database(&stage.place, &dsn).tls(settings_by(clock.clone(), server.trusted()));
    for error in [front.migrate(&database).unwrap_err(), front.connect(&database).err().expect("no connection")] {
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true), "{error}");
        assert!(error.to_string().contains("the client panicked: the clock has stopped"), "{error}");
    }
    front.migrate(&self::database(&stage.place, &dsn).tls(settings(server.trusted()))).expect("migrating");
    let before = clock.asked.load(Ordering::SeqCst);
    let worker = stage.work_on(&WorkerSpec::default(), database.clone());
    eventually("the worker has tried", || (clock.asked.load(Ordering::SeqCst) > before).then_some(()));
    clock.is_mended.store(true, Ordering::SeqCst);
    complete_one(&stage, &database);
    worker.stop();
}

pub(crate) fn a_server_without_tls_is_refused_where_it_is_required(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    let place = &stage.place;
    let with = |options: &str| database(place, &place.url_with(options)).tls(settings(RootCertStore::empty()));
    refuse(front, &with("sslmode=require"), ErrorKind::Tls, &["does not support TLS", "ssl = on"]);
    refuse(front, &with("channel_binding=require"), ErrorKind::Authentication, &["channel binding"]);
    complete_one(&stage, &with("sslmode=prefer"));
}

pub(crate) fn tls_without_its_settings_is_refused(front: &dyn Front) {
    let stage = Stage::bare(front, place::url());
    let place = &stage.place;
    let database = database(place, &place.url_with("sslmode=require"));
    let refused = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("call `Database::tls`"), "{error}");
    };
    refused(front.migrate(&database).unwrap_err());
    refused(front.connect(&database).err().expect("an error"));
    refused(front.start(&WorkerSpec::default(), database, Arc::default()).err().expect("an error"));
}

/// Nobody comes through: not `migrate`, not a queue, not a worker.
fn refuse(front: &dyn Front, database: &Database, kind: ErrorKind, words: &[&str]) {
    let check = |error: &Error| {
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!error.is_retryable(), "{text}");
    };
    refusals(front, database).iter().for_each(check);
}

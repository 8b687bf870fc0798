//! A server with a certificate that only we trust.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::cluster::{Cluster, DATABASE, PASSWORD, USER};
use super::place::Place;

fn encrypted() -> (Cluster, PathBuf) {
    let cluster = Cluster::start().expect("a server");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the authority of a test");
    let key = || KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority");
    let own = key();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).and_then(|it| it.signed_by(&own, &authority));
    // Written by the server, whose the key has to be.
    for (file, text) in [("server.crt", certificate.expect("a signature").pem()), ("server.key", own.serialize_pem())] {
        let lines = format!("regexp_split_to_table('{}', '\\r?\\n')", text.trim_end());
        cluster.psql(&format!("COPY (SELECT {lines}) TO PROGRAM 'umask 077; cat > {file}'")).expect("a superuser");
    }
    cluster.psql("ALTER SYSTEM SET ssl = on; ALTER SYSTEM SET log_connections = on").expect("a superuser");
    cluster.restart().expect("it starts again");
    let file = std::env::temp_dir().join(format!("venturi-cli-{}.pem", std::process::id()));
    fs::write(&file, authority.pem()).expect("a file");
    (cluster, file)
}

/// How many of the command's connections were made, in plain text and encrypted.
fn connections(cluster: &Cluster) -> (usize, usize) {
    let log = cluster.log().expect("a log");
    let ours = log.lines().filter(|line| line.contains("connection authorized") && line.contains("=venturi SSL"));
    let all =
        log.lines().filter(|line| line.contains("connection authorized") && line.contains("application_name=venturi"));
    let (all, encrypted) = (all.count(), ours.count());
    (all - encrypted, encrypted)
}

#[test]
fn what_is_said_is_encrypted_when_it_is_asked_for_or_nothing_is_said() {
    let (cluster, file) = encrypted();
    let place = Place { url: cluster.url(), schema: "venturi".to_owned() };
    let trusted = file.to_str().expect("a name");
    let required = format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{DATABASE}?sslmode=require", cluster.port());
    assert_eq!(place.venturi(&["migrate", "--ca-file", trusted]).code, 0);
    assert_eq!(place.venturi_at(&required, &["status", "--ca-file", trusted]).code, 0);
    let (plain, encrypted) = connections(&cluster);
    assert!(plain == 0 && encrypted >= 2, "{plain} {encrypted}");
    for (url, arguments) in [(&place.url, &["status", "--tls"][..]), (&required, &["status"][..])] {
        let refused = place.venturi_at(url, arguments);
        // The second is said where the platform trusts nobody.
        let words = ["UnknownIssuer", "trusted authorities"];
        assert!(refused.code > 0 && words.iter().any(|word| refused.err.contains(word)), "{}", refused.err);
    }
    assert_eq!(connections(&cluster), (plain, encrypted), "nothing is said to whom we do not trust");
    assert_eq!(place.venturi(&["status", "--ca-file", "/nowhere.pem"]).code, 2);
    assert_eq!(place.venturi(&["status"]).code, 0, "nobody asked for it");
    assert!(connections(&cluster).0 > 0);
    fs::remove_file(file).expect("it is there");
}

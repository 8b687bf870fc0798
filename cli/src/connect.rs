//! Which database is meant, and whether what is said to it is encrypted.

use rustls::{ClientConfig, RootCertStore};
use venturi::Database;

use crate::args::{Arguments, Command};
use crate::failure::Failure;

pub(crate) fn database(arguments: &Arguments) -> Result<Database, Failure> {
    let missing = || Failure::Usage("where is the server? Give --database-url, or set DATABASE_URL".to_owned());
    let url = arguments.database_url.as_deref().ok_or_else(missing)?;
    let mut database = Database::new(url)?.schema(&arguments.schema)?.pooled(arguments.pooled);
    if let Command::Doctor { listen_on: Some(url) } = &arguments.command {
        database = database.listen_on(url)?;
    }
    Ok(match &arguments.ca_file {
        Some(file) => database.tls_root_file(file)?.require_tls(),
        None if arguments.tls || database.requires_tls() => database.tls(settings()?).require_tls(),
        None => database,
    })
}

/// For what is only written out.
pub(crate) fn nowhere(arguments: &Arguments) -> Result<Database, Failure> {
    Ok(Database::new("host=localhost")?.schema(&arguments.schema)?)
}

/// Trusts what the platform trusts.
fn settings() -> Result<ClientConfig, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let mut trusted = RootCertStore::empty();
    // Platforms keep some that nobody can read; what matters is that there are others.
    trusted.add_parsable_certificates(found.certs);
    if trusted.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let what = format!("the platform's trusted authorities are not to be found{why}: give --ca-file");
        return Err(Failure::Usage(what));
    }
    Ok(ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth())
}

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::ClusterError;

/// The variable that names the folder of the server's binaries.
pub(crate) const BINARIES_VARIABLE: &str = "VENTURI_PG_BIN";

const MISSING: &str = "no PostgreSQL server found: install one (Debian, Ubuntu: `apt-get install postgresql`; \
     Fedora: `dnf install postgresql-server`; macOS: `brew install postgresql`) \
     or set VENTURI_PG_BIN to the folder that holds `initdb` and `postgres`";

/// Where packages put a version's binaries: the folder, and what is before and after the version in its entries.
const PACKAGED: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/lib", "postgresql", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// The folder that holds `initdb` and `postgres`: `VENTURI_PG_BIN`, else the first on `PATH`, else the newest packaged.
pub(crate) fn find_server_binaries() -> Result<PathBuf, ClusterError> {
    if let Some(named) = std::env::var_os(BINARIES_VARIABLE).filter(|named| !named.is_empty()) {
        return complete(Path::new(&named)).ok_or_else(|| {
            let named = Path::new(&named).display();
            ClusterError::new(format!("{BINARIES_VARIABLE} is {named}, which does not hold `initdb` and `postgres`"))
        });
    }
    on_path().or_else(newest_packaged).ok_or_else(|| ClusterError::new(MISSING))
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|folder| complete(&folder))
}

fn newest_packaged() -> Option<PathBuf> {
    PACKAGED
        .iter()
        .flat_map(|(folder, prefix, suffix)| versions(Path::new(folder), prefix, suffix))
        .max_by_key(|(version, _)| *version)
        .map(|(_, binaries)| binaries)
}

fn versions(folder: &Path, prefix: &str, suffix: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let version = version_in(&entry.file_name(), prefix)?;
            Some((version, complete(&entry.path().join(suffix))?))
        })
        .collect()
}

/// The major version in a name such as `16`, `9.6` or `pgsql-16`.
fn version_in(name: &OsStr, prefix: &str) -> Option<u32> {
    name.to_str()?.strip_prefix(prefix)?.split('.').next()?.parse().ok()
}

/// The folder where both binaries really are, if they are complete.
///
/// A link to `initdb` leads to the installation that it came from, where its own files are. A wrapper script leads
/// nowhere, and then both have to be in the folder itself.
fn complete(folder: &Path) -> Option<PathBuf> {
    let behind_link = folder.join("initdb").canonicalize().ok()?;
    behind_link
        .parent()
        .filter(|real| holds_both(real))
        .or_else(|| Some(folder).filter(|folder| holds_both(folder)))
        .and_then(|found| std::path::absolute(found).ok())
}

fn holds_both(folder: &Path) -> bool {
    folder.join("initdb").is_file() && folder.join("postgres").is_file()
}

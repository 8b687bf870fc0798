use std::os::unix::process::CommandExt;
use std::process::Command;

use super::error::ClusterError;

/// Whom a server runs as, when that is not who we are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account(Option<Ids>);

#[derive(Debug, Clone, Copy)]
struct Ids {
    user: u32,
    group: u32,
}

impl Account {
    /// Ourselves; but PostgreSQL refuses to run as root, so for root `postgres`, else `nobody`.
    pub(super) fn for_servers() -> Result<Self, ClusterError> {
        let ourselves = id(&["-u"]).ok_or_else(|| ClusterError::new("cannot learn our user id: `id -u` gives none"))?;
        if ourselves != 0 {
            return Ok(Self(None));
        }
        ["postgres", "nobody"].into_iter().find_map(Ids::of).map(|ids| Self(Some(ids))).ok_or_else(|| {
            ClusterError::new("PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`")
        })
    }

    pub(super) fn apply(self, command: &mut Command) {
        if let Self(Some(ids)) = self {
            // The standard library also drops root's supplementary groups when it changes the user.
            command.uid(ids.user).gid(ids.group);
        }
    }
}

impl Ids {
    fn of(name: &str) -> Option<Self> {
        Some(Self { user: id(&["-u", name])?, group: id(&["-g", name])? }).filter(|ids| ids.user != 0)
    }
}

fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

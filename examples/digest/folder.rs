//! Which files there are.

use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::content::modified;
use crate::path_text;

/// A regular file as the walk saw it.
#[derive(Debug)]
pub(crate) struct Found {
    /// As [`path_text`] writes it; absolute.
    pub(crate) path: String,
    pub(crate) size: u64,
    /// See [`modified`].
    pub(crate) mtime: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// In no particular order.
    pub(crate) files: Vec<Found>,
    /// Folders that could not be listed, and why.
    pub(crate) unreadable: Vec<(PathBuf, io::Error)>,
}

/// All regular files below `root`. Links are not followed; what vanishes meanwhile was never there.
pub(crate) fn walk(root: &Path) -> io::Result<Walk> {
    let about_root = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", root.display()));
    let root = root.canonicalize().map_err(about_root)?;
    fs::read_dir(&root).map_err(about_root)?;
    let (mut walk, mut folders) = (Walk::default(), vec![root]);
    while let Some(folder) = folders.pop() {
        match list(&folder, &mut walk.files, &mut folders) {
            Err(error) if error.kind() != ErrorKind::NotFound => walk.unreadable.push((folder, error)),
            _ => {}
        }
    }
    Ok(walk)
}

fn list(folder: &Path, files: &mut Vec<Found>, folders: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            folders.push(entry.path());
        } else if kind.is_file() {
            files.extend(found(&entry));
        }
    }
    Ok(())
}

fn found(entry: &DirEntry) -> Option<Found> {
    let metadata = entry.metadata().ok()?;
    let path = path_text::encode(&entry.path());
    Some(Found { path, size: metadata.len(), mtime: modified(&metadata) })
}

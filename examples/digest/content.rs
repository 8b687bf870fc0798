//! Reading one file.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use venturi::CancellationToken;

/// Large enough that system calls don't count, small enough to hear of a cancellation soon and for many at once.
const CHUNK: usize = 128 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) size: u64,
    /// Line feeds, as `wc -l` counts.
    pub(crate) lines: u64,
    pub(crate) sha256: [u8; 32],
    /// See [`modified`]. Taken before the first byte was read: what changes later will be digested again.
    pub(crate) mtime: i64,
}

/// Digests a regular file; `None` when the token was cancelled before its end.
pub(crate) fn digest(path: &Path, token: &CancellationToken) -> io::Result<Option<Digest>> {
    // Opening a pipe would wait for a writer, and a link may lead anywhere.
    need_regular(&fs::symlink_metadata(path)?)?;
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    need_regular(&metadata)?;
    let (mut sha256, mut size, mut lines) = (Sha256::new(), 0, 0);
    let mut buffer = vec![0; CHUNK];
    loop {
        if token.is_cancelled() {
            return Ok(None);
        }
        let chunk = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => buffer.get(..length).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        sha256.update(chunk);
        size += chunk.len() as u64;
        lines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    Ok(Some(Digest { size, lines, sha256: sha256.finalize().into(), mtime: modified(&metadata) }))
}

/// Nanoseconds since 1970 in which a file was last changed.
pub(crate) fn modified(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

fn need_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it has become a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file any more"));
    }
    Ok(())
}

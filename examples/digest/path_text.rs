//! Paths as text that any database and any JSON can hold, and back without loss.
//!
//! UTF-8 stays as it is, except for `%`; it and all other bytes are written as `%` and two hexadecimal digits.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub(crate) fn encode(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

pub(crate) fn decode(text: &str) -> PathBuf {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(b'%'));
        let plain = if byte.is_some() { part.get(2..).unwrap_or_default() } else { part };
        bytes.extend_from_slice(plain.as_bytes());
    }
    OsString::from_vec(bytes).into()
}

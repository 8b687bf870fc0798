//! The direction of imports, and what the core must not do.
//!
//! `blocking → src ← async`, with `threads` and `tls` beside the core for both: the core has no socket, thread, sleep, clock or future; no front-end names the other; no
//! executor is named outside the dev-dependencies.
#![expect(clippy::expect_used, reason = "a broken checkout fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// A file with the words that it must not contain, comments left out.
struct Rule {
    folders: &'static [&'static str],
    forbidden: &'static [&'static str],
    /// Files that are exempt, each for a reason.
    exempt: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule {
        folders: &["src"],
        forbidden: &[
            ".await",
            "async fn",
            "async move",
            "thread::",
            "Instant::now",
            "SystemTime::now",
            "sleep(",
            "TcpStream",
            "UnixStream",
            "crossbeam",
            "parking_lot",
            "async_io",
            "async_channel",
            "futures_lite",
            "futures_util",
            "postgres::Client",
            "tokio_postgres::Client",
        ],
        exempt: &[
            // Waiting for a cancellation is what the token is for: threads and futures both can.
            "src/cancellation.rs",
            // Mounts the front-ends.
            "src/lib.rs",
        ],
    },
    // A logger may panic, and these calls stand where that would end a worker.
    Rule {
        folders: &["src", "threads", "tls", "blocking", "async", "testing"],
        forbidden: &["log::error!", "log::warn!", "log::info!", "log::debug!", "log::log!"],
        exempt: &["src/notice.rs"],
    },
    Rule { folders: &["src"], forbidden: &["crate::blocking", "crate::r#async"], exempt: &["src/lib.rs"] },
    Rule { folders: &["src"], forbidden: &["crate::tls", "tokio_rustls"], exempt: &[] },
    Rule {
        folders: &["tls"],
        forbidden: &["crate::blocking", "crate::r#async", "async_io", ".await", "TcpStream", "thread::"],
        exempt: &[],
    },
    Rule {
        folders: &["blocking"],
        forbidden: &["r#async", "async_io", "async_channel", "futures_", ".await"],
        exempt: &[],
    },
    Rule { folders: &["async"], forbidden: &["crate::blocking", "crossbeam", "parking_lot"], exempt: &[] },
    Rule {
        folders: &["src", "threads", "tls", "blocking", "async", "testing"],
        forbidden: &[
            "tokio::spawn",
            "tokio::runtime",
            "tokio::task",
            "tokio::time",
            "smol::",
            "async_std",
            "async_executor",
        ],
        exempt: &[],
    },
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("its entries can be read").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The line without what stands behind `//`: docs may name what the code must not.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Tests may wait, and name executors.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

fn violations(rule: &Rule) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for file in rule.folders.iter().flat_map(|folder| files(&root.join(folder))) {
        let name = file.strip_prefix(root).expect("a file of this package").to_string_lossy().into_owned();
        if is_test(file.strip_prefix(root).expect("a file of this package")) || rule.exempt.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("source is text");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
        for (number, line) in text.lines().enumerate() {
            let word = rule.forbidden.iter().find(|word| code(line).contains(**word));
            found.extend(word.map(|word| format!("{name}:{}: `{word}`", number + 1)));
        }
    }
    found
}

#[test]
fn imports_point_at_the_core_and_the_core_never_waits() {
    let found: Vec<String> = RULES.iter().flat_map(violations).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_core_file_denies_the_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let missing: Vec<_> = files(&root)
        .into_iter()
        .filter(|file| !file.ends_with("lib.rs") && !is_test(file))
        .filter(|file| !fs::read_to_string(file).unwrap_or_default().contains("deny(clippy::disallowed_methods)"))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn nothing_outside_the_dev_dependencies_brings_an_executor() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("a manifest");
    let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or("");
    for line in dependencies.lines().filter(|line| line.starts_with("tokio ")) {
        assert!(line.contains("default-features = false") && !line.contains("rt"), "{line}");
    }
    for executor in ["smol =", "async-std =", "async-executor =", "async-global-executor ="] {
        assert!(!dependencies.contains(executor), "{executor}");
    }
}

//! What the documents say can be done and found is there: commands, links, programs.
#![expect(clippy::expect_used, reason = "a broken checkout fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Commands that only set up what a reader may lack, or run a program of the reader's own.
const OTHERS: &[&str] =
    &["cargo doc --open --all-features", "cargo run", "cargo add", "cargo new", "export DATABASE_URL="];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).expect("the file is text")
}

/// All of this package, by their paths in it.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "benches", "examples"] {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        let paths = entries.map(|entry| entry.expect("its entries can be read").path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    found.iter().map(|path| path.strip_prefix(root()).expect("it is in the package").to_owned()).collect()
}

/// What stands between fences that are marked with one of these languages, one item to a line.
fn blocks(document: &str, languages: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = None;
    for line in document.lines() {
        match line.trim_start().strip_prefix("```") {
            Some("") if inside.is_some() => inside = None,
            Some(language) if inside.is_none() => inside = Some(languages.contains(&language)),
            _ if inside == Some(true) => lines.push(line.to_owned()),
            _ => {}
        }
    }
    lines
}

/// What follows `--example` and `--bench`.
fn targets(command: &str) -> Vec<&str> {
    let words = command.split_whitespace();
    let pairs = words.clone().zip(words.skip(1));
    pairs.filter(|(option, _)| ["--example", "--bench"].contains(option)).map(|(_, name)| name).collect()
}

fn is_target(manifest: &str, name: &str) -> bool {
    manifest.contains(&format!("name = \"{name}\"")) || root().join(format!("examples/{name}/main.rs")).is_file()
}

#[test]
fn every_command_names_a_script_or_a_program_that_is_there() {
    let manifest = text("Cargo.toml");
    let mut wrong = Vec::new();
    for document in documents() {
        for line in blocks(&text(&document), &["sh"]) {
            let command = line.split('#').next().unwrap_or_default().trim();
            let mut words = command.split_whitespace().skip_while(|word| word.contains('='));
            let known = match words.next() {
                None => true,
                Some(script) if script.starts_with("scripts/") || script == ".ci/run" => root().join(script).is_file(),
                Some("cargo") if !targets(command).is_empty() => {
                    targets(command).into_iter().all(|name| is_target(&manifest, name))
                }
                // The command's own page is run by a test of its own: cli/tests/command/page.rs.
                Some("venturi" | "echo") => true,
                Some(_) => OTHERS.iter().any(|other| command.starts_with(other)),
            };
            if !known {
                wrong.push(format!("{}: {line}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_script_is_described_and_run_by_name() {
    let described: String = documents().iter().map(text).collect();
    let ran = format!("{}{}", text(".ci/run"), text("CONTRIBUTING.md"));
    for entry in fs::read_dir(root().join("scripts")).expect("scripts are there") {
        let name = format!("scripts/{}", entry.expect("an entry").file_name().to_string_lossy());
        assert!(described.contains(&name), "no document tells of {name}");
        assert!(ran.contains(&name), "{name} is run neither by .ci/run nor by what CONTRIBUTING.md tells");
    }
}

/// As GitHub makes it of a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase();
    letters
        .chars()
        .filter_map(|it| if it == ' ' { Some('-') } else { (it.is_alphanumeric() || "-_".contains(it)).then_some(it) })
        .collect()
}

fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for document in documents() {
        let page = text(&document);
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // Code has brackets, too.
            if link.contains("://") || link.contains(' ') || link.is_empty() {
                continue;
            }
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let folder = document.parent().unwrap_or(Path::new(""));
            let target = if file.is_empty() { document.clone() } else { folder.join(file) };
            let there = root().join(&target);
            if !there.exists() || !place.is_empty() && !anchors(&text(&target)).contains(place) {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// By a doctest that includes the document. What is marked `ignore` is an excerpt.
#[test]
fn every_program_in_a_document_is_compiled() {
    let library = text("src/lib.rs");
    for document in documents() {
        let page = text(&document);
        let mut opened = page.lines().filter(|line| line.trim_start().starts_with("```rust"));
        let has_programs = opened.any(|line| !line.ends_with(",ignore"));
        let included = library.contains(&format!("include_str!(\"../{}\")", document.display()));
        assert!(included || !has_programs, "src/lib.rs does not compile what {} shows", document.display());
    }
}

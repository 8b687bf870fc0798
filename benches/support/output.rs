//! The frame of what every bench prints: settings first, one line of JSON last.

use std::io::{self, Write};
use std::thread;

use serde_json::{Value, json};

use super::Result;
use super::server::Server;

/// What a bench was run with.
#[derive(Debug)]
pub(crate) struct Head {
    bench: &'static str,
    server: Value,
    settings: Value,
}

impl Head {
    /// Prints the settings. `settings` is a JSON object of the bench's own.
    pub(crate) fn print(bench: &'static str, server: &Server, settings: Value) -> Result<Self> {
        let head = Self { bench, server: server.settings()?, settings };
        let mut out = io::stdout().lock();
        for values in [&head.server, &head.settings] {
            let words = values.as_object().into_iter().flatten().map(|(name, value)| match value {
                Value::String(text) => format!("{name} = {text}"),
                other => format!("{name} = {other}"),
            });
            writeln!(out, "{}", words.collect::<Vec<_>>().join(", "))?;
        }
        writeln!(out, "cores = {}", cores())?;
        Ok(head)
    }

    /// Prints the last line.
    pub(crate) fn finish(&self, cases: &[Value]) -> Result<()> {
        let line = json!({
            "bench": self.bench, "cores": cores(), "server": self.server, "settings": self.settings, "cases": cases,
        });
        Ok(writeln!(io::stdout().lock(), "{line}")?)
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}

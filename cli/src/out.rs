//! How words get out: to people with colour where a terminal shows it, to programs as they are.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::args::Consent;
use crate::failure::Failure;

/// Of a terminal that does not say how large it is; some say 0.
const WIDTH: u16 = 80;
const HEIGHT: u16 = 24;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const DULL: Style = AnsiColor::Cyan.on_default();
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

pub(crate) fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

pub(crate) fn print(
    as_json: bool,
    document: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if as_json { raw(format!("{}\n", document()).as_bytes()) } else { say(&text()) }
}

/// To people: without colour where there is no terminal, or where NO_COLOR is set.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// To programs.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// How wide a table may be; nothing where it goes elsewhere than to a terminal.
pub(crate) fn width() -> Option<u16> {
    io::stdout().is_terminal().then(|| terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0))
}

/// In the place of what was shown before, if this is a terminal; else below it.
///
/// Each line is overwritten and its rest cleared, then what is below: clearing all of it first would flicker.
pub(crate) fn redraw(text: &str) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return say(&format!("{text}\n"));
    }
    let height = terminal_size::terminal_size().map_or(HEIGHT, |(_, height)| height.0);
    // Into memory first, so that a terminal gets a frame as a whole. The cursor takes the last line.
    let mut frame = Vec::new();
    for line in text.lines().take(usize::from(height).saturating_sub(1)) {
        let mut paint = anstream::AutoStream::new(Vec::new(), anstream::AutoStream::choice(&io::stdout()));
        paint.write_all(line.as_bytes())?;
        frame.extend(paint.into_inner());
        frame.extend(b"\x1b[K\n");
    }
    raw(&[b"\x1b[H", frame.as_slice(), b"\x1b[J"].concat())
}

pub(crate) fn confirm(consent: &Consent, question: &str) -> Result<(), Failure> {
    if consent.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage("this writes many jobs, and nobody is here to be asked: give --yes".to_owned()));
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Usage("not confirmed, so nothing was done".to_owned())),
    }
}

//! Deleting finished jobs, with a sight of how far it is.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use venturi::blocking::Queue;
use venturi::{Cleaned, Cleanup};

use crate::args::Ages;
use crate::failure::Failure;
use crate::out::{confirm, print};

pub(crate) fn cleanup(queue: &Queue, ages: &Ages, as_json: bool) -> Result<(), Failure> {
    let criteria = criteria(ages);
    if criteria == Cleanup::new() {
        return Err(Failure::Usage("of which jobs? Give --completed-older-than, or another age".to_owned()));
    }
    // Counting takes its time, so it is left out where nobody sees the number.
    let watched = io::stdin().is_terminal() || io::stderr().is_terminal();
    let total = watched.then(|| queue.cleanup_count(criteria).ok()).flatten().map(Cleaned::total);
    let how_many = total.map_or_else(|| "the".to_owned(), |total| total.to_string());
    confirm(&ages.consent, &format!("Delete {how_many} finished jobs of these ages?"))?;
    // Drawn on standard error, and only where that is a terminal.
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new).with_style(style());
    let shown = bar.clone();
    let done = queue.cleanup_with(criteria, move |done: Cleaned| {
        shown.set_position(done.total());
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let done = done?;
    let document = || json!({ "completed": done.completed, "cancelled": done.cancelled, "dead": done.dead });
    print(as_json, document, || {
        format!("deleted: {} completed, {} cancelled, {} dead", done.completed, done.cancelled, done.dead)
    })
}

fn criteria(ages: &Ages) -> Cleanup {
    let criteria = ages.completed_older_than.iter().fold(Cleanup::new(), |it, age| it.completed(*age));
    let criteria = ages.cancelled_older_than.iter().fold(criteria, |it, age| it.cancelled(*age));
    ages.dead_older_than.iter().fold(criteria, |it, age| it.dead(*age))
}

fn style() -> ProgressStyle {
    let template = "deleting [{wide_bar}] {pos}/{len}, {per_sec}, {eta} left";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

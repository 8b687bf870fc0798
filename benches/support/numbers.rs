//! Of many figures, one.

use std::time::Duration;

use serde_json::{Value, json};

use super::Result;

pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let upper = figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    f64::midpoint(lower, upper)
}

/// The median of the ratios within each round.
pub(crate) fn median_ratio<'a>(
    ours: impl IntoIterator<Item = &'a f64>,
    theirs: impl IntoIterator<Item = &'a f64>,
) -> f64 {
    median(ours.into_iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

/// Four digits behind the point. What is not a number, for want of a measurement, becomes `null` in JSON.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// For the table: two digits, or a dash where nothing was measured.
pub(crate) fn cell(figure: Option<f64>, digits: usize) -> String {
    figure.filter(|it| it.is_finite()).map_or_else(|| "-".to_owned(), |it| format!("{it:.digits$}"))
}

/// A list of counts, as in `1,16`.
pub(crate) fn counts(text: &str) -> Result<Vec<usize>> {
    text.split(',').map(count).collect()
}

/// A count above zero, as in `1_000_000`.
pub(crate) fn count(text: &str) -> Result<usize> {
    let count = text.trim().replace('_', "").parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("{text:?} is not a count").into())
}

/// How long something took, many times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread(Vec<Duration>);

impl Spread {
    pub(crate) fn extend(&mut self, times: impl IntoIterator<Item = Duration>) {
        self.0.extend(times);
        self.0.sort();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The time within which so many of a hundred were done.
    pub(crate) fn percentile(&self, part: usize) -> Duration {
        let at = (self.0.len() * part).div_ceil(100).saturating_sub(1);
        self.0.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        let ms = |part| rounded(milliseconds(self.percentile(part)));
        json!({ "samples": self.len(), "p50_ms": ms(50), "p95_ms": ms(95), "p99_ms": ms(99), "max_ms": ms(100) })
    }
}

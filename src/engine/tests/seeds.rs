//! Many stories, each made from a seed, on all cores.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happened how often; of what begins with "most", the most.
pub(crate) type Figures = BTreeMap<&'static str, u64>;

/// After so many that failed, no more are told.
const ENOUGH: usize = 3;

/// A number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Has `tell` tell the stories of these seeds, each thread with a `place` of its own, and adds up what happened in them;
/// or the texts of the first that failed.
pub(crate) fn try_each<P>(
    seeds: Range<u64>,
    progress: bool,
    place: impl Fn() -> P + Sync,
    tell: impl Fn(&mut P, u64) -> Result<Figures, String> + Sync,
) -> Result<Figures, String> {
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(BTreeMap::new()));
    let totals = Mutex::new(Figures::new());
    let work = || {
        let mut place = place();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failed.lock().unwrap().len() >= ENOUGH {
                return;
            }
            match tell(&mut place, seed) {
                Ok(figures) => add(&mut totals.lock().unwrap(), figures),
                Err(text) => _ = failed.lock().unwrap().insert(seed, text),
            }
            let told = seed + 1 - seeds.start;
            if progress && told.is_multiple_of(1_000) {
                println!("{told} of {} seeds", seeds.end - seeds.start);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| _ = scope.spawn(work)));
    let failed: Vec<String> = failed.into_inner().unwrap().into_values().collect();
    if failed.is_empty() { Ok(totals.into_inner().unwrap()) } else { Err(failed.join("\n")) }
}

/// As many seeds as the environment says, of which all is told that happens.
pub(crate) fn try_many(all_well: &str, try_seeds: impl FnOnce(u64, u64) -> Result<Figures, String>) {
    let (first, seeds) = (number("VENTURI_FIRST_SEED", 0), number("VENTURI_SEEDS", 1_000));
    match try_seeds(first, seeds) {
        Ok(figures) => {
            show(&figures);
            println!("{all_well} of {seeds} seeds from {first} on");
        }
        Err(failed) => panic!("\n{failed}"),
    }
}

pub(crate) fn show(figures: &Figures) {
    figures.iter().for_each(|(what, count)| println!("{count:>12} {what}"));
}

fn add(totals: &mut Figures, figures: Figures) {
    for (what, count) in figures {
        let total = totals.entry(what).or_default();
        *total = if what.starts_with("most ") { count.max(*total) } else { *total + count };
    }
}

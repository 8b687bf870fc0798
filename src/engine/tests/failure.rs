//! What a seed's script shows when it fails, as text that can be performed again: a line of JSON for each step.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A script that fails, shortened, and why it does.
pub(crate) struct Failure<S> {
    pub(crate) script: Vec<S>,
    pub(crate) why: String,
}

impl<S: Serialize> Failure<S> {
    pub(crate) fn text(&self, seed: u64) -> String {
        let steps = self.script.iter().map(|step| serde_json::to_string(step).unwrap() + "\n").collect::<String>();
        format!("# seed {seed}: {}\n{steps}", self.why.replace('\n', "\n# "))
    }
}

/// Lines that begin with `#` are left out.
pub(crate) fn script_in<S: DeserializeOwned>(text: &str) -> Vec<S> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"))).collect()
}

/// The script that is to be replayed.
pub(crate) fn script_of_file<S: DeserializeOwned>() -> Vec<S> {
    let file = std::env::var("VENTURI_REPLAY").expect("VENTURI_REPLAY names a script");
    script_in(&std::fs::read_to_string(file).unwrap())
}

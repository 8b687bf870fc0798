//! From steps that do much to steps that do what is needed.

use serde_json::Value;

use super::script::Step;

/// Leaves out of each step what is not needed for `fails`.
pub(super) fn lighten(mut script: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    for nth in 0..script.len() {
        let mut tried = 0;
        // What can be left out of the lighter step has the same place in the list, or an earlier one.
        while let Some(step) = lighter(&script[nth]).into_iter().nth(tried) {
            let mut lighter = script.clone();
            lighter[nth] = step;
            if fails(&lighter) {
                script = lighter;
            } else {
                tried += 1;
            }
        }
    }
    script
}

/// The step without one element of a list, or without something that may be missing.
fn lighter(step: &Step) -> Vec<Step> {
    let values = without_one(&serde_json::to_value(step).unwrap());
    let steps = values.into_iter().filter_map(|value| serde_json::from_value(value).ok());
    steps.filter(|lighter| lighter != step).collect()
}

fn without_one(value: &Value) -> Vec<Value> {
    match value {
        Value::Object(fields) => {
            let with = |(name, value): (&String, Value)| {
                let mut fields = fields.clone();
                fields.insert(name.clone(), value);
                Value::Object(fields)
            };
            let others = |(name, value)| [Value::Null].into_iter().chain(without_one(value)).map(move |it| (name, it));
            fields.iter().flat_map(others).map(with).collect()
        }
        Value::Array(elements) => {
            let with = |(nth, value): (usize, Option<Value>)| {
                let (before, after) = (elements[..nth].iter().cloned(), elements[nth + 1..].iter().cloned());
                Value::Array(before.chain(value).chain(after).collect())
            };
            let others = |(nth, value)| {
                [None].into_iter().chain(without_one(value).into_iter().map(Some)).map(move |it| (nth, it))
            };
            elements.iter().enumerate().flat_map(others).map(with).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn what_is_not_needed_is_left_out_of_a_step() {
    let cancel = Step::Cancel { jobs: vec![1, 2, 3], pending: true, claimed: true };
    let needed = |script: &[Step]| matches!(&script[0], Step::Cancel { jobs, .. } if jobs.contains(&2));
    assert_eq!(lighten(vec![cancel], needed), [Step::Cancel { jobs: vec![2], pending: true, claimed: true }]);
}

use std::collections::BTreeSet;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event as TracingEvent, Metadata, Subscriber, span};

use super::*;
use crate::observer::tests::one_of_each;

/// Keeps the events that it is told.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Ledger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &TracingEvent<'_>) {
        let mut fields = BTreeMap::from([("level".to_owned(), event.metadata().level().to_string())]);
        event.record(&mut Fields(&mut fields));
        self.0.lock().unwrap().push(fields);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn each_event_is_told_once_with_the_fields_of_its_record_in_the_log() {
    let ledger = Ledger::default();
    tracing::subscriber::with_default(ledger.clone(), || {
        one_of_each().iter().for_each(|event| Tracing::new().observe(&Observed::new(Some("here"), event)));
    });
    let told = ledger.0.lock().unwrap();
    assert_eq!(told.len(), one_of_each().len());
    for (event, fields) in one_of_each().iter().zip(told.iter()) {
        let observed = Observed::new(Some("here"), event);
        let facts = Facts::new(&observed);
        let mut pairs = Pairs::default();
        facts.visit(&mut pairs).unwrap();
        let expected: BTreeSet<_> = pairs.0.keys().map(String::as_str).chain(["level", "message"]).collect();
        assert_eq!(fields.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{event}");
        assert_eq!(fields["level"], event.level().as_str());
        assert_eq!(fields["message"], event.to_string());
        assert_eq!(fields["event"], format!("{:?}", event.name()));
    }
}

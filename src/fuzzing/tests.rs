//! The same checks with the inputs of `proptest`; `fuzz/` has its own.

mod rows;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use rows::Cell;

/// Any text, and text that looks like something.
fn text() -> impl Strategy<Value = String> {
    let parts = select(vec![
        "\0",
        "\u{1}",
        "\"",
        "'",
        "`",
        "\\",
        "{schema}",
        "$1",
        "%00",
        "%",
        "@",
        ":",
        "/",
        "?",
        "&",
        "=",
        ",",
        ";",
        " ",
        "postgres://",
        "host=",
        "password=",
        "sslmode=",
        "port=",
        "options=",
        "hunter2",
        "v1;",
        "cancel=",
        "*",
        "18446744073709551616",
        "-9223372036854775808",
        "1e999",
        "\u{feff}",
        "é",
        "pg_",
        "\u{202e}",
        "null",
    ]);
    prop_oneof![
        ".*",
        vec(prop_oneof![3 => parts.prop_map(str::to_owned), 1 => ".{0,5}"], 0..12).prop_map(|it| it.concat())
    ]
}

/// JSON, and what is nearly JSON.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<f64>().prop_map(|number| number.to_string()),
        "-?[0-9]{1,400}(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,5})?",
        any::<String>().prop_map(|text| Value::from(text).to_string()),
        select(vec![
            "\"\\u0000\"",
            "\"\\ud800\"",
            "\"\\udc00\\ud800\"",
            "\"\u{7f}\"",
            "\"",
            "{",
            "]",
            "nul",
            "01",
            "-",
            ""
        ])
        .prop_map(str::to_owned),
    ];
    let key = select(vec!["text", "byte", "signed", "real", "letter", "maybe", "many", "\\u0000", "", "text"]);
    let tree = leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(|parts| format!("[{}]", parts.join(","))),
            vec((key.clone(), inner), 0..5).prop_map(|pairs| {
                let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", pairs.join(","))
            }),
        ]
    });
    prop_oneof![4 => tree, 1 => ".*"]
}

/// What a column may hold: mostly what fits its type, with the ends of its range.
fn cell(ty: &Type) -> BoxedStrategy<Cell> {
    let ends = |size: usize| {
        let ends = [0_u8, 1, 0x7f, 0x80, 0xff];
        prop_oneof![
            select(ends.to_vec()).prop_map(move |byte| vec![byte; size]),
            select(vec![-2_i64, -1, 0, 1, 2, 3, 8, 9]).prop_map(move |it| it.to_be_bytes()[8 - size..].to_vec()),
            vec(any::<u8>(), size),
        ]
        .boxed()
    };
    let words = vec!["pending", "claimed", "dead", "inserted", "changed", "busy", "completed", "a", ""];
    let fitting = match *ty {
        Type::BOOL => ends(1),
        Type::INT2 => ends(2),
        Type::INT4 => ends(4),
        Type::INT8 | Type::FLOAT8 | Type::TIMESTAMPTZ => ends(8),
        Type::JSON => json_text().prop_map(String::into_bytes).boxed(),
        Type::TEXT => prop_oneof![select(words).prop_map(str::to_owned), text()].prop_map(String::into_bytes).boxed(),
        _ => vec(any::<u8>(), 0..40).boxed(),
    };
    let fitting = prop_oneof![20 => fitting, 1 => vec(any::<u8>(), 0..20)];
    prop_oneof![1 => Just(None), 8 => fitting.prop_map(Some)].boxed()
}

/// Up to four rows of all columns, a few of them of another type.
fn table() -> impl Strategy<Value = Vec<Row>> {
    let ty = |ty: &Type| prop_oneof![60 => Just(ty.clone()), 1 => select(TYPES.to_vec())];
    let types: Vec<_> = COLUMNS.iter().map(|(_, own)| ty(own).boxed()).collect();
    types
        .prop_flat_map(|types| {
            let cells: Vec<_> = types.iter().map(cell).collect();
            (Just(types), vec(cells, 0..4))
        })
        .prop_map(|(types, values)| {
            let names = COLUMNS.iter().map(|(name, _)| *name);
            let columns: Vec<_> = names.zip(types).collect();
            rows::rows(&columns, &values).expect("the client takes them for rows")
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_notification_does_more_than_it_may(text in text()) {
        notification(&text);
        notification(&format!("v1;{text}"));
        notification(&format!("v1;a;0;cancel={text}"));
    }

    #[test]
    fn no_connection_string_is_repeated_with_its_secret(before in text(), after in text(), host in "[a-z]{1,5}") {
        connection_string(&before, &after);
        connection_string(&format!("postgres://worker:{before}"), &format!("{after}@{host}/app"));
        connection_string(&format!("host={host} password='{before}"), &format!("{after}' dbname=app"));
        connection_string(&format!("host={host} password={before}"), &after);
    }

    #[test]
    fn each_schema_name_is_refused_or_is_one_identifier(name in text()) {
        schema_name(&name);
    }

    #[test]
    fn each_kind_key_and_host_is_refused_or_is_what_can_be_stored(text in prop_oneof![text(), ".{60,260}"]) {
        names(&text);
    }

    #[test]
    fn no_json_makes_decoding_panic(payload in json_text(), carry in proptest::option::of(json_text())) {
        json(&payload, carry.as_deref());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn each_row_is_read_or_refused_whatever_it_holds(one in table(), other in table()) {
        rows(&[one, other]);
    }
}

#[test]
fn json_that_is_deep_or_long_is_refused_or_read_without_harm() {
    let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
    for depth in [10, 127, 128, 129, 100_000] {
        for (open, close) in [("[", "]"), ("{\"maybe\":", "}"), ("{\"many\":[", "]}")] {
            let text = nested(open, close, depth);
            json(&text, Some(&text));
            json(open.repeat(depth).as_str(), Some("{}"));
        }
    }
    json(&"9".repeat(1_000_000), Some(&format!("{{\"signed\":{0},\"real\":{0}}}", "9".repeat(100_000))));
}

/// The rows above are such as these, or nothing would be read of them.
#[test]
fn rows_without_a_server_are_read_like_any() {
    let cells: Vec<Cell> = vec![Some(7_i64.to_be_bytes().to_vec()), None, Some(b"{\"a\": 1}".to_vec())];
    let columns = [("id", Type::INT8), ("note", Type::TEXT), ("payload", Type::JSON)];
    let read = rows::rows(&columns, &[cells]).unwrap();
    assert_eq!(read[0].get::<_, i64>("id"), 7);
    assert_eq!(read[0].get::<_, Option<&str>>("note"), None);
    assert_eq!(read[0].get::<_, tokio_postgres::types::Json<Value>>("payload").0["a"], 1);
}

//! The program as a collector sees it. It needs a server in `DATABASE_URL`: `scripts/examples` has one.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

type Spans = Arc<Mutex<Vec<Value>>>;

/// A collector that takes traces as JSON, and keeps their spans. Ends with the process.
fn collector() -> Result<(String, Spans), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    let spans = Spans::default();
    let kept = Arc::clone(&spans);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let kept = Arc::clone(&kept);
            thread::spawn(move || collect(&connection, &kept).map_err(|error| eprintln!("collector: {error}")));
        }
    });
    Ok((address, spans))
}

/// One connection, with requests one after the other.
fn collect(connection: &TcpStream, kept: &Spans) -> Result<(), Box<dyn Error>> {
    let mut reader = BufReader::new(connection);
    loop {
        let (mut head, mut length) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse()?;
                }
            }
            head.push(line);
        }
        assert!(head[0].starts_with("POST /v1/traces "), "{head:?}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request: Value = serde_json::from_slice(&body)?;
        let each = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let scopes = each(&request, "resourceSpans").into_iter().flat_map(|it| each(&it, "scopeSpans"));
        kept.lock().map_err(|_| "a panic")?.extend(scopes.flat_map(|it| each(&it, "spans")));
        (&*connection).write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        )?;
    }
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

/// The text of an attribute.
fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array()?;
    attributes.iter().find(|it| it["key"] == key)?["value"]["stringValue"].as_str()
}

#[test]
fn the_runs_of_a_job_are_children_of_the_span_that_enqueued_it() -> Result<(), Box<dyn Error>> {
    let (address, spans) = collector()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_venturi-with-opentelemetry"));
    let output = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address).stderr(Stdio::inherit()).output()?;
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout)?, "2 runs settled\n");

    // It has ended, so it has exported everything.
    let spans = spans.lock().map_err(|_| "a panic")?;
    let [checkout] = named(&spans, "checkout")[..] else { panic!("{spans:#?}") };
    let (mut runs, packs) = (named(&spans, "ship"), named(&spans, "pack"));
    assert_eq!((runs.len(), packs.len(), spans.len()), (2, 2, 5), "{spans:#?}");
    assert!(checkout["parentSpanId"].as_str().is_none_or(str::is_empty), "{checkout:#?}");
    runs.sort_by_key(|run| run["startTimeUnixNano"].as_str().map(str::to_owned));
    for (run, outcome) in runs.iter().zip(["failed", "completed"]) {
        assert_eq!((&run["traceId"], &run["parentSpanId"]), (&checkout["traceId"], &checkout["spanId"]), "{spans:#?}");
        assert_eq!((attribute(run, "outcome"), attribute(run, "kind")), (Some(outcome), Some("ship")), "{run:#?}");
        assert_eq!(run["kind"], 5, "a consumer: {run:#?}");
        let inside = packs.iter().filter(|pack| pack["parentSpanId"] == run["spanId"]);
        assert_eq!(inside.count(), 1, "{spans:#?}");
    }
    assert_eq!((&runs[0]["status"]["code"], attribute(runs[0], "error")), (&2.into(), Some("the courier is late")));
    Ok(())
}

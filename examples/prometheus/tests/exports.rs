//! The program as Prometheus sees it. It needs a server in `DATABASE_URL`: `scripts/examples` has one.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Ends with the test, whatever becomes of it.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn scrape(address: &str) -> Result<String, Box<dyn Error>> {
    let mut connection = TcpStream::connect(address)?;
    write!(connection, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    Ok(body.to_owned())
}

/// What five jobs leave, of which one fails for good and one at its first run.
const EXPECTED: &[&str] = &[
    r#"venturi_jobs_enqueued_total{kind="resize"} 5"#,
    "venturi_jobs_claimed_total 6",
    r#"venturi_runs_started_total{kind="resize"} 6"#,
    r#"venturi_runs_settled_total{kind="resize",outcome="completed"} 4"#,
    r#"venturi_runs_settled_total{kind="resize",outcome="retried"} 1"#,
    r#"venturi_runs_settled_total{kind="resize",outcome="dead"} 1"#,
    r#"venturi_wait_seconds_count{kind="resize"} 6"#,
    r#"venturi_wait_seconds_bucket{kind="resize",le="+Inf"} 6"#,
    r#"venturi_run_seconds_count{kind="resize",outcome="completed"} 4"#,
    r#"venturi_runs{kind="resize"} 0"#,
    "venturi_workers 1",
    "# TYPE venturi_run_seconds histogram",
];

/// The metrics that a scrape names, with their types.
fn names(scraped: &str) -> Vec<(&str, &str)> {
    scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

#[test]
fn a_scrape_shows_what_became_of_the_jobs_under_the_documented_names() -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_venturi-with-prometheus"));
    let mut service = Service(command.env("ADDRESS", "127.0.0.1:0").stdout(Stdio::piped()).spawn()?);
    let mut said = BufReader::new(service.0.stdout.take().ok_or("no pipe")?).lines();
    let mut next = || said.next().ok_or("it has ended")?.map_err(Box::<dyn Error>::from);
    let listening = next()?;
    let address = listening.strip_prefix("listening on ").ok_or("no address")?;

    let deadline = Instant::now() + Duration::from_secs(60);
    let scraped = loop {
        let scraped = scrape(address)?;
        let missing: Vec<_> = EXPECTED.iter().filter(|line| !scraped.lines().any(|it| it == **line)).collect();
        if missing.is_empty() {
            break scraped;
        }
        assert!(Instant::now() < deadline, "{missing:#?} is not in\n{scraped}");
        thread::sleep(Duration::from_millis(20));
    };
    let page = include_str!("../../../docs/observability.md");
    for (name, shape) in names(&scraped) {
        assert!(page.contains(&format!("| `{name}` | {shape} |")), "the page does not list {name}, a {shape}");
    }
    assert!(scraped.lines().all(|line| !line.contains("job=") && !line.contains("worker=")), "{scraped}");

    let pid = service.0.id().to_string();
    assert!(Command::new("sh").args(["-c", "kill -s TERM \"$1\"", "sh", &pid]).status()?.success());
    assert_eq!(next()?, "6 runs settled");
    assert!(service.0.wait()?.success());
    Ok(())
}

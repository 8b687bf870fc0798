//! The service as its clients see it. It needs a server in `DATABASE_URL`: `scripts/examples` has one.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Ends with the test, whatever becomes of it.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first line of the answer.
fn join(address: &str, email: &str) -> Result<String, Box<dyn Error>> {
    let mut connection = TcpStream::connect(address)?;
    let body = format!("email={email}");
    let length = body.len();
    write!(
        connection,
        "POST /members HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn who_becomes_a_member_is_mailed_and_nobody_else() -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_venturi-with-axum"));
    let mut service = Service(command.env("ADDRESS", "127.0.0.1:0").stdout(Stdio::piped()).spawn()?);
    let mut said = BufReader::new(service.0.stdout.take().ok_or("no pipe")?).lines();
    let mut next = || said.next().ok_or("it has ended")?.map_err(Box::<dyn Error>::from);
    let listening = next()?;
    let address = listening.strip_prefix("listening on ").ok_or("no address")?;

    // New ones, should the database not be.
    let pid = service.0.id().to_string();
    let (ada, grace) = (format!("ada{pid}"), format!("grace{pid}"));
    assert_eq!(join(address, &ada)?, "HTTP/1.1 201 Created");
    assert_eq!(next()?, format!("mails {ada}"));
    assert_eq!(join(address, &ada)?, "HTTP/1.1 409 Conflict");
    assert_eq!(join(address, &grace)?, "HTTP/1.1 201 Created");
    assert_eq!(next()?, format!("mails {grace}"));

    assert!(Command::new("sh").args(["-c", "kill -s TERM \"$1\"", "sh", &pid]).status()?.success());
    assert_eq!(next()?, "2 runs settled");
    assert!(service.0.wait()?.success());
    Ok(())
}

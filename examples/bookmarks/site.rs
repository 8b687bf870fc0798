//! The web, as far as this example needs it.

#![allow(clippy::disallowed_methods, reason = "a server has threads")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// Serves pages on a free port; returns the address to put in front of a path.
pub(crate) fn start() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        let asked_before = AtomicBool::new(false);
        for connection in listener.incoming().flatten() {
            // Whoever hangs up early is not missed.
            drop(serve(connection, &asked_before));
        }
    });
    Ok(address)
}

fn serve(mut connection: TcpStream, asked_before: &AtomicBool) -> io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The request ends with an empty line.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let (status, page) = match request.split(' ').nth(1).unwrap_or_default() {
        "/ada" => ("200 OK", "<title>Notes on the Analytical Engine</title>"),
        // Too busy at first.
        "/busy" if asked_before.swap(true, SeqCst) => ("200 OK", "<title>A busy page</title>"),
        "/busy" => ("503 Service Unavailable", "later"),
        _ => ("404 Not Found", "nothing here"),
    };
    let length = page.len();
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}")
}

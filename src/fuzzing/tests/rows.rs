//! Rows of the client's own type without a server: it is told what to say, over a stream in memory.

use std::future::pending;

use futures_lite::future::{block_on, or, zip};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_postgres::types::Type;
use tokio_postgres::{Config, Error, NoTls, Row};

/// Room for whatever is said, so that saying it waits for nobody.
const ROOM: usize = 1 << 22;

/// What ends each question.
const SYNC: &[u8] = b"S\0\0\0\x04";

/// A value, or NULL.
pub(crate) type Cell = Option<Vec<u8>>;

/// Rows of these columns with these values, each as long as the columns are many.
///
/// # Errors
/// What the client says if it takes them for no rows.
pub(crate) fn rows(columns: &[(&str, Type)], values: &[Vec<Cell>]) -> Result<Vec<Row>, Error> {
    let (near, mut far) = duplex(ROOM);
    block_on(async {
        // The greeting is there before it is asked for.
        say(&mut far, &[message(b'R', &[0; 4]), message(b'Z', b"I")].concat()).await;
        let (client, connection) = Config::new().user("nobody").connect_raw(near, NoTls).await?;
        let served = async {
            hear(&mut far, SYNC).await;
            say(&mut far, &answer(columns, values)).await;
        };
        let asked = async { zip(client.query_typed("", &[]), served).await.0 };
        or(asked, async {
            match connection.await {
                Err(error) => Err(error),
                Ok(()) => pending().await,
            }
        })
        .await
    })
}

async fn say(far: &mut DuplexStream, bytes: &[u8]) {
    // It fails only when nobody listens any more, which the client tells better.
    let _ = far.write_all(bytes).await;
}

async fn hear(far: &mut DuplexStream, end: &[u8]) {
    let mut heard = Vec::new();
    while !heard.ends_with(end) {
        if far.read_buf(&mut heard).await.is_ok_and(|bytes| bytes > 0) {
            continue;
        }
        break;
    }
}

fn answer(columns: &[(&str, Type)], values: &[Vec<Cell>]) -> Vec<u8> {
    let head = [message(b'1', &[]), message(b'2', &[]), message(b'T', &description(columns))];
    let rows = values.iter().map(|cells| message(b'D', &row(cells)));
    let end = [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")];
    head.into_iter().chain(rows).chain(end).flatten().collect()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &length(body.len() + 4)[..], body].concat()
}

fn description(columns: &[(&str, Type)]) -> Vec<u8> {
    let mut out = count(columns.len());
    for (name, ty) in columns {
        out.extend(name.as_bytes());
        // The end of the name, its table and column: none.
        out.extend([0; 7]);
        out.extend(ty.oid().to_be_bytes());
        // Size and modifier: unknown; the format: binary.
        out.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 1]);
    }
    out
}

fn row(cells: &[Cell]) -> Vec<u8> {
    let mut out = count(cells.len());
    for cell in cells {
        match cell {
            None => out.extend((-1_i32).to_be_bytes()),
            Some(bytes) => {
                out.extend(length(bytes.len()));
                out.extend(bytes);
            }
        }
    }
    out
}

fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_be_bytes()
}

fn count(of: usize) -> Vec<u8> {
    i16::try_from(of).unwrap_or(i16::MAX).to_be_bytes().to_vec()
}

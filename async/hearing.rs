//! Whether a notification can be heard: a worker's connection for listening, made once for the diagnosis.

use std::future::poll_fn;

use async_io::Timer;
use futures_lite::future;

use crate::Database;
use crate::doctor::{Hearing, Trial};
use crate::error::Error;
use crate::fault::Fault;
use crate::knobs::random_seed;
use crate::statement::{Text, Texts};

use super::Queue;
use super::connection::{Connection, Traffic};
use super::thread::now;

impl Queue {
    pub(super) async fn hear(&self, database: &Database) -> Hearing {
        let Some(trial) = Trial::new(database, random_seed()) else { return Hearing::Off };
        self.try_out(&trial, &database.watched()).await.unwrap_or_else(|error| Hearing::failed(&error))
    }

    async fn try_out(&self, trial: &Trial, watched: &Database) -> Result<Hearing, Error> {
        let in_words = |fault: Fault| fault.to_error(Trial::DOING);
        let (asked, texts) = (now(), Texts::new(watched.schema_name()));
        let Connection { client, mut traffic } = Connection::open(watched).await.map_err(in_words)?;
        traffic.carry(client.batch_execute(texts.sql(Text::Listen))).await.map_err(in_words)?;
        let rows = traffic.carry(client.query_typed(texts.sql(Text::BackendAge), &[])).await.map_err(in_words)?;
        let answer = Trial::question().read(&[rows]).map_err(|error| in_words(error.into()))?;
        let connected = asked.elapsed();
        self.run(trial.announcement()).await?;
        let late = async {
            Timer::after(Trial::PATIENCE).await;
            Ok(false)
        };
        let heard = future::or(heard(trial, &mut traffic), late).await.map_err(in_words)?;
        Ok(Hearing::ended(heard, &answer, connected))
    }
}

async fn heard(trial: &Trial, traffic: &mut Traffic) -> Result<bool, Fault> {
    loop {
        let payload = poll_fn(|cx| traffic.poll(cx)).await?;
        if trial.is_it(&payload) {
            return Ok(true);
        }
    }
}

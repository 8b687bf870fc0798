//! Whether a notification can be heard: a worker's connection for listening, made once for the diagnosis.

use std::time::Instant;

use crate::doctor::{Hearing, Trial};
use crate::error::Error;
use crate::fault::Fault;
use crate::knobs::random_seed;
use crate::statement::Statement;
use crate::{Database, threads};

use super::Queue;
use super::clock::now;
use super::connection::{Address, Connection};

impl Queue {
    pub(super) fn hear(&self, database: &Database) -> Hearing {
        let Some(trial) = Trial::new(database, random_seed()) else { return Hearing::Off };
        let (queue, watched) = (self.clone(), database.watched());
        threads::call("venturi-doctor", move || queue.try_out(&trial, &watched))
            .unwrap_or_else(|error| Hearing::failed(&error))
    }

    fn try_out(&self, trial: &Trial, watched: &Database) -> Result<Hearing, Error> {
        let in_words = |fault: Fault| fault.to_error(Trial::DOING);
        let (asked, address) = (now(), Address::new(watched));
        let mut connection = Connection::open(&address).map_err(in_words)?;
        connection.execute(&Statement::Listen).map_err(in_words)?;
        let answer = connection.execute(&Trial::question()).map_err(in_words)?;
        let connected = asked.elapsed();
        self.run(trial.announcement())?;
        let heard = heard(trial, &mut connection, now() + Trial::PATIENCE).map_err(in_words)?;
        Ok(Hearing::ended(heard, &answer, connected))
    }
}

fn heard(trial: &Trial, connection: &mut Connection<'_>, deadline: Instant) -> Result<bool, Fault> {
    loop {
        let left = deadline.saturating_duration_since(now());
        if connection.hear(left)?.iter().any(|payload| trial.is_it(payload)) {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

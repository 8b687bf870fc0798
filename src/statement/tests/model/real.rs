//! The server's part: statements, what the tables hold after them, time that passes.

use std::collections::HashMap;

use super::super::*;
use super::picture::{Line, TABLES};

pub(super) struct Real {
    db: Db,
    /// Of somebody else, who holds a row.
    other: Client,
    prepared: HashMap<Text, postgres::Statement>,
    tables: postgres::Statement,
}

impl Real {
    pub(super) fn new() -> Self {
        let mut db = Db::new();
        let tables = db.render(TABLES);
        let tables = db.client.prepare(&tables).unwrap();
        Self { db, other: session(), prepared: HashMap::new(), tables }
    }

    /// As when it was new.
    pub(super) fn clear(&mut self) {
        self.let_go();
        self.db.run(
            "ROLLBACK; DELETE FROM {schema}.live; DELETE FROM {schema}.payload; DELETE FROM {schema}.finished; \
             DELETE FROM {schema}.journal; DELETE FROM {schema}.kind_state; ALTER SEQUENCE {schema}.job_id RESTART",
        );
    }

    pub(super) fn execute(&mut self, statement: &Statement) -> Result<Reply, String> {
        let mut results = Vec::new();
        let commands = statement.commands();
        let statements: Vec<_> = commands.iter().map(|it| self.prepared(it.text)).collect::<Result<_, _>>()?;
        let mut transaction = self.db.client.transaction().map_err(told)?;
        for (Command { params, data, .. }, prepared) in commands.iter().zip(&statements) {
            let rows = if let Some(data) = data {
                let mut writer = transaction.copy_in(prepared).map_err(told)?;
                writer.write_all(data.as_ref()).unwrap();
                writer.finish().map_err(told)?;
                Vec::new()
            } else {
                let params: Vec<_> = params.iter().map(|param| param.as_sql()).collect();
                transaction.query(prepared, &params).map_err(told)?
            };
            results.push(rows);
        }
        transaction.commit().map_err(told)?;
        statement.read(&results).map_err(|error| error.to_string())
    }

    /// In a transaction that is committed.
    pub(super) fn execute_inside(&mut self, inside: &Inside) -> Result<Reply, String> {
        let prepared = self.prepared(inside.text())?;
        let params = inside.params();
        let params: Vec<_> = params.iter().map(|param| param.as_sql()).collect();
        let rows = self.db.client.query(&prepared, &params).map_err(told)?;
        inside.read(&rows).map_err(|error| error.to_string())
    }

    fn prepared(&mut self, text: Text) -> Result<postgres::Statement, String> {
        if let Some(prepared) = self.prepared.get(&text) {
            return Ok(prepared.clone());
        }
        let prepared = self.db.client.prepare(self.db.texts.sql(text)).map_err(told)?;
        self.prepared.insert(text, prepared.clone());
        Ok(prepared)
    }

    /// What the tables hold, and what time it is in seconds since 1970.
    pub(super) fn tables(&mut self) -> (Vec<Line>, f64) {
        let rows = self.db.client.query(&self.tables, &[]).unwrap();
        let line = |row: &Row| Line { text: row.get(0), times: row.get(1) };
        let (clock, lines): (Vec<Line>, Vec<Line>) = rows.iter().map(line).partition(|line| line.text.is_empty());
        (lines, clock[0].times[0])
    }

    /// When each of these jobs was enqueued, as it is stored.
    pub(super) fn created(&mut self, ids: &[i64]) -> HashMap<i64, SystemTime> {
        let sql = self.db.render("SELECT id, created_at FROM {schema}.jobs WHERE id = ANY ($1)");
        self.db.client.query(&sql, &[&ids]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// So many seconds pass for all that is stored.
    pub(super) fn pass(&mut self, seconds: u64) {
        let earlier = |column: &str| format!("{column} = {column} - interval '{seconds} s'");
        let set = |columns: &[&str]| columns.iter().map(|it| earlier(it)).collect::<Vec<_>>().join(", ");
        let live = set(&["created_at", "visible_at", "claim_expires_at", "cancel_requested_at"]);
        let finished = set(&["created_at", "visible_at", "finished_at"]);
        self.db.run(&format!(
            "UPDATE {{schema}}.live SET {live}; UPDATE {{schema}}.finished SET {finished}; \
             UPDATE {{schema}}.journal SET {}; UPDATE {{schema}}.kind_state SET {}",
            earlier("at"),
            earlier("paused_at")
        ));
    }

    pub(super) fn hold(&mut self, job: i64) {
        let sql = self.db.render(&format!("BEGIN; SELECT 1 FROM {{schema}}.live WHERE id = {job} FOR UPDATE"));
        self.other.batch_execute(&sql).unwrap();
    }

    pub(super) fn let_go(&mut self) {
        self.other.batch_execute("ROLLBACK").unwrap();
    }
}

fn told(error: postgres::Error) -> String {
    crate::text::chain(&error)
}

//! What the server has seen, written down by itself, and what has to hold of it in the end.

use std::fs;
use std::path::Path;

use postgres::Client;

use super::Outcomes;

/// Beside the effects, each claim and each end of a claim, by a trigger: in the same transaction as the change, and
/// whatever the library says of it.
pub(crate) const TABLES: &str = "
CREATE SCHEMA ledger;
CREATE TABLE ledger.effects (job bigint, run int, execution bigint, worker text, tags text[],
  at timestamptz DEFAULT clock_timestamp(), PRIMARY KEY (job, run, execution));
CREATE TABLE ledger.claims (job bigint, run int, worker text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE ledger.ends (job bigint, run int, worker text, expired timestamptz,
  at timestamptz DEFAULT clock_timestamp());
CREATE TABLE ledger.answers (said text, tag text, job bigint);
CREATE TABLE ledger.retired (worker text);
CREATE FUNCTION ledger.watch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF OLD.state = 2 AND (TG_OP = 'DELETE' OR NEW.state <> 2 OR NEW.run_count <> OLD.run_count) THEN
    INSERT INTO ledger.ends VALUES (OLD.id, OLD.run_count, split_part(OLD.claimed_by, ':', 1), OLD.claim_expires_at);
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.state = 2 AND (OLD.state <> 2 OR NEW.run_count <> OLD.run_count) THEN
    INSERT INTO ledger.claims VALUES (NEW.id, NEW.run_count, split_part(NEW.claimed_by, ':', 1));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER UPDATE OR DELETE ON venturi.live FOR EACH ROW EXECUTE FUNCTION ledger.watch();
";

/// The tags of each job that is stored.
const TAGS: &str = "
DROP TABLE IF EXISTS ledger.tags;
CREATE TABLE ledger.tags AS
  SELECT id AS job, status, run_count, json_array_elements_text(payload -> 'tags') AS tag FROM venturi.jobs;
CREATE INDEX ON ledger.tags (tag);
CREATE INDEX ON ledger.ends (job, run);
CREATE INDEX ON ledger.claims (job, run);
ANALYZE;
";

/// What must not be, and how it would be found: each statement returns the offenders as text.
pub(crate) const RULES: &[(&str, &str)] = &[
    (
        "acknowledged and lost",
        "SELECT format('%s, job %s', a.tag, a.job) FROM ledger.answers a WHERE a.said = 'stored'
         AND NOT EXISTS (SELECT FROM ledger.tags t WHERE t.tag = a.tag AND t.job = a.job)",
    ),
    (
        "told that it was not stored, and stored",
        "SELECT format('%s, job %s', a.tag, t.job) FROM ledger.answers a JOIN ledger.tags t USING (tag)
         WHERE a.said = 'denied'",
    ),
    ("stored twice", "SELECT tag FROM ledger.tags GROUP BY tag HAVING count(*) > 1"),
    ("not completed", "SELECT format('job %s is %s', id, status) FROM venturi.jobs WHERE status <> 'completed'"),
    (
        "completed by a run that had no effect with this tag",
        "SELECT format('%s, job %s', t.tag, t.job) FROM ledger.tags t WHERE NOT EXISTS
         (SELECT FROM ledger.effects e WHERE e.job = t.job AND e.run = t.run_count AND t.tag = ANY (e.tags))",
    ),
    (
        "a claim with more than one end",
        "SELECT format('job %s, run %s: %s', job, run, count(*)) FROM ledger.ends GROUP BY job, run HAVING count(*) > 1",
    ),
    (
        "a run that was claimed twice",
        "SELECT format('job %s, run %s', job, run) FROM ledger.claims GROUP BY job, run HAVING count(*) > 1",
    ),
    (
        "a claim without an end, or an end without a claim",
        "SELECT format('job %s, run %s', job, run) FROM ledger.claims c FULL JOIN ledger.ends e USING (job, run)
         WHERE c.worker IS DISTINCT FROM e.worker",
    ),
    (
        "a gap in the history",
        "SELECT format('job %s: %s runs, %s', f.id, f.run_count, j.runs) FROM venturi.finished f LEFT JOIN LATERAL
           (SELECT array_agg(run_no ORDER BY run_no) AS runs FROM venturi.journal
            WHERE job_id = f.id AND claimed_by IS NOT NULL) j ON true
         WHERE coalesce(j.runs, '{}') <> ARRAY(SELECT generate_series(1, f.run_count - 1))",
    ),
    (
        "run_count is not the number of claims",
        "SELECT format('job %s: %s', f.id, f.run_count) FROM venturi.finished f
         WHERE f.run_count <> (SELECT count(*) FROM ledger.claims c WHERE c.job = f.id)",
    ),
    (
        "a run that was executed twice",
        "SELECT format('job %s, run %s', job, run) FROM ledger.effects GROUP BY job, run HAVING count(*) > 1",
    ),
    (
        "executed by somebody who had not claimed it",
        "SELECT format('job %s, run %s, %s', job, run, worker) FROM ledger.effects e WHERE NOT EXISTS
         (SELECT FROM ledger.claims c WHERE (c.job, c.run, c.worker) = (e.job, e.run, e.worker))",
    ),
    (
        "executed more often than it failed, paused, was recovered or given back by one who was told to stop, and once",
        "SELECT format('job %s', e.job) FROM ledger.effects e GROUP BY e.job HAVING count(*) > 1 +
         (SELECT count(*) FROM venturi.journal j WHERE j.job_id = e.job AND (j.event IN (6, 7, 9) OR j.event = 8
          AND split_part(j.claimed_by, ':', 1) IN (SELECT worker FROM ledger.retired)))",
    ),
    (
        "not exactly one effect, although it was in the completing transaction",
        "SELECT format('job %s', j.id) FROM venturi.jobs j WHERE j.kind = 'exact'
         AND (SELECT count(*) FROM ledger.effects e WHERE e.job = j.id) <> 1",
    ),
];

/// Rows that break every rule.
pub(crate) const PLANTED: &str = r#"
INSERT INTO venturi.finished
  (id, created_at, visible_at, run_count, failure_count, priority, status, outcome, kind, claimed_by, payload)
  VALUES (1, now(), now(), 3, 0, 1, 3, 3, 'exact', 'x:1', '{"tags":["a","b"]}'),
         (2, now(), now(), 1, 0, 1, 4, 4, 'errand', 'x:1', '{"tags":["a"]}');
INSERT INTO ledger.answers VALUES ('stored', 'c', 9), ('denied', 'b', 0);
INSERT INTO ledger.effects VALUES (1, 3, 1, 'y', '{}'), (1, 3, 2, 'y', '{}');
INSERT INTO ledger.ends VALUES (1, 1, 'x', now()), (1, 1, 'x', now());
INSERT INTO ledger.claims VALUES (1, 2, 'x'), (1, 2, 'x');
"#;

/// A claim that somebody else ended, in seconds since 1970.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) job: i64,
    pub(crate) worker: String,
    pub(crate) expired: f64,
    pub(crate) at: f64,
}

const RECOVERIES: &str = "
SELECT e.job, e.worker, extract(epoch FROM e.expired)::float8, extract(epoch FROM e.at)::float8
FROM ledger.ends e JOIN venturi.journal j ON (j.job_id, j.run_no, j.event) = (e.job, e.run, 9::smallint)
ORDER BY e.at";

const COUNTS: &str = "
SELECT format('%s jobs (%s merged tags), %s claims, %s executions; runs that failed %s, paused %s, were released %s, \
              recovered %s; answers: %s stored, %s denied, %s unknown',
  (SELECT count(*) FROM venturi.finished),
  (SELECT count(*) FROM ledger.tags) - (SELECT count(*) FROM venturi.finished),
  (SELECT count(*) FROM ledger.claims), (SELECT count(*) FROM ledger.effects),
  count(*) FILTER (WHERE event = 6), count(*) FILTER (WHERE event = 7), count(*) FILTER (WHERE event = 8),
  count(*) FILTER (WHERE event = 9),
  (SELECT count(*) FROM ledger.answers WHERE said = 'stored'),
  (SELECT count(*) FROM ledger.answers WHERE said = 'denied'),
  (SELECT count(*) FROM ledger.answers WHERE said = 'unknown'))
FROM venturi.journal";

/// Writes down what the producers were told: in files whose lines are `said tag job`.
pub(crate) fn note_answers(client: &mut Client, folder: &Path) -> Outcomes {
    let mut transaction = client.transaction()?;
    let insert = transaction.prepare("INSERT INTO ledger.answers VALUES ($1, $2, $3)")?;
    for entry in fs::read_dir(folder)? {
        let text = fs::read_to_string(entry?.path())?;
        for line in text.lines() {
            let mut words = line.split(' ');
            let (said, tag) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let job: i64 = words.next().unwrap_or_default().parse()?;
            transaction.execute(&insert, &[&said, &tag, &job])?;
        }
    }
    Ok(transaction.commit()?)
}

/// What is wrong, in words.
pub(crate) fn judge(client: &mut Client) -> Outcomes<Vec<String>> {
    client.batch_execute(TAGS)?;
    let mut wrong = Vec::new();
    for (rule, sql) in RULES {
        let offenders: Vec<String> = client.query(*sql, &[])?.iter().map(|row| row.get(0)).collect();
        if let Some(some) = offenders.get(..offenders.len().min(8)).filter(|some| !some.is_empty()) {
            wrong.push(format!("{rule}: {} ({})", offenders.len(), some.join("; ")));
        }
    }
    Ok(wrong)
}

pub(crate) fn recoveries(client: &mut Client) -> Outcomes<Vec<Recovery>> {
    let recovery =
        |row: &postgres::Row| Recovery { job: row.get(0), worker: row.get(1), expired: row.get(2), at: row.get(3) };
    Ok(client.query(RECOVERIES, &[])?.iter().map(recovery).collect())
}

pub(crate) fn counts(client: &mut Client) -> Outcomes<String> {
    Ok(client.query_one(COUNTS, &[])?.get(0))
}

/// All that is known of the jobs that a rule names, for whoever has to find out why.
pub(crate) fn history_of(client: &mut Client, job: i64) -> Outcomes<String> {
    let sql = "
      SELECT at, format('%s  claimed %s by %s', at, run, worker) FROM ledger.claims WHERE job = $1 UNION ALL
      SELECT at, format('%s  end of %s by %s, lease to %s', at, run, worker, expired) FROM ledger.ends WHERE job = $1
      UNION ALL SELECT at, format('%s  effect of %s by %s', at, run, worker) FROM ledger.effects WHERE job = $1
      UNION ALL SELECT at, format('%s  %s %s by %s: %s', at, event, run_no, claimed_by, note)
      FROM venturi.journal_entries WHERE job_id = $1 ORDER BY 1";
    let lines: Vec<String> = client.query(sql, &[&job])?.iter().map(|row| row.get(1)).collect();
    Ok(lines.join("\n"))
}

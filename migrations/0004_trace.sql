-- Safe before the new code: earlier code names none of the new columns, and finds its functions with the same parameters.
--
-- The context of the trace that a job belongs to, such as a W3C traceparent: beside the payload, and never looked into.
-- It comes with the statement that enqueues the job, or from the setting venturi.trace of the transaction that does:
--
--   SET LOCAL venturi.trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
--
-- so that triggers, other languages and earlier code can hand it on, too, and nothing is left behind in a session. As a
-- parameter of enqueue it would have cost a DROP FUNCTION, which fails a call that is on its way.
--
-- No row is rewritten. Each ALTER waits for the transactions that use the table, and whoever comes meanwhile waits behind
-- it: so it gives up after five seconds, with nothing changed, and can be tried again.
SET LOCAL lock_timeout = '5s';
ALTER TABLE {schema}.live ADD COLUMN trace text COLLATE "C";
ALTER TABLE {schema}.finished ADD COLUMN trace text COLLATE "C";

-- The context that the transaction names for its jobs; NULL: none, or one that is too long or has control characters.
CREATE FUNCTION {schema}.current_trace() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(current_setting('venturi.trace', true)) BETWEEN 1 AND 512
              AND current_setting('venturi.trace', true) COLLATE "C" !~ E'[\\u0001-\\u001f\\u007f-\\u009f]'
            THEN current_setting('venturi.trace', true) END;

COMMENT ON FUNCTION {schema}.current_trace IS
  'The setting venturi.trace, where it is at most 512 bytes without control characters: what a job that is enqueued without a trace context gets.';

-- For rows that earlier code or a person inserts.
ALTER TABLE {schema}.live ALTER COLUMN trace SET DEFAULT {schema}.current_trace();
COMMENT ON COLUMN {schema}.live.trace IS 'The context of the trace that the job belongs to, as it was given; NULL: none';

CREATE OR REPLACE VIEW {schema}.jobs AS
  SELECT l.id, l.kind, l.priority, CASE l.state WHEN 2 THEN 'claimed' ELSE 'pending' END AS status,
         l.created_at, l.visible_at, l.claim_expires_at, l.cancel_requested_at, NULL::timestamptz AS finished_at,
         l.claimed_by, l.run_count, l.failure_count, l.dedup_key,
         coalesce(l.payload, (SELECT p.body FROM {schema}.payload p WHERE p.job_id = l.id)) AS payload,
         l.carry, NULL::text AS outcome, NULL::text AS note, NULL::json AS attachment, l.trace
  FROM {schema}.live l
  UNION ALL
  SELECT f.id, f.kind, f.priority, CASE f.status WHEN 3 THEN 'completed' WHEN 4 THEN 'dead' ELSE 'cancelled' END,
         f.created_at, f.visible_at, NULL, NULL, f.finished_at,
         f.claimed_by, f.run_count, f.failure_count, f.dedup_key,
         coalesce(f.payload, (SELECT p.body FROM {schema}.payload p WHERE p.job_id = f.id)),
         f.carry, CASE f.outcome WHEN 3 THEN 'completed' WHEN 4 THEN 'dead' WHEN 5 THEN 'cancelled' ELSE 'stale-recovered' END,
         f.note, f.attachment, f.trace
  FROM {schema}.finished f;

SET LOCAL lock_timeout = 0;

-- As before (0002), with one more parameter:
--
--   trace            the context of the trace that the job belongs to; NULL or empty: none. What is inserted gets it; where
--                    it is merged by 'replace' or 'with', it takes the place of the candidate's, if there is one; by 'keep'
--                    the candidate's stays.
CREATE FUNCTION {schema}.enqueue_keyed(
  kind text, payload json, priority int, delay double precision, due_at timestamptz, dedup_key text,
  decision text, expected text, carry json, skip bigint[], wait boolean, notify boolean,
  trace text,
  OUT answer text, OUT id bigint, OUT version text, OUT due_in double precision, OUT wakes boolean,
  OUT found_payload json, OUT found_carry json, OUT found_priority int, OUT found_created_at timestamptz,
  OUT found_visible_at timestamptz, OUT found_run_count int, OUT found_failure_count int)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $venturi_enqueue_keyed$
#variable_conflict use_column
<<it>>
DECLARE
  schema_name CONSTANT text := (current_schemas(false))[2];
  century     CONSTANT double precision := 3153600000;
  end_of_9999 CONSTANT timestamptz := to_timestamp(253402300799);
  lock_id     bigint;
  held        bigint;
  pending     record;
  at          timestamptz;
  due         timestamptz;
  large       CONSTANT boolean := octet_length(enqueue_keyed.payload::text) > 1024;
BEGIN
  CASE
    WHEN enqueue_keyed.kind IS NULL OR enqueue_keyed.kind = '' THEN
      RAISE EXCEPTION 'venturi: the kind is empty' USING ERRCODE = '22023';
    WHEN octet_length(enqueue_keyed.kind) > 100 THEN
      RAISE EXCEPTION 'venturi: the kind has % bytes, at most 100 are stored', octet_length(enqueue_keyed.kind)
        USING ERRCODE = '22023';
    WHEN enqueue_keyed.kind COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
      RAISE EXCEPTION 'venturi: the kind has a control character' USING ERRCODE = '22023';
    WHEN enqueue_keyed.payload IS NULL THEN
      RAISE EXCEPTION 'venturi: the payload is NULL; a task without data has the payload ''null'''
        USING ERRCODE = '22023';
    WHEN enqueue_keyed.priority IS NULL OR enqueue_keyed.priority NOT BETWEEN 0 AND 2 THEN
      RAISE EXCEPTION 'venturi: the priority is %, not 0 (high), 1 (normal) or 2 (low)', enqueue_keyed.priority
        USING ERRCODE = '22023';
    WHEN enqueue_keyed.delay = 'NaN' THEN
      RAISE EXCEPTION 'venturi: the delay is not a number' USING ERRCODE = '22023';
    WHEN enqueue_keyed.dedup_key = '' THEN
      RAISE EXCEPTION 'venturi: the dedup key is empty; NULL means none' USING ERRCODE = '22023';
    WHEN octet_length(enqueue_keyed.dedup_key) > 200 THEN
      RAISE EXCEPTION 'venturi: the dedup key has % bytes, at most 200 are stored', octet_length(enqueue_keyed.dedup_key)
        USING ERRCODE = '22023';
    WHEN enqueue_keyed.dedup_key COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
      RAISE EXCEPTION 'venturi: the dedup key has a control character' USING ERRCODE = '22023';
    WHEN octet_length(enqueue_keyed.trace) > 512 THEN
      RAISE EXCEPTION 'venturi: the trace context has % bytes, at most 512 are stored', octet_length(enqueue_keyed.trace)
        USING ERRCODE = '22023';
    WHEN enqueue_keyed.trace COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
      RAISE EXCEPTION 'venturi: the trace context has a control character' USING ERRCODE = '22023';
    WHEN enqueue_keyed.decision NOT IN ('keep', 'replace', 'with', 'independent') THEN
      RAISE EXCEPTION 'venturi: the decision about a duplicate is %, not keep, replace or independent',
        quote_literal(enqueue_keyed.decision) USING ERRCODE = '22023';
    WHEN enqueue_keyed.decision IS NULL AND enqueue_keyed.expected IS NOT NULL
      OR enqueue_keyed.decision = 'with' AND (enqueue_keyed.expected IS NULL OR enqueue_keyed.expected = '*') THEN
      RAISE EXCEPTION 'venturi: the decision and what it is about do not fit together' USING ERRCODE = '22023';
    ELSE NULL;
  END CASE;

  IF enqueue_keyed.dedup_key IS NOT NULL THEN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      RAISE EXCEPTION 'venturi: a job with a dedup key cannot be enqueued in a transaction that is %',
        current_setting('transaction_isolation') USING ERRCODE = 'VT001',
        DETAIL = 'Its snapshot does not show what others have enqueued while it waited for the key.',
        HINT = 'Use a transaction that is READ COMMITTED.';
    END IF;
    -- A statement of its own: the next one has a later snapshot, which shows what the last holder has committed.
    lock_id := hashtextextended(
      format('venturi %s %s %s', schema_name, enqueue_keyed.kind, enqueue_keyed.dedup_key), 0);
    IF NOT enqueue_keyed.wait THEN
      IF NOT pg_try_advisory_xact_lock(lock_id) THEN
        answer := 'busy';
        RETURN;
      END IF;
    ELSE
      PERFORM pg_advisory_xact_lock(lock_id);
    END IF;

    LOOP
      SELECT j.id, j.run_count, j.failure_count, j.priority, j.created_at, j.visible_at, j.state, j.carry,
             j.payload IS NULL AS large, coalesce(j.payload, p.body) AS payload,
             -- A later version of a row is never at the same place by the same transaction.
             format('%s.%s.%s.%s', j.id, j.run_count, j.xmin, j.ctid) AS version
        INTO pending
        FROM live j
        LEFT JOIN payload p ON p.job_id = j.id
        WHERE j.kind = (enqueue_keyed.kind COLLATE "C") AND j.dedup_key = (enqueue_keyed.dedup_key COLLATE "C")
          AND j.state < 2 AND j.id <> ALL (coalesce(enqueue_keyed.skip, '{}'))
        ORDER BY j.created_at, j.id
        LIMIT 1;
      EXIT WHEN pending.id IS NULL AND (enqueue_keyed.expected IS NULL OR enqueue_keyed.expected = '*');
      IF pending.id IS NULL OR (enqueue_keyed.expected IS DISTINCT FROM '*'
                              AND enqueue_keyed.expected IS DISTINCT FROM pending.version) THEN
        answer              := 'changed';
        id                  := pending.id;
        version             := pending.version;
        -- Subtracted as numbers, for an infinite time in one row must not fail the jobs beside it.
        due_in              := extract(epoch FROM pending.visible_at) - extract(epoch FROM clock_timestamp());
        found_payload       := pending.payload;
        found_carry         := pending.carry;
        found_priority      := pending.priority;
        found_created_at    := pending.created_at;
        found_visible_at    := pending.visible_at;
        found_run_count     := pending.run_count;
        found_failure_count := pending.failure_count;
        RETURN;
      END IF;
      EXIT WHEN pending.id = held;
      -- Then looked at once more: it may have changed before it was ours.
      IF enqueue_keyed.wait THEN
        SELECT j.id INTO held FROM live j WHERE j.id = pending.id AND j.state + 0 < 2 FOR NO KEY UPDATE;
      ELSE
        SELECT j.id INTO held FROM live j WHERE j.id = pending.id AND j.state + 0 < 2 FOR NO KEY UPDATE SKIP LOCKED;
        IF held IS NULL THEN
          answer := 'busy';
          RETURN;
        END IF;
      END IF;
    END LOOP;
  END IF;

  -- Not now(), which is when the transaction began.
  at  := clock_timestamp();
  due := CASE
    WHEN enqueue_keyed.due_at IS NULL THEN
      at + make_interval(secs => least(greatest(coalesce(enqueue_keyed.delay, 0), 0), century))
    ELSE least(greatest(enqueue_keyed.due_at, at), end_of_9999) END;

  IF held IS NULL OR enqueue_keyed.decision = 'independent' THEN
    INSERT INTO live AS j (created_at, visible_at, state, kind, priority, dedup_key, payload, trace)
      VALUES (at, due, CASE WHEN due > at THEN 1 ELSE 0 END, enqueue_keyed.kind, enqueue_keyed.priority,
              enqueue_keyed.dedup_key, CASE WHEN NOT large THEN enqueue_keyed.payload END,
              nullif(enqueue_keyed.trace, ''))
      RETURNING j.id INTO id;
    IF large THEN
      INSERT INTO payload (job_id, body) VALUES (enqueue_keyed.id, enqueue_keyed.payload);
    END IF;
    answer := 'inserted';
    wakes  := true;
  ELSE
    id := held;
    IF enqueue_keyed.decision = 'keep' THEN
      due    := pending.visible_at;
      wakes  := false;
      answer := 'kept';
    ELSE
      due    := least(due, pending.visible_at);
      wakes  := due < pending.visible_at OR enqueue_keyed.priority < pending.priority;
      answer := CASE enqueue_keyed.decision WHEN 'replace' THEN 'replaced' ELSE 'merged' END;
      UPDATE live j SET
          visible_at    = due,
          state         = CASE WHEN due > at THEN 1 ELSE 0 END,
          payload       = CASE WHEN NOT large THEN enqueue_keyed.payload END,
          priority      = CASE answer WHEN 'replaced' THEN enqueue_keyed.priority
                                      ELSE least(enqueue_keyed.priority, pending.priority) END,
          carry         = CASE answer WHEN 'merged' THEN coalesce(enqueue_keyed.carry, j.carry) END,
          failure_count = CASE answer WHEN 'merged' THEN j.failure_count ELSE 0 END,
          trace         = coalesce(nullif(enqueue_keyed.trace, ''), j.trace)
        WHERE j.id = held;
      IF large THEN
        INSERT INTO payload (job_id, body) VALUES (held, enqueue_keyed.payload)
          ON CONFLICT (job_id) DO UPDATE SET body = excluded.body;
      ELSIF pending.large THEN
        DELETE FROM payload p WHERE p.job_id = held;
      END IF;
    END IF;
    INSERT INTO journal (job_id, run_no, event, at, note) VALUES (held, pending.run_count, 10, it.at, answer);
  END IF;

  due_in := greatest(extract(epoch FROM due) - extract(epoch FROM at), 0);
  IF enqueue_keyed.notify AND wakes THEN
    -- As src/notification.rs writes it.
    PERFORM pg_notify(schema_name, format('v1;%s;%s',
      CASE WHEN enqueue_keyed.kind COLLATE "C" ~ '[,;]' THEN '*' ELSE enqueue_keyed.kind END, ceil(due_in * 1000)::bigint));
  END IF;
END
$venturi_enqueue_keyed$;

COMMENT ON FUNCTION {schema}.enqueue_keyed(text, json, int, double precision, timestamptz, text, text, text, json, bigint[], boolean, boolean, text) IS
  'One round of an enqueue whose caller decides how it is merged with a pending job that has the same dedup key.';

-- For earlier code.
CREATE OR REPLACE FUNCTION {schema}.enqueue_keyed(
  kind text, payload json, priority int, delay double precision, due_at timestamptz, dedup_key text,
  decision text, expected text, carry json, skip bigint[], wait boolean, notify boolean,
  OUT answer text, OUT id bigint, OUT version text, OUT due_in double precision, OUT wakes boolean,
  OUT found_payload json, OUT found_carry json, OUT found_priority int, OUT found_created_at timestamptz,
  OUT found_visible_at timestamptz, OUT found_run_count int, OUT found_failure_count int)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, {schema}, pg_temp
AS $venturi_enqueue_keyed$
BEGIN
  SELECT e.* INTO answer, id, version, due_in, wakes, found_payload, found_carry, found_priority, found_created_at,
                  found_visible_at, found_run_count, found_failure_count
    FROM enqueue_keyed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, current_trace()) e;
END
$venturi_enqueue_keyed$;

CREATE OR REPLACE FUNCTION {schema}.enqueue(
  kind text, payload json DEFAULT 'null', priority int DEFAULT 1, delay double precision DEFAULT 0,
  dedup_key text DEFAULT NULL, on_duplicate text DEFAULT 'replace', due_at timestamptz DEFAULT NULL,
  notify boolean DEFAULT true)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, {schema}, pg_temp
AS $venturi_enqueue$
BEGIN
  IF octet_length(payload::text) > 1000000 THEN
    RAISE EXCEPTION 'venturi: the payload has % bytes, at most 1000000 are stored', octet_length(payload::text)
      USING ERRCODE = '22023', HINT = 'Store the data elsewhere and enqueue its name.';
  END IF;
  IF on_duplicate IS NULL OR on_duplicate = 'with' THEN
    RAISE EXCEPTION 'venturi: on_duplicate is %, not keep, replace or independent', coalesce(quote_literal(on_duplicate), 'NULL')
      USING ERRCODE = '22023';
  END IF;
  RETURN (SELECT e.id FROM enqueue_keyed(kind, payload, priority, delay, due_at, dedup_key, on_duplicate, '*', NULL,
                                         NULL, true, coalesce(notify, true), current_trace()) e);
END
$venturi_enqueue$;

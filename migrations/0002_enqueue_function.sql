-- Safe before the new code: it only adds functions, which earlier code does not call.
--
-- The only logic in the database. It is here because a job with a dedup key has to be looked for, decided upon and
-- written under one lock, which a plain statement cannot do: its snapshot is older than the lock that it waits for.
--
--   enqueue        for people, triggers and other languages: SELECT venturi.enqueue('send_email', '{"to":"ada"}');
--   enqueue_keyed  for clients that decide themselves how a job is merged with the one that is pending already
--
-- Both run with the caller's rights: SELECT, INSERT and UPDATE on live, these and DELETE on payload, INSERT on journal
-- (docs/security.md). They find these whatever the caller's search_path is.
--
-- SQLSTATEs: 22023 an argument makes no sense, and the message says which and why; VT001 a key was given above READ
-- COMMITTED. From the server: 55P03 lock_timeout passed while another transaction had the key; 40P01 two transactions
-- wanted two keys in opposite orders.

-- One round of an enqueue.
--
--   kind, payload    of the row to be written
--   priority         0 high, 1 normal, 2 low
--   delay            seconds from now; 0 or less: ready at once; more than 100 years: as that
--   due_at           the time itself, and then delay is not looked at; past: now; after 9999: its end; NULL: by delay
--   dedup_key        NULL: none; inserted without any look, and what follows but notify means nothing
--   decision         what becomes of the candidate, which is the oldest pending job of this kind with this key:
--                      'keep'         nothing
--                      'replace'      this payload, priority and no carry instead of its own; failures are forgiven
--                      'with'         this payload, which was made of both, and this carry; the more urgent priority
--                      'independent'  nothing: this is inserted beside it
--                    Of 'replace' and 'with' the earlier due time wins. NULL: not decided yet.
--   expected         what the decision was made about: NULL: no candidate; '*': any or none (not for 'with'); else the
--                    `version` from an earlier answer
--   carry            for 'with'; NULL: the stored one stays
--   skip             ids of candidates to leave alone, as the caller cannot read them; NULL: none
--   wait             false: answers 'busy' instead of waiting for another transaction
--   notify           wakes workers when the transaction commits, if there is a reason
--
-- The answer is one row:
--   answer 'inserted', 'kept', 'replaced', 'merged' (by 'with'): done; `id` is the job that stands for the task, due_in
--          the seconds until it is due, and wakes says whether waiting workers should hear of it: it is new, or due
--          earlier, or more urgent than it was.
--   answer 'changed': nothing was written, since the candidate is not the expected one. It is in id, version, due_in and
--          found_*; found_carry NULL: its default. Decide and call again. id NULL: there is none any more; call again
--          with expected NULL and the task's own payload.
--   answer 'busy': nothing was written, since another transaction has the key or the candidate; call again later.
--
-- Locks: an advisory lock on schema, kind and key to the end of the transaction, then the candidate. Take several keys in
-- the order of (kind, dedup_key) COLLATE "C", or two transactions may wait for each other.
-- Index: live_dedup; live_pkey. Without the settings the planner might read an empty table as a whole, and keep to it.
CREATE FUNCTION {schema}.enqueue_keyed(
  kind text, payload json, priority int, delay double precision, due_at timestamptz, dedup_key text,
  decision text, expected text, carry json, skip bigint[], wait boolean, notify boolean,
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
    INSERT INTO live AS j (created_at, visible_at, state, kind, priority, dedup_key, payload)
      VALUES (at, due, CASE WHEN due > at THEN 1 ELSE 0 END, enqueue_keyed.kind, enqueue_keyed.priority,
              enqueue_keyed.dedup_key, CASE WHEN NOT large THEN enqueue_keyed.payload END)
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
          failure_count = CASE answer WHEN 'merged' THEN j.failure_count ELSE 0 END
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

COMMENT ON FUNCTION {schema}.enqueue_keyed IS
  'One round of an enqueue whose caller decides how it is merged with a pending job that has the same dedup key.';

-- Enqueues a job, and returns the number of the job that stands for it. Workers hear of it when the transaction commits;
-- notify => false leaves it to their polling, which lets many such transactions commit at once.
--
--   on_duplicate  when a job of this kind with this dedup_key is pending already: 'replace' (payload and priority; the
--                 earlier due time wins), 'keep' or 'independent' (another one beside it). A task's own `merge`, which is
--                 Rust, is not run here.
--
-- As the body of a trigger: PERFORM venturi.enqueue('index_page', to_json(NEW), dedup_key => NEW.id::text).
-- What is jsonb has to be cast: to_jsonb(NEW)::json. A second function for jsonb would make every call with a plain literal
-- ambiguous.
CREATE FUNCTION {schema}.enqueue(
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
                                         NULL, true, coalesce(notify, true)) e);
END
$venturi_enqueue$;

COMMENT ON FUNCTION {schema}.enqueue IS
  'Enqueues a job and returns its number. payload: json; cast jsonb with ::json. priority: 0 high, 1 normal, 2 low. delay: seconds. due_at: instead of a delay; past: now. on_duplicate: replace, keep or independent, when a job of the kind with the same dedup_key is pending.';

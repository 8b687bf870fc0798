-- Each page that is added or whose text changes is indexed by a job, whoever writes the table and with whatever client.
-- Several changes while the job is pending are one job: the page's number is its dedup key.
CREATE TABLE IF NOT EXISTS page (id bigint PRIMARY KEY, body text NOT NULL);

CREATE OR REPLACE FUNCTION enqueue_index_page() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- The payload is json; what is jsonb is cast: to_jsonb(NEW)::json.
  PERFORM with_trigger.enqueue('index_page', json_build_object('page', NEW.id), dedup_key => NEW.id::text);
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER index_page AFTER INSERT OR UPDATE OF body ON page
  FOR EACH ROW EXECUTE FUNCTION enqueue_index_page();

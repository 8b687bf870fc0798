//! That texts, files and parameters belong together.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_postgres::types::private::BytesMut;

use super::*;

/// One statement per text at least, with rows in it.
fn samples() -> Vec<Statement> {
    let id = RunId { job: 1, run: 1 };
    let worker: Arc<str> = ME.into();
    vec![
        Statement::Exchange {
            settle: Some(Settle {
                worker: worker.clone(),
                rows: vec![full_settlement(id), bare(id, Ending::Completed)],
                discard: false,
                brief: false,
            }),
            claim: Some(Claim { skip: vec![1], ..claim(ME) }),
        },
        Statement::Exchange { settle: None, claim: Some(Claim { durable: false, ..claim(ME) }) },
        both(false, claim(ME)),
        both(true, claim(ME)),
        both(false, Claim { bounds: Some(bounds()), ..claim(ME) }),
        both(true, Claim { bounds: Some(bounds()), ..claim(ME) }),
        both(false, many()),
        both(true, many()),
        Statement::Exchange { settle: None, claim: Some(many()) },
        brief(vec![bare(id, Ending::Completed)], false),
        brief(vec![bare(id, Ending::Completed)], true),
        Statement::Exchange { settle: None, claim: Some(Claim { bounds: Some(bounds()), ..claim(ME) }) },
        Statement::Stale(Stale { worker: worker.clone(), look_back: 1.0, most: 1 }),
        Statement::Recover(Recover { rows: vec![Recovery { id, claimed_by: OTHER.into(), dead: false, delay: 1.0 }] }),
        Statement::Promote(Promote { kinds: vec!["a"], look_back: 1.0, most: 1 }),
        Statement::Survey(survey_of(&["a"], ME)),
        Statement::Renew(Renew { worker: worker.clone(), rows: vec![(id, 60.0)] }),
        Statement::Held(Held { worker, runs: vec![id] }),
        enqueue(vec![NewJob { dedup_key: Some("k".into()), ..job("a") }, job("b")]),
        Statement::EnqueueKeyed(EnqueueKeyed {
            rows: vec![keyed("k", Some(Decision::With(Some(json("1"))))), keyed("l", None)],
            wait: false,
            notify: false,
        }),
        Statement::Reserve(1),
        Statement::Copy(CopyJobs {
            jobs: NewJobs::new(vec![NewJob { payload: json(&format!("\"{}\"", "x".repeat(2_000))), ..job("a") }]),
            numbers: Numbers { ids: vec![1], at: 0 },
        }),
        Statement::Checkpoint(Checkpoint { worker: ME.into(), id, carry: json("1") }),
        Statement::History(History { job: 1, most: 1 }),
        Statement::Notify(Notify::new("c", &["a"], Duration::ZERO, &[])),
        Statement::Check,
        Statement::Interest(vec![1, 2]),
        Statement::Listen,
    ]
    .into_iter()
    .chain(inquiries().into_iter().map(Statement::Inquiry))
    .collect()
}

fn bounds() -> Bounds {
    Bounds { created_at: vec![None, Some(SystemTime::UNIX_EPOCH), None], ids: vec![0, 1, 0] }
}

/// Of more kinds than rows that are looked at.
fn many() -> Claim {
    Claim { want: 1, spare: 0, ..claim(ME) }
}

/// A brief settlement with a claim.
fn both(discard: bool, claim: Claim) -> Statement {
    let settle = Settle {
        worker: ME.into(),
        rows: vec![bare(RunId { job: 1, run: 1 }, Ending::Completed)],
        discard,
        brief: true,
    };
    Statement::Exchange { settle: Some(settle), claim: Some(claim) }
}

fn inquiries() -> Vec<Inquiry> {
    let id = RunId { job: 1, run: 1 };
    vec![
        Inquiry::Job(1),
        Inquiry::Find(find(JobFilter::new().kind("a").dedup_key("k"), &JobStatus::ALL)),
        Inquiry::Journal { job: 1, after: 0, most: 1 },
        Inquiry::Stats,
        Inquiry::PausedKinds,
        Inquiry::Workers,
        Inquiry::Diagnose,
        Inquiry::Inventory,
        Inquiry::BackendAge,
        Inquiry::Announce { channel: "c".into(), text: "t".into() },
        Inquiry::Cancel(Touch { ids: vec![1], statuses: vec![JobStatus::Pending], patient: true }),
        Inquiry::Requeue(Touch { ids: vec![1], statuses: vec![JobStatus::Dead], patient: true }),
        Inquiry::PauseKind("a".into()),
        Inquiry::ResumeKind("a".into()),
        Inquiry::Cleanup(CleanupBatch { status: JobStatus::Dead, age: 1.0, from: f64::NEG_INFINITY, most: 1 }),
        Inquiry::CleanupCount(vec![(JobStatus::Dead, 1.0)]),
        Inquiry::Cancellations { worker: ME.into(), runs: vec![id] },
    ]
}

/// Those that go over clients of the application's.
fn samples_inside() -> Vec<Inside> {
    let id = RunId { job: 1, run: 1 };
    let (note, attachment) = (Some("note".into()), Some(json("[1]")));
    vec![
        Inside::Complete(Complete { worker: ME.into(), id, note, attachment }),
        Inside::Enqueue(Enqueue { calls: vec![NewJobs::new(vec![job("a")])], channel: Some("c".into()) }),
        Inside::EnqueueKeyed(EnqueueKeyed {
            rows: vec![keyed("k", Some(Decision::With(Some(json("1"))))), keyed("l", None)],
            wait: true,
            notify: true,
        }),
        Inside::LockTimeout { from: "0", to: "5s" },
    ]
}

fn keyed(key: &str, decision: Option<Decision>) -> Arc<KeyedJob> {
    let stance = decision.map(|decision| Stance { decision, expected: "1".into() });
    let job = Arc::new(NewJob { dedup_key: Some(key.to_owned()), ..job("a") });
    Arc::new(KeyedJob { job, stance, skip: vec![1, 2] })
}

fn full_settlement(id: RunId) -> Settlement {
    Settlement {
        note: Some("note".into()),
        attachment: Some(json("[1]")),
        carry: Some(json("2")),
        ..bare(id, Ending::Retried)
    }
}

#[test]
fn every_text_prepares_and_takes_the_parameters_that_its_command_encodes() {
    let mut db = Db::new();
    let mut seen = BTreeSet::new();
    for command in samples().iter().flat_map(Statement::commands) {
        let name = command.text.name();
        let prepared =
            db.client.prepare(db.texts.sql(command.text)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(prepared.params().len(), command.params.len(), "{name}: the number of parameters");
        for (nth, (param, ty)) in command.params.iter().zip(prepared.params()).enumerate() {
            let refusal = param.to_sql_checked(ty, &mut BytesMut::new()).err();
            assert!(refusal.is_none(), "{name}: ${} is {ty}: {refusal:?}", nth + 1);
            // What it is sent as when nothing is prepared.
            assert_eq!(param.ty(), *ty, "{name}: ${}", nth + 1);
        }
        seen.insert(name);
    }
    for inside in samples_inside() {
        let name = inside.text().name();
        let prepared =
            db.client.prepare(db.texts.sql(inside.text())).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let types: Vec<_> = inside.params().iter().map(|param| param.ty()).collect();
        assert_eq!(prepared.params(), types, "{name}: the types that are sent with it");
        for param in inside.params() {
            param.to_sql_checked(&param.ty(), &mut BytesMut::new()).unwrap();
        }
        seen.insert(name);
    }
    assert_eq!(seen.len(), Text::ALL.len(), "each text has a sample: {seen:?}");
}

#[test]
fn the_folder_holds_one_file_per_text_that_is_not_made_of_others() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| Some(name.strip_suffix(".sql")?.to_owned()))
        .collect();
    let made = |text: &Text| [Text::ClaimFrom, Text::ClaimMany].contains(text) || text.name().starts_with("exchange_");
    let whole = Text::ALL.iter().filter(|text| !made(text));
    let texts: BTreeSet<String> = whole.map(|text| text.name().to_owned()).collect();
    assert_eq!(files, texts);
}

#[test]
fn each_head_names_its_text_and_explains_every_parameter() {
    let texts = Texts::new(&schema_named("s"));
    for text in Text::ALL {
        let sql = texts.sql(text);
        let (head, body): (Vec<&str>, Vec<&str>) = sql.lines().partition(|line| line.starts_with("--"));
        let (head, body) = (head.join("\n"), body.join("\n"));
        assert!(head.starts_with(&format!("-- {}: ", text.name())), "{}", text.name());
        for word in ["Rows", "Locks", "Index"] {
            assert!(head.contains(word), "{}: {word}", text.name());
        }
        for nth in (1..20).filter(|nth| body.contains(&format!("${nth}::")) || body.contains(&format!("${nth})"))) {
            assert!(head.contains(&format!("${nth} ")), "{}: ${nth}", text.name());
        }
        assert!(!body.contains("{schema") && !body.trim_end().ends_with(';'), "{}", text.name());
    }
}

#[test]
fn a_schema_is_spliced_in_once_and_quoted_wherever_it_stands() {
    let schema = schema_named(r#"a"b'c\d{schema}"#);
    let quoted = r#""a""b'c\d{schema}""#;
    assert_eq!(render("{schema}.t {other} {channel}", &schema), format!("{quoted}.t {{other}} {quoted}"));
    assert_eq!(render("E'{schema_in_text}.s'", &schema), r#"E'"a""b''c\\d{schema}".s'"#);
    assert_eq!(render("no place } {", &schema), "no place } {");
}

#[test]
fn the_session_settings_are_in_force_whatever_the_role_has_set() {
    let mut client = session();
    let mut setting =
        |name: &str| client.query_one("SELECT current_setting($1)", &[&name]).unwrap().get::<_, String>(0);
    for name in ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_memoize", "jit"]
    {
        assert_eq!(setting(name), "off", "{name}");
    }
    assert_eq!(setting("plan_cache_mode"), "force_generic_plan");
    assert_eq!(setting("statement_timeout"), "10s");
    assert_eq!(setting("lock_timeout"), "5s");
    assert_eq!(setting("idle_in_transaction_session_timeout"), "1min");
    assert_eq!(setting("idle_session_timeout"), "0");
    assert_eq!(setting("default_transaction_isolation"), "read committed");
    assert_eq!(setting("transaction_read_only"), "off");
    assert_eq!(setting("search_path"), "pg_catalog");
}

#[test]
fn a_transaction_over_a_pooler_has_the_settings_of_a_session_and_takes_them_with_it() {
    let names: Vec<&str> = SESSION.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let settings = |client: &mut Client| -> Vec<String> {
        let row = |name: &&str| client.query_one("SELECT current_setting($1)", &[name]).unwrap().get(0);
        names.iter().map(row).collect()
    };
    let mut own = session();
    let mut lent = Client::connect(&cluster::shared_url().unwrap(), NoTls).unwrap();
    lent.batch_execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE").unwrap();
    let before = settings(&mut lent);
    lent.batch_execute(begin(true)).unwrap();
    assert_eq!(settings(&mut lent), settings(&mut own));
    let now = "SELECT current_setting('transaction_isolation') || ' ' || current_setting('transaction_read_only')";
    assert_eq!(lent.query_one(now, &[]).unwrap().get::<_, String>(0), "read committed off");
    lent.batch_execute("COMMIT").unwrap();
    lent.batch_execute(trial()).unwrap();
    assert_eq!(settings(&mut lent), before);
}

#[test]
fn absurd_seconds_are_brought_into_range() {
    let mut db = Db::new();
    let claim = Claim { leases: vec![f64::INFINITY, f64::NAN], look_back: f64::MAX, ..claim(ME) };
    assert!(db.claim(claim).jobs.is_empty());
    let id = db.enqueue(vec![NewJob { delay: f64::MAX, ..job("a") }])[0];
    assert!(db.job(id).due_in > 99.0 * 365.0 * 86_400.0);
}

#[test]
fn a_reply_that_does_not_fit_its_statement_is_an_error() {
    let mut db = Db::new();
    assert!(Statement::Check.read(&[]).is_err());
    assert!(settlement(ME, Vec::new()).read(&[Vec::new(), Vec::new()]).is_err());
    let rows = db.rows("SELECT 1 AS version");
    let error = Statement::Check.read(&[rows]).unwrap_err().to_string();
    assert!(error.contains("compatible_from"), "{error}");
    assert!(enqueue(vec![job("a")]).read(&[Vec::new()]).is_err());
}

//! What each result does to its row, and which answer it gets.

use super::*;

#[test]
fn a_completed_job_is_finished_and_its_row_is_the_journal_entry() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    let row =
        Settlement { note: Some("done".into()), attachment: Some(json("[1, 2]")), ..bare(run, Ending::Completed) };
    assert_eq!(db.settle_one(ME, row), Settled::Accepted);
    let row = db.job(run.job);
    assert_eq!((row.status.as_str(), row.runs, row.failures), ("completed", 1, 0));
    assert_eq!((row.outcome.as_deref(), row.claimed_by.as_deref()), (Some("completed"), Some(ME)));
    assert_eq!((row.note.as_deref(), row.attachment.as_deref()), (Some("done"), Some("[1, 2]")));
    assert_eq!(db.history(run.job), [(1, "completed".into(), Some("done".into()))]);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.journal"), 0);
}

#[test]
fn a_dead_job_counts_its_failure_and_keeps_the_carry_it_was_given() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    let row = Settlement { note: Some("broken".into()), carry: Some(json("7")), ..bare(run, Ending::Dead) };
    assert_eq!(db.settle_one(ME, row), Settled::Accepted);
    let row = db.job(run.job);
    assert_eq!((row.status.as_str(), row.failures, row.carry.as_deref()), ("dead", 1, Some("7")));
    assert_eq!(db.history(run.job), [(1, "dead".into(), Some("broken".into()))]);
}

#[test]
fn a_retried_job_waits_counts_its_failure_and_stores_its_carry() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    let row = Settlement {
        delay: 100.0,
        carry: Some(json("{\"at\":1}")),
        note: Some("no".into()),
        ..bare(run, Ending::Retried)
    };
    assert_eq!(db.settle_one(ME, row), Settled::Accepted);
    let row = db.job(run.job);
    assert_eq!(
        (row.status.as_str(), row.runs, row.failures, row.carry.as_deref()),
        ("pending", 1, 1, Some("{\"at\":1}"))
    );
    assert!(row.is_due_in(100.0) && row.claimed_by.is_none(), "{row:?}");
    assert_eq!(db.value::<i16>("SELECT state FROM {schema}.live"), 1);
    assert_eq!(db.history(run.job), [(1, "retried".into(), Some("no".into()))]);
}

#[test]
fn without_a_delay_a_job_is_ready_at_once_and_its_next_run_sees_the_carry() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    db.settle_one(ME, Settlement { carry: Some(json("1")), ..bare(run, Ending::Paused) });
    assert_eq!(db.value::<i16>("SELECT state FROM {schema}.live"), 0);
    let reply = db.claim(claim(ME));
    let again = &reply.jobs[0];
    assert_eq!((again.id.run, again.failure_count, again.carry.as_ref().map(|json| json.get())), (2, 0, Some("1")));
    db.settle_one(ME, bare(again.id, Ending::Retried));
    assert_eq!(db.job(run.job).carry.as_deref(), Some("1"), "no new carry: the stored one stays");
    assert_eq!(db.history(run.job), [(1, "paused".into(), None), (2, "retried".into(), None)]);
}

#[test]
fn a_released_job_is_ready_at_once_and_nothing_else_of_it_changes() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    db.run("UPDATE {schema}.live SET carry = '3', visible_at = now() - interval '1 h'");
    let row = Settlement {
        delay: 500.0,
        carry: Some(json("4")),
        note: Some("stopping".into()),
        ..bare(run, Ending::Released)
    };
    assert_eq!(db.settle_one(ME, row), Settled::Accepted);
    let row = db.job(run.job);
    assert_eq!((row.status.as_str(), row.runs, row.failures, row.carry.as_deref()), ("pending", 1, 0, Some("3")));
    assert!(row.is_due_in(0.0), "{row:?}");
    assert_eq!(db.value::<i16>("SELECT state FROM {schema}.live"), 0);
    assert_eq!(db.history(run.job), [(1, "released".into(), Some("stopping".into()))]);
}

#[test]
fn a_job_that_was_asked_to_be_cancelled_completes_or_is_cancelled() {
    let mut db = Db::new();
    for ending in
        [Ending::Completed, Ending::Dead, Ending::Cancelled, Ending::Retried, Ending::Paused, Ending::Released]
    {
        let run = db.claimed_one(ME);
        db.request_cancel(run.job);
        let row = Settlement { delay: 5.0, note: Some("n".into()), carry: Some(json("1")), ..bare(run, ending) };
        let (expected, answers) = match ending {
            Ending::Completed => ("completed", [Settled::Accepted, Settled::Landed]),
            _ => ("cancelled", [Settled::Cancelled; 2]),
        };
        assert_eq!(db.settle_one(ME, row.clone()), answers[0], "{ending:?}");
        let got = db.job(run.job);
        assert_eq!((got.status.as_str(), got.failures, got.carry), (expected, 0, None), "{ending:?}");
        assert_eq!(db.history(run.job), [(1, expected.into(), Some("n".into()))], "{ending:?}");
        assert_eq!(db.settle_one(ME, row.clone()), answers[1], "{ending:?}: its reply was lost");
        let requeue = Touch { ids: vec![run.job], statuses: JobStatus::ALL.to_vec(), patient: false };
        assert!(matches!(db.inquire(Inquiry::Requeue(requeue)), Finding::Requeued(rows) if rows.len() == 1));
        assert_eq!(db.settle_one(ME, row), answers[1], "{ending:?}: whatever has been done to the job since");
        db.run("DELETE FROM {schema}.live");
    }
}

#[test]
fn a_result_is_refused_unless_the_claim_is_still_this_runs() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    assert_eq!(db.settle_one(OTHER, bare(run, Ending::Completed)), Settled::Refused, "another worker");
    let earlier = RunId { run: 0, ..run };
    assert_eq!(db.settle_one(ME, bare(earlier, Ending::Completed)), Settled::Refused, "another run");
    db.settle_one(ME, bare(run, Ending::Released));
    assert_eq!(db.settle_one(ME, bare(run, Ending::Completed)), Settled::Refused, "not claimed");
    let second = db.claim_one(OTHER, run.job);
    assert_eq!(db.settle_one(ME, bare(second, Ending::Completed)), Settled::Refused, "claimed by another");
    assert_eq!(db.settle_one(OTHER, bare(second, Ending::Completed)), Settled::Accepted);
    assert_eq!(db.settle_one(ME, bare(second, Ending::Completed)), Settled::Refused, "finished by another");
    assert_eq!(db.settle_one(ME, bare(RunId { job: 999, run: 1 }, Ending::Dead)), Settled::Refused, "gone");
}

#[test]
fn a_result_whose_reply_was_lost_has_landed() {
    let mut db = Db::new();
    for ending in [Ending::Completed, Ending::Dead, Ending::Retried, Ending::Paused, Ending::Released] {
        let run = db.claimed_one(ME);
        let row = Settlement { delay: 100.0, ..bare(run, ending) };
        assert_eq!(db.settle_one(ME, row.clone()), Settled::Accepted, "{ending:?}");
        assert_eq!(db.settle_one(ME, row.clone()), Settled::Landed, "{ending:?}");
        assert_eq!(db.history(run.job).len(), 1, "{ending:?}");
        let another = if ending == Ending::Completed { Ending::Dead } else { Ending::Completed };
        let stands = if ending == Ending::Completed { Settled::Completed } else { Settled::Refused };
        assert_eq!(db.settle_one(ME, bare(run, another)), stands, "{ending:?}: it was another result that was stored");
        db.run("DELETE FROM {schema}.live");
    }
}

#[test]
fn a_result_that_landed_is_known_after_later_runs_too() {
    let mut db = Db::new();
    let first = db.claimed_one(ME);
    db.settle_one(ME, bare(first, Ending::Retried));
    let second = db.claim_one(ME, first.job);
    assert_eq!(db.settle_one(ME, bare(first, Ending::Retried)), Settled::Landed);
    db.settle_one(ME, bare(second, Ending::Completed));
    assert_eq!(db.settle_one(ME, bare(first, Ending::Retried)), Settled::Landed);
    assert_eq!(db.settle_one(ME, bare(first, Ending::Completed)), Settled::Refused);
}

#[test]
fn a_result_of_a_claim_that_was_recovered_is_refused_not_landed() {
    let mut db = Db::new();
    for (dead, cancel) in [(false, false), (true, false), (false, true)] {
        let run = db.claimed_one(ME);
        if cancel {
            db.request_cancel(run.job);
        }
        db.expire();
        let rows = vec![Recovery { id: run, claimed_by: ME.into(), dead, delay: 50.0 }];
        let Reply::Recovered(rows) = db.ask(&Statement::Recover(Recover { rows })) else { panic!() };
        assert_eq!(rows.len(), 1);
        for ending in [Ending::Completed, Ending::Dead, Ending::Cancelled, Ending::Retried] {
            assert_eq!(db.settle_one(ME, bare(run, ending)), Settled::Refused, "{dead} {cancel} {ending:?}");
        }
    }
}

#[test]
fn a_row_that_somebody_else_has_locked_is_busy_and_its_neighbours_are_not() {
    let mut db = Db::new();
    let (locked, free) = (db.claimed_one(ME), db.claimed_one(ME));
    let mut second = session();
    let mut open = second.transaction().unwrap();
    open.query(&db.render(&format!("SELECT 1 FROM {{schema}}.live WHERE id = {} FOR KEY SHARE", locked.job)), &[])
        .unwrap();
    for ending in [Ending::Completed, Ending::Retried] {
        assert_eq!(db.settle_one(ME, bare(locked, ending)), Settled::Busy, "{ending:?}");
    }
    let answers = db.settle(ME, vec![bare(free, Ending::Completed), bare(locked, Ending::Completed)]);
    assert_eq!(answers, [(locked, Settled::Busy), (free, Settled::Accepted)]);
    open.rollback().unwrap();
    assert_eq!(db.settle_one(ME, bare(locked, Ending::Completed)), Settled::Accepted);
}

#[test]
fn each_result_of_a_batch_gets_its_own_answer() {
    let mut db = Db::new();
    let runs: Vec<RunId> = (0..4).map(|_| db.claimed_one(ME)).collect();
    db.settle_one(ME, bare(runs[0], Ending::Completed));
    let gone = RunId { job: 0, run: 1 };
    let batch = vec![
        bare(runs[3], Ending::Dead),
        bare(runs[2], Ending::Paused),
        bare(runs[1], Ending::Completed),
        bare(runs[0], Ending::Completed),
        bare(gone, Ending::Completed),
    ];
    let mut answers = db.settle(ME, batch);
    answers.sort_by_key(|(id, _)| *id);
    let accepted = runs[1..].iter().map(|run| (*run, Settled::Accepted));
    let expected: Vec<_> = [(gone, Settled::Refused), (runs[0], Settled::Landed)].into_iter().chain(accepted).collect();
    assert_eq!(answers, expected);
}

#[test]
fn two_runs_of_one_job_in_a_batch_are_told_apart() {
    let mut db = Db::new();
    let first = db.claimed_one(ME);
    db.settle_one(ME, bare(first, Ending::Released));
    let second = db.claim_one(ME, first.job);
    let answers = db.settle(ME, vec![bare(second, Ending::Completed), bare(first, Ending::Completed)]);
    assert_eq!(answers, [(first, Settled::Refused), (second, Settled::Accepted)]);
}

#[test]
fn an_exchange_settles_and_claims_in_one_transaction() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    let next = db.enqueue_one("b");
    let exchange = Statement::Exchange {
        settle: Some(Settle {
            worker: ME.into(),
            rows: vec![bare(run, Ending::Retried)],
            discard: false,
            brief: false,
        }),
        claim: Some(claim(ME)),
    };
    assert_eq!((exchange.name(), exchange.commands().len()), ("exchange", 2));
    let Reply::Exchange { settled, claim: Some(claimed) } = db.ask(&exchange) else { panic!() };
    assert_eq!(settled, [(run, Settled::Accepted)]);
    let claimed: Vec<RunId> = claimed.jobs.iter().map(|job| job.id).collect();
    assert_eq!(
        claimed,
        [RunId { run: 2, ..run }, RunId { job: next, run: 1 }],
        "the claim sees what the settlement put back"
    );
}

#[test]
fn a_result_that_was_sent_but_not_committed_did_not_land() {
    let mut db = Db::new();
    let run = db.claimed_one(ME);
    let texts = db.texts.clone();
    let mut open = db.client.transaction().unwrap();
    ask(&mut open, &texts, &settlement(ME, vec![bare(run, Ending::Completed)]));
    let mut second = session();
    let during = ask(&mut second, &texts, &settlement(ME, vec![bare(run, Ending::Completed)]));
    assert!(matches!(during, Reply::Exchange { settled, .. } if settled == [(run, Settled::Busy)]));
    open.rollback().unwrap();
    assert_eq!(db.settle_one(ME, bare(run, Ending::Completed)), Settled::Accepted);
}

#[test]
fn a_large_payload_is_stored_once_and_seen_everywhere() {
    let mut db = Db::new();
    let text = format!("{{\"data\": \"{}\"}}", "x".repeat(5_000));
    let id = db.enqueue(vec![NewJob { payload: json(&text), ..job("a") }])[0];
    let written = db.value::<String>("SELECT xmin::text FROM {schema}.payload");
    let shown = |db: &mut Db| db.value::<String>(&format!("SELECT payload::text FROM {{schema}}.jobs WHERE id = {id}"));
    assert_eq!(shown(&mut db), text);
    for (ending, run) in [(Ending::Retried, 1), (Ending::Completed, 2)] {
        let reply = db.claim(claim(ME));
        assert_eq!(reply.jobs[0].payload.get(), text);
        assert_eq!(db.settle_one(ME, bare(RunId { job: id, run }, ending)), Settled::Accepted);
        assert_eq!(shown(&mut db), text);
    }
    assert!(db.value::<bool>("SELECT payload IS NULL FROM {schema}.finished"));
    assert_eq!(db.value::<String>("SELECT xmin::text FROM {schema}.payload"), written);
}

#[test]
fn a_brief_settlement_writes_the_same_rows_as_a_full_one() {
    let mut db = Db::new();
    let large = json(&format!("\"{}\"", "x".repeat(5_000)));
    let mut stored = Vec::new();
    for is_brief in [false, true] {
        let id = db.enqueue(vec![NewJob { payload: large.clone(), dedup_key: Some("k".into()), ..job("a") }])[0];
        let first = db.claim_one(ME, id);
        db.settle_one(ME, Settlement { carry: Some(json("1")), ..bare(first, Ending::Retried) });
        let run = db.claim_one(ME, id);
        let row = Settlement { note: Some("n".into()), attachment: Some(json("2")), ..bare(run, Ending::Completed) };
        let statement = if is_brief { brief(vec![row], false) } else { settlement(ME, vec![row]) };
        assert!(matches!(db.ask(&statement), Reply::Exchange { settled, .. } if settled == [(run, Settled::Accepted)]));
        let columns = "(to_jsonb(f) - ARRAY['id', 'created_at', 'visible_at', 'finished_at'])::text";
        stored.push(db.value::<String>(&format!("SELECT {columns} FROM {{schema}}.finished f WHERE id = {id}")));
    }
    assert_eq!(stored[0], stored[1]);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.payload"), 2);
}

#[test]
fn each_job_of_a_brief_settlement_keeps_its_own_note_and_attachment() {
    let mut db = Db::new();
    let runs: Vec<RunId> = (0..5).map(|_| db.claimed_one(ME)).collect();
    let left =
        [(Some("a"), None), (None, None), (None, Some("[1]")), (Some("b"), Some("{\"b\": 2,\"b\":  3}")), (None, None)];
    let row = |(run, (note, attachment)): (&RunId, (Option<&str>, Option<&str>))| Settlement {
        note: note.map(str::to_owned),
        attachment: attachment.map(json),
        ..bare(*run, Ending::Completed)
    };
    // The order of the results says nothing.
    let rows: Vec<Settlement> = runs.iter().zip(left).rev().map(row).collect();
    assert!(matches!(db.ask(&brief(rows, false)), Reply::Exchange { settled, .. } if settled.len() == 5));
    for (run, (note, attachment)) in runs.iter().zip(left) {
        let shown = |column| format!("SELECT {column} FROM {{schema}}.finished WHERE id = {}", run.job);
        assert_eq!(db.value::<Option<String>>(&shown("note")).as_deref(), note);
        assert_eq!(db.value::<Option<String>>(&shown("attachment::text")).as_deref(), attachment);
    }
}

#[test]
fn a_brief_settlement_and_a_claim_are_one_statement_that_tells_them_apart() {
    for discard in [false, true] {
        for first_key in [None, Some((SystemTime::UNIX_EPOCH, 0))] {
            let mut db = Db::new();
            let (ours, lost) = (db.claimed_one(ME), db.claimed_one(ME));
            let next = db.enqueue(vec![job("a"), job("a"), job("a")]);
            let rows = vec![bare(ours, Ending::Completed), bare(RunId { run: 7, ..lost }, Ending::Completed)];
            let bounds = first_key.map(|(at, id)| Bounds { created_at: vec![Some(at); 3], ids: vec![id; 3] });
            let exchange = Statement::Exchange {
                settle: Some(Settle { worker: ME.into(), rows, discard, brief: true }),
                claim: Some(Claim {
                    want: 2,
                    bounds,
                    kinds: vec!["a"],
                    leases: vec![60.0],
                    room: vec![9],
                    ..claim(ME)
                }),
            };
            assert_eq!(exchange.commands().len(), 1);
            let Reply::Exchange { settled, claim: Some(claimed) } = db.ask(&exchange) else { panic!() };
            assert_eq!(settled, [(ours, Settled::Accepted)]);
            assert_eq!((ids(&claimed), claimed.malformed.len()), (next[..2].to_vec(), 0));
            assert!(claimed.looked == 3 && claimed.looked_for.is_some_and(|took| (0.0..1.0).contains(&took)));
            let kept = db.value::<i64>("SELECT count(*) FROM {schema}.finished");
            assert_eq!(kept, i64::from(!discard));
        }
    }
}

#[test]
fn a_brief_settlement_tells_only_what_it_has_accepted() {
    for discard in [false, true] {
        let mut db = Db::new();
        let (ours, lost, held) = (db.claimed_one(ME), db.claimed_one(ME), db.claimed_one(ME));
        let mut other = session();
        let mut lock = other.transaction().unwrap();
        let sql = db.render(&format!("SELECT FROM {{schema}}.live WHERE id = {} FOR UPDATE", held.job));
        lock.query(&sql, &[]).unwrap();
        let rows = vec![
            bare(ours, Ending::Completed),
            bare(RunId { run: 7, ..lost }, Ending::Completed),
            bare(held, Ending::Completed),
        ];
        match db.ask(&brief(rows, discard)) {
            Reply::Exchange { settled, .. } => assert_eq!(settled, [(ours, Settled::Accepted)]),
            reply => panic!("{reply:?}"),
        }
        lock.rollback().unwrap();
        assert_eq!(db.value::<i64>("SELECT count(*) FROM {schema}.live WHERE state = 2"), 2);
    }
}

//! The calls against answers made up here.

use super::*;
use crate::Priority;
use std::time::SystemTime;

/// Answers every question until the errand is done, and notes the questions.
fn run<T>(
    mut errand: Errand<T>,
    mut answer: impl FnMut(&Inquiry) -> Result<Finding, Error>,
) -> (Result<T, Error>, usize) {
    let mut asked = 0;
    loop {
        match errand {
            Errand::Done(result) => return (Ok(result), asked),
            Errand::Ask(inquiry, next) => {
                asked += 1;
                match next(answer(&inquiry)) {
                    Ok(more) => errand = more,
                    Err(error) => return (Err(error), asked),
                }
            }
        }
    }
}

/// Jobs 1 to `count` as the statement would find them; every tenth is of the kind "rare".
fn table(count: i64, find: &Find) -> FoundJobs {
    let first = find.below.min(count + 1) - 1;
    let floor = (first - i64::from(find.look) + 1).max(1);
    let fits = |id: &i64| find.filter.kind.is_none() || id % 10 == 0;
    let mut found = FoundJobs { floor: (floor > 1).then_some(floor), ..FoundJobs::default() };
    for id in (floor..=first).rev().filter(fits).take(usize::try_from(find.most).unwrap()) {
        found.lowest = Some(id);
        if id % 7 == 0 { found.unreadable.push(id) } else { found.jobs.push(info(id)) }
    }
    found
}

fn info(id: i64) -> JobInfo {
    JobInfo {
        id: JobId(id),
        kind: "a".into(),
        priority: Priority::Normal,
        status: JobStatus::Pending,
        created_at: SystemTime::UNIX_EPOCH,
        due_at: SystemTime::UNIX_EPOCH,
        lease_expires_at: None,
        cancel_requested_at: None,
        finished_at: None,
        claimed_by: None,
        run_count: 0,
        failure_count: 0,
        dedup_key: None,
        outcome: None,
        note: None,
        trace: None,
        payload: None,
        carry: None,
        attachment: None,
    }
}

fn page(count: i64, filter: JobFilter) -> (JobPage, usize) {
    let (page, asked) = run(jobs(filter).unwrap(), |inquiry| match inquiry {
        Inquiry::Find(find) => Ok(Finding::Jobs(table(count, find))),
        other => panic!("{other:?}"),
    });
    (page.unwrap(), asked)
}

fn ids(page: &JobPage) -> Vec<i64> {
    let mut ids: Vec<i64> =
        page.jobs.iter().map(|job| job.id.get()).chain(page.unreadable.iter().map(|id| id.get())).collect();
    ids.sort_by_key(|id| -id);
    ids
}

#[test]
fn pages_follow_each_other_without_a_gap_and_the_last_one_says_so() {
    for (count, kind, limit) in [(0, None, 3), (7, None, 7), (8, None, 7), (50, None, 1), (5_000, Some("rare"), 33)] {
        let mut filter = kind.map_or_else(JobFilter::new, |kind| JobFilter::new().kind(kind)).limit(limit);
        let mut seen = Vec::new();
        loop {
            let (page, _) = page(count, filter.clone());
            assert!(ids(&page).len() <= usize::try_from(limit).unwrap());
            seen.extend(ids(&page));
            match page.next {
                Some(next) => filter = filter.after(next),
                None => break,
            }
        }
        let wanted: Vec<i64> = (1..=count).rev().filter(|id| kind.is_none() || id % 10 == 0).collect();
        assert_eq!(seen, wanted, "{count} jobs, {limit} a page");
    }
}

#[test]
fn a_full_page_costs_one_look_and_a_rare_kind_wider_and_wider_ones() {
    let (first, asked) = page(1_000_000, JobFilter::new());
    assert_eq!((ids(&first).len(), asked), (100, 1));
    let (rare, asked) = page(100_000, JobFilter::new().kind("rare").limit(1_000));
    assert_eq!((ids(&rare).len(), asked), (1_000, 3));
}

#[test]
fn a_page_gives_up_after_a_million_rows_and_says_where_it_stopped() {
    let mut looks = 0;
    let (found, _) = run(jobs(JobFilter::new().kind("none")).unwrap(), |inquiry| {
        looks += 1;
        let Inquiry::Find(find) = inquiry else { panic!("{inquiry:?}") };
        Ok(Finding::Jobs(FoundJobs { floor: Some(find.below - i64::from(find.look)), ..FoundJobs::default() }))
    });
    let page = found.unwrap();
    assert_eq!((page.jobs.len(), looks), (0, LOOKS));
    assert!(page.next.is_some());
}

#[test]
fn what_is_done_to_many_is_done_in_batches_and_added_up() {
    let mut batches = Vec::new();
    let (done, _) = run(cancel_all(JobFilter::new().kind("rare")).unwrap(), |inquiry| match inquiry {
        Inquiry::Find(find) => {
            assert!(!find.content);
            assert_eq!(find.statuses, [JobStatus::Pending, JobStatus::Claimed]);
            Ok(Finding::Jobs(table(12_345, find)))
        }
        Inquiry::Cancel(cancel) => {
            batches.push(cancel.ids.len());
            let answer = |id: i64| if id % 20 == 0 { CancelAnswer::Cancelled } else { CancelAnswer::Requested };
            Ok(Finding::Cancelled(cancel.ids.iter().map(|id| (*id, answer(*id))).collect()))
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(done.unwrap(), CancelledAll { cancelled: 617, requested: 617, skipped: 0 });
    assert!(batches.iter().all(|jobs| *jobs <= 500) && batches.len() <= 5, "{batches:?}");
}

#[test]
fn a_bulk_that_fails_half_way_says_how_far_it_came() {
    let mut acts = 0;
    let (done, _) = run(requeue_all(JobFilter::new()).unwrap(), |inquiry| match inquiry {
        Inquiry::Find(find) => {
            assert_eq!(find.statuses, [JobStatus::Dead], "nobody means to run all of history again");
            Ok(Finding::Jobs(table(2_000, find)))
        }
        Inquiry::Requeue(requeue) => {
            acts += 1;
            let answer = |id: &i64| (*id, RequeueAnswer::Requeued("a".into()));
            if acts == 3 {
                return Err(Error::new(ErrorKind::Unknown, "cut"));
            }
            Ok(Finding::Requeued(requeue.ids.iter().map(answer).collect()))
        }
        other => panic!("{other:?}"),
    });
    let error = done.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unknown, "after 1000 jobs: cut"));
}

#[test]
fn a_filter_that_nothing_can_fit_asks_nothing() {
    let pending_yet_ended = JobFilter::new().status(JobStatus::Pending).finished_since(SystemTime::UNIX_EPOCH);
    let (found, asked) = page(100, pending_yet_ended);
    assert_eq!((found.jobs.len(), asked), (0, 0));
    let dead = JobFilter::new().status(JobStatus::Dead);
    let (done, asked) = run(cancel_all(dead).unwrap(), |inquiry| panic!("{inquiry:?}"));
    assert_eq!((done.unwrap(), asked), (CancelledAll::default(), 0));
}

#[test]
fn a_cleanup_takes_one_status_after_the_other_batch_by_batch() {
    let mut asked = Vec::new();
    let criteria = Cleanup::new().completed(Duration::from_secs(60)).dead(Duration::ZERO);
    let (done, _) = run(cleanup(criteria), |inquiry| {
        let Inquiry::Cleanup(batch) = inquiry else { panic!("{inquiry:?}") };
        asked.push((batch.status, batch.from));
        let jobs = if asked.len() == 1 { 500 } else { 3 };
        Ok(Finding::Deleted(crate::statement::Deleted { jobs, reached: Some(5.0) }))
    });
    assert_eq!(done.unwrap(), Cleaned { completed: 503, cancelled: 0, dead: 3 });
    let begin = f64::NEG_INFINITY;
    assert_eq!(asked, [(JobStatus::Completed, begin), (JobStatus::Completed, 5.0), (JobStatus::Dead, begin)]);
    let (nothing, asked) = run(cleanup(Cleanup::new()), |inquiry| panic!("{inquiry:?}"));
    assert_eq!((nothing.unwrap().total(), asked), (0, 0));
}

#[test]
fn input_that_cannot_be_meant_is_refused_before_anything_is_asked() {
    let kind = |error: Option<Error>| error.map(|error| error.kind());
    let config = Some(ErrorKind::Config);
    assert_eq!(kind(jobs(JobFilter::new().kind("a\0b")).err()), config);
    assert_eq!(kind(cancel_all(JobFilter::new().dedup_key("\0")).err()), config);
    assert_eq!(kind(jobs(JobFilter::new().after(Cursor::behind(1, 2))).err()), config);
    assert_eq!(kind(journal(JobId(1), Some(Cursor::behind(2, 2))).err()), config);
    for name in ["", "a\nb", &"x".repeat(101)] {
        assert_eq!(kind(pause_kind(name).err()), config);
        assert_eq!(kind(resume_kind(name).err()), config);
    }
}

#[test]
fn an_answer_to_another_question_is_a_defect_and_no_panic() {
    let (answer, _) = run(job(JobId(1)), |_| Ok(Finding::Switched(true)));
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Internal);
}

//! Workers and producers as processes, on a server of their own, while everything goes wrong that can: see
//! `docs/reliability.md`. The schedule of the faults comes from a seed; `scripts/chaos` runs longer ones.

#![allow(clippy::disallowed_methods, reason = "real processes are waited for by the real clock")]
#![cfg(unix)]

mod cluster;
mod trouble;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trouble::{Dice, Fault, Outcomes, Pace, Scene, Verdict, of_members, of_the_server};

const SEED: &str = "VENTURI_CHAOS_SEED";
const MINUTES: &str = "VENTURI_CHAOS_MINUTES";

/// Each fault once; those of the members first, so that recovery has calm around it.
#[test]
fn whatever_befalls_processes_wires_and_the_server_nothing_is_lost_or_done_twice() -> Outcomes {
    let seed = seed()?;
    let mut dice = Dice::new(seed);
    let mut faults = of_members(&mut dice, Pace::Short);
    faults.extend(of_the_server(&mut dice, Pace::Short));
    let scene = Scene::on_one_server(seed)?;
    let story = || {
        scene.await_more(20, Duration::from_secs(30))?;
        for fault in &faults {
            fault.happen(&scene)?;
            scene.check_attendance()?;
            std::thread::sleep(dice.millis(200, 1_000));
        }
        scene.await_more(10, Duration::from_secs(30))?;
        scene.settle()
    };
    conclude(seed, &scene, story)
}

/// For `scripts/chaos`: for so many minutes, longer faults, and often two at a time.
#[test]
#[ignore = "takes as long as it is told to"]
fn for_minutes() -> Outcomes {
    let (seed, minutes) = (seed()?, std::env::var(MINUTES)?.parse::<f64>()?);
    let mut dice = Dice::new(seed);
    let scene = Scene::on_one_server(seed)?;
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let story = || {
        while Instant::now() < until {
            let (mut members, server) = (of_members(&mut dice, Pace::Long), of_the_server(&mut dice, Pace::Long));
            // Now and then one at a time, so that recovery has calm around it.
            let lanes = if dice.roll(3) == 0 {
                members.extend(server);
                vec![members]
            } else {
                vec![members, server]
            };
            let lanes = lanes.into_iter().map(|faults| (faults, dice.fork())).collect();
            perform(&scene, lanes, until)?;
            scene.check_attendance()?;
        }
        scene.await_more(10, Duration::from_secs(60))?;
        scene.settle()
    };
    conclude(seed, &scene, story)
}

/// Each lane's faults one after the other, the lanes at once.
fn perform(scene: &Scene, lanes: Vec<(Vec<Fault>, Dice)>, until: Instant) -> Outcomes {
    let run = |(faults, mut dice): (Vec<Fault>, Dice)| -> Outcomes {
        for fault in faults.into_iter().take_while(|_| Instant::now() < until) {
            fault.happen(scene)?;
            std::thread::sleep(dice.millis(100, 3_000));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(move || run(lane))).collect();
        running.into_iter().try_for_each(|lane| lane.join().map_err(|_| "a lane of faults panicked")?)
    })
}

/// The standby is synchronous, so what was acknowledged is there.
#[test]
fn workers_and_producers_go_on_with_the_standby_and_nothing_acknowledged_is_lost() -> Outcomes {
    let seed = seed()?;
    let mut scene = Scene::on_two_servers(seed)?;
    scene.await_more(60, Duration::from_secs(60))?;
    scene.fail_over()?;
    let story = || {
        scene.await_more(60, Duration::from_secs(60))?;
        scene.settle()
    };
    conclude(seed, &scene, story)
}

/// Otherwise that nothing was found would mean nothing.
#[test]
fn each_rule_of_the_ledger_finds_what_breaks_it() -> Outcomes {
    let (found, rules) = trouble::find_what_is_planted()?;
    assert_eq!(found.len(), rules, "{found:#?}");
    Ok(())
}

/// Not a test of its own: what the copies of this program do.
#[test]
fn a_member() -> Outcomes {
    trouble::serve()
}

/// Another one each time, unless it is given.
fn seed() -> Outcomes<u64> {
    match std::env::var(SEED) {
        Ok(seed) => Ok(seed.parse()?),
        Err(_) => Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_micros().into()),
    }
}

/// Tells what happened, in any case: who runs one test by hand wants to know.
fn conclude(seed: u64, scene: &Scene, story: impl FnOnce() -> Outcomes<Verdict>) -> Outcomes {
    let (trouble, figures) = match story() {
        Ok(Verdict { wrong, figures }) => (wrong.join("\n"), figures),
        Err(error) => (format!("{error}\n{}", scene.last_words()), "it did not come to its end".to_owned()),
    };
    eprintln!("{}\nseed {seed}: {figures}", scene.chronicle.text());
    if trouble.is_empty() { Ok(()) } else { Err(format!("{SEED}={seed}:\n{trouble}").into()) }
}

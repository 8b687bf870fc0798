//! What can go wrong, how it is drawn, and how it is done and undone.

use std::time::{Duration, Instant};

use super::dice::Dice;
use super::proxy::{Mode, Proxy};
use super::scene::{PRODUCERS, SEATS, Scene, WIRED, WORKERS};
use super::{LEASE, Outcomes, chronicle, cluster};

/// How long a wire is waited for on which nobody asks anything.
const NOBODY_ASKS: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// SIGKILL; it is started again.
    Kill {
        seat: usize,
        away: Duration,
    },
    /// SIGSTOP, then SIGCONT.
    Freeze {
        seat: usize,
        lasting: Duration,
    },
    /// Told to stop; it is started again.
    Retire {
        seat: usize,
    },
    /// The wire loses all that is sent, and nobody hears of it.
    Drop {
        seat: usize,
        lasting: Duration,
    },
    Stall {
        seat: usize,
        lasting: Duration,
    },
    Refuse {
        seat: usize,
        lasting: Duration,
    },
    /// Cut when the server has done what it was asked.
    CutReplies {
        seat: usize,
        count: usize,
    },
    /// `pg_terminate_backend` of some or all of the members' sessions.
    Terminate {
        times: u32,
        all: bool,
    },
    Restart {
        immediate: bool,
        away: Duration,
    },
    /// SIGKILL for one of the members' backends, after which the server ends all sessions and recovers by itself.
    Crash,
    Lock {
        table: &'static str,
        lasting: Duration,
    },
    /// The role's defaults, for sessions that begin meanwhile.
    Defaults {
        settings: &'static [(&'static str, &'static str)],
        lasting: Duration,
    },
}

use Fault::{Crash, CutReplies, Defaults, Drop, Freeze, Kill, Lock, Refuse, Restart, Retire, Stall, Terminate};

const TABLES: &[&str] = &["live", "finished", "journal", "payload"];
const TIMEOUTS: &[(&str, &str)] =
    &[("statement_timeout", "'1ms'"), ("lock_timeout", "'1ms'"), ("idle_in_transaction_session_timeout", "'1ms'")];
const READ_ONLY: &[(&str, &str)] =
    &[("default_transaction_read_only", "on"), ("default_transaction_isolation", "'serializable'")];

/// How long what lasts lasts: short where a test waits for it, as long as an operator's mishap where nobody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Short,
    Long,
}

impl Pace {
    fn lasting(self, dice: &mut Dice) -> Duration {
        match self {
            Self::Short => dice.millis(2_500, 3_500),
            Self::Long => dice.millis(1_000, 11_000),
        }
    }
}

/// The faults that a member has, each once, in any order.
pub(crate) fn of_members(dice: &mut Dice, pace: Pace) -> Vec<Fault> {
    let beyond = dice.millis(500, 2_000);
    let mut faults = vec![
        Kill { seat: dice.pick(WORKERS), away: dice.millis(0, 1_500) },
        Kill { seat: dice.pick(SEATS), away: dice.millis(0, 1_500) },
        Kill { seat: dice.pick(PRODUCERS), away: Duration::ZERO },
        Freeze { seat: dice.pick(WORKERS), lasting: LEASE + beyond },
        Retire { seat: dice.pick(WORKERS) },
        Drop { seat: dice.pick(WIRED), lasting: pace.lasting(dice) },
        Stall { seat: dice.pick(WIRED), lasting: pace.lasting(dice) },
        Refuse { seat: dice.pick(WIRED), lasting: pace.lasting(dice) },
        CutReplies { seat: dice.pick(WIRED), count: 3 },
        CutReplies { seat: dice.pick(WIRED), count: 3 },
    ];
    dice.shuffle(&mut faults);
    faults
}

/// The faults that the server has, each once, in any order.
pub(crate) fn of_the_server(dice: &mut Dice, pace: Pace) -> Vec<Fault> {
    let mut faults = vec![
        Terminate { times: 4, all: false },
        Terminate { times: 2, all: true },
        Restart { immediate: false, away: pace.lasting(dice) / 3 },
        Restart { immediate: true, away: pace.lasting(dice) / 3 },
        Crash,
        Lock { table: dice.pick(TABLES), lasting: pace.lasting(dice) },
        Lock { table: "live", lasting: pace.lasting(dice) },
        Defaults { settings: TIMEOUTS, lasting: pace.lasting(dice) / 2 },
        Defaults { settings: READ_ONLY, lasting: pace.lasting(dice) / 2 },
    ];
    dice.shuffle(&mut faults);
    faults
}

impl Fault {
    /// Whom it concerns; `None`: everybody.
    fn seat(self) -> Option<usize> {
        match self {
            Kill { seat, .. } | Freeze { seat, .. } | Retire { seat } | Drop { seat, .. } => Some(seat),
            Stall { seat, .. } | Refuse { seat, .. } | CutReplies { seat, .. } => Some(seat),
            Terminate { .. } | Restart { .. } | Crash | Lock { .. } | Defaults { .. } => None,
        }
    }

    /// Does it, and returns when it is undone.
    pub(crate) fn happen(self, scene: &Scene) -> Outcomes {
        let from = chronicle::now();
        scene.chronicle.note(format!("{self:?}"));
        let done = self.perform(scene);
        scene.chronicle.note_trouble(from, self.seat());
        done.map_err(|error| format!("{self:?} could not be done: {error}").into())
    }

    fn perform(self, scene: &Scene) -> Outcomes {
        match self {
            Kill { seat, away } => {
                scene.kill(seat);
                wait(away);
                scene.fill(seat)
            }
            Freeze { seat, lasting } => {
                scene.signal(seat, "STOP")?;
                wait(lasting);
                scene.signal(seat, "CONT")
            }
            Retire { seat } => {
                scene.retire(seat)?;
                scene.fill(seat)
            }
            Drop { seat, lasting } => for_a_while(scene.wire(seat)?, Mode::Drop, lasting),
            Stall { seat, lasting } => for_a_while(scene.wire(seat)?, Mode::Stall, lasting),
            Refuse { seat, lasting } => for_a_while(scene.wire(seat)?, Mode::Refuse, lasting),
            CutReplies { seat, count } => cut_replies(scene.wire(seat)?, count),
            Terminate { times, all } => terminate(scene, times, all),
            Restart { immediate, away } => {
                if immediate {
                    scene.cluster.stop_immediate()?
                } else {
                    scene.cluster.stop_fast()?
                }
                wait(away);
                Ok(scene.cluster.restart()?)
            }
            Crash => crash(scene),
            Lock { table, lasting } => lock(scene, table, lasting),
            Defaults { settings, lasting } => defaults(scene, settings, lasting),
        }
    }
}

fn wait(time: Duration) {
    std::thread::sleep(time);
}

fn for_a_while(wire: &Proxy, mode: Mode, lasting: Duration) -> Outcomes {
    wire.set(mode);
    wait(lasting);
    wire.set(Mode::Pass);
    Ok(())
}

fn cut_replies(wire: &Proxy, count: usize) -> Outcomes {
    wire.cut_replies(count);
    let deadline = Instant::now() + NOBODY_ASKS;
    while wire.cuts_left() > 0 && Instant::now() < deadline {
        wait(Duration::from_millis(10));
    }
    wire.cut_replies(0);
    Ok(())
}

fn terminate(scene: &Scene, times: u32, all: bool) -> Outcomes {
    let which = if all { "true" } else { "random() < 0.5" };
    let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app' AND {which}");
    for _ in 0..times {
        scene.patient_client()?.execute(&sql, &[])?;
        wait(Duration::from_millis(300));
    }
    Ok(())
}

fn crash(scene: &Scene) -> Outcomes {
    let backend = "SELECT pid FROM pg_stat_activity WHERE usename = 'app' ORDER BY random() LIMIT 1";
    if let Some(row) = scene.patient_client()?.query_opt(backend, &[])? {
        cluster::signal(u32::try_from(row.get::<_, i32>(0))?, "KILL")?;
    }
    scene.patient_client().map(drop)
}

fn lock(scene: &Scene, table: &str, lasting: Duration) -> Outcomes {
    let mut client = scene.patient_client()?;
    let mut transaction = client.transaction()?;
    transaction.batch_execute(&format!("LOCK TABLE venturi.{table} IN ACCESS EXCLUSIVE MODE"))?;
    wait(lasting);
    Ok(transaction.rollback()?)
}

fn defaults(scene: &Scene, settings: &[(&str, &str)], lasting: Duration) -> Outcomes {
    let each = |what: &dyn Fn(&(&str, &str)) -> String| settings.iter().map(what).collect::<String>();
    let mut client = scene.patient_client()?;
    client.batch_execute(&each(&|(name, value)| format!("ALTER ROLE app SET {name} = {value};")))?;
    terminate(scene, 1, true)?;
    wait(lasting);
    client.batch_execute(&each(&|(name, _)| format!("ALTER ROLE app RESET {name};")))?;
    terminate(scene, 1, true)
}

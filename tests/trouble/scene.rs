//! A server of its own, four workers, two producers, and whatever befalls them.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use venturi::Database;

use super::chronicle::Chronicle;
use super::cluster::{Cluster, DATABASE, PASSWORD, USER};
use super::ledger::{self, Recovery};
use super::member::{Duty, Front, Member, Orders};
use super::proxy::Proxy;
use super::{LEASE, Outcomes};

pub(crate) const SEATS: &[usize] = &[0, 1, 2, 3, 4, 5];
pub(crate) const WORKERS: &[usize] = &[0, 1, 2, 3];
pub(crate) const PRODUCERS: &[usize] = &[4, 5];
/// Those who reach the server over a wire that can be sat upon; the others meet it directly.
pub(crate) const WIRED: &[usize] = &[0, 2, 4, 5];

const CAST: &[(Duty, Front)] = &[
    (Duty::Work { swapped: false }, Front::Threads),
    (Duty::Work { swapped: true }, Front::Threads),
    (Duty::Work { swapped: false }, Front::Futures),
    (Duty::Work { swapped: true }, Front::Futures),
    (Duty::Produce, Front::Threads),
    (Duty::Produce, Front::Futures),
];

/// What a role that owns its schema may do, and no more.
const ROLE: &str = "CREATE ROLE app LOGIN PASSWORD 'not-a-secret'; GRANT CREATE ON DATABASE venturi TO app;";

/// From the last fault's end to the last job's: statements that wait on dead wires, recovery that waits after
/// reconnects, leases, and backoffs, on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);
/// A server that was promoted or started may still refuse.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// Whoever recovers was not disturbed for so long: after a reconnect of its own it waits ten seconds.
const CALM_BEFORE: f64 = 14.0;
/// A lease that has run out is noticed by then.
const RECOVERED_WITHIN: f64 = 2.0;

struct Seat {
    member: Option<Member>,
    orders: Orders,
    generation: u64,
}

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) chronicle: Chronicle,
    standby: Option<Cluster>,
    promoted: bool,
    seats: Vec<Mutex<Seat>>,
    wires: Vec<Option<Proxy>>,
    folder: Folder,
    retired: Mutex<Vec<String>>,
}

/// Removed with everything in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a scene has come to.
pub(crate) struct Verdict {
    pub(crate) wrong: Vec<String>,
    pub(crate) figures: String,
}

impl Scene {
    /// One server, and everybody at work. Some reach it by wires.
    pub(crate) fn on_one_server(seed: u64) -> Outcomes<Self> {
        let cluster = Cluster::start()?;
        prepare(&cluster)?;
        let wires = SEATS.iter().map(|it| WIRED.contains(it).then(|| Proxy::start(cluster.port())).transpose());
        let wires = wires.collect::<Outcomes<Vec<_>>>()?;
        let ports = wires.iter().map(|wire| wire.as_ref().map_or(cluster.port(), Proxy::port)).collect::<Vec<_>>();
        let url = |seat: usize| Ok(url_of("app", &[*ports.get(seat).ok_or("no such seat")?]));
        let effects = cluster.socket_url();
        Self::open(seed, cluster, None, wires, &url, effects)
    }

    /// A server and its synchronous standby, both named in everybody's connection string.
    pub(crate) fn on_two_servers(seed: u64) -> Outcomes<Self> {
        let cluster = Cluster::start()?;
        prepare(&cluster)?;
        let standby = cluster.start_standby()?;
        let ports = [cluster.port(), standby.port()];
        let url = |_| Ok(url_of("app", &ports));
        let effects = format!("{}&target_session_attrs=read-write", url_of(USER, &ports));
        let wires = SEATS.iter().map(|_| None).collect();
        Self::open(seed, cluster, Some(standby), wires, &url, effects)
    }

    fn open(
        seed: u64,
        cluster: Cluster,
        standby: Option<Cluster>,
        wires: Vec<Option<Proxy>>,
        url: &dyn Fn(usize) -> Outcomes<String>,
        effects_url: String,
    ) -> Outcomes<Self> {
        let folder = std::env::temp_dir().join(format!("venturi-chaos-{}-{}", std::process::id(), cluster.port()));
        fs::create_dir(&folder)?;
        let folder = Folder(folder);
        fs::create_dir(folder.0.join("answers"))?;
        let mut seats = Vec::new();
        for (nth, (duty, front)) in CAST.iter().copied().enumerate() {
            let (url, effects_url) = (url(nth)?, effects_url.clone());
            let orders = Orders { name: String::new(), duty, front, url, effects_url, answers: PathBuf::new(), seed };
            seats.push(Mutex::new(Seat { member: None, orders, generation: 0 }));
        }
        let (chronicle, retired) = (Chronicle::new(), Mutex::default());
        let scene = Self { cluster, chronicle, standby, promoted: false, seats, wires, folder, retired };
        SEATS.iter().try_for_each(|seat| scene.fill(*seat))?;
        Ok(scene)
    }

    /// A session of the superuser's with the server that takes writes.
    fn client(&self) -> Outcomes<Client> {
        let server = self.standby.as_ref().filter(|_| self.promoted).unwrap_or(&self.cluster);
        Ok(Client::connect(&server.socket_url(), NoTls)?)
    }

    pub(crate) fn wire(&self, seat: usize) -> Outcomes<&Proxy> {
        Ok(self.wires.get(seat).and_then(Option::as_ref).ok_or("no wire")?)
    }

    fn seat(&self, seat: usize) -> Outcomes<MutexGuard<'_, Seat>> {
        Ok(self.seats.get(seat).ok_or("no such seat")?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the seat's next process.
    pub(crate) fn fill(&self, nth: usize) -> Outcomes {
        let mut seat = self.seat(nth)?;
        seat.generation += 1;
        let name = format!("{nth}.{}", seat.generation);
        seat.orders.answers = self.folder.0.join("answers").join(&name);
        seat.orders.seed = seat.orders.seed.wrapping_add(seat.generation << 8 | nth as u64);
        seat.orders.name = name;
        seat.member = Some(Member::start(&seat.orders, &self.folder.0)?);
        Ok(())
    }

    pub(crate) fn kill(&self, seat: usize) {
        if let Ok(mut seat) = self.seat(seat) {
            seat.member = None;
        }
    }

    pub(crate) fn signal(&self, seat: usize, name: &str) -> Outcomes {
        self.seat(seat)?.member.as_ref().map_or(Ok(()), |member| member.signal(name))
    }

    /// Tells it to stop; it has to end well, and in time.
    pub(crate) fn retire(&self, nth: usize) -> Outcomes {
        let mut seat = self.seat(nth)?;
        let name = seat.orders.name.clone();
        let Some(mut member) = seat.member.take() else { return Ok(()) };
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        match member.retire(ENDED_WITHIN) {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{name} ended with {status}:\n{}", member.last_words()).into()),
            Err(error) => Err(format!("{name}: {error}:\n{}", member.last_words()).into()),
        }
    }

    /// Nobody has ended who was not ended.
    pub(crate) fn check_attendance(&self) -> Outcomes {
        for nth in SEATS {
            let mut seat = self.seat(*nth)?;
            let name = seat.orders.name.clone();
            if let Some(member) = seat.member.as_mut() {
                if member.has_ended()? {
                    return Err(format!("{name} has ended by itself:\n{}", member.last_words()).into());
                }
            }
        }
        Ok(())
    }

    /// How many tasks each producer was told are stored, over all that sat there.
    fn stored(&self) -> Outcomes<Vec<usize>> {
        let mut counts = vec![0; SEATS.len()];
        for entry in fs::read_dir(self.folder.0.join("answers"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let nth: usize = name.split('.').next().unwrap_or_default().parse()?;
            let text = fs::read_to_string(entry.path())?;
            if let Some(count) = counts.get_mut(nth) {
                *count += text.lines().filter(|line| line.starts_with("stored")).count();
            }
        }
        Ok(PRODUCERS.iter().filter_map(|nth| counts.get(*nth).copied()).collect())
    }

    /// Waits until each producer was told of so many more tasks that they are stored.
    pub(crate) fn await_more(&self, more: usize, within: Duration) -> Outcomes {
        let before = self.stored()?;
        let deadline = Instant::now() + within;
        while self.stored()?.iter().zip(&before).any(|(now, before)| now < &(before + more)) {
            self.check_attendance()?;
            if Instant::now() >= deadline {
                return Err(format!("not {more} more tasks each were stored: {before:?}, {:?}", self.stored()?).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The first server dies as by a power cut, and the standby takes over.
    pub(crate) fn fail_over(&mut self) -> Outcomes {
        let standby = self.standby.as_ref().ok_or("no standby")?;
        self.chronicle.note("the primary dies");
        self.cluster.stop_immediate()?;
        standby.psql("SELECT pg_promote(true, 30)")?;
        self.promoted = true;
        self.chronicle.note("the standby is promoted");
        Ok(())
    }

    /// With all faults undone: lets the producers go, waits until every job is finished, lets the workers go, and looks.
    pub(crate) fn settle(&self) -> Outcomes<Verdict> {
        self.chronicle.note("all faults are undone");
        self.check_attendance()?;
        PRODUCERS.iter().try_for_each(|seat| self.retire(*seat))?;
        let mut client = self.patient_client()?;
        let healed = Instant::now();
        while client.query_one("SELECT count(*) FROM venturi.live", &[])?.get::<_, i64>(0) > 0 {
            self.check_attendance()?;
            if healed.elapsed() >= SETTLED_WITHIN {
                return Err(format!("not settled within {SETTLED_WITHIN:?}:\n{}", left(&mut client)?).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let settled = healed.elapsed();
        self.chronicle.note("every job is finished");
        WORKERS.iter().try_for_each(|seat| self.retire(*seat))?;
        self.verdict(&mut client, settled)
    }

    /// The same, of a server that may just be coming back.
    pub(crate) fn patient_client(&self) -> Outcomes<Client> {
        let deadline = Instant::now() + ANSWERS_WITHIN;
        loop {
            match self.client() {
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                answer => return answer,
            }
        }
    }

    fn verdict(&self, client: &mut Client, settled: Duration) -> Outcomes<Verdict> {
        ledger::note_answers(client, &self.folder.0.join("answers"))?;
        for name in self.retired.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            client.execute("INSERT INTO ledger.retired VALUES ($1)", &[name])?;
        }
        let mut wrong = ledger::judge(client)?;
        for job in named(&wrong) {
            self.chronicle.note(format!("job {job}:\n{}", ledger::history_of(client, job)?));
        }
        let recoveries = ledger::recoveries(client)?;
        let (calm, other): (Vec<_>, Vec<_>) = recoveries.iter().partition(|it| self.was_calm(it));
        let is_late = |it: &&&Recovery| it.at - it.expired > RECOVERED_WITHIN;
        wrong.extend(calm.iter().filter(is_late).map(|it| self.tell(it)));
        other.iter().filter(is_late).for_each(|it| self.chronicle.note(self.tell(it)));
        let (faults, counts) = (self.chronicle.events(), ledger::counts(client)?);
        let figures = format!(
            "{faults} faults; {counts}; all settled {settled:.1?} after the last; recovered after the end of the lease: \
             {} while another worker was left alone, at most {:.2} s late; {} else, at most {:.2} s",
            calm.len(),
            worst(&calm),
            other.len(),
            worst(&other)
        );
        Ok(Verdict { wrong, figures })
    }

    /// Whether some other worker was in a position to recover it at once.
    fn was_calm(&self, it: &Recovery) -> bool {
        let lease = LEASE.as_secs_f64();
        let others = WORKERS.iter().filter(|seat| !it.worker.starts_with(&format!("{seat}.")));
        others.into_iter().any(|seat| self.chronicle.was_calm(*seat, it.expired - lease - CALM_BEFORE, it.at))
    }

    fn tell(&self, it: &Recovery) -> String {
        let Recovery { job, worker, expired, at } = it;
        let time = self.chronicle.since_beginning(*at);
        format!("job {job} of worker {worker} was recovered at {time:.3}, {:.2} s late", at - expired)
    }

    /// What the members said last.
    pub(crate) fn last_words(&self) -> String {
        let words = |nth: &usize| {
            let seat = self.seat(*nth).ok()?;
            Some(format!("{}:\n{}", seat.orders.name, seat.member.as_ref()?.last_words()))
        };
        SEATS.iter().filter_map(words).collect::<Vec<_>>().join("\n\n")
    }
}

fn worst(of: &[&Recovery]) -> f64 {
    of.iter().map(|it| it.at - it.expired).fold(0.0, f64::max)
}

/// The first few jobs that are named.
fn named(wrong: &[String]) -> Vec<i64> {
    let after = wrong.iter().flat_map(|text| text.split("job ").skip(1));
    let number = |text: &str| text.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok();
    after.filter_map(number).take(6).collect()
}

fn left(client: &mut Client) -> Outcomes<String> {
    let sql = "SELECT format('job %s: %s, state %s, run %s of %s, lease to %s, due %s', id, kind, state, run_count, \
               claimed_by, claim_expires_at, visible_at) FROM venturi.live ORDER BY id LIMIT 10";
    let lines: Vec<String> = client.query(sql, &[])?.iter().map(|row| row.get(0)).collect();
    Ok(lines.join("\n"))
}

fn prepare(cluster: &Cluster) -> Outcomes {
    cluster.psql(ROLE)?;
    venturi::blocking::migrate(&Database::new(&url_of("app", &[cluster.port()]))?)?;
    cluster.psql(ledger::TABLES)?;
    Ok(())
}

/// What the ledger finds where each of its rules is broken, and how many rules it has.
pub(crate) fn find_what_is_planted() -> Outcomes<(Vec<String>, usize)> {
    let cluster = Cluster::start()?;
    prepare(&cluster)?;
    cluster.psql(ledger::PLANTED)?;
    let found = ledger::judge(&mut Client::connect(&cluster.socket_url(), NoTls)?)?;
    Ok((found, ledger::RULES.len()))
}

fn url_of(user: &str, ports: &[u16]) -> String {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgres://{user}:{PASSWORD}@{}/{DATABASE}?connect_timeout=3", hosts.join(","))
}

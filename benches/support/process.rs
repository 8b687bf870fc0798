//! What a process has used, as Linux tells it; nothing elsewhere.

use std::fs;
use std::time::Duration;

/// Linux tells process times in these, on every architecture.
const PER_TICK: Duration = Duration::from_millis(10);

/// User and system time of this process, threads that have ended included.
pub(crate) fn own_time() -> Option<Duration> {
    time("self", 11)
}

/// User and system time of a process's children that have ended.
pub(crate) fn time_of_children(pid: u32) -> Option<Duration> {
    time(&pid.to_string(), 13)
}

/// Two neighbouring fields of `/proc/PID/stat`, counted from behind the command's name; see proc(5).
fn time(pid: &str, first: usize) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(first);
    let ticks = fields.next()?.parse::<u32>().ok()? + fields.next()?.parse::<u32>().ok()?;
    Some(PER_TICK * ticks)
}

/// The time of all threads that this process has now, to the nanosecond: for what takes less than a tick.
pub(crate) fn time_of_threads() -> Option<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir("/proc/self/task").ok()? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanoseconds))
}

/// Bytes of memory that are in use by this process now.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

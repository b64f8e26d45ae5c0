//! The conditions of a measurement: CPU, cores, commit; and the process's own counters.

use std::fs;
use std::thread;

/// CPU model and the number of cores this process may use, such as `AMD EPYC 9R14, 2 cores`.
pub fn describe() -> String {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let model = fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| field(&text, "model name", ':').map(str::to_owned))
        .unwrap_or_else(|| format!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    format!("{model}, {cores} cores")
}

/// User and system time that this process has used so far, in seconds, in steps of 10 ms. `None` if
/// the system does not report it.
pub fn cpu_seconds() -> Option<f64> {
    cpu_seconds_of(std::process::id())
}

/// As [`cpu_seconds`], of any process, with all its threads, also those that have ended.
pub(super) fn cpu_seconds_of(process: u32) -> Option<f64> {
    // Fields 14 and 15, counted from 1; the second field is a name in brackets and may hold spaces.
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let after_name = &text[text.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    // The unit is USER_HZ, which Linux fixes at 100 for user space.
    Some((user + system) / 100.0)
}

/// The largest resident size this process has reached, in bytes. `None` if the system does not
/// report it.
pub fn peak_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: u64 = field(&text, "VmHWM", ':')?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The value of the first line `key <separator> value`.
fn field<'a>(text: &'a str, key: &str, separator: char) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_a_machine_and_its_cores() {
        let text = describe();
        assert!(text.ends_with("cores") && text.len() > "1 cores".len(), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_counters_of_a_process_can_be_read() {
        assert!(cpu_seconds().is_some_and(|seconds| seconds >= 0.0));
        assert!(peak_memory_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}

//! Memory of a size that clients decide: if the system does not give it, that is an error like others.

use std::{fs, hint::black_box};

use super::{Error, Result};

/// Has the system write no image of this process's memory when it dies, and let no other process of the same user read
/// it: keys and shares are in it.
///
/// # Errors
/// [`Error::File`] with the system's error.
pub(crate) fn keep_private() -> Result<()> {
    #[cfg(unix)]
    {
        let failed = |cause: rustix::io::Errno| Error::File {
            what: "keeping this process's memory to itself".to_owned(),
            cause: cause.into(),
        };
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none).map_err(failed)?;
        // Tests look at what servers hold, by the files that this would close to them.
        #[cfg(target_os = "linux")]
        if cfg!(not(debug_assertions)) {
            close_to_others().map_err(failed)?;
        }
    }
    Ok(())
}

/// Lets no other process of the same user read this one's memory.
#[cfg(target_os = "linux")]
fn close_to_others() -> rustix::io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
}

/// Makes sure that the system would give this process `bytes` bytes now. Computations ask for their memory in many
/// small steps, none of which can fail without ending the process.
///
/// # Errors
/// [`Error::Refused`] if it would not.
pub(crate) fn check_room(bytes: u64) -> Result<()> {
    let mut room: Vec<u8> = Vec::new();
    let there = usize::try_from(bytes).is_ok_and(|bytes| room.try_reserve_exact(bytes).is_ok());
    // Nothing is written to it, and the compiler may omit what is never read.
    black_box(&mut room);
    if there {
        return Ok(());
    }
    let reason = format!(
        "this machine has no memory for a job that may need {} MiB; send fewer images at once, or try \
         again later",
        bytes >> 20
    );
    Err(Error::refused("model", reason))
}

/// The bytes of memory that this process holds, if the system reports it.
pub(crate) fn resident() -> Option<u64> {
    kib("/proc/self/status", "VmRSS:")
}

/// The bytes of memory that this machine has, if the system reports it.
pub(crate) fn of_machine() -> Option<u64> {
    kib("/proc/meminfo", "MemTotal:")
}

/// The number in `kB` on a line of a file, in bytes.
fn kib(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let said = text.lines().find_map(|line| line.strip_prefix(name))?;
    said.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn no_image_of_memory_is_written_when_the_process_dies() {
        keep_private().unwrap();
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let sizes: Vec<_> = line["Max core file size".len()..].split_whitespace().collect();
        assert_eq!(sizes[..2], ["0", "0"], "{line}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_other_process_reads_this_ones_memory() {
        use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
        close_to_others().unwrap();
        let now = dumpable_behavior().unwrap();
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
        assert_eq!(now, DumpableBehavior::NotDumpable);
    }

    #[test]
    fn memory_that_the_system_does_not_give_is_an_error() {
        check_room(1 << 20).unwrap();
        for bytes in [1 << 60, u64::MAX] {
            let text = check_room(bytes).unwrap_err().to_string();
            assert!(text.contains("no memory for a job that may need"), "{text}");
        }
    }
}

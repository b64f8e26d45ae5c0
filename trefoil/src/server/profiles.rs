//! `profile = "auto"`: the links between the servers are measured, and the profile with the least predicted time is chosen
//! for each model.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use mpc_core::{Profile, Settings};
use net::{Party, Transport};
use nn_layers::Sizes;
use serde::{Deserialize, Serialize};

use super::{Core, control::exchange};
use crate::{
    base::{Digest, Error, Result, format},
    local,
    model::Program,
    wire::Cost,
};

/// The profiles that are compared. Of equal ones the first is chosen.
const CANDIDATES: [Profile; 3] = [Profile::Balanced, Profile::Bytes, Profile::SlowLinks];

/// Round trips of which the shortest counts: others waited for a thread.
const TRIPS: usize = 5;

/// Bytes of the first message by which a rate is measured; of each further one twice those before.
const FIRST: usize = 1 << 18;

/// Bytes of the longest such message.
const LAST: usize = 1 << 23;

/// A message that takes this much longer than a round trip tells the rate.
const ENOUGH: Duration = Duration::from_millis(20);

/// The most choices that are kept; all are forgotten beyond.
const KEPT: usize = 1 << 10;

/// The worst of some links, as measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Links {
    /// The longest round trip.
    microseconds: u64,
    /// The lowest rate.
    bytes_per_second: u64,
}

/// The message that servers compare when they meet.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meeting {
    auto: bool,
}

/// The choices of one server with `profile = "auto"`.
#[derive(Debug, Default)]
pub(super) struct Profiles(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The links of the session, once they are measured.
    links: Option<Links>,
    chosen: HashMap<(Digest, Sizes), Profile>,
}

impl Links {
    /// Those of which each is the worse.
    fn worse(self, other: Self) -> Self {
        Self {
            microseconds: self.microseconds.max(other.microseconds),
            bytes_per_second: self.bytes_per_second.min(other.bytes_per_second),
        }
    }

    /// Nanoseconds that a job of these costs waits for its links. A round takes half a round trip.
    fn nanoseconds(self, costs: &[Cost]) -> u64 {
        let rounds = costs.iter().map(|cost| u64::from(cost.rounds)).max().unwrap_or(0);
        let bytes = costs.iter().map(|cost| cost.bytes).max().unwrap_or(0);
        let waits = rounds.saturating_mul(self.microseconds).saturating_mul(500);
        let sends = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        waits.saturating_add(u64::try_from(sends).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = format::bytes(self.bytes_per_second);
        write!(f, "a round trip of {:.2} ms, {rate}/s", self.microseconds as f64 / 1e3)
    }
}

impl Profiles {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change is a single step, so a panic leaves a sound map behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Compares with the others whether profiles are chosen, and measures the links between all servers if they are.
    ///
    /// # Errors
    /// [`Error::Refused`] if only some servers choose them; those of the links.
    pub(super) fn meet(&self, control: &mut dyn Transport) -> Result<()> {
        let mine = Meeting { auto: self.profiles.get().is_some() };
        let mut all = exchange::<Meeting>(control, "compare profiles", &mine)?;
        let auto = mine.auto;
        all[self.me] = mine;
        if let Some(party) = all.iter().position(|meeting| meeting.auto != auto) {
            let (one, other) = if auto { (self.me, party) } else { (party, self.me) };
            let reason = format!(
                "party {one} has `profile = \"auto\"` and party {other} has not; write the same in all party.toml"
            );
            return Err(Error::refused("servers", reason));
        }
        let Some(profiles) = self.profiles.get() else { return Ok(()) };
        let links = measured(control)?;
        tracing::info!(%links, "measured the links between the servers");
        *profiles.lock() = Known { links: Some(links), chosen: HashMap::new() };
        Ok(())
    }

    /// The profile for a program on inputs of these sizes: the one with the least predicted time on the measured links. The
    /// steps of a conversation all have that of the usual step. Without `profile = "auto"` it is the one of `party.toml`.
    ///
    /// # Errors
    /// [`Error::Nn`] if the plan cannot run on these sizes.
    pub(super) fn profile(&self, program: &Program, sizes: Sizes) -> Result<Profile> {
        let usual = self.computing.settings.profile;
        let Some(profiles) = self.profiles.get() else { return Ok(usual) };
        let sizes = if program.keeps_state() { program.usual_sizes() } else { sizes };
        let key = (program.digest(), sizes);
        let links = {
            let known = profiles.lock();
            if let Some(chosen) = known.chosen.get(&key) {
                return Ok(*chosen);
            }
            let Some(links) = known.links else { return Ok(usual) };
            links
        };
        let mut best: Option<(u64, Profile)> = None;
        for profile in CANDIDATES {
            let settings = Settings { profile, ..self.computing.settings };
            let computing = cluster_protocols::Computing { settings, ..self.computing };
            let time = links.nanoseconds(&local::predict(program, sizes, computing)?);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, profile));
            }
        }
        let chosen = best.map_or(usual, |(_, profile)| profile);
        let mut known = profiles.lock();
        if known.chosen.len() >= KEPT {
            known.chosen.clear();
        }
        // Another session may have begun meanwhile.
        if known.links == Some(links) {
            known.chosen.insert(key, chosen);
        }
        Ok(chosen)
    }

    /// The profile as the status shows it: with the links, if they choose it.
    pub(super) fn profile_line(&self) -> String {
        let Some(profiles) = self.profiles.get() else {
            return self.computing.settings.profile.to_string();
        };
        match profiles.lock().links {
            Some(links) => format!("auto, by {links}"),
            None => "auto".to_owned(),
        }
    }
}

/// The worst of all links between servers: each pair measures its own, one after the other, and all exchange what they found.
fn measured(control: &mut dyn Transport) -> Result<Links> {
    let (me, parties) = (control.me().0, control.parties());
    control.step("measure links");
    let mut worst = Links { microseconds: 0, bytes_per_second: u64::MAX };
    for one in 0..parties {
        for other in one + 1..parties {
            if me == one {
                worst = worst.worse(measure(control, Party(other))?);
            } else if me == other {
                reply(control, Party(one))?;
            }
        }
    }
    let mut all = exchange::<Links>(control, "compare links", &worst)?;
    all[me] = worst;
    all.into_iter().reduce(Links::worse).ok_or_else(|| Error::Internal("no servers".to_owned()))
}

/// Measures the link to another server, which replies to each message. An empty one ends it.
fn measure(control: &mut dyn Transport, to: Party) -> Result<Links> {
    let mut trip = |bytes: usize| -> Result<Duration> {
        let began = Instant::now();
        control.send(to, Bytes::from(vec![0; bytes]).into())?;
        control.receive(to)?;
        Ok(began.elapsed())
    };
    let mut shortest = trip(1)?;
    for _ in 1..TRIPS {
        shortest = shortest.min(trip(1)?);
    }
    let mut bytes = FIRST;
    let rate = loop {
        let longer = trip(bytes)?.saturating_sub(shortest).max(Duration::from_micros(1));
        // A connection sends slowly at first.
        if bytes >= LAST || bytes > FIRST && longer > ENOUGH {
            break bytes as f64 / longer.as_secs_f64();
        }
        bytes *= 2;
    };
    control.send(to, Bytes::new().into())?;
    Ok(Links { microseconds: shortest.as_micros() as u64, bytes_per_second: rate as u64 })
}

/// The other side of [`measure`].
fn reply(control: &mut dyn Transport, to: Party) -> Result<()> {
    while !control.receive(to)?.body.is_empty() {
        control.send(to, Bytes::from_static(&[0]).into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use net::in_process::transports;

    use super::*;

    fn cost(bytes: u64, rounds: u32) -> Cost {
        Cost { bytes, rounds, ..Cost::default() }
    }

    #[test]
    fn the_time_of_a_job_is_that_of_its_rounds_and_of_its_bytes() {
        let links = Links { microseconds: 40_000, bytes_per_second: 10_000_000 };
        // Half of 40 ms for each of 10 rounds, and a second for 10 MB of the busiest server.
        let costs = [cost(10_000_000, 9), cost(1, 10), cost(0, 0)];
        assert_eq!(links.nanoseconds(&costs), 200_000_000 + 1_000_000_000);
        let slow = Links { microseconds: u64::MAX, bytes_per_second: 0 };
        assert_eq!(slow.nanoseconds(&costs), u64::MAX);
    }

    #[test]
    fn all_servers_get_the_same_links() {
        let all = thread::scope(|scope| {
            let parties = transports(3).into_iter();
            let parties: Vec<_> = parties
                .map(|mut links| scope.spawn(move || measured(&mut links).unwrap()))
                .collect();
            parties.into_iter().map(|party| party.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(all, [all[0]; 3]);
        assert!(all[0].bytes_per_second > 1 << 20 && all[0].bytes_per_second < u64::MAX);
    }
}

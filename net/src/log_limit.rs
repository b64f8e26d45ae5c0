//! Lets one of many like lines into the log.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The most groups that are kept apart, and the most kinds of one group; of further ones only the
/// number is logged.
const GROUPS: usize = 4096;
const KINDS: usize = 32;

/// Lets one of many like lines into the log in a given time, and counts the others. A line belongs
/// to a group (its cause) and a kind (the event). No group can use up the room of another one.
pub struct LogLimit<G, K> {
    pause: Duration,
    state: Mutex<State<G, K>>,
}

struct State<G, K> {
    seen: HashMap<G, Group<K>>,
    /// Lines of groups beyond the most that are kept apart.
    others: u64,
    /// The time at which [`LogLimit::left_out`] looks again.
    next: Instant,
}

struct Group<K> {
    kinds: HashMap<K, Seen>,
    /// Lines of kinds beyond the most that are kept apart.
    others: u64,
}

struct Seen {
    logged: Instant,
    left_out: u64,
}

/// Like lines that were left out of the log.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut<G, K> {
    /// The group; `None` of groups beyond the most that are kept apart.
    pub group: Option<G>,
    /// The kind; `None` of kinds beyond the most that are kept apart.
    pub kind: Option<K>,
    /// The number of lines.
    pub lines: u64,
}

impl<G: Eq + Hash + Clone, K: Eq + Hash + Clone> LogLimit<G, K> {
    /// Lets a line of each kind of each group through once in `pause`.
    #[must_use]
    pub fn new(pause: Duration) -> Self {
        let state = State { seen: HashMap::new(), others: 0, next: Instant::now() + pause };
        Self { pause, state: Mutex::new(state) }
    }

    /// True if a line is to be logged now; if it is not, it is counted.
    pub fn admits(&self, group: &G, kind: &K) -> bool {
        self.admits_at(group, kind, Instant::now())
    }

    /// The lines that were left out longer ago than the pause, for one log line each. Cheap if
    /// there are none.
    pub fn left_out(&self) -> Vec<LeftOut<G, K>> {
        self.left_out_at(Instant::now())
    }

    fn admits_at(&self, group: &G, kind: &K, now: Instant) -> bool {
        let mut state = self.state();
        if !state.seen.contains_key(group) {
            if state.seen.len() >= GROUPS {
                state.others += 1;
                return false;
            }
            state.seen.insert(group.clone(), Group { kinds: HashMap::new(), others: 0 });
        }
        let Some(group) = state.seen.get_mut(group) else { return false };
        if let Some(seen) = group.kinds.get_mut(kind) {
            seen.left_out += 1;
            return false;
        }
        if group.kinds.len() >= KINDS {
            group.others += 1;
            return false;
        }
        group.kinds.insert(kind.clone(), Seen { logged: now, left_out: 0 });
        true
    }

    fn left_out_at(&self, now: Instant) -> Vec<LeftOut<G, K>> {
        let mut state = self.state();
        if now < state.next {
            return Vec::new();
        }
        state.next = now + self.pause / 8;
        let over = |seen: &Seen| now >= seen.logged + self.pause;
        let lines = std::mem::take(&mut state.others);
        let mut counts = vec![LeftOut { group: None, kind: None, lines }];
        for (name, group) in &mut state.seen {
            let ended = group.kinds.extract_if(|_, seen| over(seen));
            counts.extend(ended.map(|(kind, seen)| LeftOut {
                group: Some(name.clone()),
                kind: Some(kind),
                lines: seen.left_out,
            }));
            let lines = std::mem::take(&mut group.others);
            counts.push(LeftOut { group: Some(name.clone()), kind: None, lines });
        }
        state.seen.retain(|_, group| !group.kinds.is_empty());
        counts.retain(|left_out| left_out.lines > 0);
        counts
    }

    fn state(&self) -> MutexGuard<'_, State<G, K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(60);

    #[test]
    fn of_a_flood_one_line_is_logged_and_the_others_are_counted() {
        let limit = LogLimit::new(PAUSE);
        let began = Instant::now();
        let logged = (0..1000).filter(|_| limit.admits_at(&"alice", &"refused", began)).count();
        assert_eq!(logged, 1);
        assert!(limit.admits_at(&"alice", &"another", began), "kinds do not hide each other");
        assert_eq!(limit.left_out_at(began), []);
        let left_out = LeftOut { group: Some("alice"), kind: Some("refused"), lines: 999 };
        assert_eq!(limit.left_out_at(began + 2 * PAUSE), [left_out]);
        assert!(
            limit.admits_at(&"alice", &"refused", began + 2 * PAUSE),
            "it is logged again later"
        );
    }

    #[test]
    fn a_group_uses_up_no_room_but_its_own_and_memory_is_bounded() {
        let limit = LogLimit::new(PAUSE);
        let began = Instant::now();
        let logged = (0..20_000).filter(|kind| limit.admits_at(&0, kind, began)).count();
        assert_eq!(logged, KINDS);
        assert!(limit.admits_at(&1, &0, began), "another group has its line");
        let logged = (2..2 * GROUPS).filter(|group| limit.admits_at(group, &0, began)).count();
        assert_eq!(logged, GROUPS - 2);
        let mut left_out = limit.left_out_at(began + 2 * PAUSE);
        left_out.sort_by_key(|one| one.group);
        let others = |group, lines| LeftOut { group, kind: None, lines };
        assert_eq!(left_out, [others(None, GROUPS as u64), others(Some(0), 20_000 - KINDS as u64)]);
        assert!(limit.state().seen.is_empty());
    }
}

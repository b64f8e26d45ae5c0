//! Lets one of many like lines into the log.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Most kinds that are told apart; of further ones nothing is logged but their number.
const MOST: usize = 1024;

/// Lets one of many like lines into the log in a given time, and counts the others. What is like is
/// said by a key: what happened, and to whom.
pub struct LogLimit<K> {
    pause: Duration,
    state: Mutex<State<K>>,
}

struct State<K> {
    seen: HashMap<K, Seen>,
    /// Lines of kinds that were too many to be told apart.
    others: u64,
    /// When [`LogLimit::left_out`] is to look again.
    next: Instant,
}

struct Seen {
    logged: Instant,
    left_out: u64,
}

impl<K: Eq + Hash + Clone> LogLimit<K> {
    /// Lets a line of each kind through once in `pause`.
    #[must_use]
    pub fn new(pause: Duration) -> Self {
        let state = State { seen: HashMap::new(), others: 0, next: Instant::now() + pause };
        Self { pause, state: Mutex::new(state) }
    }

    /// Whether a line is to be logged now; if it is not, it is counted.
    pub fn admits(&self, key: &K) -> bool {
        self.admits_at(key, Instant::now())
    }

    /// The kinds of which lines were left out longer ago than the pause, and how many: to be logged as
    /// one line each. Without a kind: lines of kinds that were too many to be told apart. Cheap if
    /// there is nothing to say.
    pub fn left_out(&self) -> Vec<(Option<K>, u64)> {
        self.left_out_at(Instant::now())
    }

    fn admits_at(&self, key: &K, now: Instant) -> bool {
        let mut state = self.state();
        if let Some(seen) = state.seen.get_mut(key) {
            seen.left_out += 1;
            return false;
        }
        if state.seen.len() >= MOST {
            state.others += 1;
            return false;
        }
        state.seen.insert(key.clone(), Seen { logged: now, left_out: 0 });
        true
    }

    fn left_out_at(&self, now: Instant) -> Vec<(Option<K>, u64)> {
        let mut state = self.state();
        if now < state.next {
            return Vec::new();
        }
        state.next = now + self.pause / 8;
        let others = std::mem::take(&mut state.others);
        let over = |seen: &Seen| now >= seen.logged + self.pause;
        let mut counts: Vec<_> = state
            .seen
            .extract_if(|_, seen| over(seen))
            .map(|(key, seen)| (Some(key), seen.left_out))
            .collect();
        counts.push((None, others));
        counts.retain(|&(_, left_out)| left_out > 0);
        counts
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
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
        let logged = (0..1000).filter(|_| limit.admits_at(&"refused", began)).count();
        assert_eq!(logged, 1);
        assert!(limit.admits_at(&"another", began), "kinds do not hide each other");
        assert_eq!(limit.left_out_at(began), []);
        assert_eq!(limit.left_out_at(began + 2 * PAUSE), [(Some("refused"), 999)]);
        assert!(limit.admits_at(&"refused", began + 2 * PAUSE), "it is logged again later");
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let limit = LogLimit::new(PAUSE);
        let began = Instant::now();
        let logged = (0..5 * MOST).filter(|at| limit.admits_at(at, began)).count();
        assert_eq!(logged, MOST);
        let others = 4 * MOST as u64;
        assert_eq!(limit.left_out_at(began + 2 * PAUSE), [(None, others)]);
        assert!(limit.state().seen.is_empty());
    }
}

//! Sorting networks: the places that each stage puts in order.

/// Pairs of places that are put in order at once: each place of `lower` with the one `distance` behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::functions) struct Stage {
    pub(in crate::functions) lower: Vec<usize>,
    pub(in crate::functions) distance: usize,
}

/// Batcher's odd-even merge sort for any number of places (Sorting networks and their applications, 1968). It has
/// `t (t + 1) / 2` stages for `t = ceil(log2 n)`.
///
/// Pairs on which none of the `wanted` places depends are left out, and stages without pairs. The network may be turned
/// around, where that leaves fewer: it is shortest for the first places.
pub(in crate::functions) fn merge_sort(n: usize, wanted: &[usize]) -> Vec<Stage> {
    let pairs = |stages: &[Stage]| stages.iter().map(|stage| stage.lower.len()).sum::<usize>();
    let forward = needed(all_stages(n), n, wanted);
    if wanted.len() == n {
        return forward;
    }
    let mut turned = all_stages(n);
    for Stage { lower, distance } in &mut turned {
        lower.iter_mut().for_each(|place| *place = n - 1 - *place - *distance);
    }
    let turned = needed(turned, n, wanted);
    if pairs(&turned) < pairs(&forward) { turned } else { forward }
}

/// The pairs on which wanted places depend.
fn needed(mut stages: Vec<Stage>, n: usize, wanted: &[usize]) -> Vec<Stage> {
    let mut live = vec![false; n];
    for &place in wanted.iter().filter(|place| **place < n) {
        live[place] = true;
    }
    for Stage { lower, distance } in stages.iter_mut().rev() {
        lower.retain(|&place| {
            let needed = live[place] || live[place + *distance];
            live[place] |= needed;
            live[place + *distance] |= needed;
            needed
        });
    }
    stages.retain(|stage| !stage.lower.is_empty());
    stages
}

/// The whole network: sorted runs of 1, 2, 4, .. numbers are merged. Places from `n` on would hold the largest
/// numbers, so pairs with them are left out.
fn all_stages(n: usize) -> Vec<Stage> {
    let mut stages = Vec::new();
    let mut run = 1;
    while run < n {
        let mut distance = run;
        while distance > 0 {
            let lower = (0..n.saturating_sub(distance)).filter(|&place| {
                place >= distance % run
                    && (place - distance % run) / distance % 2 == 0
                    && place / (2 * run) == (place + distance) / (2 * run)
            });
            stages.push(Stage { lower: lower.collect(), distance });
            distance /= 2;
        }
        run *= 2;
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stages: &[Stage], values: &mut [bool]) {
        for Stage { lower, distance } in stages {
            for &place in lower {
                if values[place] & !values[place + distance] {
                    values.swap(place, place + distance);
                }
            }
        }
    }

    /// A network that sorts all zeros and ones sorts everything.
    #[test]
    fn every_network_sorts_all_zeros_and_ones() {
        for n in 0..=12 {
            let all: Vec<_> = (0..n).collect();
            let stages = merge_sort(n, &all);
            for number in 0..1u32 << n {
                let mut values: Vec<_> = (0..n).map(|i| number >> i & 1 == 1).collect();
                run(&stages, &mut values);
                assert!(values.is_sorted(), "{n} places, {number:b}");
            }
        }
    }

    #[test]
    fn a_network_for_some_places_puts_the_same_there() {
        for n in 1..=10 {
            for place in 0..n {
                let stages = merge_sort(n, &[place]);
                for number in 0..1u32 << n {
                    let mut values: Vec<_> = (0..n).map(|i| number >> i & 1 == 1).collect();
                    run(&stages, &mut values);
                    let zeros = n - number.count_ones() as usize;
                    assert_eq!(values[place], place >= zeros, "{n} places, {number:b}");
                }
            }
        }
    }

    #[test]
    fn no_place_is_twice_in_a_stage() {
        for n in [2, 3, 7, 100, 1000] {
            let all: Vec<_> = (0..n).collect();
            for Stage { lower, distance } in merge_sort(n, &all) {
                let mut places: Vec<_> = lower.iter().flat_map(|&i| [i, i + distance]).collect();
                places.sort_unstable();
                let count = places.len();
                places.dedup();
                assert_eq!(count, places.len());
            }
        }
    }

    #[test]
    fn few_places_take_fewer_pairs() {
        let size = |n: usize, wanted: &[usize]| -> (usize, usize) {
            let stages = merge_sort(n, wanted);
            (stages.iter().map(|stage| stage.lower.len()).sum(), stages.len())
        };
        let all = |n: usize| (0..n).collect::<Vec<_>>();
        // A tournament at either end.
        assert_eq!(size(1000, &[0]), (999, 10));
        assert_eq!(size(1000, &[999]), (999, 10));
        assert_eq!(size(1000, &all(1000)), (23_521, 55));
        assert_eq!(size(10_000, &all(10_000)), (456_229, 105));
        assert!(size(1000, &[499, 500]) < size(1000, &all(1000)));
    }
}

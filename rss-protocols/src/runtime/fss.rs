//! Function secret sharing: distributed comparison functions (DCF).
//!
//! Two evaluators with one key each evaluate a function that neither knows, at a point that both know, and get shares
//! of its value. A step function has one value of a few words below and at a threshold and another one above it. A key
//! is a binary tree of pseudo-random seeds (Boyle, Gilboa and Ishai, CCS 2016), with values at its nodes as in Boyle et
//! al., EUROCRYPT 2021. At the node of each prefix
//! of the threshold the evaluators' seeds are independent; at a node beside them they are equal, so that the subtree
//! below adds nothing. A correction for each level, the same in both keys, ensures this. It also makes the values at
//! the nodes where a point leaves the threshold sum up to the function's.
//!
//! Seeds are expanded by BLAKE3, keyed with the seed, the key's [`Place`] and the level, so that work spent on one key
//! is of no use against another. All code here is straight-line: it does not branch on a threshold or a point, or use
//! one as an address. Cost: `bits (2 + K) + K` words for a key without its seed, for values of `K` words. Security: that
//! of BLAKE3 as a pseudo-random function with keys of 126 bits.

/// Words of a seed. The two lowest bits of the first are 0: a correction has its two bits there.
pub(crate) const SEED: usize = 2;

/// The place of a key: no two keys of a job have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the operation that the key belongs to.
    pub operation: u64,
    /// The element's number in that operation's chunk.
    pub element: u64,
}

/// The seed of an evaluator's key, and the key's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    pub seed: [u64; SEED],
    pub place: Place,
}

/// The seed of a node, and its evaluator's bit.
#[derive(Clone, Copy)]
struct Node {
    seed: [u64; SEED],
    bit: u64,
}

/// The expansion of a node's seed: its left and its right child, and their values.
#[derive(Clone, Copy)]
pub(crate) struct Children<const K: usize> {
    nodes: [Node; 2],
    values: [[u64; K]; 2],
}

/// A step function: `low` up to the threshold, `low + step` above it.
pub(crate) struct StepFunction<const K: usize> {
    pub threshold: u64,
    pub low: [u64; K],
    pub step: [u64; K],
}

/// Words of a key without its seed.
pub(crate) const fn words_of<const K: usize>(bits: usize) -> usize {
    bits * (SEED + K) + K
}

impl Node {
    /// The root of one of the two evaluators.
    fn root(seed: [u64; SEED], evaluator: usize) -> Self {
        Self { seed: [seed[0] & !3, seed[1]], bit: evaluator as u64 }
    }
}

/// All ones for 1, 0 for 0.
fn mask(bit: u64) -> u64 {
    bit.wrapping_neg()
}

fn select<const N: usize>(bit: u64, [zero, one]: [[u64; N]; 2]) -> [u64; N] {
    std::array::from_fn(|i| zero[i] ^ (mask(bit) & (zero[i] ^ one[i])))
}

fn combine<const K: usize>(terms: [(u64, &[u64; K]); 2]) -> [u64; K] {
    let [(c, x), (d, y)] = terms;
    std::array::from_fn(|i| c.wrapping_mul(x[i]).wrapping_add(d.wrapping_mul(y[i])))
}

/// 1 for 0, -1 for 1.
fn sign(bit: u64) -> u64 {
    1u64.wrapping_sub(bit << 1)
}

const MINUS: u64 = u64::MAX;

/// The levels of a key and their ends are fewer.
const LEVELS: u64 = 1 << 8;

/// Expands a seed of one level of a key.
pub(crate) fn expand<const K: usize>(seed: [u64; SEED], place: Place, level: usize) -> Children<K> {
    let Place { operation, element } = place;
    debug_assert!((level as u64) < LEVELS && element < u64::MAX / LEVELS);
    let tweak = [operation, element * LEVELS + level as u64];
    mutant!("keys: expanded alike at every element", tweak = [tweak[0], level as u64]);
    mutant!("keys: expanded alike in every operation", tweak = [0, tweak[1]]);
    mutant!("keys: expanded alike at every level", tweak = [tweak[0], element * LEVELS]);
    let mut key = [0; blake3::KEY_LEN];
    for (bytes, word) in key.chunks_exact_mut(8).zip([seed, tweak].as_flattened()) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let mut output = blake3::Hasher::new_keyed(&key).finalize_xof();
    divided(|words| {
        let mut bytes = [0; 64];
        let bytes = &mut bytes[..words.len() * 8];
        output.fill(bytes);
        let (read, _) = bytes.as_chunks();
        words.iter_mut().zip(read).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    })
}

/// An expansion, made of a string of which `fill` gives the next words. No bit of the string is used twice.
fn divided<const K: usize>(mut fill: impl FnMut(&mut [u64])) -> Children<K> {
    let nodes = [(); 2].map(|()| {
        let mut seed = [0; SEED];
        fill(&mut seed);
        let bit = seed[0] & 1;
        mutant!("keys: a node's bit is one of its seed's", bit = seed[1] & 1);
        Node { seed: [seed[0] & !3, seed[1]], bit }
    });
    let values = [(); 2].map(|()| {
        let mut words = [0; K];
        fill(&mut words);
        mutant!("keys: values of nodes bare", words = [0; K]);
        words
    });
    Children { nodes, values }
}

/// Makes the corrections of a step function on `bits` bits, given both evaluators' seeds; `put` takes their words in
/// order. `expand` expands the seed of an evaluator at a level, as [`expand`].
pub(crate) fn make<const K: usize>(
    function: &StepFunction<K>,
    bits: usize,
    seeds: [[u64; SEED]; 2],
    mut expand: impl FnMut(usize, usize, [u64; SEED]) -> Children<K>,
    mut put: impl FnMut(u64),
) {
    let mut nodes = [0, 1].map(|evaluator| Node::root(seeds[evaluator], evaluator));
    // The sum of both evaluators' values along the threshold.
    let mut sum = [0; K];
    for level in 0..bits {
        let keep = function.threshold >> (bits - 1 - level) & 1;
        let children = [0, 1].map(|evaluator| expand(evaluator, level, nodes[evaluator].seed));
        let (next, seed) = correct_level(nodes, children.each_ref().map(|c| c.nodes), keep);
        let lost = children.each_ref().map(|c| select(1 - keep, c.values));
        mutant!("keys: a step's values bare", lost = [[0; K]; 2]);
        let kept = children.each_ref().map(|c| select(keep, c.values));
        // A point that leaves to the right is above the threshold.
        let leaving = combine([(1, &function.low), (1 - keep, &function.step)]);
        let value = correction(leaving, &sum, [&lost[0], &lost[1]], nodes[1].bit);
        let along = combine([(1, &kept[0]), (MINUS, &kept[1])]);
        let corrected = combine([(1, &along), (sign(nodes[1].bit), &value)]);
        sum = combine([(1, &sum), (1, &corrected)]);
        nodes = next;
        seed.into_iter().chain(value).for_each(&mut put);
    }
    let ends = [0, 1].map(|evaluator| expand(evaluator, bits, nodes[evaluator].seed).values[0]);
    let last = correction(function.low, &sum, [&ends[0], &ends[1]], nodes[1].bit);
    last.into_iter().for_each(put);
}

/// One level of a key, given both evaluators' nodes on the path and the children of those: the next nodes on the path,
/// and the corrections of seeds and bits.
fn correct_level(
    nodes: [Node; 2],
    children: [[Node; 2]; 2],
    keep: u64,
) -> ([Node; 2], [u64; SEED]) {
    let on = |side: u64| {
        children.map(|[left, right]| Node {
            seed: select(side, [left.seed, right.seed]),
            bit: select(side, [[left.bit], [right.bit]])[0],
        })
    };
    let lost = on(1 - keep).map(|node| node.seed);
    mutant!("keys: the lost seeds bare", lost = [lost[0], [0; SEED]]);
    let seed: [u64; SEED] = std::array::from_fn(|i| lost[0][i] ^ lost[1][i]);
    let [left, right] = [0, 1].map(|side| children[0][side].bit ^ children[1][side].bit);
    let bits = [left ^ keep ^ 1, right ^ keep];
    let bit = select(keep, [[bits[0]], [bits[1]]])[0];
    let kept = on(keep);
    let next = [0, 1].map(|evaluator| {
        let Node { bit: before, .. } = nodes[evaluator];
        let node = kept[evaluator];
        let seed = std::array::from_fn(|i| node.seed[i] ^ (mask(before) & seed[i]));
        Node { seed, bit: node.bit ^ (before & bit) }
    });
    (next, [seed[0] | bits[0] | bits[1] << 1, seed[1]])
}

/// The words of the keys of `n` elements: the words `i` of all keys are contiguous. `make` puts those of one
/// element.
pub(crate) fn interleaved(
    n: usize,
    words: usize,
    mut make: impl FnMut(usize, &mut dyn FnMut(u64)),
) -> Vec<u64> {
    let mut all = vec![0; n * words];
    for at in 0..n {
        let mut word = at;
        make(at, &mut |correction| {
            all[word] = correction;
            word += n;
        });
    }
    all
}

/// The correction that makes the values of both evaluators at a node, and those before it, sum up to the wanted one.
fn correction<const K: usize>(
    wanted: [u64; K],
    sum: &[u64; K],
    values: [&[u64; K]; 2],
    bit: u64,
) -> [u64; K] {
    let missing = combine([(1, &wanted), (MINUS, sum)]);
    let apart = combine([(MINUS, values[0]), (1, values[1])]);
    combine([(sign(bit), &missing), (sign(bit), &apart)])
}

/// The share of an evaluator, 0 or 1, of the function at a point; `word` gives the corrections' words.
pub(crate) fn evaluate<const K: usize>(
    evaluator: usize,
    Root { seed, place }: Root,
    bits: usize,
    point: u64,
    word: impl Fn(usize) -> u64,
) -> [u64; K] {
    let mut node = Node::root(seed, evaluator);
    let mut sum = [0; K];
    for level in 0..bits {
        let side = point >> (bits - 1 - level) & 1;
        let first = level * (SEED + K);
        let children = expand::<K>(node.seed, place, level);
        let [left, right] = children.nodes;
        let (head, before) = (word(first), node.bit);
        let bit = select(
            side,
            [[left.bit ^ (before & head & 1)], [right.bit ^ (before & head >> 1 & 1)]],
        );
        let seed = select(side, [left.seed, right.seed]);
        let correction = [head & !3, word(first + 1)];
        let value = select(side, children.values);
        let corrections: [u64; K] = std::array::from_fn(|i| word(first + SEED + i));
        let value = combine([(1, &value), (before, &corrections)]);
        sum = combine([(1, &sum), (1, &value)]);
        let seed = std::array::from_fn(|i| seed[i] ^ (mask(before) & correction[i]));
        node = Node { seed, bit: bit[0] };
    }
    let last: [u64; K] = std::array::from_fn(|i| word(bits * (SEED + K) + i));
    let end = expand::<K>(node.seed, place, bits).values[0];
    let last = combine([(1, &end), (node.bit, &last)]);
    combine([(sign(evaluator as u64), &sum), (sign(evaluator as u64), &last)])
}

#[cfg(test)]
pub(crate) mod tests {
    use mpc_core::SplitMix64;

    use super::*;

    const K: usize = 3;

    const PLACE: Place = Place { operation: 5, element: 9 };

    fn corrections(
        function: &StepFunction<K>,
        bits: usize,
        seeds: [[u64; 2]; 2],
        change: Change<'_>,
    ) -> Vec<u64> {
        let mut words = Vec::new();
        let expand = |evaluator, level, seed| change(evaluator, level, expand(seed, PLACE, level));
        make(function, bits, seeds, expand, |word| words.push(word));
        words
    }

    #[test]
    fn every_bit_of_a_correction_has_a_mask_of_its_own() {
        corrections_of_steps_are_masked();
    }

    fn drawn(draw: &mut SplitMix64) -> [u64; 2] {
        [draw.next_u64(), draw.next_u64()]
    }

    #[test]
    fn shares_of_a_step_function_add_up_at_every_point() {
        let mut draw = SplitMix64::new(3);
        for bits in [1, 2, 5] {
            for threshold in 0..1 << bits {
                let seeds = [drawn(&mut draw), drawn(&mut draw)];
                let values = [(); 2].map(|()| std::array::from_fn(|_| draw.next_u64()));
                let function = StepFunction { threshold, low: values[0], step: values[1] };
                let words = corrections(&function, bits, seeds, &|_, _, children| children);
                assert_eq!(words.len(), words_of::<K>(bits));
                for point in 0..1 << bits {
                    let share = |evaluator: usize| {
                        let root = Root { seed: seeds[evaluator], place: PLACE };
                        evaluate::<K>(evaluator, root, bits, point, |i| words[i])
                    };
                    let got = combine([(1, &share(0)), (1, &share(1))]);
                    let above = u64::from(point > threshold);
                    let want = combine([(1, &function.low), (above, &function.step)]);
                    assert_eq!(got, want, "{bits} bits, threshold {threshold}, at {point}");
                }
            }
        }
    }

    fn words(Children { nodes, values }: &Children<K>) -> Vec<u64> {
        let nodes = nodes.iter().flat_map(|node| [node.seed[0] | node.bit, node.seed[1]]);
        nodes.chain(values.concat()).collect()
    }

    #[test]
    pub(crate) fn every_bit_of_an_expansion_is_one_of_its_string() {
        let string: Vec<u64> = {
            let mut draw = SplitMix64::new(13);
            (0..2 * (SEED + K)).map(|_| draw.next_u64()).collect()
        };
        let divide = |string: &[u64]| {
            let mut left = string;
            let children = divided::<K>(|words| {
                let (now, later) = left.split_at(words.len());
                words.copy_from_slice(now);
                left = later;
            });
            assert!(left.is_empty());
            words(&children)
        };
        let before = divide(&string);
        // The second lowest bit of a seed is not used: a correction has another bit there.
        let unused =
            |word: usize, bit: u32| word < 2 * SEED && word.is_multiple_of(SEED) && bit == 1;
        for (word, bit) in (0..string.len()).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
            let mut flipped = string.clone();
            flipped[word] ^= 1 << bit;
            let mut wanted = before.clone();
            wanted[word] ^= if unused(word, bit) { 0 } else { 1 << bit };
            assert_eq!(divide(&flipped), wanted, "bit {bit} of word {word}");
        }
    }

    /// Both words of the seed count, and the operation, the element and the level.
    #[test]
    pub(crate) fn no_two_places_expand_a_seed_alike() {
        let mut all = std::collections::HashSet::new();
        let mut count = 0;
        let place = |operation, element| Place { operation, element };
        for seed in [[8, 8], [8, 9], [12, 8]] {
            for (place, level) in [
                (place(3, 1), 0),
                (place(4, 1), 0),
                (place(3, 2), 0),
                (place(3, 1), 1),
                (place(3, 0), 1),
            ] {
                let words = words(&expand(seed, place, level));
                count += words.len();
                all.extend(words);
            }
        }
        assert_eq!(all.len(), count);
    }

    /// The corrections of a step function change in half of their bits with the other evaluator's seed, for both
    /// evaluators. An evaluator gets its seed and the corrections. Assume that it cannot know the other evaluator's
    /// expansions along the threshold, which come from a pseudo-random function of fresh seeds. Then every bit of the
    /// corrections has a separate mask bit in these expansions. Flipping the mask bit always flips the correction bit.
    /// It flips no bit of an earlier level, and of its own level only bits that are accounted for later. In that order
    /// the corrections are a bijection of these bits, for any threshold and values.
    pub(crate) fn corrections_of_steps_are_masked() {
        const BITS: usize = 3;
        let mut draw = SplitMix64::new(5);
        for _ in 0..4 {
            let threshold = draw.next_u64() % (1 << BITS);
            let seeds = [drawn(&mut draw), drawn(&mut draw)];
            let values = [(); 2].map(|()| std::array::from_fn(|_| draw.next_u64()));
            let function = StepFunction { threshold, low: values[0], step: values[1] };
            let make = |change: Change<'_>| corrections(&function, BITS, seeds, change);
            for (other, level) in [0, 1].into_iter().flat_map(|o| (0..=BITS).map(move |l| (o, l))) {
                let first = level * (SEED + K);
                if level == BITS {
                    certify(&make, [other, level], first, &[], &[0]);
                } else {
                    let lost = 1 - (threshold >> (BITS - 1 - level) & 1) as usize;
                    certify(&make, [other, level], first, &[lost], &[lost]);
                }
            }
        }
    }

    /// A change of an expansion, given its evaluator and level.
    type Change<'a> = &'a dyn Fn(usize, usize, Children<K>) -> Children<K>;

    /// Certifies the corrections of a level, the words from `first` on. The correction of a seed, if the level has
    /// one, is masked by the seed of the lost child; those of values are masked by the values of some children.
    fn certify(
        make: &dyn Fn(Change<'_>) -> Vec<u64>,
        [other, level]: [usize; 2],
        first: usize,
        lost: &[usize],
        values: &[usize],
    ) {
        let before = make(&|_, _, children| children);
        let own = lost.len() * SEED + values.len() * K;
        let one = |word: usize, bit: u32, flip: &dyn Fn(&mut Children<K>)| {
            let after = make(&|evaluator, at, mut children| {
                if [evaluator, at] == [other, level] {
                    flip(&mut children);
                }
                children
            });
            assert_eq!(after[..first], before[..first], "levels before stay");
            for at in 0..own {
                let changed = before[first + at] ^ after[first + at];
                let wanted = if at == word { 1 << bit } else { 0 };
                // In sums, the bits above may change too.
                let is_sum = at == word && at >= lost.len() * SEED;
                let free = if is_sum { u64::MAX << bit } else { wanted };
                let place = format!("bit {bit} of word {word} at level {level}");
                assert_eq!(changed & !free, 0, "{place}, seen at {at}");
                assert_eq!(changed & wanted, wanted, "{place}");
            }
        };
        for &lost in lost {
            for (word, bits) in [(0, 2..64), (1, 0..64)] {
                for bit in bits {
                    one(word, bit, &|children| children.nodes[lost].seed[word] ^= 1 << bit);
                }
            }
            one(0, 0, &|children| children.nodes[0].bit ^= 1);
            one(0, 1, &|children| children.nodes[1].bit ^= 1);
        }
        for (place, &child) in values.iter().enumerate() {
            for (word, bit) in (0..K).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
                let at = (lost.len() * SEED) + place * K + word;
                one(at, bit, &|children| children.values[child][word] ^= 1 << bit);
            }
        }
    }
}

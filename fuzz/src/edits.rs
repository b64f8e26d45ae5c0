//! Damage to an input, as data: a failing test shrinks it to the relevant edits.

use proptest::{collection::vec, prelude::*, sample::Index};

/// Numbers at which sizes, signs and sums go wrong.
const NUMBERS: [i128; 14] = [
    0,
    1,
    -1,
    127,
    255,
    65_535,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    (1 << 53) + 1,
    i64::MAX as i128,
    1 << 63,
    u64::MAX as i128,
];

/// Some changes of an input, one after the other.
#[derive(Debug, Clone)]
pub struct Damage(Vec<Edit>);

/// One change. Places are fractions of the input's length, so that every edit fits every input.
#[derive(Debug, Clone)]
enum Edit {
    /// Inverts a bit.
    Flip(Index, u8),
    /// Writes an extreme number, little or big endian, over 1, 2, 4 or 8 bytes.
    Word { at: Index, number: Index, log_bytes: u8, big: bool },
    /// Writes an extreme number in decimal digits in place of the number that stands there, if any does.
    Digits { at: Index, number: Index },
    /// Takes bytes out.
    Cut(Index, Index),
    /// Repeats bytes.
    Repeat { at: Index, to: Index, times: u8 },
    /// Puts in bytes of another seed.
    Splice { at: Index, seed: Index, from: Index, to: Index },
    /// Ends the input early.
    End(Index),
    /// Puts in bytes.
    Insert(Index, Vec<u8>),
}

/// One to four changes.
pub fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    // Small changes more often than large ones, so that many inputs pass the first checks.
    let edit = prop_oneof![
        3 => (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        3 => (at(), at(), 0..4u8, any::<bool>())
            .prop_map(|(at, number, log_bytes, big)| Edit::Word { at, number, log_bytes, big }),
        6 => (at(), at()).prop_map(|(at, number)| Edit::Digits { at, number }),
        1 => (at(), at()).prop_map(|(from, to)| Edit::Cut(from, to)),
        1 => (at(), at(), 1..20u8).prop_map(|(at, to, times)| Edit::Repeat { at, to, times }),
        1 => (at(), at(), at(), at())
            .prop_map(|(at, seed, from, to)| Edit::Splice { at, seed, from, to }),
        1 => at().prop_map(Edit::End),
        1 => (at(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
    ];
    vec(edit, 1..5).prop_map(Damage)
}

impl Damage {
    /// A seed with this damage. It may contain pieces of `seeds`.
    #[must_use]
    pub fn apply(&self, seeds: &[Vec<u8>], seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        self.0.iter().for_each(|edit| edit.apply(seeds, &mut bytes));
        bytes
    }
}

impl Edit {
    fn apply(&self, seeds: &[Vec<u8>], bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            bytes.push(0);
        }
        let place = |at: &Index| at.index(bytes.len());
        match self {
            Self::Flip(at, bit) => {
                let at = place(at);
                bytes[at] ^= 1 << bit;
            }
            Self::Word { at, number, log_bytes, big } => {
                let at = place(at);
                let mut word = NUMBERS[number.index(NUMBERS.len())].to_le_bytes();
                let length = (1 << log_bytes).min(bytes.len() - at);
                if *big {
                    word[..length].reverse();
                }
                bytes[at..at + length].copy_from_slice(&word[..length]);
            }
            Self::Digits { at, number } => {
                let at = place(at);
                let Some(run) = digits(bytes, at) else { return };
                let text = NUMBERS[number.index(NUMBERS.len())].to_string();
                bytes.splice(run, text.into_bytes());
            }
            Self::Cut(from, to) => {
                let (from, to) = ordered(place(from), place(to));
                // Short pieces more often than long ones: a reader should still get some way into the
                // rest.
                bytes.drain(from..to.min(from + 1 + (to - from) / 8));
            }
            Self::Repeat { at, to, times } => {
                let (from, to) = ordered(place(at), place(to));
                let piece = bytes[from..to.min(from + 64)].repeat(usize::from(*times));
                bytes.splice(from..from, piece);
            }
            Self::Splice { at, seed, from, to } => {
                let at = place(at);
                let other = &seeds[seed.index(seeds.len())];
                if other.is_empty() {
                    return;
                }
                let (from, to) = ordered(from.index(other.len()), to.index(other.len()));
                let piece = &other[from..to];
                let end = bytes.len().min(at + piece.len());
                bytes.splice(at..end, piece.iter().copied());
            }
            Self::End(at) => {
                let at = place(at);
                bytes.truncate(at);
            }
            Self::Insert(at, more) => {
                let at = place(at);
                bytes.splice(at..at, more.iter().copied());
            }
        }
    }
}

fn ordered(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

/// The decimal number that begins at or after a place, within a short distance.
fn digits(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let near = &bytes[at..bytes.len().min(at + 64)];
    let start = at + near.iter().position(u8::is_ascii_digit)?;
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn every_edit_fits_every_input(
            seed in vec(any::<u8>(), 0..40),
            other in vec(any::<u8>(), 0..40),
            damage in damage(),
        ) {
            let seeds = [seed.clone(), other];
            prop_assert!(damage.apply(&seeds, &seed).len() <= 6 * 64 * 20 + 1000);
        }
    }

    #[test]
    fn a_number_is_found_from_some_way_before_it() {
        assert_eq!(digits(b"{\"frac\":20}", 2), Some(8..10));
        assert_eq!(digits(b"abc", 0), None);
    }
}

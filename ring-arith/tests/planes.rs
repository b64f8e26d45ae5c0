//! Bit planes and their packing against single bits.

mod common;

use common::{engines, mix, tensor, word};
use proptest::prelude::*;
use ring_arith::wire::{Packer, Unpacker, pack_planes, packed_len, unpack_planes};
use ring_arith::{BitTensor, BufferPool, Engine, EngineTensor, Shape, Tensor};

/// Sizes around vectors, words, blocks of words and tasks.
const SIZES: [usize; 19] =
    [0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 448, 511, 512, 513, 1000, 4095, 4096, 4097, 70_001];

/// Bit `j` of element `i`.
fn bit(planes: &Tensor, j: usize, i: usize) -> u64 {
    let words = planes.shape().dims()[1];
    planes.words()[j * words + i / 64] >> (i % 64) & 1
}

#[test]
fn planes_hold_the_bits_of_the_words_at_every_size_and_place() {
    for engine in engines() {
        for n in SIZES {
            let x = tensor(&[n]);
            for (low, width) in [(0, 64), (0, 1), (63, 1), (5, 43), (20, 44), (8, 16), (1, 63)] {
                let planes = engine.to_planes(&x, low, width).unwrap();
                assert_eq!(planes.shape().dims(), [width as usize, n.div_ceil(64)]);
                let lanes = n.next_multiple_of(64);
                // A prime step visits every lane residue without taking minutes at large sizes.
                for i in (0..lanes).step_by(if n > 5000 { 37 } else { 1 }) {
                    let word = x.words().get(i).copied().unwrap_or(0);
                    for j in 0..width {
                        assert_eq!(bit(&planes, j as usize, i), word >> (low + j) & 1);
                    }
                }
                let mask = u64::MAX >> (64 - width) << low;
                let back = engine.from_planes(&planes, low, x.shape()).unwrap();
                assert!(back.words().iter().zip(x.words()).all(|(b, w)| *b == w & mask));
            }
        }
    }
}

#[test]
fn unused_lanes_do_not_reach_the_words() {
    for engine in engines() {
        let ones = Tensor::full(Shape::new([3, 2]).unwrap(), u64::MAX);
        let shape = Shape::new([5, 13]).unwrap();
        let words = engine.from_planes(&ones, 4, &shape).unwrap();
        assert_eq!(words.words(), [0b111_0000; 65]);
    }
}

#[test]
fn places_outside_the_word_are_refused() {
    let engine = &engines()[0];
    let x = tensor(&[70]);
    for (low, width) in [(0, 0), (0, 65), (64, 1), (40, 25), (u32::MAX, 2)] {
        assert!(engine.to_planes(&x, low, width).is_err(), "{low} {width}");
    }
    let planes = tensor(&[3, 2]);
    let shape = |n: usize| Shape::new([n]).unwrap();
    assert!(engine.from_planes(&planes, 62, &shape(70)).is_err());
    assert!(engine.from_planes(&planes, 0, &shape(129)).is_err());
    assert!(engine.from_planes(&planes, 0, &shape(64)).is_err());
    assert!(engine.from_planes(&x, 0, &shape(70)).is_err());
    assert!(BitTensor::new(shape(70), planes.clone()).is_ok());
    assert!(BitTensor::new(shape(64), planes).is_err());
}

proptest! {
    #[test]
    fn words_survive_planes(
        words in prop::collection::vec(word(), 0..300), low in 0u32..64, width in 1u32..65,
    ) {
        let width = width.min(64 - low);
        let x = Tensor::vector(words.clone());
        for engine in engines() {
            let planes = engine.to_planes(&x, low, width).unwrap();
            let back = engine.from_planes(&planes, low, x.shape()).unwrap();
            for (b, w) in back.words().iter().zip(&words) {
                prop_assert_eq!(*b, w >> low << (64 - width) >> (64 - width) << low);
            }
        }
    }

    #[test]
    fn packed_planes_are_as_short_as_can_be_and_come_back(n in 0usize..300, width in 1usize..9) {
        let pool = BufferPool::default();
        let planes = Tensor::from_fn(
            Shape::new([width, n.div_ceil(64)]).unwrap(), |i| mix(i as u64),
        );
        let bytes = pack_planes(&planes, n, &pool).unwrap();
        prop_assert_eq!(bytes.len(), (n * width).div_ceil(8));
        prop_assert_eq!(bytes.len(), packed_len(n, width));
        for (i, j) in (0..n).flat_map(|i| (0..width).map(move |j| (i, j))) {
            let at = j * n + i;
            prop_assert_eq!(u64::from(bytes[at / 8]) >> (at % 8) & 1, bit(&planes, j, i));
        }
        let back = unpack_planes(&bytes, width, n, &pool).unwrap();
        prop_assert_eq!(back.shape(), planes.shape());
        for (i, j) in (0..n.next_multiple_of(64)).flat_map(|i| (0..width).map(move |j| (i, j))) {
            let expected = if i < n { bit(&planes, j, i) } else { 0 };
            prop_assert_eq!(bit(&back, j, i), expected);
        }
        if !n.is_multiple_of(64) {
            prop_assert!(unpack_planes(&bytes, width, n + 64, &pool).is_err());
        }
    }

    #[test]
    fn parts_of_a_message_come_back_in_order(
        parts in prop::collection::vec((0usize..200, 1usize..5, any::<bool>()), 0..6),
    ) {
        let pool = BufferPool::default();
        let bits: usize = parts.iter().map(|&(n, w, words)| if words { n * 64 } else { n * w }).sum();
        let make = |(k, &(n, w, _)): (usize, &(usize, usize, bool))| {
            Tensor::from_fn(Shape::new([w, n.div_ceil(64)]).unwrap(), |i| mix((i + 1000 * k) as u64))
        };
        let tensors: Vec<_> = parts.iter().enumerate().map(make).collect();
        let mut packer = Packer::new(bits.div_ceil(8), &pool);
        for (tensor, &(n, _, words)) in tensors.iter().zip(&parts) {
            if words {
                packer.words(&vec![n as u64; n]).unwrap();
            } else {
                packer.planes(tensor, n).unwrap();
            }
        }
        let bytes = packer.finish();
        prop_assert_eq!(bytes.len(), bits.div_ceil(8));
        let mut unpacker = Unpacker::new(bytes);
        for (tensor, &(n, w, words)) in tensors.iter().zip(&parts) {
            if words {
                let got = unpacker.words(&Shape::new([n]).unwrap(), &pool).unwrap();
                prop_assert_eq!(got.words(), vec![n as u64; n]);
            } else {
                let got = unpacker.planes(w, n, &pool).unwrap();
                for (i, j) in (0..n).flat_map(|i| (0..w).map(move |j| (i, j))) {
                    prop_assert_eq!(bit(&got, j, i), bit(tensor, j, i));
                }
            }
        }
        unpacker.finish().unwrap();
    }
}

#[test]
fn messages_that_are_too_short_or_too_long_are_refused() {
    let pool = BufferPool::default();
    let planes = tensor(&[3, 1]);
    assert!(Packer::new(8, &pool).planes(&planes, 30).is_err());
    assert!(Packer::new(80, &pool).planes(&planes, 65).is_err());
    assert!(Packer::new(8, &pool).words(&[1, 2]).is_err());
    let bytes = pack_planes(&planes, 5, &pool).unwrap();
    assert_eq!(bytes.len(), 2);
    let mut unpacker = Unpacker::new(bytes.clone());
    assert!(unpacker.planes(3, 6, &pool).is_err());
    assert!(unpacker.words(&Shape::default(), &pool).is_err());
    unpacker.planes(1, 5, &pool).unwrap();
    assert!(unpacker.finish().is_err());
    let mut stray = bytes.to_vec();
    stray[1] |= 0x80;
    let mut unpacker = Unpacker::new(stray.into());
    unpacker.planes(3, 5, &pool).unwrap();
    assert!(unpacker.finish().is_err(), "a set bit past the last field is noticed");
}

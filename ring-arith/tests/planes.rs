//! Bit planes against single bits.

use crate::common::{engines, tensor, word};
use proptest::prelude::*;
use ring_arith::{BitTensor, Engine, EngineTensor, Shape, Tensor};

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
}

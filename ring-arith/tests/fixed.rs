//! Fixed point against exact arithmetic on integers.

use proptest::prelude::*;
use ring_arith::{Error, FixedPoint, FracBits};

fn code(bits: u32) -> FixedPoint {
    FixedPoint(FracBits::new(bits).unwrap())
}

#[test]
fn fraction_bits_are_1_to_40() {
    assert!(FracBits::new(0).is_err());
    assert!(FracBits::new(41).is_err());
    for bits in 1..=40 {
        assert_eq!(FracBits::new(bits).unwrap().bits(), bits);
    }
    assert_eq!(FracBits::DEFAULT.bits(), 20);
}

#[test]
fn halves_go_to_the_even_neighbour() {
    for bits in 1..=40 {
        let unit = (-f64::from(bits)).exp2();
        let values = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5].map(|x| x * unit);
        let words = code(bits).encode(&values).unwrap();
        assert_eq!(words, [0, 2, 2, 0, -2, -2].map(|x: i64| x as u64));
    }
}

#[test]
fn numbers_of_any_size_are_rounded_as_the_standard_library_rounds_them() {
    let unit = 0.5f64;
    // Where halves and quarters end, and beyond.
    for power in 48..=60 {
        let end = (1u64 << power) as f64;
        for step in -8..=8 {
            for value in [end + f64::from(step) * 0.25, -end + f64::from(step) * 0.25] {
                let word = code(1).encode(&[value * unit]).unwrap()[0] as i64;
                assert_eq!(word, value.round_ties_even() as i64, "{value}");
            }
        }
    }
}

#[test]
fn nan_infinities_and_values_out_of_range_are_named() {
    for bits in 1..=40 {
        let limit = f64::from(62 - bits).exp2();
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, limit, -limit, f64::MAX] {
            match code(bits).encode(&[1.0, -1.0, bad, bad]).unwrap_err() {
                Error::OutOfRange { index, value, low, high, frac_bits } => {
                    assert_eq!(index, 2);
                    assert!(value == bad || value.is_nan() && bad.is_nan());
                    assert_eq!((low, high, frac_bits), (-limit, limit, bits));
                }
                other => panic!("{other}"),
            }
        }
        let text = code(bits).encode_f32(&[f32::NAN]).unwrap_err().to_string();
        assert!(text.contains("element 0") && text.contains(&limit.to_string()), "{text}");
        assert!(code(bits).encode_f32(&[f32::INFINITY]).is_err());
    }
}

#[test]
fn the_largest_numbers_below_the_limit_are_encoded_exactly() {
    for bits in 1..=40 {
        let limit = f64::from(62 - bits).exp2();
        let largest = limit.next_down();
        let words = code(bits).encode(&[largest, -largest]).unwrap();
        // 53 bits below 2^62.
        assert_eq!(words, [(1 << 62) - (1 << 9), (-(1i64 << 62) + (1 << 9)) as u64]);
        assert_eq!(code(bits).decode(&words), [largest, -largest]);
    }
}

#[test]
fn tiny_numbers_and_zeros_become_zero() {
    let tiny = [0.0, -0.0, f64::MIN_POSITIVE, -f64::MIN_POSITIVE, 5e-324];
    assert_eq!(code(40).encode(&tiny).unwrap(), [0; 5]);
    assert_eq!(code(40).encode_f32(&[f32::MIN_POSITIVE, -1e-45]).unwrap(), [0; 2]);
}

#[test]
fn single_precision_is_rounded_once() {
    // 2^53 + 2^29 + 1 lies just above the middle of two floats: by way of f64 the 1 is lost, and
    // the tie goes down to the even one.
    let word = (1 << 53) + (1 << 29) + 1;
    let direct = code(1).decode_f32(&[word])[0];
    assert_eq!(direct, ((1u64 << 53) + (1 << 30)) as f32 / 2.0);
    assert_ne!(direct, code(1).decode(&[word])[0] as f32);
}

proptest! {
    #[test]
    fn the_round_trip_is_off_by_half_a_unit_at_most(
        bits in 1u32..=40, mantissa in -1.0f64..1.0, exponent in -60i32..62,
    ) {
        let value = mantissa * f64::from(exponent - bits as i32).exp2();
        let words = code(bits).encode(&[value]).unwrap();
        let back = code(bits).decode(&words)[0];
        prop_assert!((back - value).abs() <= 0.5 * (-f64::from(bits)).exp2());
        prop_assert_eq!(code(bits).encode(&[back]).unwrap(), words);
    }

    #[test]
    fn single_precision_agrees_with_double(bits in 1u32..=40, value in -1e6f32..1e6) {
        let words = code(bits).encode_f32(&[value]).unwrap();
        prop_assert_eq!(&words, &code(bits).encode(&[f64::from(value)]).unwrap());
        let unit = (-f64::from(bits)).exp2();
        let back = code(bits).decode_f32(&words)[0];
        // Half a unit of the code, and half of one of the float.
        let slack = 0.5 * unit + f64::from(value.abs()) * f64::from(f32::EPSILON);
        prop_assert!((f64::from(back) - f64::from(value)).abs() <= slack);
    }

    #[test]
    fn words_decode_to_their_signed_value(word in any::<u64>(), bits in 1u32..=40) {
        let value = code(bits).decode(&[word])[0] * f64::from(bits).exp2();
        prop_assert_eq!(value, word as i64 as f64);
    }
}

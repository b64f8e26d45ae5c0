//! Tests of the bounds, from both sides, and of products from words to words.

use proptest::prelude::*;
use ring_arith::{Shape, Tensor};

use crate::{Accumulator, Digits, Error, LimbPlan, Merge, SumPlanes, Unit};

/// Both ways of merging every named plan, and a few other widths.
fn plans() -> Vec<LimbPlan> {
    let more = [
        LimbPlan::new(Unit::Bf16, 8, Digits::Unsigned, Merge::Pairs),
        LimbPlan::new(Unit::F16, 11, Digits::Unsigned, Merge::Pairs),
        LimbPlan::new(Unit::Bf16, 9, Digits::Balanced, Merge::Diagonals),
        LimbPlan::new(Unit::F64, 13, Digits::Unsigned, Merge::Diagonals),
        LimbPlan::new(Unit::Int8, 7, Digits::Unsigned, Merge::Diagonals),
    ];
    let named = LimbPlan::NAMED.into_iter();
    let pairs = named.clone().map(|plan| plan.with_merge(Merge::Pairs));
    named.map(Ok).chain(pairs).chain(more).collect::<Result<_, _>>().unwrap()
}

/// The word whose limbs all have the largest magnitude.
fn extreme_word(plan: LimbPlan) -> u64 {
    let word = word_of(plan, &extreme_limbs(plan));
    assert!(plan.limbs_of(word).eq(extreme_limbs(plan)));
    word
}

fn extreme_limbs(plan: LimbPlan) -> Vec<i64> {
    let largest = (0..plan.limbs()).map(|i| plan.largest_limb(i) as i64);
    match plan.digits() {
        Digits::Unsigned => largest.collect(),
        Digits::Balanced => largest.map(|limb| -limb).collect(),
    }
}

fn word_of(plan: LimbPlan, limbs: &[i64]) -> u64 {
    let terms = limbs.iter().enumerate();
    terms.fold(0, |word, (i, &limb)| {
        word.wrapping_add((limb as u64) << (i as u32 * plan.limb_bits()))
    })
}

/// The sum of one step in an accumulator, as an integer.
fn step(accumulator: &Accumulator, x: &[i64], y: &[i64]) -> i128 {
    accumulator.pairs.iter().map(|&(i, j)| i128::from(x[i]) * i128::from(y[j])).sum()
}

/// An accumulator's value after multiplying the row `x` with the column `y`.
fn accumulated(plan: LimbPlan, index: usize, x: &[u64], y: &[u64]) -> i128 {
    let x = plan.split(x, 1, x.len()).unwrap();
    let y = plan.split(y, y.len(), 1).unwrap();
    match x.multiply_at_any_depth(&y).planes() {
        SumPlanes::F64(sums) => sums[index][0] as i128,
        SumPlanes::F32(sums) => sums[index][0] as i128,
        SumPlanes::U32(sums) => sums[index][0].into(),
        SumPlanes::I32(sums) => sums[index][0].into(),
    }
}

/// Limbs for the step past the bound. They are extreme, except that at most one limb of each
/// operand is nearer to zero by one, so that a sum in floating point is odd.
fn last_steps(plan: LimbPlan) -> impl Iterator<Item = (Vec<i64>, Vec<i64>)> {
    let n = plan.limbs();
    let nearer = move |at: usize| {
        let mut limbs = extreme_limbs(plan);
        if let Some(limb) = limbs.get_mut(at) {
            *limb -= limb.signum();
        }
        limbs
    };
    (0..=n).flat_map(move |i| (0..=n).map(move |j| (nearer(i), nearer(j))))
}

fn largest_exact(plan: LimbPlan) -> i128 {
    match (plan.unit(), plan.digits()) {
        (Unit::F64, _) => 1 << 53,
        (Unit::F16 | Unit::Bf16, _) => 1 << 24,
        (Unit::Int8, Digits::Unsigned) => u32::MAX.into(),
        (Unit::Int8, Digits::Balanced) => i32::MAX.into(),
    }
}

#[test]
fn the_number_of_products_that_matter_is_10_6_36_and_21() {
    let count = |plan: LimbPlan| plan.pairs().len();
    assert_eq!(count(LimbPlan::F64_4X16), 10);
    assert_eq!(count(LimbPlan::F64_3X22_BALANCED), 6);
    assert_eq!(count(LimbPlan::U8_8X8), 36);
    assert_eq!(count(LimbPlan::BF16_8X8), 36);
    assert_eq!(count(LimbPlan::F16_6X11), 21);
}

#[test]
fn every_pair_that_matters_is_in_one_accumulator_of_its_weight() {
    for plan in plans() {
        let mut seen = Vec::new();
        for accumulator in plan.accumulators() {
            for (i, j) in accumulator.pairs {
                assert_eq!((i + j) as u32 * plan.limb_bits(), accumulator.shift, "{plan}");
                seen.push((i, j));
            }
        }
        let n = plan.limbs();
        let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let expected: Vec<_> =
            all.filter(|&(i, j)| (i + j) as u32 * plan.limb_bits() < 64).collect();
        seen.sort_unstable();
        assert_eq!(seen, expected, "{plan}");
    }
}

#[test]
fn the_bounds_of_the_named_plans_are_those_of_the_table() {
    let bounds = LimbPlan::NAMED
        .map(|plan| (plan.largest_k(), plan.with_merge(Merge::Pairs).unwrap().largest_k()));
    let expected = [
        (524_304, 2_097_216),
        (1 << 21, 1 << 23),
        (256, 512),
        (1024, 2048),
        (16_512, 66_051),
        (32_767, 131_071),
        (128, 1024),
        (3, 16),
        (128, 1024),
    ];
    assert_eq!(bounds, expected);
}

#[test]
fn merged_8_bit_sums_of_weight_two_to_the_32_and_more_have_no_bound() {
    for plan in [LimbPlan::U8_8X8, LimbPlan::I8_8X8] {
        let bounded =
            plan.accumulators().iter().map(|sum| sum.largest_k.is_some()).collect::<Vec<_>>();
        assert_eq!(bounded, [true, true, true, true, false, false, false, false]);
    }
}

/// The heart of the crate: at the bound the extreme sum is exact, and one step past it some sum
/// is not, in the tightest accumulator.
#[test]
fn the_tightest_accumulator_is_exact_at_its_bound_and_not_one_step_past_it() {
    // The balanced 4x16 plan pair by pair is left to the next test: it needs 2^23 words.
    for plan in plans().into_iter().filter(|plan| plan.largest_k() <= 1 << 21) {
        let k = plan.largest_k();
        let accumulators = plan.accumulators();
        let index = accumulators.iter().position(|sum| sum.largest_k == Some(k)).unwrap();
        check_bound(plan, index, &accumulators[index], k);
    }
}

#[test]
fn every_accumulator_with_a_small_bound_is_exact_there_and_not_past_it() {
    for plan in plans() {
        for (index, accumulator) in plan.accumulators().iter().enumerate() {
            if let Some(k) = accumulator.largest_k.filter(|&k| k <= 20_000) {
                check_bound(plan, index, accumulator, k);
            }
        }
    }
}

#[test]
fn the_largest_bound_of_all_holds_for_a_single_pair_of_balanced_limbs() {
    let plan = LimbPlan::new(Unit::F64, 16, Digits::Balanced, Merge::Pairs).unwrap();
    assert_eq!(plan.largest_k(), 1 << 23);
    // A sum of that depth is 2^53; the plan's own arithmetic on one limb, without the others.
    let (low, high) = (-32_768.0f64, 32_767.0f64);
    let mut sum = 0.0f64;
    for _ in 0..plan.largest_k() {
        sum = low.mul_add(low, sum);
    }
    assert_eq!(sum as i128, 1 << 53);
    assert_ne!(high.mul_add(high, sum) as i128, (1 << 53) + 32_767 * 32_767);
}

fn check_bound(plan: LimbPlan, index: usize, accumulator: &Accumulator, k: usize) {
    let (word, limbs) = (extreme_word(plan), extreme_limbs(plan));
    let mut x = vec![word; k];
    let at_bound = step(accumulator, &limbs, &limbs) * k as i128;
    assert_eq!(accumulated(plan, index, &x, &x), at_bound, "{plan} at K = {k}");

    let past = |(a, b): &(Vec<i64>, Vec<i64>)| at_bound + step(accumulator, a, b);
    let is_integer = plan.unit() == Unit::Int8;
    let (a, b) = last_steps(plan)
        .find(|pair| past(pair) > largest_exact(plan) && (is_integer || past(pair) % 2 == 1))
        .unwrap_or_else(|| panic!("{plan}: no operands break accumulator {index} at K = {k} + 1"));
    let mut y = x.clone();
    x.push(word_of(plan, &a));
    y.push(word_of(plan, &b));
    let sum = accumulated(plan, index, &x, &y);
    assert_ne!(sum, past(&(a, b)), "{plan}: one step past K = {k} should not be exact");
}

#[test]
fn an_unchecked_product_past_the_bound_gives_a_wrong_word_and_chunks_give_the_right_one() {
    for plan in [LimbPlan::U8_8X8, LimbPlan::I8_8X8] {
        let k = plan.largest_k() + 1;
        let words = vec![extreme_word(plan); k];
        let expected = extreme_word(plan).wrapping_mul(extreme_word(plan)).wrapping_mul(k as u64);
        let (x, y) = (plan.split(&words, 1, k).unwrap(), plan.split(&words, k, 1).unwrap());
        assert_ne!(x.multiply_at_any_depth(&y).recombine(), [expected], "{plan}");
        let largest = plan.largest_k();
        assert_eq!(x.multiply(&y).unwrap_err(), Error::TooDeep { plan, k, largest });
        let row = Tensor::new(Shape::new([1, k]).unwrap(), words.clone()).unwrap();
        let column = Tensor::new(Shape::new([k, 1]).unwrap(), words).unwrap();
        assert_eq!(plan.matmul(&row, &column).unwrap().words(), [expected], "{plan}");
    }
}

#[test]
fn plans_that_no_unit_can_carry_out_are_refused() {
    let new = |unit, bits, digits| LimbPlan::new(unit, bits, digits, Merge::Diagonals);
    assert!(matches!(new(Unit::Int8, 9, Digits::Unsigned), Err(Error::TooWide { .. })));
    assert!(matches!(new(Unit::Int8, 9, Digits::Balanced), Err(Error::TooWide { .. })));
    assert!(matches!(new(Unit::Bf16, 9, Digits::Unsigned), Err(Error::TooWide { .. })));
    assert!(matches!(new(Unit::F16, 13, Digits::Balanced), Err(Error::TooWide { .. })));
    assert!(matches!(new(Unit::F64, 0, Digits::Unsigned), Err(Error::TooWide { .. })));
    // Five products of two 11-bit limbs are more than 24 bits.
    assert!(matches!(new(Unit::F16, 11, Digits::Unsigned), Err(Error::NeverExact { .. })));
    assert!(matches!(new(Unit::F64, 32, Digits::Unsigned), Err(Error::NeverExact { .. })));
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let plan = LimbPlan::F64_4X16;
    let tensor = |dims: &[usize]| {
        let shape = Shape::new(dims).unwrap();
        let words = vec![1; shape.len()];
        Tensor::new(shape, words).unwrap()
    };
    assert!(matches!(plan.split(&[1, 2, 3], 2, 2), Err(Error::Length { words: 3, .. })));
    for (x, y) in [(tensor(&[2, 3]), tensor(&[2, 3])), (tensor(&[6]), tensor(&[6, 1]))] {
        assert!(matches!(plan.matmul(&x, &y), Err(Error::Shapes { .. })));
    }
    let x = plan.split(&[1], 1, 1).unwrap();
    let y = LimbPlan::U8_8X8.split(&[1], 1, 1).unwrap();
    assert!(matches!(x.multiply(&y), Err(Error::Plans { .. })));
}

#[test]
fn empty_products_are_zero() {
    let empty = |dims: [usize; 2]| Tensor::new(Shape::new(dims).unwrap(), vec![]).unwrap();
    for plan in plans() {
        let product = plan.matmul(&empty([2, 0]), &empty([0, 3])).unwrap();
        assert_eq!(product.words(), [0; 6], "{plan}");
        assert!(plan.matmul(&empty([0, 0]), &empty([0, 3])).unwrap().words().is_empty());
    }
}

/// Words at the edges of limbs, and any others.
fn word() -> impl Strategy<Value = u64> {
    let edges = vec![0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x8000_8000_8000_8000, 1 << 32];
    prop_oneof![3 => any::<u64>(), 1 => proptest::sample::select(edges)]
}

/// Two matrices that have a product, with their sizes.
fn operands() -> impl Strategy<Value = (usize, usize, usize, Vec<u64>, Vec<u64>)> {
    (1usize..6, 0usize..40, 1usize..6).prop_flat_map(|(m, k, n)| {
        let words = |count| proptest::collection::vec(word(), count);
        (Just(m), Just(k), Just(n), words(m * k), words(k * n))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn limbs_are_in_range_and_add_up_to_the_word(word in word()) {
        for plan in plans() {
            let limbs: Vec<i64> = plan.limbs_of(word).collect();
            prop_assert_eq!(word_of(plan, &limbs), word);
            for (i, &limb) in limbs.iter().enumerate() {
                let largest = plan.largest_limb(i) as i64;
                let range = match plan.digits() {
                    Digits::Unsigned => 0..=largest,
                    Digits::Balanced => -largest..=largest - 1,
                };
                prop_assert!(range.contains(&limb), "{}: limb {} is {}", plan, i, limb);
            }
        }
    }

    #[test]
    fn products_equal_three_loops_of_wrapping_arithmetic((m, k, n, x, y) in operands()) {
        let mut expected = vec![0u64; m * n];
        for (i, j, l) in (0..m).flat_map(|i| (0..n).flat_map(move |j| (0..k).map(move |l| (i, j, l)))) {
            let product = x[i * k + l].wrapping_mul(y[l * n + j]);
            expected[i * n + j] = expected[i * n + j].wrapping_add(product);
        }
        let x = Tensor::new(Shape::new([m, k]).unwrap(), x).unwrap();
        let y = Tensor::new(Shape::new([k, n]).unwrap(), y).unwrap();
        for plan in plans() {
            let product = plan.matmul(&x, &y).unwrap();
            prop_assert_eq!(product.words(), &expected[..], "{}", plan);
        }
    }
}

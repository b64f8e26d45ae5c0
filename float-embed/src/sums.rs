//! Products of limbs, summed in accumulators, and their recombination to words.

use half::{bf16, f16};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};

use crate::{Accumulator, Error, LimbPlan, Limbs, Planes, Result};

/// The accumulators of a matrix product.
#[derive(Clone, PartialEq)]
pub struct Sums {
    plan: LimbPlan,
    rows: usize,
    columns: usize,
    planes: SumPlanes,
}

/// The accumulators' values, row-major, one plane for each of [`LimbPlan::accumulators`].
#[derive(Clone, PartialEq)]
pub enum SumPlanes {
    /// Of `f64` limbs.
    F64(Vec<Vec<f64>>),
    /// Of `f16` and `bf16` limbs.
    F32(Vec<Vec<f32>>),
    /// Of `u8` limbs, wrapping.
    U32(Vec<Vec<u32>>),
    /// Of `i8` limbs, wrapping.
    I32(Vec<Vec<i32>>),
}

impl Limbs {
    /// The sums of the products of limbs that matter, for the matrix product `self * rhs`.
    ///
    /// # Errors
    /// [`Error::Shapes`] if the columns of `self` are not the rows of `rhs`; [`Error::Plans`] if
    /// two plans split them; [`Error::TooDeep`] past [`LimbPlan::largest_k`], where the sums
    /// would not be exact.
    pub fn multiply(&self, rhs: &Limbs) -> Result<Sums> {
        if self.columns != rhs.rows {
            let dims = |limbs: &Limbs| vec![limbs.rows, limbs.columns];
            return Err(Error::Shapes { lhs: dims(self), rhs: dims(rhs) });
        }
        if self.plan != rhs.plan {
            return Err(Error::Plans { expected: self.plan, found: rhs.plan });
        }
        let (plan, largest) = (self.plan, self.plan.largest_k());
        if self.columns > largest {
            return Err(Error::TooDeep { plan, k: self.columns, largest });
        }
        Ok(self.multiply_at_any_depth(rhs))
    }

    /// As [`Limbs::multiply`] without its checks: not exact past the bound.
    pub(crate) fn multiply_at_any_depth(&self, rhs: &Limbs) -> Sums {
        let size = Size { rows: self.rows, inner: self.columns, columns: rhs.columns };
        let sums = self.plan.accumulators();
        let planes = match (&self.planes, &rhs.planes) {
            (Planes::F64(x), Planes::F64(y)) => SumPlanes::F64(float_sums(&sums, x, y, size)),
            (Planes::F16(x), Planes::F16(y)) => {
                let (x, y) = (widen(x, f16::to_f32), widen(y, f16::to_f32));
                SumPlanes::F32(float_sums(&sums, &x, &y, size))
            }
            (Planes::Bf16(x), Planes::Bf16(y)) => {
                let (x, y) = (widen(x, bf16::to_f32), widen(y, bf16::to_f32));
                SumPlanes::F32(float_sums(&sums, &x, &y, size))
            }
            (Planes::U8(x), Planes::U8(y)) => {
                let add = |sum: &mut u32, x: u8, y: u8| {
                    *sum = sum.wrapping_add(u32::from(x) * u32::from(y));
                };
                SumPlanes::U32(integer_sums(&sums, x, y, size, add))
            }
            (Planes::I8(x), Planes::I8(y)) => {
                let add = |sum: &mut i32, x: i8, y: i8| {
                    *sum = sum.wrapping_add(i32::from(x) * i32::from(y));
                };
                SumPlanes::I32(integer_sums(&sums, x, y, size, add))
            }
            _ => unreachable!("one plan splits into one type of plane"),
        };
        Sums { plan: self.plan, rows: self.rows, columns: rhs.columns, planes }
    }
}

impl Sums {
    /// The accumulators' values.
    pub fn planes(&self) -> &SumPlanes {
        &self.planes
    }

    /// The words of the product, row-major.
    pub fn recombine(&self) -> Vec<u64> {
        let mut words = vec![0; self.rows * self.columns];
        self.add_to(&mut words);
        words
    }

    /// Adds the words of the product to `words`, modulo 2^64: the sum over chunks of the inner
    /// dimension.
    ///
    /// # Panics
    /// If `words` has another length than the product.
    pub fn add_to(&self, words: &mut [u64]) {
        assert_eq!(words.len(), self.rows * self.columns, "words of the product");
        match &self.planes {
            // Sums are integers of magnitude up to 2^53, for which the casts are exact.
            SumPlanes::F64(planes) => add_planes(self.plan, planes, words, |sum| sum as i64 as u64),
            SumPlanes::F32(planes) => add_planes(self.plan, planes, words, |sum| sum as i64 as u64),
            SumPlanes::U32(planes) => add_planes(self.plan, planes, words, u64::from),
            SumPlanes::I32(planes) => {
                add_planes(self.plan, planes, words, |sum| i64::from(sum) as u64);
            }
        }
    }
}

/// Shows the plan and the size alone: sums may be those of shares.
impl std::fmt::Debug for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sums({} x {}, {})", self.rows, self.columns, self.plan)
    }
}

#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    inner: usize,
    columns: usize,
}

fn add_planes<T: Copy>(
    plan: LimbPlan,
    planes: &[Vec<T>],
    words: &mut [u64],
    to_word: impl Fn(T) -> u64,
) {
    for (accumulator, plane) in plan.accumulators().iter().zip(planes) {
        for (word, &sum) in words.iter_mut().zip(plane) {
            *word = word.wrapping_add(to_word(sum) << accumulator.shift);
        }
    }
}

fn widen<T: Copy>(planes: &[Vec<T>], to_f32: impl Fn(T) -> f32) -> Vec<Vec<f32>> {
    planes.iter().map(|plane| plane.iter().map(|&limb| to_f32(limb)).collect()).collect()
}

/// Floating-point sums through a packed, register-blocked GEMM.
fn float_sums<T: LinalgScalar>(
    accumulators: &[Accumulator],
    x: &[Vec<T>],
    y: &[Vec<T>],
    size: Size,
) -> Vec<Vec<T>> {
    let fits = "a plane has the size of its matrix";
    let sum_of = |accumulator: &Accumulator| {
        let mut sum = vec![T::zero(); size.rows * size.columns];
        for &(i, j) in &accumulator.pairs {
            let x = ArrayView2::from_shape((size.rows, size.inner), &x[i]).expect(fits);
            let y = ArrayView2::from_shape((size.inner, size.columns), &y[j]).expect(fits);
            let shape = (size.rows, size.columns);
            let mut sum = ArrayViewMut2::from_shape(shape, &mut sum).expect(fits);
            general_mat_mul(T::one(), &x, &y, T::one(), &mut sum);
        }
        sum
    };
    accumulators.iter().map(sum_of).collect()
}

/// Integer sums by three loops, the innermost along a row so that it vectorises.
fn integer_sums<T: Copy, S: Copy + Default>(
    accumulators: &[Accumulator],
    x: &[Vec<T>],
    y: &[Vec<T>],
    size: Size,
    add: impl Fn(&mut S, T, T),
) -> Vec<Vec<S>> {
    let sum_of = |accumulator: &Accumulator| {
        let mut sum = vec![S::default(); size.rows * size.columns];
        for &(i, j) in &accumulator.pairs {
            for row in 0..size.rows {
                let out = &mut sum[row * size.columns..][..size.columns];
                for k in 0..size.inner {
                    let left = x[i][row * size.inner + k];
                    let right = &y[j][k * size.columns..][..size.columns];
                    out.iter_mut().zip(right).for_each(|(sum, &right)| add(sum, left, right));
                }
            }
        }
        sum
    };
    accumulators.iter().map(sum_of).collect()
}

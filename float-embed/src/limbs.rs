//! Matrices split into limbs.

use half::{bf16, f16};

use crate::{Digits, Error, LimbPlan, Result, Unit};

/// A matrix of words as one matrix per limb, lowest limb first.
#[derive(Clone, PartialEq)]
pub struct Limbs {
    pub(crate) plan: LimbPlan,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) planes: Planes,
}

/// The limbs' values, row-major, in the type the plan's unit multiplies.
#[derive(Clone, PartialEq)]
pub enum Planes {
    /// For [`Unit::F64`].
    F64(Vec<Vec<f64>>),
    /// For [`Unit::F16`].
    F16(Vec<Vec<f16>>),
    /// For [`Unit::Bf16`].
    Bf16(Vec<Vec<bf16>>),
    /// For [`Unit::Int8`] and unsigned digits.
    U8(Vec<Vec<u8>>),
    /// For [`Unit::Int8`] and balanced digits.
    I8(Vec<Vec<i8>>),
}

impl LimbPlan {
    /// Splits a row-major matrix of words.
    ///
    /// # Errors
    /// [`Error::Length`] if the number of words is not `rows * columns`.
    pub fn split(&self, words: &[u64], rows: usize, columns: usize) -> Result<Limbs> {
        if rows.checked_mul(columns) != Some(words.len()) {
            return Err(Error::Length { words: words.len(), rows, columns });
        }
        // Every cast below is exact: the plan admits no limb its unit cannot hold.
        let planes = match (self.unit(), self.digits()) {
            (Unit::F64, _) => Planes::F64(self.planes(words, |digit| digit as f64)),
            (Unit::F16, _) => Planes::F16(self.planes(words, |digit| f16::from_f32(digit as f32))),
            (Unit::Bf16, _) => {
                Planes::Bf16(self.planes(words, |digit| bf16::from_f32(digit as f32)))
            }
            (Unit::Int8, Digits::Unsigned) => Planes::U8(self.planes(words, |digit| digit as u8)),
            (Unit::Int8, Digits::Balanced) => Planes::I8(self.planes(words, |digit| digit as i8)),
        };
        Ok(Limbs { plan: *self, rows, columns, planes })
    }

    /// The limbs of one word, lowest first: `sum_i limb_i 2^(i limb_bits)` is the word modulo 2^64.
    pub fn limbs_of(&self, word: u64) -> impl Iterator<Item = i64> + use<> {
        let plan = *self;
        let mut rest = word;
        (0..plan.limbs()).map(move |i| {
            let width = plan.width(i);
            let unused = u64::BITS - width;
            let digit = match plan.digits() {
                Digits::Unsigned => ((rest << unused) >> unused) as i64,
                Digits::Balanced => ((rest << unused) as i64) >> unused,
            };
            // A negative digit borrows from the limbs above; a borrow beyond 2^64 is dropped.
            rest = rest.wrapping_sub(digit as u64).checked_shr(width).unwrap_or(0);
            digit
        })
    }

    fn planes<T: Clone>(&self, words: &[u64], convert: impl Fn(i64) -> T) -> Vec<Vec<T>> {
        let mut planes = vec![Vec::with_capacity(words.len()); self.limbs()];
        for &word in words {
            for (plane, digit) in planes.iter_mut().zip(self.limbs_of(word)) {
                plane.push(convert(digit));
            }
        }
        planes
    }
}

impl Limbs {
    /// The plan that split them.
    pub fn plan(&self) -> LimbPlan {
        self.plan
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the matrix.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The values, one plane per limb.
    pub fn planes(&self) -> &Planes {
        &self.planes
    }
}

/// Shows the plan and the size alone: limbs may be those of shares.
impl std::fmt::Debug for Limbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Limbs({} x {}, {})", self.rows, self.columns, self.plan)
    }
}

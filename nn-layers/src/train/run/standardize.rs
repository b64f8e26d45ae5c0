//! Before the first step: the means and deviations of all rows, for the layer that standardises the inputs.

use mpc_core::functions::{self, Logic};
use mpc_core::{Format, Protocol, PublicTensor, SecretTensor, ShareTensor};
use ring_arith::{FracBits, Shape};

use crate::train::plan::{Standardized, TrainPlan};
use crate::train::state::{State, StateSpec};
use crate::{Error, Result};

/// The deviation from which on a column counts as large.
const LARGE: f64 = 8.0;

/// The deviation below which a column counts as constant.
const LEAST: f64 = 1.0 / 1024.0;

/// The factors of distances before they are squared: of those of large columns, and of the others.
const COARSE: f64 = 1.0 / 256.0;
const FINE: f64 = 64.0;

/// Fraction bits of the inverse roots.
const ROOT: u32 = 34;

impl TrainPlan {
    /// Makes the tensors by which the network standardises its inputs, on shares: the mean of each column, and the inverse
    /// of its deviation (that of all rows, with `n` for `n - 1`). A column is a place within a row. `rows` are the shares of
    /// all rows of each of a batch's tensors. `kept` has an entry for each input: true for each column that stays as it is,
    /// such as those of categories, or nothing if there is none. Nothing is opened. Does nothing unless
    /// [`crate::train::TrainOptions::standardize`] is set.
    ///
    /// # Domain and error
    /// With 20 fraction bits and `n` rows: distances from the mean below `2^21`, and deviations below `2^29 / sqrt(n)`. The
    /// factor's relative error is below 1/500, and half of its last place more: 6 % at a deviation of 100,000. It changes the
    /// layer alone, in the same way for the training and for later inputs. Columns of deviations below 1/1024 are shifted by
    /// their mean and not scaled.
    ///
    /// # Cost
    /// A truncation, two products and a [`functions::sum_squares`] of each number; 3 comparisons and an inverse root of each
    /// column. About 90 rounds.
    ///
    /// # Errors
    /// [`Error::Plan`] if rows or `kept` are not of the plan's shapes; [`Error::Mpc`] if a peer failed.
    pub fn standardize<P: Protocol>(
        &self,
        mpc: &mut P,
        state: &mut State<P>,
        rows: &[P::Share],
        kept: &[Vec<bool>],
    ) -> Result<()> {
        let specs = self.state();
        for Standardized { input, mean, factor } in self.standardized()? {
            let spec = &specs[mean];
            let columns = spec.shape.len();
            let kept = kept.get(input).map_or(&[][..], Vec::as_slice);
            let numbers: Vec<_> =
                (0..columns).filter(|&at| !kept.get(at).is_some_and(|kept| *kept)).collect();
            let rows = rows.get(input).filter(|rows| {
                rows.shape().dims().get(1..) == Some(spec.shape.dims())
                    && rows.shape().dims()[0] > 0
                    && (kept.is_empty() || kept.len() == columns)
            });
            let rows = rows.ok_or_else(|| Error::plan("rows are not of the plan's shapes"))?;
            mpc.step("standardisation");
            let rows = SecretTensor::<P>::new(
                rows.clone(),
                Format { frac: self.full.plan.input_frac(input), width: 63 },
            );
            let count = rows.shape().dims()[0];
            let flat = functions::reshape(mpc, &rows, &Shape::new([count, columns])?)?;
            let turned = functions::permute(mpc, &flat, &[1, 0])?;
            let turned = functions::gather(mpc, &turned, 0, &numbers)?;
            let made = match numbers.is_empty() {
                true => None,
                false => Some(statistics(mpc, &turned, [spec.frac, specs[factor].frac])?),
            };
            let (means, factors) = made.unzip();
            let means = whole(mpc, spec, means, &numbers, 0.0)?;
            let factors = whole(mpc, &specs[factor], factors, &numbers, 1.0)?;
            state.replace(mean, means);
            state.replace(factor, factors);
        }
        Ok(())
    }
}

/// Mean and inverse deviation of each column of `[columns, rows]`, as `[columns, 1]` with these fraction bits.
fn statistics<P: Protocol>(
    mpc: &mut P,
    rows: &SecretTensor<P>,
    fracs: [u32; 2],
) -> Result<(SecretTensor<P>, SecretTensor<P>)> {
    let [mean_frac, factor_frac] = fracs;
    let count = rows.shape().dims()[1] as f64;
    let middle = functions::mean(mpc, rows, &[1])?;
    let distance = functions::sub(mpc, rows, &middle)?;
    let coarse = functions::mul_scalar(mpc, &distance, COARSE)?;
    let fine = functions::mul_scalar(mpc, &distance, FINE)?;
    let squares = functions::sum_squares(mpc, &coarse, &[1])?;
    let limit = number(mpc, count * (LARGE * COARSE).powi(2), rows.frac())?;
    let large = functions::ge(mpc, &squares, &limit)?;
    let wide = functions::broadcast(mpc, &large, rows.shape())?;
    let chosen = functions::select(mpc, &wide, &coarse, &fine)?;
    let squares = functions::sum_squares(mpc, &chosen, &[1])?;
    let limit = number(mpc, count * (LEAST * FINE).powi(2), rows.frac())?;
    let small = functions::lt(mpc, &squares, &limit)?;
    let not_large = functions::not(mpc, &large)?;
    let constant = functions::logical(mpc, Logic::And, &small, &not_large)?;
    let root = functions::inv_sqrt_to(mpc, &squares, ROOT)?;
    let scaled =
        |mpc: &mut P, by: f64| functions::mul_scalar_to(mpc, &root, by * count.sqrt(), factor_frac);
    let (coarse, fine) = (scaled(mpc, COARSE)?, scaled(mpc, FINE)?);
    let factor = functions::select(mpc, &large, &coarse, &fine)?;
    let one = number(mpc, 1.0, factor_frac)?;
    let factor = functions::select(mpc, &constant, &one, &factor)?;
    Ok((functions::rescale(mpc, &middle, mean_frac)?, factor))
}

/// The tensor of all columns, some of which were made; the others have this value.
fn whole<P: Protocol>(
    mpc: &P,
    spec: &StateSpec,
    made: Option<SecretTensor<P>>,
    numbers: &[usize],
    value: f64,
) -> Result<SecretTensor<P>> {
    let rest = functions::constant(mpc, &number(mpc, value, spec.frac)?)?;
    let all = match &made {
        Some(made) => functions::concat(mpc, &[made, &rest], 0)?,
        None => rest,
    };
    let places = (0..spec.shape.len()).map(|column| {
        // The value of columns that stay as they are stands last.
        numbers.binary_search(&column).unwrap_or(numbers.len())
    });
    let all = functions::gather(mpc, &all, 0, &places.collect::<Vec<_>>())?;
    Ok(functions::reshape(mpc, &all, &spec.shape)?)
}

/// A public number, as `[1, 1]`.
fn number<P: Protocol>(mpc: &P, value: f64, frac: u32) -> Result<PublicTensor<P>> {
    Ok(functions::encode(mpc, &Shape::new([1, 1])?, &[value], FracBits::new(frac)?)?)
}

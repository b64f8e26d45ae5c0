//! Rows at secret places: taken, and added up.

use ring_arith::{Bilinear, Shape};

use crate::functions::{bilinear, one_hot, permute, reshape};
use crate::tensor::same_frac;
use crate::{Error, Protocol, Result, SecretTensor};

/// The numbers of an axis at secret places, as `numpy.take`: the axis gives way to those of `places`, which are integers.
///
/// # Domain and error
/// Exact, for places from 0 to the axis's length less 1.
///
/// # Cost
/// That of [`one_hot`] for each place, with as many classes as the axis is long, and one matrix product. Where many places of a
/// long axis are taken, a join by key costs less. With replicated sharing and an axis of 16: 6 rounds and 3696 bits for each place in all.
///
/// # Errors
/// [`Error::Invalid`] if the axis does not exist or has no number, [`Error::FracBits`] if places are no integers.
pub fn gather_at<P: Protocol>(
    mpc: &mut P,
    x: &SecretTensor<P>,
    places: &SecretTensor<P>,
    axis: usize,
) -> Result<SecretTensor<P>> {
    let dims = x.shape().dims().to_vec();
    let length = check("gather at secret places", &dims, axis, places)?;
    let chosen = chosen(mpc, places, length)?;
    // The axis first, and the others as one.
    let order: Vec<usize> =
        std::iter::once(axis).chain((0..dims.len()).filter(|&other| other != axis)).collect();
    let rest: Vec<usize> = order[1..].iter().map(|&other| dims[other]).collect();
    let wide = rest.iter().product();
    let rows = permute(mpc, x, &order)?;
    let rows = reshape(mpc, &rows, &Shape::new([length, wide])?)?;
    let taken = bilinear(mpc, Bilinear::MATMUL, &chosen, &rows)?;
    let of_places = places.shape().dims();
    let taken = reshape(mpc, &taken, &Shape::new([of_places, &rest].concat())?)?;
    // The axes of places go where the axis was.
    let (count, before) = (of_places.len(), axis);
    let order: Vec<usize> =
        (count..count + before).chain(0..count).chain(count + before..count + rest.len()).collect();
    permute(mpc, &taken, &order)
}

/// Adds rows up by secret places, as `numpy.bincount` with weights: row `i` of the result is the sum of the rows of `values`
/// whose place is `i`. `places` are integers, one for each row.
///
/// # Domain and error
/// Exact, for places from 0 to `count` less 1.
///
/// # Cost
/// As [`gather_at`] of an axis of `count` numbers, but for the result's words. With replicated sharing and 16 of them: 6 rounds
/// and 3504 bits for each place in all.
///
/// # Errors
/// [`Error::Invalid`] if there are not as many places as rows, or `count` is 0; [`Error::FracBits`] if places are no integers.
pub fn scatter_add<P: Protocol>(
    mpc: &mut P,
    values: &SecretTensor<P>,
    places: &SecretTensor<P>,
    count: usize,
) -> Result<SecretTensor<P>> {
    let dims = values.shape().dims().to_vec();
    if dims.first().map(std::slice::from_ref) != Some(places.shape().dims()) {
        let (values, places) = (values.shape(), places.shape());
        let reason = format!("{places:?} places for rows of {values:?}");
        return Err(Error::Invalid { op: "scatter to secret places", reason });
    }
    check("scatter to secret places", &[count], 0, places)?;
    let chosen = chosen(mpc, places, count)?;
    let rows = Shape::new([dims[0], dims[1..].iter().product()])?;
    let rows = reshape(mpc, values, &rows)?;
    let added = Bilinear::MatMul { transpose_lhs: true, transpose_rhs: false };
    let sums = bilinear(mpc, added, &chosen, &rows)?;
    reshape(mpc, &sums, &Shape::new([&[count], &dims[1..]].concat())?)
}

/// `[places, length]`: 1 at each place.
fn chosen<P: Protocol>(
    mpc: &mut P,
    places: &SecretTensor<P>,
    length: usize,
) -> Result<SecretTensor<P>> {
    let flat = reshape(mpc, places, &Shape::new([places.shape().len()])?)?;
    // Places are below the length, so their tests need no more bits than it.
    let bits = (length as u64).ilog2() + 2;
    let width = flat.width().min(bits.max(2));
    one_hot(mpc, &flat.with_width(width), length)
}

/// The length of the axis.
fn check<P: Protocol>(
    op: &'static str,
    dims: &[usize],
    axis: usize,
    places: &SecretTensor<P>,
) -> Result<usize> {
    same_frac(op, places.frac(), 0)?;
    match dims.get(axis) {
        Some(&length) if length > 0 && places.shape().len() > 0 => Ok(length),
        _ => {
            let reason = format!("axis {axis} of {dims:?} at {} places", places.shape().len());
            Err(Error::Invalid { op, reason })
        }
    }
}

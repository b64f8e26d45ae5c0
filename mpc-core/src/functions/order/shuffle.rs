//! Rows in a secret order.

use crate::{Error, Protocol, Result, SecretTensor};

/// The rows of tensors, along their first axis, in one secret order: uniformly random, and known to no party. All
/// tensors have as many rows, and their rows stay together.
///
/// # Cost
/// With replicated sharing two rounds and 256 bits for each element. Other protocols sort the rows by random numbers
/// ([`Protocol::shuffle`]).
///
/// # Errors
/// [`Error::Invalid`] if a tensor has no axis, [`Error::Shapes`] if two have not as many rows.
pub fn shuffle<P: Protocol>(
    mpc: &mut P,
    tensors: &[&SecretTensor<P>],
) -> Result<Vec<SecretTensor<P>>> {
    let shares: Vec<_> = tensors.iter().map(|x| x.share()).collect();
    let (moved, _) = mpc.shuffle(&shares, &[])?;
    if moved.len() != tensors.len() {
        return Err(Error::unanswered("shuffle"));
    }
    let moved = moved.into_iter().zip(tensors);
    Ok(moved.map(|(share, x)| SecretTensor::new(share, x.format())).collect())
}

#[cfg(test)]
mod tests {
    use ring_arith::{CpuEngine, FracBits, Shape};

    use super::*;
    use crate::{Plaintext, functions as f};

    #[test]
    fn tensors_keep_their_formats() -> Result<()> {
        let mut mpc = Plaintext::new(CpuEngine::new(1));
        let numbers = f::encode_integers(&mpc, &Shape::new([4])?, &[0, 1, 2, 3])?;
        let numbers = f::constant(&mpc, &numbers)?;
        let halves: Vec<_> = (0..8).map(|i| f64::from(i / 2) / 2.0).collect();
        let halves = f::encode(&mpc, &Shape::new([4, 2])?, &halves, FracBits::new(10)?)?;
        let halves = f::constant(&mpc, &halves)?;
        let moved = shuffle(&mut mpc, &[&numbers, &halves])?;
        assert_eq!((moved[0].frac(), moved[0].width()), (0, numbers.width()));
        assert_eq!((moved[1].frac(), moved[1].width()), (10, halves.width()));
        let opened = f::reveal_all(&mut mpc, &moved.iter().collect::<Vec<_>>())?;
        let pairs = opened[0].iter().flat_map(|number| [number / 2.0; 2]);
        assert!(pairs.eq(opened[1].iter().copied()), "{opened:?}");
        Ok(())
    }
}

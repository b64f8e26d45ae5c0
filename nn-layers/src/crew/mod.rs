//! Machines of one party that work on one job, and what they say to each other.

mod in_process;
#[cfg(test)]
pub(crate) mod tests;

use ring_arith::{Engine, EngineTensor};

pub use in_process::InProcessCrew;

use crate::{Error, Result};

/// One machine's handle of the machines of its party that work on the same job.
///
/// Every machine makes the same calls in the same order, with tensors of the same shapes. Sums are modulo 2^64, so their
/// order makes no difference. The words stay inside the party, which holds all of them anyway. An implementation is MPI, NCCL
/// or the like, on links that only the party's machines reach.
///
/// # Errors
/// Every method returns [`Error::Crew`] with the number of the machine that is missing, or that made another call or
/// brought another shape. The crew is of no use after that.
pub trait Crew<E: Engine> {
    /// The number of this machine, from 0.
    fn rank(&self) -> usize;

    /// The number of machines.
    fn size(&self) -> usize;

    /// Sums words of all machines; each gets all of them. Each sends `2 (size - 1) / size` of the words.
    fn sum(&mut self, engine: &E, words: &E::Tensor) -> Result<E::Tensor>;

    /// Sums words `[size * n]` of all machines; each gets the `n` of its own stretch. Each sends `(size - 1) / size` of the
    /// words.
    fn sum_scattered(&mut self, engine: &E, words: &E::Tensor) -> Result<E::Tensor>;

    /// The stretches `[n]` of all machines at each of them, in the order of their numbers: `[size * n]`. Each sends
    /// `n (size - 1)` words.
    fn gather(&mut self, engine: &E, words: &E::Tensor) -> Result<E::Tensor>;

    /// The words of one machine, at all of them. The others bring words of the same shape, which do not count.
    fn broadcast(&mut self, engine: &E, from: usize, words: &E::Tensor) -> Result<E::Tensor>;
}

/// The crew of a party with one machine. It says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl<E: Engine> Crew<E> for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn sum(&mut self, _: &E, words: &E::Tensor) -> Result<E::Tensor> {
        Ok(words.clone())
    }

    fn sum_scattered(&mut self, _: &E, words: &E::Tensor) -> Result<E::Tensor> {
        Ok(words.clone())
    }

    fn gather(&mut self, _: &E, words: &E::Tensor) -> Result<E::Tensor> {
        Ok(words.clone())
    }

    fn broadcast(&mut self, _: &E, from: usize, words: &E::Tensor) -> Result<E::Tensor> {
        check_rank(from, 1)?;
        Ok(words.clone())
    }
}

/// Refuses the number of a machine that a crew lacks.
fn check_rank(rank: usize, size: usize) -> Result<()> {
    if rank < size {
        return Ok(());
    }
    Err(Error::Crew { rank, reason: format!("does not exist: the crew has {size} machines") })
}

/// Refuses words that are not a stretch of one length for each machine.
fn stretch_of<T: EngineTensor>(words: &T, size: usize) -> Result<usize> {
    match words.shape().dims() {
        &[len] if len.is_multiple_of(size) => Ok(len / size),
        _ => {
            let reason =
                format!("{:?} is not a stretch for each of {size} machines", words.shape());
            Err(Error::invalid("sum_scattered", reason))
        }
    }
}

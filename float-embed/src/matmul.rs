//! Products from words to words: split, multiply, recombine, chunk by chunk.

use ring_arith::{EngineTensor, Shape, Tensor};

use crate::{Error, LimbPlan, Result};

impl LimbPlan {
    /// The matrix product modulo 2^64 of tensors of shapes `[m, k]` and `[k, n]`. An inner
    /// dimension past [`LimbPlan::largest_k`] is cut into chunks, whose products are added as
    /// words.
    ///
    /// # Errors
    /// [`Error::Shapes`] if the shapes cannot be multiplied.
    pub fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<Tensor> {
        let (&[m, k], &[k_too, n]) = (lhs.shape().dims(), rhs.shape().dims()) else {
            return Err(shapes(lhs, rhs));
        };
        if k != k_too {
            return Err(shapes(lhs, rhs));
        }
        let mut words = vec![0; m * n];
        let chunk = self.largest_k();
        for start in (0..k).step_by(chunk) {
            let depth = chunk.min(k - start);
            let x = self.split(&columns(lhs.words(), k, start, depth), m, depth)?;
            let y = self.split(&rhs.words()[start * n..][..depth * n], depth, n)?;
            x.multiply(&y)?.add_to(&mut words);
        }
        Ok(Tensor::new(Shape::new([m, n])?, words)?)
    }
}

/// Columns `start .. start + depth` of a row-major matrix with rows of `k` words.
fn columns(words: &[u64], k: usize, start: usize, depth: usize) -> Vec<u64> {
    words.chunks_exact(k).flat_map(|row| &row[start..start + depth]).copied().collect()
}

fn shapes(lhs: &Tensor, rhs: &Tensor) -> Error {
    Error::Shapes { lhs: lhs.shape().dims().to_vec(), rhs: rhs.shape().dims().to_vec() }
}

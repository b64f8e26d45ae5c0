//! A caller's examples in a batch.

use mpc_core::{Protocol, SecretTensor, functions as f};
use ring_arith::Shape;

use crate::Result;
use crate::graph::LinearMap;

/// Consecutive examples of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub start: usize,
    pub end: usize,
    /// The number of all examples.
    pub of: usize,
}

impl Part {
    /// Its share of axis 0.
    pub fn slice<P: Protocol>(&self, mpc: &P, x: &SecretTensor<P>) -> Result<SecretTensor<P>> {
        let each = x.shape().dims()[0] / self.of;
        let (start, end) = (self.start * each, self.end * each);
        Ok(f::slice(mpc, x, 0, start, end, 1)?)
    }

    /// Its share of an operand that is broadcast to a result of this shape, unless it serves all examples.
    pub fn aligned<P: Protocol>(
        &self,
        mpc: &P,
        x: SecretTensor<P>,
        shape: &Shape,
    ) -> Result<SecretTensor<P>> {
        let own =
            x.shape().rank() == shape.rank() && x.shape().dims().first() == shape.dims().first();
        if self.of > 1 && own { self.slice(mpc, &x) } else { Ok(x) }
    }

    /// Its share of a map's operands, of each that does not serve all examples.
    pub fn operands<P: Protocol>(
        &self,
        mpc: &P,
        map: &LinearMap,
        [x, weight]: [SecretTensor<P>; 2],
        shape: &Shape,
    ) -> Result<[SecretTensor<P>; 2]> {
        let x = self.aligned(mpc, x, shape)?;
        let weight = match map {
            LinearMap::Mul => self.aligned(mpc, weight, shape)?,
            LinearMap::MatMul { .. } if weight.shape().rank() > 2 => {
                self.aligned(mpc, weight, shape)?
            }
            _ => weight,
        };
        Ok([x, weight])
    }
}

//! Words and bits that no party knows.
//!
//! Each component comes from the streams of the two parties that hold it, so that each party lacks one. Nothing is sent.

use mpc_core::{Result, provided::check_random_bits};
use ring_arith::{BitTensor, Engine, Shape, View};

use crate::{
    BitShare, Rss, Share,
    runtime::{prss::Key, roles::Pair},
};

impl<E: Engine> Rss<E> {
    pub(crate) fn random_share(&mut self, shape: &Shape) -> Result<Share<E::Tensor>> {
        let [mine, next] = self.random_components(shape)?;
        Ok(Share::new(mine, next)?)
    }

    pub(crate) fn random_bit_share(
        &mut self,
        shape: &Shape,
        width: usize,
    ) -> Result<BitShare<E::Tensor>> {
        check_random_bits(width)?;
        let planes = Shape::new([width, shape.len().div_ceil(64)])?;
        let [mine, next] = self.random_components(&planes)?;
        let mine = BitTensor::new(shape.clone(), mine)?;
        Ok(BitShare::new(mine, BitTensor::new(shape.clone(), next)?)?)
    }

    /// A party's own component of random words, and the next.
    fn random_components(&mut self, shape: &Shape) -> Result<[E::Tensor; 2]> {
        let words = shape.len();
        let chunk = self.whole(words, words);
        let mut p = self.port(&chunk);
        let dealt = p.sample_both(words);
        let joint = p.sample(Key::Peers, words);
        let pair = if p.deals() {
            let [one, zero] = dealt;
            Pair(p.tensor_of(zero)?, p.tensor_of(one)?)
        } else {
            p.pair(p.tensor_of(p.own(dealt))?, p.tensor_of(joint)?)
        };
        let [mine, next] = p.roles.mine_and_next(pair);
        let shaped = View::Reshape(shape.clone());
        Ok([self.engine.view(&mine, &shaped)?, self.engine.view(&next, &shaped)?])
    }
}

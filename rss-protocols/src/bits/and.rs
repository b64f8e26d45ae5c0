//! Conjunctions of shared bits.
//!
//! `z = x & y` with `x = x0 ^ x1 ^ x2`: party `i` computes `z_i = x_i y_i ^ x_i y_j ^ x_j y_i`, `j = i + 1`, and masks
//! it for its receiver. See Araki et al., CCS 2016, here as a protocol of a dealer and two evaluators.
//!
//! | round | dealer | left | right |
//! |---|---|---|---|
//! | 1 | `z_0 ^ w_left ^ w_right ^ y0` to left | `z_1 ^ w_left` to right | `z_2 ^ w_right` to left |
//!
//! Cost: 3 bits, 1 round. Security: semi-honest; the dealer receives nothing.

use mpc_core::{Result, ShareBits, ShareTensor};
use ring_arith::{BitTensor, Engine, EngineTensor, Shape};

use crate::{
    BitShare, Rss,
    kernels::{AndAddend, Xor},
    proofs::{Bits, Transcript},
    runtime::{
        launch::{flat, whole},
        prss::{Key, Sample},
        roles::{Pair, Role},
        rounds::{Port, Rounds},
    },
    share::output::Slot,
};

/// The two operands of a conjunction.
type Operands<'a, T> = (&'a BitShare<T>, &'a BitShare<T>);

impl<E: Engine> Rss<E> {
    pub(crate) fn conjunctions(
        &mut self,
        jobs: &[Operands<'_, E::Tensor>],
    ) -> Result<Vec<BitShare<E::Tensor>>> {
        let mut rounds = Rounds::new();
        let mut outputs = Vec::with_capacity(jobs.len());
        for (x, y) in jobs {
            // Thirds of the words of all planes.
            let planes = Shape::new([x.width(), x.mine().words()])?;
            let output = self.outputs(self.chunks(planes.len()), planes, 1);
            let x_words = self.flat_planes(x)?;
            let y_words = self.flat_planes(y)?;
            for chunk in &output.chunks {
                let x = self.chunk_of(&x_words, chunk)?;
                let y = self.chunk_of(&y_words, chunk)?;
                let p = self.port(chunk);
                rounds.add(p.role(), and(p, x, y, output.slot(chunk)));
            }
            outputs.push((output, x.shape()));
        }
        let mut made = rounds.run(&self.links)?.into_iter();
        let mut results = Vec::with_capacity(jobs.len());
        for (output, shape) in outputs {
            let made = made.by_ref().take(output.chunks.len()).map(|pair| vec![pair]);
            for [mine, next] in output.components(&self.engine, made)? {
                let mine = BitTensor::new(shape.clone(), mine)?;
                results.push(BitShare::new(mine, BitTensor::new(shape.clone(), next)?)?);
            }
        }
        Ok(results)
    }

    /// The planes of a share's own component and of the next, each as one axis.
    fn flat_planes(&self, x: &BitShare<E::Tensor>) -> Result<[E::Tensor; 2]> {
        let engine = &self.engine;
        Ok([flat(engine, x.mine().planes())?, flat(engine, x.next().planes())?])
    }
}

/// `x & y`, word by word.
async fn and<E: Engine>(
    mut p: Port<'_, E>,
    x: Pair<E::Tensor>,
    y: Pair<E::Tensor>,
    slot: Slot<E::Tensor>,
) -> Result<Pair<E::Tensor>> {
    let n = x.0.len();
    let masks = p.sample_both(n);
    let y0 = p.sample(Key::Right, n);
    p.owe({
        let x = x.clone();
        let y = y.clone();
        move |t| relations(t, [&x, &y], masks, y0)
    });
    let [m, w] = match p.role() {
        Role::Dealer => masks.map(|mask| p.words_of(mask)),
        _ => [p.words_of(p.own(masks)), p.zero()],
    };
    let sources = [whole(&x.0), whole(&x.1), whole(&y.0), whole(&y.1), m, w];
    let [addend] = p.words(&AndAddend, n, sources, &[])?;
    if p.deals() {
        let first = p.tensor_into(y0, slot.first())?;
        let sources = [whole(&addend), whole(&first)];
        let [second] = p.words_into(&Xor, n, sources, &[], [slot.second()])?;
        p.to_left(&second)?;
        return Ok(Pair(first, second));
    }
    p.to_peer(&addend)?;
    let dealt = p.dealt().await;
    let shared = if p.is_left() { dealt.words(n)? } else { p.tensor_into(y0, slot.second())? };
    let other = p.received().await.words(n)?;
    let sources = [whole(&addend), whole(&other)];
    let [joint] = p.words_into(&Xor, n, sources, &[], [slot.joint(p.role())])?;
    Ok(p.pair(shared, joint))
}

/// The relations that all owe for [`and`]: each its addend, masked. Two products each.
fn relations<E: Engine>(
    t: &mut Transcript<'_, E>,
    [x, y]: [&Pair<E::Tensor>; 2],
    masks: [Sample; 2],
    y0: Sample,
) -> Result<()> {
    let n = y0.len();
    let [x, y]: [[Bits; 3]; 2] = [t.components(x)?, t.components(y)?];
    let [w_left, w_right] = t.samples(masks);
    let [q_left, q_right] = t.exchanged(1, n)?;
    let shares = t.dealt_left(1, n)? + t.sample::<_>(y0);
    let sent = [shares + &w_left + &w_right, w_left + q_left, w_right + q_right];
    for (role, sent) in [Role::Dealer, Role::Left, Role::Right].into_iter().zip(sent) {
        let [i, j] = [role as usize, (role as usize + 1) % 3];
        let addend = &x[i] * &(&y[i] + &y[j]) + &x[j] * &y[i];
        t.bits(role, 1, 64 * n, &(addend + sent))?;
    }
    Ok(())
}

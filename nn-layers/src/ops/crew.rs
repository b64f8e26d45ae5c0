//! Sums and stretches of shares by the machines of a party, inside the party alone.
//!
//! Sharings add up word by word, so machines add the words that the party holds of theirs.

use mpc_core::{Format, Linear, Protocol, SecretTensor, ShareTensor, Words};
use ring_arith::{Engine, EngineTensor, Shape, View};

use crate::Result;
use crate::crew::Crew;
use crate::graph::CrewOp;

/// An exchange of a secret tensor, whose result has this shape.
///
/// # Cost
/// Nothing between the parties. Inside a party the exchange of 8 bytes for each word that it holds of an element, 16 in
/// replicated sharing.
pub(crate) fn exchange<P: Protocol>(
    mpc: &P,
    crew: &mut dyn Crew<P::Engine>,
    x: &SecretTensor<P>,
    op: &CrewOp,
    shape: &Shape,
) -> Result<SecretTensor<P>> {
    let size = crew.size();
    let share = match op {
        CrewOp::Stretch => stretch(mpc, x.share(), crew.rank(), size)?,
        CrewOp::SumScattered => sum_scattered(mpc, crew, x.share())?,
        CrewOp::Sum => each(mpc, x.share(), |words| crew.sum(mpc.engine(), words))?,
        CrewOp::First => each(mpc, x.share(), |words| crew.broadcast(mpc.engine(), 0, words))?,
        CrewOp::Gather(_) => {
            let all = each(mpc, x.share(), |words| crew.gather(mpc.engine(), words))?;
            let kept = View::Slice { axis: 0, start: 0, end: shape.len(), step: 1 };
            let kept = mpc.linear(&Linear::View(&kept), &all)?;
            mpc.linear(&Linear::View(&View::Reshape(shape.clone())), &kept)?
        }
    };
    let more = match op {
        CrewOp::SumScattered | CrewOp::Sum => usize::BITS - (size - 1).leading_zeros(),
        _ => 0,
    };
    let Format { frac, width } = x.format();
    Ok(SecretTensor::new(share, Format { frac, width: (width + more).min(64) }))
}

/// This machine's stretch of the sum of all machines' shares.
pub(crate) fn sum_scattered<P: Protocol>(
    mpc: &P,
    crew: &mut dyn Crew<P::Engine>,
    share: &P::Share,
) -> Result<P::Share> {
    each(mpc, share, |words| sum_of_words(mpc.engine(), crew, words))
}

/// This machine's stretch of the sum of all machines' words.
pub(crate) fn sum_of_words<E: Engine>(
    engine: &E,
    crew: &mut dyn Crew<E>,
    words: &E::Tensor,
) -> Result<E::Tensor> {
    let len = words.len();
    let flat = engine.view(words, &View::Reshape(Shape::new([len])?))?;
    crew.sum_scattered(engine, &engine.view(&flat, &fill(len, crew.size()))?)
}

/// A machine's stretch of a share that all machines have. Local.
fn stretch<P: Protocol>(mpc: &P, share: &P::Share, rank: usize, size: usize) -> Result<P::Share> {
    let len = share.shape().len();
    let flat = mpc.linear(&Linear::View(&View::Reshape(Shape::new([len])?)), share)?;
    let filled = mpc.linear(&Linear::View(&fill(len, size)), &flat)?;
    let each = len.div_ceil(size);
    mutant!("crew: every stretch is the first", rank = 0);
    let view = View::Slice { axis: 0, start: rank * each, end: (rank + 1) * each, step: 1 };
    Ok(mpc.linear(&Linear::View(&view), &filled)?)
}

/// Zeros behind `len` elements, so that all machines have as many.
fn fill(len: usize, size: usize) -> View {
    View::Pad { before: vec![0], after: vec![len.next_multiple_of(size) - len], value: 0 }
}

/// Does the same to each of the words that this party holds of a share.
fn each<P: Protocol>(
    mpc: &P,
    share: &P::Share,
    mut exchange: impl FnMut(&Words<P>) -> Result<Words<P>>,
) -> Result<P::Share> {
    let words = mpc.components(share)?;
    let words = words.iter().map(&mut exchange).collect::<Result<_>>()?;
    Ok(mpc.of_components(words)?)
}

//! Addends of a product in the same pass: biases and masks.

use std::borrow::Cow;

use crate::{
    Addend, AddendSource, CpuEngine, EngineTensor, Error, Result, Shape, Stream, Tensor, View,
    cpu::moves,
};

/// Words of a stream that are generated at a time.
const PIECE: usize = 256;

/// The sum of all addends of a call, computed part by part.
#[derive(Debug)]
pub(super) struct Addends<'a>(Vec<(Words<'a>, bool)>);

/// An addend's words.
#[derive(Debug)]
enum Words<'a> {
    /// Word `i` of the result meets word `i / each` of the tensor, which starts again after its last.
    Tensor { tensor: Cow<'a, Tensor>, each: usize },
    /// Word `i` of the result meets word `first + i`.
    Stream { stream: &'a Stream, first: u64 },
}

impl<'a> Addends<'a> {
    /// Checks that each addend fits the result.
    pub(super) fn new(
        engine: &CpuEngine,
        op: &'static str,
        shape: &Shape,
        addends: &'a [Addend<'a, Tensor>],
    ) -> Result<Self> {
        let words = |addend: &'a Addend<'a, Tensor>| {
            let words = match &addend.source {
                AddendSource::Tensor(tensor) => Words::of_tensor(engine, op, shape, tensor)?,
                AddendSource::Stream { stream, first } => Words::Stream { stream, first: *first },
            };
            Ok((words, addend.negate))
        };
        addends.iter().map(words).collect::<Result<_>>().map(Self)
    }

    /// True without addends.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the sum for the result's words from `first` on; 0 without addends.
    pub(super) fn write(&self, first: usize, out: &mut [u64]) {
        let Some(((start, negate), rest)) = self.0.split_first() else {
            return out.fill(0);
        };
        match start {
            Words::Stream { stream, first: base } => stream.fill(base + first as u64, out),
            Words::Tensor { .. } => start.each(first, out, |o, w| *o = w),
        }
        if *negate {
            out.iter_mut().for_each(|w| *w = w.wrapping_neg());
        }
        for (words, negate) in rest {
            if *negate {
                words.each(first, out, |o, w| *o = o.wrapping_sub(w));
            } else {
                words.each(first, out, |o, w| *o = o.wrapping_add(w));
            }
        }
    }
}

impl<'a> Words<'a> {
    fn of_tensor(
        engine: &CpuEngine,
        op: &'static str,
        shape: &Shape,
        tensor: &'a Tensor,
    ) -> Result<Self> {
        if tensor.shape().broadcast(shape, op)? != *shape {
            let (lhs, rhs) = (shape.clone(), tensor.shape().clone());
            return Err(Error::Shapes { op, lhs, rhs });
        }
        let own = tensor.shape().dims();
        let last = own.iter().rposition(|&len| len > 1).map_or(0, |last| last + 1);
        let each = shape.dims()[shape.rank() - (own.len() - last)..].iter().product();
        // Between axes that are repeated, none is: the same words in the same order, again and again.
        let first = own.iter().position(|&len| len > 1).unwrap_or(last);
        let plain = own[first..last] == shape.dims()[shape.rank() - own.len()..][first..last];
        let tensor = match plain {
            true => Cow::Borrowed(tensor),
            false => Cow::Owned(moves::view(engine, tensor, &View::Broadcast(shape.clone()))?),
        };
        Ok(Self::Tensor { tensor, each: if plain { each } else { 1 } })
    }

    /// Calls `put` with the result's words from `first` on, and the addends' words for them.
    fn each(&self, first: usize, mut out: &mut [u64], put: impl Fn(&mut u64, u64)) {
        let zip = |out: &mut [u64], words: &[u64]| {
            out.iter_mut().zip(words).for_each(|(o, w)| put(o, *w));
        };
        match self {
            Self::Tensor { tensor, each } => {
                let (words, mut at) = (tensor.words(), first);
                while !out.is_empty() {
                    let (index, left) = (at / each % words.len(), each - at % each);
                    let left = if *each == 1 { words.len() - index } else { left };
                    let (part, rest) = out.split_at_mut(left.min(out.len()));
                    match each {
                        1 => zip(part, &words[index..]),
                        _ => part.iter_mut().for_each(|o| put(o, words[index])),
                    }
                    (at, out) = (at + part.len(), rest);
                }
            }
            Self::Stream { stream, first: base } => {
                let mut words = [0; PIECE];
                let mut position = base + first as u64;
                for out in out.chunks_mut(PIECE) {
                    let words = &mut words[..out.len()];
                    stream.fill(position, words);
                    zip(out, words);
                    position += out.len() as u64;
                }
            }
        }
    }
}

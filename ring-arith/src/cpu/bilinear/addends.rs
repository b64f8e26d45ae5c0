//! What is added to a product in the same pass: biases and masks.

use crate::{Addend, AddendSource, EngineTensor, Error, Result, Shape, Tensor};

/// Words of a stream that are generated at a time.
const PIECE: usize = 256;

/// The sum of all addends of a call, computed part by part.
#[derive(Debug)]
pub(super) struct Addends<'a>(&'a [Addend<'a, Tensor>]);

impl<'a> Addends<'a> {
    /// Checks that each addend fits the result.
    pub(super) fn new(
        op: &'static str,
        shape: &Shape,
        addends: &'a [Addend<'a, Tensor>],
    ) -> Result<Self> {
        for addend in addends {
            if let AddendSource::Tensor(tensor) = &addend.source
                && tensor.len() != shape.len()
            {
                let (lhs, rhs) = (shape.clone(), tensor.shape().clone());
                return Err(Error::Shapes { op, lhs, rhs });
            }
        }
        Ok(Self(addends))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the sum for the result's words from `first` on; 0 without addends.
    pub(super) fn write(&self, first: usize, out: &mut [u64]) {
        let Some((start, rest)) = self.0.split_first() else {
            return out.fill(0);
        };
        match &start.source {
            AddendSource::Tensor(tensor) => {
                out.copy_from_slice(&tensor.words()[first..first + out.len()]);
            }
            AddendSource::Stream { stream, first: base } => {
                stream.fill(base + first as u64, out);
            }
        }
        if start.negate {
            out.iter_mut().for_each(|w| *w = w.wrapping_neg());
        }
        rest.iter().for_each(|addend| add(addend, first, out));
    }
}

fn add(addend: &Addend<'_, Tensor>, first: usize, out: &mut [u64]) {
    match &addend.source {
        AddendSource::Tensor(tensor) => {
            add_words(out, &tensor.words()[first..first + out.len()], addend.negate);
        }
        AddendSource::Stream { stream, first: base } => {
            let mut words = [0; PIECE];
            let mut position = base + first as u64;
            for out in out.chunks_mut(PIECE) {
                let words = &mut words[..out.len()];
                stream.fill(position, words);
                add_words(out, words, addend.negate);
                position += out.len() as u64;
            }
        }
    }
}

fn add_words(out: &mut [u64], words: &[u64], negate: bool) {
    if negate {
        out.iter_mut().zip(words).for_each(|(o, w)| *o = o.wrapping_sub(*w));
    } else {
        out.iter_mut().zip(words).for_each(|(o, w)| *o = o.wrapping_add(*w));
    }
}

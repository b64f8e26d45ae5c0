//! Lists all samples of a party's streams, and changes words of them for all parties alike.

use std::{
    any::Any,
    ops::Range,
    sync::{Arc, Mutex},
};

use ring_arith::{Stream, Tensor};

use super::samples::{self, Change};
use crate::runtime::prss::{Key, Sample};

/// Operation, key and first word of a sample.
pub(crate) type Place = (u64, Key, u64);

/// Bits of words of a sample that are flipped.
#[derive(Debug, Clone)]
pub(crate) struct Flip {
    pub place: Place,
    pub words: Range<usize>,
    pub bits: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Probe {
    nonce: u64,
    /// Samples that may be masks, and how many words they have.
    pub seen: Arc<Mutex<Vec<(Place, usize)>>>,
    pub flips: Arc<Vec<Flip>>,
    /// Those of this operation.
    samples: Vec<Sample>,
    changed: Vec<((Key, u64), Tensor)>,
}

impl Probe {
    pub fn at(&self, nonce: u64) -> Self {
        Self { nonce, ..self.clone() }
    }

    /// A sample is taken: it is listed, flipped and mutated.
    pub fn note(&mut self, sample: Sample, streams: &[Option<Stream>; 4]) {
        let place = (self.nonce, sample.key, sample.first);
        if sample.words > 0 {
            self.seen.lock().unwrap().push((place, sample.len()));
        }
        self.note_seeds(sample, streams);
    }

    /// Seeds of keys are taken. They are not listed: a key tells of its seeds, so that they mask nothing.
    pub fn note_seeds(&mut self, sample: Sample, streams: &[Option<Stream>; 4]) {
        if sample.words == 0 {
            return;
        }
        let place = (self.nonce, sample.key, sample.first);
        self.samples.push(sample);
        let flips = self.flips.clone();
        let flips: Vec<_> = flips.iter().filter(|flip| flip.place == place).collect();
        if !flips.is_empty() {
            self.change(sample, streams, |mut words| {
                for flip in flips {
                    words[flip.words.clone()].iter_mut().for_each(|word| *word ^= flip.bits);
                }
                words
            });
        }
        // After the flips: those of words that a mutant does not use must change nothing.
        let number = self.of(sample.key).count() - 1;
        if let Some(change) = samples::change(self.nonce, sample.key, number) {
            self.mutate(sample, change, streams);
        }
    }

    /// The samples of a key so far.
    fn of(&self, key: Key) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.key == key)
    }

    fn mutate(&mut self, sample: Sample, change: Change, streams: &[Option<Stream>; 4]) {
        match change {
            Change::Blank => self.change(sample, streams, |words| vec![0; words.len()]),
            Change::Like(key, number) => {
                let other = *self.of(key).nth(number).expect("the other sample was taken before");
                let Some(words) = self.words(other, streams) else { return };
                self.change(sample, streams, |old| {
                    words.into_iter().cycle().take(old.len()).collect()
                });
            }
            Change::Words(from) => {
                self.change(sample, streams, |old| (0..old.len()).map(|i| old[from(i)]).collect())
            }
        }
    }

    /// The words of a sample, where this party can expand it.
    fn words(&self, sample: Sample, streams: &[Option<Stream>; 4]) -> Option<Vec<u64>> {
        if let Some(tensor) = self.changed::<Tensor>(sample) {
            return Some(tensor.words().to_vec());
        }
        let mut words = vec![0; sample.len()];
        streams[sample.key as usize].as_ref()?.fill(sample.first, &mut words);
        Some(words)
    }

    fn change(
        &mut self,
        sample: Sample,
        streams: &[Option<Stream>; 4],
        make: impl FnOnce(Vec<u64>) -> Vec<u64>,
    ) {
        let Some(words) = self.words(sample, streams) else { return };
        let place = (sample.key, sample.first);
        self.changed.retain(|(other, _)| *other != place);
        self.changed.push((place, Tensor::vector(make(words))));
    }

    /// The words of a sample, if they were changed.
    pub fn changed<T: 'static>(&self, sample: Sample) -> Option<&T> {
        let place = (sample.key, sample.first);
        let (_, tensor) = self.changed.iter().find(|(other, _)| *other == place)?;
        let tensor: &dyn Any = tensor;
        Some(tensor.downcast_ref().expect("samples are changed on the CPU alone"))
    }
}

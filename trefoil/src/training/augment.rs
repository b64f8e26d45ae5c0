//! Pictures that are changed a little each time that a step takes them, by public coins.

use std::sync::Arc;

use mpc_core::{Linear, Protocol, ShareTensor, SplitMix64};
use nn_layers::HostTensor;
use ring_arith::{Shape, View};
use serde::{Deserialize, Serialize};

use crate::base::{Error, Result};

/// Sets the coins of a step apart from those of dropouts, whose places stay below it.
const PLACE: u64 = 1 << 63;

/// The random changes of a batch's pictures. The places from which their pixels come are public, so that they cost no
/// messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// True if left and right of every other picture, on average, are exchanged.
    pub flip: bool,
    /// The largest number of pixels by which a picture is moved, upwards or downwards, and to the left or right. This
    /// is a crop of the picture with a border of `crop` zeros.
    pub crop: usize,
}

impl Augment {
    /// True if pictures stay as they are.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that all of a batch's tensors but the labels, which are last, are pictures that can be moved so far.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the shape of a row that is not such a picture.
    pub(super) fn check(&self, batch: &[Shape]) -> Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let bad = |reason: String| Err(Error::refused("augmentation", reason));
        let Some((labels, inputs)) = batch.split_last() else { return Ok(()) };
        for shape in inputs {
            let row = &shape.dims()[1..];
            let &[_, height, width] = row else {
                return bad(format!(
                    "a row of the data is {row:?}, not a picture [C, H, W]; leave `flip` and `crop` out"
                ));
            };
            if self.crop >= height.min(width) {
                return bad(format!(
                    "a crop by up to {} pixels leaves nothing of a picture {row:?}; use a smaller one",
                    self.crop
                ));
            }
        }
        if labels.rank() > 3 {
            let row = &labels.dims()[1..];
            return bad(format!(
                "labels {row:?} are pictures, which would not move along; leave `flip` and `crop` out"
            ));
        }
        Ok(())
    }

    /// The place that each element of a batch `[N, C, H, W]` is taken from in a step; the place behind the last one
    /// holds 0.
    fn places(&self, batch: &Shape, seed: u64, step: u32) -> Option<Vec<usize>> {
        let &[rows, channels, height, width] = batch.dims() else { return None };
        let place = PLACE | u64::from(step);
        // Seeds that are near each other give streams that are not.
        let mut coins = SplitMix64::new(seed ^ SplitMix64::new(place).next_u64());
        let nothing = batch.len();
        let mut places = Vec::with_capacity(nothing);
        for row in 0..rows {
            let flipped = self.flip && coins.next_u64() >> 63 == 1;
            let mut moved = || (coins.next_u64() % (2 * self.crop as u64 + 1)) as usize;
            let [down, right] = [moved(), moved()];
            for plane in row * channels..(row + 1) * channels {
                for y in 0..height {
                    for x in 0..width {
                        let x = if flipped { width - 1 - x } else { x };
                        let [from_y, from_x] =
                            [(y + down).checked_sub(self.crop), (x + right).checked_sub(self.crop)];
                        places.push(match (from_y, from_x) {
                            (Some(y), Some(x)) if y < height && x < width => {
                                (plane * height + y) * width + x
                            }
                            _ => nothing,
                        });
                    }
                }
            }
        }
        Some(places)
    }

    /// The rows of a step on shares, all but the labels changed. Local.
    ///
    /// # Errors
    /// [`Error::Mpc`] if memory is short.
    pub(super) fn apply<P: Protocol>(
        &self,
        mpc: &P,
        batch: &mut [P::Share],
        seed: u64,
        step: u32,
    ) -> Result<()> {
        for share in self.inputs(batch) {
            let shape = share.shape().clone();
            let Some(places) = self.places(&shape, seed, step) else { continue };
            let flat = View::Reshape(Shape::new([shape.len()])?);
            let with_zero = View::Pad { before: vec![0], after: vec![1], value: 0 };
            let taken = View::Gather { axis: 0, indices: Arc::from(places) };
            for view in [flat, with_zero, taken, View::Reshape(shape)] {
                *share = mpc.linear(&Linear::View(&view), share)?;
            }
        }
        Ok(())
    }

    /// [`Augment::apply`] to numbers.
    ///
    /// # Errors
    /// [`Error::Nn`] if the pictures lack a shape, which does not happen.
    pub(super) fn apply_in_the_clear(
        &self,
        batch: &mut [HostTensor],
        seed: u64,
        step: u32,
    ) -> Result<()> {
        for x in self.inputs(batch) {
            let Some(places) = self.places(x.shape(), seed, step) else { continue };
            let taken = if let Ok(ints) = x.as_ints() {
                let of = |&place: &usize| ints.get(place).copied().unwrap_or(0);
                HostTensor::integers(x.dims(), places.iter().map(of).collect())?
            } else {
                let floats = x.floats();
                let of = |&place: &usize| floats.get(place).copied().unwrap_or(0.0);
                HostTensor::new(x.dims(), places.iter().map(of).collect())?
            };
            *x = taken;
        }
        Ok(())
    }

    /// The changes to a batch.
    fn inputs<'a, T>(&self, batch: &'a mut [T]) -> &'a mut [T] {
        match batch.split_last_mut() {
            Some((_, inputs)) if !self.is_none() => inputs,
            _ => &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn pictures_are_mirrored_and_moved_whole_as_the_seed_and_the_step_say() {
        let [height, width] = [5, 4];
        let images = shape(&[64, 2, height, width]);
        let augment = Augment { flip: true, crop: 1 };
        let places = augment.places(&images, 7, 3).unwrap();
        assert_eq!(places, augment.places(&images, 7, 3).unwrap());
        assert_ne!(places, augment.places(&images, 7, 4).unwrap());
        assert_ne!(places, augment.places(&images, 8, 3).unwrap());
        let mut seen = std::collections::HashSet::new();
        for (row, taken) in places.chunks(2 * height * width).enumerate() {
            // A picture is one of the 18 that there are, the same in both channels.
            let found = variants().position(|(flip, dy, dx)| {
                let of = |channel: usize, y: usize, x: usize| {
                    let x = if flip { width - 1 - x } else { x };
                    let (y, x) = (y as i64 + dy, x as i64 + dx);
                    let inside = (0..height as i64).contains(&y) && (0..width as i64).contains(&x);
                    let plane = 2 * row + channel;
                    if inside {
                        (plane * height + y as usize) * width + x as usize
                    } else {
                        images.len()
                    }
                };
                (0..taken.len()).all(|at| {
                    let [channel, inside] = [at / (height * width), at % (height * width)];
                    taken[at] == of(channel, inside / width, inside % width)
                })
            });
            seen.insert(found.expect("a mirrored and moved picture"));
        }
        assert!(seen.len() > 12, "{} kinds of 18 among 64 pictures", seen.len());
    }

    /// Mirrored or not, with each move by up to a pixel.
    fn variants() -> impl Iterator<Item = (bool, i64, i64)> {
        let moves = || (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dy, dx)));
        [false, true].into_iter().flat_map(move |flip| moves().map(move |(y, x)| (flip, y, x)))
    }

    #[test]
    fn what_is_no_picture_or_too_small_a_one_is_refused() {
        let augment = Augment { flip: true, crop: 2 };
        let labels = shape(&[4, 10]);
        augment.check(&[shape(&[4, 1, 8, 8]), labels.clone()]).unwrap();
        Augment::default().check(&[shape(&[4, 3]), labels.clone()]).unwrap();
        for (batch, reason) in [
            ([shape(&[4, 3]), labels.clone()], "a row of the data is [3], not a picture [C, H, W]"),
            ([shape(&[4, 1, 8, 2]), labels], "leaves nothing of a picture [1, 8, 2]"),
            ([shape(&[4, 1, 8, 8]), shape(&[4, 1, 8, 8])], "labels [1, 8, 8] are pictures"),
        ] {
            let text = augment.check(&batch).unwrap_err().to_string();
            assert!(text.contains(reason), "{reason}: {text}");
        }
    }
}

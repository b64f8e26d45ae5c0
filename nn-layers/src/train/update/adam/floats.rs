//! Adam in 64-bit floats.

use super::ROOTS;
use crate::train::options::adam::{Adam, Second};
use crate::train::state::StateSpec;
use crate::{Error, HostTensor, Result};

impl Adam {
    /// Moves the weights of a state in 64-bit floats, given the state before the step and one after it whose
    /// moments are right. It follows the published formula, without the floor that keeps the roots of fixed
    /// point in range. `updated` are the places that a step changes, in the order of [`super::step::update`].
    pub(in crate::train) fn move_in_floats(
        &self,
        specs: &[StateSpec],
        updated: impl Iterator<Item = usize>,
        before: &[HostTensor],
        after: &mut [HostTensor],
        (number, rate): (u32, f64),
    ) -> Result<()> {
        let place = |name: &str| specs.iter().position(|spec| spec.name == name);
        let found = |name: &str| place(name).ok_or_else(|| Error::plan(format!("no `{name}`")));
        let (rate, epsilon) = self.rate_and_epsilon(number, rate);
        let decay = if self.decoupled { -rate.plain * self.decay } else { 0.0 };
        let roots = if self.refreshes(number) {
            let kept = if self.amsgrad { "largest moments" } else { "second moments" };
            after[found(kept)?].map(|moment| 1.0 / (moment.sqrt() + epsilon))
        } else {
            after[found(ROOTS)?].clone()
        };
        let all = roots.floats();
        let mut start = 0;
        for at in updated {
            let spec = &specs[at];
            let Some(weight) = spec.name.strip_suffix(".momentum").and_then(place) else {
                continue;
            };
            let rows = match self.second {
                Second::Row if spec.shape.rank() > 1 => spec.shape.dims()[0],
                _ => spec.shape.len(),
            };
            let own = all.get(start..start + rows);
            let own = own.ok_or_else(|| Error::plan("a moment has no root"))?;
            start += rows;
            let each = (spec.shape.len() / rows.max(1)).max(1);
            let firsts = after[at].floats().into_owned();
            let old = before[weight].floats();
            let moved = firsts.iter().zip(old.iter()).enumerate().map(|(i, (first, weight))| {
                weight * (1.0 + decay) - rate.scaled * own[i / each] * first
            });
            after[weight] = HostTensor::new(spec.shape.dims(), moved.collect())?;
        }
        if self.every > 1 {
            after[found(ROOTS)?] = roots;
        }
        Ok(())
    }
}

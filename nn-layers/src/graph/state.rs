//! Values that stay from step to step and grow.

use super::{Dim, Format, Graph, Op, ValueId, infer};
use crate::{Error, Result};

/// A value that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// The input that it is at the beginning of a step.
    pub input: usize,
    /// The axis along which it grows.
    pub axis: usize,
    /// The result that it is at the end, once it is known.
    pub output: Option<usize>,
}

impl Graph {
    /// The same graph, which may use [`Dim::Past`], with shapes for this number of cached positions. No operation
    /// has been added yet.
    #[must_use]
    pub fn with_past(mut self, past: usize) -> Self {
        self.past = Some(past);
        self
    }

    /// A secret value that stays from step to step: keys and values of attention, for instance. It has an entry
    /// along `axis` for each cached position, and is empty before the first step. `dims` are those of a single
    /// entry, with any number at `axis`. A step puts more behind it with [`Graph::extend`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the graph was not made by [`Graph::with_past`], or there is no such axis.
    pub fn state(&mut self, name: &str, dims: &[Dim], axis: usize) -> Result<ValueId> {
        if self.past.is_none() {
            return Err(Error::invalid("state", "the graph has no cached positions"));
        }
        let mut dims = dims.to_vec();
        let Some(dim) = dims.get_mut(axis) else {
            return Err(Error::invalid("state", format!("{dims:?} have no axis {axis}")));
        };
        *dim = Dim::Past { times: 1, more: 0 };
        let state = self.input(name, &dims)?;
        self.states.push(State { input: self.inputs.len() - 1, axis, output: None });
        Ok(state)
    }

    /// Puts `by` behind a state and returns the whole, which the state is at the next step. Its name as a result of
    /// the plan is `name`. No words are sent, unless `by` has more fraction bits than values.
    ///
    /// # Errors
    /// [`Error::Node`] if the shapes differ outside of the state's axis, and those of [`Graph::grow`].
    pub fn extend(&mut self, name: &str, state: ValueId, by: ValueId) -> Result<ValueId> {
        let axis = self.state_of(state)?.axis;
        // The state has the format of inputs.
        let by = self.add_as(Format::Value, name, Op::Cast, &[by])?;
        let whole = self.add(name, Op::Concat(axis), &[state, by])?;
        self.grow(name, state, whole)?;
        Ok(whole)
    }

    /// Makes a value what a state is at the next step: a concatenation of the state and something behind it. Nodes
    /// may be out of order afterwards, until [`Graph::sweep`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value is another one, or the state has been extended before.
    pub fn grow(&mut self, name: &str, state: ValueId, whole: ValueId) -> Result<()> {
        let State { input, axis, output } = *self.state_of(state)?;
        let wrong = |reason: &str| Error::invalid("state", format!("`{name}` {reason}"));
        if output.is_some() {
            return Err(wrong("extends a state for the second time"));
        }
        let node = &self.nodes[whole.0];
        let &[first, by] = node.inputs.as_slice() else {
            return Err(wrong("is not the state with something behind it"));
        };
        if node.op != Op::Concat(axis) || first != state {
            return Err(wrong("is not the state with something behind it"));
        }
        if self.nodes[by.0].op != Op::Cast {
            let shape = self.shape(by).clone();
            self.nodes[whole.0].inputs[1] = self.push(name, Op::Cast, vec![by], shape);
        }
        for state in self.states.iter_mut().filter(|state| state.input == input) {
            state.output = Some(self.outputs.len());
        }
        self.output(name, whole);
        Ok(())
    }

    /// True if it has values that stay from step to step.
    pub fn grows(&self) -> bool {
        !self.states.is_empty()
    }

    fn state_of(&self, value: ValueId) -> Result<&State> {
        let found = match self.nodes[value.0].op {
            Op::Input(input) => self.states.iter().find(|state| state.input == input),
            _ => None,
        };
        found.ok_or_else(|| Error::invalid("state", "the value is not a state"))
    }

    /// The same network with shapes for another number of cached positions.
    ///
    /// # Errors
    /// [`Error::Node`] where it does not fit.
    pub fn for_past(mut self, past: usize) -> Result<Self> {
        self.past = Some(past);
        self.reshape()?;
        Ok(self)
    }

    /// True if nothing but constants and lengths is behind a value that is not a constant itself.
    pub(crate) fn is_tabled(&self, value: ValueId) -> bool {
        let mut stack = vec![value];
        let mut steps = 0;
        while let Some(at) = stack.pop() {
            steps += 1;
            let node = &self.nodes[at.0];
            // Tables are moved and computed with in a few operations.
            if steps > 64 || matches!(node.op, Op::Input(_) | Op::Parameter(_)) {
                return false;
            }
            stack.extend(&node.inputs);
        }
        !matches!(self.nodes[value.0].op, Op::Constant(_))
    }
}

/// The dimension that is `m` long for `p` cached positions, and `n` long for `q`.
pub(super) fn along(m: usize, n: usize, [p, q]: [usize; 2]) -> Option<Dim> {
    let (longer, past) = (n.checked_sub(m)?, q.checked_sub(p).filter(|past| *past > 0)?);
    let times = longer / past;
    let more = m.checked_sub(times.checked_mul(p)?)?;
    let dim = Dim::Past { times, more };
    let fits = infer::resolve(dim, super::Sizes { batch: 1, past: q }) == Some(n);
    (fits && times > 0).then_some(dim)
}

//! Weights that training changes, and those that it leaves as they are.

use super::{Constant, CrewOp, Folded, Graph, Op, ValueId};
use crate::{Error, HostTensor, Result};

impl Graph {
    /// A weight that training changes, with its value at the start.
    pub(crate) fn parameter(&mut self, name: &str, value: HostTensor) -> ValueId {
        let id = self.constant(name, value, true);
        self.make_parameter(id);
        id
    }

    /// Makes weights parameters: secret real numbers whose name `which` accepts. Values computed from them
    /// alone are operations again, so that gradients reach the weights. The others stay as they are, and are
    /// folded as for inference, also those that were parameters before. Running means and variances are not
    /// parameters: they follow the batches if the scale or shift of their batch normalisation is one.
    pub fn train(&mut self, which: impl Fn(&str) -> bool) -> Vec<ValueId> {
        for node in &mut self.nodes {
            if let Op::Parameter(i) = node.op {
                node.op = Op::Constant(i);
            }
        }
        let running = self.running_statistics(|_| true);
        let mut uses = vec![0; self.nodes.len()];
        for node in &self.nodes {
            let folded = node.folded.iter().flat_map(|folded| &folded.inputs);
            node.inputs.iter().chain(folded).for_each(|x| uses[x.0] += 1);
        }
        let mut trained = vec![];
        for id in (0..self.nodes.len()).map(ValueId).filter(|id| !running.contains(id)) {
            let accepts = |c: &Constant| c.secret && !c.value.is_int() && which(&c.name);
            match self.nodes[id.0].folded.take() {
                Some(folded) => self.unfold(id, folded, &uses, &mut trained),
                None if self.constant_of(id).is_some_and(accepts) => {
                    self.make_parameter(id);
                    trained.push(id);
                }
                None => {}
            }
        }
        trained
    }

    /// Makes the result of an operation on weights that operation again, if an operand is trained.
    fn unfold(&mut self, id: ValueId, folded: Folded, uses: &[usize], trained: &mut [ValueId]) {
        let Folded { op, inputs } = folded;
        if inputs.iter().all(|x| self.constant_of(*x).or(self.broadcast_of(*x)).is_some()) {
            return;
        }
        let only = inputs[0];
        let reshaped = matches!(op, Op::Reshape(_)) && uses[only.0] == 1;
        if let Some(place) = trained.iter().position(|&x| reshaped && x == only) {
            // No other node knows the shape that it had before.
            self.make_parameter(id);
            trained[place] = id;
        } else {
            let node = &mut self.nodes[id.0];
            node.op = op;
            node.inputs = inputs;
        }
    }

    /// Forgets the operations that computed weights.
    pub(crate) fn settle(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.folded = None);
    }

    pub(crate) fn make_parameter(&mut self, id: ValueId) {
        let node = &mut self.nodes[id.0];
        if let Op::Constant(index) = node.op {
            node.op = Op::Parameter(index);
        }
    }

    /// A weight that a training leaves as it is, with its value: no pass computes with it.
    pub(crate) fn frozen(&mut self, name: &str, value: HostTensor) -> ValueId {
        let id = self.parameter(name, value);
        self.freeze(id);
        id
    }

    fn freeze(&mut self, id: ValueId) {
        if let Op::Parameter(index) = self.nodes[id.0].op {
            self.constants[index].frozen = true;
        }
    }

    /// Makes every secret constant a frozen parameter, so that later results do not depend on a secret number.
    pub(crate) fn hide_secrets(&mut self) {
        for id in (0..self.nodes.len()).map(ValueId) {
            if self.is_secret(id) {
                self.make_parameter(id);
                self.freeze(id);
            }
        }
    }

    /// The parameters that training changes, in the order of their nodes.
    pub(crate) fn parameters(&self) -> Vec<ValueId> {
        (0..self.nodes.len()).map(ValueId).filter(|&id| self.is_trained(id)).collect()
    }

    /// True if a value is a parameter that training changes.
    pub(crate) fn is_trained(&self, id: ValueId) -> bool {
        matches!(self.nodes[id.0].op, Op::Parameter(index) if !self.constants[index].frozen)
    }

    /// The name of a constant or of a weight that is trained.
    pub fn name_of(&self, value: ValueId) -> Option<&str> {
        self.start_of(value).map(|constant| constant.name.as_str())
    }

    /// Puts other numbers in the place of a parameter's start, or of a running statistic's.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no parameter has the name, or it has another shape.
    pub fn set_start(&mut self, name: &str, value: HostTensor) -> Result<()> {
        let (mut found, len) = (false, value.shape().len());
        for constant in &mut self.constants {
            // A weight under another shape is a constant of the same name.
            if constant.secret && constant.name == name && constant.value.shape().len() == len {
                found |= constant.value.dims() == value.dims();
                let numbers = value.floats().into_owned();
                constant.value = HostTensor::new(constant.value.dims(), numbers)?;
            }
        }
        match found {
            true => Ok(()),
            false => {
                Err(Error::invalid("graph", format!("`{name}` is not a parameter of this shape")))
            }
        }
    }

    /// The parameter of which a value is one machine's stretch; any other value itself.
    pub(crate) fn parameter_behind(&self, value: ValueId) -> ValueId {
        match self.nodes[value.0].op {
            Op::Crew { op: CrewOp::Stretch, .. } => self.nodes[value.0].inputs[0],
            _ => value,
        }
    }

    /// The tensor of a constant or of a parameter's start.
    pub(crate) fn start_of(&self, value: ValueId) -> Option<&Constant> {
        match self.nodes[value.0].op {
            Op::Constant(i) | Op::Parameter(i) => Some(&self.constants[i]),
            _ => None,
        }
    }
}

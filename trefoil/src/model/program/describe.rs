//! The public description of a model, from its plan.

use ring_arith::Shape;

use super::{Program, refused};
use crate::{
    base::Result,
    model::{About, Input, NAME, OutputTensor, Preprocess},
};

impl Program {
    /// The public description of a model of this plan.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::base::Error::Refused) if the plan's shapes do not fit together.
    pub fn about(&self, preprocess: Preprocess, labels: Vec<String>) -> Result<About> {
        Ok(About {
            inputs: self.inputs()?,
            outputs: self.outputs()?,
            batch: self.fixed_batch()?,
            whole: self.whole,
            positions: self.plan.new_positions().unwrap_or(0) as u32,
            weights: self.plan.weights().iter().map(|weight| weight.shape.len() as u64).sum(),
            public_weights: self.plan.has_public_weights(),
            fraction_bits: self.plan.frac(),
            preprocess,
            labels,
            numbers: false,
            label: None,
            text: None,
            guard: self.guard(),
            longer: self.longer.iter().map(Self::longer_step).collect(),
        })
    }

    /// The layers under guard.
    pub(super) fn guard(&self) -> Vec<String> {
        self.plan.guarded().into_iter().map(shortened).collect()
    }

    /// Checks that a description belongs to this plan.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::base::Error::Refused) if it does not.
    pub fn check_about(&self, about: &About) -> Result<()> {
        let mut own = self.about(about.preprocess.clone(), about.labels.clone())?;
        for (own, told) in own.inputs.iter_mut().zip(&about.inputs) {
            own.columns.clone_from(&told.columns);
        }
        let (label, text) = (about.label.clone(), about.text.clone());
        if *about == (About { numbers: about.numbers, label, text, ..own }) {
            return Ok(());
        }
        Err(refused("its description does not fit its plan; put it with the same program"))
    }

    fn input_shapes(&self) -> Result<Vec<Shape>> {
        self.plan.input_shapes(self.sizes_behind(0)).map_err(refused)
    }

    pub(super) fn output_shapes(&self) -> Result<Vec<Shape>> {
        self.plan.output_shapes(self.sizes_behind(0)).map_err(refused)
    }

    /// The only number of examples that the plan takes, if there is one.
    fn fixed_batch(&self) -> Result<Option<usize>> {
        if self.whole {
            return Ok(Some(1));
        }
        if self.plan.fixed_batch().is_none() {
            return Ok(None);
        }
        Ok(self.input_shapes()?.first().map(|shape| shape.dims()[0]))
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        let shapes = self.input_shapes()?;
        let named = self.plan.step_inputs().map(|at| {
            let spec = &self.plan.inputs()[at];
            Input {
                name: spec.name.clone(),
                dims: self.of_an_example(&shapes[at]),
                integer: spec.integer,
                fraction_bits: spec.frac,
                columns: Vec::new(),
            }
        });
        Ok(named.collect())
    }

    fn outputs(&self) -> Result<Vec<OutputTensor>> {
        let shapes = self.output_shapes()?;
        let names: Vec<_> = self.plan.outputs().collect();
        let named = self.plan.step_outputs().map(|at| OutputTensor {
            name: names[at].to_owned(),
            dims: self.of_an_example(&shapes[at]),
            fraction_bits: self.plan.output_frac(at),
        });
        Ok(named.collect())
    }

    /// The dimensions of one example.
    fn of_an_example(&self, shape: &Shape) -> Vec<usize> {
        shape.dims()[usize::from(!self.whole)..].to_vec()
    }
}

/// A layer's name as descriptions of models have room for it.
fn shortened(name: &str) -> String {
    let most = (0..=NAME).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    name.get(..most).unwrap_or(name).to_owned()
}

//! Training plans as they are written and read.

use serde::{Deserialize, Serialize};

use super::{TrainOptions, TrainPlan, Variant};
use crate::{Error, Plan, Result};

/// The version of this format.
const VERSION: u32 = 1;

/// The most rows of a step.
const MAX_BATCH: usize = 1 << 20;

/// A training plan without what follows from the rest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    version: u32,
    batch: usize,
    options: TrainOptions,
    step: Plan,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    light: Option<Plan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finish: Option<Plan>,
    inference: Plan,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropouts: Vec<f64>,
}

impl From<TrainPlan> for Record {
    fn from(plan: TrainPlan) -> Self {
        Self {
            version: VERSION,
            batch: plan.batch,
            options: plan.options,
            step: plan.full.plan,
            light: plan.light.map(|variant| variant.plan),
            finish: plan.finish,
            inference: plan.inference,
            dropouts: plan.dropouts,
        }
    }
}

impl TryFrom<Record> for TrainPlan {
    type Error = Error;

    fn try_from(record: Record) -> Result<Self> {
        let Record { version, batch, options, step, light, finish, inference, dropouts } = record;
        if version != VERSION {
            let reason =
                format!("version {version} of a training plan is unknown, this is {VERSION}");
            return Err(Error::plan(reason));
        }
        if !(1..=MAX_BATCH).contains(&batch) {
            return Err(Error::plan(format!(
                "{batch} rows a step are not within 1 to {MAX_BATCH}"
            )));
        }
        options.check(batch)?;
        let state = step.weights();
        let metrics = options.metrics.len();
        for plan in [Some(&step), light.as_ref()].into_iter().flatten() {
            if plan.fixed_batch() != Some(batch) {
                return Err(Error::plan("a step is not for the batch size of its training"));
            }
            if plan.inputs() != step.inputs() {
                return Err(Error::plan("steps of one training differ in their inputs"));
            }
        }
        if light.is_some() != options.optimiser.varies() {
            return Err(Error::plan("steps between roots do not go with the optimiser"));
        }
        let light = light.map(|plan| Variant::new(plan, &state, metrics)).transpose()?;
        let full = Variant::new(step, &state, metrics)?;
        let plan = Self { full, light, finish, inference, options, batch, dropouts };
        plan.check_public()?;
        plan.check_results()?;
        // Each weight of inference must be made, or be among the state's tensors.
        plan.check_finish()?;
        Ok(plan)
    }
}

impl TrainPlan {
    /// Every step takes a network's input and labels, and the public numbers of its optimiser last.
    fn check_public(&self) -> Result<()> {
        let public = self.options.optimiser.public_inputs();
        let inputs = self.full.plan.inputs();
        let wrong = || Error::plan("the inputs of a step are not those of its training");
        let masks = inputs.len().checked_sub(self.dropouts.len()).ok_or_else(wrong)?;
        let first = masks.checked_sub(public).filter(|&first| first >= 2).ok_or_else(wrong)?;
        let one =
            |spec: &crate::InputSpec| spec.frac.is_some() && spec.dims == [crate::Dim::Fixed(1)];
        let parts = self.dropouts.iter().all(|part| (0.0..1.0).contains(part));
        let integers = inputs[masks..].iter().all(|spec| spec.integer);
        let shapes = self.full.plan.input_shapes(self.batch)?;
        let rows = shapes[..first].iter().all(|shape| shape.dims().first() == Some(&self.batch));
        if inputs[first..masks].iter().all(one) && parts && integers && rows {
            Ok(())
        } else {
            Err(wrong())
        }
    }

    /// A number for each metric follows the new values of the state's tensors.
    fn check_results(&self) -> Result<()> {
        for variant in std::iter::once(&self.full).chain(&self.light) {
            let shapes = variant.plan.output_shapes(self.batch)?;
            if variant.updated.is_empty() {
                return Err(Error::plan("a step changes nothing"));
            }
            if let Some(shape) = shapes[variant.updated.len()..].iter().find(|s| s.len() != 1) {
                return Err(Error::plan(format!("a metric is one number and not {shape:?}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Layer, Linear, Sequential};
    use crate::train::{Metric, Optimiser};
    use crate::{Dim, Graph, HostTensor, Unary};

    fn plan() -> TrainPlan {
        let layer = |outputs: usize, inputs: usize| {
            let weight = HostTensor::new([outputs, inputs], vec![0.25; outputs * inputs]).unwrap();
            Linear::new(weight, HostTensor::new([outputs], vec![0.5; outputs]).unwrap())
        };
        let network = Sequential::new()
            .then("a", layer(4, 3))
            .then("relu", Unary::Relu)
            .then("b", layer(2, 4));
        let mut graph = Graph::new(8);
        let x = graph.input("x", &[Dim::Batch(1), Dim::Fixed(3)]).unwrap();
        let logits = network.forward(&mut graph, "net", x).unwrap();
        graph.train(|_| true);
        let options = TrainOptions::default()
            .with_optimiser(Optimiser::sgd(0.9))
            .with_metrics([Metric::Loss, Metric::Right]);
        TrainPlan::new(&graph, logits, &options).unwrap().0
    }

    fn read(text: &str) -> std::result::Result<TrainPlan, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_training_plan_that_was_written_is_read_as_it_was() {
        let plan = plan();
        assert_eq!(read(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    }

    #[test]
    fn a_record_that_does_not_hold_together_is_refused() {
        let plan = plan();
        type Change = fn(&mut Record);
        let refusals: [(Change, &str); 6] = [
            (|record| record.version = 9, "version 9 of a training plan"),
            (|record| record.batch = 0, "0 rows a step"),
            (|record| record.batch = 4, "batch size"),
            (|record| record.light = Some(record.step.clone()), "optimiser"),
            (|record| record.options.metrics.clear(), "not part of the state"),
            (|record| record.dropouts.push(0.5), "inputs"),
        ];
        for (change, reason) in refusals {
            let mut record = Record::from(plan.clone());
            change(&mut record);
            let text = read(&serde_json::to_string(&record).unwrap()).unwrap_err();
            assert!(text.contains(reason), "{reason}: {text}");
        }
    }
}

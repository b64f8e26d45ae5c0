//! A run of a model in the clear before it is shared: a plan whose values leave their range on all inputs is refused.

use gpu_kernels::EngineChoice;
use mpc_core::SplitMix64;
use nn_layers::{HostTensor, Inspected, Inspection, Plan, Refusal};

use super::Range;
use crate::base::{Error, Result};

/// Products of numbers up to which a plan is run without being asked for: a second or two of a CPU core.
pub const QUICK: u64 = 1 << 31;

/// The intervals from which the values of an input are drawn that nothing is known about.
const USUAL: [Range; TRIES] =
    [Range { low: -1.0, high: 1.0 }, Range { low: 0.0, high: 1.0 }, Range { low: 1.0, high: 1.0 }];

/// The number of times that a plan is run on other values until it runs to its end.
const TRIES: usize = 3;

/// The part of a stated range, at its value of least magnitude, from which values are drawn at the second try.
const SMALL: f64 = 1.0 / 1024.0;

/// Runs a plan in the clear before it is put, in fixed point with every check on, and so finds what a guard would report.
/// The input is a sample if there is one. If the ranges of all inputs are stated, the plan runs on values drawn from them,
/// on the least and on the greatest, and must be right for each. Else an input without a range has values from -1 to 1,
/// from 0 to 1, or ones. Values that leave their range for one of those may be right for other inputs; if they do for all,
/// the model could not be used. False if the plan takes more than [`QUICK`] products, and is not run.
///
/// # Errors
/// [`Error::Format`] that states which layer's values leave their range. `what` names the model.
pub fn run(
    what: &str,
    plan: &Plan,
    weights: &[HostTensor],
    ranges: &[Option<Range>],
    sample: Option<&[HostTensor]>,
) -> Result<bool> {
    let batch = plan.fixed_batch().unwrap_or(1);
    if plan.multiplications(batch)? > QUICK {
        return Ok(false);
    }
    let left = |inputs: &[HostTensor]| left(what, plan, weights, inputs);
    let known = known(plan, ranges, sample)?;
    for inputs in &known {
        if let Some(refusal) = left(inputs)? {
            let whose = match sample {
                Some(_) => "a sample's values leave",
                None => "for inputs of the stated range, values leave",
            };
            let reason = format_args!(
                "{whose} the range of numbers at layer `{}`: {}",
                refusal.name, refusal.reason
            );
            return Err(Error::format(what, reason));
        }
    }
    if !known.is_empty() {
        return Ok(true);
    }
    let mut refused = None;
    for (number, usual) in USUAL.iter().enumerate() {
        match left(&drawn(plan, ranges, batch, number, *usual)?)? {
            None => return Ok(true),
            Some(refusal) => refused = Some(refusal),
        }
    }
    let Some(refusal) = refused else { return Ok(true) };
    let reason = format_args!(
        "whatever was tried as input, values leave the range of numbers at layer `{}`: {}; --inputs FILE tries \
         real ones",
        refusal.name, refusal.reason
    );
    Err(Error::format(what, reason))
}

/// The inputs for which a plan must be right: the sample; else, if the ranges of all inputs are stated, values drawn from
/// them, the least and the greatest. None if neither is known.
///
/// # Errors
/// [`Error::Format`] if a sample does not fit the plan.
pub fn known(
    plan: &Plan,
    ranges: &[Option<Range>],
    sample: Option<&[HostTensor]>,
) -> Result<Vec<Vec<HostTensor>>> {
    if let Some(sample) = sample {
        return Ok(vec![sample.to_vec()]);
    }
    let stated: Option<Vec<Range>> = ranges.iter().copied().collect();
    let Some(stated) = stated.filter(|stated| stated.len() == plan.step_inputs().count()) else {
        return Ok(Vec::new());
    };
    let batch = plan.fixed_batch().unwrap_or(1);
    let ends = [|range: &Range| range.low, |range: &Range| range.high]
        .map(|end| stated.iter().map(|range| Some(at(end(range)))).collect());
    let [low, high]: [Vec<_>; 2] = ends;
    let drawn = |ranges: &[Option<Range>]| drawn(plan, ranges, batch, 0, USUAL[0]);
    Ok(vec![drawn(ranges)?, drawn(&low)?, drawn(&high)?])
}

/// One number.
fn at(value: f64) -> Range {
    Range { low: value, high: value }
}

/// The first value that leaves its range or its function's domain, if there is one; every other failure is taken as the
/// model's fault.
fn left(
    what: &str,
    plan: &Plan,
    weights: &[HostTensor],
    inputs: &[HostTensor],
) -> Result<Option<Refusal>> {
    let seen = inspected(what, plan, weights, inputs)?;
    let outside = seen.values.iter().find_map(|value| {
        let reason = refused(value)?;
        Some(Refusal { name: value.name.clone(), reason })
    });
    Ok(outside.or(seen.refusal))
}

/// Why a guard would refuse a value.
fn refused(value: &Inspected) -> Option<String> {
    let kind = value.kind;
    if let Some(outside) = &value.outside {
        return Some(format!("{kind}: {outside}"));
    }
    // A function of positive numbers takes one below for its least.
    let beyond = value.room.filter(|room| *room < 0.0 && room.is_finite())?;
    Some(format!("an operand of {kind} is {:.3} times as large as it may be", (-beyond).exp2()))
}

/// [`Plan::inspect`] on the CPU; every failure is taken as the model's fault.
fn inspected(
    what: &str,
    plan: &Plan,
    weights: &[HostTensor],
    inputs: &[HostTensor],
) -> Result<Inspection> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (engine, _) = EngineChoice::Cpu.open(threads)?;
    plan.inspect(engine, weights, inputs)
        .map_err(|cause| Error::format(what, format_args!("it cannot be run: {cause}")))
}

/// Inputs for try `number`, always the same.
fn drawn(
    plan: &Plan,
    ranges: &[Option<Range>],
    batch: usize,
    number: usize,
    usual: Range,
) -> Result<Vec<HostTensor>> {
    // The first step of a conversation: nothing is kept yet.
    let shapes = plan.input_shapes(batch)?;
    let given: Vec<_> = plan.step_inputs().collect();
    let mut inputs = Vec::with_capacity(shapes.len());
    for (i, (spec, shape)) in plan.inputs().iter().zip(&shapes).enumerate() {
        let stated = given.iter().position(|&at| at == i).and_then(|at| ranges.get(at));
        let range = match stated.copied().flatten() {
            Some(stated) => part(stated, number),
            None if spec.integer => Range { low: usual.low.max(0.0), ..usual },
            None => usual,
        };
        let mut random = SplitMix64::new(i as u64);
        let values = (0..shape.len()).map(|_| random.real(range.low, range.high));
        inputs.push(if spec.integer {
            HostTensor::integers(shape.dims(), values.map(|v| v.round() as i64).collect())?
        } else {
            HostTensor::new(shape.dims(), values.collect())?
        });
    }
    Ok(inputs)
}

/// A range, its small values, and the one in its middle.
fn part(range: Range, number: usize) -> Range {
    let span = range.high - range.low;
    match number {
        0 => range,
        1 => {
            let low = 0f64.clamp(range.low, range.high - span * SMALL);
            Range { low, high: low + span * SMALL }
        }
        _ => {
            let middle = range.low + span / 2.0;
            Range { low: middle, high: middle }
        }
    }
}

#[cfg(test)]
mod tests {
    use nn_layers::{Compiled, Dim, Graph, Op, PlanOptions, Unary};

    use super::*;

    /// A plan of `f(x * factor)`.
    fn compiled(factor: f64, f: Option<Unary>) -> Compiled {
        let mut g = Graph::new(1);
        let x = g.input("x", &[Dim::Batch(1), Dim::Fixed(4)]).unwrap();
        let weight = HostTensor::new([4, 2], vec![factor; 8]).unwrap();
        let w = g.weight("w", weight);
        let op = Op::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = g.add("scores", op, &[x, w]).unwrap();
        let y = f.map_or(y, |f| g.add("curve", Op::Unary(f), &[y]).unwrap());
        g.output("y", y);
        Compiled::new(&g, &PlanOptions::default()).unwrap()
    }

    #[test]
    fn what_runs_for_no_input_is_refused_and_names_the_layer() {
        let sound = compiled(3.0, None);
        assert!(run("m", &sound.plan, &sound.weights, &[], None).unwrap());
        let wild = compiled(2f64.powi(41), Some(Unary::Pow(2.0)));
        let error = run("m", &wild.plan, &wild.weights, &[], None).unwrap_err();
        assert!(error.to_string().contains("layer `"), "{error}");
        assert_eq!(error.exit_code(), 3);
        // A range of small numbers in which it is right.
        let small = Range { low: 0.0, high: 1e-12 };
        assert!(run("m", &wild.plan, &wild.weights, &[Some(small)], None).unwrap());
    }

    #[test]
    fn a_sample_that_leaves_its_range_is_refused_where_others_would_not() {
        let sound = compiled(2f64.powi(10), Some(Unary::Pow(2.0)));
        assert!(run("m", &sound.plan, &sound.weights, &[], None).unwrap());
        let sample = [HostTensor::new([1, 4], vec![1e5; 4]).unwrap()];
        let error = run("m", &sound.plan, &sound.weights, &[], Some(&sample)).unwrap_err();
        assert!(error.to_string().contains("a sample's values"), "{error}");
    }

    #[test]
    fn what_a_guard_would_call_for_a_stated_range_is_refused() {
        let tried = |factor, f, high| {
            let Compiled { plan, weights } = compiled(factor, Some(f));
            run("m", &plan, &weights, &[Some(Range { low: 0.0, high })], None)
        };
        // The guard calls from 16 ln 2 on, which the sum of four numbers reaches only together.
        assert!(tried(1.0, Unary::Exp, 2.7).unwrap());
        let error = tried(1.0, Unary::Exp, 2.8).unwrap_err().to_string();
        assert!(error.contains("exp: its operand 1.120e1 is too large: up to 1.109e1"), "{error}");
        // A layer's sums at the end of the range.
        assert!(tried(1e3, Unary::Relu, 1e3).unwrap());
        let error = tried(1e3, Unary::Relu, 1.1e3).unwrap_err().to_string();
        assert!(error.contains("for inputs of the stated range"), "{error}");
    }

    #[test]
    fn a_sample_that_a_guard_would_find_too_small_is_refused_and_a_root_of_zero_is_not() {
        let tried = |f, number: f64| {
            let Compiled { plan, weights } = compiled(1.0, Some(f));
            let sample = [HostTensor::new([1, 4], vec![number; 4]).unwrap()];
            run("m", &plan, &weights, &[], Some(&sample)).map_err(|error| error.to_string())
        };
        // Each operand is four times the number; 64 units are the least.
        assert!(tried(Unary::Reciprocal, 2f64.powi(-16)).unwrap());
        let error = tried(Unary::Reciprocal, 2f64.powi(-17)).unwrap_err();
        assert!(
            error.contains("reciprocal: its operand 3.052e-5 is too small: at least 6.104e-5"),
            "{error}"
        );
        assert!(tried(Unary::Log, 0.0).unwrap_err().contains("too low"));
        assert!(tried(Unary::Sqrt, -0.01).unwrap_err().contains("too low"));
        assert!(tried(Unary::Sqrt, 0.0).unwrap());
    }

    #[test]
    fn stated_ranges_are_drawn_from_and_integers_are_whole() {
        let mut g = Graph::new(1);
        let ids = g.integer_input("ids", &[Dim::Batch(1), Dim::Fixed(64)]).unwrap();
        g.output("y", ids);
        let Compiled { plan, .. } = Compiled::new(&g, &PlanOptions::default()).unwrap();
        let range = Range { low: 3.0, high: 9.0 };
        let inputs = drawn(&plan, &[Some(range)], 1, 0, USUAL[0]).unwrap();
        let ids = inputs[0].as_ints().unwrap();
        assert!(ids.iter().all(|id| (3..=9).contains(id)), "{ids:?}");
        assert!(ids.contains(&3) || ids.contains(&4), "{ids:?}");
        let unknown = drawn(&plan, &[None], 1, 0, USUAL[0]).unwrap();
        assert!(unknown[0].as_ints().unwrap().iter().all(|id| (0..=1).contains(id)));
    }
}

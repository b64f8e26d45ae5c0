//! A plan run in the clear: in fixed point with every check on, and in 64-bit floats.

use std::fmt;

use mpc_core::{Operand, Plaintext, Protocol, PublicTensor, Rounding, SecretTensor};
use ring_arith::{Engine, EngineTensor};

use crate::graph::{Binary, Op, Sizes, eval};
use crate::host::decode;
use crate::plan::analyse::domain::Domain;
use crate::plan::analyse::magnitude::Danger;
use crate::plan::run::Watch;
use crate::plan::run::exec::Made;
use crate::plan::{Observer, Plan, StepInfo};
use crate::{Error, HostTensor, Result, ops};

/// The seed of the reference's rounding; its value does not matter.
const SEED: u64 = 1;

/// The findings of a run in the clear.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The values that were computed, in order.
    pub values: Vec<Inspected>,
    /// The results in fixed point, if the run reached its end.
    pub results: Vec<HostTensor>,
    /// The failure that ended the run early, if any.
    pub refusal: Option<Refusal>,
}

/// One value of an [`Inspection`].
#[derive(Debug, Clone, PartialEq)]
pub struct Inspected {
    /// The node's name in the model.
    pub name: String,
    /// The kind of operation, such as `conv+relu`.
    pub kind: &'static str,
    /// The largest magnitude.
    pub largest: f64,
    /// Bits by which the operation's fullest sum or product, or its operand, may still grow before it leaves
    /// the range in which the operation is right; negative if it has. `None` where that range is unbounded.
    /// Layers that run in one step have one number in common.
    pub room: Option<f64>,
    /// The largest difference from 64-bit floats.
    pub error: f64,
    /// The number that a guard would refuse although every product is in range, if there is one.
    pub outside: Option<Outside>,
}

/// A number for which an operation is not right.
#[derive(Debug, Clone, PartialEq)]
pub enum Outside {
    /// An operand outside of the operation's domain.
    Operand {
        /// The number.
        number: f64,
        /// The interval in which it must lie.
        within: [f64; 2],
        /// The magnitude that it must have at least; 0 where any will do.
        least: f64,
    },
    /// A quotient beyond this limit.
    Quotient(f64),
    /// A row whose numbers differ too little to be normalised.
    Row,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operand { number, least, .. } if number.abs() < *least => {
                write!(f, "its operand {number:.3e} is too small: at least {least:.3e} is right")
            }
            Self::Operand { number, within: [low, _], .. } if number < low => {
                write!(f, "its operand {number:.3e} is too low: from {low:.3e} on it is right")
            }
            Self::Operand { number, within: [_, high], .. } => {
                write!(f, "its operand {number:.3e} is too large: up to {high:.3e} is right")
            }
            Self::Quotient(limit) => write!(f, "a quotient is beyond {limit:.3e}"),
            Self::Row => f.write_str("the numbers of a row differ too little to be normalised"),
        }
    }
}

/// The failure of a run in the clear: its place and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The node's name in the model.
    pub name: String,
    /// The value that left its range.
    pub reason: String,
}

impl Plan {
    /// Runs the plan in the clear on an engine, in fixed point and in 64-bit floats with the weights as they
    /// are. A fixed-point value that leaves its range is refused: on shares it would be a wrong number without
    /// an error.
    ///
    /// # Errors
    /// [`Error::Argument`] if weights or inputs do not fit the plan or cannot be encoded.
    pub fn inspect<E: Engine>(
        &self,
        engine: E,
        weights: &[HostTensor],
        inputs: &[HostTensor],
    ) -> Result<Inspection> {
        let mut mpc = Plaintext::with_rounding(engine, Rounding::Drawn { seed: SEED });
        let shapes: Vec<_> = inputs.iter().map(HostTensor::shape).collect();
        let sizes = self.sizes_of(&shapes)?;
        let words = self.encode_weights(weights)?;
        let shares = words.into_iter().map(|w| share(&mpc, w)).collect::<Result<_>>()?;
        let secret_weights = self.secret_weights(shares);
        let words = inputs.iter().enumerate().map(|(i, x)| self.encode_input(i, sizes, x));
        let words = words.collect::<Result<Vec<_>>>()?;
        let shares = words.iter().map(|x| share(&mpc, x.clone())).collect::<Result<_>>()?;
        let mut operands: Vec<Operand<Plaintext<E>>> = self.secret_inputs(shares);
        for (i, words) in words.into_iter().enumerate().filter(|(i, _)| self.is_number(*i)) {
            let words = mpc.engine().upload(words)?;
            operands[i] = Operand::Public(PublicTensor::new(words, self.input_frac(i)));
        }
        let mut beside = Beside::new(self, weights, inputs, sizes)?;
        let mut place = Place::default();
        let ran = self.run_watched(&mut mpc, &secret_weights, &operands, &mut place, &mut beside);
        let values = beside.values;
        match ran {
            Ok(made) => {
                let results =
                    made.iter().map(|value| opened(&mut mpc, value)).collect::<Result<_>>()?;
                Ok(Inspection { values, results, refusal: None })
            }
            Err(cause) => {
                let refusal = Refusal { name: place.0, reason: cause.to_string() };
                Ok(Inspection { values, results: vec![], refusal: Some(refusal) })
            }
        }
    }

    /// [`Plan::run`] in the clear. It also refuses a number outside of an operation's domain, such as the logarithm's
    /// of 0: on shares the result would be wrong without an error.
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Node`] with the first such number.
    pub fn run_within_domains<E: Engine>(
        &self,
        mpc: &mut Plaintext<E>,
        weights: &[Operand<Plaintext<E>>],
        inputs: &[Operand<Plaintext<E>>],
        observer: &mut dyn Observer,
    ) -> Result<Vec<SecretTensor<Plaintext<E>>>> {
        let shapes: Vec<_> = inputs.iter().map(ops::shape_of).collect();
        let mut domains = Domains::new(self, self.sizes_of(&shapes)?)?;
        self.run_watched(mpc, weights, inputs, observer, &mut domains)
    }
}

fn share<E: Engine>(
    mpc: &Plaintext<E>,
    words: ring_arith::Tensor,
) -> Result<<Plaintext<E> as Protocol>::Share> {
    Ok(mpc.constant(&mpc.engine().upload(words)?)?)
}

/// A value as real numbers.
fn opened<E: Engine>(
    mpc: &mut Plaintext<E>,
    value: &SecretTensor<Plaintext<E>>,
) -> Result<HostTensor> {
    let words = words(mpc, value)?;
    decode(words.words(), words.shape(), value.frac())
}

/// A value's words.
fn words<E: Engine>(
    mpc: &mut Plaintext<E>,
    value: &SecretTensor<Plaintext<E>>,
) -> Result<ring_arith::Tensor> {
    let words = mpc.open(&[value.share()])?.remove(0);
    Ok(mpc.engine().download(&words)?)
}

/// The step that runs.
#[derive(Default)]
struct Place(String);

impl Observer for Place {
    fn started(&mut self, step: &StepInfo<'_>) {
        step.name.clone_into(&mut self.0);
    }
}

/// The same plan in floats, one node after the run in fixed point.
struct Beside<'a> {
    plan: &'a Plan,
    sizes: Sizes,
    floats: Vec<Option<HostTensor>>,
    /// The number of times that each value is still needed.
    uses: Vec<usize>,
    step: Step,
    domains: Domains<'a>,
    values: Vec<Inspected>,
}

/// The step whose nodes are watched, and the fullness of its sums and products.
#[derive(Default)]
struct Step {
    nodes: Vec<usize>,
    fullest: f64,
}

impl<'a> Beside<'a> {
    fn new(
        plan: &'a Plan,
        weights: &[HostTensor],
        inputs: &[HostTensor],
        sizes: Sizes,
    ) -> Result<Self> {
        let constants = plan.constant_values(weights)?;
        let given = |op: &Op| match *op {
            Op::Input(i) => inputs.get(i).cloned(),
            Op::Constant(i) => constants.get(i).cloned(),
            _ => None,
        };
        let mut uses = vec![0; plan.nodes.len()];
        plan.nodes.iter().flat_map(|node| &node.inputs).for_each(|&x| uses[x] += 1);
        let floats = plan.nodes.iter().map(|node| given(&node.op)).collect();
        let domains = Domains::new(plan, sizes)?;
        let step = Step::default();
        let mut this = Self { plan, sizes, floats, uses, step, domains, values: vec![] };
        for node in (0..plan.nodes.len()).filter(|&node| plan.public[node]) {
            this.evaluate(node)?;
        }
        Ok(this)
    }

    fn evaluate(&mut self, node: usize) -> Result<HostTensor> {
        let inputs = &self.plan.nodes[node].inputs;
        let xs: Option<Vec<_>> = inputs.iter().map(|&x| self.floats[x].as_ref()).collect();
        let xs = xs.ok_or_else(|| Error::plan("a node is used before it is computed"))?;
        let value = eval::evaluate(&self.plan.nodes[node].op, &xs, self.sizes)?;
        for &x in inputs {
            self.uses[x] -= 1;
            if self.uses[x] == 0 {
                self.floats[x] = None;
            }
        }
        if self.uses[node] > 0 {
            self.floats[node] = Some(value.clone());
        }
        Ok(value)
    }

    /// Notes a node's step. A step's nodes have all run before the first of them is watched.
    fn note_step<E: Engine>(&mut self, mpc: &mut Plaintext<E>, node: usize) {
        if !self.step.nodes.contains(&node) {
            let nodes = self.plan.steps.iter().find(|group| group.contains(&node));
            self.step =
                Step { nodes: nodes.cloned().unwrap_or_default(), fullest: mpc.take_fullest() };
        }
    }

    /// Bits by which a function's operands may grow before they leave its domain.
    fn domain_room(&self, node: usize) -> Option<f64> {
        let inputs = &self.plan.nodes[node].inputs;
        let op = &self.plan.nodes[node].op;
        let room = |(at, &x): (usize, &usize)| {
            let domain = Domain::of(op, at, self.plan.target(node), self.plan.fracs[x])?;
            Some(domain.room(&self.floats[x].as_ref()?.floats()))
        };
        inputs.iter().enumerate().filter_map(room).reduce(f64::min)
    }
}

/// The domains of a plan's operations, which on shares only a guard compares with numbers.
struct Domains<'a> {
    plan: &'a Plan,
    sizes: Sizes,
    /// The dangers that a guard watches at each node.
    dangers: Vec<Danger>,
}

impl<'a> Domains<'a> {
    fn new(plan: &'a Plan, sizes: Sizes) -> Result<Self> {
        Ok(Self { plan, sizes, dangers: plan.dangers()? })
    }

    /// The number for which a guard would refuse a node's result although every product is in range.
    fn outside<E: Engine>(
        &self,
        mpc: &mut Plaintext<E>,
        node: usize,
        made: &Made<Plaintext<E>>,
        values: &[Option<Operand<Plaintext<E>>>],
    ) -> Result<Option<Outside>> {
        if self.plan.dropped(node) > 0 {
            // A guard computes such a result again.
            return Ok(None);
        }
        let danger = &self.dangers[node];
        let inputs = &self.plan.nodes[node].inputs;
        let operand = |mpc: &Plaintext<E>, at: usize| {
            let value = values[inputs[at]].as_ref();
            ops::secret(mpc, value.ok_or_else(|| Error::plan("a value was dropped too early"))?)
        };
        for &(at, domain) in &danger.operands {
            let x = operand(mpc, at)?;
            let ends = domain.ends(x.frac(), x.width());
            let beyond =
                |word: &&u64| ends.iter().map(|end| end.count(**word as i64)).sum::<i32>() != 0;
            if let Some(&word) = words(mpc, &x)?.words().iter().find(beyond) {
                let number = word as i64 as f64 * (-f64::from(x.frac())).exp2();
                let within = [domain.low, domain.high];
                return Ok(Some(Outside::Operand { number, within, least: domain.least }));
            }
        }
        if let Some(limit) = danger.quotient {
            let [x, y] = [operand(mpc, 0)?, operand(mpc, 1)?].map(|x| opened(mpc, &x));
            let quotient = eval::evaluate(&Op::Binary(Binary::Div), &[&x?, &y?], self.sizes)?;
            if quotient.floats().iter().any(|quotient| quotient.abs() > limit) {
                return Ok(Some(Outside::Quotient(limit)));
            }
        }
        if let Some([few, none]) = made.faint.as_ref().filter(|_| danger.faint) {
            let negative = |words: ring_arith::Tensor| -> usize {
                words.words().iter().filter(|word| word.leading_ones() > 0).count()
            };
            if negative(words(mpc, few)?) != negative(words(mpc, none)?) {
                return Ok(Some(Outside::Row));
            }
        }
        Ok(None)
    }
}

impl<E: Engine> Watch<Plaintext<E>> for Domains<'_> {
    fn made(
        &mut self,
        mpc: &mut Plaintext<E>,
        node: usize,
        made: &Made<Plaintext<E>>,
        values: &[Option<Operand<Plaintext<E>>>],
    ) -> Result<()> {
        let Some(outside) = self.outside(mpc, node, made, values)? else { return Ok(()) };
        let node = &self.plan.nodes[node];
        let reason = format!("{}: {outside}", node.op.name());
        Err(Error::Node { node: node.name.clone(), reason })
    }
}

impl<E: Engine> Watch<Plaintext<E>> for Beside<'_> {
    fn made(
        &mut self,
        mpc: &mut Plaintext<E>,
        node: usize,
        made: &Made<Plaintext<E>>,
        values: &[Option<Operand<Plaintext<E>>>],
    ) -> Result<()> {
        let outside = self.domains.outside(mpc, node, made, values)?;
        let domain = self.domain_room(node);
        let floats = self.evaluate(node)?;
        let fixed = opened(mpc, &made.value)?;
        let (fixed, floats) = (fixed.floats(), floats.floats());
        self.note_step(mpc, node);
        let op = &self.plan.nodes[node].op;
        // What is drawn at random has no error.
        let compared = if *op == Op::Draw { 0 } else { fixed.len() };
        let pairs = fixed.iter().zip(floats.iter()).take(compared);
        let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let filled = op.info().fills_words && self.step.fullest > 0.0;
        let room = if filled { Some(-self.step.fullest.log2()) } else { domain };
        self.values.push(Inspected {
            name: self.plan.nodes[node].name.clone(),
            kind: op.name(),
            largest: fixed.iter().fold(0.0, |largest, v| v.abs().max(largest)),
            room,
            error,
            outside,
        });
        Ok(())
    }
}

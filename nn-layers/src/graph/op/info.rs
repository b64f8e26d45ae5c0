//! The facts of operations on which planning depends: one row for each operation.

mod functions;

use std::ops::RangeInclusive;

use super::{CrewOp, Dim, LinearFinish, LinearMap, Op};

/// The exactness of an operation's result on shares, for the operands that are there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exactness {
    /// Nothing is rounded.
    Exact,
    /// Rounded to the result's last place, up or down.
    Rounded,
    /// Approximated, with an error below `2^-bits` of the result or of 1, whichever is larger.
    Approximated(f64),
}

impl std::fmt::Display for Exactness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Rounded => f.write_str("rounded"),
            Self::Approximated(bits) => write!(f, "to 2^-{bits}"),
        }
    }
}

/// The fraction bits of a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ResultFormat {
    /// As many as the plan gives to the node.
    Planned,
    /// Those of one operand.
    OfOperand(usize),
    /// The most that an operand from this one on has.
    FinestFrom(usize),
    /// None: it is an integer.
    Integer,
    /// Those of a product: an integer leaves the other operand's, two real numbers are rounded as planned.
    OfProduct,
    /// Those after a public factor. A power of two only moves the point while there is room.
    Scaled(f64),
}

/// The work on shares, for bounds of a party's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// None: the value is there.
    Nothing,
    /// Moves or adds up words, for each word of the result.
    Move,
    /// Adds up words, for each word of the operands.
    Sum,
    /// A product and its truncation.
    Product,
    /// A product, comparison or selection for each word of the result.
    Select,
    /// A tournament, with a comparison for each word of the operands.
    Tournament,
    /// A sum or a maximum under each position of a window, or a selection for each row of a table.
    Many,
    /// A function of many rounds.
    Function,
}

/// The operands of which examples of a batch may come, so that those of the result do not mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Examples {
    /// The first: each element, or each stretch of elements, is computed alone.
    Apart,
    /// All, which are broadcast to each other.
    Aligned,
    /// The first, if this axis, along which elements are combined, is not that of the examples.
    Along(usize),
    /// The first, if the result has more than this many axes: elements are combined along the last ones.
    AboveRank(usize),
    /// Operands and attributes decide.
    ByOperands,
    /// None: examples are combined.
    Combined,
}

/// The gradient of an operation by its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gradient {
    /// There is a rule for each operand.
    Defined,
    /// The same, but the gradient by this operand is 0: nearby numbers give the same result.
    ZeroBy(usize),
    /// The gradient by every operand is 0.
    Zero,
    /// There is none.
    Undefined,
}

/// The facts of an operation.
#[derive(Debug, Clone)]
pub(crate) struct OpInfo {
    /// A name for errors and profiles.
    pub name: &'static str,
    /// The number of operands.
    pub operands: RangeInclusive<usize>,
    /// The exactness of the result.
    pub exactness: Exactness,
    /// The format of the result.
    pub format: ResultFormat,
    /// True if operands are brought to the planned format before anything else.
    pub rounds_operands: bool,
    /// True if sums and products grow with the operands. Other operations bring theirs into a fixed range first, which
    /// they fill.
    pub fills_words: bool,
    /// True if the result consists of elements of the operands, and of public ones around them.
    pub moves_elements: bool,
    /// The work on shares.
    pub work: Work,
    /// The relation to the examples of a batch.
    pub examples: Examples,
    /// The gradient.
    pub gradient: Gradient,
    /// The least and the largest number that a result can be, whatever the operands.
    pub results: [f64; 2],
}

impl OpInfo {
    /// A function of one operand's elements, each computed alone in many rounds. The others differ from it by what their
    /// rows name.
    fn new(name: &'static str, exactness: Exactness, format: ResultFormat) -> Self {
        Self {
            name,
            operands: 1..=1,
            exactness,
            format,
            rounds_operands: false,
            fills_words: false,
            moves_elements: false,
            work: Work::Function,
            examples: Examples::Apart,
            gradient: Gradient::Defined,
            results: [f64::NEG_INFINITY, f64::INFINITY],
        }
    }

    /// An operation that rounds nothing and has its operand's format.
    fn exact(name: &'static str) -> Self {
        Self::new(name, Exactness::Exact, ResultFormat::OfOperand(0))
    }

    /// An operation that gives integers.
    fn integer(name: &'static str) -> Self {
        Self::new(name, Exactness::Exact, ResultFormat::Integer)
    }

    /// An operation that rounds its result to the planned format.
    fn rounded(name: &'static str) -> Self {
        Self::new(name, Exactness::Rounded, ResultFormat::Planned)
    }

    /// A function that is computed at the planned format with an error below `2^-bits`.
    fn approximated(name: &'static str, bits: f64) -> Self {
        Self::new(name, Exactness::Approximated(bits), ResultFormat::Planned).rounding_operands()
    }

    /// A product of two values.
    fn product(name: &'static str) -> Self {
        Self::new(name, Exactness::Rounded, ResultFormat::OfProduct)
            .operands(2..=2)
            .work(Work::Product)
            .examples(Examples::ByOperands)
            .filling_words()
    }

    /// Elements of the operand, moved.
    fn view(name: &'static str, examples: Examples) -> Self {
        let moved = Self::exact(name).work(Work::Move).examples(examples);
        Self { moves_elements: true, ..moved }
    }

    /// A value that is there before anything runs.
    fn given(name: &'static str) -> Self {
        Self::exact(name)
            .operands(0..=0)
            .work(Work::Nothing)
            .examples(Examples::ByOperands)
            .gradient(Gradient::Undefined)
    }

    fn operands(self, operands: RangeInclusive<usize>) -> Self {
        Self { operands, ..self }
    }

    fn format(self, format: ResultFormat) -> Self {
        Self { format, ..self }
    }

    fn rounding_operands(self) -> Self {
        Self { rounds_operands: true, ..self }
    }

    fn keeping_operands(self) -> Self {
        Self { rounds_operands: false, ..self }
    }

    fn filling_words(self) -> Self {
        Self { fills_words: true, ..self }
    }

    fn work(self, work: Work) -> Self {
        Self { work, ..self }
    }

    fn examples(self, examples: Examples) -> Self {
        Self { examples, ..self }
    }

    fn gradient(self, gradient: Gradient) -> Self {
        Self { gradient, ..self }
    }

    fn results(self, low: f64, high: f64) -> Self {
        Self { results: [low, high], ..self }
    }

    /// Results of at least this number.
    fn from(self, low: f64) -> Self {
        self.results(low, f64::INFINITY)
    }

    /// The largest magnitude that a result can be, whatever the operands; infinite if there is none.
    pub fn most(&self) -> f64 {
        self.results[0].abs().max(self.results[1].abs())
    }
}

impl Op {
    /// The facts of the operation.
    pub(crate) fn info(&self) -> OpInfo {
        use {Examples::*, Gradient::*, ResultFormat::*, Work::*};
        match self {
            Self::Input(_) => OpInfo::given("input"),
            Self::Constant(_) => OpInfo::given("constant"),
            Self::Parameter(_) => OpInfo::given("parameter"),
            Self::Positions { .. } => {
                OpInfo::given("positions").format(Integer).work(Function).from(0.0)
            }
            Self::Conv(_) => OpInfo::product("conv"),
            Self::ConvTranspose { .. } => OpInfo::product("conv-transpose"),
            Self::ConvWeightGrad(_) => {
                OpInfo::product("conv-weight-grad").examples(Combined).gradient(Undefined)
            }
            Self::MatMul { .. } => OpInfo::product("matmul"),
            Self::Linear(linear) => {
                let name = match (&linear.map, linear.finish) {
                    (LinearMap::Conv(_), LinearFinish::Relu) => "conv+relu",
                    (LinearMap::Conv(_), _) => "conv",
                    (LinearMap::ConvTranspose { .. }, _) => "conv-transpose",
                    (LinearMap::MatMul { .. }, LinearFinish::Relu) => "linear+relu",
                    (LinearMap::MatMul { .. }, _) => "linear",
                    (LinearMap::ConvWeightGrad(_), _) => "conv-weight-grad",
                    (LinearMap::Mul, LinearFinish::Relu) => "scale+relu",
                    (LinearMap::Mul, _) => "scale",
                };
                let operands = linear.operands();
                let info = OpInfo::product(name).format(Planned).operands(operands..=operands);
                let info = info.gradient(Undefined);
                if linear.finish == LinearFinish::Relu { info.from(0.0) } else { info }
            }
            Self::Unary(function) => function.info(),
            Self::Binary(function) => function.info(),
            Self::Mask => OpInfo::exact("mask")
                .operands(2..=2)
                .examples(Aligned)
                .work(Select)
                .gradient(ZeroBy(1)),
            Self::Where => OpInfo::exact("where")
                .format(FinestFrom(1))
                .operands(3..=3)
                .examples(Aligned)
                .work(Select)
                .gradient(ZeroBy(0)),
            &Self::Softmax { axis, log: false } => {
                OpInfo::approximated("softmax", 17.0).examples(Along(axis)).results(0.0, 1.0)
            }
            &Self::Softmax { axis, log: true } => {
                OpInfo::approximated("log-softmax", 17.0).examples(Along(axis))
            }
            &Self::Normalize { axis, .. } => {
                OpInfo::approximated("normalize", 18.0).examples(Along(axis))
            }
            Self::BatchNorm(_) => {
                OpInfo::rounded("batch-norm").operands(5..=5).examples(Combined).gradient(Undefined)
            }
            Self::Dropout(_) => OpInfo::exact("dropout").examples(Combined),
            Self::Lrn { .. } => {
                OpInfo::approximated("lrn", 15.0).examples(AboveRank(2)).gradient(Undefined)
            }
            // Windows lie in the last two axes.
            Self::MaxPool(_) => OpInfo::exact("max-pool").examples(AboveRank(2)).work(Many),
            Self::MaxPoolGrad(_) => OpInfo::exact("max-pool-grad")
                .operands(2..=2)
                .format(OfOperand(1))
                .examples(ByOperands)
                .work(Many)
                .gradient(Undefined),
            Self::AvgPool { .. } => OpInfo::rounded("avg-pool").examples(AboveRank(2)).work(Many),
            Self::SumPool(_) => {
                OpInfo::exact("sum-pool").examples(AboveRank(2)).work(Many).filling_words()
            }
            Self::Reduce { kind, axes, .. } => {
                kind.info(axes.first().copied().unwrap_or(usize::MAX))
            }
            Self::Dot(_) => OpInfo::rounded("dot").operands(2..=2).examples(ByOperands).work(Sum),
            &Self::ArgMax { axis, .. } => OpInfo::integer("argmax")
                .examples(Along(axis))
                .work(Tournament)
                .gradient(Zero)
                .from(0.0),
            Self::Draw => OpInfo::integer("draw")
                .examples(AboveRank(0))
                .work(Tournament)
                .gradient(Zero)
                .from(0.0),
            Self::Lookup => OpInfo::exact("lookup")
                .operands(2..=2)
                .examples(ByOperands)
                .work(Many)
                .gradient(ZeroBy(1)),
            Self::OneHot(_) => {
                OpInfo::integer("one-hot").work(Select).gradient(Zero).results(0.0, 1.0)
            }
            Self::Reshape(_) => OpInfo::view("reshape", Apart),
            Self::Permute(_) => OpInfo::view("permute", ByOperands),
            &Self::Slice { axis, .. } => OpInfo::view("slice", Along(axis)),
            &Self::Window { axis, .. } => OpInfo::view("window", Along(axis)).gradient(Undefined),
            &Self::Gather { axis, .. } => OpInfo::view("gather", Along(axis)),
            Self::Pad { .. } => OpInfo::view("pad", ByOperands),
            Self::Broadcast(_) => OpInfo::view("broadcast", ByOperands),
            Self::Concat(_) => {
                OpInfo::view("concat", ByOperands).operands(1..=usize::MAX).format(FinestFrom(0))
            }
            &Self::Scale(factor) => {
                OpInfo::rounded("times-public").format(Scaled(factor)).work(Select).filling_words()
            }
            Self::ScaleBy(_) => OpInfo::rounded("times-public")
                .operands(2..=2)
                .examples(Combined)
                .work(Select)
                .filling_words()
                .gradient(Undefined),
            Self::Cast => OpInfo::rounded("cast").work(Select).filling_words(),
            Self::Confine(_) => OpInfo::rounded("confine").work(Select).gradient(Undefined),
            Self::ClipFactor { .. } => {
                OpInfo::new("clip-factor", Exactness::Approximated(9.0), Planned)
                    .operands(1..=usize::MAX)
                    .examples(Combined)
                    .work(Sum)
                    .gradient(Undefined)
                    .results(0.0, 1.0)
            }
            Self::Crew { op, .. } => {
                let name = match op {
                    CrewOp::SumScattered => "crew-sum-scattered",
                    CrewOp::Stretch => "crew-stretch",
                    CrewOp::Gather(_) => "crew-gather",
                    CrewOp::Sum => "crew-sum",
                    CrewOp::First => "crew-first",
                };
                let sums = matches!(op, CrewOp::SumScattered | CrewOp::Sum);
                let info = OpInfo::view(name, Combined).gradient(Undefined);
                let work = if sums { Sum } else { Move };
                OpInfo { moves_elements: !sums, fills_words: sums, work, ..info }
            }
        }
    }

    /// A name for errors and profiles.
    pub fn name(&self) -> &'static str {
        self.info().name
    }

    /// True if the value is there before anything runs.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::Input(_) | Self::Constant(_) | Self::Parameter(_))
    }

    /// True if its attributes grow with the cached positions.
    pub(crate) fn grows(&self) -> bool {
        let grows = |dim: &Dim| matches!(dim, Dim::Past { .. });
        match self {
            Self::Reshape(dims) | Self::Broadcast(dims) => dims.iter().any(grows),
            Self::Slice { end, .. } => grows(end),
            Self::Window { start, end, .. } => grows(start) || grows(end),
            Self::Positions { from, to } => grows(from) || grows(to),
            _ => false,
        }
    }
}

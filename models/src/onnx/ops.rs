//! Operators of ONNX in terms of the network's own operations.

pub(crate) mod attention;
pub(crate) mod boxes;
pub(crate) mod cast;
pub(crate) mod choose;
pub(crate) mod control;
pub(crate) mod conv;
pub(crate) mod deep;
pub(crate) mod einsum;
pub(crate) mod folded;
pub(crate) mod fourier;
pub(crate) mod image;
pub(crate) mod lists;
pub(crate) mod losses;
pub(crate) mod masks;
pub(crate) mod math;
pub(crate) mod microsoft;
pub(crate) mod norm;
pub(crate) mod pick;
pub(crate) mod places;
pub(crate) mod quantise;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod sample;
pub(crate) mod shape;
pub(crate) mod svm;
pub(crate) mod tables;
pub(crate) mod trees;
pub(crate) mod trigonometry;
pub(crate) mod whole;

use nn_layers::ValueId;

use super::dtype;
use super::node::Node;
use super::value::Value;
use crate::Result;

/// The function that imports an operator: its results, one for each output.
#[derive(Clone, Copy)]
pub(crate) enum Import {
    /// Of tensors, whose element types [`result_kind`] knows.
    Tensors(fn(&mut Node<'_, '_>) -> Result<Vec<ValueId>>),
    /// Of values of any sort.
    Values(fn(&mut Node<'_, '_>) -> Result<Vec<Value>>),
}

use Import::{Tensors, Values};

/// Every operator that is understood, those of other domains with their domain.
const OPERATORS: &[(&str, Import)] = &[
    // Linear maps and windows.
    ("Conv", Tensors(conv::conv)),
    ("ConvTranspose", Tensors(conv::conv_transpose)),
    ("MaxPool", Tensors(conv::max_pool)),
    ("AveragePool", Tensors(conv::average_pool)),
    ("GlobalAveragePool", Tensors(conv::global_average)),
    ("GlobalMaxPool", Tensors(conv::global_max)),
    ("LpPool", Tensors(conv::norm_pool)),
    ("GlobalLpPool", Tensors(conv::global_norm)),
    ("Gemm", Tensors(math::gemm)),
    ("MatMul", Tensors(math::matmul)),
    ("Einsum", Tensors(einsum::einsum)),
    // Normalisations.
    ("BatchNormalization", Tensors(norm::batch)),
    ("LayerNormalization", Tensors(norm::layer)),
    ("InstanceNormalization", Tensors(norm::instance)),
    ("GroupNormalization", Tensors(norm::group)),
    ("LRN", Tensors(norm::lrn)),
    ("RMSNormalization", Tensors(norm::root_mean_square)),
    ("LpNormalization", Tensors(norm::by_length)),
    ("MeanVarianceNormalization", Tensors(norm::mean_variance)),
    ("Dropout", Tensors(norm::dropout)),
    // Functions of elements.
    ("Relu", Tensors(math::unary)),
    ("Sigmoid", Tensors(math::unary)),
    ("Tanh", Tensors(math::unary)),
    ("Erf", Tensors(math::unary)),
    ("HardSwish", Tensors(math::unary)),
    ("Softplus", Tensors(math::unary)),
    ("Softsign", Tensors(math::unary)),
    ("Exp", Tensors(math::unary)),
    ("Log", Tensors(math::unary)),
    ("Sqrt", Tensors(math::unary)),
    ("Reciprocal", Tensors(math::unary)),
    ("Neg", Tensors(math::unary)),
    ("Abs", Tensors(math::unary)),
    ("Sign", Tensors(math::unary)),
    ("Sin", Tensors(math::unary)),
    ("Cos", Tensors(math::unary)),
    ("Not", Tensors(math::unary)),
    ("Floor", Tensors(math::unary)),
    ("LeakyRelu", Tensors(math::unary)),
    ("HardSigmoid", Tensors(math::unary)),
    ("Elu", Tensors(math::unary)),
    ("Selu", Tensors(math::unary)),
    ("Gelu", Tensors(math::unary)),
    ("Celu", Tensors(math::celu)),
    ("Ceil", Tensors(whole::ceil)),
    ("IsNaN", Tensors(math::is_nan)),
    ("IsInf", Tensors(math::is_inf)),
    ("Round", Tensors(whole::round)),
    ("ThresholdedRelu", Tensors(math::thresholded)),
    ("Shrink", Tensors(math::shrink)),
    ("Tan", Tensors(trigonometry::trigonometry)),
    ("Asin", Tensors(trigonometry::trigonometry)),
    ("Acos", Tensors(trigonometry::trigonometry)),
    ("Atan", Tensors(trigonometry::trigonometry)),
    ("Sinh", Tensors(trigonometry::trigonometry)),
    ("Cosh", Tensors(trigonometry::trigonometry)),
    ("Asinh", Tensors(trigonometry::trigonometry)),
    ("Acosh", Tensors(trigonometry::trigonometry)),
    ("Atanh", Tensors(trigonometry::trigonometry)),
    ("Mish", Tensors(math::mish)),
    ("Clip", Tensors(math::clip)),
    ("PRelu", Tensors(math::prelu)),
    ("Softmax", Tensors(math::softmax)),
    ("LogSoftmax", Tensors(math::softmax)),
    ("Pow", Tensors(math::pow)),
    // Functions of several operands.
    ("Add", Tensors(math::binary)),
    ("Sub", Tensors(math::binary)),
    ("Mul", Tensors(math::binary)),
    ("Div", Tensors(math::binary)),
    ("Less", Tensors(math::binary)),
    ("LessOrEqual", Tensors(math::binary)),
    ("Greater", Tensors(math::binary)),
    ("GreaterOrEqual", Tensors(math::binary)),
    ("Equal", Tensors(math::binary)),
    ("And", Tensors(math::binary)),
    ("Or", Tensors(math::binary)),
    ("Xor", Tensors(math::binary)),
    ("Max", Tensors(math::variadic)),
    ("Min", Tensors(math::variadic)),
    ("Sum", Tensors(math::variadic)),
    ("Mean", Tensors(math::variadic)),
    ("Mod", Tensors(whole::modulo)),
    ("Where", Tensors(math::select)),
    ("BitShift", Tensors(folded::bits)),
    ("BitwiseAnd", Tensors(folded::bits)),
    ("BitwiseOr", Tensors(folded::bits)),
    ("BitwiseXor", Tensors(folded::bits)),
    ("BitwiseNot", Tensors(folded::bits)),
    ("SoftmaxCrossEntropyLoss", Tensors(losses::cross_entropy)),
    ("NegativeLogLikelihoodLoss", Tensors(losses::negative_log_likelihood)),
    // Quantised models.
    ("DynamicQuantizeLinear", Tensors(quantise::dynamic)),
    ("DequantizeLinear", Tensors(quantise::dequantize)),
    ("QuantizeLinear", Tensors(quantise::quantize)),
    ("MatMulInteger", Tensors(quantise::integers)),
    ("ConvInteger", Tensors(quantise::integers)),
    ("QLinearMatMul", Tensors(quantise::quantised_product)),
    ("QLinearConv", Tensors(quantise::quantised_product)),
    // Reductions.
    ("ReduceSum", Tensors(reduce::reduce)),
    ("ReduceMean", Tensors(reduce::reduce)),
    ("ReduceMax", Tensors(reduce::reduce)),
    ("ReduceMin", Tensors(reduce::reduce)),
    ("ReduceSumSquare", Tensors(reduce::reduce)),
    ("ReduceL1", Tensors(reduce::reduce)),
    ("ReduceL2", Tensors(reduce::reduce)),
    ("ReduceLogSum", Tensors(reduce::reduce)),
    ("ReduceLogSumExp", Tensors(reduce::reduce)),
    ("ReduceProd", Tensors(reduce::reduce)),
    ("ArgMax", Tensors(choose::arg)),
    ("ArgMin", Tensors(choose::arg)),
    ("CumSum", Tensors(reduce::running_sum)),
    ("CumProd", Tensors(choose::running_product)),
    ("TopK", Tensors(choose::top)),
    ("NonMaxSuppression", Tensors(boxes::non_max_suppression)),
    ("OneHot", Tensors(choose::one_hot)),
    ("Hardmax", Tensors(choose::hardmax)),
    // Sequences and attention.
    ("LSTM", Tensors(recurrent::layer)),
    ("GRU", Tensors(recurrent::layer)),
    ("RNN", Tensors(recurrent::layer)),
    ("Attention", Tensors(attention::attention)),
    ("RotaryEmbedding", Tensors(attention::rotary)),
    ("Swish", Tensors(attention::swish)),
    ("SwiGLU", Tensors(attention::swish)),
    ("CausalConvWithState", Tensors(attention::causal_conv)),
    ("LinearAttention", Tensors(attention::linear)),
    // Moving elements.
    ("Reshape", Tensors(shape::reshape)),
    ("Flatten", Tensors(shape::flatten)),
    ("Transpose", Tensors(shape::transpose)),
    ("Squeeze", Tensors(shape::squeeze)),
    ("Unsqueeze", Tensors(shape::unsqueeze)),
    ("Expand", Tensors(shape::expand)),
    ("Concat", Tensors(shape::concat)),
    ("Split", Tensors(shape::split)),
    ("Slice", Tensors(shape::slice)),
    ("Pad", Tensors(shape::pad)),
    ("Tile", Tensors(shape::tile)),
    ("Trilu", Tensors(shape::trilu)),
    ("Resize", Tensors(resize::resize)),
    ("Upsample", Tensors(resize::resize)),
    ("GridSample", Tensors(sample::grid_sample)),
    ("AffineGrid", Tensors(sample::affine_grid)),
    ("RoiAlign", Tensors(sample::roi_align)),
    ("MaxUnpool", Tensors(places::unpool)),
    ("DepthToSpace", Tensors(image::blocks)),
    ("SpaceToDepth", Tensors(image::blocks)),
    ("CenterCropPad", Tensors(image::center_crop_pad)),
    ("ReverseSequence", Tensors(image::reverse_sequence)),
    ("Compress", Tensors(image::compress)),
    ("Col2Im", Tensors(image::col2im)),
    ("EyeLike", Tensors(image::eye_like)),
    ("Gather", Tensors(pick::gather)),
    ("GatherElements", Tensors(pick::gather_elements)),
    ("GatherND", Tensors(pick::gather_nd)),
    ("ScatterElements", Tensors(pick::scatter_elements)),
    ("ScatterND", Tensors(pick::scatter_nd)),
    ("Scatter", Tensors(pick::scatter_elements)),
    ("TensorScatter", Tensors(pick::tensor_scatter)),
    ("NonZero", Tensors(folded::non_zero)),
    ("Unique", Tensors(folded::unique)),
    // Shapes and constants.
    ("Shape", Tensors(shape::shape)),
    ("Size", Tensors(shape::size)),
    ("Range", Tensors(shape::range)),
    ("HannWindow", Tensors(folded::window)),
    ("HammingWindow", Tensors(folded::window)),
    ("BlackmanWindow", Tensors(folded::window)),
    ("MelWeightMatrix", Tensors(folded::mel)),
    ("DFT", Tensors(fourier::dft)),
    ("STFT", Tensors(fourier::stft)),
    ("Constant", Tensors(shape::constant)),
    ("ConstantOfShape", Tensors(shape::constant_of_shape)),
    ("Cast", Tensors(cast::cast)),
    ("CastLike", Tensors(cast::cast)),
    ("Identity", Values(control::identity)),
    // Branches, loops and lists.
    ("If", Values(control::branch)),
    ("Loop", Values(control::repeat)),
    ("Scan", Values(control::scan)),
    ("SequenceConstruct", Values(lists::construct)),
    ("SequenceEmpty", Values(lists::empty)),
    ("SequenceInsert", Values(lists::insert)),
    ("SequenceErase", Values(lists::erase)),
    ("SequenceAt", Values(lists::at)),
    ("SequenceLength", Values(lists::length)),
    ("SequenceMap", Values(lists::map)),
    ("SplitToSequence", Values(lists::split)),
    ("ConcatFromSequence", Values(lists::concat)),
    ("Optional", Values(lists::optional)),
    // Models of tables.
    ("ai.onnx.ml.Scaler", Tensors(tables::scaler)),
    ("ai.onnx.ml.Normalizer", Tensors(tables::normalizer)),
    ("ai.onnx.ml.Binarizer", Tensors(tables::binarizer)),
    ("ai.onnx.ml.Imputer", Tensors(tables::imputer)),
    ("ai.onnx.ml.FeatureVectorizer", Tensors(tables::feature_vector)),
    ("ai.onnx.ml.ArrayFeatureExtractor", Tensors(tables::extractor)),
    ("ai.onnx.ml.LinearRegressor", Tensors(tables::linear_regressor)),
    ("ai.onnx.ml.LinearClassifier", Tensors(tables::linear_classifier)),
    ("ai.onnx.ml.SVMRegressor", Tensors(svm::regressor)),
    ("ai.onnx.ml.SVMClassifier", Tensors(svm::classifier)),
    ("ai.onnx.ml.TreeEnsemble", Tensors(trees::ensemble)),
    ("ai.onnx.ml.TreeEnsembleRegressor", Tensors(trees::regressor)),
    ("ai.onnx.ml.TreeEnsembleClassifier", Tensors(trees::classifier)),
    ("ai.onnx.ml.OneHotEncoder", Tensors(tables::one_hot_encoder)),
    ("ai.onnx.ml.LabelEncoder", Tensors(tables::label_encoder)),
    ("ai.onnx.ml.ZipMap", Values(tables::zip_map)),
    // Fused operators of onnxruntime's optimiser.
    ("com.microsoft.Attention", Tensors(microsoft::attention::with_projection)),
    ("com.microsoft.BiasGelu", Tensors(microsoft::gelu)),
    ("com.microsoft.DequantizeLinear", Tensors(quantise::dequantize)),
    ("com.microsoft.DynamicQuantizeMatMul", Tensors(microsoft::quantised::dynamic_matmul)),
    ("com.microsoft.EmbedLayerNormalization", Tensors(microsoft::embedding_norm)),
    ("com.microsoft.FastGelu", Tensors(microsoft::gelu)),
    ("com.microsoft.FusedConv", Tensors(microsoft::fused_conv)),
    ("com.microsoft.FusedGemm", Tensors(microsoft::fused_gemm)),
    ("com.microsoft.FusedMatMul", Tensors(microsoft::fused_matmul)),
    ("com.microsoft.Gelu", Tensors(microsoft::gelu)),
    ("com.microsoft.GridSample", Tensors(sample::grid_sample)),
    ("com.microsoft.GroupQueryAttention", Tensors(microsoft::attention::grouped)),
    ("com.microsoft.MatMulIntegerToFloat", Tensors(microsoft::quantised::matmul_to_float)),
    ("com.microsoft.MultiHeadAttention", Tensors(microsoft::attention::multi_head)),
    ("com.microsoft.QAttention", Tensors(microsoft::attention::quantised)),
    ("com.microsoft.QGemm", Tensors(microsoft::quantised::gemm)),
    ("com.microsoft.QLinearAdd", Tensors(microsoft::quantised::pairs)),
    ("com.microsoft.QLinearAveragePool", Tensors(microsoft::quantised::average_pool)),
    ("com.microsoft.QLinearConcat", Tensors(microsoft::quantised::concat)),
    ("com.microsoft.QLinearGlobalAveragePool", Tensors(microsoft::quantised::global_average)),
    ("com.microsoft.QLinearLeakyRelu", Tensors(microsoft::quantised::function)),
    ("com.microsoft.QLinearMul", Tensors(microsoft::quantised::pairs)),
    ("com.microsoft.QLinearSigmoid", Tensors(microsoft::quantised::function)),
    ("com.microsoft.QLinearSoftmax", Tensors(microsoft::quantised::softmax)),
    ("com.microsoft.QuantizeLinear", Tensors(quantise::quantize)),
    ("com.microsoft.QuickGelu", Tensors(microsoft::quick_gelu)),
    ("com.microsoft.RotaryEmbedding", Tensors(microsoft::attention::rotary)),
    ("com.microsoft.SimplifiedLayerNormalization", Tensors(microsoft::simple_norm)),
    ("com.microsoft.SkipLayerNormalization", Tensors(microsoft::skip_norm)),
    ("com.microsoft.SkipSimplifiedLayerNormalization", Tensors(microsoft::skip_norm)),
    // onnxruntime has put this one into ONNX's own domain.
    ("SimplifiedLayerNormalization", Tensors(microsoft::simple_norm)),
    ("OptionalHasElement", Values(lists::has_element)),
    ("OptionalGetElement", Values(lists::get_element)),
];

/// The import of an operator.
pub(crate) fn lookup(operator: &str) -> Option<Import> {
    OPERATORS.iter().find(|(name, _)| *name == operator).map(|(_, import)| *import)
}

/// The names of all operators that are understood.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|(name, _)| *name)
}

/// True if integers of few bits wrap around in the results of an operator.
pub(crate) fn wraps(operator: &str) -> bool {
    matches!(operator, "Add" | "Sub" | "Mul" | "Neg" | "Sum" | "Pow" | "CumSum" | "BitShift")
        || operator.starts_with("Reduce")
}

/// The element type of result number `i`.
pub(crate) fn result_kind(n: &Node<'_, '_>, i: usize, id: ValueId) -> i32 {
    let attribute = |name: &str, default: i32| match n.attributes.int(name, 0) as i32 {
        0 => default,
        kind => kind,
    };
    match (n.operator, i) {
        ("Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Equal", _) => dtype::BOOL,
        ("And" | "Or" | "Xor" | "Not" | "IsNaN" | "IsInf" | "Dropout", 1..) => dtype::BOOL,
        ("And" | "Or" | "Xor" | "Not" | "IsNaN" | "IsInf", _) => dtype::BOOL,
        ("Shape" | "Size" | "ArgMax" | "ArgMin" | "NonZero" | "NonMaxSuppression", _) => {
            dtype::INT64
        }
        ("TopK" | "MaxPool" | "Unique", 1..) => dtype::INT64,
        ("Cast", _) => attribute("to", dtype::FLOAT),
        ("CastLike" | "Where", _) => n.kind(1),
        ("OneHot", _) => n.kind(2),
        ("Constant" | "ConstantOfShape", _) => {
            let other = if n.to.is_integer(id) { dtype::INT64 } else { dtype::FLOAT };
            n.attributes.kind_of("value").unwrap_or(other)
        }
        ("EyeLike" | "Bernoulli" | "RandomUniformLike", _) => attribute("dtype", n.kind(0)),
        ("HannWindow" | "HammingWindow" | "BlackmanWindow" | "MelWeightMatrix", _) => {
            attribute("output_datatype", dtype::FLOAT)
        }
        ("ConvInteger" | "MatMulInteger", _) => dtype::INT32,
        ("LinearClassifier" | "TreeEnsembleClassifier" | "SVMClassifier", 0) => dtype::INT64,
        ("LinearClassifier" | "TreeEnsembleClassifier" | "SVMClassifier", _) => dtype::FLOAT,
        ("OneHotEncoder", _) => dtype::FLOAT,
        ("LabelEncoder", _) if n.to.is_integer(id) => dtype::INT64,
        ("LabelEncoder", _) => dtype::FLOAT,
        ("QuantizeLinear", _) if n.optional(2).is_some() => n.kind(2),
        ("QuantizeLinear", _) => attribute("output_dtype", dtype::UINT8),
        ("DequantizeLinear", _) => attribute("output_dtype", n.kind(1)),
        ("QLinearMatMul" | "QLinearConv", _) => n.kind(7),
        ("DynamicQuantizeLinear", 0 | 2) => dtype::UINT8,
        ("QLinearConcat", _) => n.kind(1),
        ("QGemm", _) if n.optional(7).is_none() => dtype::FLOAT,
        ("MatMulIntegerToFloat" | "QAttention", _) => dtype::FLOAT,
        ("EmbedLayerNormalization", 1) => dtype::INT32,
        ("EmbedLayerNormalization", _) => n.kind(2),
        _ => n.kind(0),
    }
}

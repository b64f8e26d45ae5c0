"""Translations of ATen calls into operations of ONNX."""

import math

import numpy as np

from ._aten import OPS, op
from ._errors import InputError
from ._record import Batch, Ref

#: An index beyond every end.
_MOST = (1 << 63) - 1

# -- the same numbers ------------------------------------------------------------------------------


@op("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "native_dropout", "feature_dropout", "lift_fresh", "copy")
def _same(t, x, *_, **__):
    return t.name(x)


@op("dropout")
def _dropout(t, x, part, *_):
    return t.node("Dropout", [x, float(part)]) if part else t.name(x)


@op("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_copy")
def _view(t, x, *_):
    return t.like_result(x)


@op("as_strided", "as_strided_copy")
def _as_strided(t, x, size, stride, offset=None):
    # PyTorch calls it where a tensor of single pixels gets another order in memory.
    shape = t.shape(x)
    wide = [(n, s) for n, s in zip(shape, stride) if n != 1]
    lengths, steps = [n for n, _ in wide], [s for _, s in wide]
    in_rows = len(wide) <= 2 and steps == [*lengths[1:], 1][: len(wide)]
    if list(t.result.shape) != shape or offset or not in_rows:
        raise InputError("it reads the memory of a tensor, of which secret arrays have none; take reshape, permute or slices")
    return t.name(x)


@op("_to_copy", "to", "type_as", "_to_dtype")
def _cast(t, x, *_, **__):
    kind = t.result.kind
    if kind == t.value(x).kind:
        return t.name(x)
    return t.node("Cast", [x], to={"f": 1, "i": 7, "b": 9}[kind])


# -- sums, products, functions ---------------------------------------------------------------------


@op("add")
def _add(t, x, y, alpha=1):
    return _sum(t, "Add", x, y, alpha)


@op("sub", "subtract")
def _sub(t, x, y, alpha=1):
    return _sum(t, "Sub", x, y, alpha)


@op("rsub")
def _rsub(t, x, y, alpha=1):
    return _sum(t, "Sub", y, x, alpha)


def _sum(t, operator, x, y, alpha):
    y = y if alpha == 1 else t.node("Mul", [y, alpha])
    return t.node(operator, [x, y])


@op("mul")
def _mul(t, x, y):
    if t.result.kind == "b":
        return t.node("And", [x, y])
    return t.node("Mul", [x, y])


@op("div", "true_divide")
def _div(t, x, y, rounding_mode=None):
    if rounding_mode is not None and t.result.kind == "f":
        raise InputError("a rounded quotient of real numbers is not offered")
    if not isinstance(y, Ref) and rounding_mode is None:
        return t.node("Mul", [x, 1.0 / y])
    if rounding_mode is None and not t.real(x) and not t.real(y):
        x = t.node("Cast", [x], to=11)
    return t.node("Div", [x, y])


@op("floor_divide")
def _floor_divide(t, x, y):
    return _div(t, x, y, "floor")


@op("remainder", "fmod")
def _remainder(t, x, y):
    return t.node("Mod", [x, y])


@op("pow")
def _pow(t, x, y):
    return t.node("Pow", [x, y])


@op("square")
def _square(t, x):
    return t.node("Mul", [x, x])


@op("rsqrt")
def _rsqrt(t, x):
    return t.node("Pow", [x, -0.5])


@op("log1p")
def _log1p(t, x):
    return t.node("Log", [t.node("Add", [x, 1.0])])


@op("expm1")
def _expm1(t, x):
    return t.node("Sub", [t.node("Exp", [x]), 1.0])


@op("hypot")
def _hypot(t, x, y):
    square = t.node("Add", [t.node("Mul", [x, x]), t.node("Mul", [y, y])])
    return t.node("Sqrt", [square])


@op("log2")
def _log2(t, x):
    return t.node("Mul", [t.node("Log", [x]), 1.0 / math.log(2.0)])


_ELEMENTWISE = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "erf": "Erf", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "reciprocal": "Reciprocal", "neg": "Neg", "abs": "Abs", "sign": "Sign", "sin": "Sin", "cos": "Cos", "floor": "Floor",
    "ceil": "Ceil", "mish": "Mish", "hardswish": "HardSwish", "isnan": "IsNaN", "atan": "Atan",
}
for _name, _operator in _ELEMENTWISE.items():
    OPS[_name] = lambda t, x, _operator=_operator: t.node(_operator, [x])


@op("gelu")
def _gelu(t, x, approximate="none"):
    return t.node("Gelu", [x], approximate=approximate)


@op("silu")
def _silu(t, x):
    return t.node("Mul", [x, t.node("Sigmoid", [x])])


@op("hardsigmoid")
def _hardsigmoid(t, x):
    return t.node("HardSigmoid", [x], alpha=1.0 / 6.0, beta=0.5)


@op("leaky_relu")
def _leaky_relu(t, x, slope=0.01):
    return t.node("LeakyRelu", [x], alpha=float(slope))


@op("elu")
def _elu(t, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if input_scale != 1:
        raise InputError("an input scale is not offered")
    if scale != 1:
        return t.node("Selu", [x], alpha=float(alpha), gamma=float(scale))
    return t.node("Elu", [x], alpha=float(alpha))


@op("celu")
def _celu(t, x, alpha=1.0):
    return t.node("Celu", [x], alpha=float(alpha))


@op("softplus")
def _softplus(t, x, beta=1.0, threshold=20.0):
    if beta == 1:
        return t.node("Softplus", [x])
    return t.node("Mul", [t.node("Softplus", [t.node("Mul", [x, float(beta)])]), 1.0 / beta])


@op("prelu", "_prelu_kernel")
def _prelu(t, x, slope):
    shape = t.shape(slope)
    if len(shape) == 1 and shape[0] != 1:
        slope = t.shaped(slope, [shape[0], *[1] * (len(t.shape(x)) - 2)])
    return t.node("PRelu", [x, slope])


@op("clamp", "clip", "clamp_min", "clamp_max")
def _clamp(t, x, min=None, max=None):
    if isinstance(min, Ref) or isinstance(max, Ref):
        y = t.name(x) if min is None else t.node("Max", [x, min])
        return y if max is None else t.node("Min", [y, max])
    return t.node("Clip", [x, *(None if v is None else float(v) for v in (min, max))])


@op("hardtanh")
def _hardtanh(t, x, low=-1.0, high=1.0):
    return t.node("Clip", [x, float(low), float(high)])


@op("relu6")
def _relu6(t, x):
    return t.node("Clip", [x, 0.0, 6.0])


@op("minimum", "min.other")
def _minimum(t, x, y):
    return t.node("Min", [x, y])


@op("maximum", "max.other")
def _maximum(t, x, y):
    return t.node("Max", [x, y])


# -- comparisons -----------------------------------------------------------------------------------

_COMPARISONS = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal"}
for _name, _operator in _COMPARISONS.items():
    OPS[_name] = lambda t, x, y, _operator=_operator: t.node(_operator, [x, y])


@op("ne")
def _ne(t, x, y):
    return t.node("Not", [t.node("Equal", [x, y])])


def _truth(t, x):
    return t.name(x) if t.value(x).kind == "b" else t.node("Not", [t.node("Equal", [x, 0])])


@op("logical_not", "bitwise_not")
def _not(t, x):
    if t.result.kind != "b":
        raise InputError("bits of integers are not offered")
    return t.node("Not", [x]) if t.value(x).kind == "b" else t.node("Equal", [x, 0])


_CONNECTIVES = {"and": "And", "or": "Or", "xor": "Xor"}
for _name, _operator in _CONNECTIVES.items():
    def _connective(t, x, y, _operator=_operator):
        if t.result.kind != "b":
            raise InputError("bits of integers are not offered")
        return t.node(_operator, [_truth(t, x), _truth(t, y)])

    for _packet in (f"logical_{_name}", f"bitwise_{_name}", f"__{_name}__"):
        OPS[_packet] = _connective


@op("where")
def _where(t, condition, x, y):
    return t.node("Where", [condition, x, y])


@op("masked_fill")
def _masked_fill(t, x, mask, value):
    return t.node("Where", [mask, value, x])


# -- products --------------------------------------------------------------------------------------


@op("mm", "bmm", "matmul", "mv", "dot")
def _matmul(t, x, y):
    return t.node("MatMul", [x, y])


@op("addmm", "baddbmm")
def _addmm(t, bias, x, y, beta=1, alpha=1):
    product = t.node("MatMul", [x, y])
    product = product if alpha == 1 else t.node("Mul", [product, alpha])
    bias = bias if beta == 1 else t.node("Mul", [bias, beta])
    return t.node("Add", [product, bias])


@op("linear")
def _linear(t, x, weight, bias=None):
    shape = t.shape(x)
    rows = t.name(x) if len(shape) == 2 else t.node("Reshape", [x, t.ints([-1, shape[-1]])])
    y = t.node("Gemm", [rows, weight, bias] if bias is not None else [rows, weight], transB=1)
    return y if len(shape) == 2 else t.like_result(y)


@op("convolution")
def _convolution(t, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    window = {"strides": stride, "pads": [*padding, *padding], "dilations": dilation, "group": groups}
    if transposed:
        y = t.node("ConvTranspose", [x, weight], output_padding=output_padding, **window)
    else:
        y = t.node("Conv", [x, weight], **window)
    if bias is None:
        return y
    return t.node("Add", [y, t.shaped(bias, [t.shape(bias)[0], *[1] * len(stride)])])


@op("scaled_dot_product_attention")
def _attention(t, query, key, value, mask=None, dropout=0.0, is_causal=False, scale=None, enable_gqa=False, **more):
    mask = more.get("attn_mask", mask)
    shape, keys = t.shape(query), t.shape(key)
    if enable_gqa and keys[-3] != shape[-3]:
        times = shape[-3] // keys[-3]
        key, value = (t.node("Gather", [x, t.ints([i // times for i in range(shape[-3])])], axis=len(shape) - 3) for x in (key, value))
    rank = len(keys)
    turned = t.transposed(key, [*range(rank - 2), rank - 1, rank - 2])
    factor = 1.0 / math.sqrt(shape[-1]) if scale is None else float(scale)
    scores = t.node("MatMul", [t.node("Mul", [query, factor]), turned])
    if is_causal:
        seen = np.tril(np.ones((shape[-2], keys[-2]), bool))
        scores = t.node("Where", [t.fixed(seen), scores, -math.inf])
    if mask is not None and t.value(mask).kind == "b":
        scores = t.node("Where", [mask, scores, -math.inf])
    elif mask is not None:
        scores = t.node("Add", [scores, mask])
    return t.node("MatMul", [t.node("Softmax", [scores], axis=-1), value])


# -- normalisation ---------------------------------------------------------------------------------


def _or_ones(t, x, shape, one=1.0):
    return t.fixed(np.full(shape, one, np.float32)) if x is None else x


@op("_native_batch_norm_legit_no_training", "native_batch_norm", "batch_norm", "cudnn_batch_norm")
def _batch_norm(t, x, weight, bias, mean, variance, *rest):
    momentum, epsilon = [float(v) for v in rest if not isinstance(v, bool)][-2:]
    channels = t.shape(mean)
    parameters = [_or_ones(t, weight, channels), _or_ones(t, bias, channels, 0.0), mean, variance]
    # ONNX counts the part that stays.
    return [t.node("BatchNormalization", [x, *parameters], epsilon=epsilon, momentum=1.0 - momentum)]


@op("native_layer_norm")
def _native_layer_norm(t, x, shape, weight, bias, epsilon):
    return [_layer_norm(t, x, shape, weight, bias, epsilon)]


@op("layer_norm")
def _layer_norm(t, x, shape, weight=None, bias=None, epsilon=1e-5, *_):
    operands = [x, _or_ones(t, weight, shape)] + ([] if bias is None else [bias])
    return t.node("LayerNormalization", operands, axis=-len(shape), epsilon=float(epsilon))


@op("rms_norm")
def _rms_norm(t, x, shape, weight=None, epsilon=None):
    epsilon = float(np.finfo(np.float32).eps) if epsilon is None else float(epsilon)
    axes = t.ints([-1 - i for i in range(len(shape))])
    mean = t.node("ReduceMean", [t.node("Mul", [x, x]), axes], keepdims=1)
    y = t.node("Mul", [x, t.node("Pow", [t.node("Add", [mean, epsilon]), -0.5])])
    return y if weight is None else t.node("Mul", [y, weight])


@op("native_group_norm")
def _group_norm(t, x, weight, bias, batch, channels, size, groups, epsilon):
    operands = [x, _or_ones(t, weight, [channels]), _or_ones(t, bias, [channels], 0.0)]
    return [t.node("GroupNormalization", operands, num_groups=groups, epsilon=float(epsilon))]


@op("instance_norm")
def _instance_norm(t, x, weight, bias, mean, variance, use_input_stats, momentum, epsilon, *_):
    if not use_input_stats:
        raise InputError("instance normalisation by running statistics is not offered")
    channels = [t.shape(x)[1]]
    operands = [x, _or_ones(t, weight, channels), _or_ones(t, bias, channels, 0.0)]
    return t.node("InstanceNormalization", operands, epsilon=float(epsilon))


@op("_softmax", "softmax")
def _softmax(t, x, axis, *_):
    return t.node("Softmax", [x], axis=t.axis(x, axis))


@op("_log_softmax", "log_softmax")
def _log_softmax(t, x, axis, *_):
    return t.node("LogSoftmax", [x], axis=t.axis(x, axis))


# -- windows ---------------------------------------------------------------------------------------


def _window(t, x, kernel, stride, padding, dilation=None):
    """Attributes of a window over all dimensions but batch and channels."""
    d = len(t.shape(x)) - 2
    wide = lambda v: list(v) * d if len(v) == 1 else list(v)
    kernel, pads = wide(kernel), wide(padding)
    window = {"kernel_shape": kernel, "strides": wide(stride) if stride else kernel, "pads": pads + pads}
    return window | ({"dilations": wide(dilation)} if dilation else {})


@op("max_pool2d", "max_pool1d")
def _max_pool(t, x, kernel, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
    return t.node("MaxPool", [x], ceil_mode=int(ceil_mode), **_window(t, x, kernel, stride, padding, dilation))


@op("max_pool2d_with_indices")
def _max_pool_with_indices(t, *args, **kwargs):
    return [_max_pool(t, *args, **kwargs)]


@op("avg_pool2d", "avg_pool1d")
def _avg_pool(t, x, kernel, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None):
    if divisor_override is not None:
        raise InputError("a divisor of one's own is not offered")
    window = _window(t, x, kernel, stride, padding)
    return t.node("AveragePool", [x], ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad), **window)


@op("_adaptive_avg_pool2d", "adaptive_avg_pool2d", "adaptive_avg_pool1d")
def _adaptive_avg_pool(t, x, size):
    sizes = t.shape(x)[-len(size) :]
    if list(size) == sizes:
        return t.name(x)
    rank = len(t.shape(x))
    if all(n == 1 for n in size):
        return t.node("ReduceMean", [x, t.ints(list(range(rank - len(size), rank)))], keepdims=1)
    if all(n % m == 0 for n, m in zip(sizes, size)):
        kernel = [n // m for n, m in zip(sizes, size)]
        return t.node("AveragePool", [x], kernel_shape=kernel, strides=kernel)
    y = t.name(x)
    for axis, (n, m) in enumerate(zip(sizes, size), rank - len(size)):
        means = []
        for i in range(m):
            part = _slice(t, y, axis, i * n // m, -(-(i + 1) * n // m))
            means.append(t.node("ReduceMean", [part, t.ints([axis])], keepdims=1))
        y = means[0] if m == 1 else t.node("Concat", means, axis=axis)
    return y


@op("adaptive_max_pool2d", "adaptive_max_pool1d")
def _adaptive_max_pool(t, x, size):
    sizes = t.shape(x)[-len(size) :]
    if all(n % m == 0 for n, m in zip(sizes, size)):
        kernel = [n // m for n, m in zip(sizes, size)]
        return [t.node("MaxPool", [x], kernel_shape=kernel, strides=kernel)]
    y = t.name(x)
    for axis, (n, m) in enumerate(zip(sizes, size), len(t.shape(x)) - len(size)):
        parts = [_slice(t, y, axis, i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
        parts = [t.node("ReduceMax", [part, t.ints([axis])], keepdims=1) for part in parts]
        y = parts[0] if m == 1 else t.node("Concat", parts, axis=axis)
    return [y]


def _resized(t, x, size, scales, **attributes):
    axes = list(range(2, len(t.shape(x))))
    if scales:
        return t.node("Resize", [x, None, t.fixed(np.array(scales, np.float32))], axes=axes, **attributes)
    return t.node("Resize", [x, None, None, t.ints(size)], axes=axes, **attributes)


@op("upsample_nearest1d", "upsample_nearest2d")
def _nearest(t, x, size, scales=None):
    return _resized(t, x, size, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@op("upsample_linear1d", "upsample_bilinear2d")
def _linear_between(t, x, size, align_corners, scales=None):
    places = "align_corners" if align_corners else "half_pixel"
    return _resized(t, x, size, scales, mode="linear", coordinate_transformation_mode=places)


@op("upsample_bicubic2d")
def _cubic_between(t, x, size, align_corners, scales=None):
    places = "align_corners" if align_corners else "half_pixel"
    return _resized(t, x, size, scales, mode="cubic", coordinate_transformation_mode=places)


# -- reductions ------------------------------------------------------------------------------------


def _over(operator):
    def reduce(t, x, axes=None, keep=False, *_, **__):
        axes = [axes] if isinstance(axes, int) else axes
        axes = list(range(len(t.shape(x)))) if not axes else [t.axis(x, a) for a in axes]
        return t.node(operator, [x, t.ints(axes)], keepdims=int(keep))

    return reduce


for _name, _operator in {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin",
                         "any": "ReduceMax", "all": "ReduceMin", "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp"}.items():
    OPS[_name] = _over(_operator)


OPS["max.default"], OPS["min.default"] = _over("ReduceMax"), _over("ReduceMin")


@op("linalg_vector_norm")
def _vector_norm(t, x, order=2.0, axes=None, keep=False, **_):
    if order in (math.inf, -math.inf):
        axes = list(range(len(t.shape(x)))) if not axes else [t.axis(x, a) for a in ([axes] if isinstance(axes, int) else axes)]
        return t.node("ReduceMax" if order > 0 else "ReduceMin", [t.node("Abs", [x]), t.ints(axes)], keepdims=int(keep))
    operator = {1.0: "ReduceL1", 2.0: "ReduceL2"}.get(float(order))
    if operator is None:
        raise InputError(f"a norm of order {order} is not offered; 1, 2 and infinity are")
    return _over(operator)(t, x, axes, keep)


@op("max.dim")
def _max_dim(t, x, axis, keep=False):
    return [_over("ReduceMax")(t, x, axis, keep), _argmax(t, x, axis, keep)]


@op("min.dim")
def _min_dim(t, x, axis, keep=False):
    return [_over("ReduceMin")(t, x, axis, keep), _argmin(t, x, axis, keep)]


@op("argmax")
def _argmax(t, x, axis=None, keep=False, operator="ArgMax"):
    if axis is None:
        x, axis = t.shaped(x, [-1]), 0
        return t.node(operator, [x], axis=0, keepdims=0)
    return t.node(operator, [x], axis=t.axis(x, axis), keepdims=int(keep))


@op("argmin")
def _argmin(t, x, axis=None, keep=False):
    return _argmax(t, x, axis, keep, "ArgMin")


@op("var")
def _var(t, x, axes=None, correction=1, keepdim=False, **_):
    shape = t.shape(x)
    axes = list(range(len(shape))) if not axes else [t.axis(x, a) for a in axes]
    if any(isinstance(shape[a], Batch) for a in axes):
        raise InputError("a variance over the batch is not offered")
    count = math.prod(shape[a] for a in axes)
    mean = t.node("ReduceMean", [x, t.ints(axes)], keepdims=1)
    centred = t.node("Sub", [x, mean])
    y = t.node("ReduceMean", [t.node("Mul", [centred, centred]), t.ints(axes)], keepdims=int(keepdim))
    correction = 1 if correction is None else correction
    return y if correction == 0 else t.node("Mul", [y, count / (count - correction)])


@op("cumprod")
def _cumprod(t, x, axis, **_):
    return t.node("CumProd", [x, axis])


@op("topk")
def _topk(t, x, k, axis=-1, largest=True, sorted=True):  # noqa: A002 - PyTorch's name
    t.count += 1
    names = [f"TopK values {t.count}", f"TopK places {t.count}"]
    return t.node("TopK", [x, t.ints([k])], names, axis=t.axis(x, axis), largest=int(largest), sorted=int(sorted))


@op("sort")
def _sort(t, x, axis=-1, descending=False, **more):
    axis = t.axis(x, axis)
    return _topk(t, x, t.shape(x)[axis], axis, more.get("descending", descending))


@op("cumsum")
def _cumsum(t, x, axis, **_):
    x = x if t.value(x).kind != "b" else t.node("Cast", [x], to=7)
    return t.node("CumSum", [x, axis])


# -- places ----------------------------------------------------------------------------------------


@op("permute")
def _permute(t, x, axes):
    return t.transposed(x, [t.axis(x, a) for a in axes])


@op("transpose")
def _transpose(t, x, one, other):
    axes = list(range(len(t.shape(x))))
    one, other = t.axis(x, one), t.axis(x, other)
    axes[one], axes[other] = other, one
    return t.transposed(x, axes)


@op("t")
def _t(t, x):
    return t.name(x) if len(t.shape(x)) < 2 else t.transposed(x, [1, 0])


@op("expand", "expand_copy", "broadcast_to")
def _expand(t, x, *_, **__):
    shape, to = t.shape(x), list(t.result.shape)
    if shape == to:
        return t.name(x)
    padded = [1] * (len(to) - len(shape)) + shape
    # Axes that keep their length are given as 1.
    to = [1 if a == b else b for a, b in zip(padded, to)]
    if len(to) > len(shape):
        x = t.shaped(x, padded)
    return t.node("Expand", [x, t.ints(to)])


@op("repeat")
def _repeat(t, x, times):
    shape = t.shape(x)
    if len(times) > len(shape):
        x = t.shaped(x, [1] * (len(times) - len(shape)) + shape)
    if any(isinstance(n, Batch) for n in times):
        # Only an axis of length 1 can be repeated with the batch.
        ones = [1] * (len(times) - len(shape)) + shape
        if any(isinstance(n, Batch) and d != 1 for n, d in zip(times, ones)):
            raise InputError("it repeats what is there several times as often as the batch is large")
        x = t.node("Expand", [x, t.ints([n if isinstance(n, Batch) else 1 for n in times])])
        times = [1 if isinstance(n, Batch) else n for n in times]
    return t.node("Tile", [x, t.ints(times)])


@op("cat", "concat", "concatenate")
def _cat(t, parts, axis=0):
    parts = [p for p in parts if t.shape(p) != [0]]
    return t.node("Concat", parts, axis=t.axis(parts[0], axis))


@op("stack")
def _stack(t, parts, axis=0):
    rank = len(t.result.shape)
    axis %= rank
    shape = [1 if i == axis else d for i, d in enumerate(t.result.shape)]
    return t.node("Concat", [t.shaped(p, shape) for p in parts], axis=axis)


def _slice(t, x, axis, start, end, step=1):
    bounds = [t.ints([v]) for v in (start, end, axis, step)]
    return t.node("Slice", [x, *bounds])


@op("slice", "slice_copy")
def _slice_of(t, x, axis=0, start=None, end=None, step=1):
    start, end = 0 if start is None else start, _MOST if end is None else end
    if start == 0 and step == 1 and (end == t.shape(x)[axis] or end == _MOST):
        return t.name(x)
    return _slice(t, x, t.axis(x, axis), start, end, step)


@op("slice_scatter")
def _slice_scatter(t, x, part, axis=0, start=None, end=None, step=1):
    axis = t.axis(x, axis)
    length = t.shape(x)[axis]
    if step != 1 or isinstance(length, Batch):
        raise InputError("it replaces every other place, or places of the batch")
    start, end = (length + v if v < 0 else min(v, length) for v in (start or 0, length if end is None else end))
    parts = [_slice(t, x, axis, 0, start)] if start else []
    parts += [t.name(part)] + ([_slice(t, x, axis, end, length)] if end < length else [])
    return parts[0] if len(parts) == 1 else t.node("Concat", parts, axis=axis)


@op("narrow")
def _narrow(t, x, axis, start, length):
    return _slice(t, x, t.axis(x, axis), start, start + length)


@op("select", "select_copy")
def _select(t, x, axis, index):
    return t.node("Gather", [x, index], axis=t.axis(x, axis))


@op("split_with_sizes", "split_with_sizes_copy")
def _split(t, x, sizes, axis=0):
    axis, start, parts = t.axis(x, axis), 0, []
    for size in sizes:
        parts.append(_slice(t, x, axis, start, start + size))
        start += size
    return parts


@op("split", "chunk")
def _split_evenly(t, x, size, axis=0):
    n = t.shape(x)[t.axis(x, axis)]
    return _split(t, x, [min(size, n - i) for i in range(0, n, size)], axis)


@op("unbind")
def _unbind(t, x, axis=0):
    axis = t.axis(x, axis)
    return [t.node("Gather", [x, i], axis=axis) for i in range(t.shape(x)[axis])]


@op("flip")
def _flip(t, x, axes):
    y = t.name(x)
    for axis in axes:
        y = _slice(t, y, t.axis(x, axis), _MOST, -_MOST, -1)
    return y


@op("index_select")
def _index_select(t, x, axis, places):
    return t.node("Gather", [x, places], axis=t.axis(x, axis))


@op("embedding")
def _embedding(t, weight, places, *_):
    return t.node("Gather", [weight, places], axis=0)


@op("gather")
def _gather(t, x, axis, places, *_, **__):
    table, axis = t.known(x), t.axis(x, axis)
    # A list of integers that is repeated for each row, as BERT's kinds of tokens are.
    if table is not None and table.dtype.kind in "iu" and table.size == table.shape[axis]:
        first = int(table.flat[0])
        if (table == first).all():
            return t.node("Add", [t.node("Mul", [places, 0]), first])
        return t.node("Gather", [t.ints(table.ravel().tolist()), places], axis=0)
    return t.node("GatherElements", [x, places], axis=axis)


def _flat(t, x, places):
    """Public index arrays on adjacent axes as one: the first axis, the axes' sizes, and the places through them."""
    at = [i for i, p in enumerate(places) if p is not None]
    known = [t.known(places[i]) for i in at]
    sizes = [t.shape(x)[i] for i in at]
    if at != list(range(at[0], at[0] + len(at))) or any(k is None or k.dtype.kind not in "iu" for k in known):
        return None
    if any(isinstance(size, Batch) for size in sizes):
        return None
    flat = np.ravel_multi_index(np.broadcast_arrays(*known), sizes, mode="wrap") if len(at) > 1 else known[0] % sizes[0]
    return at[0], sizes, flat


def _one_axis(t, x, axis, count):
    """Some axes as one."""
    shape = t.shape(x)
    return [*shape[:axis], math.prod(shape[axis : axis + count]), *shape[axis + count :]]


@op("index")
def _index(t, x, places):
    at = [i for i, p in enumerate(places) if p is not None]
    if len(at) == 1 and t.value(places[at[0]]).kind != "b":
        return t.node("Gather", [x, places[at[0]]], axis=at[0])
    flat = _flat(t, x, places)
    if flat is not None:
        axis, sizes, picked = flat
        y = t.shaped(x, _one_axis(t, x, axis, len(sizes)))
        return t.node("Gather", [y, t.fixed(picked.astype(np.int64))], axis=axis)
    if at != list(range(len(at))) or any(t.value(places[i]).kind == "b" for i in at):
        raise InputError("index arrays on axes that do not come first, and masks, are not offered")
    rank = max(len(t.shape(places[i])) for i in at)
    shape = [1] * rank
    for i in at:
        dims = [1] * (rank - len(t.shape(places[i]))) + t.shape(places[i])
        shape = [a if b == 1 else b for a, b in zip(shape, dims)]
    columns = []
    for i in at:
        spread = t.node("Expand", [places[i], t.ints(shape)])
        columns.append(t.node("Unsqueeze", [spread, t.ints([rank])]))
    return t.node("GatherND", [x, t.node("Concat", columns, axis=rank)])


def _put(t, x, axis, length, places, new, add):
    """Replaces the numbers at public places along an axis, or adds to them."""
    if not add:
        picked = np.arange(length)
        picked[places] = length + np.arange(len(places))
        return t.node("Gather", [t.node("Concat", [x, new], axis=axis), t.fixed(picked)], axis=axis)
    # Each pass takes one number for a place, and a zero for places that get none.
    borders = [0] * (2 * len(t.result.shape))
    borders[len(t.result.shape) + axis] = 1
    padded = t.node("Pad", [new, t.ints(borders), 0.0])
    y, left = x, np.arange(len(places))
    while left.size:
        first = left[np.unique(places[left], return_index=True)[1]]
        picked = np.full(length, len(places))
        picked[places[first]] = first
        y = t.node("Add", [y, t.node("Gather", [padded, t.fixed(picked)], axis=axis)])
        left = np.setdiff1d(left, first)
    return y


@op("index_put", "_unsafe_index_put")
def _index_put(t, x, places, new, accumulate=False):
    flat = _flat(t, x, places)
    if flat is None:
        raise InputError("numbers are put at public places, along axes beside each other")
    axis, sizes, at = flat
    shape = t.shape(x)
    spread = [*shape[:axis], *at.shape, *shape[axis + len(sizes) :]]
    behind = _one_axis(t, x, axis, len(sizes))
    if not isinstance(new, Ref) or t.shape(new) != spread:
        new = t.node("Expand", [new, t.ints(spread)])
    new = t.shaped(new, [*shape[:axis], at.size, *shape[axis + len(sizes) :]])
    y = t.name(x) if behind == shape else t.shaped(x, behind)
    if len(t.result.shape) != len(behind):
        t.result = type(t.result)(tuple(behind), t.result.kind)
    y = _put(t, y, axis, behind[axis], at.ravel(), new, accumulate)
    return y if behind == shape else t.shaped(y, shape)


def _along(t, x, axis, places):
    """Places that are the same along all axes but one, or None."""
    known = t.known(places)
    if known is None or known.ndim != len(t.shape(x)) or any(n != 1 for i, n in enumerate(known.shape) if i != axis):
        return None
    return known.ravel() % t.shape(x)[axis]


def _scattered(t, x, axis, places, new, add):
    axis = t.axis(x, axis)
    at, shape = _along(t, x, axis, places), t.shape(x)
    whole = isinstance(new, Ref) and [n for i, n in enumerate(t.shape(places)) if i != axis] == [n for i, n in enumerate(shape) if i != axis]
    if at is None or not whole:
        new = new if isinstance(new, Ref) else t.node("Expand", [new, t.ints(t.shape(places))])
        return t.node("ScatterElements", [x, places, new], axis=axis, reduction="add" if add else None)
    new = t.name(new) if t.shape(new)[axis] == len(at) else _slice(t, new, axis, 0, len(at))
    return _put(t, t.name(x), axis, shape[axis], at, new, add)


@op("scatter")
def _scatter(t, x, axis, places, new, reduce=None):
    if reduce is not None:
        raise InputError("scatter_add is offered, other reductions are not")
    return _scattered(t, x, axis, places, new, False)


@op("scatter_add")
def _scatter_add(t, x, axis, places, new):
    return _scattered(t, x, axis, places, new, True)


@op("index_add")
def _index_add(t, x, axis, places, new, alpha=1):
    new = new if alpha == 1 else t.node("Mul", [new, alpha])
    axis, at = t.axis(x, axis), t.known(places)
    if at is None:
        raise InputError("numbers are added at public places")
    return _put(t, t.name(x), axis, t.shape(x)[axis], at.ravel() % t.shape(x)[axis], new, True)


@op("unfold")
def _windows(t, x, axis, size, step):
    axis, rank = t.axis(x, axis), len(t.shape(x))
    count = (t.shape(x)[axis] - size) // step + 1
    y = t.node("Gather", [x, t.fixed(np.add.outer(np.arange(count) * step, np.arange(size)))], axis=axis)
    return t.transposed(y, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


@op("diagonal", "diagonal_copy")
def _diagonal(t, x, offset=0, one=0, other=1):
    shape, rank = t.shape(x), len(t.shape(x))
    one, other = t.axis(x, one), t.axis(x, other)
    rest = [i for i in range(rank) if i not in (one, other)]
    rows, columns = shape[one], shape[other]
    places = [i * columns + i + offset for i in range(rows) if 0 <= i + offset < columns]
    y = t.shaped(t.transposed(x, [*rest, one, other]), [*(shape[i] for i in rest), rows * columns])
    return t.node("Gather", [y, t.ints(places)], axis=len(rest))


@op("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(t, weight, places, offsets, scaled=False, mode=0, sparse=False, factors=None, *_, **__):
    (bags, _), (count,) = t.result.shape, t.shape(places)
    size = lambda n: n.times if isinstance(n, Batch) else n
    known = t.known(offsets)
    each = size(count) // size(bags)
    if size(count) % size(bags) or factors is not None or known is not None and np.any(known != np.arange(len(known)) * each):
        raise InputError("bags have as many places each, and no factors of their own")
    rows = t.node("Gather", [weight, t.node("Reshape", [places, t.ints([-1, each])])], axis=0)
    return [t.node(("ReduceSum", "ReduceMean", "ReduceMax")[mode], [rows, t.ints([1])], keepdims=0)]


@op("_trilinear")
def _trilinear(t, x, weight, y, new_x, new_weight, new_y, summed, unroll=1):
    """The sum over axes of three factors, each with separate new axes."""
    factors = [t.node("Unsqueeze", [v, t.ints(new)]) if new else t.name(v) for v, new in ((x, new_x), (weight, new_weight), (y, new_y))]
    product = t.node("Mul", [t.node("Mul", factors[:2]), factors[2]])
    return t.node("ReduceSum", [product, t.ints(summed)], keepdims=0)


@op("constant_pad_nd")
def _pad(t, x, borders, value=0.0):
    rank = len(t.shape(x))
    before, after = [0] * rank, [0] * rank
    for i in range(len(borders) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = borders[2 * i], borders[2 * i + 1]
    if min(before + after) < 0:
        raise InputError("a negative border is not offered")
    return t.node("Pad", [x, t.ints(before + after), float(value)])


@op("tril")
def _lower(t, x, diagonal=0):
    return t.node("Trilu", [x, diagonal], upper=0)


@op("triu")
def _upper(t, x, diagonal=0):
    return t.node("Trilu", [x, diagonal], upper=1)


# -- numbers that are made -------------------------------------------------------------------------


@op("arange")
def _arange(t, *bounds, **_):
    start, end, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    if any(isinstance(v, Batch) for v in bounds):
        return t.node("Range", [start, end, step])
    kind = np.float32 if t.result.kind == "f" else np.int64
    return t.fixed(np.arange(start, end, step).astype(kind))


def _filled(t, shape, value):
    kind = np.float64 if t.result.kind == "f" else np.int64
    if not shape:
        return t.number(float(value) if kind == np.float64 else int(value))
    return t.node("ConstantOfShape", [t.ints(shape)], value=np.array([value], kind))


@op("full", "new_full")
def _full(t, *args, **_):
    return _filled(t, list(t.result.shape), args[-1])


@op("full_like", "fill")
def _full_like(t, x, value, **_):
    return _filled(t, list(t.result.shape), value)


@op("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty")
def _zeros(t, *_, **__):
    return _filled(t, list(t.result.shape), 0)


@op("ones", "ones_like", "new_ones")
def _ones(t, *_, **__):
    return _filled(t, list(t.result.shape), 1)


@op("scalar_tensor")
def _scalar(t, value, **_):
    return _filled(t, [], value)

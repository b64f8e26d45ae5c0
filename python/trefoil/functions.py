"""The functions of the library below, under its own names.

NumPy's names (``np.exp(x)``, ``x @ y``) do for most programs. Here is what NumPy does not have, and every
function with its exact form: operands are secret arrays, and public ones where the library takes them, in
the session's fraction bits. Reductions leave their axes with length 1.

Domain, error and cost of each are those that its documentation states; bits are for each number, of all
parties together, at the width of a product's result.
"""

import numpy as np

from ._errors import InputError
from ._secret import _BOOL, _INT, Secret, _axes, _axis, _plain, _promoted

_PRODUCTS = {"mul": 0, "matmul": 1, "conv2d": 2, "conv2d_input_grad": 3, "conv2d_weight_grad": 4}


def _call(name, operands, params=None, dtype=None, frac=None):
    mpc = next((x._mpc for x in operands if isinstance(x, Secret)), None)
    if mpc is None:
        raise InputError(f"{name}: no operand is secret")
    handles = []
    for x in operands:
        if isinstance(x, Secret):
            if x._mpc is not mpc:
                raise InputError("the secret arrays belong to different sessions")
            handles.append(x._handle)
        else:
            array = _plain(x)
            handles.append(mpc._public(array, mpc._frac(array.dtype) if frac is None else frac))
    kinds = [x.dtype if isinstance(x, Secret) else _plain(x).dtype for x in operands]
    dtype = dtype or _promoted(*kinds)
    made = mpc._session.call(name, handles, params)
    return [Secret(mpc, handle, dtype) for handle in made]


def _one(*args, **kwargs):
    return _call(*args, **kwargs)[0]


def _same_format(name, doc, dtype=None):
    def function(x, y):
        one = x if isinstance(x, Secret) else y
        if not isinstance(one, Secret):
            raise InputError(f"{name}: no operand is secret")
        frac = one._handle.frac
        return _one(name, [x, y], None, dtype, frac)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _of_one(name, doc, dtype=None, real=True):
    def function(x):
        x = x._real() if real else x
        return _one(name, [x], None, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


add = _same_format("add", "``x + y``, broadcast. Nothing is sent.")
sub = _same_format("sub", "``x - y``, broadcast. Nothing is sent.")
lt = _same_format("lt", "``x < y``: exact. 6 rounds, 394 bits.", _BOOL)
le = _same_format("le", "``x <= y``: exact. 6 rounds, 394 bits.", _BOOL)
gt = _same_format("gt", "``x > y``: exact. 6 rounds, 394 bits.", _BOOL)
ge = _same_format("ge", "``x >= y``: exact. 6 rounds, 394 bits.", _BOOL)
eq = _same_format("eq", "``x == y``: exact. 7 rounds, 369 bits.", _BOOL)
ne = _same_format("ne", "``x != y``: exact. 7 rounds, 369 bits.", _BOOL)

neg = _of_one("neg", "``-x``. Nothing is sent.", real=False)
is_negative = _of_one("is_negative", "``x < 0``: exact. 6 rounds, 394 bits.", _BOOL, False)
sign = _of_one("sign", "-1, 0 or 1, as integers. 6 rounds, 784 bits.", _INT, False)
abs = _of_one("abs", "``|x|``: exact. 6 rounds, 456 bits.", real=False)
relu = _of_one("relu", "``max(0, x)``: exact. 6 rounds, 456 bits.", real=False)
relu6 = _of_one("relu6", "``x`` limited to 0..6. 6 rounds, 916 bits.")
square = _of_one("square", "``x * x``: one unit in the last place. 2 rounds, 252 bits.", real=False)
exp = _of_one("exp", "``e^x``: error below ``2^-16 max(1, e^x) + 2^-18``; ``2^16`` above ``x = 11.09``. 18 rounds, 2279 bits.")
exp_nonpositive = _of_one("exp_nonpositive", "``e^x`` for ``x <= 0``: error below ``2^-19 max(2^-10, e^x)``. 18 rounds, 1868 bits.")
log = _of_one("log", "``ln x`` for ``x > 0``: error below three units and ``2^-19``. 25 rounds, 3659 bits.")
sqrt = _of_one("sqrt", "Square root of ``x >= 0``: relative error below ``2^-19`` and a unit. 29 rounds, 4113 bits.")
inv_sqrt = _of_one("inv_sqrt", "``1 / sqrt(x)`` for ``x > 0``: relative error below ``2^-19`` and a unit. 29 rounds, 4117 bits.")
reciprocal = _of_one("reciprocal", "``1 / x``: relative error below ``2^-19.5`` and two units. 28 rounds, 3936 bits.")
reciprocal_positive = _of_one("reciprocal_positive", "``1 / x`` for ``x > 0``, as reciprocal. 27 rounds, 3582 bits.")
sigmoid = _of_one("sigmoid", "``1 / (1 + e^-x)``. 25 rounds, 4030 bits.")
tanh = _of_one("tanh", "Hyperbolic tangent. 25 rounds, 4029 bits.")
silu = _of_one("silu", "``x sigmoid(x)``. 27 rounds, 4294 bits.")
erf = _of_one("erf", "Error function. 18 rounds, 2481 bits.")
gelu = _of_one("gelu", "``x (1 + erf(x / sqrt 2)) / 2``. 20 rounds, 2694 bits.")
sin = _of_one("sin", "Sine: error below ``2^-18 + 2^(f - 61) |x|``. 14 rounds, 1690 bits.")
cos = _of_one("cos", "Cosine, as sin. 14 rounds, 1690 bits.")


def not_(x):
    """``1 - x`` of truth values. Nothing is sent."""
    return _one("not", [x], None, x.dtype)


def select(condition, x, y):
    """``x`` where the secret truth value is 1, ``y`` where it is 0. 1 round, 192 bits."""
    one = x if isinstance(x, Secret) else y
    if not isinstance(one, Secret):
        return np.where(condition, x, y)
    return _one("select", [condition, x, y], None, one.dtype, one._handle.frac)


def relu_all(*xs):
    """:func:`relu` of several arrays in the same rounds."""
    mpc = xs[0]._mpc
    made = mpc._session.call("relu_all", [x._handle for x in xs], None)
    return [Secret(mpc, handle, _promoted(x.dtype)) for handle, x in zip(made, xs)]


def leaky_relu(x, slope):
    """``x`` where it is at least 0, ``slope * x`` where it is negative. 8 rounds, 595 bits."""
    return _one("leaky_relu", [x._real()], {"slope": float(slope)})


def clamp(x, low, high):
    """``x`` limited to ``low..high``: exact for bounds rounded to the format. 6 rounds, 916 bits."""
    return _one("clamp", [x], {"low": float(low), "high": float(high)})


def one_hot(x, classes):
    """For secret integers, a new last axis with 1 at the integer. 5 rounds, 3504 bits for 16 classes."""
    return _one("one_hot", [x], {"classes": classes}, _INT)


def add_scalar(x, c):
    """``x + c``. Nothing is sent."""
    return _one("add_scalar", [x], {"c": c})


def mul_scalar(x, c):
    """``x * c``: relative error ``2^-19`` of the factor. 2 rounds; none if ``c`` is an integer."""
    return _one("mul_scalar", [x], {"c": c})


def mul_scalar_to(x, c, frac_bits):
    """``x * c`` with other fraction bits, as :func:`mul_scalar`."""
    return _one("mul_scalar_to", [x], {"c": c, "frac": frac_bits}, None if frac_bits == 0 else np.dtype(float))


def div_scalar(x, c):
    """``x / c``, as :func:`mul_scalar`."""
    return _one("div_scalar", [x], {"c": c})


def rescale(x, frac_bits):
    """The same numbers with other fraction bits: more cost nothing, fewer 2 rounds."""
    return _one("rescale", [x], {"frac": frac_bits}, _INT if frac_bits == 0 else np.dtype(float))


def inv_sqrt_to(x, frac_bits):
    """``1 / sqrt(x)`` for ``x > 0`` with other fraction bits than its operand, as :func:`inv_sqrt`."""
    return _one("inv_sqrt_to", [x._real()], {"frac": frac_bits}, np.dtype(float))


def div(x, y):
    """``x / y`` for a secret ``y``: error below ``2^-17 |x / y| + 2^-20 (1 + 2 / |y|)``. 30 rounds, 4146 bits."""
    return _one("div", [x, y._real()], None, np.dtype(float), y._real()._handle.frac)


def pow(x, n):
    """``x^n`` for an integer. Two rounds for each doubling."""
    return _one("pow", [x], {"n": n})


def powf(x, p):
    """``x^p`` for positive ``x``, as ``e^(p ln x)``. 44 rounds, 5843 bits."""
    return _one("powf", [x._real()], {"p": float(p)})


def polynomial(x, coefficients):
    """``c[0] + c[1] x + c[2] x^2 + ..``. One product for each power, in ``ceil(log2 degree)`` levels."""
    return _one("polynomial", [x._real()], {"coefficients": [float(c) for c in coefficients]})


def _along(name, dtype=None, real=False):
    def function(x, axis=-1):
        x = x._real() if real else x
        return _one(name, [x], {"axis": _axis(axis, x.ndim)}, dtype)

    function.__name__ = function.__qualname__ = name
    return function


max = _along("max")
min = _along("min")
argmax = _along("argmax", _INT)
argmin = _along("argmin", _INT)
softmax = _along("softmax", None, True)
log_softmax = _along("log_softmax", None, True)
max.__doc__ = "Largest numbers along an axis, which stays with length 1: ``1 + 5 ceil(log2 k)`` rounds."
min.__doc__ = "Smallest numbers along an axis, as :func:`max`."
argmax.__doc__ = "Places of the largest numbers along an axis, the first among equals."
argmin.__doc__ = "Places of the smallest numbers along an axis, the first among equals."
softmax.__doc__ = "``e^x / sum(e^x)`` along an axis: error below ``2^-17``. 57 rounds for rows of 16."
log_softmax.__doc__ = "The logarithm of :func:`softmax`, without taking it. 53 rounds for rows of 16."


def top1(x, axis=-1):
    """:func:`max` and :func:`argmax` at once."""
    made = x._mpc._session.call("top1", [x._handle], {"axis": _axis(axis, x.ndim)})
    return Secret(x._mpc, made[0], x.dtype), Secret(x._mpc, made[1], _INT)


def _over(name, doc, real=False):
    def function(x, axes=None):
        x = x._real() if real else x
        return _one(name, [x], {"axes": _axes(axes, x.ndim)})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


sum = _over("sum", "Sums over axes. Nothing is sent.")
mean = _over("mean", "Means over axes. Two rounds for each result.", True)
var = _over("var", "Variances over axes: a :func:`sum_squares` and two means.", True)
norm = _over("norm", "Euclidean norms over axes. 31 rounds.", True)
sum_squares = _over("sum_squares", "Sums of squares over axes: one unit in the last place. 4 rounds.")


def normalize(x, axis=-1, epsilon=1e-5):
    """``(x - mean) / sqrt(variance + epsilon)`` over the axes from ``axis`` on. 36 rounds."""
    params = {"axis": _axis(axis, x.ndim), "epsilon": float(epsilon)}
    return _one("normalize", [x._real()], params)


def reshape(x, shape):
    """The same numbers under another shape. Nothing is sent, as by the functions below."""
    return _one("reshape", [x], {"shape": list(shape)}, x.dtype)


def broadcast(x, shape):
    """Repeats axes of length 1, and new leading axes, to a shape."""
    return _one("broadcast", [x], {"shape": list(shape)}, x.dtype)


def permute(x, axes):
    """Axis ``i`` of the result is axis ``axes[i]``."""
    return _one("permute", [x], {"axes": [_axis(a, x.ndim) for a in axes]}, x.dtype)


def transpose(x):
    """Exchanges the last two axes."""
    return _one("transpose", [x], None, x.dtype)


def slice(x, axis, start, end, step=1):
    """Places ``start, start + step, ..`` below ``end`` of one axis."""
    params = {"axis": _axis(axis, x.ndim), "start": start, "end": end, "step": step}
    return _one("slice", [x], params, x.dtype)


def gather(x, axis, indices):
    """The given public places of one axis, in the given order."""
    indices = np.ascontiguousarray(indices, dtype=np.int64)
    return _one("gather", [x], {"axis": _axis(axis, x.ndim), "indices": indices}, x.dtype)


def pad(x, before, after):
    """A border of zeros: ``before[i]`` and ``after[i]`` numbers on axis ``i``."""
    return _one("pad", [x], {"before": list(before), "after": list(after)}, x.dtype)


def concat(xs, axis=0):
    """Concatenates along an axis."""
    return _one("concat", list(xs), {"axis": _axis(axis, xs[0].ndim)}, xs[0].dtype)


def _pair(value):
    return [int(value)] * 2 if np.isscalar(value) else [int(v) for v in value]


def _window(kernel, stride, padding, dilation):
    border = [int(padding)] * 4 if np.isscalar(padding) else [int(p) for p in padding]
    border = border * 2 if len(border) == 2 else border
    return {"kernel": _pair(kernel), "stride": _pair(stride), "padding": border, "dilation": _pair(dilation)}


def windows(x, kernel, stride=1, padding=0, dilation=1):
    """``[.., H, W]`` to ``[.., kh * kw, OH, OW]``: what lies under each position of a window."""
    return _one("windows", [x], _window(kernel, stride, padding, dilation), x.dtype)


def window_sum(x, kernel, stride=1, padding=0, dilation=1):
    """``[.., H, W]`` to ``[.., OH, OW]``: sums under a window. Nothing is sent."""
    return _one("window_sum", [x], _window(kernel, stride, padding, dilation))


def max_pool(x, kernel, stride=None, padding=0, dilation=1):
    """The largest number under a window; a border never wins. A tournament of the window's numbers."""
    return _one("max_pool", [x], _window(kernel, kernel if stride is None else stride, padding, dilation))


def mul(x, y):
    """``x * y``, broadcast: ``|x * y| < 2^(62 - 2f)``. 2 rounds, 252 bits; with integers 1 round."""
    return _one("mul", [x, y])


def matmul(x, y):
    """Matrix product ``[.., m, k] x [.., k, n]``. 2 rounds, 252 bits for each result."""
    return _one("matmul", [x, y])


def conv2d(x, weight, stride=1, padding=0, dilation=1, groups=1):
    """Convolution of ``[N, C, H, W]`` with ``[O, C / groups, kh, kw]``. 2 rounds, 252 bits for each result."""
    params = _window(weight.shape[-2:], stride, padding, dilation) | {"groups": groups}
    return _one("conv2d", [x, weight], params)


def _product(op, kwargs):
    if op not in _PRODUCTS:
        raise InputError(f"there is no product `{op}`; there are {', '.join(_PRODUCTS)}")
    params = {"op": _PRODUCTS[op]}
    if op == "matmul":
        for flag in ("transpose_lhs", "transpose_rhs"):
            params[flag] = int(kwargs.pop(flag, False))
    elif op != "mul":
        window = [kwargs.pop(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
        params |= _window(kwargs.pop("kernel"), *window) | {"groups": kwargs.pop("groups", 1)}
        if "input" in kwargs:
            params["input"] = _pair(kwargs.pop("input"))
    if kwargs:
        raise TypeError(f"the product `{op}` takes no `{next(iter(kwargs))}`")
    return params


def bilinear(op, x, y, **kwargs):
    """A product of any kind: ``mul``, ``matmul``, ``conv2d``, ``conv2d_input_grad``, ``conv2d_weight_grad``.

    Parameters
    ----------
    op : str
    x, y : Secret or array_like
    transpose_lhs, transpose_rhs : bool
        For ``matmul``: a factor is stored with its last two axes exchanged.
    kernel, stride, padding, dilation, groups
        For convolutions; ``input`` (height and width) for ``conv2d_input_grad``.
    """
    return _one("bilinear", [x, y], _product(op, kwargs))


def multiply(op, x, y, *, plus=None, relu=False, keep=None, **kwargs):
    """:func:`bilinear` with a summand before the rounding, and a ReLU fused with it.

    Parameters
    ----------
    plus : Secret or array_like, optional
        A bias or residual, broadcast to the result: it costs nothing.
    relu : bool
        The ReLU of the result: 6 rounds and 648 bits in all, for 2 and 252 without.
    keep : int, optional
        Fraction bits of the result.
    """
    params = _product(op, kwargs) | {"relu": int(relu)}
    if keep is not None:
        params["keep"] = keep
    operands = [x, y] if plus is None else [x, y, plus]
    return _one("multiply", operands, params)


def constant(mpc, x):
    """A secret array of public numbers. Nothing is sent."""
    array = _plain(x)
    (handle,) = mpc._session.call("constant", [mpc._public(array, mpc._frac(array.dtype))], None)
    return Secret(mpc, handle, array.dtype)

"""The gradients of calls by their operands.

They are separate from those of a training (``nn_layers::graph::grad``). Those add nodes to the graph of a whole step, before any
number is there: one plan is compiled, with formats that hold gradients of a batch's sum and with fused products. A
call of a program is one that has run. Its results are there and are used again, which a graph would compute once more. Graphs lack
operations for most functions of arrays with public operands of any format. Both are tested against PyTorch's or differences.
"""

import math

import numpy as np

from . import _trefoil, functions
from ._errors import InputError
from ._numpy import spread
from ._secret import _DOUBLE, Secret


def parts(node, mpc, handle, g, wanted):
    """The gradients by a call's operands."""
    rule = node.function if callable(node.function) else _RULES.get(node.function)
    if rule is None:
        raise InputError(f"there is no gradient through `{node.function}`; detach() what is behind it, or train a Model by a Trainer")
    def secret(x):
        if isinstance(x, _trefoil.Handle):
            return Secret(mpc, x, _DOUBLE)
        (made,) = mpc._session.call("constant", [x], None)
        constant = Secret(mpc, made, _DOUBLE)
        return constant if constant.frac_bits == 0 else constant._real()

    xs = [secret(x) for x in node.operands]
    made = rule(g, Secret(mpc, handle, _DOUBLE), *xs, **node.params)
    made = made if isinstance(made, list) else [made]
    return [_fit(part, x) if asked and part is not None else None for part, x, asked in zip(made, xs, wanted)]


def _fit(g, x):
    """The sum over the axes that a broadcast has repeated."""
    if g.shape == x.shape:
        return g
    more = g.ndim - x.ndim
    axes = tuple(i for i in range(g.ndim) if i < more or x.shape[i - more] == 1 and g.shape[i] != 1)
    return (g.sum(axes) if axes else g).reshape(x.shape)


def _wide(g, x, axes):
    """A reduced gradient at every element of the operand."""
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    return np.broadcast_to(g.reshape(kept), x.shape)


def _part(g, axis, start, end):
    return g if (start, end) == (0, g.shape[axis]) else g._make("slice", {"axis": axis, "start": start, "end": end, "step": 1})


def _unpadded(g, before, x):
    for axis, start in enumerate(before):
        g = _part(g, axis, start, start + x.shape[axis])
    return g


def _pieces(g, axis, xs):
    ends = np.cumsum([x.shape[axis] for x in xs])
    return [_part(g, axis, int(end) - x.shape[axis], int(end)) for x, end in zip(xs, ends)]


def _extreme(g, y, x, axis):
    there = (x == _wide(y, x, [axis])).astype(np.float64)
    count = there.sum(axis, keepdims=True)
    return there * (g.reshape(count.shape) / count)


def _count(x, axes):
    return math.prod(x.shape[a] for a in axes)


def _turned(x):
    return x.swapaxes(-1, -2)


def _bell(x):
    return np.exp(-(x * x))


def _power(g, x, n):
    if n == 0:
        return g * 0.0
    return g * n if n == 1 else g * (x ** (n - 1)) * n


def _cubed(g, y):
    return g * y * y * y * -0.5


def _gelu(g, x):
    density = np.exp(x * x * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
    return g * ((x * math.sqrt(0.5))._make("erf") * 0.5 + 0.5 + x * density)


def _silu(g, y, x):
    s = x._make("sigmoid")
    return g * (s + y * (1.0 - s))


def _between(x, low, high):
    return ((x > low) * (x < high)).astype(np.float64)


def _multiply(g, y, a, b, *plus, op, **params):
    if params.get("relu"):
        g = g * (y > 0)
    return _PRODUCTS[op](g, a, b, params) + [g for _ in plus]


def _matrices(g, a, b, params):
    first, second = params.get("transpose_lhs"), params.get("transpose_rhs")
    by_a = g @ (b if second else _turned(b))
    by_b = (a if first else _turned(a)) @ g
    return [_turned(by_a) if first else by_a, _turned(by_b) if second else by_b]


def _bilinear(name, x, y, params, **more):
    """A product of the family of a convolution."""
    window = {key: params[key] for key in ("kernel", "stride", "padding", "dilation", "groups")}
    return functions.bilinear(name, x, y, **window, **more)


def _convolved(g, x, weight, params):
    by_x = _bilinear("conv2d_input_grad", g, weight, params, input=x.shape[-2:])
    return [by_x, _bilinear("conv2d_weight_grad", x, g, params)]


def _transposed(g, x, weight, params):
    return [_bilinear("conv2d", g, weight, params), _bilinear("conv2d_weight_grad", g, x, params)]


def _correlated(g, x, y, params):
    return [_bilinear("conv2d_input_grad", y, g, params, input=x.shape[-2:]), _bilinear("conv2d", x, g, params)]


#: By the number of a product: the gradients by its factors.
_PRODUCTS = [lambda g, a, b, params: [g * b, g * a], _matrices, _convolved, _transposed, _correlated]


def _unwindowed(g, x, kernel, picks, **window):
    """The sums, at every number of `x`, of the gradients of the windows' numbers that are made of it."""
    images = math.prod(x.shape[:-2])
    g = g.reshape([images, len(picks), *g.shape[-2:]])
    made = functions.bilinear("conv2d_input_grad", g, picks.reshape(-1, 1, *kernel), kernel=kernel, input=x.shape[-2:], **window)
    return made.reshape(x.shape)


def _windows(g, y, x, kernel, **window):
    return _unwindowed(g, x, kernel, np.eye(math.prod(kernel), dtype=np.int64), **window)


def _window_sum(g, y, x, kernel, **window):
    return _unwindowed(g, x, kernel, np.ones((1, math.prod(kernel)), np.int64), **window)


def _max_pool(g, y, x, **window):
    # The border is never the largest.
    top, left, bottom, right = window["padding"]
    inside = np.pad(np.ones(x.shape[-2:], np.int64), ((top, bottom), (left, right)))
    (kh, kw), (sh, sw), (dh, dw) = window["kernel"], window["stride"], window["dilation"]
    high, wide = y.shape[-2:]
    inside = np.stack([
        inside[i * dh :: sh, j * dw :: sw][:high, :wide] for i in range(kh) for j in range(kw)
    ])
    under = functions.windows(x, **window)
    there = (under == y.reshape([*y.shape[:-2], 1, high, wide])) * inside
    part = g / there.sum(-3)
    return _windows(there * part.reshape([*y.shape[:-2], 1, high, wide]), y, x, **window)


def _normalized(g, y, x, axis, epsilon):
    axes = tuple(range(axis, x.ndim))
    scale = functions.inv_sqrt(x.var(axes, keepdims=True) + epsilon)
    return (g - g.mean(axes, keepdims=True) - y * (g * y).mean(axes, keepdims=True)) * scale


def _polynomial(g, y, x, coefficients):
    slopes = [i * c for i, c in enumerate(coefficients)][1:]
    if len(slopes) < 2:
        return g * (slopes[0] if slopes else 0.0)
    return g * functions.polynomial(x, slopes)


def _vary(g, x, axes):
    mean = x.sum(tuple(axes), keepdims=True) * (1.0 / _count(x, axes))
    return (x - mean) * _wide(g, x, axes) * (2.0 / _count(x, axes))


def _ungathered(g, places, axis, length):
    """The gradient by an axis of which numbers at secret places were taken."""
    count = places.ndim
    rows = np.moveaxis(g, range(axis, axis + count), range(count))
    rows = rows.reshape(places.size, *rows.shape[count:])
    return np.moveaxis(functions.scatter_add(rows, places.reshape(-1), length), 0, axis)


def _softmax(g, y, x, axis):
    return y * (g - (g * y).sum(axis, keepdims=True))


def _log_softmax(g, y, x, axis):
    return g - np.exp(y) * g.sum(axis, keepdims=True)


#: By a function's name: the gradients by its operands, of that by the result, the result, the operands and the parameters.
_RULES = {
    "bound": lambda g, y, x: g, "rescale": lambda g, y, x, frac: g, "add_scalar": lambda g, y, x, c: g,
    "add": lambda g, y, a, b: [g, g], "sub": lambda g, y, a, b: [g, -g], "neg": lambda g, y, x: -g,
    "mul_scalar": lambda g, y, x, c: g * float(c), "mul_scalar_to": lambda g, y, x, c, frac: g * float(c),
    "div_scalar": lambda g, y, x, c: g * (1.0 / c), "mul": lambda g, y, a, b: [g * b, g * a],
    "multiply": _multiply, "bilinear": _multiply, "conv2d": lambda g, y, x, weight, **params: _convolved(g, x, weight, params),
    "windows": _windows, "window_sum": _window_sum, "max_pool": _max_pool, "top1": _extreme, "normalize": _normalized,
    "polynomial": _polynomial,
    "matmul": lambda g, y, a, b: [g @ _turned(b), _turned(a) @ g],
    "div": lambda g, y, a, b: [g / b, -(g * y / b)],
    "reciprocal": lambda g, y, x: -(g * y * y), "reciprocal_positive": lambda g, y, x: -(g * y * y),
    "square": lambda g, y, x: g * x * 2.0, "pow": lambda g, y, x, n: _power(g, x, n), "powf": lambda g, y, x, p: g * (x ** (p - 1.0)) * p,
    "sqrt": lambda g, y, x: g * 0.5 / y, "inv_sqrt": lambda g, y, x: _cubed(g, y),
    "inv_sqrt_to": lambda g, y, x, frac: _cubed(g, y._real()),
    "exp": lambda g, y, x: g * y, "exp_nonpositive": lambda g, y, x: g * y, "log": lambda g, y, x: g / x,
    "sin": lambda g, y, x: g * np.cos(x), "cos": lambda g, y, x: -(g * np.sin(x)),
    "tanh": lambda g, y, x: g * (1.0 - y * y), "sigmoid": lambda g, y, x: g * (y * (1.0 - y)), "silu": _silu,
    "erf": lambda g, y, x: g * _bell(x) * (2.0 / math.sqrt(math.pi)), "gelu": lambda g, y, x: _gelu(g, x),
    "sign": lambda g, y, x: g * 0.0, "abs": lambda g, y, x: g * x._make("sign"), "relu": lambda g, y, x: g * (x > 0),
    "relu6": lambda g, y, x: g * _between(x, 0.0, 6.0), "clamp": lambda g, y, x, low, high: g * _between(x, low, high),
    "leaky_relu": lambda g, y, x, slope: g * ((x > 0).astype(np.float64) * (1.0 - slope) + slope),
    "select": lambda g, y, c, a, b: [None, g * c, g * (1 - c)],
    "sum": lambda g, y, x, axes: _wide(g, x, axes), "mean": lambda g, y, x, axes: _wide(g, x, axes) * (1.0 / _count(x, axes)),
    "sum_squares": lambda g, y, x, axes: x * _wide(g, x, axes) * 2.0, "norm": lambda g, y, x, axes: x * _wide(g / y, x, axes),
    "var": lambda g, y, x, axes: _vary(g, x, axes),
    "max": _extreme, "min": _extreme, "softmax": _softmax, "log_softmax": _log_softmax,
    "reshape": lambda g, y, x, shape: g.reshape(x.shape), "broadcast": lambda g, y, x, shape: g,
    "permute": lambda g, y, x, axes: g.transpose([int(i) for i in np.argsort(axes)]), "transpose": lambda g, y, x: _turned(g),
    "slice": lambda g, y, x, axis, start, end, step: spread(g, axis, x.shape[axis], np.arange(start, end, step)),
    "gather": lambda g, y, x, axis, indices: spread(g, axis, x.shape[axis], indices),
    "gather_at": lambda g, y, x, places, axis, length: [_ungathered(g, places, axis, length), None],
    "scatter_add": lambda g, y, values, places, count: [functions.gather_at(g, places, 0), None],
    "pad": lambda g, y, x, before, after: _unpadded(g, before, x), "concat": lambda g, y, *xs, axis: _pieces(g, axis, xs),
}

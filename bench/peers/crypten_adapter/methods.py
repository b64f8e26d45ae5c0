"""The methods of CrypTen's tensors: NumPy's functions and Trefoil's, under PyTorch's names and arguments."""

import contextlib
import functools
import logging
import math

import numpy as np
from tensor import STATE, BinarySharedTensor, CrypTensor, plain, public_key

import trefoil
from trefoil import functions


def method(function, *names, of=CrypTensor):
    """Makes a function of secret arrays one of tensors, under its names and in place."""

    @functools.wraps(function)
    def call(self, *args, **kwargs):
        with contextlib.nullcontext() if STATE["tracking"] else trefoil.no_grad():
            made = function(plain(self), *map(plain, args), **{key: plain(x) for key, x in kwargs.items()})
        wrap = lambda x: type(self)._of(x, self if function in _VIEWS else None)
        return tuple(map(wrap, made)) if isinstance(made, (tuple, list)) else wrap(made)

    def in_place(self, *args, **kwargs):
        if self.requires_grad:
            raise RuntimeError("a tensor with a gradient is not changed in place")
        self._put(plain(call(self, *args, **kwargs)))
        return self

    for name in names or [function.__name__.strip("_")]:
        setattr(of, name, in_place if name in CHANGING else call)
        if not name.startswith("__") and not hasattr(of, name + "_"):
            setattr(of, name + "_", in_place)
    return function


_VIEWS = set()
#: Operators that put their result in the place of the left operand.
CHANGING = {"__iand__", "__ior__", "__ixor__"}
pair = lambda x: (x, x) if isinstance(x, int) else tuple(x)


def _lengths(shape):
    return shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape


def _one_hot(x, places, dim):
    return np.moveaxis(functions.one_hot(places, x.shape[dim]), -1, dim).astype(np.float32)


def _extreme(name):
    def values(x, dim=None, keepdim=False, one_hot=True):
        if dim is None:
            return getattr(x, name)()
        return getattr(x, name)(dim if x.ndim else None, keepdim), places(x, dim, keepdim, one_hot)

    def places(x, dim=None, keepdim=False, one_hot=True):
        if dim is None or not x.ndim:
            flat = x.reshape(-1)
            at = getattr(flat, "arg" + name)(0)
            return _one_hot(flat, at, 0).reshape(x.shape) if one_hot else at
        at = getattr(x, "arg" + name)(dim, keepdim and not one_hot)
        return _one_hot(x, at, dim) if one_hot else at

    method(values, name)
    method(places, "arg" + name)


def _squeezed(x, dim=None):
    return x.squeeze() if dim is None else x.squeeze(dim) if x.shape[dim] == 1 else x.copy()


def _flattened(x, start_dim=0, end_dim=-1):
    end = end_dim % max(x.ndim, 1) + 1
    return x.reshape(x.shape[:start_dim] + (-1,) + x.shape[end:])


_VIEWS |= {_squeezed, _flattened}


def _places(x, dim, index):
    grids = list(np.indices(index.shape, sparse=True))
    grids[dim] = index
    return tuple(grids)


def _scattered(x, dim, index, src):
    x = x.copy()
    x[_places(x, dim, index)] = src
    return x


def _scatter_added(x, dim, index, src):
    x = x.copy()
    np.add.at(x, _places(x, dim, index), src)
    return x


def _index_added(x, dim, index, src):
    x = x.copy()
    np.add.at(x, (slice(None),) * dim + (index,), src)
    return x


def _split(x, sizes, dim=0):
    sizes = [sizes] * (x.shape[dim] // sizes) + [x.shape[dim] % sizes] * (x.shape[dim] % sizes > 0) if isinstance(sizes, int) else sizes
    if sum(sizes) != x.shape[dim]:
        raise RuntimeError("the sizes do not fill the axis")
    return np.split(x, np.cumsum(sizes)[:-1], dim)


def _padded(x, pad, mode="constant", value=0):
    borders = [(pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)][::-1]
    return np.pad(x, [(0, 0)] * (x.ndim - len(borders)) + borders, constant_values=value)


def _convolved(x, weight, stride=1, padding=0, dilation=1, groups=1):
    return functions.conv2d(x, weight, stride, pair(padding), dilation, groups)


def _transposed(x, weight, stride=1, padding=0, dilation=1, groups=1):
    kernel, sizes = weight.shape[2:], zip(x.shape[2:], weight.shape[2:], pair(stride), pair(padding), pair(dilation))
    whole = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in sizes]
    window = {"kernel": kernel, "stride": stride, "padding": pair(padding), "dilation": dilation, "groups": groups}
    return functions.bilinear("conv2d_input_grad", x, weight, input=whole, **window)


def _in_a_row(convolution):
    def call(x, weight, stride=1, padding=0, dilation=1, groups=1):
        rows = [a.reshape(a.shape[:2] + (1, -1)) for a in (x, weight)]
        y = convolution(*rows, (1, stride), (0, padding), (1, dilation), groups)
        return y.reshape(y.shape[:2] + y.shape[3:])

    return call


def window_of(x, kernel, stride, padding, dilation=1, ceil_mode=False):
    """Kernel, step, borders (more of them at the ends for ceil_mode) and dilation of a window."""
    kernel, padding, dilation = map(pair, (kernel, padding, dilation))
    stride, ends = kernel if stride is None else pair(stride), list(padding)
    for i in range(2):
        free = x.shape[-2 + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1
        # A window starts inside of the picture or its left border.
        if ceil_mode and free % stride[i] and (free // stride[i] + 1) * stride[i] < x.shape[-2 + i] + padding[i]:
            ends[i] += stride[i] - free % stride[i]
    return {"kernel": kernel, "stride": stride, "padding": (*padding, *ends), "dilation": dilation}


def _max_pool(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    window = window_of(x, kernel_size, stride, padding, dilation, ceil_mode)
    y = functions.max_pool(x, **window)
    if not return_indices:
        return y
    # The border is 0, and all numbers of the picture are above.
    under = functions.windows(x - x.min() + 1.0, **window)
    places = functions.one_hot(under.argmax(-3), under.shape[-3])
    return y, places.reshape(y.shape + window["kernel"]).astype(np.float32)


def _avg_pool(x, kernel_size, stride=None, padding=0):
    return functions.window_sum(x, **window_of(x, kernel_size, stride, padding)) / math.prod(pair(kernel_size))


def _adaptive(reduce):
    def call(x, size, return_indices=False):
        for axis, m in zip((-2, -1), pair(size)):
            n = x.shape[axis]
            m = m or n
            x = np.stack([reduce(np.take(x, range(i * n // m, -(-(i + 1) * n // m)), axis), axis) for i in range(m)], axis)
        return (x, x) if return_indices else x

    return call


def _powered(x, p):
    return x ** p if np.ndim(p) == 0 and not isinstance(p, trefoil.Secret) else np.exp(np.log(x) * p)


def _polynomial(x, coefficients):
    total, power = None, x
    for i in range(len(coefficients)):
        power = power * x if i else x
        total = power * coefficients[i] if total is None else total + power * coefficients[i]
    return total


def _norm(x, p="fro", dim=None, keepdim=False):
    x, dim = (x.reshape(-1), 0) if dim is None else (x, dim)
    return np.linalg.norm(x, 2 if p == "fro" else p, dim, keepdim)


def _dropped(feature):
    def call(x, p=0.5, training=True, inplace=False):
        if not training:
            return x.copy()
        shape = x.shape[:2] + (1,) * (x.ndim - 2) if feature else x.shape
        return x * (np.random.random(shape) >= p).astype(np.float32) / (1 - p)

    def logged(self, p=0.5, training=True, inplace=False):
        name = "_feature_dropout" if feature else "dropout"
        if inplace and training:
            logging.warning(f"CrypTen {name} does not support inplace computation during training.")
        return getattr(self, f"plain{name}_" if inplace else f"plain{name}")(p, training)

    method(call, "plain_feature_dropout" if feature else "plaindropout")
    setattr(CrypTensor, "_feature_dropout" if feature else "dropout", logged)


def _crossed(x, target, skip_forward=False):
    return -(x.log_softmax(-1) * target).sum() / len(x)


def _binary_crossed(x, target, skip_forward=False):
    return -np.mean(target * np.log(x) + (1 - target) * np.log(1 - x))


def _rappor(x, target, alpha, skip_forward=False):
    chance = x.sigmoid()
    return _binary_crossed(chance * alpha + (1 - chance) * (1 - alpha), target)


def _cosine(x, y, dim=1, eps=1e-8):
    axis = None if x.ndim == 0 else dim
    return np.sum(x * y, axis) / (np.linalg.norm(x, None, axis) * np.linalg.norm(y, None, axis))


def _batch_normed(x, weight, bias, training=False, eps=1e-5, running_mean=None, running_var=None):
    axes = tuple(i for i in range(x.ndim) if i != 1)
    wide = lambda a: a.reshape([1, -1] + [1] * (x.ndim - 2))
    mean, var = (x.mean(axes), x.var(axes)) if training else (running_mean, running_var)
    return (x - wide(mean)) * wide(functions.inv_sqrt(var + eps)) * wide(weight) + wide(bias)


def _narrowed(x, dim, start, length):
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, start + length),)]


def _unfolded(x, dim, size, step):
    at = np.add.outer(np.arange(0, x.shape[dim] - size + 1, step), np.arange(size))
    return np.moveaxis(np.take(x, at, dim), dim + 1, -1)


def _where(x, condition, y):
    return np.where(condition, x, y)


def _axis_of(x, dim):
    return None if dim is None or not x.ndim else dim


#: Functions of secret arrays by the names of tensors' methods.
TABLE = {
    "add __add__ __radd__ __iadd__": lambda x, y: x + y, "sub __sub__ __isub__": lambda x, y: x - y, "__rsub__": lambda x, y: y - x,
    "mul __mul__ __rmul__ __imul__": lambda x, y: x * y, "div __truediv__ __itruediv__": lambda x, y: x / y,
    "__rtruediv__": lambda x, y: y / x, "matmul __matmul__ __imatmul__": lambda x, y: x @ y, "dot": lambda x, y: x @ y, "ger": np.outer,
    "neg __neg__": lambda x: -x, "abs __abs__": abs, "pow __pow__": lambda x, p: x ** p, "pos_pow": _powered, "square": np.square,
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "relu": lambda x: x.relu(), "relu6": lambda x: functions.relu6(x), "sigmoid": lambda x: x.sigmoid(), "sign": np.sign,
    "erf": lambda x: x.erf(), "hardtanh": lambda x, low=-1.0, high=1.0: np.clip(x, float(low), float(high)), "polynomial": _polynomial,
    "norm": _norm, "lt __lt__": lambda x, y: x < y, "le __le__": lambda x, y: x <= y, "gt __gt__": lambda x, y: x > y,
    "ge __ge__": lambda x, y: x >= y, "eq __eq__": lambda x, y: x == y, "ne __ne__": lambda x, y: x != y, "where": _where,
    "sum": lambda x, dim=None, keepdim=False: x.sum(_axis_of(x, dim), keepdim),
    "mean": lambda x, dim=None, keepdim=False: x.mean(_axis_of(x, dim), keepdim),
    "var": lambda x, dim=None, unbiased=True, keepdim=False: x.var(_axis_of(x, dim), int(unbiased), keepdim),
    "prod": lambda x, dim=None, keepdim=False: x.prod(dim, keepdim), "cumsum": lambda x, dim: x.cumsum(dim), "trace": lambda x: x.trace(),
    "softmax": lambda x, dim: x.reshape(1).softmax(0).reshape(()) if not x.ndim else x.softmax(dim),
    "log_softmax": lambda x, dim: x.reshape(1).log_softmax(0).reshape(()) if not x.ndim else x.log_softmax(dim), "squeeze": _squeezed,
    "unsqueeze": lambda x, dim: np.expand_dims(x, dim), "t": lambda x: x.T, "transpose": lambda x, a, b: x.swapaxes(a, b),
    "permute": lambda x, *axes: x.transpose(*axes), "view reshape": lambda x, *shape: x.reshape(_lengths(shape)), "flatten": _flattened,
    "expand": lambda x, *shape: np.broadcast_to(x, _lengths(shape)), "repeat": lambda x, *times: np.tile(x, _lengths(times)),
    "roll": lambda x, shifts, dims=None: np.roll(x, shifts, dims), "flip": lambda x, dims: np.flip(x, dims), "unfold": _unfolded,
    "narrow": _narrowed, "split": _split, "unbind": lambda x, dim=0: [np.take(x, i, dim) for i in range(x.shape[dim])],
    "gather": lambda x, dim, index: np.take_along_axis(x, index, dim), "take": lambda x, index, dim=None: np.take(x, index, dim),
    "index_select": lambda x, dim, index: np.take(x, index, dim), "index_add": _index_added, "scatter": _scattered,
    "scatter_add": _scatter_added, "pad": _padded, "__getitem__": lambda x, key: x[public_key(key)], "clone": lambda x: x + 0.0,
    "detach": lambda x: x.detach(), "conv2d": _convolved, "conv_transpose2d": _transposed, "conv1d": _in_a_row(_convolved),
    "conv_transpose1d": _in_a_row(_transposed), "max_pool2d": _max_pool, "avg_pool2d": _avg_pool,
    "adaptive_avg_pool2d": _adaptive(lambda x, axis: x.mean(axis)), "adaptive_max_pool2d": _adaptive(lambda x, axis: x.max(axis)),
    "cross_entropy": _crossed, "binary_cross_entropy": _binary_crossed,
    "binary_cross_entropy_with_logits": lambda x, target, skip_forward=False: _binary_crossed(x.sigmoid(), target),
    "rappor_loss": _rappor, "cosine_similarity": _cosine, "batchnorm": _batch_normed,
}
#: The same of shares of bits.
BITS = {
    "__and__ __rand__ __iand__": lambda x, y: x & y, "__or__ __ror__ __ior__": lambda x, y: x | y,
    "__xor__ __rxor__ __ixor__": lambda x, y: x ^ y, "__invert__": lambda x: ~x, "lshift __lshift__": lambda x, n: x << n,
    "rshift __rshift__": lambda x, n: x >> n, "clone": lambda x: x.copy(),
}
for _names, _function in TABLE.items():
    method(_function, *_names.split())
for _names, _function in BITS.items():
    method(_function, *_names.split(), of=BinarySharedTensor)
for _name in ("max", "min"):
    _extreme(_name)
for _feature in (False, True):
    _dropped(_feature)

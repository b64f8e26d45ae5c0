"""NumPy's functions on secret arrays.

Functions that only move numbers are not written again: NumPy itself runs on an array of places, which says
where each number goes, and the secret numbers are moved likewise.
"""

import math
import operator

import numpy as np

from ._errors import InputError
from ._secret import _BOOL, _INT, Secret, _axis, _plain, _promoted, _widest

_FUNCTIONS, _UFUNCS = {}, {}


def _implements(*functions):
    def register(implementation):
        for function in functions:
            _FUNCTIONS[function] = implementation
        return implementation

    return register


def _session_of(values):
    for value in values:
        if isinstance(value, Secret):
            return value._mpc
    raise TypeError("no operand is a secret array")


def _secret(mpc, x, dtype=None):
    """A secret array as it is, a public one as a constant."""
    if isinstance(x, Secret):
        return x if dtype is None else x._like(dtype)
    array = _plain(x)
    array = array if dtype is None else array.astype(dtype)
    public = mpc._public(array, mpc._frac(array.dtype))
    (handle,) = mpc._session.call("constant", [public], None)
    return Secret(mpc, handle, array.dtype)


def _common(arrays):
    """The session of several arrays, and the dtype that holds them all."""
    dtypes = [a.dtype if isinstance(a, Secret) else _plain(a).dtype for a in arrays]
    return _session_of(arrays), _widest(np.result_type(*dtypes))


def _as_operand(x):
    return x if isinstance(x, (Secret, bool, int, float)) else _plain(x)


# -- moving numbers --------------------------------------------------------------------------------


def _places(x):
    return np.arange(x.size, dtype=np.int64).reshape(x.shape)


def _moved(x, places):
    """The numbers at these places of the flattened array, in the places' shape."""
    places = np.asarray(places)
    flat = x if x.ndim == 1 else x._make("reshape", {"shape": [x.size]})
    chosen = np.ascontiguousarray(places.reshape(-1), dtype=np.int64)
    y = flat._make("gather", {"axis": 0, "indices": chosen})
    return y if places.ndim == 1 else y._make("reshape", {"shape": list(places.shape)})


def _with_zero(x):
    """The flattened array behind a zero: place 0 is zero, place i + 1 is number i."""
    flat = x._make("reshape", {"shape": [x.size]})
    return flat._make("pad", {"before": [1], "after": [0]})


def _public_key(key):
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, Secret):
            raise InputError(
                "a place is secret: which number is taken would be seen. For a secret position multiply with "
                "trefoil.functions.one_hot; for a secret condition take np.where"
            )
    return parts


def take_key(x, key):
    parts = _public_key(key)
    simple = all(isinstance(p, (slice, int, np.integer)) or p is None or p is Ellipsis for p in parts)
    steps = [p.step for p in parts if isinstance(p, slice)]
    if not simple or any(s is not None and s < 1 for s in steps) or any(isinstance(p, bool) for p in parts):
        return _moved(x, _places(x)[key])
    # NumPy checks the key and gives the result's shape, without looking at any number.
    shape = np.broadcast_to(np.empty(()), x.shape)[key].shape
    given = sum(p is not None and p is not Ellipsis for p in parts)
    axis = 0
    for part in parts:
        if part is None:
            continue
        if part is Ellipsis:
            axis += x.ndim - given
            continue
        n = x.shape[axis]
        if isinstance(part, slice):
            start, end, step = part.indices(n)
        else:
            start = operator.index(part) % n
            end, step = start + 1, 1
        end = max(start, end)
        if (start, end, step) != (0, n, 1):
            x = x._make("slice", {"axis": axis, "start": start, "end": end, "step": step})
        axis += 1
    return x.reshape(shape)


def put_key(x, key, value):
    _public_key(key)
    places = _places(x)
    target = places[key]
    dtype = x.dtype
    value = _secret(x._mpc, value)
    if value.dtype.kind == "f" and dtype.kind != "f":
        raise InputError(f"real numbers do not fit an array of {dtype}; make it real with astype(float)")
    value = value._like(dtype)
    source = np.broadcast_to(_places(value), np.shape(target)) + x.size
    flat = places.reshape(-1).copy()
    flat[np.asarray(target).reshape(-1)] = source.reshape(-1)
    joined = _joined([x, value])
    x._handle = _moved(joined, flat.reshape(x.shape))._handle


def _joined(arrays):
    flat = [a._make("reshape", {"shape": [a.size]}) for a in arrays if a.size]
    if not flat:
        return arrays[0]
    if len(flat) == 1:
        return flat[0]
    return flat[0]._make("concat", {"axis": 0}, None, [a._handle for a in flat])


def _mover(numpy_function):
    """A function of one array that only moves numbers."""

    def move(x, *args, **kwargs):
        places = numpy_function(_places(x), *args, **kwargs)
        if isinstance(places, (list, tuple)):
            return type(places)(_moved(x, p) for p in places)
        return _moved(x, places)

    return move


for _function in (
    np.flip, np.fliplr, np.flipud, np.roll, np.rot90, np.repeat, np.tile, np.take, np.moveaxis, np.rollaxis,
    np.squeeze, np.expand_dims, np.diagonal, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.array_split,
    np.split, np.hsplit, np.vsplit, np.dsplit, np.delete, np.resize, np.broadcast_to, np.compress,
    np.take_along_axis,
):
    _FUNCTIONS[_function] = _mover(_function)


def _zero_mover(numpy_function):
    """A function of one array that moves numbers and puts zeros between them."""

    def move(x, *args, **kwargs):
        return _moved(_with_zero(x), numpy_function(_places(x) + 1, *args, **kwargs))

    return move


for _function in (np.tril, np.triu, np.diag, np.diagflat):
    _FUNCTIONS[_function] = _zero_mover(_function)


@_implements(np.pad)
def _pad(array, pad_width, mode="constant", **kwargs):
    x = array
    value = kwargs.pop("constant_values", 0)
    if mode != "constant" or kwargs:
        return _moved(x, np.pad(_places(x), pad_width, mode, **kwargs))
    if np.ndim(value) or not isinstance(value, (bool, int, float)):
        raise InputError("one public constant pads a secret array")
    padded = _moved(_with_zero(x), np.pad(_places(x) + 1, pad_width))
    if value == 0:
        return padded
    return padded + np.pad(np.zeros(x.shape, x.dtype), pad_width, constant_values=value)


def _gathering(numpy_function):
    """A function of a list of arrays that only moves numbers."""

    def gather(arrays, *args, **kwargs):
        leaves = []

        def places(part):
            """The places of an array, or of each in a nested list, among all numbers together."""
            if isinstance(part, (list, tuple)):
                return [places(p) for p in part]
            start = sum(np.size(a) for a in leaves)
            leaves.append(part)
            return start + np.arange(np.size(part), dtype=np.int64).reshape(np.shape(part))

        moved = numpy_function(places(list(arrays)), *args, **kwargs)
        mpc, dtype = _common(leaves)
        return _moved(_joined([_secret(mpc, a, dtype) for a in leaves]), moved)

    return gather


for _function in (np.stack, np.vstack, np.hstack, np.dstack, np.column_stack, np.block):
    _FUNCTIONS[_function] = _gathering(_function)


@_implements(np.concatenate)
def _concatenate(arrays, axis=0):
    arrays = list(arrays)
    shapes = [np.shape(a) for a in arrays]
    # NumPy checks the shapes.
    shape = np.concatenate([np.broadcast_to(np.empty((), bool), s) for s in shapes], axis).shape
    mpc, dtype = _common(arrays)
    arrays = [_secret(mpc, a, dtype) for a in arrays]
    if axis is None:
        return _joined(arrays)
    arrays = [a for a in arrays if a.size] or arrays[:1]
    axis = _axis(axis, len(shape))
    return arrays[0]._make("concat", {"axis": axis}, dtype, [a._handle for a in arrays])


@_implements(np.append)
def _append(arr, values, axis=None):
    if axis is None:
        arr, values = np.ravel(arr), np.ravel(values)
    return _concatenate([arr, values], 0 if axis is None else axis)


@_implements(np.insert)
def _insert(arr, obj, values, axis=None):
    mpc = _session_of([arr, values])
    dtype = arr.dtype
    arr, values = _secret(mpc, arr), _secret(mpc, values, _widest(dtype))
    places = np.insert(_places(arr), obj, _places(values) + arr.size, axis)
    return _moved(_joined([arr, values]), places)


@_implements(np.reshape)
def _reshape(a, /, shape=None, order="C", **kwargs):
    return a.reshape(shape, order=order, **kwargs)


@_implements(np.ravel)
def _ravel(a, order="C"):
    return a.reshape(-1, order=order)


@_implements(np.transpose, np.permute_dims if hasattr(np, "permute_dims") else np.transpose)
def _transpose(a, axes=None):
    return a.transpose(axes)


@_implements(np.swapaxes)
def _swapaxes(a, axis1, axis2):
    return a.swapaxes(axis1, axis2)


if hasattr(np, "matrix_transpose"):

    @_implements(np.matrix_transpose)
    def _matrix_transpose(x):
        return x.swapaxes(-1, -2)


@_implements(np.broadcast_arrays)
def _broadcast_arrays(*arrays):
    shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
    return tuple(np.broadcast_to(a, shape) for a in arrays)


@_implements(np.copy)
def _copy(a):
    return a.copy()


@_implements(np.shape)
def _shape(a):
    return a.shape


@_implements(np.ndim)
def _ndim(a):
    return a.ndim


@_implements(np.size)
def _size(a, axis=None):
    return a.size if axis is None else a.shape[axis]


@_implements(np.zeros_like)
def _zeros_like(a, dtype=None):
    return np.zeros(a.shape, dtype or a.dtype)


@_implements(np.ones_like)
def _ones_like(a, dtype=None):
    return np.ones(a.shape, dtype or a.dtype)


@_implements(np.full_like)
def _full_like(a, fill_value, dtype=None):
    return np.full(a.shape, fill_value, dtype or a.dtype)


@_implements(np.result_type)
def _result_type(*operands):
    return np.result_type(*(x.dtype if isinstance(x, Secret) else x for x in operands))


@_implements(np.iscomplexobj)
def _iscomplexobj(x):
    return False


@_implements(np.array_repr, np.array_str)
def _array_repr(a, *_, **__):
    return repr(a)


# -- choosing --------------------------------------------------------------------------------------


@_implements(np.where)
def _where(condition, *choices):
    if not choices:
        raise InputError("np.where with a condition alone would show where it holds")
    x, y = (_as_operand(c) for c in choices)
    mpc = _session_of([condition, x, y])
    dtypes = [c.dtype if hasattr(c, "dtype") else c for c in (x, y)]
    dtype = _widest(np.result_type(*dtypes))
    shape = np.broadcast_shapes(np.shape(condition), np.shape(x), np.shape(y))
    if not isinstance(condition, Secret):
        mask = np.broadcast_to(np.asarray(condition, bool), shape)
        x, y = _secret(mpc, x, dtype), _secret(mpc, y, dtype)
        first = np.broadcast_to(_places(x), shape)
        second = np.broadcast_to(_places(y) + x.size, shape)
        return _moved(_joined([x, y]), np.where(mask, first, second))
    condition = condition.astype(_BOOL)
    if not isinstance(x, Secret) and not isinstance(y, Secret):
        # y + c (x - y), of which c alone is secret: nothing is sent.
        x, y = np.asarray(x).astype(dtype), np.asarray(y).astype(dtype)
        signed = _INT if dtype == _BOOL else dtype
        x, y = x.astype(signed), y.astype(signed)
        chosen = condition * (x - y) + y
        return Secret(mpc, chosen._handle, dtype)
    operands = [condition._handle]
    for choice in (x, y):
        if isinstance(choice, Secret):
            operands.append(choice._like(dtype)._handle)
        else:
            operands.append(mpc._public(np.asarray(choice).astype(dtype), mpc._frac(dtype)))
    # The condition has the result's shape, or broadcasts to it.
    condition = condition if condition.shape == shape else np.broadcast_to(condition, shape)
    operands[0] = condition._handle
    return condition._make("select", None, dtype, operands)


def _maximum(x, y, sign=1):
    if not isinstance(x, Secret):
        x, y = y, x
    # max(x, y) = y + relu(x - y), min(x, y) = y - relu(y - x).
    dtype = x._dtype_with(y, x._other(y))
    if x.dtype == _BOOL and dtype == _INT and np.asarray(getattr(y, "dtype", y)).dtype == bool:
        dtype = _BOOL
    difference = (x - y) if sign > 0 else (y - x)
    kept = difference._make("relu")
    chosen = kept + y if sign > 0 else y - kept
    return Secret(x._mpc, chosen._handle, dtype)


def _minimum(x, y):
    return _maximum(x, y, -1)


@_implements(np.clip)
def _clip(a, a_min=None, a_max=None, *, min=None, max=None):
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    x = a
    numbers = (bool, int, float, np.integer, np.floating)
    if isinstance(x, Secret) and isinstance(low, numbers) and isinstance(high, numbers):
        dtype = x._dtype_with(float(low) if isinstance(low, (float, np.floating)) else 0, _plain(low))
        dtype = _promoted(dtype, np.float32 if isinstance(high, (float, np.floating)) else dtype)
        dtype = np.dtype(np.float64) if dtype.kind == "f" and x.dtype.kind != "f" else dtype
        dtype = x.dtype if x.dtype.kind == "f" else dtype
        if low > high:
            low = high
        return x._like(dtype)._make("clamp", {"low": float(low), "high": float(high)}, dtype)
    if low is not None:
        x = _maximum(x, low)
    return x if high is None else _minimum(x, high)


@_implements(np.count_nonzero)
def _count_nonzero(a, axis=None, *, keepdims=False):
    return a.astype(_BOOL).sum(axis, keepdims)


@_implements(np.any)
def _any(a, axis=None, *, keepdims=False):
    count = a.astype(_BOOL).sum(axis, keepdims)
    return count > 0


@_implements(np.all)
def _all(a, axis=None, *, keepdims=False):
    return ~_any(~a.astype(_BOOL), axis, keepdims=keepdims)


# -- along axes ------------------------------------------------------------------------------------


def _no_extras(name, kwargs):
    given = [key for key, value in kwargs.items() if value is not None and value is not np._NoValue]
    if given:
        raise TypeError(f"{name} of a secret array takes no `{given[0]}`")


def _method(name):
    def call(a, axis=None, *args, keepdims=False, **kwargs):
        out = kwargs.pop("out", None)
        if out is not None or any(value is not None for value in args):
            raise TypeError(f"{name} of a secret array writes to no `out` and takes no dtype")
        keepdims = False if keepdims is np._NoValue else keepdims
        known = {key: kwargs.pop(key) for key in ("ddof",) if key in kwargs}
        _no_extras(name, kwargs)
        return getattr(a, name)(axis, keepdims=keepdims, **known)

    return call


for _name in ("sum", "mean", "var", "std", "max", "min", "argmax", "argmin"):
    _FUNCTIONS[getattr(np, _name)] = _method(_name)
_FUNCTIONS[np.amax], _FUNCTIONS[np.amin] = _method("max"), _method("min")


@_implements(np.ptp)
def _ptp(a, axis=None, *, keepdims=False):
    return a.max(axis, keepdims) - a.min(axis, keepdims)


@_implements(np.prod)
def _prod(a, axis=None, *, keepdims=False):
    x, outer, kept = a._like(_promoted(a.dtype))._rows(axis)
    count = x.shape[-1]
    if count == 0:
        return _secret(x._mpc, np.ones(kept if keepdims else outer, x.dtype))
    while count > 1:
        half = count // 2
        product = x[..., :half] * x[..., half : 2 * half]
        x = product if count % 2 == 0 else _concatenate([product, x[..., 2 * half :]], -1)
        count = x.shape[-1]
    return x.reshape(kept if keepdims else outer)


@_implements(np.cumsum)
def _cumsum(a, axis=None):
    x = a._like(_promoted(a.dtype))
    x, axis = (x.ravel(), 0) if axis is None else (x, _axis(axis, x.ndim))
    n = x.shape[axis]
    last = np.moveaxis(x, axis, -1) if axis != x.ndim - 1 else x
    sums = matmul(last.reshape(-1, n), np.triu(np.ones((n, n), np.int64)))
    sums = sums.reshape(last.shape)
    return np.moveaxis(sums, -1, axis) if axis != x.ndim - 1 else sums


@_implements(np.diff)
def _diff(a, n=1, axis=-1):
    axis = _axis(axis, a.ndim)
    lower, upper = [slice(None)] * a.ndim, [slice(None)] * a.ndim
    lower[axis], upper[axis] = slice(None, -1), slice(1, None)
    for _ in range(n):
        a = a[tuple(upper)] != a[tuple(lower)] if a.dtype == _BOOL else a[tuple(upper)] - a[tuple(lower)]
    return a


@_implements(np.average)
def _average(a, axis=None, weights=None, *, keepdims=False):
    if weights is None:
        return np.mean(a, axis, keepdims=keepdims)
    if isinstance(weights, Secret):
        if weights.shape != np.shape(a):
            raise InputError("secret weights have the array's shape")
        return np.sum(a * weights, axis, keepdims=keepdims) / np.sum(weights, axis, keepdims=keepdims)
    weights = np.asarray(weights, np.float64)
    if weights.shape != a.shape:
        places = _axis(axis, a.ndim)
        weights = weights.reshape([-1 if i == places else 1 for i in range(a.ndim)])
        weights = np.broadcast_to(weights, a.shape)
    total = weights.sum(axis, keepdims=True)
    return np.sum(a * (weights / total), axis, keepdims=keepdims)


@_implements(np.trace)
def _trace(a, offset=0, axis1=0, axis2=1):
    return np.diagonal(a, offset, axis1, axis2).sum(-1)


@_implements(np.linalg.norm)
def _norm(x, ord=None, axis=None, keepdims=False):
    matrix = axis is None and x.ndim == 2 or isinstance(axis, tuple) and len(axis) == 2
    if ord not in (None, 2, 1, np.inf, "fro") or matrix and ord not in (None, "fro"):
        raise InputError(f"norm of order {ord!r}: Euclidean, 1 and infinity are offered, Frobenius of matrices")
    if ord == 1:
        return np.sum(abs(x), axis, keepdims=keepdims)
    if ord == np.inf:
        return np.max(abs(x), axis, keepdims=keepdims)
    return x._real()._reduce("norm", axis, keepdims)


@_implements(np.cov)
def _cov(m, y=None, rowvar=True, bias=False, ddof=None):
    if y is not None:
        raise InputError("np.cov of two arrays: join them with np.vstack")
    x = m if rowvar else m.T
    n = x.shape[1]
    divisor = n - ((0 if bias else 1) if ddof is None else ddof)
    centred = x - np.mean(x, 1, keepdims=True)
    return matmul(centred, centred.T) / float(divisor)


# -- products --------------------------------------------------------------------------------------


def matmul(x, y):
    """``x @ y`` as NumPy's: vectors, matrices and stacks of them."""
    mpc = _session_of([x, y])
    x, y = (a if isinstance(a, Secret) else _plain(a) for a in (x, y))
    if x.ndim == 0 or y.ndim == 0:
        raise InputError("matmul: a factor has no dimensions; use * for numbers")
    inner = (x.shape[-1], y.shape[0] if y.ndim == 1 else y.shape[-2])
    if inner[0] != inner[1]:
        raise InputError(f"matmul: shapes {x.shape} and {y.shape} do not fit: {inner[0]} and {inner[1]} differ")
    left, right = x, y
    if x.ndim == 1:
        left = x.reshape(1, -1) if x.size else x.reshape(1, 0)
    if y.ndim == 1:
        right = y.reshape(-1, 1) if y.size else y.reshape(0, 1)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    shape = list(batch) + ([] if x.ndim == 1 else [x.shape[-2]]) + ([] if y.ndim == 1 else [y.shape[-1]])
    dtype = _promoted(x.dtype, y.dtype)
    if inner[0] == 0 or 0 in shape:
        return _secret(mpc, np.zeros(shape, dtype))
    if left.shape[:-2] != right.shape[:-2]:
        if right.ndim == 2 and left.ndim > 2:
            # One matrix for all: their rows are rows of one product.
            left = left.reshape(-1, left.shape[-1])
        elif left.ndim > 2 or right.ndim > 2:
            left = _stretched(left, batch) if left.ndim > 2 else left
            right = _stretched(right, batch)
    operands = []
    for a in (left, right):
        if isinstance(a, Secret):
            operands.append(a._handle)
        else:
            operands.append(mpc._public(np.ascontiguousarray(a), mpc._frac(a.dtype)))
    one = left if isinstance(left, Secret) else right
    return one._make("matmul", None, dtype, operands).reshape(shape)


def _stretched(a, batch):
    shape = tuple(batch) + a.shape[-2:]
    if a.shape == shape:
        return a
    if isinstance(a, Secret):
        return a._make("broadcast", {"shape": list(shape)})
    return np.broadcast_to(a, shape)


@_implements(np.dot)
def _dot(a, b):
    a, b = _as_operand(a), _as_operand(b)
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    if np.ndim(b) <= 2:
        return matmul(a, b)
    return _tensordot(a, b, ((-1,), (-2,)))


@_implements(np.vdot)
def _vdot(a, b):
    return matmul(np.ravel(a), np.ravel(b))


@_implements(np.inner)
def _inner(a, b):
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    return _tensordot(a, b, ((-1,), (-1,)))


@_implements(np.outer)
def _outer(a, b):
    return np.ravel(a).reshape(-1, 1) * np.ravel(b).reshape(1, -1)


@_implements(np.tensordot)
def _tensordot(a, b, axes=2):
    a, b = _as_operand(a), _as_operand(b)
    if isinstance(axes, (int, np.integer)):
        axes = (list(range(-axes, 0)) if axes else [], list(range(axes)))
    first, second = (list(x) if np.iterable(x) else [x] for x in axes)
    first = [_axis(i, a.ndim) for i in first]
    second = [_axis(i, b.ndim) for i in second]
    if [a.shape[i] for i in first] != [b.shape[i] for i in second]:
        raise InputError(f"tensordot: shapes {a.shape} and {b.shape} do not fit on axes {first} and {second}")
    rest_a = [i for i in range(a.ndim) if i not in first]
    rest_b = [i for i in range(b.ndim) if i not in second]
    inner = math.prod(a.shape[i] for i in first)
    rows = a.transpose(rest_a + first).reshape(math.prod(a.shape[i] for i in rest_a), inner)
    columns = b.transpose(second + rest_b).reshape(inner, math.prod(b.shape[i] for i in rest_b))
    return matmul(rows, columns).reshape([a.shape[i] for i in rest_a] + [b.shape[i] for i in rest_b])


@_implements(np.einsum)
def _einsum(subscripts, *operands, optimize=False):
    if not isinstance(subscripts, str) or "." in subscripts:
        raise InputError("np.einsum of secret arrays takes subscripts as text, without `...`")
    inputs, _, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "->" not in subscripts:
        letters = sorted(set(inputs) - {","})
        output = "".join(c for c in letters if inputs.count(c) == 1)
    if len(terms) != len(operands):
        raise InputError(f"np.einsum: {len(terms)} terms for {len(operands)} operands")
    operands = [_as_operand(x) for x in operands]
    term, x = _einsum_one(terms[0], operands[0])
    for i in range(1, len(terms)):
        later = set("".join(terms[i + 1 :])) | set(output)
        other, y = _einsum_one(terms[i], operands[i])
        term, x = _einsum_two(term, x, other, y, later)
    for axis in reversed([i for i, c in enumerate(term) if c not in output]):
        x, term = x.sum(axis), term[:axis] + term[axis + 1 :]
    return x.transpose([term.index(c) for c in output]) if output else x


def _einsum_one(term, x):
    """Diagonals of letters that are there twice."""
    for c in sorted(set(term)):
        while term.count(c) > 1:
            first = term.index(c)
            second = term.index(c, first + 1)
            x = np.diagonal(x, 0, first, second)
            term = "".join(d for i, d in enumerate(term) if i not in (first, second)) + c
    return term, x


def _einsum_two(term, x, other, y, later):
    batch = [c for c in term if c in other and c in later]
    inner = [c for c in term if c in other and c not in later]
    left = [c for c in term if c not in other]
    right = [c for c in other if c not in term]
    size = dict(zip(term, x.shape)) | dict(zip(other, y.shape))
    count = lambda letters: math.prod(size[c] for c in letters)
    x = x.transpose([term.index(c) for c in batch + left + inner])
    y = y.transpose([other.index(c) for c in batch + inner + right])
    x = x.reshape(count(batch), count(left), count(inner))
    y = y.reshape(count(batch), count(inner), count(right))
    z = matmul(x, y)
    return "".join(batch + left + right), z.reshape([size[c] for c in batch + left + right])


# -- functions of each number ----------------------------------------------------------------------


def _real(name):
    return lambda x: x._real()._make(name)


def _binary(symbol):
    return lambda x, y: symbol(_as_operand(x), _as_operand(y))


def _reflected(operation, swapped):
    def call(x, y):
        if isinstance(x, Secret):
            return operation(x, y)
        return swapped(y, x)

    return call


def _boolean(operation):
    def call(x, y):
        x, y = (a.astype(_BOOL) if isinstance(a, Secret) else np.asarray(a, bool) for a in (x, y))
        return operation(x, y) if isinstance(x, Secret) else operation(y, x)

    return call


def _sign(x):
    y = x._like(_promoted(x.dtype))._make("sign", None, _INT)
    return y if x.dtype.kind != "f" else y._like(x.dtype)


def _log_of(base):
    return lambda x: x._real()._make("log") * (1.0 / math.log(base))


_UFUNCS.update({
    np.add: _reflected(Secret.__add__, Secret.__radd__),
    np.subtract: _reflected(Secret.__sub__, Secret.__rsub__),
    np.multiply: _reflected(Secret.__mul__, Secret.__rmul__),
    np.true_divide: _reflected(Secret.__truediv__, Secret.__rtruediv__),
    np.power: _reflected(Secret.__pow__, Secret.__rpow__),
    np.float_power: _reflected(lambda x, y: x._real() ** y, Secret.__rpow__),
    np.matmul: matmul,
    np.less: _reflected(Secret.__lt__, Secret.__gt__),
    np.less_equal: _reflected(Secret.__le__, Secret.__ge__),
    np.greater: _reflected(Secret.__gt__, Secret.__lt__),
    np.greater_equal: _reflected(Secret.__ge__, Secret.__le__),
    np.equal: _reflected(Secret.__eq__, Secret.__eq__),
    np.not_equal: _reflected(Secret.__ne__, Secret.__ne__),
    np.maximum: _maximum,
    np.minimum: _minimum,
    np.fmax: _maximum,
    np.fmin: _minimum,
    np.negative: Secret.__neg__,
    np.positive: Secret.__pos__,
    np.absolute: Secret.__abs__,
    np.fabs: lambda x: abs(x._real()),
    np.sign: _sign,
    np.square: lambda x: x._like(_promoted(x.dtype))._make("square"),
    np.sqrt: _real("sqrt"),
    np.reciprocal: _real("reciprocal"),
    np.exp: _real("exp"),
    np.exp2: lambda x: 2.0 ** x,
    np.expm1: lambda x: np.exp(x) - 1.0,
    np.log: _real("log"),
    np.log2: _log_of(2),
    np.log10: _log_of(10),
    np.log1p: lambda x: np.log(x._real() + 1.0),
    np.sin: _real("sin"),
    np.cos: _real("cos"),
    np.tan: lambda x: np.sin(x) / np.cos(x),
    np.tanh: _real("tanh"),
    np.hypot: lambda x, y: np.sqrt(np.square(x) + np.square(y)),
    np.deg2rad: lambda x: x._real() * (math.pi / 180),
    np.radians: lambda x: x._real() * (math.pi / 180),
    np.rad2deg: lambda x: x._real() * (180 / math.pi),
    np.degrees: lambda x: x._real() * (180 / math.pi),
    np.logical_and: _boolean(Secret.__and__),
    np.logical_or: _boolean(Secret.__or__),
    np.logical_xor: _boolean(Secret.__xor__),
    np.logical_not: lambda x: ~x.astype(_BOOL),
    np.bitwise_and: _reflected(Secret.__and__, Secret.__and__),
    np.bitwise_or: _reflected(Secret.__or__, Secret.__or__),
    np.bitwise_xor: _reflected(Secret.__xor__, Secret.__xor__),
    np.invert: Secret.__invert__,
})

_REDUCTIONS = {
    np.add: lambda x, axis, keepdims: x.sum(axis, keepdims),
    np.multiply: lambda x, axis, keepdims: _prod(x, axis, keepdims=keepdims),
    np.maximum: lambda x, axis, keepdims: x.max(axis, keepdims),
    np.minimum: lambda x, axis, keepdims: x.min(axis, keepdims),
    np.logical_and: lambda x, axis, keepdims: _all(x, axis, keepdims=keepdims),
    np.logical_or: lambda x, axis, keepdims: _any(x, axis, keepdims=keepdims),
}


def ufunc(ufunc, method, inputs, kwargs):
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    if method == "reduce" and ufunc in _REDUCTIONS:
        axis, keepdims = kwargs.pop("axis", 0), kwargs.pop("keepdims", False)
        axis = kwargs.pop("axis", axis)
        _no_extras(f"{ufunc.__name__}.reduce", kwargs)
        return _REDUCTIONS[ufunc](inputs[0], axis, keepdims)
    if method == "accumulate" and ufunc is np.add:
        axis = kwargs.pop("axis", 0)
        _no_extras("add.accumulate", kwargs)
        return _cumsum(inputs[0], axis)
    if method == "outer" and ufunc in _UFUNCS:
        _no_extras(f"{ufunc.__name__}.outer", kwargs)
        x, y = (_as_operand(a) for a in inputs)
        return _UFUNCS[ufunc](x.reshape(x.shape + (1,) * np.ndim(y)), y)
    if method != "__call__" or ufunc not in _UFUNCS:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise TypeError(f"np.{name} has no form on secret arrays; trefoil.functions lists what there is")
    if "out" in kwargs:
        raise TypeError(f"np.{ufunc.__name__} of a secret array writes to no array: leave `out` away")
    _no_extras(f"np.{ufunc.__name__}", kwargs)
    return _UFUNCS[ufunc](*inputs)


def function(function, args, kwargs):
    implementation = _FUNCTIONS.get(function)
    if implementation is None:
        name = f"{function.__module__}.{function.__name__}"
        raise TypeError(f"{name} has no form on secret arrays; trefoil.functions lists what there is")
    return implementation(*args, **kwargs)

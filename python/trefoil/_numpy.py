"""NumPy's functions on secret arrays.

Functions that only move numbers are not reimplemented. NumPy itself runs on an array of places, which gives the
destination of each number, and the secret numbers are moved likewise.
"""

import inspect
import math
import operator

import numpy as np

from ._errors import InputError, RevealError
from ._secret import _BOOL, _DOUBLE, _INT, Secret, _axes, _axis, _keeps, _plain, _promoted, _widest

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
    """The flattened array after a zero: place 0 is zero, place i + 1 is number i."""
    flat = x._make("reshape", {"shape": [x.size]})
    return flat._make("pad", {"before": [1], "after": [0]})


def spread(g, axis, length, places):
    """Numbers along an axis, added up at their places along one of another length: the opposite of a gather."""
    places = np.asarray(places)
    after = [int(i == axis) for i in range(g.ndim)]

    def gathered(indices):
        """The numbers at these places; the place behind the last has a zero."""
        padded = g._make("pad", {"before": [0] * g.ndim, "after": after})
        return padded._make("gather", {"axis": axis, "indices": np.ascontiguousarray(indices, np.int64)})

    order = np.argsort(places, kind="stable")
    while len(np.unique(places)) < len(places):
        # Numbers for one place lie beside each other: every second one is added to the one before it.
        places = places[order]
        rank = np.arange(len(places)) - np.searchsorted(places, places)
        first = np.flatnonzero(rank % 2 == 0)
        follows = np.append(rank, 0)[first + 1] % 2 == 1
        g = gathered(order[first]) + gathered(np.where(follows, np.append(order, 0)[first + 1], len(order)))
        places, order = places[first], np.arange(len(first))
    picked = np.full(length, len(places))
    picked[places] = np.arange(len(places))
    return gathered(picked)


def _public_key(key):
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, Secret):
            raise InputError(
                "a place is secret: which number is taken would be seen. For secret places take np.take, for a secret condition "
                "np.where"
            )
    return parts


def take_key(x, key):
    parts = _public_key(key)
    simple = all(isinstance(p, (slice, int, np.integer)) or p is None or p is Ellipsis for p in parts)
    if not simple or any(isinstance(p, bool) for p in parts):
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
        taken = range(n)[part] if isinstance(part, slice) else range(n)[part : part + 1 or None]
        rising = taken if taken.step > 0 else taken[::-1]
        start, end = (rising[0], rising[-1] + 1) if rising else (0, 0)
        if (start, end, rising.step) != (0, n, 1):
            x = x._make("slice", {"axis": axis, "start": start, "end": end, "step": rising.step})
        if taken.step < 0 and len(taken) > 1:
            x = _reversed(x, axis)
        axis += 1
    return x.reshape(shape)


#: The longest axis that is reversed by one list of places.
_LISTED = 1 << 16


def _reversed(x, axis):
    """The numbers along an axis in the opposite order: those of a long one as rows of rows, by two short lists of places."""

    def turned(x, axis):
        return x._make("gather", {"axis": axis, "indices": np.arange(x.shape[axis])[::-1].copy()})

    shape, n = x.shape, x.shape[axis]
    if n <= _LISTED:
        return turned(x, axis)
    length = math.isqrt(n)
    rows = n // length
    whole = rows * length
    parts = shape[:axis] + (rows, length) + shape[axis + 1 :]
    first = (x if whole == n else _sliced(x, axis, 0, whole)).reshape(parts)
    first = turned(turned(first, axis), axis + 1).reshape(shape[:axis] + (whole,) + shape[axis + 1 :])
    return first if whole == n else _concatenate([turned(_sliced(x, axis, whole, n), axis), first], axis)


def put_key(x, key, value):
    _public_key(key)
    places = _places(x)
    target = places[key]
    dtype = x.dtype
    value = _secret(x._mpc, value)
    if value.dtype.kind == "f" and dtype.kind != "f":
        raise InputError(f"real numbers do not fit an array of {dtype}; make it real with astype(float)")
    value = value._like(dtype)
    source = _places(value)
    if source.ndim and not isinstance(target, np.ndarray):
        raise InputError(f"one element takes a number, not an array of shape {value.shape}")
    while source.ndim > np.ndim(target) and source.shape[0] == 1:
        source = source[0]
    source = np.broadcast_to(source, np.shape(target)) + x.size
    flat = places.reshape(-1).copy()
    flat[np.asarray(target).reshape(-1)] = source.reshape(-1)
    joined = _joined([x, value])
    x._handle = _moved(joined, flat.reshape(x.shape))._handle


def _add_at(x, key, value):
    """``numpy.add.at``: numbers added up at the places of a key, which may be there several times."""
    if not isinstance(x, Secret):
        raise TypeError("np.add.at adds secret numbers to a secret array alone")
    _public_key(key)
    target = np.asarray(_places(x)[key])
    value = _secret(x._mpc, value)
    if value.dtype.kind == "f" and x.dtype.kind != "f" or x.dtype == _BOOL:
        raise TypeError(f"numbers of {value.dtype} are not added to an array of {x.dtype}")
    value = np.broadcast_to(value._like(x.dtype), target.shape).reshape(-1)
    if target.size:
        x._handle = (x + spread(value, 0, x.size, target.reshape(-1)).reshape(x.shape))._handle


def _joined(arrays):
    flat = [a._make("reshape", {"shape": [a.size]}) for a in arrays if a.size]
    if not flat:
        return arrays[0]
    if len(flat) == 1:
        return flat[0]
    return flat[0]._make("concat", {"axis": 0}, None, [a._handle for a in flat])


def _refuse_out(function, args, kwargs):
    """Refuses a public array to write into, whose numbers would be places."""
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except ValueError:
        given = kwargs
    if given.get("out") is not None:
        raise TypeError(f"np.{function.__name__} of secret arrays writes to no array: leave `out` away")


def _mover(numpy_function):
    """A function of one array that only moves numbers."""

    def move(x, *args, **kwargs):
        _public_key((*args, *kwargs.values()))
        if not isinstance(x, Secret):
            raise InputError(f"np.{numpy_function.__name__} takes the secret array first")
        _refuse_out(numpy_function, (x, *args), kwargs)
        places = numpy_function(_places(x), *args, **kwargs)
        if isinstance(places, (list, tuple)):
            return type(places)(_moved(x, p) for p in places)
        return _moved(x, places)

    return move


for _function in (
    np.rot90, np.repeat, np.tile, np.moveaxis, np.rollaxis,
    np.squeeze, np.expand_dims, np.diagonal, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.array_split,
    np.split, np.hsplit, np.vsplit, np.dsplit, np.delete, np.resize, np.broadcast_to, np.take_along_axis,
    np.lib.stride_tricks.sliding_window_view,
):
    _FUNCTIONS[_function] = _mover(_function)


_take_public = _mover(np.take)


@_implements(np.take)
def _take(a, indices, axis=None, out=None, mode="raise"):
    if not isinstance(indices, Secret):
        return _take_public(a, indices, axis, out, mode)
    _refuse_out(np.take, (a, indices, axis, out), {})
    if mode != "raise":
        raise InputError("np.take at secret places takes places of the axis alone: leave mode= out")
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = _axis(operator.index(axis), a.ndim)
    return a._make("gather_at", {"axis": axis, "length": a.shape[axis]}, a.dtype, [a._handle, indices._handle])


@_implements(np.bincount)
def _bincount(x, /, weights=None, minlength=0):
    _public_key(minlength)
    if not isinstance(x, Secret):
        raise InputError("np.bincount of public numbers with secret weights: multiply by a public matrix of zeros and ones")
    if operator.index(minlength) < 1:
        raise InputError("the largest number is secret: give np.bincount minlength=, which is the length of the result")
    weights = _secret(x._mpc, np.ones(x.shape, np.int64) if weights is None else weights)
    dtype = _INT if weights.frac_bits == 0 else weights.dtype
    return x._make("scatter_add", {"count": operator.index(minlength)}, dtype, [weights._handle, x._handle])


@_implements(np.flip)
def _flip(m, axis=None):
    turned = _axes(axis, m.ndim)
    return m[tuple(slice(None, None, -1 if i in turned else 1) for i in range(m.ndim))]


@_implements(np.flipud)
def _flipud(m):
    if m.ndim < 1:
        raise InputError("np.flipud takes an array of one axis or more")
    return m[::-1]


@_implements(np.fliplr)
def _fliplr(m):
    if m.ndim < 2:
        raise InputError("np.fliplr takes an array of two axes or more")
    return m[:, ::-1]


@_implements(np.roll)
def _roll(a, shift, axis=None):
    _public_key((a, shift, axis)[1:])
    if axis is None:
        return _roll(a.reshape(-1) if a.size else a.reshape(0), np.sum(shift), 0).reshape(a.shape)
    shifts, axes = np.broadcast_arrays(shift, [operator.index(i) for i in np.atleast_1d(axis)])
    if shifts.ndim > 1:
        raise InputError("np.roll takes a shift for each axis")
    for by, i in zip(shifts.tolist(), axes.tolist()):
        i = _axis(i, a.ndim)
        by = operator.index(by) % max(a.shape[i], 1)
        if by:
            a = _concatenate([_sliced(a, i, a.shape[i] - by, a.shape[i]), _sliced(a, i, 0, a.shape[i] - by)], i)
    return a


def _sliced(x, axis, start, end):
    return x._make("slice", {"axis": axis, "start": start, "end": end, "step": 1})


@_implements(np.compress)
def _compress(condition, a, axis=None, out=None):
    _refuse_out(np.compress, (condition, a, axis, out), {})
    _public_key(condition)
    return _moved(a, np.compress(condition, _places(a), axis))


def _zero_mover(numpy_function):
    """A function of one array that moves numbers and puts zeros between them."""

    def move(x, *args, **kwargs):
        return _moved(_with_zero(x), numpy_function(_places(x) + 1, *args, **kwargs))

    return move


for _function in (np.tril, np.triu, np.diag, np.diagflat):
    _FUNCTIONS[_function] = _zero_mover(_function)


#: How :func:`numpy.pad` repeats numbers; its other ways compute with them.
_REPEATING = ("constant", "edge", "reflect", "symmetric", "wrap")


@_implements(np.pad)
def _pad(array, pad_width, mode="constant", **kwargs):
    x = array
    if mode not in _REPEATING or kwargs.get("reflect_type", "even") != "even":
        raise InputError(f"np.pad pads a secret array by repeating numbers or by a constant: {', '.join(_REPEATING)}")
    if mode != "constant" or kwargs.keys() - {"constant_values"}:
        return _moved(x, np.pad(_places(x), pad_width, mode, **kwargs))
    value = kwargs.pop("constant_values", 0)
    if np.ndim(value) or not isinstance(value, (bool, int, float, np.integer, np.floating, Secret)):
        raise InputError("one constant pads a secret array")
    # NumPy checks the widths, and gives those of each axis.
    corner = np.pad(np.zeros((2,) * x.ndim, np.int64), pad_width, constant_values=1)
    inside = [np.flatnonzero(np.min(corner, tuple(j for j in range(x.ndim) if j != i)) == 0) for i in range(x.ndim)]
    widths = [(int(places[0]), corner.shape[i] - int(places[0]) - 2) for i, places in enumerate(inside)]
    padded = x._make("pad", {"before": [low for low, _ in widths], "after": [high for _, high in widths]}) if x.ndim else x.copy()
    if isinstance(value, Secret):
        border = np.pad(np.zeros(x.shape, np.int64), pad_width, constant_values=1)
        return padded + (value * border)._like(x.dtype)
    if value == 0:
        return padded
    return padded + np.pad(np.zeros(x.shape, x.dtype), pad_width, constant_values=value)


def _gathering(numpy_function):
    """A function of a list of arrays that only moves numbers."""

    def gather(arrays, *args, dtype=None, casting="same_kind", **kwargs):
        _refuse_out(numpy_function, (arrays, *args), kwargs)
        leaves = []

        def places(part):
            """The places of an array, or of each in a nested list, among all numbers together."""
            if isinstance(part, (list, tuple)):
                return [places(p) for p in part]
            start = sum(np.size(a) for a in leaves)
            leaves.append(part)
            return start + np.arange(np.size(part), dtype=np.int64).reshape(np.shape(part))

        nested = arrays if numpy_function is np.block else list(arrays)
        moved = numpy_function(places(nested), *args, **kwargs)
        mpc, common = _common(leaves)
        dtype = _cast(common, dtype, casting)
        return _moved(_joined([_secret(mpc, a, dtype) for a in leaves]), moved)

    return gather


for _function in (np.stack, np.vstack, np.hstack, np.dstack, np.column_stack, np.block):
    _FUNCTIONS[_function] = _gathering(_function)


def _cast(common, dtype, casting):
    """The dtype that joined arrays get."""
    # NumPy checks the rule's name.
    np.concatenate([np.empty(0, common)], casting=casting)
    if dtype is None:
        return common
    if not np.can_cast(common, dtype, casting):
        raise TypeError(f"arrays of {common} do not become {np.dtype(dtype)} by the rule {casting!r}")
    return _widest(np.dtype(dtype))


@_implements(np.concatenate)
def _concatenate(arrays, axis=0, *, dtype=None, casting="same_kind"):
    arrays = list(arrays)
    shapes = [np.shape(a) for a in arrays]
    # NumPy checks the shapes.
    shape = np.concatenate([np.broadcast_to(np.empty((), bool), s) for s in shapes], axis).shape
    mpc, common = _common(arrays)
    dtype = _cast(common, dtype, casting)
    arrays = [_secret(mpc, a, dtype) for a in arrays]
    if 0 in shape:
        return _secret(mpc, np.zeros(shape, dtype))
    if axis is None:
        return _joined(arrays)
    arrays = [a for a in arrays if a.size]
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


@_implements(np.nonzero, np.flatnonzero, np.argwhere)
def _nonzero(a):
    raise RevealError("the places of numbers that are not 0 would be seen: np.where(condition, x, y) takes secret conditions")


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
    other = x._other(y)
    if x.dtype == other.dtype == _BOOL:
        return x | other if sign > 0 else x & other
    # max(x, y) = y + relu(x - y), min(x, y) = y - relu(y - x).
    dtype = x._dtype_with(y, other)
    difference = (x - y) if sign > 0 else (y - x)
    kept = difference._make("relu")
    chosen = kept + y if sign > 0 else y - kept
    return Secret(x._mpc, chosen._handle, dtype)


def _minimum(x, y):
    return _maximum(x, y, -1)


@_implements(np.clip)
def _clip(a, a_min=np._NoValue, a_max=np._NoValue, *, min=np._NoValue, max=np._NoValue):
    given = [limit is not np._NoValue for limit in (a_min, a_max, min, max)]
    if given[0] != given[1]:
        raise TypeError("np.clip takes both limits, or `min` and `max` by name")
    if given[0] and (given[2] or given[3]):
        raise ValueError("np.clip takes `a_min` and `a_max`, or `min` and `max`, not both")
    low, high = (a_min, a_max) if given[0] else (None if x is np._NoValue else x for x in (min, max))
    x = a
    numbers = (bool, int, float, np.integer, np.floating)
    if isinstance(x, Secret) and isinstance(low, numbers) and isinstance(high, numbers):
        dtype = _promoted(*(x._dtype_with(limit, _plain(limit)) for limit in (low, high)))
        if low > high:
            low = high
        return x._like(dtype)._make("clamp", {"low": float(low), "high": float(high)}, dtype)
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


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
    count, keepdims = x.shape[-1], _keeps(keepdims)
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
    sums = matmul(last.reshape(-1, n), np.triu(np.ones((n, n), np.int64)))._like(x.dtype)
    sums = sums.reshape(last.shape)
    return np.moveaxis(sums, -1, axis) if axis != x.ndim - 1 else sums


@_implements(np.diff)
def _diff(a, n=1, axis=-1):
    if n < 0:
        raise ValueError(f"np.diff: the order {n} is below 0")
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
    weights = _plain(weights)
    dtype = _widest(np.result_type(a.dtype, weights.dtype, *([] if a.dtype.kind == "f" else [np.float64])))
    weights = weights.astype(np.float64)
    if weights.shape != a.shape:
        if axis is None:
            raise TypeError(f"np.average: weights of shape {weights.shape} for an array of shape {a.shape} need an axis")
        places = _axis(operator.index(axis), a.ndim)
        if weights.shape != (a.shape[places],):
            raise InputError(f"np.average: weights of shape {weights.shape} for an axis of {a.shape[places]} numbers")
        weights = weights.reshape([-1 if i == places else 1 for i in range(a.ndim)])
        weights = np.broadcast_to(weights, a.shape)
    total = weights.sum(axis, keepdims=True)
    if not total.all():
        raise ZeroDivisionError("np.average: the weights add up to 0")
    return np.sum(a * (weights / total), axis, keepdims=keepdims)._like(dtype)


@_implements(np.trace)
def _trace(a, offset=0, axis1=0, axis2=1):
    return np.diagonal(a, offset, axis1, axis2).sum(-1)


def powers(x, power):
    """``x ** power`` for an array of public exponents: elements with the same whole exponent are raised together, and
    the others of any real one by their logarithms.
    """
    shape = np.broadcast_shapes(x.shape, power.shape)
    dtype = _promoted(x.dtype, power.dtype)
    base = np.broadcast_to(x, shape).reshape(-1)
    power = np.broadcast_to(power, shape).reshape(-1)
    whole = np.mod(power, 1) == 0
    groups = [(np.flatnonzero(power == p), p.item()) for p in np.unique(power[whole])]
    if not whole.all():
        groups.append((np.flatnonzero(~whole), power[~whole]))
    if not groups:
        return _secret(x._mpc, np.zeros(shape, dtype))
    parts = []
    for places, p in groups:
        own = _moved(base, places)
        own = np.exp(np.log(own) * p) if np.ndim(p) else own ** p
        parts.append(own._like(dtype))
    order = np.argsort(np.concatenate([places for places, _ in groups]))
    return _moved(_concatenate(parts), order).reshape(shape)


@_implements(np.linalg.norm)
def _norm(x, ord=None, axis=None, keepdims=False):
    axes = _axes(axis, x.ndim)
    if ord is None and (axis is None or len(axes) <= 2) or ord == "fro" and len(axes) == 2:
        return x._real()._reduce("norm", axis, keepdims)
    if len(axes) == 2:
        raise InputError(f"norm of order {ord!r} of a matrix: Frobenius is offered, and of vectors any order above 0")
    if len(axes) != 1 or not isinstance(ord, (int, float, np.integer, np.floating)):
        raise ValueError(f"np.linalg.norm: there is none of order {ord!r} over {len(axes)} axes")
    if ord == 2:
        return x._real()._reduce("norm", axis, keepdims)
    size = abs(x)._real()
    if math.isinf(ord):
        return size.max(axis, keepdims) if ord > 0 else size.min(axis, keepdims)
    if ord == 0:
        return (x != 0).sum(axis, keepdims)._like(size.dtype)
    if ord < 0:
        raise InputError(f"np.linalg.norm of order {ord}: orders above 0 are offered")
    if ord == 1:
        return size.sum(axis, keepdims)
    return _positive_power(_positive_power(size, ord).sum(axis, keepdims), 1.0 / ord)


def _positive_power(x, p):
    """``x ** p`` of numbers from 0 on, for a power above 0. That of 0 is 0, whose logarithm does not exist."""
    if float(p).is_integer():
        return x ** int(p)
    zero = x == 0
    return (x + zero) ** p * ~zero


@_implements(np.cov)
def _cov(m, y=None, rowvar=True, bias=False, ddof=None):
    from ._order import variables

    x = variables(m, y, rowvar, "np.cov")
    n = x.shape[1]
    divisor = n - ((0 if bias else 1) if ddof is None else ddof)
    if divisor <= 0:
        raise InputError(f"np.cov of {n} observations leaves {divisor} degrees of freedom")
    # Sums of products have twice the fraction bits.
    if n * 2.0 ** (2 * x.width) <= 2.0**61:
        centred = x - np.mean(x, 1, keepdims=True)
        return np.squeeze(matmul(centred, centred.T) / float(divisor))
    return np.squeeze(_wide_cov(x) * (n / divisor))


#: The most numbers of which variances are taken at once.
_AT_ONCE = 1 << 22


def _wide_cov(x):
    """Covariances of rows of any size, from variances of their sums: products would leave the range."""
    count, n = x.shape
    left, right = np.triu_indices(count, 1)
    step = max(1, _AT_ONCE // n)
    parts = [x.var(1)]
    for start in range(0, left.size, step):
        i, j = left[start : start + step], right[start : start + step]
        parts.append(((x[i] + x[j]).var(1) - parts[0][i] - parts[0][j]) * 0.5)
    place = np.diag(np.arange(count))
    place[left, right] = place[right, left] = np.arange(count, count + left.size)
    return np.concatenate(parts)[place]


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
    dtype, truths = _promoted(x.dtype, y.dtype), x.dtype == y.dtype == _BOOL
    if inner[0] == 0 or 0 in shape:
        return _secret(mpc, np.zeros(shape, _BOOL if truths else dtype))
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
    product = one._make("matmul", None, dtype, operands).reshape(shape)
    return product != 0 if truths else product


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
    operands = [x if isinstance(x, Secret) else _plain(x) for x in operands]
    # NumPy checks the sizes, and the order that is asked for.
    np.einsum_path(subscripts, *(np.broadcast_to(np.empty(()), x.shape) for x in operands), optimize=optimize)
    sizes = {}
    for term, x in zip(terms, operands):
        if len(set(zip(term, x.shape))) > len(set(term)):
            raise InputError(f"np.einsum: a letter of {term} is there twice, for axes of two lengths of {x.shape}")
        sizes.update({c: n for c, n in zip(term, x.shape) if n != 1 or c not in sizes})
    for i, (term, x) in enumerate(zip(terms, operands)):
        # An axis of length 1 serves all places of a longer one of its letter.
        kept = [axis for axis, c in enumerate(term) if x.shape[axis] == sizes[c]]
        terms[i] = "".join(term[axis] for axis in kept)
        operands[i] = x if len(kept) == x.ndim else x.reshape([x.shape[axis] for axis in kept])
    term, x = _einsum_one(terms[0], operands[0])
    for i in range(1, len(terms)):
        later = set("".join(terms[i + 1 :])) | set(output)
        other, y = _einsum_one(terms[i], operands[i])
        term, x = _einsum_two(term, x, other, y, later)
    for axis in reversed([i for i, c in enumerate(term) if c not in output]):
        x, term = x.any(axis) if x.dtype == _BOOL else x.sum(axis), term[:axis] + term[axis + 1 :]
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


def _reciprocal(x):
    if x.dtype.kind != "f":
        raise TypeError("np.reciprocal of integers is a rounded quotient, which secret arrays do not have: `1 / x` is real")
    return x._make("reciprocal")


def _log_of(base):
    return lambda x: x._real()._make("log") * (1.0 / math.log(base))


_UFUNCS.update({
    np.add: _reflected(Secret.__add__, Secret.__radd__),
    np.subtract: _reflected(Secret.__sub__, Secret.__rsub__),
    np.multiply: _reflected(Secret.__mul__, Secret.__rmul__),
    np.true_divide: _reflected(Secret.__truediv__, Secret.__rtruediv__),
    np.power: _reflected(Secret.__pow__, Secret.__rpow__),
    np.float_power: _reflected(lambda x, y: x._like(_DOUBLE) ** y, lambda x, y: x._like(_DOUBLE).__rpow__(y)),
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
    np.reciprocal: _reciprocal,
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
    axis = kwargs.pop("axis", 0) if method in ("reduce", "accumulate") else None
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    if method == "reduce" and ufunc in _REDUCTIONS:
        keepdims = kwargs.pop("keepdims", False)
        _no_extras(f"{ufunc.__name__}.reduce", kwargs)
        # A single number has an axis for NumPy's reductions.
        axis = None if inputs[0].ndim == 0 and axis in (0, -1) else axis
        return _REDUCTIONS[ufunc](inputs[0], axis, keepdims)
    if method == "accumulate" and ufunc is np.add:
        _no_extras("add.accumulate", kwargs)
        return _cumsum(inputs[0], axis)
    if method == "at" and ufunc is np.add:
        return _add_at(*inputs)
    if method == "outer" and ufunc in _UFUNCS:
        _no_extras(f"{ufunc.__name__}.outer", kwargs)
        x, y = (_as_operand(a) for a in inputs)
        # NumPy checks the number of axes.
        np.empty((0,) * (np.ndim(x) + np.ndim(y)))
        return _UFUNCS[ufunc](x.reshape(x.shape + (1,) * np.ndim(y)) if np.ndim(x) else x, y)
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

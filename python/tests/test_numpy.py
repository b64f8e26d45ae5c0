"""Every operation against NumPy's own, on arrays of generated shapes and dtypes."""

import numpy as np
import pytest

from trefoil import Error, InputError, RevealError, Secret

DTYPES = [np.float64, np.float32, np.int64, np.bool_]
UNIT = 2.0**-20


def numbers(rng, shape, dtype, low=-3.0, high=3.0):
    """Numbers with an exact encoding, so that sums and comparisons are exact."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind == "i":
        return rng.integers(int(low), int(high) + 1, shape)
    return (np.round(rng.uniform(low, high, shape) * 1024) / 1024).astype(dtype)


def same(got, want, error=0.0):
    assert isinstance(got, Secret)
    want = np.asarray(want)
    shown = got.reveal()
    assert got.shape == want.shape == shown.shape
    # NumPy's small and unsigned integers are this package's one kind of integer.
    assert got.dtype == want.dtype if want.dtype.kind == "f" else got.dtype.kind == want.dtype.kind
    assert shown.dtype == got.dtype
    assert np.allclose(shown, want, rtol=1e-6 if want.dtype == np.float32 else 1e-9, atol=error), (shown, want)


def pair(rng):
    """Two shapes that broadcast."""
    shape = list(rng.integers(1, 4, rng.integers(0, 4)))
    one = [1 if rng.random() < 0.25 else n for n in shape][rng.integers(0, len(shape) + 1) :]
    other = [1 if rng.random() < 0.25 else n for n in shape]
    return (one, other) if rng.random() < 0.5 else (other, one)


BINARY = [np.add, np.subtract, np.multiply, np.less, np.less_equal, np.greater, np.greater_equal, np.equal,
          np.not_equal, np.maximum, np.minimum]


@pytest.mark.parametrize("case", range(66))
def test_two_operands_broadcast_and_promote_as_in_numpy(mpc, rng, case):
    function = BINARY[case % len(BINARY)]
    shapes = pair(rng)
    kinds = [DTYPES[i] for i in rng.integers(0, 3, 2)]
    x, y = (numbers(rng, shape, kind) for shape, kind in zip(shapes, kinds))
    form = case % 3
    first = x if form == 1 else mpc.secret(x)
    second = y if form == 2 else mpc.secret(y)
    error = 2 * UNIT if function is np.multiply else 0
    same(function(first, second), function(x, y), error)


@pytest.mark.parametrize("function", [np.add, np.subtract, np.multiply, np.maximum, np.less, np.equal])
@pytest.mark.parametrize("scalar", [2, -0.75, True, np.float32(1.5), np.int64(3)])
def test_numbers_of_python_and_numpy_are_operands(mpc, rng, function, scalar):
    for kind in (np.float64, np.float32, np.int64):
        x = numbers(rng, (2, 3), kind)
        same(function(mpc.secret(x), scalar), function(x, scalar), 2 * UNIT)
        same(function(scalar, mpc.secret(x)), function(scalar, x), 2 * UNIT)


def key_for(rng, shape):
    """A key of slices, places, new axes, an ellipsis, public index arrays or masks."""
    kind = rng.integers(0, 4)
    if kind == 3 and shape:
        return rng.random(shape) < 0.5
    parts, at = [], 0
    while at < len(shape):
        n = int(shape[at])
        choice = rng.integers(0, 6)
        if choice == 0:
            parts.append(int(rng.integers(-n, n)))
        elif choice == 1 and kind == 2:
            parts.append(rng.integers(-n, n, 3))
        elif choice == 2:
            parts.append(None)
            continue
        elif choice == 3 and Ellipsis not in [p for p in parts if not isinstance(p, np.ndarray)]:
            parts.append(Ellipsis)
            break
        else:
            start, end = rng.integers(-n - 1, n + 2, 2)
            parts.append(slice(int(start), int(end), int(rng.choice([1, 1, 2, -1]))))
        at += 1
        if rng.random() < 0.2:
            break
    return tuple(parts)


@pytest.mark.parametrize("case", range(40))
def test_keys_take_what_they_take_in_numpy(mpc, rng, case):
    shape = tuple(rng.integers(1, 5, rng.integers(0, 4)))
    x = numbers(rng, shape, DTYPES[case % 4])
    key = key_for(rng, shape)
    same(mpc.secret(x)[key], x[key])


@pytest.mark.parametrize("case", range(16))
def test_keys_put_what_they_put_in_numpy(mpc, rng, case):
    shape = tuple(rng.integers(1, 5, rng.integers(1, 4)))
    x = numbers(rng, shape, np.float64)
    key = key_for(rng, shape)
    value = numbers(rng, np.shape(x[key]), np.float64) if case % 2 else 2.5
    if not x[key].size:
        return
    secret = mpc.secret(x)
    secret[key] = mpc.secret(value) if case % 4 == 1 else value
    x[key] = value
    same(secret, x)


REDUCTIONS = [(np.sum, 0), (np.mean, 3e-6), (np.max, 0), (np.min, 0), (np.var, 1e-4), (np.std, 1e-3), (np.prod, 1e-4)]


@pytest.mark.parametrize("case", range(35))
def test_reductions_go_along_axes_as_in_numpy(mpc, rng, case):
    function, error = REDUCTIONS[case % len(REDUCTIONS)]
    shape = tuple(rng.integers(1, 5, rng.integers(1, 4)))
    dtype = [np.float64, np.float32, np.int64][rng.integers(0, 3)]
    x = numbers(rng, shape, dtype, 0 if function in (np.var, np.std) else -2, 2)
    axes = [None, int(rng.integers(-len(shape), len(shape))), tuple(range(len(shape)))]
    axis = axes[case % 3]
    keepdims = bool(rng.integers(0, 2))
    same(function(mpc.secret(x), axis=axis, keepdims=keepdims), function(x, axis=axis, keepdims=keepdims), error)


@pytest.mark.parametrize("function", [np.argmax, np.argmin])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_places_of_extrema_are_the_first_as_in_numpy(mpc, rng, function, axis):
    x = numbers(rng, (3, 4, 2), np.int64)
    same(function(mpc.secret(x), axis=axis), function(x, axis=axis))


def test_what_would_compute_with_places_is_refused(mpc):
    x, out = mpc.secret(np.arange(6.0).reshape(2, 3)), np.zeros((2, 2, 3))
    for mode in ("linear_ramp", "maximum", "mean", "median", "minimum", "empty"):
        with pytest.raises(InputError, match="np.pad"):
            np.pad(x, 1, mode)
    with pytest.raises(InputError, match="np.pad"):
        np.pad(x, 1, "reflect", reflect_type="odd")
    for write in (lambda: np.stack([x, x], out=out), lambda: np.stack([x, x], 0, out), lambda: np.take(x, [0], 0, out),
                  lambda: np.take(x, [0], out=out), lambda: np.compress([True], x, 0, out), lambda: np.concatenate([x, x], out=out)):
        with pytest.raises(TypeError):
            write()
        assert not out.any()
    # A secret place or condition would be seen.
    places = mpc.secret(np.array([1, 0]))
    for take in (lambda: np.take(np.arange(3.0), places), lambda: np.compress(places, np.arange(2.0)), lambda: np.delete(x, places),
                 lambda: np.repeat(np.arange(2), places), lambda: np.roll(x, places)):
        with pytest.raises((InputError, RevealError)):
            take()


def test_joined_arrays_get_the_dtype_that_is_asked_for(mpc):
    x, y = np.arange(3), np.array([True, False, True])
    secret = mpc.secret(x)
    same(np.stack([secret, y], dtype=np.float64), np.stack([x, y], dtype=np.float64))
    same(np.hstack([secret, y], dtype=np.float32), np.hstack([x, y], dtype=np.float32))
    same(np.concatenate([secret, y], dtype=np.float64), np.concatenate([x, y], dtype=np.float64))
    for join in (np.stack, np.vstack, np.concatenate):
        with pytest.raises(TypeError):
            join([mpc.secret([0.5]), mpc.secret([1.5])], dtype=np.int64)
    same(np.stack([mpc.secret([1.5]), mpc.secret([2.0])], dtype=np.int64, casting="unsafe"), np.array([[1], [2]]))


@pytest.mark.parametrize("shapes", [[(0, 3), (0, 3)], [(2, 0), (2, 0)], [(2, 0), (2, 3)], [(0,), (0,)]])
def test_joined_empty_arrays_have_numpys_shapes(mpc, shapes):
    arrays = [np.ones(shape) for shape in shapes]
    for axis in (*range(-1, len(shapes[0])), None):
        try:
            want = np.concatenate(arrays, axis)
        except ValueError:
            continue
        same(np.concatenate([mpc.secret(a) for a in arrays], axis), want)


def test_products_and_variances_have_numpys_shapes(mpc, rng):
    rows = numbers(rng, (3, 5), np.float64)
    for x in (rows, rows[:1], rows[0]):
        for rowvar in (True, False):
            if x.shape == (1, 5) and not rowvar:
                continue
            same(np.cov(mpc.secret(x), rowvar=rowvar), np.cov(x, rowvar=rowvar), 1e-4)
    with pytest.raises(InputError, match="degrees of freedom"):
        np.cov(mpc.secret(rows[:, :1]))
    for subscripts, shapes in (("ii", [(2, 3)]), ("ij,jk", [(2, 3), (2, 3)]), ("i,i", [(2,), (3,)]), ("ij->k", [(2, 3)])):
        arrays = [np.ones(shape) for shape in shapes]
        with pytest.raises(ValueError):
            np.einsum(subscripts, *arrays)
        with pytest.raises(ValueError):
            np.einsum(subscripts, *(mpc.secret(a) for a in arrays))


MOVES = {
    "flip": lambda x: np.flip(x, 1),
    "fliplr": np.fliplr,
    "roll": lambda x: np.roll(x, 2, axis=0),
    "rot90": np.rot90,
    "repeat": lambda x: np.repeat(x, 2, axis=1),
    "tile": lambda x: np.tile(x, (2, 1)),
    "take": lambda x: np.take(x, [2, 0], axis=0),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "squeeze": lambda x: np.squeeze(x[:, None]),
    "diagonal": np.diagonal,
    "tril": np.tril,
    "triu": lambda x: np.triu(x, 1),
    "diag": np.diag,
    "pad": lambda x: np.pad(x, ((1, 0), (2, 1))),
    "pad with edges": lambda x: np.pad(x, 1, mode="edge"),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 3)),
    "transpose": np.transpose,
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "ravel": np.ravel,
    "reshape": lambda x: np.reshape(x, (-1,)),
    "delete": lambda x: np.delete(x, 1, axis=0),
    "stack": lambda x: np.stack([x, x], axis=1),
    "vstack": lambda x: np.vstack([x, x]),
    "hstack": lambda x: np.hstack([x, x]),
    "concatenate": lambda x: np.concatenate([x, x[:1]], axis=0),
    "concatenate flat": lambda x: np.concatenate([x, x], axis=None),
    "append": lambda x: np.append(x, x[:1], axis=0),
    "insert": lambda x: np.insert(x, 1, x[0], axis=0),
    "column_stack": lambda x: np.column_stack([x, x[0]]),
    "split": lambda x: np.split(x, 3)[1],
    "block": lambda x: np.block([[x, x], [x, x]]),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0, 2], [1, 1], [2, 0]]), 1),
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_numbers_is_as_in_numpy_and_sends_nothing(mpc, rng, name):
    for dtype in DTYPES:
        x = numbers(rng, (3, 3), dtype)
        secret = mpc.secret(x)
        mpc.cost()
        moved = MOVES[name](secret)
        assert mpc.cost().bytes == 0
        same(moved, MOVES[name](x))


PRODUCTS = [
    (lambda x, y: x @ y, (4,), (4,)),
    (lambda x, y: x @ y, (3, 4), (4,)),
    (lambda x, y: x @ y, (4,), (4, 2)),
    (lambda x, y: x @ y, (3, 4), (4, 2)),
    (lambda x, y: x @ y, (2, 3, 4), (4, 2)),
    (lambda x, y: x @ y, (3, 4), (2, 4, 2)),
    (lambda x, y: x @ y, (2, 1, 3, 4), (3, 4, 2)),
    (np.dot, (3, 4), (4, 2)),
    (np.dot, (3, 4), (2, 4, 2)),
    (np.inner, (2, 4), (3, 4)),
    (np.outer, (3,), (2,)),
    (np.vdot, (4,), (4,)),
    (np.tensordot, (2, 3, 4), (3, 4, 2)),
    (lambda x, y: np.tensordot(x, y, axes=([0, 1], [1, 0])), (2, 3, 4), (3, 2, 2)),
    (lambda x, y: np.einsum("ij,jk->ik", x, y), (2, 3), (3, 4)),
    (lambda x, y: np.einsum("bij,bkj->bki", x, y), (2, 3, 4), (2, 2, 4)),
    (lambda x, y: np.einsum("ii,j->ij", x, y), (3, 3), (2,)),
]


@pytest.mark.parametrize("case", range(len(PRODUCTS)))
@pytest.mark.parametrize("form", ["both secret", "left secret", "right secret", "integers"])
def test_products_are_numpys(mpc, rng, case, form):
    function, left, right = PRODUCTS[case]
    kind = np.int64 if form == "integers" else np.float64
    x, y = numbers(rng, left, kind), numbers(rng, right, kind)
    first = x if form == "right secret" else mpc.secret(x)
    second = y if form == "left secret" else mpc.secret(y)
    same(function(first, second), function(x, y), 0 if kind == np.int64 else 4 * UNIT)


ELEMENTWISE = {
    "exp": (np.exp, -3, 3, 2e-4), "exp2": (np.exp2, -3, 3, 1e-3), "expm1": (np.expm1, -3, 3, 2e-4),
    "log": (np.log, 0.1, 30, 1e-5), "log2": (np.log2, 0.1, 30, 1e-5), "log10": (np.log10, 0.1, 30, 1e-5),
    "log1p": (np.log1p, 0.1, 30, 1e-5), "sqrt": (np.sqrt, 0.01, 30, 2e-5), "sin": (np.sin, -9, 9, 1e-5),
    "cos": (np.cos, -9, 9, 1e-5), "tanh": (np.tanh, -4, 4, 3e-5), "reciprocal": (np.reciprocal, 0.3, 9, 2e-5),
    "square": (np.square, -9, 9, 2e-6), "absolute": (np.absolute, -9, 9, 0), "sign": (np.sign, -9, 9, 0),
    "negative": (np.negative, -9, 9, 0), "fabs": (np.fabs, -9, 9, 0), "deg2rad": (np.deg2rad, -90, 90, 1e-4),
    "power 3": (lambda x: x**3, -3, 3, 1e-4), "power -2": (lambda x: x**-2, 0.5, 3, 1e-4),
    "power 0.5": (lambda x: x**0.5, 0.1, 9, 2e-5), "power 1.5": (lambda x: x**1.5, 0.5, 4, 2e-3),
    "2 to the power": (lambda x: 2.0**x, -3, 3, 1e-3), "inverse": (lambda x: 1 / x, 0.3, 9, 2e-5),
    "divided": (lambda x: x / 3, -9, 9, 2e-5), "by an array": (lambda x: x / np.array([3.0, 7.0, 100.0]), -9, 9, 2e-5),
    "an array by": (lambda x: np.array([3.0, 7.0, 1.0]) / x, 0.3, 9, 4e-4), "clip": (lambda x: np.clip(x, -1, 2.5), -9, 9, 0),
    "clip below": (lambda x: np.clip(x, 0.5, None), -9, 9, 0), "cumsum": (lambda x: np.cumsum(x, 0), -9, 9, 0),
    "diff": (lambda x: np.diff(x, axis=0), -9, 9, 0), "norm": (lambda x: np.linalg.norm(x, axis=1), -9, 9, 1e-4),
    "average": (lambda x: np.average(x, 0, [1.0, 2.0]), -9, 9, 1e-5), "trace": (np.trace, -9, 9, 0),
    "ptp": (lambda x: np.ptp(x, axis=1), -9, 9, 0), "cov": (np.cov, -3, 3, 1e-4), "hypot": (lambda x: np.hypot(x, x), 1, 5, 1e-4),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_come_close_to_numpys(mpc, rng, name):
    function, low, high, error = ELEMENTWISE[name]
    x = numbers(rng, (2, 3), np.float64, low, high)
    same(function(mpc.secret(x)), function(x), error)


@pytest.mark.parametrize("case", range(9))
def test_where_takes_secret_and_public_parts(mpc, rng, case):
    condition = numbers(rng, (3, 1), np.bool_)
    x, y = numbers(rng, (3, 2), np.float64), numbers(rng, (2,), np.int64)
    want = np.where(condition, x, y)
    parts = [p if hidden else mpc.secret(p) for p, hidden in zip((condition, x, y), (case & 1, case & 2, case & 4))]
    if case & 7 == 7:
        parts[0] = mpc.secret(condition)
    same(np.where(*parts), want)


@pytest.mark.parametrize("function", [np.logical_and, np.logical_or, np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor])
def test_truth_values_combine_as_in_numpy(mpc, function):
    x, y = np.array([[False], [True]]), np.array([False, True])
    same(function(mpc.secret(x), mpc.secret(y)), function(x, y))
    same(function(mpc.secret(x), y), function(x, y))
    same(function(x, mpc.secret(y)), function(x, y))
    same(~mpc.secret(x), ~x)
    same(np.any(mpc.secret(x)), np.any(x))
    same(np.all(mpc.secret(x), axis=0), np.all(x, axis=0))
    same(np.count_nonzero(mpc.secret(x), axis=0), np.count_nonzero(x, axis=0))


def test_reductions_of_ufuncs_and_outer_forms_are_numpys(mpc, rng):
    x = numbers(rng, (3, 2), np.float64)
    secret = mpc.secret(x)
    same(np.add.reduce(secret), np.add.reduce(x))
    same(np.maximum.reduce(secret, axis=1), np.maximum.reduce(x, axis=1))
    same(np.add.accumulate(secret, axis=0), np.add.accumulate(x, axis=0))
    same(np.subtract.outer(secret, x[0]), np.subtract.outer(x, x[0]))


def test_real_parts_of_a_program_fit_together(mpc, rng):
    x, w, b = (numbers(rng, shape, np.float64) for shape in ((4, 3), (3, 2), (2,)))
    w /= 2
    secret = mpc.secret(x)
    hidden = np.maximum(secret @ mpc.secret(w) + b, 0)
    p = np.exp(hidden) / np.sum(np.exp(hidden), axis=1, keepdims=True)
    want = np.exp(np.maximum(x @ w + b, 0))
    same(p, want / want.sum(1, keepdims=True), 1e-3)
    for row, plain in zip(secret, x):
        same(row, plain)
    secret += 1
    same(secret, x + 1)


def stepped(*shape):
    """Numbers of a shape that all differ."""
    return np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape) / 8


def put(x, key, value):
    x = x.copy()
    x[key] = value
    return x


def added_at(x, key, value):
    x = x.copy()
    np.add.at(x, key, value)
    return x


#: Calls of NumPy's own tests that differed once, with the arrays that are secret.
OF_NUMPYS_TESTS = {
    "reduce over all axes": (lambda x: np.add.reduce(x, axis=None), [stepped(2, 3)]),
    "reduce over all axes, kept": (lambda x: np.maximum.reduce(x, None, None, None, True), [stepped(2, 3)]),
    "reduce a number": (lambda x: np.add.reduce(x), [np.array(5)]),
    "multiply a number": (lambda x: np.multiply.reduce(x), [np.array(5.0)]),
    "average of single floats": (lambda x: np.average(x, 0, np.array([1, 3], np.float32)), [stepped(2, 3).astype(np.float32)]),
    "average of integers": (lambda x: np.average(x, weights=[1, 2, 1]), [np.array([1, 2, 4])]),
    "running sums of single floats": (np.cumsum, [stepped(3).astype(np.float32)]),
    "einsum of a number": (lambda y: np.einsum(",i->", 3, y), [np.arange(4)]),
    "einsum with one row for all": (lambda x, y: np.einsum("ij,ij->j", x, y), [stepped(4, 2), stepped(1, 2)]),
    "einsum of one and many": (lambda x, y: np.einsum("i,i", x, y), [stepped(2), stepped(1)]),
    "einsum of a letter twice": (lambda x, y: np.einsum("iij,ji->i", x, y), [stepped(1, 1, 2), stepped(1, 3)]),
    "einsum over an axis that two lack": (lambda x, y: np.einsum("gah,cbhg->ab", x, y), [stepped(2, 3, 1), stepped(2, 2, 1, 2)]),
    "einsum in an order": (lambda x, y: np.einsum("ij,jk", x, y, optimize=True), [stepped(2, 2), stepped(2, 2)]),
    "absolute truth": (np.absolute, [np.array([True, False])]),
    "clip by wide integers": (lambda x: np.clip(x, np.int64(0), np.int64(1)), [stepped(3).astype(np.float32)]),
    "clip a public array": (lambda low: np.clip(np.arange(4), low, 3), [np.array([1, 0, 2, 4])]),
    "clip between arrays": (lambda high: np.clip(2.5, 1.0, high), [np.array([2.0, 3.0])]),
    "put one row of more axes": (lambda x, v: put(x, (np.array([0, 0]), np.array([2, 1])), v), [stepped(1, 3), stepped(1, 2)]),
    "equal to nothing": (lambda x: x == None, [stepped(3)]),  # noqa: E711
    "not equal to nothing": (lambda x: x != None, [stepped(3)]),  # noqa: E711
    "add at places": (lambda x, v: added_at(x, ([0, 0, 1, 0], [1, 1, 2, 1]), v), [stepped(2, 3), stepped(4)]),
    "add a number at places": (lambda x: added_at(x, [2, 2, 0], 1.5), [stepped(3)]),
    "add at rows": (lambda x, v: added_at(x, (slice(None), [0, 2, 0]), v), [np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3)]),
    "sum of truth values": (lambda x, y: x + y, [np.array([[False], [True]]), np.array([False, True])]),
    "product of truth values": (lambda x, y: x * y, [np.array([[False], [True]]), np.array([False, True])]),
    "sum with public truth values": (lambda x: np.array([False, True]) + x + True, [np.array([False, True])]),
    "the larger of truth values": (np.maximum, [np.array([[False], [True]]), np.array([False, True])]),
    "the smaller of truth values": (np.minimum, [np.array([[False], [True]]), np.array([False, True])]),
    "a truth value less than a number": (lambda x: 3 - x, [np.array([False, True])]),
    "matrices of truth values": (np.matmul, [np.array([[True, True], [False, False]]), np.array([[True, False], [True, False]])]),
    "einsum of truth values": (lambda x: np.einsum("ij->i", x), [np.array([[True, True], [False, False]])]),
    "a block of an array": (np.block, [stepped(2, 1, 3)]),
    "axes as an array": (lambda x: np.transpose(x, np.array([-1, -2])), [stepped(2, 3)]),
    "windows that slide": (lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1)[:, ::2], [stepped(2, 5)]),
    "numbers that are not 0": (lambda x: np.linalg.norm(x, 0), [np.array([0, 2, 3], np.float32)]),
    "norm of integers": (lambda x: np.linalg.norm(x, 1, 0), [np.array([[1, -2], [3, 4]])]),
    "power of single floats": (lambda x: np.float_power(x, np.float32(2)), [stepped(3).astype(np.float32)]),
}


@pytest.mark.parametrize("name", OF_NUMPYS_TESTS)
def test_calls_of_numpys_tests_give_numpys_results(mpc, name):
    function, arrays = OF_NUMPYS_TESTS[name]
    same(function(*map(mpc.secret, arrays)), function(*(a.copy() for a in arrays)), 16 * UNIT)


#: Bits of integers. Shifts of NumPy's and of secret integers keep the sign.
OF_BITS = {
    "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y, "not": lambda x, y: ~x,
    "and of a row": lambda x, y: x[:, None] & y, "or with truth": lambda x, y: x | (y > 0), "up": lambda x, y: x << 3, "down": lambda x, y: y >> 2,
    "up by none": lambda x, y: x << 0, "by NumPy's names": lambda x, y: np.bitwise_and(np.bitwise_or(x, y), np.bitwise_xor(x, y)),
}


@pytest.mark.parametrize("name", OF_BITS)
@pytest.mark.parametrize("public", [False, True])
def test_bits_of_integers_are_numpys(mpc, name, public):
    function, x, y = OF_BITS[name], np.array([5, -3, 0, 2**40 + 7]), np.array([6, 1, -1, 255])
    same(function(mpc.secret(x), y if public and name != "down" else mpc.secret(y)), function(x, y))


def test_a_mask_of_few_bits_costs_few(mpc):
    x = mpc.secret(np.array([1234567, -1]))
    mpc.cost()
    x & mpc.secret(np.array([255, 255]))
    whole = mpc.cost().bytes
    masked = x & 255
    assert 0 < mpc.cost().bytes < whole / 3
    assert masked.reveal().tolist() == [1234567 & 255, 255]


def test_bits_of_real_numbers_and_shifts_by_less_than_none_are_refused(mpc):
    x, integers = mpc.secret([1.5]), mpc.secret([1])
    for call in (lambda: x & 1, lambda: ~x, lambda: x << 1, lambda: integers & 1.5):
        with pytest.raises(TypeError, match="integers"):
            call()
    with pytest.raises(ValueError, match="other way"):
        integers >> -1


def test_a_secret_number_pads(mpc):
    x = np.arange(6).reshape(2, 3)
    same(np.pad(mpc.secret(x), ((1, 0), (0, 2)), constant_values=mpc.secret(7)), np.pad(x, ((1, 0), (0, 2)), constant_values=7))


#: Calls that NumPy refuses, and so does a secret array, by NumPy's class of error.
REFUSED_BY_NUMPY = {
    "pad": lambda x: np.pad(x, 1, "edge", constant_values=0), "order of diff": lambda x: np.diff(x, -1),
    "one limit": lambda x: np.clip(x, 2), "limits twice": lambda x: np.clip(x, 1, 2, max=3),
    "weights of 0": lambda x: np.average(x, weights=[1, -1, 0]), "weights without an axis": lambda x: np.average(x.reshape(1, 3), weights=[1, 2, 3]),
    "weights of another length": lambda x: np.average(x, 0, weights=[1, 2]), "a truth value for a length": lambda x: np.reshape(x, (True, -1)),
    "minus truth values": lambda x: -(x > 1), "truth values less others": lambda x: (x > 1) - (x > 2),
    "True less truth values": lambda x: True - (x > 1), "a negative power of integers": lambda x: (x > 1).astype(int) ** -2,
    "negative powers of integers": lambda x: (x > 1).astype(int) ** np.array([1, -1, 2]), "Frobenius of a vector": lambda x: np.linalg.norm(x, "fro"),
    "a list for a number": lambda x: put(x, 0, [1]), "norm over three axes": lambda x: np.linalg.norm(x.reshape(1, 1, 3), 2), "a diagonal of two lengths": lambda x: np.einsum("ii,i->i", x.reshape(3, 1), x), "an order of einsum": lambda x: np.einsum("i,i,i", x, x, x, optimize=["einsum_path", (0, 1)]),
}


@pytest.mark.parametrize("name", REFUSED_BY_NUMPY)
def test_calls_that_numpy_refuses_are_refused_alike(mpc, name):
    call, x = REFUSED_BY_NUMPY[name], np.arange(3.0)
    with pytest.raises(Exception) as refused:
        call(x)
    with pytest.raises(refused.type):
        call(mpc.secret(x))


def test_what_has_no_secret_form_is_refused_by_an_error_of_the_package(mpc):
    x = mpc.secret(np.array([1.0, 0.0]))
    for call in (lambda: x / np.array([1.0, 0.0]), lambda: x / 0, lambda: x.nonzero(), lambda: np.nonzero(x), lambda: x.choose([x, x])):
        with pytest.raises(Error):
            call()
    assert not hasattr(x, "real") and not hasattr(x, "other")
    with pytest.raises(TypeError):
        np.add.at(np.zeros(2), [0, 1], x)
    with pytest.raises(TypeError, match="not for truth values"):
        +(x > 1)
    # Logarithms would not give whole powers exactly.
    whole = mpc.secret(np.array([1, 2]))
    for call in (lambda: whole**whole, lambda: 2**whole):
        with pytest.raises(InputError, match="make one of the two real"):
            call()
    same(2.0**whole, 2.0 ** np.array([1, 2]), 1e-4)


@pytest.mark.parametrize("order", [None, 0, 0.5, 1, 1.5, 2, 3, np.inf, -np.inf])
def test_norms_of_any_order_are_numpys(mpc, rng, order):
    x = numbers(rng, (3, 4), np.float64)
    x[0, 1] = 0
    for axis in (0, 1):
        same(np.linalg.norm(mpc.secret(x), order, axis, True), np.linalg.norm(x, order, axis, True), 2e-4)
    same(np.linalg.norm(mpc.secret(x[0]), order), np.linalg.norm(x[0], order), 1e-3)
    for wrong in (lambda x: np.linalg.norm(x, "nuclear", 0), lambda x: np.linalg.norm(x.reshape(1, 3, 4), 3)):
        with pytest.raises(ValueError):
            wrong(x)
        with pytest.raises(ValueError):
            wrong(mpc.secret(x))


def test_each_number_has_its_own_public_exponent(mpc, rng):
    x = numbers(rng, (2, 4), np.float64, 0.5, 2.0)
    power = np.array([2.0, -1.0, 0.75, -1.5])
    same(mpc.secret(x) ** power, x**power, 1e-3)
    same(np.power(mpc.secret(x[:, :1]), power), x[:, :1] ** power, 1e-3)
    # A whole exponent takes numbers of either sign.
    same(mpc.secret(-x) ** power[:2].repeat(2), (-x) ** power[:2].repeat(2), 1e-3)
    whole = np.arange(-2, 4).reshape(2, 3)
    same(mpc.secret(whole) ** [[3], [2]], whole ** np.array([[3], [2]]))
    same(mpc.secret(whole) ** np.zeros((0, 1, 1), int), whole ** np.zeros((0, 1, 1), int))


def test_long_axes_turn_and_roll_without_a_list_of_every_place(mpc, rng):
    calls = []

    class Watching:
        """The session, which notes the numbers of places of the gathers."""

        def __getattr__(self, name):
            return getattr(session, name)

        def call(self, function, operands, params=None):
            calls.append(len(params["indices"]) if function == "gather" else 0)
            return session.call(function, operands, params)

    session, mpc._session = mpc._session, Watching()
    try:
        for n in (65_536, 65_537, 90_000):
            x = rng.integers(-99, 99, n)
            secret = mpc.secret(x)
            same(secret[::-1], x[::-1])
            same(secret[-5:7:-3], x[-5:7:-3])
            same(np.roll(secret, 1234), np.roll(x, 1234))
    finally:
        mpc._session = session
    assert max(calls) <= 65_536
    for shape, shift, axis in (((2, 3), -4, None), ((2, 3), (1, -1), (0, 1)), ((2, 3), (2, 1), 1), ((2, 3), 1, (0, 1)), ((0, 3), 2, 0), ((), 3, None)):
        x = numbers(rng, shape, np.int64)
        same(np.roll(mpc.secret(x), shift, axis), np.roll(x, shift, axis))
    for axis in (None, 0, -1, (1, 0)):
        x = numbers(rng, (3, 4), np.int64)
        same(np.flip(mpc.secret(x), axis), np.flip(x, axis))


def test_whole_numbers_that_no_float_holds_are_exact(mpc):
    large = np.array([2**53 + 1, -(2**60) - 1, 2**61 - 1, 15**15])
    secret = mpc.secret(large)
    same(secret, large)
    assert np.array_equal(secret.reveal(to=1), large)
    same(secret - (2**60 + 1), large - (2**60 + 1))
    same((2**55 + 1) - secret[:2], (2**55 + 1) - large[:2])
    same(mpc.secret(np.array([1, -1, 0])) * (2**60 + 1), np.array([1, -1, 0]) * (2**60 + 1))
    same(mpc.secret(np.array([15, 7])) ** np.array([15, 20]), np.array([15, 7]) ** np.array([15, 20]))
    same(secret == 2**53 + 1, large == 2**53 + 1)
    assert [int(x) for x in mpc.reveal(secret, secret[:1])[0]] == large.tolist()


@pytest.mark.parametrize("name", ["sum", "mean", "max", "argmin", "prod", "any"])
def test_a_dtype_in_the_place_of_keepdims_is_refused(mpc, name):
    """NumPy's methods have a dtype there, or an array to write into."""
    x = mpc.secret(np.ones((2, 3)))
    for second in (float, np.zeros(3)):
        with pytest.raises(TypeError, match="keepdims is True or False"):
            getattr(x, name)(0, second)
    assert getattr(x, name)(0, None).shape == (3,) and getattr(x, name)(0, 1).shape == (1, 3)


def test_the_rule_of_a_joined_dtype_is_checked(mpc):
    with pytest.raises(ValueError, match="casting must be one of"):
        np.concatenate([mpc.secret([1]), mpc.secret([2])], casting="any")


@pytest.mark.parametrize("function", [np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal])
def test_integers_compare_exactly_with_real_numbers(mpc, function):
    """A bound next to an integer, finer than the session's real numbers, is not rounded to it."""
    x = np.array([-2, -1, 0, 1, 2])
    bounds = [0.5, 1.0, -1e-9, 1 + 1e-12, 2.5e9, np.array([-2.0, -0.5, 0.0, 1.5, 2.0]), np.float32(0.1), np.array([[0.5], [1.0]])]
    for bound in bounds:
        same(function(mpc.secret(x), bound), function(x, bound))
        same(function(bound, mpc.secret(x)), function(bound, x))
        same(function(mpc.secret(x > 0), bound), function(x > 0, bound))


def test_reciprocals_of_integers_are_refused(mpc):
    with pytest.raises(TypeError, match="`1 / x` is real"):
        np.reciprocal(mpc.secret([1, 2]))


def test_an_operand_that_fails_to_become_an_array_is_named(mpc):
    class Odd:
        def __array__(self, *_, **__):
            raise AttributeError("no such numbers")

    with pytest.raises(InputError, match="this Odd does not become an array: no such numbers"):
        mpc.secret([1.0]) * Odd()


def test_outer_takes_numbers_and_checks_the_axes(mpc):
    x = mpc.secret([3, 4])
    assert np.array_equal(np.multiply.outer(2, x).reveal(), [6, 8])
    assert np.array_equal(np.add.outer(x, 2).reveal(), [5, 6])
    deep = mpc.secret(np.ones((1,) * 33))
    with pytest.raises(ValueError, match="maximum supported dimension"):
        np.add.outer(deep, deep)


def test_products_of_no_truth_values_are_truth_values(mpc):
    same(mpc.secret(np.zeros((2, 0), bool)) @ np.zeros(0, bool), np.zeros(2, bool))

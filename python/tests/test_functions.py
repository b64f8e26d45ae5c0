"""Every function of the library is reachable from Python, under its own name or the one that is said here."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import _trefoil, functions as f

#: What has another form in Python than a function of `trefoil.functions`.
ELSEWHERE = {
    "not": "functions.not_",
    "Bitwise": "Secret.__and__",
    "bitwise": "Secret.__and__",
    "shift_left": "Secret.__lshift__",
    "shift_right": "Secret.__rshift__",
    "encode": "Mpc._public",
    "encode_integers": "Mpc._public",
    "decode": "Secret.reveal",
    "input": "Mpc.secret",
    "inputs": "Mpc.secret",
    "reveal": "Secret.reveal",
    "reveal_all": "Mpc.reveal",
    "reveal_to": "Secret.reveal",
    "Multiply": "functions.multiply",
    "Sorted": "functions.sort_with",
    "gaussian_variance": "functions.gaussian",
    "discrete_laplace_distance": "functions.discrete_laplace",
    "discrete_normal_distance": "functions.discrete_normal",
    "JOIN_KEY_BITS": "functions.join_keys",
    "JoinKind": "functions.join",
    "Joined": "functions.join",
    "Table": "functions.join",
    "Unique": "functions.unique",
    "Cost": "Cost",
    "costs": "Mpc.cost",
    "costs_for_slow_links": "Mpc.cost",
}

#: What networks are made of: Python reaches it through models, and NumPy's names where it has them.
IN_NETWORKS = {
    "Centre", "Logic", "Normalized", "Winners", "dot", "elu", "floor", "gelu_tanh", "hard_sigmoid", "hard_swish", "leaves_rows_faint", "logical",
    "max_pool_gradient", "max_pool_keeping", "maximum", "minimum", "negative_part", "normalize_watched", "relu_keeping", "softplus",
    "softsign", "view", "where_bits", "where_positive",
}


def library():
    """The names that `mpc_core::functions` makes public."""
    source = Path(__file__).parents[2] / "mpc-core/src/functions/mod.rs"
    used = re.findall(r"^pub use (?:\w+::)+(?:\{([^}]*)\}|(\w+));", source.read_text(), re.M)
    names = {name.strip() for group in used for part in group for name in part.split(",")}
    assert names >= IN_NETWORKS
    return names - IN_NETWORKS - {""}


def test_every_function_of_the_library_is_reachable():
    names = library()
    assert len(names) > 70
    for name in names:
        place = trefoil
        for part in ELSEWHERE.get(name, f"functions.{name}").split("."):
            assert hasattr(place, part), f"mpc_core::functions::{name} has no form in Python"
            place = getattr(place, part)
        assert inspect.getdoc(place), f"{name} is not documented"


def test_the_compiled_half_knows_the_librarys_functions_and_no_others():
    talks = {"encode", "encode_integers", "decode", "input", "inputs", "reveal", "reveal_all", "reveal_to"}
    talks |= {"Multiply", "Sorted", "gaussian_variance", "Bitwise"}
    talks |= {"JOIN_KEY_BITS", "JoinKind", "Joined", "Table", "Unique", "join_keys"}
    # Bounds, which the documentation states; and what Python makes of parts that have gradients.
    talks |= {"discrete_laplace_distance", "discrete_normal_distance", "dropout"}
    assert set(_trefoil.FUNCTIONS) == library() - talks


CASES = {
    "leaky_relu": (lambda x: f.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "clamp": (lambda x: f.clamp(x, -1, 1), lambda x: np.clip(x, -1, 1)),
    "relu": (f.relu, lambda x: np.maximum(x, 0)),
    "relu6": (f.relu6, lambda x: np.clip(x, 0, 6)),
    "relu_all": (lambda x: f.relu_all(x, -x)[1], lambda x: np.maximum(-x, 0)),
    "mul_scalar": (lambda x: f.mul_scalar(x, 1 / 3), lambda x: x / 3),
    "mul_scalar_to": (lambda x: f.mul_scalar_to(x, 1.5, 12), lambda x: x * 1.5),
    "div_scalar": (lambda x: f.div_scalar(x, 7), lambda x: x / 7),
    "add_scalar": (lambda x: f.add_scalar(x, 0.5), lambda x: x + 0.5),
    "rescale": (lambda x: f.rescale(x, 12), lambda x: x),
    "polynomial": (lambda x: f.polynomial(x, [1, 0.5, -0.25]), lambda x: 1 + x / 2 - x * x / 4),
    "pow": (lambda x: f.pow(x, 3), lambda x: x**3),
    "powf": (lambda x: f.powf(f.abs(x) + 1, 0.3), lambda x: (abs(x) + 1) ** 0.3),
    "inv_sqrt": (lambda x: f.inv_sqrt(f.abs(x) + 1), lambda x: (abs(x) + 1) ** -0.5),
    "inv_sqrt_to": (lambda x: f.inv_sqrt_to(f.abs(x) + 1, 16), lambda x: (abs(x) + 1) ** -0.5),
    "reciprocal_positive": (lambda x: f.reciprocal_positive(f.abs(x) + 1), lambda x: 1 / (abs(x) + 1)),
    "div": (lambda x: f.div(x, f.abs(x) + 1), lambda x: x / (abs(x) + 1)),
    "exp_nonpositive": (lambda x: f.exp_nonpositive(-f.abs(x)), lambda x: np.exp(-abs(x))),
    "sigmoid": (f.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "silu": (f.silu, lambda x: x / (1 + np.exp(-x))),
    "softmax": (f.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "log_softmax": (f.log_softmax, lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    "normalize": (f.normalize, lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)),
    "sum_squares": (lambda x: f.sum_squares(x, 1), lambda x: (x * x).sum(1, keepdims=True)),
    "norm": (lambda x: f.norm(x, 1), lambda x: np.linalg.norm(x, axis=1, keepdims=True)),
    "mean": (lambda x: f.mean(x, 1), lambda x: x.mean(1, keepdims=True)),
    "var": (lambda x: f.var(x, 1), lambda x: x.var(1, keepdims=True)),
    "max": (lambda x: f.max(x, 1), lambda x: x.max(1, keepdims=True)),
    "min": (lambda x: f.min(x, 1), lambda x: x.min(1, keepdims=True)),
    "argmax": (lambda x: f.argmax(x, 1), lambda x: x.argmax(1, keepdims=True)),
    "argmin": (lambda x: f.argmin(x, 1), lambda x: x.argmin(1, keepdims=True)),
    "top1": (lambda x: f.top1(x, 1)[1], lambda x: x.argmax(1, keepdims=True)),
    "sort": (f.sort, np.sort),
    "argsort": (f.argsort, lambda x: x.argsort(-1, kind="stable")),
    "sort_with": (lambda x: f.sort_with(x, [-x], 0)[2][0], lambda x: -np.sort(x, 0)),
    "unique": (lambda x: f.unique(f.sign(x.reshape(24)), 2)[1], lambda x: np.unique(np.sign(x), return_counts=True)[1][:2]),
    "order_statistics": (lambda x: f.order_statistics(x, [4, 0], 1), lambda x: np.sort(x, 1)[:, [4, 0]]),
    "top_k": (lambda x: f.top_k(x, 2)[0], lambda x: -np.sort(-x, 1)[:, :2]),
    "median": (f.median, lambda x: np.median(x, 1, keepdims=True)),
    "quantile": (lambda x: f.quantile(x, [0.1, 0.9]), lambda x: np.quantile(x, [0.1, 0.9], 1).T),
    "distinct": (lambda x: f.distinct(f.sign(x)), lambda x: np.array([[len(set(r))] for r in np.sign(x)])),
    "is_negative": (f.is_negative, lambda x: x < 0),
    "not_": (lambda x: f.not_(x < 0), lambda x: x >= 0),
    "select": (lambda x: f.select(x < 0, x, 2 * x), lambda x: np.where(x < 0, x, 2 * x)),
    "one_hot": (lambda x: f.one_hot(f.argmax(x, 1).reshape(4), 6), lambda x: np.eye(6)[x.argmax(1)]),
    "transpose": (f.transpose, np.transpose),
    "permute": (lambda x: f.permute(x, [1, 0]), np.transpose),
    "broadcast": (lambda x: f.broadcast(x, (2, 4, 6)), lambda x: np.broadcast_to(x, (2, 4, 6))),
    "slice": (lambda x: f.slice(x, 1, 1, 6, 2), lambda x: x[:, 1:6:2]),
    "gather": (lambda x: f.gather(x, 0, [3, 0]), lambda x: x[[3, 0]]),
    "pad": (lambda x: f.pad(x, [1, 0], [0, 2]), lambda x: np.pad(x, ((1, 0), (0, 2)))),
    "concat": (lambda x: f.concat([x, x], 1), lambda x: np.concatenate([x, x], 1)),
    "window_sum": (lambda x: f.window_sum(x, 2, 2), lambda x: x.reshape(2, 2, 3, 2).sum((1, 3))),
    "max_pool": (lambda x: f.max_pool(x, 2), lambda x: x.reshape(2, 2, 3, 2).max((1, 3))),
    "windows": (lambda x: f.windows(x, (1, 6)), lambda x: x.T[:, :, None]),
    "square": (f.square, np.square),
    "erf": (f.erf, lambda x: np.vectorize(__import__("math").erf)(x)),
    "gelu": (f.gelu, lambda x: x * (1 + np.vectorize(__import__("math").erf)(x / 2**0.5)) / 2),
    "bilinear": (lambda x: f.bilinear("matmul", x, x, transpose_rhs=True), lambda x: x @ x.T),
    "multiply": (lambda x: f.multiply("matmul", x, x, transpose_rhs=True, plus=np.ones(4), relu=True),
                 lambda x: np.maximum(x @ x.T + 1, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_compute_what_they_say(mpc, rng, name):
    x = np.round(rng.uniform(-3, 3, (4, 6)) * 1024) / 1024
    of_secret, of_plain = CASES[name]
    got, want = of_secret(mpc.secret(x)), of_plain(x)
    assert got.shape == want.shape
    assert np.allclose(got.reveal(), want, atol=2e-3)


def test_convolutions_are_those_of_the_definition(mpc, rng):
    x, w = (np.round(rng.uniform(-2, 2, shape) * 256) / 256 for shape in ((2, 4, 6, 5), (6, 2, 3, 3)))
    got = f.conv2d(mpc.secret(x), mpc.secret(w), stride=2, padding=1, groups=2).reveal()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((2, 6, 3, 3))
    for n, o, i, j in np.ndindex(want.shape):
        group = o // 3
        part = padded[n, 2 * group : 2 * group + 2, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
        want[n, o, i, j] = (part * w[o]).sum()
    assert np.allclose(got, want, atol=1e-5)
    fused = f.multiply("conv2d", mpc.secret(x), w, kernel=3, stride=2, padding=1, groups=2, relu=True)
    assert np.allclose(fused.reveal(), np.maximum(want, 0), atol=1e-5)


def test_noise_has_the_variance_that_is_said_and_is_other_noise_each_time(mpc):
    noise = f.gaussian(mpc, (50, 1000), 0.5)
    first, second = noise.reveal(), f.gaussian(mpc, (50, 1000), 0.5).reveal()
    for drawn in (first, second):
        # Of 50,000 numbers the variance is known to 0.6 %, the mean to 0.003.
        assert abs(drawn.var() / (1.5 * 0.25) - 1) < 0.03 and abs(drawn.mean()) < 0.015
    assert (first != second).mean() > 0.99
    # The reference beside the parties computes on the noise that they drew.
    drawn = f.gaussian(mpc, (3,), 0.5)
    assert np.allclose((drawn * 2).reveal(), drawn.reveal() * 2, atol=1e-5)
    for wrong in (0, -1, 1e-25, 1e30, np.nan, np.inf):
        with pytest.raises(trefoil.Error, match="standard deviation"):
            f.gaussian(mpc, (3,), wrong)


def test_random_numbers_have_their_distributions_and_are_other_ones_each_time(mpc):
    n = 20_000
    for draw, mean, variance in ((f.uniform, 1 / 2, 1 / 12), (f.exponential, 1, 1), (f.laplace, 0, 2), (f.normal, 0, 1)):
        first, second = draw(mpc, (n // 4, 4)).reveal(), draw(mpc, (n,)).reveal()
        assert first.shape == (n // 4, 4) and (first.ravel() != second).mean() > 0.99
        for drawn in (first, second):
            # Within 6 deviations of a mean; of the kinds' variances the exponential's has the largest deviation.
            assert abs(drawn.mean() - mean) < 6 * np.sqrt(variance / n) and abs(drawn.var() / variance - 1) < 0.15
    p = np.array([0.0, 0.2, 1.0])
    ones = f.bernoulli(f.constant(mpc, np.tile(p, (4000, 1)))).reveal()
    assert ones.dtype == bool and np.allclose(ones.mean(0), p, atol=0.04)
    weights = np.array([1.0, 0.0, 3.0])
    positions = f.weighted_index(mpc.secret(np.tile(weights, (4000, 1)))).reveal()
    assert positions.shape == (4000,) and np.allclose(np.bincount(positions, minlength=3) / 4000, weights / 4, atol=0.04)
    with pytest.raises(trefoil.InputError, match="real numbers"):
        f.bernoulli(mpc.secret(np.array([1])))
    with pytest.raises(trefoil.InputError, match="no positions"):
        f.weighted_index(mpc.secret(np.zeros((2, 0))))


def test_integers_that_no_party_knows_have_their_distributions(mpc):
    n = 20_000
    for draw, scale, weight in ((f.discrete_laplace, 3.0, lambda k: np.exp(-np.abs(k) / 3)),
                                (f.discrete_normal, 2.0, lambda k: np.exp(-(k**2) / 8)),
                                (f.discrete_normal, 30.0, lambda k: np.exp(-(k**2) / 1800))):
        first, second = draw(mpc, (n // 2, 2), scale).reveal(), draw(mpc, (n,), scale).reveal()
        assert first.dtype == np.int64 and (first.ravel() != second).mean() > 0.5
        k = np.arange(-400, 401)
        chances = weight(k) / weight(k).sum()
        variance = (chances * k**2).sum()
        for drawn in (first, second):
            assert abs(drawn.mean()) < 6 * np.sqrt(variance / n) and abs(drawn.var() / variance - 1) < 0.1
            assert abs((drawn == 0).mean() - chances[400]) < 6 * np.sqrt(chances[400] / n)
    with pytest.raises(trefoil.InputError, match="scale of 0"):
        f.discrete_laplace(mpc, (2,), 0)
    with pytest.raises(trefoil.InputError, match=r"2\^-3 to 2\^20"):
        f.discrete_normal(mpc, (2,), 1e9)


def test_dropout_has_secret_masks_of_its_own_each_time_and_a_gradient(mpc):
    x = mpc.secret(np.full((200, 50), 1.5))
    first, second = f.dropout(x, 0.25).reveal(), f.dropout(x, 0.25).reveal()
    kept = np.abs(first - 2) < 1e-5
    assert ((first == 0) | kept).all() and abs(kept.mean() - 0.75) < 0.03 and (first != second).any()
    assert abs(f.coins(mpc, (10_000,), 0.1).reveal().mean() - 0.1) < 0.02
    x.requires_grad = True
    y = f.dropout(x, 0.5)
    y.sum().backward()
    # What was kept has the gradient 2, what was not none.
    assert np.allclose(x.grad.reveal(), np.where(y.reveal() == 0, 0, 2), atol=1e-5)
    for wrong in (1.0, -0.1, np.nan):
        with pytest.raises(trefoil.InputError, match="probability"):
            f.dropout(x, wrong)
    with pytest.raises(trefoil.InputError, match="real numbers"):
        f.dropout(mpc.secret(np.array([1])), 0.5)


def test_every_function_of_the_compiled_half_refuses_what_it_cannot_use(mpc):
    x = mpc.secret(np.ones((2, 2)))
    # The ReLUs of no arrays are no arrays, and so is a shuffle of none.
    for name in set(_trefoil.FUNCTIONS) - {"relu_all", "shuffle"}:
        with pytest.raises(trefoil.Error):
            mpc._session.call(name, [], {})
    for name in ("sum", "gather", "reshape", "pad", "permute"):
        for values in ([-1], [1 << 60], []):
            keys = {"axes": values, "axis": 0, "indices": values, "shape": values, "before": values, "after": values}
            if name in ("sum", "gather") and values == []:
                continue
            with pytest.raises(trefoil.Error):
                mpc._session.call(name, [x._handle], keys)
    assert x.sum().reveal() == 4


def test_docstrings_say_what_is_taken_and_what_it_costs():
    things = {f"Data.{part}": thing for part, thing in vars(trefoil._cluster.Data).items()}
    things |= {f"functions.{name}": thing for name, thing in vars(f).items() if name.islower() and inspect.isfunction(thing)}
    for name in trefoil.__all__:
        thing = getattr(trefoil, name)
        things[name] = thing
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            fields = getattr(thing, "__dataclass_fields__", {})
            things |= {f"{name}.{part}": getattr(thing, part) for part in vars(thing) if part not in fields}
    seen = 0
    for name, thing in things.items():
        if name.split(".")[-1].startswith("_") or inspect.ismodule(thing):
            continue
        text = inspect.getdoc(thing)
        assert text, f"{name} is not documented"
        if not inspect.isfunction(thing):
            continue
        taken = [p for p in inspect.signature(thing).parameters if p != "self" and not p.startswith("_")]
        assert not taken or re.search(r"^Parameters\n-{10}$", text, re.M), name
        seen += 1
    assert seen > 120
    # Of the library's own table, so that nothing is said twice.
    assert "Cost: 6 rounds, 456 bits." in f.relu.__doc__ and "Cost: 21 rounds, 429 bits for rows of 16." in f.max.__doc__


def test_the_stub_names_what_the_compiled_half_has():
    import ast

    tree = ast.parse((Path(trefoil.__file__).parent / "_trefoil.pyi").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in dir(_trefoil) if not name.startswith("_")} - {"FUNCTIONS", "COSTS"}
    assert public == {name for name in classes if not name.startswith("_")} | functions
    for name in public - functions:
        # What several classes have stands in a class of the stub's own.
        bodies = [classes[name].body, *(classes[base.id].body for base in classes[name].bases)]
        named = {item.name for body in bodies for item in body if isinstance(item, ast.FunctionDef)} - {"__new__"}
        assert named == {n for n in vars(getattr(_trefoil, name)) if not n.startswith("_")}, name


def test_a_shuffle_keeps_rows_together(mpc, rng):
    x = rng.permutation(20)
    y = np.stack([x, 2 * x], 1) / 4
    first, second = (f.shuffle(mpc.secret(x), mpc.secret(y)) for _ in range(2))
    for places, rows in first, second:
        order = places.reveal()
        assert sorted(order) == sorted(x)
        assert (rows.reveal() == np.stack([order, 2 * order], 1) / 4).all()
    assert (first[0].reveal() != second[0].reveal()).any()
    assert f.shuffle() == []


def test_tables_are_joined_by_names(mpc):
    secret = bytes(range(32))
    left = ["ada", "bob", "cyd", "dan"]
    right = ["eve", "dan", "ada"]
    ages = np.array([36, 41, 29, 53])
    incomes = np.array([[1.5, 2.0], [3.25, 1.0], [0.5, 9.0]])
    keys = [mpc.secret(f.join_keys(secret, names)) for names in (left, right)]
    table = [mpc.secret(ages)], [mpc.secret(incomes)]
    (age,), (income,), matched, pairs = f.join(keys[0], table[0], keys[1], table[1])
    assert pairs.reveal() == [2] and matched.reveal().tolist() == [True, True, False]
    got = sorted(zip(age.reveal(), income.reveal().tolist()))
    assert got == [(0, [0, 0]), (36, [0.5, 9.0]), (53, [3.25, 1.0])]
    (age,), (income,), matched, _ = f.join(keys[0], table[0], keys[1], table[1], how="left")
    got = {a: (m, i) for a, m, i in zip(age.reveal(), matched.reveal(), income.reveal().tolist())}
    assert got == {36: (True, [0.5, 9.0]), 41: (False, [0, 0]), 29: (False, [0, 0]), 53: (True, [3.25, 1.0])}
    assert f.join(keys[0], [], keys[1], [], at_most=1)[2].shape == (1,)
    twice = mpc.secret(f.join_keys(secret, ["ada", "bob", "ada"]))
    with pytest.raises(trefoil.InputError, match="two rows with one key"):
        f.join(twice, [], keys[1], [])
    with pytest.raises(trefoil.InputError, match="'inner' or 'left'"):
        f.join(keys[0], [], keys[1], [], how="outer")
    with pytest.raises(trefoil.InputError, match="31 bytes"):
        f.join_keys(secret[1:], left)

"""Gradients of expressions of secret arrays against differences in floats."""

import gc
from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import InputError, _trefoil, functions
from trefoil._autograd import _FLAT
from trefoil._gradients import _RULES

DATA = Path(__file__).parents[2] / "models/data"

TABLE = np.random.default_rng(5).uniform(-1, 1, (3, 2))

#: Expressions of arrays `x` [2, 3] and `y` [3], written for secret and public arrays alike.
EXPRESSIONS = {
    "arithmetic": lambda x, y: x * y - 2.0 * x / 4.0 + 3.0 - (1.0 - y),
    "quotients": lambda x, y: x / (y * y + 1.0) + 1.0 / (x * x + 0.5) + x / np.array([2.0, 4.0, -1.0]),
    "products": lambda x, y: (x @ TABLE) @ (TABLE.T @ y) + x @ y,
    "powers": lambda x, y: (x * x + 0.5) ** 0.5 + (x * x + 0.25) ** -0.5 + x**3 - (y * y + 1.0) ** 1.5 + np.square(x),
    "functions": lambda x, y: np.exp(x) + np.log(x * x + 0.5) + np.sin(y) * np.cos(x) + np.tanh(x),
    "pieces": lambda x, y: np.abs(x) + np.maximum(x, y) + np.minimum(x, 0.25) + np.clip(y, -0.5, 0.5) + np.where(x > 0.1, x, y * y),
    "moves": lambda x, y: np.concatenate([x[:, 1:], x[::-1, :1] * 3.0, x[:, ::2]], 1).T[[0, 2, 2, 1]] * np.broadcast_to(y[:2], (4, 2)),
    "sums": lambda x, y: x.sum(0) * x.mean() + x.mean(1, keepdims=True).sum() * y + np.stack([y, y * y]).sum(0),
    "extremes": lambda x, y: x.max(1) * 2.0 + x.min(1) - y.max(),
    "dot": lambda x, y: np.dot(y, y) * np.transpose(x) + np.outer(y, x[0])[:, :2],
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_gradients_are_those_of_differences(mpc, rng, name):
    f = EXPRESSIONS[name]
    numbers = [rng.uniform(0.2, 1.2, shape) * rng.choice([-1, 1], shape) for shape in ((2, 3), (3,))]
    weight = rng.uniform(-1, 1, np.shape(f(*numbers)))
    secrets = [mpc.secret(v) for v in numbers]
    for s in secrets:
        s.requires_grad = True
    result = f(*secrets)
    assert result.requires_grad
    result.backward(weight)
    for at, (s, v) in enumerate(zip(secrets, numbers)):
        want = np.zeros(v.shape)
        for i in np.ndindex(v.shape):
            moved = [[n.copy() for n in numbers] for _ in range(2)]
            moved[0][at][i] += 1e-6
            moved[1][at][i] -= 1e-6
            want[i] = ((f(*moved[0]) - f(*moved[1])) * weight).sum() / 2e-6
        assert np.abs(s.grad.reveal() - want).max() < 2e-3, at


def test_functions_of_networks_pass_gradients(mpc, rng):
    numbers = rng.uniform(-2, 2, (2, 4))
    weight = rng.uniform(-1, 1, (2, 4))
    soft = lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    for secret, clear in [
        (functions.relu, lambda x: np.maximum(x, 0)), (functions.sigmoid, sigmoid), (functions.silu, lambda x: x * sigmoid(x)),
        (lambda x: functions.softmax(x, 1), soft), (lambda x: functions.log_softmax(x, 1), lambda x: np.log(soft(x))),
    ]:
        x = mpc.secret(numbers)
        x.requires_grad = True
        secret(x).backward(weight)
        want = [(clear(numbers + d) - clear(numbers - d)) * weight / 2e-6 for d in (1e-6 * np.eye(8).reshape(8, 2, 4))]
        assert np.abs(x.grad.reveal().ravel() - [w.sum() for w in want]).max() < 2e-3


def test_a_loop_of_descent_and_what_is_remembered(mpc, rng):
    x, target = rng.uniform(-1, 1, (16, 3)), np.array([0.5, -1.0, 2.0])
    data, labels = mpc.secret(x), mpc.secret(x @ target)
    w = mpc.secret(np.zeros(3))
    for _ in range(30):
        w.requires_grad = True
        loss = ((data @ w - labels) ** 2).mean()
        loss.backward()
        assert data.grad is None and not data.requires_grad
        with trefoil.no_grad():
            w = w - 0.5 * w.grad
        assert not w.requires_grad
    assert np.abs(w.reveal() - target).max() < 0.1
    # Gradients add up until they are cleared; what nothing needs any more is forgotten.
    x = mpc.secret(np.array(3.0))
    x.requires_grad = True
    (x * x).backward()
    (x * x + x.detach() * x).backward()
    assert x.grad.reveal() == pytest.approx(6 + 6 + 3, abs=1e-4)
    x.grad = None
    (x * 2.0).backward()
    assert x.grad.reveal() == pytest.approx(2, abs=1e-4)
    del loss, data, labels, w
    gc.collect()
    assert len(mpc._session._nodes) == 0


def test_what_has_no_gradient_is_said(mpc):
    x = mpc.secret(np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="requires_grad=True"):
        x.backward()
    x.requires_grad = True
    with pytest.raises(InputError, match="needs a gradient of that shape"):
        (x * 2).backward()
    with pytest.raises(InputError, match="the gradient has shape"):
        (x * 2).backward(mpc.secret(np.ones(3)))
    with pytest.raises(InputError, match="no gradient; make it real"):
        mpc.secret(np.array([1, 2])).requires_grad = True
    assert not (x > 1).requires_grad
    images = mpc.secret(np.zeros((1, 1, 8, 8)))
    images.requires_grad = True
    with pytest.raises(InputError, match="no gradient through `a model`"):
        mpc.run(trefoil.Model.from_onnx(DATA / "digits.onnx"), images).sum().backward()


def test_every_function_has_a_gradient_is_flat_or_says_that_it_has_none():
    refused = {"sort", "sort_with", "order_statistics", "top_k", "median", "quantile", "shuffle", "join", "unique"}
    assert set(_trefoil.FUNCTIONS) - _FLAT - {"relu_all"} - refused == set(_RULES) - {"bound"}


WINDOW = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}

#: Products and sums of two arrays or one, linear in each, with the arrays' shapes.
LINEAR = {
    "conv2d": (lambda x, w: functions.conv2d(x, w, **{k: v for k, v in WINDOW.items() if k != "kernel"}, groups=2), (2, 4, 5, 4), (6, 2, 3, 2)),
    "conv2d_input_grad": (
        lambda x, w: functions.bilinear("conv2d_input_grad", x, w, **WINDOW, groups=2, input=(5, 4)), (2, 6, 3, 2), (6, 2, 3, 2),
    ),
    "conv2d_weight_grad": (lambda x, y: functions.bilinear("conv2d_weight_grad", x, y, **WINDOW, groups=2), (2, 4, 5, 4), (2, 6, 3, 2)),
    "transposed matrices": (lambda x, y: functions.bilinear("matmul", x, y, transpose_lhs=True, transpose_rhs=True), (3, 5), (4, 3)),
    "one transposed matrix": (lambda x, y: functions.multiply("matmul", x, y, transpose_rhs=True), (2, 3, 5), (2, 4, 5)),
    "windows": (lambda x: functions.windows(x, **WINDOW), (2, 3, 5, 4)),
    "window_sum": (lambda x: functions.window_sum(x, **WINDOW), (2, 3, 5, 4)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_gradients_of_linear_functions_are_their_adjoints(mpc, rng, name):
    f, *shapes = LINEAR[name]
    numbers = [rng.uniform(-1, 1, shape) for shape in shapes]
    secrets = [mpc.secret(v) for v in numbers]
    for s in secrets:
        s.requires_grad = True
    made = f(*secrets)
    weight = rng.uniform(-1, 1, made.shape)
    made.backward(weight)
    for at, s in enumerate(secrets):
        moved = [mpc.secret(v) for v in numbers]
        other = rng.uniform(-1, 1, s.shape)
        moved[at] = mpc.secret(other)
        with trefoil.no_grad():
            want = (f(*moved).reveal() * weight).sum()
        assert (s.grad.reveal() * other).sum() == pytest.approx(want, abs=1e-3), at


def pooled(x):
    """The largest of 2 x 3 numbers, at steps of 1 and 2, within a border that is never the largest."""
    bordered = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-9.0)
    return np.lib.stride_tricks.sliding_window_view(bordered, (2, 3), (2, 3))[:, :, :, ::2].max((-2, -1))


def normal(x):
    return (x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(x.var((1, 2, 3), keepdims=True) + 1e-5)


#: Functions of one array with the same in NumPy.
CURVED = {
    "max_pool": (lambda x: functions.max_pool(x, (2, 3), (1, 2), 1), pooled),
    "normalize": (lambda x: functions.normalize(x, 1), normal),
    "polynomial": (lambda x: functions.polynomial(x, [1.0, 2.0, -1.0, 0.5]), lambda x: 1 + 2 * x - x**2 + 0.5 * x**3),
    "a line": (lambda x: functions.polynomial(x, [1.0, 2.0]), lambda x: 1 + 2 * x),
    "top1": (lambda x: functions.top1(x, 3)[0], lambda x: x.max(3, keepdims=True)),
    "relu_all": (lambda x: functions.relu_all(x, x * -2.0)[1], lambda x: np.maximum(-2 * x, 0)),
    "a product with a sum and a ReLU": (lambda x: functions.multiply("mul", x, x, plus=x, relu=True), lambda x: np.maximum(x * x + x, 0)),
    "inv_sqrt_to": (lambda x: functions.inv_sqrt_to(x * x + 0.5, 18), lambda x: (x * x + 0.5) ** -0.5),
    "places that are added up": (lambda x: np.add.at(y := x * 1.0, (slice(None), [0, 0]), x[:, ::-1][:, :2]) or y,
                                 lambda x: np.add.at(y := x * 1.0, (slice(None), [0, 0]), x[:, ::-1][:, :2]) or y),
}


@pytest.mark.parametrize("name", CURVED)
def test_gradients_of_functions_of_pictures_are_those_of_differences(mpc, rng, name):
    secret, clear = CURVED[name]
    # No two numbers are close, so that the largest is clear.
    numbers = rng.permutation(np.linspace(-1.5, 1.6, 48)).reshape(1, 2, 4, 6)
    weight = rng.uniform(-1, 1, clear(numbers).shape)
    x = mpc.secret(numbers)
    x.requires_grad = True
    secret(x).backward(weight)
    steps = 1e-6 * np.eye(48).reshape(48, *numbers.shape)
    want = [((clear(numbers + d) - clear(numbers - d)) * weight).sum() / 2e-6 for d in steps]
    assert np.abs(x.grad.reveal().ravel() - want).max() < 2e-3


def test_what_is_computed_stays_so_when_it_is_asked_for_a_gradient(mpc):
    x = mpc.secret(np.array([1.0, 2.0]))
    x.requires_grad = True
    y = x * 2.0
    y.requires_grad = True
    y.sum().backward()
    assert y.grad is None and np.allclose(x.grad.reveal(), 2)


def test_a_sign_has_a_gradient_of_zero_as_in_pytorch(mpc):
    x = mpc.secret(np.array([1.0, -2.0]))
    x.requires_grad = True
    y = np.sign(x)
    assert y.requires_grad
    (y * 3.0 + x).sum().backward()
    assert np.array_equal(x.grad.reveal(), [1, 1])


class Straight(trefoil.Function):
    """The sign of ``scale * x + y``, whose gradient is that of the sum."""

    @staticmethod
    def forward(context, x, scale, y):
        context.scale = scale
        return np.sign(x * scale + y).astype(float)

    @staticmethod
    def backward(context, grad):
        return grad * context.scale, None, grad


def test_a_function_has_the_gradient_that_it_defines(mpc):
    x, y = mpc.secret([0.5, -2.0]), mpc.secret([[0.25, 0.5], [3.0, 0.5]])
    x.requires_grad = y.requires_grad = True
    z = Straight.apply(x * 2.0, 3.0, y)
    assert z.requires_grad and np.array_equal(z.reveal(), [[1, -1], [1, -1]])
    (z * np.array([1.0, 10.0])).sum().backward()
    # The axis along which `x` is repeated is summed over.
    assert np.allclose(x.grad.reveal(), [12, 120], atol=1e-4)
    assert np.allclose(y.grad.reveal(), [[1, 10], [1, 10]], atol=1e-4)
    with trefoil.no_grad():
        assert not Straight.apply(x, 3.0, y).requires_grad
    constant = mpc.secret([1.0])
    assert not Straight.apply(constant, 1.0, constant).requires_grad


def test_a_function_that_returns_its_operand_has_its_own_gradient(mpc):
    class Doubled(trefoil.Function):
        forward = staticmethod(lambda context, x: x)
        backward = staticmethod(lambda context, grad: grad * 2.0)

    x = mpc.secret([1.0, 2.0])
    x.requires_grad = True
    (Doubled.apply(x) + x).sum().backward()
    assert np.allclose(x.grad.reveal(), [3, 3], atol=1e-4)


def test_functions_that_return_something_else_are_named(mpc):
    def function(result, gradients):
        class Odd(trefoil.Function):
            forward = staticmethod(lambda context, x: result(x))
            backward = staticmethod(lambda context, grad: gradients)

        return Odd

    x = mpc.secret([1.0, 2.0])
    x.requires_grad = True
    with pytest.raises(InputError, match="Odd.forward returned a ndarray, not a secret array"):
        function(lambda x: np.ones(2), None).apply(x)
    with pytest.raises(InputError, match="Odd.backward returned 2 gradients of 1 arguments"):
        function(lambda x: x * 2.0, (None, None)).apply(x).sum().backward()
    with pytest.raises(InputError, match="Odd.backward returned a ndarray, not a secret array or None"):
        function(lambda x: x * 2.0, np.ones(2)).apply(x).sum().backward()
    with pytest.raises(NotImplementedError, match="defines forward"):
        trefoil.Function.apply(x)
    function(lambda x: x * 2.0, None).apply(x).sum().backward()
    assert x.grad is None


def test_a_number_that_is_taken_often_gets_its_gradient_in_few_calls(mpc, rng):
    places, factors = rng.integers(0, 3, 1000), rng.integers(-8, 9, 1000) / 4.0
    x = mpc.secret([1.0, 2.0, 3.0])
    x.requires_grad = True
    y = (x[places] * factors).sum()
    mpc.cost()
    y.backward()
    assert sum(step.calls for step in mpc.cost().steps if step.name == "gather") < 40
    assert np.allclose(x.grad.reveal(), np.bincount(places, factors), atol=1e-3)


def test_the_gradient_of_a_border_is_left_out(mpc):
    x = mpc.secret([[1.0, 2.0], [3.0, 4.0]])
    x.requires_grad = True
    padded = np.pad(x, ((1, 0), (2, 3)), constant_values=7)
    assert np.array_equal(padded.reveal(), np.pad([[1, 2], [3, 4]], ((1, 0), (2, 3)), constant_values=7))
    (padded * np.arange(21.0).reshape(3, 7)).sum().backward()
    assert np.allclose(x.grad.reveal(), [[9, 10], [16, 17]], atol=1e-4)


def test_numbers_at_secret_places_have_gradients(mpc, rng):
    x, places = rng.normal(0, 1, (3, 5, 2)), np.array([[4, 0, 0], [2, 4, 1]])
    factors = rng.normal(0, 1, (3, 2, 3, 2))
    s = mpc.secret(x)
    s.requires_grad = True
    (np.take(s, mpc.secret(places), axis=1) * factors).sum().backward()
    want = np.zeros_like(x)
    np.add.at(want, (slice(None), places), factors)
    assert np.allclose(s.grad.reveal(), want, atol=1e-5)
    rows, weights = mpc.secret(x[0]), rng.normal(0, 1, (4, 2))
    rows.requires_grad = True
    (trefoil.functions.scatter_add(rows, mpc.secret(places.ravel()[:5] % 4), 4) * weights).sum().backward()
    assert np.allclose(rows.grad.reveal(), weights[places.ravel()[:5] % 4], atol=1e-5)

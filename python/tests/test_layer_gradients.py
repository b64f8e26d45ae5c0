"""A step through layers that few networks have: each weight moves by its gradient, as differences of the loss give it."""

import numpy as np
import pytest

import trefoil
from trefoil import optim
from trefoil._record import Batch, Call, Recorded, Ref, Value

ROWS, RATE = 4, 0.5
X = Ref("affine")


def cubic(inputs, outputs, corners=False):
    """PyTorch's bicubic interpolation along an axis, as a matrix ``[outputs, inputs]``."""
    matrix = np.zeros((outputs, inputs))
    for row in range(outputs):
        at = row * (inputs - 1) / (outputs - 1) if corners else (row + 0.5) * inputs / outputs - 0.5
        for place in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
            d = abs(at - place)
            near = (1.25 * d - 2.25) * d * d + 1
            far = -0.75 * (((d - 5) * d + 8) * d - 4)
            matrix[row, min(max(place, 0), inputs - 1)] += near if d <= 1 else far if d < 2 else 0
    return matrix


def bicubic(x, size, corners):
    return np.einsum("ai,bj,ncij->ncab", cubic(x.shape[2], size[0], corners), cubic(x.shape[3], size[1], corners), x)


def averaged(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5))


#: The calls that PyTorch records after an affine layer, by name: target and arguments; what they compute; the shape of a row.
LAYERS = {
    "celu": ([("celu", X, 0.7)], lambda x: np.where(x > 0, x, 0.7 * np.expm1(x / 0.7)), (6,)),
    "softshrink": (
        [("abs", X), ("gt.Scalar", Ref("0"), 0.4), ("sign", X), ("mul.Tensor", Ref("2"), 0.4), ("sub.Tensor", X, Ref("3")),
         ("mul.Tensor", X, 0), ("where.self", Ref("1"), Ref("4"), Ref("5"))],
        lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.4, 0), (6,)),
    "hardshrink": (
        [("abs", X), ("le.Scalar", Ref("0"), 0.4), ("where.self", Ref("1"), Ref("zero"), X)],
        lambda x: np.where(np.abs(x) > 0.4, x, 0), (6,)),
    "tanhshrink": ([("tanh", X), ("sub.Tensor", X, Ref("0"))], lambda x: x - np.tanh(x), (6,)),
    "norm pool": (
        [("pow.Tensor_Scalar", X, 2.0), ("avg_pool2d", Ref("0"), [2, 2]), ("sign", Ref("1")), ("abs", Ref("1")), ("relu", Ref("3")),
         ("mul.Tensor", Ref("2"), Ref("4")), ("mul.Tensor", Ref("5"), 4), ("pow.Tensor_Scalar", Ref("6"), 0.5)],
        lambda x: np.sqrt(4 * averaged(x * x)), (2, 4, 4)),
    "bicubic": ([("upsample_bicubic2d.vec", X, [7, 5], False, None)], lambda x: bicubic(x, (7, 5), False), (2, 4, 4)),
    "bicubic corners": ([("upsample_bicubic2d.vec", X, None, True, [2.0, 2.0])], lambda x: bicubic(x, (8, 6), True), (1, 4, 3)),
    "smaller bicubic": ([("upsample_bicubic2d.vec", X, [3, 2], False, None)], lambda x: bicubic(x, (3, 2), False), (1, 7, 6)),
}


def network(calls, shape, result, weights):
    """The calls after a product with weights and a sum, as they are recorded of PyTorch."""
    value = Value((Batch(1), *shape), "f")
    recorded = [
        Call("product", "aten.mul.Tensor", (Ref("x"), Ref("weight")), {}, (value,)),
        Call("affine", "aten.add.Tensor", (Ref("product"), Ref("bias")), {}, (value,)),
    ]
    pooled = False
    for at, (target, *args) in enumerate(calls):
        pooled = pooled or target.startswith(("avg_pool", "upsample"))
        kind = "b" if target.startswith(("gt", "le")) else "f"
        own = Value((Batch(1), *(result if pooled else shape)), kind)
        target = target if "." in target else f"{target}.default"
        recorded.append(Call(str(at), f"aten.{target}", tuple(args), {}, (own,)))
    constants = weights | {"zero": np.float32(0)}
    return trefoil.Model._of(Recorded({"x": value}, constants, recorded, {"y": Ref(recorded[-1].name)}, True, ("weight", "bias")))


@pytest.mark.parametrize("name", LAYERS)
def test_weights_move_by_their_gradients(mpc, rng, name):
    calls, meaning, shape = LAYERS[name]
    weights = {"weight": rng.normal(size=shape), "bias": 0.3 * rng.normal(size=shape)}
    weights = {key: np.float32(value).astype(float) for key, value in weights.items()}
    x = np.round(rng.normal(size=(ROWS, *shape)) * 256) / 256
    result = meaning(x).shape[1:]
    y = rng.normal(size=(ROWS, *result))

    def loss(w):
        return np.mean((meaning(x * w["weight"] + w["bias"]) - y) ** 2)

    model = network(calls, shape, result, {key: value.astype(np.float32) for key, value in weights.items()})
    assert np.allclose(model.evaluate(x), meaning(x * weights["weight"] + weights["bias"]), atol=1e-5)
    trainer = trefoil.Trainer(model, "mean_square", optim.SGD(lr=RATE), batch_size=ROWS, mpc=mpc)
    assert trainer.step(x, y)["loss"] == pytest.approx(loss(weights), abs=1e-3)
    for key, value in trainer.state_dict().items():
        want = np.zeros(shape)
        for place in np.ndindex(shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {k: v.copy() for k, v in weights.items()}
                moved[key][place] += step
                ends.append(loss(moved))
            want[place] = -RATE * (ends[0] - ends[1]) / 2e-5
        got = value - weights[key]
        assert np.abs(want).max() > 0.01 and np.abs(got - want).max() < 1e-3 * np.abs(want).max() + 1e-5, key


def test_a_network_whose_result_is_its_loss_learns_triplets(mpc, rng):
    """PyTorch's ``TripletMarginLoss(margin=0.5)`` inside the network, as it is recorded: its mean is that of magnitudes."""
    start = np.float32(rng.normal(size=(4, 6))).astype(float)
    triplet = [np.round(rng.normal(size=(ROWS, 6)) * 256) / 256 for _ in range(3)]

    def losses(w):
        a, p, n = (x @ w.T for x in triplet)
        far = lambda u, v: np.sqrt(((u - v + 1e-6) ** 2).sum(1))
        return np.maximum(far(a, p) + 0.5 - far(a, n), 0)

    calls = []

    def call(target, *args, shape=(4,)):
        calls.append(Call(str(len(calls)), f"aten.{target}", args, {}, (Value((Batch(1), *shape), "f"),)))
        return Ref(calls[-1].name)

    def distance(u, v):
        d = call("add.Scalar", call("sub.Tensor", u, v), 1e-6)
        return call("pow.Tensor_Scalar", call("sum.dim_IntList", call("pow.Tensor_Scalar", d, 2.0), [1], shape=()), 0.5, shape=())

    a, p, n = (call("linear.default", Ref(name), Ref("weight"), None) for name in "apn")
    more = call("add.Scalar", distance(a, p), 0.5, shape=())
    loss = call("clamp.default", call("sub.Tensor", more, distance(a, n), shape=()), 0, shape=())
    call("unsqueeze.default", loss, 1, shape=(1,))
    inputs = {name: Value((Batch(1), 6), "f") for name in "apn"}
    recorded = Recorded(inputs, {"weight": np.float32(start)}, calls, {"loss": Ref(calls[-1].name)}, True, ("weight",))
    trainer = trefoil.Trainer(trefoil.Model._of(recorded), "absolute", optim.SGD(lr=RATE), batch_size=ROWS, mpc=mpc)
    assert 0 < (losses(start) > 0).sum() < ROWS
    seen = trainer.step(*triplet, np.zeros((ROWS, 1)))
    assert seen["loss"] == pytest.approx(losses(start).mean(), abs=1e-3)
    want = np.zeros_like(start)
    for place in np.ndindex(start.shape):
        ends = [losses(start + step * (np.arange(24).reshape(4, 6) == place[0] * 6 + place[1])).mean() for step in (1e-5, -1e-5)]
        want[place] = -RATE * (ends[0] - ends[1]) / 2e-5
    got = trainer.state_dict()["weight"] - start
    assert np.abs(got - want).max() < 1e-3 * np.abs(want).max() + 1e-5

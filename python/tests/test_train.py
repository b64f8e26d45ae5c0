"""Training by three parties against the same in floats, and against steps that PyTorch made."""

import gzip
import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from torch_models import fill

import trefoil
from trefoil import ConfigError, InputError, optim
from trefoil._train import loss_of
from trefoil._record import Batch, Call, Recorded, Ref, Value

ROOT = Path(__file__).parents[2]
DATA = ROOT / "models/data"


def perceptron(inputs, hidden, outputs):
    """A network of two layers, as it is recorded of PyTorch."""
    call = lambda name, target, args, n: Call(name, f"aten.{target}.default", args, {}, (Value((Batch(1), n), "f"),))
    shapes = {"one.weight": (hidden, inputs), "one.bias": (hidden,), "two.weight": (outputs, hidden), "two.bias": (outputs,)}
    return Recorded(
        {"x": Value((Batch(1), inputs), "f")},
        {name: fill(name, shape) for name, shape in shapes.items()},
        [
            call("a", "linear", (Ref("x"), Ref("one.weight"), Ref("one.bias")), hidden),
            call("b", "relu", (Ref("a"),), hidden),
            call("c", "linear", (Ref("b"), Ref("two.weight"), Ref("two.bias")), outputs),
        ],
        {"logits": Ref("c")}, True, tuple(shapes),
    )


def model_of(recorded):
    return trefoil.Model._of(recorded)


@pytest.fixture(scope="module")
def digits():
    with gzip.open(DATA / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", ndmin=2)
    return table[:, :64] / 16, table[:, 64].astype(int)


@pytest.mark.parametrize("optimiser", [
    optim.SGD(lr=0.2),
    optim.SGD(lr=optim.Cosine(0.2, 12, warm_up=3), momentum=0.9, weight_decay=1e-3),
    optim.SGD(lr=optim.StepLR(0.2, 4, 0.5), momentum=0.5, nesterov=True),
])
def test_a_training_goes_as_in_floats(mpc, digits, optimiser):
    images, labels = digits
    trainer = trefoil.Trainer(model_of(perceptron(64, 16, 10)), "cross_entropy", optimiser, batch_size=32, mpc=mpc,
                              metrics=("loss", "accuracy"))
    state, losses = None, []
    batches = [batch for seed in range(2) for batch in trainer.batches(images[:200], labels[:200], seed=seed)]
    assert len(batches) == 12
    for step, batch in enumerate(batches):
        seen = trainer.step(*batch)
        state, want = trainer.evaluate_step(state, *batch, step=step)
        assert seen["loss"] == pytest.approx(want["loss"], abs=2e-3) and seen["accuracy"] == want["accuracy"]
        losses.append(seen["loss"])
    assert losses[-1] < 0.85 * losses[0] and trainer.steps == 12
    weights = trainer.state_dict()
    assert {name: w.shape for name, w in weights.items()} == {
        "one.weight": (16, 64), "one.bias": (16,), "two.weight": (10, 16), "two.bias": (10,)}
    # Applied with secret weights, and with those that are revealed.
    private = trainer.predict(images[:5]).reveal()
    hidden = np.maximum(images[:5] @ weights["one.weight"].T + weights["one.bias"], 0)
    want = hidden @ weights["two.weight"].T + weights["two.bias"]
    assert np.abs(private - want).max() < 1e-3
    assert np.abs(trainer.model().evaluate(images[:5]) - want).max() < 1e-9


class Layers:
    """A network as it would be recorded of PyTorch, layer by layer. `start` are its weights."""

    def __init__(self, shape, start):
        self.start, self.calls = start, []
        self.x = Value((Batch(1), *shape), "f")

    def add(self, target, *args, shape):
        name = f"call {len(self.calls)}"
        self.calls.append(Call(name, f"aten.{target}", args, {}, (Value((Batch(1), *shape), "f"),)))
        return Ref(name)

    def weights(self, name, *parts):
        return [Ref(f"{name}.{part}") if f"{name}.{part}" in self.start else None for part in parts]

    def linear(self, name, x):
        weight, bias = self.weights(name, "weight", "bias")
        return self.add("linear.default", x, weight, bias, shape=self.start[weight.name].shape[:1])

    def conv(self, name, x, size, stride, padding):
        (weight,) = self.weights(name, "weight")
        window = (None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1)
        return self.add("convolution.default", x, weight, *window, shape=(len(self.start[weight.name]), size, size))

    def norm(self, name, x, shape, momentum=0.1, epsilon=1e-5):
        parts = self.weights(name, "weight", "bias", "running_mean", "running_var")
        y = self.add("_native_batch_norm_legit_no_training.default", x, *parts, momentum, epsilon, shape=shape)
        return Ref(f"{y.name}:0")

    def model(self, y):
        parameters = tuple(name for name in self.start if "running" not in name)
        return trefoil.Model._of(Recorded({"x": self.x}, self.start, self.calls, {"logits": y}, True, parameters))


def dense(start):
    layers = Layers((5,), start)
    y = layers.norm("bn", layers.linear("fc1", Ref("x")), (7,))
    return layers.model(layers.linear("fc2", layers.add("tanh.default", y, shape=(7,))))


def residual(start):
    layers = Layers((3, 6, 6), start)
    x = layers.norm("bn1", layers.conv("conv1", Ref("x"), 6, 1, 1), (4, 6, 6))
    x = layers.add("relu.default", x, shape=(4, 6, 6))
    y = layers.norm("bn2", layers.conv("conv2", x, 3, 2, 1), (4, 3, 3), 0.25, 1e-3)
    x = layers.norm("bn3", layers.conv("down", x, 3, 2, 0), (4, 3, 3))
    x = layers.add("relu.default", layers.add("add.Tensor", y, x, shape=(4, 3, 3)), shape=(4, 3, 3))
    return layers.model(layers.linear("fc", layers.add("mean.dim", x, [2, 3], shape=(4,))))


#: Adam's numbers in the recordings: a root beside which epsilon does not count.
ADAM = {"lr": 2**-7, "betas": (0.90625, 0.99), "eps": 1e-13}
RECORDED = {
    "residual-sgd": (residual, optim.SGD(lr=0.125, momentum=0.5), 2**-12),
    "dense-sgd": (dense, optim.SGD(lr=0.125, momentum=0.5, nesterov=True, weight_decay=2**-6), 2**-12),
    "dense-adam": (dense, optim.Adam(**ADAM), 2**-10),
    "dense-amsgrad": (dense, optim.Adam(**ADAM, amsgrad=True, weight_decay=2**-6), 2**-10),
    "dense-adamw": (dense, optim.AdamW(**ADAM, weight_decay=2**-4), 2**-10),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_training_goes_as_in_pytorch(mpc, name):
    # Recorded by models/scripts/train_fixtures.py.
    network, optimiser, tolerance = RECORDED[name]
    recorded = json.loads((ROOT / f"nn-layers/tests/data/{name}.json").read_text())
    tensor = lambda x: np.array(x["values"]).reshape(x["dims"])
    start, end = ({key: tensor(x) for key, x in recorded[state].items()} for state in ("start", "end"))
    trainer = trefoil.Trainer(network(start), "cross_entropy", optimiser, batch_size=4, mpc=mpc)
    state = None
    for step, (batch, loss) in enumerate(zip(recorded["batches"], recorded["losses"])):
        x, labels = tensor(batch["x"]), np.array(batch["labels"])
        seen = trainer.step(x, labels)
        state, clear = trainer.evaluate_step(state, x, labels, step=step)
        # 2^-20 is added to the probability of the right class before its logarithm is taken: 2^-20 / p less.
        assert 2**-21 < loss - clear["loss"] < 1e-5
        assert seen["loss"] == pytest.approx(loss, abs=2e-3)
    private = trainer.state_dict()
    # What the optimiser keeps is not the network's.
    assert private.keys() == end.keys()
    in_floats = dict(zip([name for name, _, _ in trainer._training.state()], state))
    for key, want in end.items():
        assert np.abs(in_floats[key].reshape(want.shape) - want).max() < 1e-7, key
        assert np.abs(private[key].reshape(want.shape) - want).max() < tolerance, key
    # The network is applied with the running statistics, as one joined with the layers before.
    x = tensor(recorded["batches"][0]["x"])
    want = network({key: private[key].reshape(end[key].shape) for key in end}).evaluate(x)
    assert np.abs(trainer.predict(x).reveal() - want).max() < 2e-3
    assert np.abs(trainer.model().evaluate(x) - want).max() < 1e-6
    mpc.cost()
    trainer.predict(x)
    # Once made, the weights serve until the next step.
    assert "finish" not in [step.name for step in mpc.cost().steps]


@pytest.mark.parametrize("options", [
    {"optimiser": optim.Adam(lr=0.01, by_row=True)},
    # A gradient that was 0 when the root was taken is divided by epsilon alone: by a small one, floats fly away.
    {"optimiser": optim.Adam(lr=optim.Cosine(0.01, 6, warm_up=2), eps=2**-12, every=3)},
    {"optimiser": optim.AdamW(lr=0.01, by_row=True, amsgrad=True), "clip_norm": 0.5},
    {"optimiser": optim.SGD(lr=0.2, momentum=0.9), "clip_norm": 0.25},
    {"loss": optim.CrossEntropy(label_smoothing=0.25), "optimiser": optim.SGD(lr=0.2)},
], ids=str)
def test_what_a_step_can_do_besides_is_that_of_floats(mpc, digits, options):
    images, labels = digits
    trainer = trefoil.Trainer(model_of(perceptron(64, 12, 10)), batch_size=20, mpc=mpc, **options)
    plain = trefoil.Trainer(model_of(perceptron(64, 12, 10)), batch_size=20, mpc=mpc, **options | {"clip_norm": None})
    state = other = None
    for step, batch in enumerate(trainer.batches(images[:120], labels[:120])):
        seen = trainer.step(*batch)
        state, want = trainer.evaluate_step(state, *batch, step=step)
        other, _ = plain.evaluate_step(other, *batch, step=step)
        assert seen["loss"] == pytest.approx(want["loss"], abs=4e-3)
    names = [name for name, _, _ in trainer._training.state()]
    in_floats = dict(zip(names, state))
    for name, weights in trainer.state_dict().items():
        exact = getattr(options["optimiser"], "eps", 0) >= 2**-12
        assert np.abs(weights - in_floats[name]).max() < (1e-4 if exact else 4e-3), name
    # A limit that nothing meets would not be tested.
    if "clip_norm" in options:
        assert max(np.abs(a - b).max() for a, b in zip(state, other)) > 1e-3


def test_adam_moves_weights_of_small_gradients_as_pytorch_does(mpc, digits):
    images, labels = digits
    batch = images[:20], labels[:20]
    start = fill("one.weight", (12, 64))

    def moved(optimiser):
        trainer = trefoil.Trainer(model_of(perceptron(64, 12, 10)), optimiser=optimiser, batch_size=20, mpc=mpc)
        trainer.step(*batch)
        state, _ = trainer.evaluate_step(None, *batch)
        in_floats = dict(zip([name for name, _, _ in trainer._training.state()], state))
        return trainer.state_dict()["one.weight"] - start, in_floats["one.weight"] - start

    gradients = np.abs(moved(optim.SGD(lr=1.0))[1])
    # PyTorch's numbers, also where its epsilon counts, and one beside which roots are small.
    for eps, least in ((1e-8, 2e-6), (1e-5, 0), (2**-12, 0)):
        private, in_floats = moved(optim.Adam(lr=0.01, eps=eps))
        seen = gradients > least
        assert (gradients[seen] < 2**-14).any()
        assert np.abs(private - in_floats)[seen].max() < 1e-3
        # The step in floats is PyTorch's.
        want = -0.01 * moved(optim.SGD(lr=1.0))[1] / -(gradients + eps)
        assert np.abs(in_floats - want).max() < 1e-5


def test_a_rate_can_be_given_with_each_step(mpc, digits):
    images, labels = digits
    trainer = trefoil.Trainer(model_of(perceptron(64, 8, 10)), optimiser=optim.SGD(lr=0.5), batch_size=20, mpc=mpc)
    trainer.step(images[:20], labels[:20], lr=0.125)
    state, _ = trainer.evaluate_step(None, images[:20], labels[:20], lr=0.125)
    in_floats = dict(zip([name for name, _, _ in trainer._training.state()], state))
    assert np.abs(trainer.state_dict()["two.bias"] - in_floats["two.bias"]).max() < 1e-4
    with pytest.raises(InputError, match="the largest of the options"):
        trainer.step(images[:20], labels[:20], lr=1.0)
    assert [trainer._training.rate(step) for step in (0, 9)] == [0.5, 0.5]


def test_dropout_leaves_out_units_in_training_alone(mpc, digits):
    images, labels = digits
    start = {name: fill(name, shape) for name, shape in {
        "one.weight": (24, 64), "one.bias": (24,), "two.weight": (10, 24), "two.bias": (10,)}.items()}

    def model(part):
        layers = Layers((64,), start)
        x = layers.add("relu.default", layers.linear("one", Ref("x")), shape=(24,))
        return layers.model(layers.linear("two", layers.add("dropout.default", x, part, False, shape=(24,))))

    trainers = [trefoil.Trainer(model(part), optimiser=optim.SGD(lr=0.1), batch_size=20, mpc=mpc, seed=seed)
                for part, seed in ((0.5, 1), (0.5, 2), (0.0, 1))]
    batch = images[:20], labels[:20]
    losses = []
    for trainer in trainers:
        want = [trainer.evaluate_step(None, *batch, step=step)[1]["loss"] for step in (0, 1)]
        seen = trainer.step(*batch)["loss"]
        assert seen == pytest.approx(want[0], abs=2e-3)
        losses.append(want)
        assert np.abs(model(0.5).evaluate(images[:5]) - model(0.0).evaluate(images[:5])).max() < 1e-9
    # Other units in every step, and by another seed; none without dropout.
    (first, second), (other, _), (none, still) = losses
    assert abs(first - second) > 1e-3 and abs(first - other) > 1e-3 and none == still


def test_norms_of_groups_and_instances_learn_under_their_own_names(mpc, rng):
    shapes = {"conv.weight": (4, 2, 3, 3), "group.weight": (4,), "group.bias": (4,), "each.weight": (4,), "each.bias": (4,),
              "fc.weight": (3, 4), "fc.bias": (3,)}
    start = {name: fill(name, shape) for name, shape in shapes.items()}
    layers = Layers((2, 5, 5), start)
    x = layers.conv("conv", Ref("x"), 5, 1, 1)
    sizes = (Batch(1), 4, 25, 2, 1e-5)
    x = layers.add("native_group_norm.default", x, *layers.weights("group", "weight", "bias"), *sizes, shape=(4, 5, 5))
    x = layers.add("tanh.default", Ref(f"{x.name}:0"), shape=(4, 5, 5))
    modes = (None, None, True, 0.1, 1e-5, True)
    x = layers.add("instance_norm.default", x, *layers.weights("each", "weight", "bias"), *modes, shape=(4, 5, 5))
    x = layers.add("mean.dim", layers.add("relu.default", x, shape=(4, 5, 5)), [2, 3], shape=(4,))
    trainer = trefoil.Trainer(layers.model(layers.linear("fc", x)), optimiser=optim.SGD(lr=0.25), batch_size=4, mpc=mpc)
    batch = rng.uniform(-1, 1, (4, 2, 5, 5)), np.array([0, 1, 2, 0])
    trainer.step(*batch)
    state, _ = trainer.evaluate_step(None, *batch)
    in_floats = dict(zip([name for name, _, _ in trainer._training.state()], state))
    learnt = trainer.state_dict()
    assert {name: weights.size for name, weights in learnt.items()} == {name: w.size for name, w in start.items()}
    for name, weights in learnt.items():
        assert np.abs(weights - in_floats[name]).max() < 1e-3, name
        assert np.abs(weights.reshape(shapes[name]) - start[name]).max() > 1e-3, name


def test_secret_positions_outside_of_a_table_end_a_training(mpc):
    start = {"table": fill("table", (20, 8)), "fc.weight": fill("fc.weight", (3, 8)), "fc.bias": fill("fc.bias", (3,))}
    layers = Layers((4,), start)
    layers.x = Value((Batch(1), 4), "i")
    x = layers.add("mean.dim", layers.add("embedding.default", Ref("table"), Ref("x"), shape=(4, 8)), [1], shape=(8,))
    model = layers.model(layers.linear("fc", x))
    trainer = trefoil.Trainer(model, "cross_entropy", optim.SGD(lr=0.1), batch_size=2, mpc=mpc)
    labels, x = np.array([0, 2]), np.array([[0, 19, 3, 4], [5, 6, 7, 8]])
    trainer.step(mpc.secret(x), labels)
    with pytest.raises(trefoil.RangeError, match="Gather.* or a secret position lies outside of its table"):
        trainer.step(mpc.secret(x + 1), labels)
    with pytest.raises(trefoil.RangeError, match="the table has rows 0 to 19"):
        trainer.step(x + 1, labels)


@pytest.mark.parametrize("numbers", [{"momentum": 0.9}, {"weight_decay": 0.01}, {"momentum": 0.5, "nesterov": True, "weight_decay": 0.01}], ids=str)
def test_tables_of_rows_are_trained_with_momentum_and_decay(mpc, numbers):
    start = {"table": fill("table", (20, 8)), "fc.weight": fill("fc.weight", (3, 8)), "fc.bias": fill("fc.bias", (3,))}
    layers = Layers((4,), start)
    layers.x = Value((Batch(1), 4), "i")
    x = layers.add("mean.dim", layers.add("embedding.default", Ref("table"), Ref("x"), shape=(4, 8)), [1], shape=(8,))
    trainer = trefoil.Trainer(layers.model(layers.linear("fc", x)), optimiser=optim.SGD(lr=0.25, **numbers), batch_size=4, mpc=mpc)
    batch = np.arange(16).reshape(4, 4) % 11, np.array([0, 1, 2, 0])
    state = None
    for step in range(3):
        trainer.step(*batch)
        state, _ = trainer.evaluate_step(state, *batch, step=step)
    in_floats = dict(zip([name for name, _, _ in trainer._training.state()], state))
    learnt = trainer.state_dict()
    assert np.abs(learnt["table"] - in_floats["table"]).max() < 1e-5 < np.abs(learnt["table"] - start["table"]).max()


def test_what_is_no_parameter_is_not_trained(mpc, digits):
    images, labels = digits
    start = {"table": np.linspace(-1, 1, 64), "one.weight": fill("one.weight", (10, 64)), "one.bias": fill("one.bias", (10,))}
    layers = Layers((64,), start)
    y = layers.linear("one", layers.add("add.Tensor", Ref("x"), Ref("table"), shape=(64,)))
    recorded = Recorded({"x": layers.x}, start, layers.calls, {"logits": y}, True, ("one.weight", "one.bias"))
    trainer = trefoil.Trainer(trefoil.Model._of(recorded), batch_size=20, mpc=mpc)
    trainer.step(images[:20], labels[:20])
    assert set(trainer.state_dict()) == {"one.weight", "one.bias"}


def slopes_of_loss(trainer, batch, state):
    """The slopes of the loss by each weight of a state in the clear, by differences."""
    loss = lambda: trainer.evaluate_step(state, *batch)[1]["loss"]
    slopes = {}
    for (name, shape, learnt), values in zip(trainer._training.state(), state):
        slopes[name] = np.zeros(shape)
        for at in np.ndindex(*shape) if learnt else ():
            kept = values[at]
            values[at] = kept + 1e-5
            above = loss()
            values[at] = kept - 1e-5
            slopes[name][at] = (above - loss()) / 2e-5
            values[at] = kept
    return slopes


def test_weights_that_are_norms_and_directions_of_others_are_trained_under_their_names(mpc, rng):
    # As torch.nn.utils.parametrizations.weight_norm computes them.
    shapes = {"fc1.g": (4, 1), "fc1.v": (4, 5), "fc1.bias": (4,), "fc2.weight": (3, 4), "fc2.bias": (3,)}
    start = {name: fill(name, shape) for name, shape in shapes.items()}
    start["fc1.g"] = np.abs(start["fc1.g"]) + np.float32(0.5)
    layers = Layers((5,), start)
    whole = lambda target, *args, shape: layers.calls.append(
        Call(f"call {len(layers.calls)}", f"aten.{target}", args, {}, (Value(shape, "f"),))) or Ref(layers.calls[-1].name)
    squares = whole("sum.dim_IntList", whole("pow.Tensor_Scalar", Ref("fc1.v"), 2, shape=(4, 5)), [1], True, shape=(4, 1))
    factor = whole("div.Tensor", Ref("fc1.g"), whole("pow.Tensor_Scalar", squares, 0.5, shape=(4, 1)), shape=(4, 1))
    weight = whole("mul.Tensor", Ref("fc1.v"), factor, shape=(4, 5))
    y = layers.add("tanh.default", layers.add("linear.default", Ref("x"), weight, Ref("fc1.bias"), shape=(4,)), shape=(4,))
    model = layers.model(layers.linear("fc2", y))
    trainer = trefoil.Trainer(model, optimiser=optim.SGD(lr=0.25), batch_size=6, mpc=mpc)
    batch = rng.uniform(-1, 1, (6, 5)), rng.integers(0, 3, 6)
    begun = [np.copy(values).reshape(shape) for values, shape in trainer._training.start()]
    slopes = slopes_of_loss(trainer, batch, begun)
    trainer.step(*batch)
    learnt = trainer.state_dict()
    assert learnt.keys() == start.keys()
    for name, weights in learnt.items():
        moved = weights.reshape(shapes[name]) - start[name]
        assert np.abs(moved).max() > 1e-3
        # The loss that is shown has 2^-20 more in its logarithm.
        assert np.abs(moved + 0.25 * slopes[name].reshape(shapes[name])).max() < 1e-4, name


def test_weights_that_only_numbers_of_the_import_stand_for_are_named(digits):
    # Several exponents are no operation of a plan: the powers are computed once.
    start = {"base": np.full(10, 1.5, np.float32), "one.weight": fill("one.weight", (10, 64)), "one.bias": fill("one.bias", (10,))}
    layers = Layers((64,), start)
    powers = Call("p", "aten.pow.Tensor_Tensor", (Ref("base"), Ref("twos")), {}, (Value((10,), "f"),))
    layers.calls.append(powers)
    y = layers.add("add.Tensor", layers.linear("one", Ref("x")), Ref("p"), shape=(10,))
    constants = start | {"twos": np.arange(10, dtype=np.float32)}
    recorded = Recorded({"x": layers.x}, constants, layers.calls, {"logits": y}, True, tuple(start))
    with pytest.raises(InputError, match="`base`"):
        trefoil.Trainer(trefoil.Model._of(recorded), batch_size=20)


def test_a_bias_of_two_layers_is_one_weight(mpc, rng):
    start = {"a.weight": fill("a.weight", (4, 2, 1, 1)), "b.weight": fill("b.weight", (3, 4)), "bias": fill("bias", (4,)), "b.bias": fill("b.bias", (3,))}
    layers = Layers((2, 3, 3), start)
    window = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    x = layers.add("convolution.default", Ref("x"), Ref("a.weight"), Ref("bias"), *window, shape=(4, 3, 3))
    x = layers.add("mean.dim", layers.add("tanh.default", x, shape=(4, 3, 3)), [2, 3], shape=(4,))
    y = layers.linear("b", layers.add("add.Tensor", x, Ref("bias"), shape=(4,)))
    trainer = trefoil.Trainer(layers.model(y), optimiser=optim.SGD(lr=0.25), batch_size=4, mpc=mpc)
    batch = rng.uniform(-1, 1, (4, 2, 3, 3)), np.array([0, 1, 2, 0])
    slopes = slopes_of_loss(trainer, batch, [np.copy(v).reshape(s) for v, s in trainer._training.start()])
    trainer.step(*batch)
    learnt = trainer.state_dict()
    assert learnt.keys() == start.keys()
    for name, slope in slopes.items():
        moved = learnt[name].ravel() - start[name].ravel()
        assert np.abs(moved + 0.25 * slope.ravel()).max() < 1e-4, name


def variants(file, enum):
    """The variants of an enum of the library, without underscores and in small letters."""
    source = (ROOT / "nn-layers/src/train" / file).read_text()
    body = re.search(rf"^pub enum {enum} {{(.*?)^}}", source, re.M | re.S)[1]
    return {name.lower() for name in re.findall(r"^    ([A-Z]\w+)", body, re.M)}


def test_every_loss_optimiser_and_schedule_of_the_library_is_reachable():
    here = {name.lower() for name in vars(optim)}
    assert variants("loss.rs", "Loss") - {"probabilitycrossentropy"} <= here and variants("options/optimiser.rs", "Optimiser") <= here
    assert variants("schedule.rs", "Decay") - {"none", "steps"} <= here and "steplr" in here
    assert variants("loss/metric.rs", "Metric") == {"loss", "right"}
    source = (ROOT / "nn-layers/src/train/options/adam.rs").read_text()
    body = re.search(r"^pub struct Adam {(.*?)^}", source, re.M | re.S)[1]
    names = {"epsilon": "eps", "decay": "weight_decay", "second": "by_row", "decoupled": None}
    numbers = {names.get(name, name) for name in re.findall(r"^    pub (\w+):", body, re.M)} - {None}
    assert numbers == {field.name for field in fields(optim.Adam)} - {"lr"}


def test_data_is_shared_once_and_labels_may_be_secret(mpc, digits):
    images, labels = digits
    trainer = trefoil.Trainer(model_of(perceptron(64, 16, 10)), optimiser=optim.SGD(lr=0.2, momentum=0.9), batch_size=50, mpc=mpc)
    shared = trainer.secret(mpc.secret(images[:100], owner=1), mpc.secret(labels[:100], owner=2))
    mpc.cost()
    (first, second), other = trainer.batches(*shared, seed=1), trainer.batches(images[:100], labels[:100], seed=1)
    assert mpc.cost().bytes == 0
    seen = [trainer.step(*first), trainer.step(*second)]
    state, want = trainer.evaluate_step(None, *next(other))
    _, then = trainer.evaluate_step(state, *next(other), step=1)
    assert [s["loss"] for s in seen] == pytest.approx([want["loss"], then["loss"]], abs=2e-3)
    bars = trainer.fit(*shared, epochs=3, progress=False)
    assert len(bars) == 6 and bars[-1]["loss"] < seen[0]["loss"]


@pytest.mark.parametrize("loss", [optim.MeanSquare(), optim.SmoothAbsolute(0.5), optim.BinaryCrossEntropy(3.0)], ids=str)
def test_other_losses_are_those_of_floats(mpc, rng, loss):
    trainer = trefoil.Trainer(model_of(perceptron(5, 8, 1)), loss, optim.SGD(lr=0.05), batch_size=16, mpc=mpc)
    x = rng.uniform(-1, 1, (16, 5))
    y = (x.sum(1) > 0).astype(float)
    state = None
    for step in range(4):
        seen = trainer.step(x, y)
        state, want = trainer.evaluate_step(state, x, y.reshape(-1, 1), step=step)
        assert seen["loss"] == pytest.approx(want["loss"], abs=2e-3)


def places(*shape):
    """A network of one layer whose result has this shape behind the batch."""
    size = int(np.prod(shape))
    layers = Layers((5,), {"fc.weight": fill("fc.weight", (size, 5)), "fc.bias": fill("fc.bias", (size,))})
    y = layers.linear("fc", Ref("x"))
    return layers.model(layers.add("view.default", y, [-1, *shape], shape=shape))


@pytest.mark.parametrize("loss, shape", [
    (optim.CrossEntropy(weight=[0.5, 2.0, 1.0]), (3,)),
    (optim.CrossEntropy(ignore_index=-100, axis=-1, label_smoothing=0.1), (4, 3)),
    (optim.CrossEntropy(ignore_index=255, weight=(0.5, 2.0, 1.0)), (3, 2, 2)),
    (optim.CrossEntropy(soft=True, label_smoothing=0.2), (3,)),
    (optim.LogLikelihood(), (3, 4)),
], ids=str)
def test_classes_are_weighted_ignored_or_parts_in_any_place(mpc, rng, loss, shape):
    trainer = trefoil.Trainer(places(*shape), loss, optim.SGD(lr=0.1), batch_size=6, mpc=mpc,
                              metrics=("loss",) if loss.soft else ("loss", "accuracy"))
    x = rng.uniform(-1, 1, (6, 5))
    axis = loss.axis % (len(shape) + 1)
    z = np.moveaxis((x @ fill("fc.weight", (int(np.prod(shape)), 5)).T + fill("fc.bias", (int(np.prod(shape)),))).reshape(6, *shape), axis, -1)
    labels = rng.integers(0, 3, z.shape[:-1])
    there = np.ones(labels.shape, bool)
    if loss.ignore_index is not None:
        there = rng.random(labels.shape) < 0.7
    hot = np.eye(3)[labels] * there[..., None]
    labels = np.where(there, labels, loss.ignore_index or 0)
    if loss.soft:
        hot = labels = rng.random((6, 3))
    weight = np.array(loss.weight or (1.0, 1.0, 1.0))
    logs = z if isinstance(loss, optim.LogLikelihood) else z - np.log(np.exp(z).sum(-1, keepdims=True))
    parts = (1 - loss.label_smoothing) * hot + loss.label_smoothing / 3 * there[..., None]
    want = -(weight * parts * logs).sum() / (there.sum() if loss.soft else (weight * hot).sum())
    state, clear = trainer.evaluate_step(None, x, labels)
    assert clear["loss"] == pytest.approx(want, abs=1e-4)
    secret = labels if loss.soft else mpc.secret(labels)
    seen = trainer.step(x, secret)
    assert seen["loss"] == pytest.approx(want, abs=2e-3)
    if not loss.soft:
        assert clear["accuracy"] == pytest.approx((z.argmax(-1) == labels)[there].mean())
        assert seen["accuracy"] == pytest.approx(clear["accuracy"], abs=1e-3)
    names = [name for name, _, _ in trainer._training.state()]
    assert np.abs(trainer.state_dict()["fc.weight"] - dict(zip(names, state))["fc.weight"]).max() < 1e-4


def test_a_momentum_takes_gradients_whatever_the_rates_before_as_in_pytorch(mpc, rng, tmp_path):
    rates = [0.1, 0.02, 0.05, 0.0]
    trainer = trefoil.Trainer(places(1), "absolute", optim.SGD(lr=optim.Rates(rates), momentum=0.9), batch_size=8, mpc=mpc)
    start = trainer.state_dict()["fc.weight"]
    x = rng.uniform(-1, 1, (8, 5))
    weight, bias = fill("fc.weight", (1, 5)).astype(float), fill("fc.bias", (1,)).astype(float)
    kept = [0, 0]
    for step in range(4):
        sign = np.sign(x @ weight.T + bias - 9.0)
        kept = [0.9 * kept[0] + (sign * x).mean(0), 0.9 * kept[1] + sign.mean(0)]
        weight, bias = (w - rates[step] * k for w, k in zip((weight, bias), kept))
        trainer.step(x, np.full(8, 9.0))
        # A state that was loaded goes on with the last step's rate.
        trainer.save(tmp_path)
        trainer = trefoil.Trainer(places(1), "absolute", optim.SGD(lr=optim.Rates(rates), momentum=0.9), batch_size=8, mpc=mpc)
        trainer.load(tmp_path)
    assert np.abs(trainer.state_dict()["fc.weight"] - weight).max() < 1e-4 < np.abs(weight - start).max()
    with pytest.raises(InputError, match="rise over more steps"):
        trainer.step(x, np.full(8, 9.0), lr=0.1)
    with pytest.raises(InputError, match="-100"):
        trefoil.Trainer(places(3), optim.CrossEntropy(ignore_index=-100), mpc=mpc, batch_size=8).step(x, np.full(8, 3))
    with pytest.raises(ConfigError, match="classes lie along one of 1 to 1"):
        trefoil.Trainer(places(3), optim.CrossEntropy(axis=2))
    with pytest.raises(InputError, match="2 weights for 3 classes"):
        trefoil.Trainer(places(3), optim.CrossEntropy(weight=[1.0, 2.0]))
    with pytest.raises(InputError, match="does not end in a sigmoid"):
        trefoil.Trainer(places(3), optim.BinaryCrossEntropy(probabilities=True))


def test_some_weights_stay_and_nothing_need_be_shown(mpc, digits):
    images, labels = digits
    trainer = trefoil.Trainer(model_of(perceptron(64, 16, 10)), optimiser=optim.SGD(lr=0.5), batch_size=20, mpc=mpc, metrics=(),
                              trained=["two.weight", "two.bias"])
    assert trainer.step(images[:20], labels[:20]) == {}
    weights = trainer.state_dict()
    assert set(weights) == {"two.weight", "two.bias"}
    assert np.abs(weights["two.weight"] - fill("two.weight", (10, 16))).max() > 1e-3


def test_what_cannot_be_trained_is_said(mpc, digits):
    images, labels = digits
    model = model_of(perceptron(64, 16, 10))
    trainer = trefoil.Trainer(model, batch_size=20, mpc=mpc)
    with pytest.raises(InputError, match="a step takes 2: x, labels"):
        trainer.step(images[:20])
    with pytest.raises(InputError, match=r"a batch has 21 rows; a step takes 20, or fewer"):
        trainer.step(images[:21], labels[:21])
    with pytest.raises(InputError, match=r"`x` has shape \(20, 63\); a step takes \(20, 64\)"):
        trefoil.Trainer(model, batch_size=20, mpc=mpc, check=False).step(images[:20, 1:], labels[:20])
    with pytest.raises(InputError, match="integers from 0 to 9"):
        trainer.step(images[:20], labels[:20] + 1)
    with pytest.raises(InputError, match="rows of zeros with a single one"):
        trainer.step(images[:20], 2 * np.eye(10, dtype=int)[labels[:20]])
    with pytest.raises(InputError, match="rows of zeros with a single one"):
        trainer.fit(images[:20], np.full((20, 10), 0.1))
    with pytest.raises(InputError, match="within 0 to 1"):
        trefoil.Trainer(model, "binary_cross_entropy", batch_size=20, mpc=mpc).step(images[:20], np.full((20, 10), 2.0))
    with pytest.raises(InputError, match="do not fill a batch"):
        trainer.fit(images[:5], labels[:5])
    class CrossEntropyLoss:
        """As PyTorch's."""

    with pytest.raises(ConfigError, match="a CrossEntropyLoss is not a loss of this package; take trefoil.optim.CrossEntropy"):
        trefoil.Trainer(model, CrossEntropyLoss())
    with pytest.raises(ConfigError, match="take trefoil.optim.SGD"):
        trefoil.Trainer(model, optimiser=CrossEntropyLoss())
    with pytest.raises(InputError, match=r"is not a model; make one by trefoil.Model.from_torch\(net, example\)"):
        trefoil.Trainer(CrossEntropyLoss())
    with pytest.raises(ConfigError, match=r"\('loss',\)"):
        trefoil.Trainer(model, metrics="loss")
    with pytest.raises(ConfigError, match="there is no loss 'hinge'"):
        trefoil.Trainer(model, "hinge")
    with pytest.raises(ConfigError, match="no metric 'auc'"):
        trefoil.Trainer(model, metrics=["auc"])
    with pytest.raises(ConfigError, match="`lr` is a number, or one of trefoil.optim's schedules"):
        trefoil.Trainer(model, optimiser=optim.SGD(lr=lambda step: 0.1))
    with pytest.raises(InputError, match="largest norm"):
        trefoil.Trainer(model, clip_norm=0)
    with pytest.raises(InputError, match="epsilon"):
        trefoil.Trainer(model, optimiser=optim.Adam(eps=0))
    with pytest.raises(InputError, match="takes 1: x"):
        trainer.predict(images[:5], labels[:5])
    with pytest.raises(InputError, match="momentum"):
        trefoil.Trainer(model, optimiser=optim.SGD(momentum=1.5))
    with pytest.raises(InputError, match="`three.weight` cannot be trained"):
        trefoil.Trainer(model, trained=["three.weight"])


def test_a_trained_model_is_trained_on(mpc, digits):
    images, labels = digits
    make = lambda model: trefoil.Trainer(model, optimiser=optim.SGD(lr=0.2), batch_size=20, mpc=mpc)
    whole = make(model_of(perceptron(64, 16, 10)))
    whole.step(images[:20], labels[:20])
    again = make(whole.model())
    for trainer in (whole, again):
        trainer.step(images[20:40], labels[20:40])
    ours, want = again.state_dict(), whole.state_dict()
    assert ours.keys() == want.keys() and all(np.abs(ours[name] - want[name]).max() < 1e-5 for name in want)


def test_a_trained_model_is_a_file_again(mpc, digits, tmp_path):
    images, labels = digits
    trainer = trefoil.Trainer(model_of(perceptron(64, 16, 10)), optimiser=optim.SGD(lr=0.2), batch_size=20, mpc=mpc)
    trainer.step(images[:20], labels[:20])
    model = trainer.model()
    model.save(tmp_path / "trained.onnx")
    again = trefoil.Model.from_onnx(tmp_path / "trained.onnx")
    assert np.abs(again.evaluate(images[:5]) - model.evaluate(images[:5])).max() < 1e-5
    assert np.abs(again.evaluate(images[:5]) - model_of(perceptron(64, 16, 10)).evaluate(images[:5])).max() > 1e-3
    assert again.to_onnx() == model.to_onnx() == (tmp_path / "trained.onnx").read_bytes()


def like_torch(name, package, **numbers):
    """Something with the name and the numbers of one of PyTorch's losses and optimisers."""
    return type(name, (), {"__module__": f"torch.{package}.x"} | numbers)()


def test_losses_and_optimisers_of_pytorch_are_those_of_here_or_say_what_is_missing(digits):
    images, labels = digits
    loss = lambda name, **more: like_torch(name, "nn", **{"reduction": "mean", "weight": None} | more)
    group = {"params": [1], "lr": 0.25, "momentum": 0.5, "nesterov": False, "weight_decay": 0.125, "dampening": 0, "maximize": False}
    adam = {"params": [1], "lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.01, "amsgrad": True, "maximize": False}
    make = lambda kind, *groups: like_torch(kind, "optim", param_groups=list(groups))
    for theirs, ours in [
        (loss("CrossEntropyLoss", label_smoothing=0.1, ignore_index=-100), optim.CrossEntropy(0.1)),
        (loss("CrossEntropyLoss", label_smoothing=0.0, ignore_index=9, weight=np.ones(10)), optim.CrossEntropy(weight=[1] * 10, ignore_index=9)),
        (loss("NLLLoss", ignore_index=-100), optim.LogLikelihood()), (loss("BCELoss"), optim.BinaryCrossEntropy(probabilities=True)),
        (loss("BCEWithLogitsLoss", pos_weight=np.array([2.0])), optim.BinaryCrossEntropy(2.0)), (loss("MSELoss"), optim.MeanSquare()),
        (loss("L1Loss"), optim.Absolute()), (loss("HuberLoss", delta=2.0), optim.Huber(2.0)), (loss("SmoothL1Loss", beta=0.5), optim.SmoothAbsolute(0.5)),
    ]:
        assert loss_of(theirs) == ours
    with trefoil.Trainer(model_of(perceptron(64, 8, 10)), loss("MSELoss"), make("SGD", group)).mpc as mpc:
        trainer = trefoil.Trainer(model_of(perceptron(64, 8, 10)), optimiser=make("SGD", group), mpc=mpc)
        assert trainer.optimiser == optim.SGD(0.25, 0.5, False, 0.125)
        trainer = trefoil.Trainer(model_of(perceptron(64, 8, 10)), optimiser=make("AdamW", adam), mpc=mpc)
        assert trainer.optimiser == optim.AdamW(1e-3, (0.9, 0.99), 1e-6, 0.01, True)
    for theirs, said in [
        (loss("CrossEntropyLoss", reduction="sum"), "means over a batch"), (loss("CTCLoss"), "there are CrossEntropyLoss"),
        (loss("BCELoss", weight=np.ones(2)), "take pos_weight"), (loss("TripletMarginLoss"), "with labels of zeros"),
    ]:
        with pytest.raises(ConfigError, match=said):
            loss_of(theirs)
    for theirs, said in [
        (make("RMSprop", adam), "there are SGD, Adam and AdamW"), (make("SGD", group | {"dampening": 0.5}), "dampening"),
        (make("SGD", group, group | {"lr": 1.0}), "`trained=` names its weights"),
    ]:
        with pytest.raises(ConfigError, match=said):
            trefoil.Trainer(model_of(perceptron(64, 8, 10)), optimiser=theirs)
    with pytest.raises(InputError, match="needs an example of its input"):
        trefoil.Trainer(like_torch("Module", "nn"))


def test_a_last_batch_may_be_smaller_and_validations_are_shown(mpc, digits):
    images, labels = digits
    for optimiser in (optim.Adam(lr=0.01, by_row=True), optim.SGD(lr=0.2), optim.SGD(lr=0.2, momentum=0.5)):
        trainer = trefoil.Trainer(model_of(perceptron(64, 8, 10)), optimiser=optimiser, batch_size=32, mpc=mpc)
        ended = []
        shown = (images[100:130], labels[100:130]) if isinstance(optimiser, optim.SGD) and optimiser.momentum else None
        seen = trainer.fit(
            images[:72], labels[:72], epochs=2, progress=False, drop_last=False, validation=shown,
            metrics=("loss", "accuracy", "f1"), callbacks=[lambda own, numbers: ended.append((own.steps, numbers))],
        )
        assert len(seen) == 6 and [steps for steps, _ in ended] == [3, 6] and len(trainer.history) == 2
        # The same in floats, the smaller batch by a plan of its own.
        state = None
        whole, names = trainer, [name for name, _, _ in trainer._training.state()]
        small = trefoil.Trainer(model_of(perceptron(64, 8, 10)), optimiser=optimiser, batch_size=8, mpc=mpc)
        order = [small._training.state().index(spec) for spec in whole._training.state()]
        for step, batch in enumerate(b for epoch in range(2) for b in trainer.batches(images[:72], labels[:72], seed=epoch, drop_last=False)):
            if len(batch[0]) == 32:
                state, want = whole.evaluate_step(state, *batch, step=step)
            else:
                after, want = small.evaluate_step([state[order.index(i)] for i in range(len(order))], *batch, step=step)
                state = [after[i] for i in order]
            assert seen[step]["loss"] == pytest.approx(want["loss"], abs=3e-3), step
        weights = trainer.state_dict()
        assert np.abs(weights["one.weight"] - state[names.index("one.weight")]).max() < 2e-3
    z, right = trainer.model().evaluate(images[100:130]), labels[100:130]
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    last = trainer.history[-1]
    assert last["val_loss"] == pytest.approx(-logs[np.arange(30), right].mean(), abs=2e-3)
    assert last["val_accuracy"] == pytest.approx((z.argmax(1) == right).mean(), abs=0.04)
    f1 = [2 * ((z.argmax(1) == k) & (right == k)).sum() / max(((z.argmax(1) == k).sum() + (right == k).sum()), 1) for k in range(10)]
    assert last["val_f1"] == pytest.approx(np.mean(f1), abs=0.04)


class Loader:
    """As PyTorch's DataLoader gives batches."""

    def __init__(self, *arrays, size):
        self.arrays, self.size = arrays, size

    def __len__(self):
        return -(-len(self.arrays[0]) // self.size)

    def __iter__(self):
        return iter([[a[i * self.size : (i + 1) * self.size] for a in self.arrays] for i in range(len(self))])


def test_loaders_early_stopping_areas_and_checkpoints(mpc, rng, tmp_path):
    x = rng.uniform(-1, 1, (40, 5))
    y = (x.sum(1) > 0).astype(float)
    make = lambda: trefoil.Trainer(places(1), optim.BinaryCrossEntropy(2.0), optim.SGD(lr=0.5, momentum=0.5), batch_size=16, mpc=mpc)
    trainer = make()
    seen = trainer.fit(Loader(x, y, size=16), progress=False)
    assert len(seen) == 3 and trainer.steps == 3
    z = trainer.predict(x).reveal()[:, 0]
    want = np.mean((z[y > 0.5, None] > z[None, y < 0.5]))
    got = trainer.evaluate(x, y, metrics=("auc", "loss", "f1", "accuracy"))
    assert got["auc"] == pytest.approx(want, abs=0.01)
    assert got["loss"] == pytest.approx(np.mean(2 * y * np.log1p(np.exp(-z)) + (1 - y) * np.log1p(np.exp(z))), abs=1e-3)
    hits = (z > 0) & (y > 0.5)
    assert got["f1"] == pytest.approx(2 * hits.sum() / ((z > 0).sum() + y.sum()), abs=0.03)
    assert got["accuracy"] == pytest.approx(((z > 0) == (y > 0.5)).mean(), abs=0.03)
    # The labels turned around: every step makes it worse.
    seen = make().fit(x, y, epochs=9, progress=False, validation=(x, 1 - y), early_stopping=2)
    assert len(seen) == 2 * 3
    trainer.save(tmp_path / "state")
    after = trainer.fit(x, y, progress=False)
    other = make()
    other.load(tmp_path / "state")
    assert other.steps == 3
    again = other.fit(x, y, progress=False)
    assert [s["loss"] for s in again] == pytest.approx([s["loss"] for s in after], abs=1e-4)
    with pytest.raises(InputError, match="has no state of a training"):
        other.load(tmp_path)
    with pytest.raises(InputError, match="state of another training"):
        trefoil.Trainer(places(2), "mean_square", mpc=mpc).load(tmp_path / "state")
    with pytest.raises(ConfigError, match="early_stopping looks at"):
        make().fit(x, y, early_stopping=1)
    with pytest.raises(ConfigError, match="no metric 'auroc'"):
        make().evaluate(x, y, metrics=["auroc"])


def test_the_reference_watches_a_step_that_no_guard_does(digits):
    images, labels = digits
    with trefoil.local() as mpc:
        trainer = trefoil.Trainer(model_of(perceptron(64, 16, 10)), batch_size=20, mpc=mpc, guard_every=0)
        trainer.step(images[:20], labels[:20])
        with pytest.raises(trefoil.RangeError, match="element [0-9]+ is"):
            trainer.step(images[:20] * 1e7, labels[:20])
        assert trainer.step(images[:20], labels[:20])["loss"] > 0


def test_a_training_that_diverges_ends_in_an_error(rng):
    x = rng.uniform(-1, 1, (64, 5))
    y = x @ np.arange(5.0)
    diverging = optim.SGD(lr=8.0)
    make = lambda **options: trefoil.Trainer(model_of(perceptron(5, 16, 1)), "mean_square", diverging, batch_size=16, mpc=mpc, **options)
    with trefoil.local() as mpc:
        trainer = make()
        with pytest.raises(trefoil.RangeError, match="step [0-9]+: values of `.*left the range.*not taken.*learning rate"):
            trainer.fit(x, y, epochs=30, progress=False)
        # The state is that of the step before.
        assert trainer.steps > 0 and all(np.isfinite(w).all() for w in trainer.state_dict().values())
    with trefoil.local(check=False) as mpc:
        # Nobody looks in between, but at the end.
        trainer = make(guard_every=1000)
        with pytest.raises(trefoil.RangeError):
            trainer.fit(x, y, epochs=30, progress=False)
        assert trainer.steps == 119
        seen = make(guard_every=0).fit(x, y, epochs=30, progress=False)
        assert len(seen) == 120


def test_a_guard_changes_nothing_while_all_is_well(mpc, digits):
    images, labels = digits
    batch = images[:20], labels[:20]
    losses = []
    for every in (0, 1):
        trainer = trefoil.Trainer(model_of(perceptron(64, 16, 10)), batch_size=20, mpc=mpc, guard_every=every)
        losses.append([trainer.step(*batch)["loss"] for _ in range(3)])
    assert np.abs(np.subtract(*losses)).max() < 1e-3


def test_the_first_step_is_checked_in_the_clear(digits):
    images, labels = digits
    with trefoil.local() as mpc:
        make = lambda **options: trefoil.Trainer(model_of(perceptron(64, 16, 10)), batch_size=20, mpc=mpc, **options)
        with pytest.raises(trefoil.RangeError, match="the first step would leave the range of fixed point at `Gemm 1`: product"):
            make().fit(images[:40] * 3e5, labels[:40], progress=False)
        slopes = make().check(images[:20], labels[:20])
        assert set(slopes) == {"one.weight", "one.bias", "two.weight", "two.bias"}
        assert all(abs(slope - 1) < 0.01 for slope in slopes.values())
        # Gradients below what their format can tell from 0.
        still = make(optimiser=optim.Adam(lr=0.01))
        with pytest.warns(trefoil.PrecisionWarning, match="`one.weight` would move 0[.]"):
            still.check(images[:20] * 2**-19, labels[:20])


def test_what_pytorch_trains_otherwise_is_refused_before_anything_starts():
    recorded = perceptron(4, 3, 2)
    recorded.unlike = ("drop: Dropout2d drops more than single elements; use Dropout, or a probability of 0",)
    read = Recorded.load(recorded.dump(), fill)
    with pytest.raises(InputError, match="not be trained as in PyTorch: drop: Dropout2d"):
        trefoil.Trainer(model_of(read), "cross_entropy")


def test_noise_moves_weights_and_epsilon_says_what_that_is_worth(mpc, digits):
    images, labels = digits
    privacy = trefoil.DP(clip=1.0, noise=2.409)
    make = lambda privacy: trefoil.Trainer(model_of(perceptron(64, 16, 10)), optimiser=optim.SGD(lr=0.2), batch_size=32,
                                           mpc=mpc, metrics=(), privacy=privacy)
    trainer, other = make(privacy), make(privacy)
    batch = next(trainer.batches(images[:64], labels[:64]))
    assert trainer.step(*batch) == {} and other.step(*batch) == {}
    one, two = (t.state_dict()["one.weight"] for t in (trainer, other))
    apart = np.std(one - two)
    # Two draws, each of 1.5 times the variance, over a mean of 32 rows at rate 0.2.
    assert apart == pytest.approx(0.2 * 2.409 * np.sqrt(2 * 1.5) / 32, rel=0.1)
    assert trainer.epsilon(3) == pytest.approx(3.0, abs=1e-3)
    with pytest.raises(InputError, match="without privacy="):
        make(None).epsilon(1)
    with pytest.raises(InputError, match="exact sums over training rows"):
        trefoil.Trainer(model_of(perceptron(64, 16, 10)), mpc=mpc, metrics=("loss",), privacy=privacy)

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


def test_adam_moves_weights_whose_second_moment_can_be_told_from_0(mpc, digits):
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
    small = (gradients > 0) & (gradients < 2**-16)
    private, in_floats = moved(optim.Adam(lr=0.01))
    assert small.any() and np.abs(private[small]).max() < 1e-7 and np.all(np.abs(in_floats[small]) > 0.009)
    assert np.abs(private - in_floats)[gradients > 2**-12].max() < 2e-3
    private, in_floats = moved(optim.Adam(lr=0.01, eps=2**-12))
    assert np.abs(private - in_floats).max() < 1e-5


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


def test_what_is_no_parameter_is_not_trained(mpc, digits):
    images, labels = digits
    start = {"table": np.linspace(-1, 1, 64), "one.weight": fill("one.weight", (10, 64)), "one.bias": fill("one.bias", (10,))}
    layers = Layers((64,), start)
    y = layers.linear("one", layers.add("add.Tensor", Ref("x"), Ref("table"), shape=(64,)))
    recorded = Recorded({"x": layers.x}, start, layers.calls, {"logits": y}, True, ("one.weight", "one.bias"))
    trainer = trefoil.Trainer(trefoil.Model._of(recorded), batch_size=20, mpc=mpc)
    trainer.step(images[:20], labels[:20])
    assert set(trainer.state_dict()) == {"one.weight", "one.bias"}


def variants(file, enum):
    """The variants of an enum of the library, without underscores and in small letters."""
    source = (ROOT / "nn-layers/src/train" / file).read_text()
    body = re.search(rf"^pub enum {enum} {{(.*?)^}}", source, re.M | re.S)[1]
    return {name.lower() for name in re.findall(r"^    ([A-Z]\w+)", body, re.M)}


def test_every_loss_optimiser_and_schedule_of_the_library_is_reachable():
    here = {name.lower() for name in vars(optim)}
    assert variants("loss.rs", "Loss") <= here and variants("optimiser.rs", "Optimiser") <= here
    assert variants("schedule.rs", "Decay") - {"none", "steps"} <= here and "steplr" in here
    assert variants("metric.rs", "Metric") == {"loss", "right"}
    source = (ROOT / "nn-layers/src/train/adam.rs").read_text()
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


@pytest.mark.parametrize("loss", [optim.MeanSquare(), optim.Huber(0.5), "binary_cross_entropy"])
def test_other_losses_are_those_of_floats(mpc, rng, loss):
    trainer = trefoil.Trainer(model_of(perceptron(5, 8, 1)), loss, optim.SGD(lr=0.05), batch_size=16, mpc=mpc)
    x = rng.uniform(-1, 1, (16, 5))
    y = (x.sum(1) > 0).astype(float)
    state = None
    for step in range(4):
        seen = trainer.step(x, y)
        state, want = trainer.evaluate_step(state, x, y.reshape(-1, 1), step=step)
        assert seen["loss"] == pytest.approx(want["loss"], abs=2e-3)


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
    with pytest.raises(InputError, match=r"`x` has shape \(19, 64\); a step takes \(20, 64\)"):
        trainer.step(images[:19], labels[:19])
    with pytest.raises(InputError, match="integers from 0 to 9"):
        trainer.step(images[:20], labels[:20] + 1)
    with pytest.raises(InputError, match="do not fill a batch"):
        trainer.fit(images[:5], labels[:5])
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
    with pytest.raises(InputError, match="`trained` names weights"):
        trefoil.Trainer(model, trained=["three.weight"])
    with pytest.raises(InputError, match="result of a training"):
        trefoil.Trainer(trainer.model())


def test_check_watches_a_step(digits):
    images, labels = digits
    with trefoil.local() as mpc:
        trainer = trefoil.Trainer(model_of(perceptron(64, 16, 10)), batch_size=20, mpc=mpc)
        with mpc.check():
            trainer.step(images[:20], labels[:20])
            with pytest.raises(trefoil.RangeError):
                trainer.step(images[:20] * 1e7, labels[:20])
        assert trainer.step(images[:20], labels[:20])["loss"] > 0


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

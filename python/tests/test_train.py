"""Training by three parties against the same in floats."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from torch_models import fill

import trefoil
from trefoil import ConfigError, InputError, _trefoil, optim
from trefoil._aten import model_bytes
from trefoil._record import Batch, Call, Recorded, Ref, Value

DATA = Path(__file__).parents[2] / "models/data"


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
    return trefoil.Model(_trefoil.Model.from_onnx(model_bytes(recorded), 20, []))


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

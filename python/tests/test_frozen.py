"""Layers before all trained weights: rows pass them once in `fit`, and the training is the same."""

from dataclasses import replace

import numpy as np
import pytest
from test_train import Layers, model_of, perceptron

import trefoil
from trefoil import RangeError, optim
from trefoil._frozen import cut
from trefoil._record import Batch, Call, Ref, Value

LAST = ("two.weight", "two.bias")


def head(inputs=64, hidden=16, outputs=10):
    """A perceptron whose last layer alone is trained."""
    return replace(perceptron(inputs, hidden, outputs), parameters=LAST)


def by_steps(trainer, x, y, epochs, drop_last=True):
    """What `fit` does, with every layer in every step."""
    x, y = trainer.secret(x, y)
    return [trainer.step(*batch) for epoch in range(epochs) for batch in trainer.batches(x, y, seed=epoch, drop_last=drop_last)]


def both(mpc, recorded, x, y, *, epochs=2, drop_last=True, **how):
    """The same training by `fit` and by steps: the trainers, and the bytes that each sent."""
    trainers, sent = [], []
    for fit in (True, False):
        trainer = trefoil.Trainer(model_of(recorded), mpc=mpc, batch_size=16, **how)
        mpc.cost()
        seen = trainer.fit(x, y, epochs=epochs, drop_last=drop_last) if fit else by_steps(trainer, x, y, epochs, drop_last)
        sent.append(mpc.cost().bytes)
        trainers.append((trainer, seen))
    (one, seen), (other, want) = trainers
    assert one.steps == other.steps == len(seen) and one._halves and not other._halves
    for a, b in zip(seen, want, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=2e-3)
    wanted = other.state_dict()
    for name, value in one.state_dict().items():
        assert np.abs(value - wanted[name]).max() < 5e-4, name
    return one, other, sent


@pytest.mark.parametrize("optimiser", [optim.SGD(0.1), optim.SGD(0.1, momentum=0.9, weight_decay=1e-3), optim.Adam(1e-2)])
def test_a_last_layer_is_trained_as_if_all_layers_took_part_in_every_step(mpc, rng, optimiser):
    x, y = rng.normal(size=(48, 64)), rng.integers(0, 10, 48)
    one, other, _ = both(mpc, head(), x, y, loss="cross_entropy", optimiser=optimiser)
    start = perceptron(64, 16, 10).constants
    assert np.abs(one.state_dict()["two.weight"] - start["two.weight"]).max() > 0.01
    assert set(one.state_dict()) == set(LAST)
    # What is trained is applied, and is trained on, by the whole network.
    assert np.abs(one.predict(x[:4]).reveal() - other.predict(x[:4]).reveal()).max() < 5e-3
    trained = one.model()
    assert np.abs(trained.evaluate(x[:4]) - one.predict(x[:4]).reveal()).max() < 1e-3
    again = trefoil.Trainer(trained, "cross_entropy", optimiser, batch_size=16, mpc=mpc)
    again.fit(x, y)
    assert again._halves and np.abs(again.state_dict()["two.bias"] - one.state_dict()["two.bias"]).max() > 1e-3


def test_steps_send_what_the_trained_layers_send(mpc, rng):
    x, y = rng.normal(size=(64, 64)), rng.normal(size=(64, 4))
    how = {"loss": "mean_square", "optimiser": optim.SGD(0.05), "guard_every": 0, "check": False}
    _, _, (few, many) = both(mpc, head(64, 256, 4), x, y, epochs=8, **how)
    assert few < 0.25 * many


def test_a_smaller_last_batch_and_accumulated_gradients_go_along(mpc, rng):
    x, y = rng.normal(size=(40, 64)), rng.integers(0, 10, 40)
    both(mpc, head(), x, y, loss="cross_entropy", optimiser=optim.SGD(0.1), drop_last=False, accumulate=2)


def test_a_frozen_residual_network_with_norms_is_cut_before_its_head(mpc, rng):
    scale = lambda *shape: np.float32(rng.normal(size=shape) * 0.4)
    norm = {"bn.weight": scale(4) + 1, "bn.bias": scale(4), "bn.running_mean": scale(4), "bn.running_var": scale(4) ** 2 + np.float32(0.5)}
    layers = Layers((3, 6, 6), {"conv.weight": scale(4, 3, 3, 3), **norm, "fc.weight": scale(5, 4), "fc.bias": scale(5)})
    x = layers.norm("bn", layers.conv("conv", Ref("x"), 6, 1, 1), (4, 6, 6))
    kept = layers.add("relu.default", x, shape=(4, 6, 6))
    pooled = layers.add("mean.dim", kept, [2, 3], shape=(4,))
    layers.model(layers.linear("fc", pooled))
    recorded = trefoil._record.Recorded({"x": layers.x}, layers.start, layers.calls, {"logits": Ref(layers.calls[-1].name)}, True,
                                        ("fc.weight", "fc.bias"))
    before, after = cut(recorded, ("fc.weight", "fc.bias"))
    assert [call.name for call in after.calls] == [layers.calls[-1].name] and list(after.inputs) == [pooled.name]
    assert set(before.constants) == {"conv.weight", *norm} and set(after.constants) == {"fc.weight", "fc.bias"}
    both(mpc, recorded, rng.normal(size=(32, 3, 6, 6)), rng.integers(0, 5, 32), loss="cross_entropy", optimiser=optim.SGD(0.1))


def calls_of(*calls):
    """The perceptron with calls between its layers, of which the last layer is trained."""
    recorded = head()
    first, relu, last = recorded.calls
    between = [Call(f"call {i}", target, args, {}, (Value((Batch(1), *shape), kind),)) for i, (target, args, shape, kind) in enumerate(calls)]
    last = replace(last, args=(Ref(between[-1].name), *last.args[1:]))
    return replace(recorded, calls=[first, relu, *between, last])


def test_dropout_begins_what_is_done_in_every_step():
    recorded = calls_of(("aten.dropout.default", (Ref("b"), 0.5, False), (16,), "f"), ("aten.relu.default", (Ref("call 0"),), (16,), "f"))
    before, after = cut(recorded, LAST)
    assert [call.name for call in before.calls] == ["a", "b"]
    assert [call.name for call in after.calls] == ["call 0", "call 1", "c"]


def test_masks_are_computed_again_and_inputs_are_passed_on():
    recorded = calls_of(
        ("aten.gt.Scalar", (Ref("b"), 0.5), (16,), "b"), ("aten.sum.dim_IntList", (Ref("x"), [1], True), (1,), "f"),
        ("aten.where.self", (Ref("call 0"), Ref("b"), Ref("one.bias")), (16,), "f"), ("aten.mul.Tensor", (Ref("call 2"), Ref("two.bias")), (16,), "f"),
        ("aten.add.Tensor", (Ref("call 3"), Ref("x")), (16,), "f"),
    )
    before, after = cut(recorded, LAST)
    assert list(before.outputs) == ["call 2"] and list(after.inputs) == ["call 2", "x"]
    assert [call.name for call in after.calls] == ["call 3", "call 4", "c"]
    # A truth value that a later layer takes is computed there.
    recorded = calls_of(
        ("aten.gt.Scalar", (Ref("b"), 0.5), (16,), "b"), ("aten.mul.Tensor", (Ref("b"), Ref("two.bias")), (16,), "f"),
        ("aten.where.self", (Ref("call 0"), Ref("call 1"), Ref("b")), (16,), "f"),
    )
    before, after = cut(recorded, LAST)
    assert list(before.outputs) == ["b"] and [call.name for call in after.calls] == ["call 0", "call 1", "call 2", "c"]


def test_networks_that_train_from_the_first_layer_on_are_not_cut(mpc):
    recorded = perceptron(64, 16, 10)
    assert cut(recorded, recorded.parameters) is None and cut(recorded, ("one.bias",)) is None
    assert cut(replace(head(), batch=False), LAST) is None
    trainer = trefoil.Trainer(model_of(recorded), batch_size=16, mpc=mpc)
    assert trainer._frozen_half() is None


def test_rows_that_depend_on_each_other_take_part_in_every_step(mpc):
    recorded = calls_of(("aten.mean.dim", (Ref("b"), [0], True), (16,), "f"), ("aten.sub.Tensor", (Ref("b"), Ref("call 0")), (16,), "f"))
    recorded.calls[2] = replace(recorded.calls[2], values=(Value((1, 16), "f"),))
    recorded.calls[3] = replace(recorded.calls[3], args=(Ref("b"), Ref("call 0")))
    before, _ = cut(recorded, LAST)
    assert [call.name for call in before.calls] == ["a", "b", "call 0", "call 1"]
    trainer = trefoil.Trainer(model_of(recorded), batch_size=16, mpc=mpc)
    assert trainer._frozen_half() is None


def test_values_that_leave_their_range_in_frozen_layers_are_named(rng):
    x, y = rng.normal(size=(32, 64)), rng.integers(0, 10, 32)
    x[20] *= 1e9
    with trefoil.local() as mpc:
        trainer = trefoil.Trainer(model_of(head()), batch_size=16, mpc=mpc, check=False)
        with pytest.raises(RangeError, match="rows 16 to 31: .*element [0-9]+ is .* must be below"):
            trainer.fit(x, y)
        assert trainer.steps == 0
    with trefoil.local(check=False) as mpc:
        trainer = trefoil.Trainer(model_of(head()), batch_size=16, mpc=mpc, check=False)
        with pytest.raises(RangeError, match="rows 16 to 31: values of `.*` have left the range"):
            trainer.fit(x, y)


def test_the_reference_runs_beside_frozen_layers(mpc, rng):
    x, y = rng.normal(size=(32, 64)), rng.integers(0, 10, 32)
    trainer = trefoil.Trainer(model_of(head()), batch_size=16, mpc=mpc, guard_every=0)
    assert len(trainer.fit(x, y)) == 2

"""Gradients of several steps that are added up, against the formulas of PyTorch in NumPy."""

import numpy as np
import pytest
from test_train import model_of, perceptron

import trefoil
from trefoil import ConfigError, InputError, optim

ROWS, STEPS = 8, 3


def gradients(w, x, y):
    """Those of the mean square of the perceptron's differences, by the weights."""
    before = x @ w["one.weight"].T + w["one.bias"]
    hidden = np.maximum(before, 0)
    slope = 2 * (hidden @ w["two.weight"].T + w["two.bias"] - y) / y.size
    back = (slope @ w["two.weight"]) * (before > 0)
    return {"one.weight": back.T @ x, "one.bias": back.sum(0), "two.weight": slope.T @ hidden, "two.bias": slope.sum(0)}


def trained(batches, rates, momentum, decay):
    """PyTorch's training: each group's backward passes of ``loss / k``, then a step of SGD."""
    w = {name: value.astype(float) for name, value in perceptron(6, 8, 2).constants.items()}
    velocity = {name: 0.0 for name in w}
    for update, rate in enumerate(rates):
        group = batches[update * STEPS : (update + 1) * STEPS]
        parts = [gradients(w, *batch) for batch in group]
        for name in w:
            grad = sum(part[name] for part in parts) / STEPS + decay * w[name]
            velocity[name] = momentum * velocity[name] + grad
            w[name] = w[name] - rate * velocity[name]
    return w


def given(rng, updates):
    return [(rng.normal(size=(ROWS, 6)), rng.normal(size=(ROWS, 2))) for _ in range(updates * STEPS)]


@pytest.mark.parametrize("lr, momentum, decay", [
    (0.1, 0.0, 0.0), (0.1, 0.9, 0.01), (optim.StepLR(0.1, every=1, gamma=0.5), 0.5, 0.0), (optim.Rates((0.1, 0.02, 0.05)), 0.9, 0.0),
])
def test_updates_are_those_of_pytorch_that_steps_after_several_backward_passes(mpc, rng, lr, momentum, decay):
    batches = given(rng, 3)
    optimiser = optim.SGD(lr, momentum=momentum, weight_decay=decay)
    trainer = trefoil.Trainer(model_of(perceptron(6, 8, 2)), "mean_square", optimiser, batch_size=ROWS, mpc=mpc, accumulate=STEPS)
    state = None
    for step, batch in enumerate(batches):
        before = trainer.state_dict()["one.weight"]
        seen = trainer.step(*batch)
        state, want = trainer.evaluate_step(state, *batch, step=step)
        assert seen["loss"] == pytest.approx(want["loss"], abs=1e-3)
        moved = not np.array_equal(before, trainer.state_dict()["one.weight"])
        assert moved == (step % STEPS == STEPS - 1)
    rates = {0.1: [0.1] * 3, optim.StepLR: [0.1, 0.05, 0.025], optim.Rates: [0.1, 0.02, 0.05]}
    want = trained(batches, rates[lr if isinstance(lr, float) else type(lr)], momentum, decay)
    for name, value in trainer.state_dict().items():
        assert np.abs(value - want[name]).max() < 2e-5, name


def test_accumulated_batches_are_one_batch_of_all_their_rows(mpc, rng):
    batches = given(rng, 2)
    how = {"mpc": mpc, "clip_norm": 0.3, "optimiser": optim.Adam(lr=0.01), "loss": "mean_square"}
    parts = trefoil.Trainer(model_of(perceptron(6, 8, 2)), batch_size=ROWS, accumulate=STEPS, **how)
    whole = trefoil.Trainer(model_of(perceptron(6, 8, 2)), batch_size=ROWS * STEPS, **how)
    for at in range(0, len(batches), STEPS):
        for batch in batches[at : at + STEPS]:
            parts.step(*batch)
        whole.step(*(np.concatenate(x) for x in zip(*batches[at : at + STEPS])))
    other = whole.state_dict()
    for name, value in parts.state_dict().items():
        assert np.abs(value - other[name]).max() < 2e-4, name
    assert np.abs(other["one.weight"] - perceptron(6, 8, 2).constants["one.weight"]).max() > 0.01


def test_a_training_continues_between_the_steps_of_an_update(mpc, rng, tmp_path):
    batches = given(rng, 2)
    make = lambda: trefoil.Trainer(model_of(perceptron(6, 8, 2)), "mean_square", optim.SGD(0.1, momentum=0.9), batch_size=ROWS, mpc=mpc, accumulate=STEPS)
    one, other = make(), make()
    for batch in batches[:4]:
        one.step(*batch)
    one.save(tmp_path / "state")
    other.load(tmp_path / "state")
    for batch in batches[4:]:
        one.step(*batch)
        other.step(*batch)
    assert one.steps == other.steps == 6
    for name, value in one.state_dict().items():
        assert np.abs(value - other.state_dict()[name]).max() < 1e-5


def test_the_check_before_a_training_looks_at_the_step_that_moves_the_weights(mpc, rng):
    x, y = given(rng, 1)[0]
    trainer = trefoil.Trainer(model_of(perceptron(6, 8, 2)), "mean_square", optim.SGD(0.1), batch_size=ROWS, mpc=mpc, accumulate=STEPS)
    slopes = trainer.check(x, y)
    assert set(slopes) == set(perceptron(6, 8, 2).constants) and all(abs(slope - 1) < 0.02 for slope in slopes.values())


def test_a_step_that_only_adds_up_gradients_costs_less_than_an_update(mpc, rng):
    adam = trefoil.Trainer(model_of(perceptron(6, 8, 2)), "mean_square", optim.Adam(), batch_size=ROWS, mpc=mpc, accumulate=STEPS, guard_every=0)
    costs = []
    for batch in given(rng, 1):
        mpc.cost()
        adam.step(*batch)
        costs.append(mpc.cost().bytes)
    assert abs(costs[0] - costs[1]) < 0.01 * costs[0] and costs[2] > 2 * costs[0]


@pytest.mark.parametrize("options, message", [
    ({"accumulate": 0}, "1 to 256 are possible"),
    ({"accumulate": 2, "optimiser": optim.Adam(every=4, eps=2**-12)}, "inverse roots are made every"),
    ({"accumulate": 2, "privacy": trefoil.DP(1.0, 1.0)}, "noise is added in every step"),
])
def test_accumulation_that_means_nothing_is_refused(mpc, options, message):
    with pytest.raises((InputError, ConfigError), match=message):
        trefoil.Trainer(model_of(perceptron(6, 8, 2)), "mean_square", batch_size=ROWS, mpc=mpc, **options)

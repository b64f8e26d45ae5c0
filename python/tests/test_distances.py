"""Distances of rows and the loss of triplets, against NumPy in float64 and differences."""

import math

import numpy as np
import pytest

from trefoil import InputError, functions as f


def distances(x, y, p):
    return np.linalg.norm(x[..., :, None, :] - y[..., None, :, :], p, -1)


@pytest.mark.parametrize("p", [1, 2, 3, math.inf, 0])
def test_distances_are_those_of_all_pairs_of_rows(mpc, rng, p):
    x, y = rng.normal(size=(3, 5)), rng.normal(size=(4, 5))
    y[0] = x[0]
    x, y = np.round(x, 3), np.round(y, 3)
    made = f.cdist(mpc.secret(x), mpc.secret(y), p)
    assert made.shape == (3, 4) and np.allclose(made.reveal(), distances(x, y, p), atol=2e-4)
    assert np.allclose(f.cdist(x, mpc.secret(y), p).reveal(), distances(x, y, p), atol=2e-4)


def test_distances_broadcast_and_rows_without_numbers_are_equal(mpc, rng):
    x, y = rng.normal(size=(2, 1, 3, 4)), rng.normal(size=(5, 2, 4))
    assert np.allclose(f.cdist(mpc.secret(x), y).reveal(), distances(x, y, 2), atol=1e-4)
    assert np.array_equal(f.cdist(mpc.secret(np.zeros((2, 0))), np.zeros((3, 0))).reveal(), np.zeros((2, 3)))
    # Whole numbers become real.
    assert np.allclose(f.cdist(mpc.secret([[0, 0]]), np.array([[3, 4]])).reveal(), 5, atol=1e-4)


def test_distances_have_gradients(mpc):
    x = mpc.secret([[0.0, 0.0], [1.0, 1.0]])
    x.requires_grad = True
    f.cdist(x, np.array([[3.0, 4.0]])).sum().backward()
    length = math.sqrt(13)
    assert np.allclose(x.grad.reveal(), [[-0.6, -0.8], [-2 / length, -3 / length]], atol=1e-4)


def test_rows_of_two_lengths_have_no_distance(mpc):
    with pytest.raises(InputError, match=r"not \(1, 2\) and \(1, 3\)"):
        f.cdist(mpc.secret([[1.0, 2.0]]), np.zeros((1, 3)))
    with pytest.raises(InputError, match="p is -1"):
        f.cdist(mpc.secret([[1.0]]), np.zeros((1, 1)), -1)
    with pytest.raises(InputError, match="no operand is secret"):
        f.cdist(np.zeros((1, 1)), np.zeros((1, 1)))


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_triplets_have_pytorchs_loss_and_gradient(mpc, rng, p, swap):
    """Against PyTorch's formula, and central differences of it."""

    def loss(anchor, positive, negative):
        far = np.linalg.norm(anchor - negative + 1e-6, p, -1)
        if swap:
            far = np.minimum(far, np.linalg.norm(positive - negative + 1e-6, p, -1))
        return np.maximum(0, np.linalg.norm(anchor - positive + 1e-6, p, -1) - far + 0.5).mean()

    rows = [np.round(rng.normal(size=(6, 3)), 4) for _ in range(3)]
    anchor, positive, negative = map(mpc.secret, rows)
    anchor.requires_grad = True
    made = f.triplet_margin_loss(anchor, positive, negative, margin=0.5, p=p, swap=swap)
    assert made.shape == () and abs(made.reveal() - loss(*rows)) < 1e-4
    made.backward()
    slopes = np.zeros((6, 3))
    for i in np.ndindex(6, 3):
        step = np.zeros((6, 3))
        step[i] = 1e-6
        slopes[i] = (loss(rows[0] + step, *rows[1:]) - loss(rows[0] - step, *rows[1:])) / 2e-6
    assert np.allclose(anchor.grad.reveal(), slopes, atol=1e-3)


def test_a_triplet_takes_a_margin_above_0(mpc):
    x = mpc.secret([[1.0]])
    with pytest.raises(InputError, match="the margin is 0"):
        f.triplet_margin_loss(x, x, x, margin=0)

"""A linear support vector machine of the rows of two owners, by the gradient of the hinge loss."""

import numpy as np

import trefoil

ROWS, FEATURES, EPOCHS, RATE, PENALTY = 60, 20, 40, 0.5, 0.01

rng = np.random.default_rng(1)
truth = rng.normal(size=FEATURES)
x = rng.normal(size=(3 * ROWS, FEATURES))
y = np.sign(x @ truth + 0.3)
# The first owner has ROWS of them, the second as many; the last ones show how well the machine does.
first, second, test = (slice(start * ROWS, (start + 1) * ROWS) for start in range(3))


def train(x, y, weights, bias):
    """Works on secret and on public arrays alike."""
    for _ in range(EPOCHS):
        margin = y * (x @ weights + bias)
        # A row pulls while it is on the wrong side, or too close to the border.
        pull = np.where(margin < 1, y, 0.0)
        weights = weights * (1 - RATE * PENALTY) + (pull @ x) * (RATE / len(x))
        bias = bias + np.mean(pull) * RATE
    return weights, bias


with trefoil.local() as mpc:
    rows = np.concatenate([mpc.secret(x[first], owner=0), mpc.secret(x[second], owner=1)])
    labels = np.concatenate([mpc.secret(y[first], owner=0), mpc.secret(y[second], owner=1)])
    start = mpc.secret(np.zeros(FEATURES)), mpc.secret(0.0)
    weights, bias = train(rows, labels, *start)
    # The machine stays secret while it classifies; only how often it is right comes out.
    right = np.mean(((mpc.secret(x[test], owner=2) @ weights + bias) > 0) == mpc.secret(y[test] > 0, owner=2))
    print(mpc.cost())
    accuracy = right.reveal()
    weights, bias = mpc.reveal(weights, bias)

clear = train(x[: 2 * ROWS], y[: 2 * ROWS], np.zeros(FEATURES), 0.0)
wanted = np.mean((x[test] @ clear[0] + clear[1] > 0) == (y[test] > 0))
alone = train(x[first], y[first], np.zeros(FEATURES), 0.0)
print(f"right on new rows: {accuracy:.3f}; in the clear {wanted:.3f}; by the first owner alone "
      f"{np.mean((x[test] @ alone[0] + alone[1] > 0) == (y[test] > 0)):.3f}")
print(f"largest difference of weights: {np.abs(weights - clear[0]).max():.1e}, of at most {np.abs(clear[0]).max():.2f}")
assert np.abs(weights - clear[0]).max() < 0.02 and abs(bias - clear[1]) < 0.02
assert abs(accuracy - wanted) < 0.05

"""A convolutional network of pictures whose halves two parties have, trained by gradients of secret expressions.

One party has the upper half of each digit, another one the lower half, a third one says which digits are zeros. The
network's layers are ordinary expressions: `backward` goes through them as PyTorch's does. `trefoil.Trainer` trains whole
networks faster; this way every step can be another one.
"""

import gzip
from pathlib import Path

import numpy as np

import trefoil
from trefoil import functions

DATA = Path(__file__).parents[2] / "models/data/digits.csv.gz"
BATCH, STEPS, RATE = 20, 12, 0.5

with gzip.open(DATA) as file:
    table = np.loadtxt(file, delimiter=",", max_rows=1200)
# As many zeros as other digits.
labels = table[:, 64] == 0
rows = np.concatenate([np.flatnonzero(labels)[:100], np.flatnonzero(~labels)[:100]])
rows = np.random.default_rng(2).permutation(rows)
images, targets = table[rows, :64].reshape(-1, 1, 8, 8) / 16, labels[rows].astype(float)

rng = np.random.default_rng(3)
start = [rng.normal(0, 0.3, (4, 1, 3, 3)), rng.normal(0, 0.1, (144, 1)), np.zeros(1)]


def in_the_clear(parameters):
    """The same steps by formulas in floats. Returns the losses."""
    kernel, weight, bias = (p.copy() for p in parameters)
    losses = []
    for step in range(STEPS):
        at = slice(step % 5 * BATCH, (step % 5 + 1) * BATCH)
        patches = np.lib.stride_tricks.sliding_window_view(images[at, 0], (3, 3), (1, 2))
        before = np.einsum("nhwij,oij->nohw", patches, kernel[:, 0])
        hidden = np.maximum(before, 0).reshape(BATCH, -1)
        error = (hidden @ weight + bias)[:, 0] - targets[at]
        losses.append(np.mean(error**2))
        slope = (2 / BATCH * error)[:, None]
        back = (slope @ weight.T).reshape(before.shape) * (before > 0)
        kernel -= RATE / 10 * np.einsum("nhwij,nohw->oij", patches, back)[:, None]
        weight -= RATE / 10 * hidden.T @ slope
        bias -= RATE / 10 * slope.sum(0)
    return losses, (kernel, weight, bias)


def scores(x, kernel, weight, bias):
    hidden = functions.conv2d(x, kernel).relu()
    return (hidden.reshape(len(hidden), -1) @ weight + bias)[:, 0]


with trefoil.local() as mpc:
    upper, lower = mpc.secret(images[:, :, :4], owner=0), mpc.secret(images[:, :, 4:], owner=1)
    x, wanted = np.concatenate([upper, lower], axis=2), mpc.secret(targets, owner=2)
    parameters, losses = [mpc.secret(p) for p in start], []
    for step in range(STEPS):
        at = slice(step % 5 * BATCH, (step % 5 + 1) * BATCH)
        for p in parameters:
            p.requires_grad = True
        loss = np.mean((scores(x[at], *parameters) - wanted[at]) ** 2)
        loss.backward()
        with trefoil.no_grad():
            parameters = [p - p.grad * (RATE / 10) for p in parameters]
        losses.append(loss.reveal())
    with trefoil.no_grad():
        right = np.mean((scores(x[100:], *parameters) > 0.5) == (wanted[100:] > 0.5)).reveal()
    print(mpc.cost())

clear, (kernel, weight, bias) = in_the_clear(start)
print("loss:         ", *(f"{loss:.4f}" for loss in losses[::3]))
print("in the clear: ", *(f"{loss:.4f}" for loss in clear[::3]))
print(f"right on {len(images) - 100} other digits: {right:.2f}")
assert np.abs(np.array(losses) - clear).max() < 1e-3
assert right > 0.8

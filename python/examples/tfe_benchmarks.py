"""Three small networks by which private inference is often compared, A, B and C of TF-Encrypted's benchmark.

The owner of a network and the owner of the pictures are two parties, and neither shows anything. The pictures are
handwritten digits, enlarged to 28 by 28. The hidden layers are random, and the last one is fitted by least squares:
this is about the time and the agreement with the clear, not about the best network.
"""

import gzip
import time
from pathlib import Path

import numpy as np

import trefoil
from trefoil import functions

DATA = Path(__file__).parents[2] / "models/data/digits.csv.gz"
#: Pictures that are classified, and those that the last layer is fitted to.
SHOWN, FITTED = 20, 900

#: Layers: dense ones by their width, convolutions of 5 by 5 with a maximum of 2 by 2 behind them by their channels.
NETWORKS = {
    "A": [("dense", 128), ("dense", 128)],
    "B": [("conv", 16), ("conv", 16), ("dense", 100)],
    "C": [("conv", 20), ("conv", 50), ("dense", 500)],
}


def digits():
    with gzip.open(DATA) as file:
        table = np.loadtxt(file, delimiter=",", max_rows=SHOWN + FITTED)
    large = np.kron(table[:, :64].reshape(-1, 8, 8) / 16, np.ones((3, 3)))
    return np.pad(large, ((0, 0), (2, 2), (2, 2)))[:, None], table[:, 64].astype(int)


def clear_conv(x, weight):
    patches = np.lib.stride_tricks.sliding_window_view(x, (5, 5), (2, 3))
    hidden = np.maximum(np.tensordot(patches, weight, ((1, 4, 5), (1, 2, 3))), 0).transpose(0, 3, 1, 2)
    n, c, h, w = hidden.shape
    return hidden.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def hidden(x, layers, conv):
    for kind, weight in layers:
        if kind == "conv":
            x = conv(x, weight)
        else:
            x = np.maximum(x.reshape(len(x), -1) @ weight, 0)
    return x


def secret_conv(x, weight):
    # A maximum of what a ReLU passes is a ReLU of the maximum, of which there are four times fewer.
    return functions.max_pool(functions.conv2d(x, weight), 2, 2).relu()


def build(name, images, labels, rng):
    """Random layers, of the size that keeps numbers near 1, and a fitted one."""
    layers, x = [], images
    for kind, size in NETWORKS[name]:
        shape = (size, x.shape[1], 5, 5) if kind == "conv" else (x[0].size, size)
        weight = rng.normal(size=shape) * np.sqrt(2 / (x.shape[1] * 25 if kind == "conv" else x[0].size))
        layers.append((kind, weight))
        x = hidden(x, layers[-1:], clear_conv)
    flat = x.reshape(len(x), -1)
    last = np.linalg.solve(flat.T @ flat + 0.1 * len(x) * np.eye(flat.shape[1]), flat.T @ np.eye(10)[labels])
    return layers, last


images, labels = digits()
rng = np.random.default_rng(8)
print("network  seconds  MB a picture  right  in the clear  same class  largest difference of scores")
with trefoil.local(check=False) as mpc:
    for name in NETWORKS:
        layers, last = build(name, images[SHOWN:], labels[SHOWN:], rng)
        secrets = [(kind, mpc.secret(weight, owner=0)) for kind, weight in layers]
        secret_last = mpc.secret(last, owner=0)
        x = mpc.secret(images[:SHOWN], owner=1)
        mpc.cost()
        began = time.perf_counter()
        result = hidden(x, secrets, secret_conv) @ secret_last
        classes = np.argmax(result, axis=1).reveal()
        seconds, moved = time.perf_counter() - began, mpc.cost().bytes
        # Users would get the classes alone; the scores are for the comparison.
        scores = result.reveal()
        clear = hidden(images[:SHOWN], layers, clear_conv) @ last
        right, wanted = (np.mean(found == labels[:SHOWN]) for found in (classes, clear.argmax(1)))
        same, difference = np.mean(classes == clear.argmax(1)), np.abs(scores - clear).max()
        cost = f"{seconds:7.2f}  {moved / SHOWN / 1e6:12.2f}"
        print(f"{name:7}  {cost}  {right:5.2f}  {wanted:12.2f}  {same:10.2f}  {difference:.1e}")
        assert same >= 0.95 and difference < 1e-3 and right > 0.6

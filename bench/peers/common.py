"""What the drivers of other systems share: cases, networks, three processes, timing.

A driver prints one line of JSON that introduces it, then answers every request, a line of JSON on
standard input, with a line of JSON. Everything that libraries print goes to standard error.
"""

import json
import multiprocessing
import os
import resource
import sys
import time

import numpy as np

PARTIES = 3

# The cases of `cargo xtask bench` that the drivers know, under the same names: an operation, shapes of its
# operands, and from which range they are drawn.
NORMAL = ("normal",)
OPERATIONS = {
    "protocols/relu/1e4": ("relu", [(10_000,)], NORMAL),
    "protocols/relu/1e5": ("relu", [(100_000,)], NORMAL),
    "protocols/relu/1e6": ("relu", [(1_000_000,)], NORMAL),
    "protocols/ltz/1e6": ("negative", [(1_000_000,)], NORMAL),
    "protocols/mul-trunc/1e6": ("multiply", [(1_000_000,)] * 2, NORMAL),
    "protocols/matmul/256": ("matmul", [(256, 256)] * 2, NORMAL),
    "protocols/matmul/1024": ("matmul", [(1024, 1024)] * 2, NORMAL),
    "protocols/matmul/2048": ("matmul", [(2048, 2048)] * 2, NORMAL),
    "protocols/conv/resnet-block": ("conv 1 1", [(1, 64, 56, 56), (64, 64, 3, 3)], NORMAL),
    "protocols/conv/alexnet-1": ("conv 4 2", [(1, 3, 224, 224), (64, 3, 11, 11)], NORMAL),
    "protocols/conv/batch32-11x11": ("conv 4 2", [(32, 3, 32, 32), (64, 3, 11, 11)], NORMAL),
    "protocols/softmax/128x10": ("softmax", [(128, 10)], (-8, 8)),
    "protocols/softmax/128x200": ("softmax", [(128, 200)], (-8, 8)),
    "protocols/exp/1e5": ("exp", [(100_000,)], (-8, 2)),
    "protocols/reciprocal/1e5": ("reciprocal", [(100_000,)], (0.05, 50)),
    "protocols/sqrt/1e5": ("sqrt", [(100_000,)], (0.05, 50)),
    "protocols/sigmoid/1e5": ("sigmoid", [(100_000,)], (-8, 8)),
    "protocols/gelu/1e5": ("gelu", [(100_000,)], (-8, 8)),
    "protocols/sin/1e5": ("sin", [(100_000,)], (-8, 8)),
    "python/add/1000": ("add", [(1000,)] * 2, NORMAL),
    "python/matmul/1024": ("matmul", [(1024, 1024)] * 2, NORMAL),
    "python/relu/1e6": ("relu", [(1_000_000,)], NORMAL),
    "protocols/maxpool/112": ("maxpool", [(1, 64, 112, 112)], NORMAL),
}

# Networks as lists of layers: ("conv", channels, kernel, stride, border), ("pool", kernel, stride),
# ("dense", outputs), ("relu",), ("flatten",). The same as in models/src/architectures, pooling by means.
LENET = [("conv", 20, 5, 1, 0), ("pool", 2, 2), ("relu",),
         ("conv", 50, 5, 1, 0), ("pool", 2, 2), ("relu",),
         ("flatten",), ("dense", 500), ("relu",), ("dense", 10)]
HEAD = [("flatten",), ("dense", 256), ("relu",), ("dense", 256), ("relu",), ("dense", 10)]
ALEXNET = [("conv", 96, 11, 4, 9), ("relu",), ("pool", 3, 2),
           ("conv", 256, 5, 1, 1), ("relu",), ("pool", 2, 1),
           ("conv", 384, 3, 1, 1), ("relu",), ("conv", 384, 3, 1, 1), ("relu",),
           ("conv", 256, 3, 1, 1), ("relu",)] + HEAD
VGG16 = [layer for channels in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
         for layer in ([("conv", channels, 3, 1, 1), ("relu",)] if channels else [("pool", 2, 2)])] + HEAD
NETWORKS = {
    "models/lenet/1": (LENET, (1, 1, 28, 28)),
    "models/lenet/128": (LENET, (128, 1, 28, 28)),
    "models/alexnet-cifar/1": (ALEXNET, (1, 3, 32, 32)),
    "models/vgg16-cifar/1": (VGG16, (1, 3, 32, 32)),
}

# Steps of gradient descent on the mean cross-entropy of a batch: network and labels secret.
TRAININGS = {"training/lenet/128": (LENET, (128, 1, 28, 28))}
RATE = 0.01


def operands(case):
    """The case's operands, the same in every system."""
    _, shapes, kind = OPERATIONS[case]
    random = np.random.default_rng(2021)
    draw = random.standard_normal if kind == NORMAL else lambda shape: random.uniform(*kind, shape)
    return [np.asarray(draw(shape), np.float32) for shape in shapes]


def network(case):
    """Layers, the input, and for each layer with weights its kernel (outputs first) and its bias."""
    layers, shape = {**NETWORKS, **TRAININGS}[case]
    random = np.random.default_rng(2021)
    x = np.asarray(random.standard_normal(shape), np.float32)
    (_, channels, size, _), weights = shape, []
    for kind, *numbers in layers:
        if kind == "conv":
            outputs, kernel, stride, border = numbers
            weights.append((outputs, channels, kernel, kernel))
            channels, size = outputs, (size + 2 * border - kernel) // stride + 1
        elif kind == "pool":
            kernel, stride = numbers
            size = (size - kernel) // stride + 1
        elif kind == "flatten":
            channels, size = channels * size * size, 1
        elif kind == "dense":
            weights.append((numbers[0], channels))
            channels = numbers[0]
    scale = lambda shape: (2 / np.prod(shape[1:])) ** 0.5
    kernels = [np.asarray(random.standard_normal(s) * scale(s), np.float32) for s in weights]
    biases = [np.asarray(random.standard_normal(s[0]) * 0.01, np.float32) for s in weights]
    return layers, x, list(zip(kernels, biases))


def labels(case):
    """A one in the place of each row's class."""
    layers, (batch, *_) = TRAININGS[case]
    classes = layers[-1][1]
    return np.eye(classes, dtype=np.float32)[np.arange(batch) * 7 % classes]


def start(main, *arguments):
    """Runs a function in a process of its own, which ends with this one."""
    process = multiprocessing.get_context("spawn").Process(target=main, args=arguments, daemon=True)
    process.start()
    return process


class Parties:
    """A process for each party, all told the same."""

    def __init__(self, main, *arguments):
        pairs = [multiprocessing.get_context("spawn").Pipe() for _ in range(PARTIES)]
        self.pipes = [ours for ours, _ in pairs]
        self.processes = [start(main, rank, theirs, *arguments) for rank, (_, theirs) in enumerate(pairs)]

    def ask(self, *message):
        """What the parties answer. Messages may differ: a list holds one for each."""
        for rank, pipe in enumerate(self.pipes):
            pipe.send([part[rank] if isinstance(part, list) else part for part in message])
        answers = [pipe.recv() for pipe in self.pipes]
        for rank, answer in enumerate(answers):
            if isinstance(answer, Exception):
                raise RuntimeError(f"party {rank}: {answer}")
        return answers

    def close(self):
        for process in self.processes:
            process.terminate()


def obey(pipe, actions):
    """A party's loop: does what it is asked, and sends back what came of it."""
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(actions[name](*arguments))
        except Exception as error:
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def clocked(work):
    """Seconds and processor seconds of some work."""
    used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    processor, clock = used(), time.perf_counter()
    work()
    return time.perf_counter() - clock, used() - processor


def repeat(run, effort):
    """Runs once to warm up, then as often as asked. `run` returns each party's seconds and processor
    seconds; a run lasts until the last party is done."""
    first = max(seconds for seconds, _ in run())
    times = int(effort["total_seconds"] / max(first, 1e-6))
    times = min(max(times, effort["min_runs"]), effort["max_runs"])
    if first > effort["long_seconds"]:
        times = min(times, 2)
    runs = [run() for _ in range(times)]
    return {
        "seconds": [max(seconds for seconds, _ in parties) for parties in runs],
        "cpu_seconds": sum(cpu for parties in runs for _, cpu in parties),
    }


def serve(introduction, measure):
    """Introduces the driver and answers requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps(introduction), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = measure(request["case"], request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


def largest_error(found, expected):
    """The largest absolute difference."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return float(np.max(np.abs(found - expected)))

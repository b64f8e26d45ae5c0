"""Writes random ONNX graphs, and what onnxruntime answers.

    pip install -r models/scripts/random-requirements.txt
    python models/scripts/random_graphs.py FOLDER [--count N] [--seed S] [--first K]

Beside `random-K.onnx` lies `random-K.safetensors` with inputs `in.0`, ... and results `out.0`, ..., all as f32. Graph K is
the same in every run with the same seed. Nodes are added one at a time and run beside copies of all values to which
noise is added: what noise of 2^-14 changes much, such as a comparison of equals or a logarithm near 0, is
not taken, since fixed point could not be right there. A graph that onnxruntime answers otherwise with its optimisations
than without is left out and said. What is there already is not made again.
"""

import argparse
import pathlib
import random

import numpy as np
import onnx
import onnx_files
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OPSETS = [11, 13, 17, 18, 21]
NOISE = 2.0**-14
COPIES = 3
LARGEST = 100.0
MOST_ELEMENTS = 2048
# What noise may change, relative to the larger of 1 and the largest value: the limit of the tests is 2^-6.
SPREAD = 2.0**-8

KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.bool_): TensorProto.BOOL, np.dtype(np.uint8): TensorProto.UINT8,
         np.dtype(np.int8): TensorProto.INT8}


class Refused(Exception):
    """A node that is not taken."""


def info(name, array):
    return helper.make_tensor_value_info(name, KINDS[array.dtype], array.shape)


def session(nodes, inputs, outputs, initializers, opset, optimise):
    graph = helper.make_graph(nodes, "random", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    return model, onnxruntime.InferenceSession(model.SerializeToString(), options)


class Graph:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.choice(OPSETS)
        self.nodes, self.inputs, self.constants = [], [], {}
        # Each value by name: as it is, and with noise.
        self.values = {}
        self.used = set()
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3])):
            self.input()

    def fresh(self, stem):
        return f"{stem}{len(self.nodes)}_{len(self.constants)}_{len(self.values)}"

    def noisy(self, array):
        if array.dtype != np.float32:
            return [array] * COPIES
        return [(array + self.numbers.uniform(-NOISE, NOISE, array.shape)).astype(np.float32) for _ in range(COPIES)]

    def input(self):
        rank = self.rng.choice([1, 2, 2, 3, 3, 4, 4])
        dims = [self.rng.randint(1, 6) for _ in range(rank)]
        if rank == 4:
            dims = [self.rng.choice([1, 1, 2]), self.rng.randint(1, 4), self.rng.randint(3, 7), self.rng.randint(3, 7)]
        if self.rng.random() < 0.1:
            array = self.numbers.integers(0, 4, dims[:2])
        else:
            array = self.numbers.normal(0, self.rng.choice([0.5, 1, 3]), dims).astype(np.float32)
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.values[name] = (array, self.noisy(array))

    def constant(self, array):
        name = self.fresh("c")
        self.constants[name] = np.asarray(array)
        return name

    def floats(self, *dims, scale=1.0, low=None):
        array = self.numbers.normal(0, scale, dims)
        return self.constant((array if low is None else np.abs(array) + low).astype(np.float32))

    def ints(self, *values):
        return self.constant(np.asarray(values, np.int64))

    def pick(self, kind=np.float32, rank=None, least=0):
        found = [name for name, (value, _) in self.values.items()
                 if value.dtype == kind and value.ndim >= least and rank in (None, value.ndim)]
        if not found:
            raise Refused
        # Late values make deep graphs.
        return self.rng.choice(found[-3:] if self.rng.random() < 0.7 else found)

    def of(self, name):
        return self.values[name][0]

    def axis(self, name):
        rank = self.of(name).ndim
        if rank == 0:
            raise Refused
        axis = self.rng.randrange(rank)
        return axis - rank if self.rng.random() < 0.4 else axis

    def add(self, op, inputs, outputs=1, **attributes):
        names = [self.fresh("v") + f"_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, name=f"{op}_{len(self.nodes)}", **attributes)
        taken = [name for name in dict.fromkeys(inputs) if name]
        computed = [name for name in taken if name in self.values]
        if not computed:
            raise Refused
        given = [numpy_helper.from_array(self.constants[name], name) for name in taken if name in self.constants]
        specs = [info(name, self.of(name)) for name in computed]
        outs = [helper.make_empty_tensor_value_info(name) for name in names]
        try:
            _, ready = session([node], specs, outs, given, self.opset, False)
            exact = ready.run(None, {name: self.values[name][0] for name in computed})
            moved = [ready.run(None, {name: self.values[name][1][i] for name in computed}) for i in range(COPIES)]
        except Exception as error:
            raise Refused from error
        results = {}
        for i, (name, value) in enumerate(zip(names, exact, strict=True)):
            if not isinstance(value, np.ndarray):
                value = np.asarray(value)
            if value.dtype not in KINDS or not 0 < value.size <= MOST_ELEMENTS:
                raise Refused
            copies = [np.asarray(copy[i]) for copy in moved]
            if value.dtype == np.float32:
                with np.errstate(all="ignore"):
                    largest = np.abs(value).max()
                    bad = not np.isfinite(largest) or largest > LARGEST
                    limit = SPREAD * max(1, largest) if not bad else 0
                    bad = bad or any(not np.abs(copy - value).max() <= limit for copy in copies)
                copies = [(copy + noise).astype(np.float32) for copy, noise in
                          zip(copies, [self.numbers.uniform(-NOISE, NOISE, value.shape) for _ in copies], strict=True)]
            else:
                bad = any((copy != value).any() for copy in copies) or np.abs(value.astype(np.float64)).max() > 1000
            if bad:
                raise Refused
            results[name] = (value, copies)
        self.nodes.append(node)
        self.values.update(results)
        self.used.update(computed)
        return names

    def axes(self, op, x, axes, since, **attributes):
        """A node whose axes are an operand from an opset on, and an attribute before."""
        if self.opset >= since:
            return self.add(op, [x, self.ints(*axes)], **attributes)
        return self.add(op, [x], axes=list(axes), **attributes)


UNARY = ["Relu", "Sigmoid", "Tanh", "Erf", "HardSwish", "Softplus", "Softsign", "Exp", "Log", "Sqrt", "Reciprocal", "Neg",
         "Abs", "Sign", "Sin", "Cos", "Floor", "Ceil", "Round", "LeakyRelu", "HardSigmoid", "Elu", "Selu", "Gelu", "Celu",
         "ThresholdedRelu", "Mish", "Shrink", "Atan", "Tan", "Asinh", "Sinh", "Cosh", "Atanh", "Identity"]


def unary(g):
    op = g.rng.choice(UNARY)
    attributes = {}
    if op in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu") and g.rng.random() < 0.7:
        attributes["alpha"] = g.rng.uniform(0.05, 1.5)
    if op == "HardSigmoid" and g.rng.random() < 0.5:
        attributes = {"alpha": g.rng.uniform(0.1, 0.6), "beta": g.rng.uniform(0.2, 0.7)}
    if op == "Shrink":
        attributes = {"lambd": g.rng.uniform(0.1, 1), "bias": g.rng.uniform(0, 0.5)}
    if op == "Gelu" and g.rng.random() < 0.5:
        attributes["approximate"] = "tanh"
    g.add(op, [g.pick()], **attributes)


def other(g, x):
    """A second operand: a value that is broadcast, or a weight."""
    dims = g.of(x).shape
    if g.rng.random() < 0.4:
        return g.pick()
    own = [d if g.rng.random() < 0.7 else 1 for d in dims]
    own = own[g.rng.randint(0, len(own)):]
    return g.floats(*own, scale=g.rng.choice([0.3, 1, 2]))


def binary(g):
    op = g.rng.choice(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Sum", "Mean"])
    x = g.pick()
    y = other(g, x)
    both = [x, y] if g.rng.random() < 0.6 else [y, x]
    if op in ("Sum", "Mean", "Max", "Min") and g.rng.random() < 0.3:
        both.append(other(g, x))
    g.add(op, both)


def power(g):
    exponent = np.float32(g.rng.choice([2, 2, 3, 0.5, -1, -0.5, 1.5, 4]))
    g.add("Pow", [g.pick(), g.constant(exponent)])


def compare(g):
    ops = ["Less", "Greater", "Equal"] + (["LessOrEqual", "GreaterOrEqual"] if g.opset >= 12 else [])
    x = g.pick()
    g.add(g.rng.choice(ops), [x, other(g, x)])


def logic(g):
    op = g.rng.choice(["And", "Or", "Xor", "Not"])
    x = g.pick(np.bool_)
    g.add(op, [x] if op == "Not" else [x, g.pick(np.bool_)])


def where(g):
    x = g.pick()
    g.add("Where", [g.pick(np.bool_), x, other(g, x)])


def prelu(g):
    x = g.pick()
    g.add("PRelu", [x, g.floats(*[1 for _ in g.of(x).shape[1:]], scale=0.5)])


def clip(g):
    low, high = sorted([g.rng.uniform(-2, 2), g.rng.uniform(-2, 2)])
    low = g.constant(np.float32(low)) if g.rng.random() < 0.8 else ""
    high = g.constant(np.float32(high)) if g.rng.random() < 0.8 else ""
    g.add("Clip", [g.pick(), low, high])


def matmul(g):
    x = g.pick(least=1)
    if g.rng.random() < 0.3:
        return g.add("MatMul", [x, g.pick(least=1)])
    k, n = g.of(x).shape[-1], g.rng.randint(1, 6)
    w = g.floats(k, n, scale=1 / k**0.5)
    return g.add("MatMul", [x, w])


def gemm(g):
    x = g.pick(rank=2)
    m, k = g.of(x).shape
    n, a, b = g.rng.randint(1, 6), g.rng.randint(0, 1), g.rng.randint(0, 1)
    k = m if a else k
    operands = [x, g.floats(*((n, k) if b else (k, n)), scale=1 / k**0.5)]
    if g.rng.random() < 0.7:
        operands.append(g.floats(*g.rng.choice([(n,), (1, n), (1,), ()])))
    g.add("Gemm", operands, transA=a, transB=b, alpha=g.rng.uniform(0.5, 1.5), beta=g.rng.uniform(0.5, 1.5))


def einsum(g):
    if g.opset < 12:
        raise Refused
    x = g.pick(least=2)
    rank = g.of(x).ndim
    k = g.of(x).shape[-1]
    if rank == 2:
        equation, dims = g.rng.choice([("ij,jk->ik", (k, 3)), ("ij,kj->ki", (2, k)), ("ij,j->i", (k,)), ("ij,ij->j", None)])
    elif rank == 3:
        equation, dims = g.rng.choice([("bij,jk->bik", (k, 3)), ("bij,bij->b", None), ("bij,kj->bki", (2, k))])
    else:
        equation, dims = g.rng.choice([("bhij,bhkj->bhik", None), ("bhij,jk->bihk", (k, 2))])
    g.add("Einsum", [x, x if dims is None else g.floats(*dims, scale=1 / k**0.5)], equation=equation)


def window(g, rank):
    kernel = [g.rng.randint(1, 3) for _ in range(rank)]
    attributes = {"kernel_shape": kernel, "strides": [g.rng.randint(1, 2) for _ in range(rank)]}
    way = g.rng.random()
    if way < 0.5:
        attributes["pads"] = [g.rng.randint(0, k - 1) for k in kernel * 2]
    elif way < 0.65:
        attributes["auto_pad"] = g.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return attributes


def conv(g):
    x = g.pick(rank=g.rng.choice([3, 4, 4, 4, 5]))
    channels, *size = g.of(x).shape[1:]
    attributes = window(g, len(size))
    groups = g.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])
    if "auto_pad" not in attributes and g.rng.random() < 0.3:
        attributes["dilations"] = [g.rng.randint(1, 2) for _ in size]
    kernel = attributes["kernel_shape"]
    if g.rng.random() < 0.25:
        outputs = g.rng.randint(1, 3)
        w = g.floats(channels, outputs, *kernel, scale=0.4)
        bias = [g.floats(outputs * groups)] if g.rng.random() < 0.5 else []
        attributes.pop("auto_pad", None)
        return g.add("ConvTranspose", [x, w, *bias], group=groups, **attributes)
    outputs = groups * g.rng.randint(1, 3)
    w = g.floats(outputs, channels // groups, *kernel, scale=0.4)
    bias = [g.floats(outputs)] if g.rng.random() < 0.5 else []
    return g.add("Conv", [x, w, *bias], group=groups, **attributes)


def pool(g):
    x = g.pick(rank=g.rng.choice([3, 4, 4, 4, 5]))
    op = g.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
    if op.startswith("Global"):
        return g.add(op, [x])
    attributes = window(g, g.of(x).ndim - 2)
    if op != "LpPool" and "auto_pad" not in attributes and g.rng.random() < 0.3:
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and g.rng.random() < 0.5:
        attributes["count_include_pad"] = 1
    if op == "MaxPool" and "auto_pad" not in attributes and g.rng.random() < 0.2:
        attributes["dilations"] = [g.rng.randint(1, 2) for _ in attributes["kernel_shape"]]
    return g.add(op, [x], **attributes)


def norm(g):
    op = g.rng.choice(["BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "LpNormalization",
                       "MeanVarianceNormalization", "GroupNormalization"])
    x = g.pick(least=2)
    dims = g.of(x).shape
    channels = dims[1]
    if op == "BatchNormalization":
        parts = [g.floats(channels), g.floats(channels), g.floats(channels), g.floats(channels, low=0.2)]
        return g.add(op, [x, *parts], epsilon=g.rng.choice([1e-5, 1e-3]))
    if op == "InstanceNormalization":
        return g.add(op, [g.pick(least=3), g.floats(channels), g.floats(channels)])
    if op == "GroupNormalization":
        if g.opset < 21 or len(dims) < 3:
            raise Refused
        groups = g.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])
        return g.add(op, [x, g.floats(channels), g.floats(channels)], num_groups=groups)
    if op == "LayerNormalization":
        axis = g.rng.randrange(1, len(dims))
        bias = [g.floats(*dims[axis:])] if g.rng.random() < 0.7 else []
        return g.add(op, [x, g.floats(*dims[axis:]), *bias], axis=axis)
    if op == "LRN":
        return g.add(op, [g.pick(rank=4)], size=g.rng.choice([1, 3, 5]), alpha=0.01, beta=0.6, bias=1.0)
    if op == "LpNormalization":
        return g.add(op, [x], axis=g.axis(x), p=g.rng.choice([1, 2]))
    return g.add(op, [g.pick(rank=4)])


def softmax(g):
    x = g.pick(least=1)
    g.add(g.rng.choice(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), [x], axis=g.axis(x))


def reduce(g):
    op = g.rng.choice(["Sum", "Mean", "Max", "Min", "SumSquare", "L1", "L2", "LogSum", "LogSumExp", "Prod"])
    x = g.pick(least=1)
    rank = g.of(x).ndim
    axes = g.rng.sample(range(rank), g.rng.randint(1, rank))
    axes = [a - rank if g.rng.random() < 0.3 else a for a in axes]
    g.axes(f"Reduce{op}", x, axes, 13 if op == "Sum" else 18, keepdims=g.rng.randint(0, 1))


def position(g):
    x = g.pick(least=1)
    if g.rng.random() < 0.5:
        op = g.rng.choice(["ArgMax", "ArgMin"])
        return g.add(op, [x], axis=g.axis(x), keepdims=g.rng.randint(0, 1))
    axis = g.axis(x)
    k = g.rng.randint(1, g.of(x).shape[axis])
    return g.add("TopK", [x, g.ints(k)], 2, axis=axis, largest=g.rng.randint(0, 1))


def cumulative(g):
    x = g.pick(least=1)
    axis = g.constant(np.int64(g.axis(x)))
    g.add("CumSum", [x, axis], exclusive=g.rng.randint(0, 1), reverse=g.rng.randint(0, 1))


def shape(g):
    way = g.rng.choice(["Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Computed"])
    x = g.pick(g.rng.choice([np.float32, np.float32, np.float32, np.bool_, np.int64]), least=1)
    dims = list(g.of(x).shape)
    if way == "Transpose":
        return g.add(way, [x], perm=g.rng.sample(range(len(dims)), len(dims)))
    if way == "Flatten":
        return g.add(way, [x], axis=g.rng.randint(0, len(dims)))
    if way == "Squeeze":
        ones = [i for i, d in enumerate(dims) if d == 1]
        return g.axes(way, x, ones, 13) if ones else None
    if way == "Unsqueeze":
        return g.axes(way, x, [g.rng.randint(0, len(dims))], 13)
    if way == "Expand":
        return g.add(way, [x, g.ints(g.rng.randint(1, 3), *[g.rng.choice([1, d]) for d in dims])])
    if way == "Computed":
        # As exporters write a reshape by a size that they read off another value.
        size = g.add("Shape", [x])[0]
        first = g.add("Gather", [size, g.ints(0)], axis=0)[0]
        return g.add("Reshape", [x, g.add("Concat", [first, g.ints(-1)], axis=0)[0]])
    to = [int(np.prod(dims[:1])), -1] if g.rng.random() < 0.4 else [0, *reversed(dims[1:])]
    return g.add("Reshape", [x, g.ints(*to)])


def join(g):
    x = g.pick(least=1)
    axis = g.axis(x)
    dims = list(g.of(x).shape)
    if g.rng.random() < 0.5:
        dims[axis] = g.rng.randint(1, 3)
        return g.add("Concat", [x, g.floats(*dims)] if g.rng.random() < 0.5 else [x, x], axis=axis)
    if dims[axis] < 2:
        raise Refused
    first = g.rng.randint(1, dims[axis] - 1)
    lengths = [first, dims[axis] - first]
    if g.opset >= 13:
        return g.add("Split", [x, g.ints(*lengths)], 2, axis=axis)
    return g.add("Split", [x], 2, axis=axis, split=lengths)


def part(g):
    x = g.pick(least=1)
    axis = g.axis(x)
    size = g.of(x).shape[axis]
    way = g.rng.choice(["Slice", "Gather", "GatherElements", "GatherND", "ScatterElements", "Trilu", "Pad", "Tile"])
    if way == "Slice":
        step = g.rng.choice([1, 1, 2, -1, -2])
        start, end = g.rng.randint(-size, size), g.rng.choice([g.rng.randint(-size - 1, size), 2**40, -2**40])
        return g.add(way, [x, g.ints(start), g.ints(end), g.ints(axis), g.ints(step)])
    if way == "Gather":
        places = [g.rng.randint(-size, size - 1) for _ in range(g.rng.randint(1, 4))]
        places = g.constant(np.int64(places[0])) if g.rng.random() < 0.3 else g.ints(*places)
        return g.add(way, [x, places], axis=axis)
    if way in ("GatherElements", "ScatterElements"):
        if way == "ScatterElements":
            # Each place once: what is written twice depends on the order.
            dims = list(g.of(x).shape)
            dims[axis] = 1
            places = g.constant(np.full(dims, g.rng.randrange(size), np.int64))
            return g.add(way, [x, places, g.floats(*dims)], axis=axis)
        places = g.constant(g.numbers.integers(-size, size, g.of(x).shape))
        return g.add(way, [x, places], axis=axis)
    if way == "GatherND":
        dims = g.of(x).shape
        depth = g.rng.randint(1, len(dims))
        places = [[g.rng.randrange(d) for d in dims[:depth]] for _ in range(3)]
        return g.add(way, [x, g.constant(np.asarray(places, np.int64))])
    if way == "Trilu":
        return g.add(way, [g.pick(least=2), g.constant(np.int64(g.rng.randint(-2, 2)))], upper=g.rng.randint(0, 1))
    if way == "Tile":
        return g.add(way, [x, g.ints(*[g.rng.randint(1, 2) for _ in g.of(x).shape])])
    mode = g.rng.choice(["constant", "constant", "reflect", "edge"])
    least = -1 if mode == "constant" else 0
    pads = g.ints(*[g.rng.randint(least, 1) for _ in range(2 * g.of(x).ndim)])
    more = [g.constant(np.float32(g.rng.uniform(-1, 1)))] if mode == "constant" else []
    return g.add("Pad", [x, pads, *more], mode=mode)


def picture(g):
    x = g.pick(rank=4)
    channels, height, width = g.of(x).shape[1:]
    way = g.rng.choice(["Resize", "Resize", "DepthToSpace", "SpaceToDepth"])
    if way == "DepthToSpace":
        if channels % 4:
            raise Refused
        return g.add(way, [x], blocksize=2, mode=g.rng.choice(["DCR", "CRD"]))
    if way == "SpaceToDepth":
        return g.add(way, [x], blocksize=2)
    mode = g.rng.choice(["nearest", "linear", "cubic"])
    attributes = {"mode": mode, "coordinate_transformation_mode":
                  g.rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])}
    if mode == "nearest":
        attributes["nearest_mode"] = g.rng.choice(["floor", "round_prefer_floor"])
    empty = g.constant(np.zeros(0, np.float32))
    to = g.ints(*g.of(x).shape[:2], g.rng.randint(2, 2 * height), g.rng.randint(2, 2 * width))
    return g.add(way, [x, empty, empty, to], **attributes)


def cast(g):
    way = g.rng.choice(["bool", "int", "whole"])
    if way == "bool":
        return g.add("Cast", [g.pick(np.bool_)], to=TensorProto.FLOAT)
    if way == "whole":
        return g.add("Cast", [g.pick(np.int64)], to=TensorProto.FLOAT)
    return g.add("Cast", [g.pick()], to=g.rng.choice([TensorProto.INT64, TensorProto.BOOL]))


def integers(g):
    ids = g.pick(np.int64)
    way = g.rng.choice(["Gather", "OneHot", "Add", "Mul", "Equal", "Less"])
    if way == "Gather":
        return g.add(way, [g.floats(int(g.of(ids).max()) + 2, g.rng.randint(1, 4)), ids])
    if way == "OneHot":
        values = g.constant(np.asarray([0, 1], np.float32))
        return g.add(way, [ids, g.ints(5), values])
    return g.add(way, [ids, g.ints(g.rng.randint(1, 3))])


def recurrent(g):
    x = g.pick(rank=3)
    size, hidden = g.of(x).shape[2], g.rng.randint(1, 4)
    op, gates = g.rng.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    ways = g.rng.choice(["forward", "reverse", "bidirectional"])
    count = 2 if ways == "bidirectional" else 1
    w = g.floats(count, gates * hidden, size, scale=0.5)
    r = g.floats(count, gates * hidden, hidden, scale=0.5)
    bias = [g.floats(count, 2 * gates * hidden, scale=0.3)] if g.rng.random() < 0.6 else []
    attributes = {"linear_before_reset": g.rng.randint(0, 1)} if op == "GRU" else {}
    g.add(op, [x, w, r, *bias], 2, hidden_size=hidden, direction=ways, **attributes)


def quantised(g):
    x = g.pick(least=1)
    scale, zero = g.constant(np.float32(g.rng.uniform(0.02, 0.1))), g.constant(np.uint8(g.rng.randint(100, 150)))
    g.add("DequantizeLinear", [g.add("QuantizeLinear", [x, scale, zero])[0], scale, zero])


def dropout(g):
    g.add("Dropout", [g.pick()])


# Each with the weight of its choice.
MAKERS = [(unary, 8), (binary, 8), (power, 2), (compare, 2), (logic, 1), (where, 2), (prelu, 1), (clip, 2), (matmul, 4),
          (gemm, 3), (einsum, 2), (conv, 6), (pool, 4), (norm, 5), (softmax, 3), (reduce, 5), (position, 2), (cumulative, 1),
          (shape, 6), (join, 3), (part, 6), (picture, 2), (cast, 2), (integers, 3), (recurrent, 2), (quantised, 1), (dropout, 1)]


def build(seed):
    """A graph, its inputs and what onnxruntime answers; a text if it is left out."""
    g = Graph(seed)
    wanted = g.rng.randint(2, 14)
    for _ in range(8 * wanted):
        maker = g.rng.choices([maker for maker, _ in MAKERS], [weight for _, weight in MAKERS])[0]
        try:
            maker(g)
        except Refused:
            continue
        if len(g.nodes) >= wanted:
            break
    made = [name for node in g.nodes for name in node.output]
    outputs = [name for name in made if name not in g.used and g.of(name).dtype != np.uint8]
    if not outputs:
        return "no node was taken"
    read = [name for name in g.inputs if name in g.used]
    given = {name for node in g.nodes for name in node.input}
    constants = [numpy_helper.from_array(value, name) for name, value in g.constants.items() if name in given]
    specs = [info(name, g.of(name)) for name in read]
    outs = [info(name, g.of(name)) for name in outputs]
    feed = {name: g.of(name) for name in read}
    model, plain = session(g.nodes, specs, outs, constants, g.opset, False)
    answers = plain.run(None, feed)
    for name, value in zip(outputs, answers, strict=True):
        if not np.allclose(value.astype(np.float64), g.of(name).astype(np.float64), rtol=1e-3, atol=1e-3):
            return "onnxruntime answers otherwise than node by node"
    _, quick = session(g.nodes, specs, outs, constants, g.opset, True)
    for value, same in zip(answers, quick.run(None, feed), strict=True):
        if not np.allclose(value.astype(np.float64), same.astype(np.float64), rtol=1e-3, atol=1e-3):
            return "onnxruntime answers otherwise with its optimisations"
    return model, list(feed.values()), answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for number in range(options.first, options.first + options.count):
        path = options.folder / f"random-{number:05}.onnx"
        beside = path.with_suffix(".safetensors")
        if beside.exists():
            continue
        made = build(options.seed * 1_000_003 + number)
        if isinstance(made, str):
            print(f"{path.name}: left out: {made}", flush=True)
            continue
        model, inputs, outputs = made
        onnx.save(model, path)
        tensors = {f"in.{i}": value for i, value in enumerate(inputs)}
        onnx_files.save_tensors(tensors | {f"out.{i}": value for i, value in enumerate(outputs)}, beside)


if __name__ == "__main__":
    main()

"""Writes the small ONNX files of `models/data/onnx`, with inputs and onnxruntime's outputs.

    pip install -r models/scripts/requirements.txt
    python models/scripts/export_small.py

Two kinds: operator files, built node by node so that each operator appears in the forms that
its opsets allow (attributes or inputs, paddings, groups, axes), and small networks as PyTorch
exports them. Beside `NAME.onnx` lies `NAME.safetensors` with its inputs `in.0`, `in.1`, ... and
onnxruntime's outputs `out.0`, `out.1`, ..., in the graph's order and all as f32, whatever their
type in the graph. Everything is seeded; weights are random.
"""

import pathlib
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnx_files
import small_nets

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "onnx"
MAX_BYTES = 1_000_000


class Operators:
    """Collects nodes over common inputs into one model with an output per node."""

    def __init__(self, name, opset):
        self.name, self.opset = f"{name}-opset{opset}", opset
        self.random = np.random.default_rng(zlib.crc32(self.name.encode()))
        self.nodes, self.inputs, self.outputs, self.constants = [], {}, [], []

    def input(self, name, shape, low=-2.0, high=2.0):
        """A secret input, uniform in [low, high)."""
        self.inputs[name] = self.random.uniform(low, high, shape).astype(np.float32)
        return name

    def given(self, name, values):
        """A secret input of the given values."""
        self.inputs[name] = np.asarray(values, np.float32)
        return name

    def weight(self, *shape, scale=1.0):
        """A random constant."""
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, values):
        values = np.asarray(values)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, operator, inputs, count=1, **attributes):
        """A node inside the graph; returns the names of its results."""
        names = [f"{operator.lower()}_{len(self.nodes)}_{i}" for i in range(count)]
        label = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, names, name=label, **attributes))
        return names[0] if count == 1 else names

    def output(self, operator, inputs, count=1, **attributes):
        """A node whose results are outputs of the model."""
        results = self.node(operator, inputs, count, **attributes)
        self.outputs += [results] if count == 1 else results

    def float_output(self, operator, inputs, **attributes):
        """A node of another type, whose result is cast to f32 and is an output of the model."""
        result = self.node(operator, inputs, **attributes)
        self.output("Cast", [result], to=TensorProto.FLOAT)

    def save(self):
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape)
            for name, values in self.inputs.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = min(model.ir_version, 6 if self.opset < 13 else 10)
        write(self.name, model, list(self.inputs.values()))


def write(name, model, inputs):
    """Saves a model, its inputs, and what onnxruntime makes of them."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    feed = {
        spec.name: values.astype(types[spec.type])
        for spec, values in zip(session.get_inputs(), inputs, strict=True)
    }
    outputs = session.run(None, feed)
    for spec, values in zip(model.graph.output, outputs, strict=True):
        if not spec.HasField("type"):
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            spec.CopyFrom(helper.make_tensor_value_info(spec.name, kind, values.shape))
    assert all(np.isfinite(values).all() for values in outputs), f"{name}: not finite"
    onnx_files.save(model, OUT / f"{name}.onnx")
    tensors = {f"in.{index}": values for index, values in enumerate(inputs)}
    tensors |= {f"out.{index}": values for index, values in enumerate(outputs)}
    onnx_files.save_tensors(tensors, OUT / f"{name}.safetensors")
    largest = max(np.abs(values).max() for values in outputs)
    used = sorted({node.op_type for node in model.graph.node})
    opset = model.opset_import[0].version
    print(f"{name}: opset {opset}, largest output {largest:.2f}: {' '.join(used)}")


def linear(opset):
    m = Operators("linear", opset)
    x, row = m.input("x", (3, 5)), m.input("stack", (2, 3, 5))
    m.output("Gemm", [x, m.weight(5, 4), m.weight(4)])
    m.output("Gemm", [x, m.weight(4, 5), m.weight(1, 4)], transB=1, alpha=0.5, beta=2.0)
    m.output("Gemm", [x, m.weight(3, 2)], transA=1)
    m.output("MatMul", [x, m.weight(5, 4)])
    m.output("MatMul", [row, m.weight(5, 2)])
    m.output("MatMul", [row, m.weight(2, 5, 3)])
    m.output("MatMul", [m.weight(4, 3), x])
    m.output("MatMul", [row, m.node("Transpose", [row], perm=[0, 2, 1])])
    m.output("MatMul", [row, m.weight(5)])
    if opset >= 12:
        m.output("Einsum", [row, row], equation="bid,bjd->bij")
        m.output("Einsum", [x, m.weight(5, 4)], equation="ik,kj->ij")
        m.output("Einsum", [row, m.weight(5, 4)], equation="bik,kj->bij")
    m.save()


def convolution(opset):
    m = Operators("convolution", opset)
    image, sound = m.input("image", (2, 4, 7, 6)), m.input("sound", (2, 4, 11))
    m.output("Conv", [image, m.weight(3, 4, 3, 3, scale=0.3), m.weight(3)], pads=[1, 1, 1, 1])
    m.output("Conv", [image, m.weight(3, 4, 2, 3, scale=0.3)], strides=[2, 1], pads=[0, 1, 1, 2])
    m.output("Conv", [image, m.weight(2, 4, 3, 2, scale=0.3)], dilations=[2, 3])
    m.output("Conv", [image, m.weight(6, 2, 3, 3, scale=0.3), m.weight(6)], group=2)
    m.output("Conv", [image, m.weight(4, 1, 3, 3, scale=0.3)], group=4, strides=[2, 2])
    m.output("Conv", [image, m.weight(2, 4, 3, 3, scale=0.3)], auto_pad="SAME_UPPER",
             strides=[2, 2])
    m.output("Conv", [image, m.weight(2, 4, 2, 2, scale=0.3)], auto_pad="SAME_LOWER")
    m.output("Conv", [image, m.weight(2, 4, 2, 2, scale=0.3)], auto_pad="VALID")
    m.output("Conv", [sound, m.weight(3, 4, 3, scale=0.3), m.weight(3)], strides=[2],
             pads=[1, 1])
    m.output("Conv", [sound, m.weight(4, 2, 3, scale=0.3)], dilations=[2], group=2)
    m.output("ConvTranspose", [image, m.weight(4, 3, 3, 3, scale=0.3), m.weight(3)],
             strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    m.output("ConvTranspose", [image, m.weight(4, 2, 2, 2, scale=0.3)], group=2)
    m.output("ConvTranspose", [image, m.weight(4, 1, 3, 2, scale=0.3)], dilations=[2, 1])
    m.output("ConvTranspose", [sound, m.weight(4, 2, 4, scale=0.3)], strides=[3], pads=[1, 0])
    m.save()


def pooling(opset):
    m = Operators("pooling", opset)
    image, sound = m.input("image", (2, 3, 7, 6)), m.input("sound", (2, 3, 9))
    m.output("MaxPool", [image], kernel_shape=[2, 2], strides=[2, 2])
    m.output("MaxPool", [image], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    m.output("MaxPool", [image], kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)
    m.output("MaxPool", [image], kernel_shape=[2, 2], dilations=[2, 2])
    m.output("MaxPool", [image], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    m.output("MaxPool", [sound], kernel_shape=[3], strides=[3])
    m.output("AveragePool", [image], kernel_shape=[2, 3], strides=[2, 1])
    m.output("AveragePool", [image], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    m.output("AveragePool", [image], kernel_shape=[3, 3], pads=[1, 1, 1, 1],
             count_include_pad=1, strides=[2, 2])
    m.output("AveragePool", [image], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER")
    m.output("AveragePool", [sound], kernel_shape=[4], strides=[2])
    m.output("GlobalAveragePool", [image])
    m.output("GlobalMaxPool", [image])
    m.output("GlobalAveragePool", [sound])
    m.save()


def normalisation(opset):
    m = Operators("normalisation", opset)
    image, rows = m.input("image", (2, 5, 4, 3)), m.input("rows", (3, 8))
    positive = np.abs(m.random.standard_normal(5)).astype(np.float32) + 0.5
    statistics = [m.weight(5), m.weight(5), m.weight(5), m.constant(positive)]
    m.output("BatchNormalization", [image, *statistics], epsilon=1e-4)
    kernel = m.weight(5, 5, 1, 1, scale=0.4)
    m.output("BatchNormalization", [m.node("Conv", [image, kernel]), *statistics])
    dense = m.node("Gemm", [rows, m.weight(8, 5, scale=0.4), m.weight(5)])
    m.output("BatchNormalization", [dense, *statistics])
    m.output("LRN", [image], size=3, alpha=0.3, beta=0.75, bias=1.0)
    m.output("LRN", [image], size=5)
    m.output("LRN", [image], size=7, alpha=0.1, beta=0.5, bias=2.0)
    if opset >= 17:
        m.output("LayerNormalization", [rows, m.weight(8), m.weight(8)], axis=-1)
        m.output("LayerNormalization", [image, m.weight(4, 3)], axis=2, epsilon=1e-3)
    if opset < 12:
        m.output("Dropout", [rows], ratio=0.3)
    else:
        m.output("Dropout", [rows, m.constant(np.float32(0.3))])
    m.output("Identity", [rows])
    m.save()


def activations(opset):
    m = Operators("activations", opset)
    x = m.input("x", (4, 3, 2), -4, 4)
    for operator in ["Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Selu"]:
        m.output(operator, [x])
    m.output("LeakyRelu", [x])
    m.output("LeakyRelu", [x], alpha=0.2)
    m.output("Elu", [x])
    m.output("Elu", [x], alpha=0.5)
    m.output("PRelu", [x, m.weight(3, 1, scale=0.3)])
    m.output("HardSigmoid", [x])
    m.output("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
    low, high = m.constant(np.float32(-0.5)), m.constant(np.float32(1.5))
    m.output("Clip", [x, low, high])
    m.output("Clip", [x, "", high])
    m.output("Clip", [x, low])
    m.output("Softmax", [x])
    m.output("Softmax", [x], axis=1)
    m.output("LogSoftmax", [x], axis=-1)
    m.output("LogSoftmax", [x], axis=0)
    if opset >= 12:
        m.output("Celu", [x], alpha=0.7)
    if opset >= 14:
        m.output("HardSwish", [x])
    if opset >= 18:
        m.output("Mish", [x])
    if opset >= 20:
        m.output("Gelu", [x])
        m.output("Gelu", [x], approximate="tanh")
    m.save()


def elementwise(opset):
    m = Operators("elementwise", opset)
    x, y = m.input("x", (2, 3, 4), -3, 3), m.input("y", (3, 1), 0.5, 4)
    half = m.constant(np.float32(0.5))
    for operator in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum"]:
        m.output(operator, [x, y])
    for operator in ["Add", "Sub", "Mul", "Div"]:
        m.output(operator, [x, half])
    m.output("Sub", [half, x])
    m.output("Div", [half, y])
    m.output("Max", [x, y, half])
    for operator in ["Neg", "Abs", "Exp", "Sin", "Cos", "Sign", "Ceil", "Floor"]:
        m.output(operator, [x])
    for operator in ["Sqrt", "Log", "Reciprocal"]:
        m.output(operator, [y])
    for power in [2.0, 3.0]:
        m.output("Pow", [x, m.constant(np.float32(power))])
    for power in [0.5, -0.5, -1.0, 0.25, 0.75, -0.75, 1.5, 0.6, -1.3]:
        m.output("Pow", [y, m.constant(np.float32(power))])
    m.save()


def comparisons(opset):
    m = Operators("comparisons", opset)
    grid = np.arange(-6, 6).reshape(3, 4) / 4
    x = m.given("x", m.random.permutation(grid.ravel()).reshape(3, 4))
    y = m.given("y", m.random.permutation(grid.ravel()).reshape(3, 4))
    level = m.constant(np.float32(0.1))
    m.float_output("Less", [x, y])
    m.float_output("Greater", [x, level])
    m.float_output("Equal", [x, y])
    if opset >= 12:
        m.float_output("LessOrEqual", [x, y])
        m.float_output("GreaterOrEqual", [x, y])
    less, above = m.node("Less", [x, y]), m.node("Greater", [x, level])
    m.float_output("And", [less, above])
    m.float_output("Or", [less, above])
    m.float_output("Xor", [less, above])
    m.float_output("Not", [less])
    m.output("Where", [less, x, y])
    m.output("Where", [above, x, m.constant(np.float32(-1.0))])
    mask = m.constant(np.array([[True, False, True, False]]))
    m.output("Where", [mask, x, y])
    everywhere = m.constant(np.ones((2, 1, 1), bool))
    m.output("Where", [everywhere, x, y])
    m.output("Where", [m.node("Greater", [m.weight(3, 4), level]), x, y])
    m.output("Where", [m.node("IsNaN", [x]), y, x])
    holes = m.constant(np.array([[0, 1, 0, 2]], np.float32))
    m.output("Where", [m.node("IsNaN", [m.node("Div", [holes, holes])]), x, y])
    m.float_output("ArgMax", [x], axis=1)
    m.float_output("ArgMax", [x], axis=0, keepdims=0)
    m.float_output("ArgMin", [x], axis=-1)
    values, index = m.node("TopK", [x, m.constant(np.array([1]))], count=2, axis=-1)
    m.output("Identity", [values])
    m.output("Cast", [index], to=TensorProto.FLOAT)
    values, index = m.node("TopK", [x, m.constant(np.array([1]))], count=2, axis=0, largest=0)
    m.output("Identity", [values])
    m.save()


def reductions(opset):
    m = Operators("reductions", opset)
    x = m.input("x", (2, 3, 4))
    operators = ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
                 "ReduceSumSquare", "ReduceLogSumExp", "ReduceSum"]
    for operator in operators:
        by_input = opset >= 18 or (opset >= 13 and operator == "ReduceSum")
        for axes, keepdims in [([1], 1), ([0, -1], 0)]:
            if by_input:
                m.output(operator, [x, m.constant(np.array(axes))], keepdims=keepdims)
            else:
                m.output(operator, [x], axes=axes, keepdims=keepdims)
        m.output(operator, [x], keepdims=0)
    m.save()


def shapes(opset):
    m = Operators("shapes", opset)
    x, y = m.input("x", (2, 3, 4)), m.input("y", (2, 1, 4))
    parts = m.node("Flatten", [y])

    def ints(*values):
        return m.constant(np.array(values, np.int64))

    m.output("Reshape", [x, ints(0, -1)])
    m.output("Reshape", [x, ints(4, 3, 2)])
    m.output("Transpose", [x], perm=[2, 0, 1])
    m.output("Transpose", [x])
    m.output("Concat", [x, y], axis=1)
    m.output("Concat", [x, x, x], axis=-1)
    m.output("Flatten", [x])
    m.output("Flatten", [x], axis=2)
    m.output("Slice", [x, ints(1), ints(4), ints(2), ints(2)])
    m.output("Slice", [x, ints(-1, 0), ints(-4, 2), ints(1, 0), ints(-1, 1)])
    m.output("Slice", [x, ints(0, 1), ints(1, 1 << 40)])
    m.output("Gather", [x, ints(2, 0, -1)], axis=2)
    m.output("Gather", [x, m.constant(np.int64(1))], axis=1)
    m.output("Gather", [x, m.constant(np.array([[0, 1], [1, 0]]))])
    rows = m.constant(np.array([[[1, -1, 0], [0, 2, 2]]]))
    m.output("GatherElements", [x, rows], axis=1)
    m.output("GatherElements", [x, m.constant(np.array([[[3], [0], [-2]]] * 2))], axis=2)
    m.output("GatherElements", [x, m.constant(np.arange(48).reshape(4, 3, 4) % 2)])
    pairs = np.array([[[0, 2], [1, 1]], [[-1, 0], [1, -1]]])
    m.output("ScatterElements", [x, rows, m.constant(np.float32([[[5, 6, 7], [1, 2, 3]]]))], axis=2)
    m.output("ScatterElements", [x, m.constant(np.zeros((1, 1, 4), np.int64)), m.weight(1, 1, 4)])
    if opset >= 12:
        m.output("GatherND", [x, m.constant(pairs)])
        m.output("GatherND", [x, m.constant(pairs[..., :1])])
        m.output("GatherND", [x, m.constant(pairs[..., 1:])], batch_dims=1)
        whole = np.stack(np.meshgrid([0, 1], [2, 0], indexing="ij"), -1)
        m.output("GatherND", [x, m.constant(whole)])
    m.output("ScatterND", [x, m.constant(pairs[0]), parts])
    m.output("ScatterND", [x, m.constant(pairs[0][:, :1]), x])
    blank = m.node("ConstantOfShape", [ints(3, 2)])
    last_first = m.constant(np.array([[2], [0]]))
    stripes = m.node("ScatterND", [blank, last_first, m.constant(np.float32([[1, 2], [3, 4]]))])
    m.output("MatMul", [m.node("Transpose", [x], perm=[0, 2, 1]), stripes])
    m.output("CumSum", [x, m.constant(np.int64(1))])
    m.output("CumSum", [x, m.constant(np.int64(-1))], exclusive=1)
    m.output("CumSum", [x, m.constant(np.int32(0))], reverse=1, exclusive=1)
    m.output("Pad", [x, ints(0, 1, 0, 0, 0, 2), m.constant(np.float32(0.25))])
    m.output("Pad", [x, ints(0, 0, 1, 0, 0, 2)], mode="reflect")
    m.output("Pad", [x, ints(0, 1, 1, 0, 0, 2)], mode="edge")
    if opset >= 18:
        m.output("Pad", [x, ints(1, 0, 0, 2), "", ints(2, 0)])
    m.output("Expand", [y, ints(2, 3, 4)])
    m.output("Expand", [y, ints(2, 1, 1, 1)])
    m.output("Tile", [y, ints(1, 2, 1)])
    if opset >= 14:
        m.output("Trilu", [x], upper=0)
        m.output("Trilu", [x, m.constant(np.int64(-1))])
        m.output("Mul", [x, m.node("Trilu", [m.weight(3, 4), m.constant(np.int64(1))])])
    by_input = opset >= 13
    if by_input:
        m.output("Squeeze", [y, ints(1)])
        m.output("Squeeze", [y])
        m.output("Unsqueeze", [x, ints(0, -1)])
        m.output("Split", [x, ints(1, 3)], count=2, axis=2)
    else:
        m.output("Squeeze", [y], axes=[1])
        m.output("Squeeze", [y])
        m.output("Unsqueeze", [x], axes=[0, 4])
        m.output("Split", [x], count=2, axis=2, split=[1, 3])
    if opset >= 18:
        m.output("Split", [x], count=2, axis=-1, num_outputs=2)
    else:
        m.output("Split", [x], count=2, axis=-1)
    size = m.node("Gather", [m.node("Shape", [x]), m.constant(np.int64(0))])
    size = m.node("Unsqueeze", [size, ints(0)] if by_input else [size],
                  **({} if by_input else {"axes": [0]}))
    m.output("Reshape", [x, m.node("Concat", [size, ints(-1)], axis=0)])
    zeros = m.node("ConstantOfShape", [m.node("Shape", [x])])
    m.output("Add", [x, zeros])
    ones = m.node("ConstantOfShape", [ints(3, 1)],
                  value=helper.make_tensor("value", TensorProto.FLOAT, [1], [1.5]))
    m.output("Mul", [x, ones])
    count = m.node("Cast", [m.node("Shape", [x])], to=TensorProto.FLOAT)
    last = m.node("Slice", [count, ints(2), ints(3)])
    m.output("Div", [x, m.node("Sqrt", [last])])
    span = m.node("Range", [m.constant(np.int64(0)), m.constant(np.int64(4)),
                            m.constant(np.int64(1))])
    m.output("Add", [x, m.node("Cast", [span], to=TensorProto.FLOAT)])
    two = m.node("Constant", [], value=helper.make_tensor("v", TensorProto.FLOAT, [], [2.0]))
    m.output("Mul", [x, two])
    if opset >= 12:
        m.output("Mul", [x, m.node("Constant", [], value_float=0.75)])
        m.output("Reshape", [x, m.node("Constant", [], value_ints=[6, 4])])
    m.save()


def embedding(opset):
    """Rows of a table picked by a secret index: an integer input."""
    random = np.random.default_rng(7)
    table = random.standard_normal((9, 6)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "tokens"], ["rows"], name="Gather_0")],
        "embedding",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, (2, 5))],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, (2, 5, 6))],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    write(f"embedding-opset{opset}", model, [random.integers(0, 9, (2, 5))])


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in [*OUT.glob("*.onnx"), *OUT.glob("*.safetensors")]:
        old.unlink()
    for build in [linear, convolution, pooling, normalisation, activations, elementwise,
                  comparisons, reductions, shapes]:
        for opset in OPSETS[build.__name__]:
            build(opset)
    embedding(17)
    for name, model, inputs in small_nets.exports():
        write(name, model, inputs)
    total = sum(file.stat().st_size for file in OUT.iterdir())
    print(f"{total} bytes in all")
    assert total < MAX_BYTES, "the files in the repository stay below a megabyte"


# Each operator's oldest form, each form in which it changed, and the newest.
OPSETS = {
    "linear": [11, 21],
    "convolution": [11, 21],
    "pooling": [11, 19],
    "normalisation": [11, 14, 21],
    "activations": [11, 13, 20],
    "elementwise": [11, 21],
    "comparisons": [11, 16],
    "reductions": [11, 13, 18],
    "shapes": [11, 13, 18, 21],
}


if __name__ == "__main__":
    main()

"""Writes ONNX models: only the part of the format that this package itself imports."""

import struct

import numpy as np

_FLOAT, _INT64, _BOOL, _DOUBLE = 1, 7, 9, 11
_TYPES = {np.dtype(np.float32): _FLOAT, np.dtype(np.int64): _INT64, np.dtype(bool): _BOOL, np.dtype(np.float64): _DOUBLE}

#: The operator set whose nodes are written.
OPSET = 18


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field, value):
    return _varint(field << 3) + _varint(value)


def _bytes(field, value):
    value = value.encode() if isinstance(value, str) else bytes(value)
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field, value):
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _attribute(name, value):
    if isinstance(value, str):
        return _bytes(1, name) + _bytes(4, value) + _number(20, 3)
    # NumPy's float64 is one of Python's floats too.
    if isinstance(value, (np.ndarray, np.floating)):
        return _bytes(1, name) + _bytes(5, _tensor("", np.asarray(value))) + _number(20, 4)
    if isinstance(value, float):
        return _bytes(1, name) + _float(2, value) + _number(20, 1)
    if isinstance(value, (int, np.integer)):
        return _bytes(1, name) + _number(3, int(value)) + _number(20, 2)
    return _bytes(1, name) + b"".join(_number(8, int(v)) for v in value) + _number(20, 7)


def _tensor(name, array):
    array = np.asarray(array)
    if array.dtype not in _TYPES:
        kind = np.int64 if array.dtype.kind in "iu" else np.float32
        array = array.astype(kind)
    dims = b"".join(_number(1, n) for n in array.shape)
    return dims + _number(2, _TYPES[array.dtype]) + _bytes(8, name) + _bytes(9, np.asarray(array, order="C").tobytes())


def _value(name, shape, integer):
    dims = b"".join(_bytes(1, _bytes(2, d) if isinstance(d, str) else _number(1, d)) for d in shape)
    tensor = _number(1, _INT64 if integer else _FLOAT) + _bytes(2, dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor))


class Writer:
    """A model that grows node by node."""

    def __init__(self):
        self._nodes, self._constants, self._inputs, self._outputs = [], [], [], []
        self._count = 0
        self._known = {}

    def input(self, name, shape, integer):
        """An input; a text in its shape is a dimension that is open."""
        self._inputs.append(_value(name, shape, integer))

    def output(self, name):
        self._outputs.append(_bytes(1, name))

    def constant(self, array, name=None):
        """A constant's name; equal small ones are one."""
        array = np.asarray(array)
        key = (array.shape, array.dtype.str, array.tobytes()) if name is None and array.size < 64 else None
        if key in self._known:
            return self._known[key]
        if name is None:
            self._count += 1
            name = f"constant {self._count}"
        self._constants.append(_tensor(name, array))
        if key is not None:
            self._known[key] = name
        return name

    def node(self, operator, inputs, outputs=None, **attributes):
        """A node; returns the name of its result, or of its results if it is given a list."""
        if outputs is None:
            self._count += 1
            outputs = f"{operator} {self._count}"
        names = [outputs] if isinstance(outputs, str) else outputs
        body = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in names)
        body += _bytes(3, names[0]) + _bytes(4, operator)
        body += b"".join(_bytes(5, _attribute(k, v)) for k, v in attributes.items() if v is not None)
        self._nodes.append(body)
        return outputs

    def finish(self):
        """The file."""
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, "model")
        graph += b"".join(_bytes(5, tensor) for tensor in self._constants)
        graph += b"".join(_bytes(11, value) for value in self._inputs)
        graph += b"".join(_bytes(12, value) for value in self._outputs)
        return _number(1, 8) + _bytes(7, graph) + _bytes(8, _number(2, OPSET))

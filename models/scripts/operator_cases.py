"""Writes ONNX's own operator tests, of the package `onnx`, as one file that the importer's tests read.

    python operator_cases.py cases.gz            all of them
    python operator_cases.py cases.gz --shipped  the first two small ones of each operator

The file is a gzipped protocol buffer; `models/src/onnx/tests/operators.rs` declares its messages.
"""

import argparse
import collections
import gzip
import struct
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

# The largest case that is shipped, in bytes, and how many of one operator.
LARGEST = 2500
OF_EACH = 2

TENSOR, SEQUENCE, NOTHING = 0, 1, 2


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, payload):
    """A field whose length is written: text, bytes or a message."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def tensor(value):
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString()
    return numpy_helper.from_array(np.asarray(value)).SerializeToString()


def given(value):
    """A value that an operator takes or gives."""
    if value is None:
        return varint(2 << 3) + varint(NOTHING)
    if isinstance(value, (list, tuple)):
        return b"".join(field(1, tensor(v)) for v in value) + varint(2 << 3) + varint(SEQUENCE)
    return field(1, tensor(value))


def case(test):
    inputs, outputs = test.data_sets[0]
    parts = [field(1, test.name.encode()), field(2, test.model.SerializeToString())]
    parts += [field(3, given(value)) for value in inputs]
    parts += [field(4, given(value)) for value in outputs]
    parts += [varint(5 << 3 | 5) + struct.pack("<f", test.rtol)]
    return b"".join(parts)


def shipped(tests):
    """The first small ones of each operator that are not another operator's written-out form."""
    counts = collections.Counter()
    for test, message in tests:
        operators = {node.op_type for node in test.model.graph.node}
        if "_expanded" in test.name or len(operators) != 1 or len(message) > LARGEST:
            continue
        (operator,) = operators
        counts[operator] += 1
        if counts[operator] <= OF_EACH:
            yield test, message


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--shipped", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    tests = [(test, case(test)) for test in load_model_tests(kind="node")]
    if options.shipped:
        tests = shipped(tests)
    whole = b"".join(field(1, message) for _, message in tests)
    with open(options.file, "wb") as file:
        file.write(gzip.compress(whole, mtime=0))


if __name__ == "__main__":
    main()

"""Puts ONNX's own operator tests at three servers and infers each, with the guard on.

    python served_operators.py path/to/trefoil folder [--only TEXT]

A case may be right, be refused, or end in an error. The inputs that are not computed on are the model's numbers, as in
`models/src/onnx/tests/operators.rs`. Prints the counts, writes a line for each case to `folder/served.txt`, and fails
where a number is wrong or fewer are right than LEAST.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time
import warnings

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

# The least of all cases that are right in some form; only ever raised.
LEAST = 1_538

# How far a result may be off: a part of the wanted number, and a little more.
PART, MORE = 2e-3, 4e-3

# Bits of a number of a type, the leading one included, where they are few.
FEW_BITS = {"float16": 11, "bfloat16": 8}

FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}

# The inputs that are computed on, in the order in which they are tried.
FORMS = ["everything", "reals", "first"]

# The commands that run at once.
AT_ONCE = 2


def array(value):
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    return np.asarray(value)


def element_type(value):
    if isinstance(value, onnx.TensorProto):
        return value.data_type
    return helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)


def in_form(test, form):
    """The model whose numbers are the inputs that are not computed on, and the others by name; None if there are none."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    graph = model.graph
    infos = list(graph.input)
    del graph.input[:]
    computed, made = {}, []
    for at, (info, value) in enumerate(zip(infos, test.data_sets[0][0])):
        if value is None:
            made.append(helper.make_node("Optional", [], [info.name]))
            continue
        several = isinstance(value, (list, tuple))
        names = [f"{info.name}.{k}" for k in range(len(value))] if several else [info.name]
        if several:
            made.append(helper.make_node("SequenceConstruct", names, [info.name]))
        for name, tensor in zip(names, value if several else [value]):
            kind, numbers = element_type(tensor), array(tensor)
            if form == "everything" or form == "reals" and kind in FLOATS or form == "first" and at == 0:
                graph.input.append(helper.make_tensor_value_info(name, kind, numbers.shape))
                computed[name] = numbers
            else:
                graph.initializer.append(numpy_helper.from_array(numbers, name))
    nodes = made + list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    return (model, computed) if computed else None


def wrong(test, results):
    """How results differ from the wanted ones, if they do."""
    wanted = test.data_sets[0][1]
    rounds = any(n.op_type == "Round" or n.op_type.startswith(("Q", "Dyn")) for n in test.model.graph.node)
    wanted = [tensor for value in wanted for tensor in (value if isinstance(value, (list, tuple)) else [value])]
    if len(wanted) != len(results):
        return f"{len(results)} results for {len(wanted)}"
    for at, (tensor, result) in enumerate(zip(wanted, results)):
        exact = array(tensor)
        # Types of few bits are NumPy's own only by name.
        whole = exact.dtype.kind in "biu" or exact.dtype.name.startswith(("int", "uint"))
        exact = exact.astype(np.float64)
        if any(n.op_type == "NonMaxSuppression" for n in test.model.graph.node):
            # Rows of -1 stand for boxes that are not there.
            result = result.reshape(-1, 3)
            result = result[result[:, 0] >= 0]
        if exact.size != result.size:
            return f"result {at}: {result.shape} for {exact.shape}"
        result = result.reshape(exact.shape).astype(np.float64)
        part = max(PART, 2.0 ** (2 - FEW_BITS.get(str(array(tensor).dtype), 24)))
        bound = float(rounds) if whole else MORE + part * np.abs(exact)
        off = ~((result == exact) | (np.abs(result - exact) <= bound))
        if off.any():
            place = np.unravel_index(np.argmax(off), off.shape)
            return f"result {at}: {result[place]} for {exact[place]}"
    return None


class Served:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.call(["cluster", "init", str(folder / "cluster")], check=True)
        self.servers = subprocess.Popen(
            [program, "cluster", "up", str(folder / "cluster")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client = ["--config", str(folder / "cluster/client-client/client.toml")]
        for _ in range(600):
            if self.call([*self.client, "ping", "--count", "1"]).returncode == 0:
                return
            time.sleep(0.1)
        self.servers.terminate()
        raise SystemExit("the servers do not answer")

    def call(self, arguments, **options):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=600, **options)

    def outcome(self, number, test, form):
        made = in_form(test, form)
        if made is None:
            return "refused", "nothing is computed on"
        model, inputs = made
        folder = self.folder / f"case-{number}"
        folder.mkdir(exist_ok=True)
        file, name = folder / "model.onnx", f"case-{number}"
        file.write_bytes(model.SerializeToString())
        put = self.call([*self.client, "--json", "model", "put", name, str(file), "--replace", "--numbers"])
        if put.returncode:
            return ("refused" if put.returncode in (2, 3) else "failed"), put.stderr.strip()
        arguments = [*self.client, "infer", "--model", name]
        for k, (input_name, numbers) in enumerate(inputs.items()):
            path = folder / f"input-{k}.npy"
            np.save(path, numbers.astype(np.float64) if numbers.dtype.kind in "fV" else numbers.astype(np.int64))
            arguments += ["--input", f"{input_name}={path}"]
        files = []
        for k, output in enumerate(json.loads(put.stdout)["about"]["outputs"]):
            files.append(folder / f"output-{k}.npy")
            arguments += ["--output", f"{output['name']}={files[-1]}"]
        infer = self.call(arguments)
        self.call([*self.client, "model", "remove", name])
        if infer.returncode:
            return "error", infer.stderr.strip()
        reason = wrong(test, [np.load(path) for path in files])
        return ("wrong", reason) if reason else ("right", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    tests = [test for test in load_model_tests(kind="node") if options.only in test.name]
    served = Served(options.program, options.folder)
    counts, lines = {}, []

    def tried(numbered):
        number, test = numbered
        outcomes = []
        for form in FORMS:
            outcomes.append((form, *served.outcome(number, test, form)))
            if outcomes[-1][1] in ("right", "wrong"):
                break
        return test, outcomes

    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for test, outcomes in pool.map(tried, enumerate(tests)):
                lines += [f"{test.name} {form}: {outcome} {reason}" for form, outcome, reason in outcomes]
                last = outcomes[-1][1]
                counts[last] = counts.get(last, 0) + 1
                if last == "wrong":
                    print(lines[-1], file=sys.stderr)
    finally:
        served.servers.terminate()
        served.servers.wait()
        (options.folder / "served.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(tests)} cases at three servers: " + ", ".join(f"{count} {last}" for last, count in sorted(counts.items())))
    if counts.get("wrong") or counts.get("failed") or not options.only and counts.get("right", 0) < LEAST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""Writing ONNX files that hold the graph and nothing of the machine that made them."""

import numpy as np
import onnx
from safetensors.numpy import save_file


def strip(graph):
    """Removes notes of the exporter (source lines, stack traces) from a graph and below."""
    for part in [graph, *graph.node, *graph.value_info, *graph.input, *graph.output,
                 *graph.initializer]:
        part.doc_string = ""
        del part.metadata_props[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                strip(attribute.g)
            for inner in attribute.graphs:
                strip(inner)


def save(model, path):
    """Checks a model, removes notes and shape annotations inside it, and writes it."""
    strip(model.graph)
    for function in model.functions:
        function.doc_string = ""
        del function.metadata_props[:]
        for node in function.node:
            node.doc_string = ""
            del node.metadata_props[:]
    del model.metadata_props[:]
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def save_tensors(tensors, path):
    """Writes named arrays as one safetensors file of f32."""
    save_file({name: np.ascontiguousarray(x, np.float32) for name, x in tensors.items()}, path)

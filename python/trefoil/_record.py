"""Networks of PyTorch as lists of ATen calls: made by ``torch.export``, written down without PyTorch."""

import json
import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from ._errors import InputError

#: Composite operators that are translated as they are, rather than taken apart first.
_WHOLE = (
    "linear", "scaled_dot_product_attention", "silu", "hardswish", "hardsigmoid", "mish", "softplus", "instance_norm",
    "rms_norm", "logsumexp", "_prelu_kernel", "celu", "upsample_bicubic2d",
)


@dataclass(frozen=True)
class Ref:
    """The value of a call, an input or a constant, by its name."""

    name: str


@dataclass(frozen=True)
class Batch:
    """An integer that is this many times the batch."""

    times: int


@dataclass(frozen=True)
class Value:
    """The known properties of a value: dimensions and kind, ``f``loat, ``i``nteger or truth value (``b``)."""

    shape: tuple
    kind: str


@dataclass(frozen=True)
class Call:
    """``name = target(*args, **kwargs)``; ``values`` describes its results."""

    name: str
    target: str
    args: tuple
    kwargs: dict
    values: tuple


@dataclass
class Recorded:
    """A network. ``batch`` is true if its first dimensions are open."""

    inputs: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    outputs: dict = field(default_factory=dict)
    batch: bool = False
    #: Constants that training changes: parameters that require a gradient.
    parameters: tuple = ()
    #: Layers that PyTorch trains differently than a plan would, each with a remedy.
    unlike: tuple = ()

    def dump(self, drop=()):
        """The record as text; of the constants in ``drop`` the shapes alone."""
        constants = {
            name: {"shape": list(a.shape)} if name in drop else {"shape": list(a.shape), "dtype": a.dtype.str, "values": a.ravel().tolist()}
            for name, a in self.constants.items()
        }
        whole = {
            "inputs": {n: _plain(v) for n, v in self.inputs.items()},
            "constants": constants,
            "calls": [[c.name, c.target, _plain(c.args), _plain(c.kwargs), [_plain(v) for v in c.values]] for c in self.calls],
            "outputs": {n: _plain(v) for n, v in self.outputs.items()},
            "batch": self.batch,
            "parameters": list(self.parameters),
            "unlike": list(self.unlike),
        }
        return json.dumps(whole)

    @classmethod
    def load(cls, text, fill):
        """A record from its text. ``fill(name, shape)`` makes the constants that it lacks."""
        whole = json.loads(text)
        constants = {}
        for name, c in whole["constants"].items():
            if "values" in c:
                constants[name] = np.array(c["values"], dtype=c["dtype"]).reshape(c["shape"])
            else:
                constants[name] = fill(name, tuple(c["shape"]))
        calls = [
            Call(name, target, tuple(_back(args)), _back(kwargs), tuple(_back(v) for v in values))
            for name, target, args, kwargs, values in whole["calls"]
        ]
        inputs = {n: _back(v) for n, v in whole["inputs"].items()}
        outputs = {n: _back(v) for n, v in whole["outputs"].items()}
        return cls(inputs, constants, calls, outputs, whole["batch"], tuple(whole["parameters"]), tuple(whole.get("unlike", ())))


def _plain(x):
    if isinstance(x, Ref):
        return {"ref": x.name}
    if isinstance(x, Batch):
        return {"batch": x.times}
    if isinstance(x, Value):
        return {"value": [_plain(n) for n in x.shape], "kind": x.kind}
    if isinstance(x, (list, tuple)):
        return [_plain(v) for v in x]
    if isinstance(x, dict):
        return {"dict": {k: _plain(v) for k, v in x.items()}}
    return x


def _back(x):
    if isinstance(x, list):
        return [_back(v) for v in x]
    if not isinstance(x, dict):
        return x
    if "ref" in x:
        return Ref(x["ref"])
    if "batch" in x:
        return Batch(x["batch"])
    if "value" in x:
        return Value(tuple(_back(n) for n in x["value"]), x["kind"])
    return {k: _back(v) for k, v in x["dict"].items()}


def record(module, example, outputs=None):
    """Export a module, with an open batch if it fits several.

    Parameters
    ----------
    module : torch.nn.Module
    example : tensor, tuple of them, or dict of them by the forward's names
    outputs : sequence of str, optional
        Names of the results to keep; all otherwise.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"from_torch takes a torch.nn.Module; it got a {type(module).__name__}")
    arguments, named = _arguments(example)
    for x in [*arguments, *named.values()]:
        if not isinstance(x, torch.Tensor):
            raise InputError(f"an example is a tensor, a tuple of tensors, or a dict of them; one of its parts is a {type(x).__name__}")
    recorded = _recorded(torch, module, example, outputs)
    recorded.unlike = _unlike(torch.nn, module)
    return recorded


def _unlike(nn, module):
    found = []
    for name, layer in module.named_modules():
        reason = None
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            if layer.weight is None:
                reason = "a batch norm without weight and bias would keep its running statistics; make it with affine=True"
            elif layer.momentum is None:
                reason = "a batch norm that averages over all steps; give it a momentum"
            elif layer.training and not (layer.weight.requires_grad or layer.bias.requires_grad):
                reason = "a frozen batch norm keeps its running statistics; put it into evaluation mode by .eval()"
        elif isinstance(layer, nn.modules.dropout._DropoutNd) and type(layer) is not nn.Dropout and layer.p > 0:
            reason = f"{type(layer).__name__} drops more than single elements; use Dropout, or a probability of 0"
        elif any(type(part).__name__.lstrip("_") == "SpectralNorm" for part in (layer, *layer._forward_pre_hooks.values())):
            reason = "the power iteration of spectral_norm goes on in PyTorch's steps alone; use weight_norm, or remove_parametrizations"
        if reason:
            found.append(f"{name or type(layer).__name__}: {reason}")
    return tuple(found)


def _recorded(torch, module, example, outputs):
    args, kwargs = _arguments(example)
    one = _batch_of([*args, *kwargs.values()])
    if one is not None:
        # Two sizes show the dimensions that grow with the batch. Exporters treat a batch of one separately.
        try:
            two, three = (_export(torch, module, *_resized(args, kwargs, n)) for n in (2, 3))
            return _kept(_folded(*_merged(two, three, 2, 3)), outputs)
        except _Fixed:
            pass
        except InputError:
            raise
        except Exception:  # noqa: BLE001 - whatever the module raises for a batch that it does not take
            pass
    return _kept(_folded(*_export(torch, module, args, kwargs)), outputs)


class _Fixed(Exception):
    """The network serves one batch only."""


def _torch():
    try:
        import torch
    except ImportError:
        raise InputError("from_torch needs PyTorch, which is not installed: pip install torch, or use from_onnx") from None
    if not hasattr(torch, "export") or not hasattr(torch.export, "default_decompositions"):
        raise InputError(f"from_torch needs PyTorch 2.6 or later; {torch.__version__} is installed")
    return torch


def _arguments(example):
    if isinstance(example, dict):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    return (example,), {}


def _batch_of(tensors):
    sizes = {t.shape[0] for t in tensors if hasattr(t, "shape") and len(t.shape)}
    whole = all(not hasattr(t, "shape") or len(t.shape) for t in tensors)
    return sizes.pop() if whole and len(sizes) == 1 else None


def _resized(args, kwargs, n):
    def one(t):
        return t[:1].repeat(n, *[1] * (t.dim() - 1)) if hasattr(t, "dim") else t

    return tuple(one(t) for t in args), {k: one(t) for k, t in kwargs.items()}


@contextmanager
def _exporting(torch, module):
    """Evaluation mode without caches or fused attention, as far as the module has them; put back afterwards."""
    modes = [(m, m.training) for m in module.modules()]
    config = getattr(module, "config", None)
    cached = getattr(config, "use_cache", None)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if hasattr(torch.backends, "mha"):
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        plain, kept = torch.nn.functional.dropout, _kept_dropout(torch)
        torch.nn.functional.dropout = lambda x, p=0.5, training=True, inplace=False: kept(x, p) if p else x
        stack.callback(setattr, torch.nn.functional, "dropout", plain)
        module.eval()
        if cached is not None:
            config.use_cache = False
        try:
            yield
        finally:
            if cached is not None:
                config.use_cache = cached
            for m, training in modes:
                m.training = training


def _kept_dropout(torch):
    """An operator in the place of dropout, which exporters leave out in evaluation mode: training needs to know of it."""
    if not hasattr(torch.ops.trefoil, "dropout"):
        whole = torch.library.custom_op("trefoil::dropout", lambda x, part: x.clone(), mutates_args=(), schema="(Tensor x, float part) -> Tensor")
        whole.register_fake(lambda x, part: torch.empty_like(x))
    return torch.ops.trefoil.dropout


def _export(torch, module, args, kwargs):
    with _exporting(torch, module):
        program = torch.export.export(module, args, kwargs or None, strict=False)
        table = torch.export.default_decompositions()
        for name in _WHOLE:
            packet = getattr(torch.ops.aten, name, None)
            for overload in packet.overloads() if packet is not None else ():
                table.pop(getattr(packet, overload), None)
        program = program.run_decompositions(table)
    recorder = _Recorder(torch, program)
    return recorder.recorded, recorder.known


class _Recorder:
    def __init__(self, torch, program):
        self._torch = torch
        self.recorded = Recorded()
        #: Integers and truth values that depend on nothing but shapes, by the calls that make them.
        self.known = {}
        self._tensors = {}
        self._count = 0
        signature = program.graph_signature
        kinds = torch.export.graph_signature.InputKind
        specs = {s.arg.name: s for s in signature.input_specs}
        names, parameters = {}, []
        for node in program.graph.nodes:
            if node.op != "placeholder":
                continue
            spec = specs[node.name]
            if spec.kind == kinds.USER_INPUT:
                if self._tensor(node):
                    self.recorded.inputs[node.name] = self._value(node.meta["val"])
                names[node] = Ref(node.name) if self._tensor(node) else None
                continue
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            self.recorded.constants[spec.target] = self._array(stored[spec.target])
            names[node] = Ref(spec.target)
            if not stored[spec.target].dtype.is_floating_point:
                self._tensors[node] = stored[spec.target]
            if spec.kind == kinds.PARAMETER and stored[spec.target].requires_grad:
                parameters.append(spec.target)
        results = self._graph(program.graph_module, names)
        results = [r for r in results if isinstance(r, Ref)] if isinstance(results, (list, tuple)) else [results]
        labels = self._labels(program, len(results))
        self.recorded.outputs = dict(zip(labels, results))
        self.recorded.parameters = tuple(parameters)

    def _graph(self, module, names):
        """Records the calls of a graph; returns its results."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                names[node] = getattr(module, node.target)
                if isinstance(names[node], self._torch.Tensor):
                    name = f"{node.target}.{self._count}"
                    self.recorded.constants[name] = self._array(names[node])
                    names[node] = Ref(name)
            elif node.op == "call_function":
                self._call(node, names)
            elif node.op == "output":
                return self._argument(node.args[0], names)
        raise InputError("the exported graph has no result")

    def _call(self, node, names):
        target = str(node.target)
        if "getitem" in target:
            source, index = (self._argument(a, names) for a in node.args)
            names[node] = source[index] if isinstance(source, (list, tuple)) else Ref(f"{source.name}:{index}")
            return
        if target.startswith(("wrap_with_set_grad", "wrap_with_autocast")):
            # The arguments after the submodule are its operands.
            at = next(i for i, a in enumerate(node.args) if hasattr(names.get(a) if hasattr(a, "op") else None, "graph"))
            inner = names[node.args[at]]
            values = [self._argument(a, names) for a in node.args[at + 1 :]]
            places = [n for n in inner.graph.nodes if n.op == "placeholder"]
            names[node] = self._graph(inner, dict(zip(places, values)))
            return
        target = target.replace("trefoil.dropout", "aten.dropout")
        args = tuple(self._argument(a, names) for a in node.args)
        kwargs = {k: self._argument(a, names) for k, a in node.kwargs.items()}
        self._count += 1
        # Not the exporter's name: it may depend on the batch.
        name = f"{target.split('.')[1] if '.' in target else target} {self._count}"
        value = node.meta.get("val")
        values = value if isinstance(value, (list, tuple)) else [value]
        values = tuple(self._value(v) for v in values)
        self.recorded.calls.append(Call(name, target, args, kwargs, values))
        names[node] = Ref(name)
        self._know(node, name)

    def _know(self, node, name):
        """Computes a call on known values: positions and masks, which exporters make in many steps."""
        torch, made = self._torch, node.meta.get("val")
        whole = isinstance(made, torch.Tensor) and not made.dtype.is_floating_point
        if whole and all(n in self._tensors for n in node.all_input_nodes):
            known = torch.fx.node.map_arg(node.args, lambda n: self._tensors[n])
            named = torch.fx.node.map_arg(node.kwargs, lambda n: self._tensors[n])
            self._tensors[node] = node.target(*known, **named)
            self.known[name] = self._array(self._tensors[node])

    def _argument(self, a, names):
        torch = self._torch
        if isinstance(a, torch.fx.Node):
            return names[a]
        if isinstance(a, (list, tuple)):
            return [self._argument(v, names) for v in a]
        if isinstance(a, dict):
            return {k: self._argument(v, names) for k, v in a.items()}
        if isinstance(a, torch.dtype):
            return "f" if a.is_floating_point else "b" if a == torch.bool else "i"
        if a is None or isinstance(a, (bool, int, float, str)):
            return a
        return str(a)

    def _tensor(self, node):
        return isinstance(node.meta.get("val"), self._torch.Tensor)

    def _value(self, v):
        torch = self._torch
        if not isinstance(v, torch.Tensor):
            return None
        kind = "f" if v.dtype.is_floating_point else "b" if v.dtype == torch.bool else "i"
        return Value(tuple(int(n) for n in v.shape), kind)

    def _array(self, tensor):
        tensor = tensor.detach().cpu()
        if tensor.dtype in (self._torch.float16, self._torch.bfloat16):
            tensor = tensor.float()
        return tensor.contiguous().numpy()

    def _labels(self, program, count):
        """Names of the results: those of a dictionary or a dataclass, else by number."""
        pytree = self._torch.utils._pytree
        try:
            spec = program.call_spec.out_spec
            whole = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
            pairs, _ = pytree.tree_flatten_with_path(whole)
            found = [".".join(str(getattr(k, "key", getattr(k, "idx", k))) for k in path) for path, _ in pairs]
        except Exception:  # noqa: BLE001 - a class of results that cannot be made without numbers
            found = []
        if len(found) != count or "" in found or len(set(found)) != count:
            found = ["output"] if count == 1 else [f"output.{i}" for i in range(count)]
        return [f"output.{name}" if name.isdigit() else name for name in found]


def _merged(one, two, m, n):
    """One record of two for different batches: integers that grow with it become :class:`Batch`."""
    (one, known), (two, other) = one, two
    same = (
        one.inputs.keys() == two.inputs.keys() and one.outputs.keys() == two.outputs.keys()
        and one.constants.keys() == two.constants.keys() and len(one.calls) == len(two.calls)
    )
    if not same or any(not np.array_equal(a, two.constants[k]) for k, a in one.constants.items()):
        raise _Fixed

    def merge(a, b):
        if isinstance(a, Value) and isinstance(b, Value) and a.kind == b.kind:
            return Value(tuple(merge(a.shape, b.shape)), a.kind)
        if type(a) is not type(b):
            raise _Fixed
        if isinstance(a, (list, tuple)):
            if len(a) != len(b):
                raise _Fixed
            return type(a)(merge(x, y) for x, y in zip(a, b))
        if isinstance(a, dict):
            if a.keys() != b.keys():
                raise _Fixed
            return {k: merge(v, b[k]) for k, v in a.items()}
        if a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)):
            return a
        if isinstance(a, int) and a % m == 0 and a // m * n == b:
            return Batch(a // m)
        raise _Fixed

    def call(a, b):
        if a.target != b.target:
            raise _Fixed
        return Call(a.name, a.target, merge(a.args, b.args), merge(a.kwargs, b.kwargs), merge(a.values, b.values))

    merged = Recorded(merge(one.inputs, two.inputs), one.constants, [call(a, b) for a, b in zip(one.calls, two.calls)],
                      merge(one.outputs, two.outputs), True, one.parameters)
    # Inputs begin with the batch.
    if any(v.shape[0] != Batch(1) or any(isinstance(d, Batch) for d in v.shape[1:]) for v in merged.inputs.values()):
        raise _Fixed
    # An array that is the same for every row is known from one.
    rows = {name: _row(a, other[name], m, n) for name, a in known.items()}
    return merged, {name: a for name, a in rows.items() if a is not None}


def _row(a, b, m, n):
    """The common part of two sizes of a known array: all of it, or each of its rows."""
    if a.shape == b.shape:
        return a if np.array_equal(a, b) else None
    rows = a.ndim == b.ndim and a.shape[0] == m and b.shape[0] == n and a.shape[1:] == b.shape[1:]
    return a[:1] if rows and (a == a[:1]).all() and (b == a[:1]).all() else None


#: Calls whose operands may have one row for a batch.
_BROADCAST = {
    "add", "sub", "mul", "div", "where", "masked_fill", "scaled_dot_product_attention", "eq", "ne", "lt", "le", "gt", "ge",
    "bitwise_and", "bitwise_or", "logical_and", "logical_or", "logical_not", "bitwise_not", "__and__", "__or__", "minimum", "maximum",
}


def _folded(recorded, known):
    """The record with constants for known values."""
    calls, values = [], {call.name: call.values[0] for call in recorded.calls}

    def operand(a, whole):
        if isinstance(a, (list, tuple)):
            return type(a)(operand(v, whole) for v in a)
        if not isinstance(a, Ref) or a.name not in known:
            return a
        recorded.constants[a.name] = known[a.name]
        shape = values[a.name].shape
        if not whole or shape == known[a.name].shape:
            return a
        spread = f"{a.name} spread"
        if spread not in values:
            values[spread] = Value(shape, values[a.name].kind)
            calls.append(Call(spread, "aten.expand.default", (a, list(shape)), {}, (values[spread],)))
        return Ref(spread)

    for call in recorded.calls:
        if call.name in known:
            continue
        whole = call.target.split(".")[1] not in _BROADCAST
        args = tuple(operand(a, whole) for a in call.args)
        kwargs = {k: operand(a, whole) for k, a in call.kwargs.items()}
        calls.append(Call(call.name, call.target, args, kwargs, call.values))
    recorded.outputs = {name: operand(ref, True) for name, ref in recorded.outputs.items()}
    recorded.calls = calls
    return recorded


def _kept(recorded, outputs):
    """The record without the calls that the wanted results do not need."""
    if outputs is not None:
        wanted = [outputs] if isinstance(outputs, str) else list(outputs)
        missing = [name for name in wanted if name not in recorded.outputs]
        if missing:
            raise InputError(f"there is no result {missing[0]!r}; there are {', '.join(recorded.outputs)}")
        recorded.outputs = {name: recorded.outputs[name] for name in wanted}
    used = {ref.name.split(":")[0] for ref in recorded.outputs.values()}
    calls = []
    for call in reversed(recorded.calls):
        if call.name in used:
            calls.append(call)
            used |= set(_refs([*call.args, *call.kwargs.values()]))
    recorded.calls = calls[::-1]
    recorded.constants = {k: a for k, a in recorded.constants.items() if k in used}
    recorded.parameters = tuple(p for p in recorded.parameters if p in used)
    return recorded


def _refs(args):
    for a in args:
        if isinstance(a, Ref):
            yield a.name.split(":")[0]
        elif isinstance(a, (list, tuple)):
            yield from _refs(a)

"""ATen calls as the nodes of a model file that this package imports itself."""

import numpy as np

from ._errors import InputError
from ._onnx import Writer
from ._record import Batch, Ref, Value

#: Translations by the calls' names: functions of the current translation and the call's operands.
OPS = {}

#: Keywords that say nothing about numbers.
_IGNORED = {"layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit", "generator"}


def translated(recorded):
    """The model file of a recorded network, and the names of its constants that training changes.

    Raises
    ------
    InputError
        Naming the first call without a translation.
    """
    return _Translation(recorded).finish()


def op(*names):
    """Registers a translation."""

    def register(function):
        for name in names:
            OPS[name] = function
        return function

    return register


class _Translation:
    def __init__(self, recorded):
        self._writer = Writer()
        self._recorded = recorded
        self._names, self._values, self._written = {}, {}, set()
        self._batch = None
        self._spread = {call.name: call.args[0] for call in recorded.calls if call.target.split(".")[1:2] == ["expand"]}
        #: Nodes with several results, which have separate names.
        self.count = 0
        for name, value in recorded.inputs.items():
            shape = ["batch" if isinstance(d, Batch) else d for d in value.shape]
            self._writer.input(name, shape, value.kind != "f")
            self._names[name], self._values[name] = name, value
        for name, array in recorded.constants.items():
            kind = {"f": "f", "b": "b"}.get(array.dtype.kind, "i")
            self._values[name] = Value(array.shape, kind)

    def finish(self):
        for call in self._recorded.calls:
            self._call(call)
        for name, ref in self._recorded.outputs.items():
            self._writer.node("Identity", [self.name(ref)], name)
            self._writer.output(name)
        return self._writer.finish(), tuple(name for name in self._recorded.parameters if name in self._written)

    def _call(self, call):
        _, packet, overload = [*call.target.split("."), "", ""][:3]
        if packet.startswith("_assert"):
            return
        translate = OPS.get(f"{packet}.{overload}") or OPS.get(packet)
        if translate is None or not call.target.startswith("aten."):
            raise InputError(f"`{call.name}` calls {call.target}, which has no private form yet; {len(OPS)} others of ATen have")
        self.result = call.values[0]
        try:
            made = translate(self, *call.args, **{k: v for k, v in call.kwargs.items() if k not in _IGNORED})
        except InputError as error:
            raise InputError(f"`{call.name}` ({call.target}): {error}") from None
        except TypeError as error:
            raise InputError(f"`{call.name}` ({call.target}) has arguments that are not understood: {error}") from None
        for i, (name, value) in enumerate(zip(made if isinstance(made, list) else [made], call.values)):
            ref = call.name if not isinstance(made, list) else f"{call.name}:{i}"
            self._names[ref], self._values[ref] = name, value

    # -- operands ----------------------------------------------------------------------------------

    def value(self, ref):
        return self._values[ref.name]

    def shape(self, ref):
        return list(self.value(ref).shape)

    def array(self, ref):
        """A constant's numbers, or None."""
        return self._recorded.constants.get(ref.name) if isinstance(ref, Ref) else None

    def known(self, ref):
        """The numbers of a constant, also of one that is repeated along axes of length 1, or None."""
        while isinstance(ref, Ref) and ref.name in self._spread:
            ref = self._spread[ref.name]
        return self.array(ref)

    def name(self, x):
        """The node's operand for a value or a number."""
        if not isinstance(x, Ref):
            return self.number(x)
        if x.name in self._recorded.constants:
            return self._weight(x.name)
        if x.name not in self._names:
            raise InputError(f"it takes `{x.name}`, a result that is not offered")
        return self._names[x.name]

    def _weight(self, name):
        if name not in self._written:
            self._written.add(self._writer.constant(self._recorded.constants[name], name))
        return name

    def fixed(self, array):
        """Numbers of the network's structure."""
        return self._writer.constant(array)

    def number(self, x):
        """A public number."""
        if isinstance(x, Batch):
            return self.ints([x])
        if isinstance(x, (bool, int)):
            return self._writer.constant(np.int64(x))
        return self.node("Constant", [], value=np.float64(x))

    def ints(self, values):
        """A list of integers, some of which may grow with the batch."""
        if not any(isinstance(v, Batch) for v in values):
            return self._writer.constant(np.array(values, np.int64))
        parts = [self._times(v.times) if isinstance(v, Batch) else self._writer.constant(np.array([v], np.int64)) for v in values]
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)

    def _times(self, times):
        if self._batch is None:
            first = next(iter(self._recorded.inputs))
            self._batch = self.node("Shape", [first], start=0, end=1)
        return self._batch if times == 1 else self.node("Mul", [self._batch, self._writer.constant(np.array([times], np.int64))])

    def node(self, operator, inputs, outputs=None, **attributes):
        names = [x if isinstance(x, str) else "" if x is None else self.name(x) for x in inputs]
        return self._writer.node(operator, names, outputs, **attributes)

    def shaped(self, x, shape):
        """The same numbers in another shape."""
        shape = list(shape)
        open_ = [i for i, d in enumerate(shape) if isinstance(d, Batch)]
        if len(open_) == 1:
            shape[open_[0]] = -1
        return self.node("Reshape", [x, self.ints(shape)], allowzero=1)

    def transposed(self, x, perm):
        return self.node("Transpose", [x], perm=perm)

    def like_result(self, x):
        return self.shaped(x, self.result.shape)

    def axis(self, ref, axis):
        return axis % max(1, len(self.shape(ref)))

    def real(self, x):
        """True if an operand consists of real numbers."""
        return self.value(x).kind == "f" if isinstance(x, Ref) else isinstance(x, float)

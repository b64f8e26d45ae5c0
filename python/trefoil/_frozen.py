"""Networks cut where training begins: the layers before depend on no weight that changes, so each row passes them once."""

from dataclasses import replace

import numpy as np

from ._record import Batch, Recorded, Ref


def cut(recorded, trained):
    """The recorded layers that a training leaves as they are, and those after them, whose inputs are the results of the first.

    Parameters
    ----------
    recorded : Recorded
    trained : collection of str
        Names of the weights that change.

    Returns
    -------
    tuple of Recorded, or None
        None if no weight comes before those that change, or the network serves one batch alone.
    """
    if not recorded.batch:
        return None
    made = {call.name: call for call in recorded.calls}
    operands = {call.name: [ref for ref in _refs((call.args, call.kwargs))] for call in recorded.calls}
    after = set()
    for call in recorded.calls:
        # What is dropped out differs from step to step.
        if "dropout" in call.target or any(_of(ref, made) in after or ref.name in trained for ref in operands[call.name]):
            after.add(call.name)
    # A value that is not one for each row, or is a truth value, is computed again.
    while True:
        taken = {ref.name: ref for name in after for ref in operands[name]} | {ref.name: ref for ref in recorded.outputs.values()}
        border = [ref for ref in taken.values() if _of(ref, made) is not None and _of(ref, made) not in after]
        again = [ref for ref in border if not _by_rows(_value(ref, made))]
        if not again:
            break
        after |= {_of(ref, made) for ref in again}
    before = {_of(ref, made) for ref in border}
    for call in reversed(recorded.calls):
        if call.name in before:
            before |= {_of(ref, made) for ref in operands[call.name]} - {None}
    first = _part(recorded, before, recorded.inputs, {ref.name: ref for ref in border}, made, operands, ())
    if not any(array.dtype.kind == "f" and array.size > 1 for array in first.constants.values()):
        return None
    inputs = {ref.name: _value(ref, made) for ref in border}
    inputs |= {name: value for name, value in recorded.inputs.items() if name in taken}
    return first, _part(recorded, after, inputs, recorded.outputs, made, operands, tuple(trained))


def _part(recorded, names, inputs, outputs, made, operands, parameters):
    calls = [call for call in recorded.calls if call.name in names]
    used = {ref.name for call in calls for ref in operands[call.name]} | {ref.name for ref in outputs.values()}
    constants = {name: array for name, array in recorded.constants.items() if name in used}
    inputs = {name: value for name, value in inputs.items() if name in used}
    return Recorded(inputs, constants, calls, dict(outputs), True, parameters, recorded.unlike)


def _refs(x):
    if isinstance(x, Ref):
        yield x
    elif isinstance(x, dict):
        yield from _refs(list(x.values()))
    elif isinstance(x, (list, tuple)):
        for part in x:
            yield from _refs(part)


def _of(ref, made):
    """The name of the call that a value is a result of, or None for inputs and constants."""
    name = ref.name if ref.name in made else ref.name.rpartition(":")[0]
    return name if name in made else None


def _value(ref, made):
    name = _of(ref, made)
    place = ref.name[len(name) + 1 :]
    return made[name].values[int(place) if place else 0]


def _by_rows(value):
    return value.kind == "f" and bool(value.shape) and value.shape[0] == Batch(1)


def changed(recorded, weights):
    """The same network with other numbers for some of its weights."""
    known = {name: np.asarray(values, recorded.constants[name].dtype).reshape(recorded.constants[name].shape)
             for name, values in weights.items() if name in recorded.constants}
    return replace(recorded, constants=recorded.constants | known)

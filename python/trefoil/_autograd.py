"""Gradients of expressions of secret arrays: calls on arrays that require one are recorded."""

from __future__ import annotations

import contextlib
import contextvars
import heapq
import itertools
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAUSED = contextvars.ContextVar("paused", default=False)
_NUMBERS = itertools.count()

#: Functions whose results do not change with small changes of their operands.
_FLAT = {"lt", "le", "gt", "ge", "eq", "ne", "not", "is_negative", "argmax", "argmin", "one_hot", "gaussian", "constant"}


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """A block whose results require no gradient, as ``torch.no_grad``.

    Examples
    --------
    >>> with trefoil.no_grad():
    ...     w = w - 0.1 * w.grad
    """
    token = _PAUSED.set(True)
    try:
        yield
    finally:
        _PAUSED.reset(token)


class _Node:
    """A call that results were made by."""

    __slots__ = ("number", "function", "operands", "params")

    def __init__(self, function, operands, params):
        self.number = next(_NUMBERS)
        self.function, self.operands, self.params = function, operands, params or {}


class Tape:
    """A session that remembers the calls on arrays that require a gradient, as long as their results are there."""

    def __init__(self, session):
        self._session = session
        self._nodes = weakref.WeakKeyDictionary()
        self._leaves = weakref.WeakKeyDictionary()

    def __getattr__(self, name):
        return getattr(self._session, name)

    def call(self, function, operands, params=None):
        made = self._session.call(function, operands, params)
        if function not in _FLAT:
            self._note(function, operands, params, made)
        return made

    def bound(self, handle, bound):
        made = self._session.bound(handle, bound)
        self._note("bound", [handle], {}, [made])
        return made

    def run(self, model, weights, inputs):
        made = self._session.run(model, weights, inputs)
        self._note("a model", list(inputs), {}, made)
        return made

    def _note(self, function, operands, params, made):
        if _PAUSED.get() or not any(self.follows(x) for x in operands):
            return
        if function == "relu_all":
            for x, handle in zip(operands, made):
                self._note("relu", [x], {}, [handle])
            return
        # The second result of `top1` is a place.
        made = made[:1] if function == "top1" else made
        node = _Node(function, list(operands), params)
        for handle in made:
            self._nodes[handle] = node

    def follows(self, x):
        """True if an operand needs a gradient."""
        return x in self._nodes or x in self._leaves

    def require(self, array, wanted):
        if wanted:
            self._leaves[array._handle] = weakref.ref(array)
        else:
            self._leaves.pop(array._handle, None)

    def backward(self, array, gradient):
        """Adds the gradients of ``sum(gradient * array)`` to those of all arrays that require one."""
        from ._gradients import parts

        grads, queue, handles = {}, [], {}

        def add(handle, grad):
            key = id(handle)
            if key in grads:
                grads[key] = grads[key] + grad
                return
            grads[key], handles[key] = grad, handle
            node = self._nodes.get(handle)
            heapq.heappush(queue, (-(node.number if node else -1), key))

        with no_grad():
            add(array._handle, gradient)
            while queue:
                _, key = heapq.heappop(queue)
                handle, grad = handles[key], grads[key]
                leaf = self._leaves.get(handle)
                leaf = leaf() if leaf is not None else None
                if leaf is not None:
                    leaf._grad = grad if leaf._grad is None else leaf._grad + grad
                node = self._nodes.get(handle)
                if node is None:
                    continue
                wanted = [self.follows(x) for x in node.operands]
                for x, part, asked in zip(node.operands, parts(node, array._mpc, handle, grad, wanted), wanted):
                    if asked:
                        add(x, part)

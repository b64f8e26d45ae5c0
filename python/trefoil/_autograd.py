"""Gradients of expressions of secret arrays: calls on arrays that require one are recorded."""

from __future__ import annotations

import contextlib
import contextvars
import heapq
import itertools
import weakref
from typing import TYPE_CHECKING, Any

from ._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._secret import Secret

_PAUSED = contextvars.ContextVar("paused", default=False)
_NUMBERS = itertools.count()

#: Functions whose results do not change with small changes of their operands.
_FLAT = {"lt", "le", "gt", "ge", "eq", "ne", "not", "is_negative", "argmax", "argmin", "one_hot", "gaussian", "constant",
         "argsort", "distinct", "uniform", "exponential", "laplace", "normal", "bernoulli", "weighted_index",
         "coins", "discrete_laplace", "discrete_normal",
         "bitwise", "shift_left", "shift_right"}


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


class Function:
    """A function of secret arrays that defines its gradient, as ``torch.autograd.Function`` and CrypTen's ``AutogradFunction``.

    A subclass defines two static methods, and :meth:`apply` calls it. ``forward(context, *arguments)`` returns a secret array;
    no gradient passes through what it computes. ``backward(context, grad)`` gets the gradient of that result, in its shape,
    and returns one for each argument: None for those without. The context passes values from ``forward`` to ``backward``.

    Examples
    --------
    >>> class Sign(trefoil.Function):
    ...     @staticmethod
    ...     def forward(context, x):
    ...         context.x = x
    ...         return np.sign(x).astype(float)
    ...     @staticmethod
    ...     def backward(context, grad):            # as if it were a line between -1 and 1
    ...         return grad * (abs(context.x) < 1)
    >>> y = Sign.apply(x)
    """

    @staticmethod
    def forward(*arguments: Any, **_: Any) -> Secret:
        """The result of the function; a subclass defines it.

        Parameters
        ----------
        *arguments
            The context, and the arguments of :meth:`apply`.

        Returns
        -------
        Secret
        """
        raise NotImplementedError("a trefoil.Function defines forward(context, *arguments)")

    @staticmethod
    def backward(*arguments: Any, **_: Any) -> Any:
        """The gradients by the arguments; a subclass defines it.

        Parameters
        ----------
        *arguments
            The context, and the gradient of the result.

        Returns
        -------
        Secret or None, or a sequence of them, one for each argument
        """
        raise NotImplementedError("a trefoil.Function defines backward(context, grad)")

    @classmethod
    def apply(cls, *arguments: Any) -> Secret:
        """The result of ``forward``, which :meth:`Secret.backward` goes through by ``backward``.

        Parameters
        ----------
        *arguments
            Secret arrays, and anything else.

        Returns
        -------
        Secret

        Raises
        ------
        InputError
            If ``forward`` does not return a secret array; later, if ``backward`` does not return a gradient for each argument.
        """
        from ._secret import Secret

        context = _Context()
        with no_grad():
            result = cls.forward(context, *arguments)
            if not isinstance(result, Secret):
                raise InputError(f"{cls.__name__}.forward returned a {type(result).__name__}, not a secret array")
            result = result.detach()
        places = [i for i, x in enumerate(arguments) if isinstance(x, Secret)]

        def rule(g, *_):
            made = cls.backward(context, g)
            made = list(made) if isinstance(made, (tuple, list)) else [made]
            if len(made) != len(arguments):
                raise InputError(f"{cls.__name__}.backward returned {len(made)} gradients of {len(arguments)} arguments")
            public = [type(made[i]).__name__ for i in places if made[i] is not None and not isinstance(made[i], Secret)]
            if public:
                raise InputError(f"{cls.__name__}.backward returned a {public[0]}, not a secret array or None")
            return [made[i] for i in places]

        if isinstance(result._mpc._session, Tape):
            operands = [arguments[i]._handle for i in places]
            result._mpc._session._note(rule, operands, {}, [result._handle])
        return result


class _Context:
    """The values that a function keeps for its gradient."""


class _Node:
    """A call that results were made by: of a function by its name, or by the rule of its gradient."""

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

    def run(self, model, weights, inputs, guard=None, states=()):
        made = self._session.run(model, weights, inputs, guard, list(states))
        self._note("a model", [*inputs, *states], {}, made)
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
                    if asked and part is not None:
                        add(x, part)

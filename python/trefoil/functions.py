"""The functions of the underlying Rust library, under its names.

NumPy's names (``np.exp(x)``, ``x @ y``) suffice for most programs. This module adds functions that NumPy does not
have, and every function in its exact form. Operands are secret arrays, and public ones where the library takes
them, in the session's fraction bits. Reductions leave their axes with length 1.

Domain, error and cost of each are those that its documentation states; bits are for each number, of all
parties together, at the width of a product's result.
"""

from __future__ import annotations

import inspect
import math
import operator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from . import _trefoil
from ._distances import cdist as cdist, triplet_margin_loss as triplet_margin_loss
from ._errors import InputError
from ._random import (
    bernoulli as bernoulli, coins as coins, discrete_laplace as discrete_laplace, discrete_normal as discrete_normal,
    dropout as dropout, exponential as exponential, laplace as laplace, normal as normal, uniform as uniform,
    weighted_index as weighted_index,
)
from ._secret import _BOOL, _INT, Secret, _axes, _axis, _plain, _promoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from ._session import Mpc

    _OfOne = Callable[[Secret], Secret]
    _OfTwo = Callable[[Secret | ArrayLike, Secret | ArrayLike], Secret]
    #: A number for height and width, or one for each.
    _Pair = int | Sequence[int]
    #: Zeros at all borders, at top and left as at bottom and right, or at each.
    _Border = int | Sequence[int]

_Any = TypeVar("_Any", bound="Callable[..., Any]")

_PRODUCTS = {"mul": 0, "matmul": 1, "conv2d": 2, "conv2d_input_grad": 3, "conv2d_weight_grad": 4}


def _call(name, operands, params=None, dtype=None, frac=None):
    mpc = next((x._mpc for x in operands if isinstance(x, Secret)), None)
    if mpc is None:
        raise InputError(f"{name}: no operand is secret")
    handles = []
    for x in operands:
        if isinstance(x, Secret):
            if x._mpc is not mpc:
                raise InputError("the secret arrays belong to different sessions")
            handles.append(x._handle)
        else:
            array = _plain(x)
            handles.append(mpc._public(array, mpc._frac(array.dtype) if frac is None else frac))
    kinds = [x.dtype if isinstance(x, Secret) else _plain(x).dtype for x in operands]
    dtype = dtype or _promoted(*kinds)
    made = mpc._session.call(name, handles, params)
    return [Secret(mpc, handle, dtype) for handle in made]


def _one(*args, **kwargs):
    return _call(*args, **kwargs)[0]


#: The costs of functions by name, as the library states and tests them: example, rounds, bits for each number.
_COSTS = {name.split(" ")[0]: (name.partition(" ")[2], rounds, bits) for name, rounds, bits in _trefoil.COSTS}

#: How the examples are put.
_EXAMPLES = {"": "", "3": " for ``n = 3``", "of degree 4": " at degree 4", "of 16": " for rows of 16"}


def _cost(name):
    """The sentence that states the cost of a function."""
    example, rounds, bits = _COSTS[name]
    where = " for 16 classes" if name == "one_hot" else _EXAMPLES[example]
    return f"Cost: {rounds} round{'s' * (rounds > 1)}, {bits:.0f} bits{where}."


def _priced(function: _Any) -> _Any:
    """Adds the cost to the docstring of a function, which ends with its notes."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__)} {_cost(function.__name__)}\n"
    return function


def _documented(function, name, summary, notes, parameters="x : Secret", result="Of the shape of ``x``.", cost=None):
    """Gives a function that is made here its name, and a docstring with sections."""
    function.__name__ = function.__qualname__ = name
    notes = f"{notes} {_cost(cost)}".lstrip() if cost else notes
    sections = {"Parameters": parameters, "Returns": f"Secret\n    {result}", "Notes": notes}
    text = "\n\n".join(f"{title}\n{'-' * len(title)}\n{body}" for title, body in sections.items())
    function.__doc__ = f"{summary}\n\n{text}\n"
    return function


def _same_format(name, summary, notes, dtype=None, cost=None) -> _OfTwo:
    def function(x: Secret | ArrayLike, y: Secret | ArrayLike) -> Secret:
        one = x if isinstance(x, Secret) else y
        if not isinstance(one, Secret):
            raise InputError(f"{name}: no operand is secret")
        frac = one._handle.frac
        return _one(name, [x, y], None, dtype, frac)

    parameters = "x, y : Secret or array_like\n    One of them secret, in the same format; a public one gets it."
    result = "Of their common shape, as NumPy broadcasts."
    return _documented(function, name, summary, notes, parameters, result, cost)


def _of_one(name, summary, notes, dtype=None, real=True, domain=None, cost=None) -> _OfOne:
    def function(x: Secret) -> Secret:
        x = x._real() if real else x
        return _one(name, [x], None, dtype)

    parameters = f"x : Secret\n    {domain}" if domain else "x : Secret"
    cost = name if name in _COSTS else cost
    return _documented(function, name, summary, notes, parameters, cost=cost)


add: _OfTwo = _same_format("add", "``x + y``, broadcast.", "Nothing is sent.")
sub: _OfTwo = _same_format("sub", "``x - y``, broadcast.", "Nothing is sent.")
lt: _OfTwo = _same_format("lt", "``x < y``, broadcast.", "Exact.", _BOOL, "lt")
le: _OfTwo = _same_format("le", "``x <= y``, broadcast.", "Exact.", _BOOL, "lt")
gt: _OfTwo = _same_format("gt", "``x > y``, broadcast.", "Exact.", _BOOL, "lt")
ge: _OfTwo = _same_format("ge", "``x >= y``, broadcast.", "Exact.", _BOOL, "lt")
eq: _OfTwo = _same_format("eq", "``x == y``, broadcast.", "Exact.", _BOOL, "eq")
ne: _OfTwo = _same_format("ne", "``x != y``, broadcast.", "Exact.", _BOOL, "eq")

neg: _OfOne = _of_one("neg", "``-x``.", "Nothing is sent.", real=False)
is_negative: _OfOne = _of_one("is_negative", "``x < 0``.", "Exact.", _BOOL, False, cost="lt")
sign: _OfOne = _of_one("sign", "-1, 0 or 1, as integers.", "Exact.", _INT, False)
abs: _OfOne = _of_one("abs", "``|x|``.", "Exact.", real=False)
relu: _OfOne = _of_one("relu", "``max(0, x)``.", "Exact.", real=False)
relu6: _OfOne = _of_one("relu6", "``x`` limited to 0..6.", "Exact.")
square: _OfOne = _of_one("square", "``x * x``.", "One unit in the last place. Cost: 2 rounds, 252 bits.", real=False)
exp: _OfOne = _of_one("exp", "``e^x``.", "Error below ``2^-16 max(1, e^x) + 2^-18``; ``2^16`` above ``x = 11.09``.")
exp_nonpositive: _OfOne = _of_one(
    "exp_nonpositive", "``e^x``.",
    "Error below ``2^-19 max(2^-10, e^x)``.", domain="``x <= 0``.",
)
log: _OfOne = _of_one("log", "``ln x``.", "Error below three units and ``2^-19``.", domain="``x > 0``.")
sqrt: _OfOne = _of_one("sqrt", "Square root of ``x``.", "Relative error below ``2^-19`` and a unit.", domain="``x >= 0``.")
inv_sqrt: _OfOne = _of_one("inv_sqrt", "``1 / sqrt(x)``.", "Relative error below ``2^-19`` and a unit.", domain="``x > 0``.")
reciprocal: _OfOne = _of_one("reciprocal", "``1 / x``.", "Relative error below ``2^-19.5`` and two units.")
reciprocal_positive: _OfOne = _of_one(
    "reciprocal_positive", "``1 / x``.",
    "Error as of :func:`reciprocal`.", domain="``x > 0``.",
)
sigmoid: _OfOne = _of_one("sigmoid", "``1 / (1 + e^-x)``.", "Error below ``2^-17``.")
tanh: _OfOne = _of_one("tanh", "Hyperbolic tangent.", "Error below ``2^-16``.")
silu: _OfOne = _of_one("silu", "``x sigmoid(x)``.", "Error below ``2^-15``.", domain="``|x| < 2^22``.")
erf: _OfOne = _of_one("erf", "Error function.", "Error below ``2^-17``.")
gelu: _OfOne = _of_one("gelu", "``x (1 + erf(x / sqrt 2)) / 2``.", "Error below ``2^-17``.", domain="``|x| < 2^22``.")
sin: _OfOne = _of_one("sin", "Sine.", "Error below ``2^-18 + 2^(f - 61) |x|``.")
cos: _OfOne = _of_one("cos", "Cosine.", "Error as of :func:`sin`.")


def not_(x: Secret) -> Secret:
    """``1 - x`` of truth values.

    Parameters
    ----------
    x : Secret
        Truth values.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Nothing is sent.
    """
    return _one("not", [x], None, x.dtype)


@_priced
def select(condition: Secret, x: Secret | ArrayLike, y: Secret | ArrayLike) -> Secret:
    """``x`` where the secret truth value is 1, ``y`` where it is 0.

    Parameters
    ----------
    condition : Secret
        Truth values.
    x, y : Secret or array_like
        One of them secret; of one shape with the condition.

    Returns
    -------
    Secret
        Of the shape of ``x`` and ``y``.

    Notes
    -----
    Exact.
    """
    one = x if isinstance(x, Secret) else y
    if not isinstance(one, Secret):
        return np.where(condition, x, y)
    return _one("select", [condition, x, y], None, one.dtype, one._handle.frac)


def relu_all(*xs: Secret) -> list[Secret]:
    """:func:`relu` of several arrays in the same rounds.

    Parameters
    ----------
    *xs : Secret

    Returns
    -------
    list of Secret
        As many.
    """
    mpc = xs[0]._mpc
    made = mpc._session.call("relu_all", [x._handle for x in xs], None)
    return [Secret(mpc, handle, _promoted(x.dtype)) for handle, x in zip(made, xs)]


@_priced
def leaky_relu(x: Secret, slope: float) -> Secret:
    """``x`` where it is at least 0, ``slope * x`` where it is negative.

    Parameters
    ----------
    x : Secret
    slope : float
        Public.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Error of a :func:`mul_scalar` below 0.
    """
    return _one("leaky_relu", [x._real()], {"slope": float(slope)})


@_priced
def clamp(x: Secret, low: float, high: float) -> Secret:
    """``x`` limited to ``low..high``.

    Parameters
    ----------
    x : Secret
    low, high : float
        Public.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Exact for bounds rounded to the format.
    """
    return _one("clamp", [x], {"low": float(low), "high": float(high)})


@_priced
def one_hot(x: Secret, classes: int) -> Secret:
    """For secret integers, a new last axis with 1 at the integer.

    Parameters
    ----------
    x : Secret
        Integers.
    classes : int
        How many; the integers are from 0 on, below it.

    Returns
    -------
    Secret
        Integers, of the shape of ``x`` and an axis more.

    Notes
    -----
    Exact.
    """
    return _one("one_hot", [x], {"classes": classes}, _INT)


def gather_at(x: Secret, places: Secret, axis: int = 0) -> Secret:
    """The numbers of an axis at secret places: ``np.take(x, places, axis)`` makes the same.

    Parameters
    ----------
    x : Secret
    places : Secret
        Integers from 0 to the axis's length less 1, of any shape.
    axis : int

    Returns
    -------
    Secret
        The axis gives way to those of ``places``.

    Notes
    -----
    Exact. Costs one test for each place and each number of the axis, and a matrix product. A place outside of the axis is a
    :class:`RangeError` in a local session and takes zeros elsewhere.
    """
    axis = _axis(operator.index(axis), x.ndim)
    return _one("gather_at", [x, places], {"axis": axis, "length": x.shape[axis]}, x.dtype)


def scatter_add(values: Secret, places: Secret, count: int) -> Secret:
    """The sums of the rows that have each place: ``np.bincount(places, values, count)`` makes the same of one axis.

    Parameters
    ----------
    values : Secret
        Rows of any shape.
    places : Secret
        An integer from 0 to ``count`` less 1 for each row.
    count : int
        The number of rows of the result, public.

    Returns
    -------
    Secret
        ``(count, ..)``, zeros where no row has the place.

    Notes
    -----
    Exact. Costs as :func:`gather_at` of an axis of ``count`` numbers.
    """
    dtype = _INT if values.frac_bits == 0 else values.dtype
    return _one("scatter_add", [values, places], {"count": operator.index(count)}, dtype)


def add_scalar(x: Secret, c: float) -> Secret:
    """``x + c``.

    Parameters
    ----------
    x : Secret
    c : float or int
        Public.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Nothing is sent.
    """
    return _one("add_scalar", [x], {"c": c})


def mul_scalar(x: Secret, c: float) -> Secret:
    """``x * c``.

    Parameters
    ----------
    x : Secret
    c : float or int
        Public.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Relative error ``2^-19`` of the factor. Cost: 2 rounds; none if ``c`` is an integer.
    """
    return _one("mul_scalar", [x], {"c": c})


def mul_scalar_to(x: Secret, c: float, frac_bits: int) -> Secret:
    """``x * c`` with other fraction bits, as :func:`mul_scalar`.

    Parameters
    ----------
    x : Secret
    c : float or int
        Public.
    frac_bits : int
        Of the result.

    Returns
    -------
    Secret
        Of the shape of ``x``.
    """
    return _one("mul_scalar_to", [x], {"c": c, "frac": frac_bits}, None if frac_bits == 0 else np.dtype(float))


def div_scalar(x: Secret, c: float) -> Secret:
    """``x / c``, as :func:`mul_scalar`.

    Parameters
    ----------
    x : Secret
    c : float or int
        Public.

    Returns
    -------
    Secret
        Of the shape of ``x``.
    """
    return _one("div_scalar", [x], {"c": c})


def rescale(x: Secret, frac_bits: int) -> Secret:
    """The same numbers with other fraction bits.

    Parameters
    ----------
    x : Secret
    frac_bits : int
        Of the result.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    More cost nothing, fewer 2 rounds.
    """
    return _one("rescale", [x], {"frac": frac_bits}, _INT if frac_bits == 0 else np.dtype(float))


def inv_sqrt_to(x: Secret, frac_bits: int) -> Secret:
    """``1 / sqrt(x)`` for ``x > 0`` with other fraction bits than its operand, as :func:`inv_sqrt`.

    Parameters
    ----------
    x : Secret
        ``x > 0``.
    frac_bits : int
        Of the result.

    Returns
    -------
    Secret
        Of the shape of ``x``.
    """
    return _one("inv_sqrt_to", [x._real()], {"frac": frac_bits}, np.dtype(float))


@_priced
def div(x: Secret | ArrayLike, y: Secret) -> Secret:
    """``x / y`` for a secret ``y``.

    Parameters
    ----------
    x : Secret or array_like
    y : Secret
        Not 0.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    ``|x| < 2^22``, ``|x / y| < 2^21`` and ``|y| < 2^20`` at 20 fraction bits. Error below
    ``2^-17 |x / y| + 2^-20 (1 + 2 / |y|)``.
    """
    return _one("div", [x, y._real()], None, np.dtype(float), y._real()._handle.frac)


@_priced
def pow(x: Secret, n: int) -> Secret:
    """``x^n`` for an integer.

    Parameters
    ----------
    x : Secret
    n : int
        Public; below 0 the power of the reciprocal.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Powers below ``2^22`` at 20 fraction bits; error ``n |x|^(n - 1)`` units in the last place. At most ``2 log2 |n|``
    products in ``ceil(log2 |n|)`` levels.
    """
    return _one("pow", [x], {"n": n})


@_priced
def powf(x: Secret, p: float) -> Secret:
    """``x^p``: halves and quarters by roots, other exponents as ``e^(p ln x)``.

    Parameters
    ----------
    x : Secret
        ``x >= 0``, and above 0 for a negative exponent.
    p : float
        Public.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Error below ``(2^-15.5 + 2^-17 |p|) max(1, x^p)`` for results up to ``2^16``.
    """
    return _one("powf", [x._real()], {"p": float(p)})


@_priced
def polynomial(x: Secret, coefficients: Sequence[float]) -> Secret:
    """``c[0] + c[1] x + c[2] x^2 + ..``.

    Parameters
    ----------
    x : Secret
    coefficients : sequence of float
        Public, the constant first.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    One product for each power, in ``ceil(log2 degree)`` levels; powers are rounded to a unit times their degree.
    """
    return _one("polynomial", [x._real()], {"coefficients": [float(c) for c in coefficients]})


class _Along(Protocol):
    """A function along an axis."""

    def __call__(self, x: Secret, axis: int = -1) -> Secret: ...


def _along(name, summary, notes, result, dtype=None, real=False, cost=None) -> _Along:
    def function(x: Secret, axis: int = -1) -> Secret:
        x = x._real() if real else x
        return _one(name, [x], {"axis": _axis(axis, x.ndim)}, dtype)

    parameters = "x : Secret\naxis : int\n    Of at least one number."
    cost = name if name in _COSTS else cost
    return _documented(function, name, summary, notes, parameters, result, cost)


_KEPT = "The axis stays, with length 1."
_TOURNAMENT = "Exact. A tournament: ``1 + 5 ceil(log2 k)`` rounds for ``k`` numbers."
max: _Along = _along("max", "Largest numbers along an axis.", _TOURNAMENT, _KEPT)
min: _Along = _along("min", "Smallest numbers along an axis.", _TOURNAMENT, _KEPT, cost="max")
_FIRST = "Exact; the first among equals."
argmax: _Along = _along("argmax", "Places of the largest numbers along an axis.", _FIRST, f"Integers. {_KEPT}", _INT)
argmin: _Along = _along(
    "argmin", "Places of the smallest numbers along an axis.", _FIRST, f"Integers. {_KEPT}", _INT, cost="argmax",
)
softmax: _Along = _along(
    "softmax", "``e^x / sum(e^x)`` along an axis.", "Error below ``2^-17``.",
    "Of the shape of ``x``.", None, True,
)
log_softmax: _Along = _along(
    "log_softmax", "The logarithm of :func:`softmax`, without taking it.", "Error below ``2^-17``.",
    "Of the shape of ``x``.", None, True,
)


def top1(x: Secret, axis: int = -1) -> tuple[Secret, Secret]:
    """:func:`max` and :func:`argmax` at once, for the cost of the latter.

    Parameters
    ----------
    x : Secret
    axis : int

    Returns
    -------
    tuple of Secret
        The numbers and their places; the axis stays, with length 1.
    """
    made = x._mpc._session.call("top1", [x._handle], {"axis": _axis(axis, x.ndim)})
    return Secret(x._mpc, made[0], x.dtype), Secret(x._mpc, made[1], _INT)


_SORTED = "Exact, by a sorting network: about ``k t^2 / 4`` comparisons for ``k`` numbers with ``t = ceil(log2 k)``."
_SAME = "Of the shape of ``x``."
sort: _Along = _along("sort", "The numbers along an axis in rising order.", _SORTED, _SAME)
argsort: _Along = _along(
    "argsort", "The places that sort the numbers along an axis; equal numbers keep their order.", _SORTED,
    f"Integers. {_SAME}", _INT,
)
median: _Along = _along("median", "Medians along an axis.", "Error of one unit in the last place.", _KEPT, None, True)
distinct: _Along = _along("distinct", "The numbers of distinct numbers along an axis.", "Exact.", f"Integers. {_KEPT}", _INT)


def sort_with(x: Secret, columns: Sequence[Secret], axis: int = -1) -> tuple[Secret, Secret, list[Secret]]:
    """:func:`sort` and :func:`argsort` at once, with other arrays in the same order: a table by a key.

    Parameters
    ----------
    x : Secret
        The keys. Equal ones keep their order.
    columns : sequence of Secret
        Of the shape of ``x``.
    axis : int

    Returns
    -------
    tuple
        The keys in order, their places, and the columns in the same order.

    Notes
    -----
    As :func:`argsort`; each column adds 192 bits for a comparison.
    """
    handles = [x._handle, *(column._handle for column in columns)]
    made = x._mpc._session.call("sort_with", handles, {"axis": _axis(axis, x.ndim)})
    moved = [Secret(x._mpc, handle, column.dtype) for handle, column in zip(made[2:], columns)]
    return Secret(x._mpc, made[0], x.dtype), Secret(x._mpc, made[1], _INT), moved


def shuffle(*arrays: Secret) -> list[Secret]:
    """The rows of arrays, along their first axis, in one secret order that no party knows.

    Parameters
    ----------
    *arrays : Secret
        Of as many rows each. Rows at one place stay together.

    Returns
    -------
    list of Secret
        Of the same shapes. All orders are equally likely.

    Notes
    -----
    Two rounds and 256 bits for each number among three parties. Others sort the rows by secret random numbers.
    """
    if not arrays:
        return []
    made = arrays[0]._mpc._session.call("shuffle", [x._handle for x in arrays])
    return [Secret(x._mpc, handle, x.dtype) for x, handle in zip(arrays, made)]


def join_keys(secret: bytes, names: Sequence[str | bytes]) -> np.ndarray:
    """Keys of 60 bits for :func:`join` from names, by a hash under a secret that the owners of the tables have in common.

    Parameters
    ----------
    secret : bytes
        32 of them, known to the owners alone.
    names : sequence of str or bytes

    Returns
    -------
    numpy.ndarray
        Integers. Two of ``n`` names get one key with probability below ``n**2 / 2**61``.
    """
    if len(secret) != 32:
        raise InputError(f"the secret has {len(secret)} bytes, not 32")
    encoded = [name.encode() if isinstance(name, str) else bytes(name) for name in names]
    return np.array(_trefoil.join_keys(bytes(secret), encoded), np.int64)


def join(
    left_keys: Secret,
    left: Sequence[Secret],
    right_keys: Secret,
    right: Sequence[Secret],
    how: str = "inner",
    at_most: int | None = None,
) -> tuple[list[Secret], list[Secret], Secret, Secret]:
    """The rows of two tables that have the same secret key. Nobody learns which, or how many.

    Parameters
    ----------
    left_keys, right_keys : Secret
        Integers from 0 to ``2**60 - 1``, no two of a table equal: see :func:`join_keys`.
    left, right : sequence of Secret
        Columns of as many rows.
    how : {"inner", "left"}
        The rows that both tables have, or all of the left table.
    at_most : int, optional
        Rows of an inner join; as many as the shorter table has unless given.

    Returns
    -------
    tuple
        The left table's columns and the right table's in rising order of the keys, with zeros behind the last row; which
        rows are pairs; and the number of pairs, of shape ``(1,)``.

    Notes
    -----
    An ``InputError`` tells that a table has a key twice. Smaller keys cost less where their bound is known
    (:meth:`Secret.with_bound`): for ``b`` bits about ``625 b + 1.5 b^2`` bits for each row among three parties.
    """
    if how not in ("inner", "left"):
        raise InputError(f"how is {how!r}, not 'inner' or 'left'")
    operands = [left_keys, right_keys, *left, *right]
    params = {"left": len(left), "all_left": int(how == "left")}
    if at_most is not None:
        params["at_most"] = operator.index(at_most)
    *columns, matched, pairs = left_keys._mpc._session.call("join", [x._handle for x in operands], params)
    made = [Secret(x._mpc, handle, x.dtype) for x, handle in zip(operands[2:], columns)]
    counts = Secret(left_keys._mpc, matched, _BOOL), Secret(left_keys._mpc, pairs, _INT)
    return made[: len(left)], made[len(left) :], *counts


def unique(x: Secret, at_most: int | None = None) -> tuple[Secret, Secret, Secret]:
    """The distinct numbers of a row in rising order, and how often each is there. Nobody learns how many there are.

    Parameters
    ----------
    x : Secret
        One row.
    at_most : int, optional
        Places of the results; as many as ``x`` has unless given.

    Returns
    -------
    tuple of Secret
        The numbers and how often each is there, with zeros behind the last; and how many are distinct, of shape ``(1,)``.

    Notes
    -----
    Exact: a sort and a comparison of neighbours.
    """
    params = {} if at_most is None else {"at_most": operator.index(at_most)}
    values, counts, distinct = x._mpc._session.call("unique", [x._handle], params)
    return Secret(x._mpc, values, x.dtype), Secret(x._mpc, counts, _INT), Secret(x._mpc, distinct, _INT)


def order_statistics(x: Secret, places: Sequence[int], axis: int = -1) -> Secret:
    """The numbers along an axis that have these places in rising order, 0 for the smallest.

    Parameters
    ----------
    x : Secret
    places : sequence of int
        Public.
    axis : int

    Returns
    -------
    Secret
        The axis has one number for each place.

    Notes
    -----
    As :func:`sort`, without the comparisons that no place depends on.
    """
    places = [operator.index(place) for place in places]
    return _one("order_statistics", [x], {"axis": _axis(axis, x.ndim), "places": places})


@_priced
def top_k(x: Secret, k: int, axis: int = -1) -> tuple[Secret, Secret]:
    """The ``k`` largest numbers along an axis, the largest first, and their places.

    Parameters
    ----------
    x : Secret
    k : int
        Public.
    axis : int

    Returns
    -------
    tuple of Secret
        The numbers and their places; of equal numbers the first come first.

    Notes
    -----
    As :func:`argsort`, without the comparisons that nothing depends on.
    """
    made = x._mpc._session.call("top_k", [x._handle], {"axis": _axis(axis, x.ndim), "k": operator.index(k)})
    return Secret(x._mpc, made[0], x.dtype), Secret(x._mpc, made[1], _INT)


@_priced
def quantile(x: Secret, q: Sequence[float], axis: int = -1) -> Secret:
    """Quantiles along an axis, linear between neighbours.

    Parameters
    ----------
    x : Secret
    q : sequence of float
        Public, from 0 to 1.
    axis : int

    Returns
    -------
    Secret
        The axis has one number for each of ``q``.

    Notes
    -----
    Error of one unit in the last place, and of half a unit times the distance between the neighbours.
    """
    return _one("quantile", [x._real()], {"axis": _axis(axis, x.ndim), "q": [float(p) for p in q]})


class _Over(Protocol):
    """A function over axes."""

    def __call__(self, x: Secret, axes: int | tuple[int, ...] | None = None) -> Secret: ...


def _over(name, summary, notes, real=False) -> _Over:
    def function(x: Secret, axes: int | tuple[int, ...] | None = None) -> Secret:
        x = x._real() if real else x
        return _one(name, [x], {"axes": _axes(axes, x.ndim)})

    parameters = "x : Secret\naxes : int or tuple of int, optional\n    All unless given."
    cost = name if name in _COSTS else None
    return _documented(function, name, summary, notes, parameters, "The axes stay, with length 1.", cost)


sum: _Over = _over("sum", "Sums over axes.", "Nothing is sent.")
mean: _Over = _over("mean", "Means over axes.", "Relative error ``2^-19`` and two units in the last place.", True)
var: _Over = _over("var", "Variances over axes.", "Error as of :func:`mean`, and a unit for each of the distances from it.", True)
norm: _Over = _over("norm", "Euclidean norms over axes.", "Error as of :func:`sqrt`.", True)
sum_squares: _Over = _over("sum_squares", "Sums of squares over axes.", "Error of one unit in the last place.")


@_priced
def normalize(x: Secret, axis: int = -1, epsilon: float = 1e-5) -> Secret:
    """``(x - mean) / sqrt(variance + epsilon)`` over the axes from ``axis`` on.

    Parameters
    ----------
    x : Secret
    axis : int
    epsilon : float
        Public.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Error about ``2^-18`` of the result and three units in the last place.
    """
    params = {"axis": _axis(axis, x.ndim), "epsilon": float(epsilon)}
    return _one("normalize", [x._real()], params)


def reshape(x: Secret, shape: Sequence[int]) -> Secret:
    """The same numbers under another shape.

    Parameters
    ----------
    x : Secret
    shape : sequence of int

    Returns
    -------
    Secret
        Of that shape.

    Notes
    -----
    Nothing is sent, as by the functions below.
    """
    return _one("reshape", [x], {"shape": list(shape)}, x.dtype)


def broadcast(x: Secret, shape: Sequence[int]) -> Secret:
    """Repeats axes of length 1, and new leading axes, to a shape.

    Parameters
    ----------
    x : Secret
    shape : sequence of int

    Returns
    -------
    Secret
        Of that shape.
    """
    return _one("broadcast", [x], {"shape": list(shape)}, x.dtype)


def permute(x: Secret, axes: Sequence[int]) -> Secret:
    """Axis ``i`` of the result is axis ``axes[i]``.

    Parameters
    ----------
    x : Secret
    axes : sequence of int

    Returns
    -------
    Secret
    """
    return _one("permute", [x], {"axes": [_axis(a, x.ndim) for a in axes]}, x.dtype)


def transpose(x: Secret) -> Secret:
    """Exchanges the last two axes.

    Parameters
    ----------
    x : Secret

    Returns
    -------
    Secret
    """
    return _one("transpose", [x], None, x.dtype)


def slice(x: Secret, axis: int, start: int, end: int, step: int = 1) -> Secret:
    """Places ``start, start + step, ..`` below ``end`` of one axis.

    Parameters
    ----------
    x : Secret
    axis : int
    start, end, step : int
        Not below 0; the step is 1 or more.

    Returns
    -------
    Secret
    """
    params = {"axis": _axis(axis, x.ndim), "start": start, "end": end, "step": step}
    return _one("slice", [x], params, x.dtype)


def gather(x: Secret, axis: int, indices: ArrayLike) -> Secret:
    """The given public places of one axis, in the given order.

    Parameters
    ----------
    x : Secret
    axis : int
    indices : array_like of int
        Public.

    Returns
    -------
    Secret
    """
    indices = np.ascontiguousarray(indices, dtype=np.int64)
    return _one("gather", [x], {"axis": _axis(axis, x.ndim), "indices": indices}, x.dtype)


def pad(x: Secret, before: Sequence[int], after: Sequence[int]) -> Secret:
    """A border of zeros.

    Parameters
    ----------
    x : Secret
    before, after : sequence of int
        For each axis.

    Returns
    -------
    Secret

    Notes
    -----
    ``before[i]`` and ``after[i]`` numbers on axis ``i``.
    """
    return _one("pad", [x], {"before": list(before), "after": list(after)}, x.dtype)


def concat(xs: Sequence[Any], axis: int = 0) -> Secret:
    """Concatenates along an axis.

    Parameters
    ----------
    xs : sequence of Secret and array_like
        The first secret.
    axis : int

    Returns
    -------
    Secret
    """
    return _one("concat", list(xs), {"axis": _axis(axis, xs[0].ndim)}, xs[0].dtype)


def _pair(value):
    return [int(value)] * 2 if np.isscalar(value) else [int(v) for v in value]


def _window(kernel, stride, padding, dilation):
    border = [int(padding)] * 4 if np.isscalar(padding) else [int(p) for p in padding]
    border = border * 2 if len(border) == 2 else border
    return {"kernel": _pair(kernel), "stride": _pair(stride), "padding": border, "dilation": _pair(dilation)}


def windows(
    x: Secret, kernel: _Pair, stride: _Pair = 1, padding: _Border = 0, dilation: _Pair = 1,
) -> Secret:
    """``[.., H, W]`` to ``[.., kh * kw, OH, OW]``.

    Parameters
    ----------
    x : Secret
        ``[.., H, W]``.
    kernel, stride, dilation : int or pair of int
        For height and width.
    padding : int, pair or four of int
        Zeros at top, left, bottom, right.

    Returns
    -------
    Secret
        ``[.., kh * kw, OH, OW]``.

    Notes
    -----
    The numbers under each position of a window.
    """
    return _one("windows", [x], _window(kernel, stride, padding, dilation), x.dtype)


def window_sum(
    x: Secret, kernel: _Pair, stride: _Pair = 1, padding: _Border = 0, dilation: _Pair = 1,
) -> Secret:
    """``[.., H, W]`` to ``[.., OH, OW]``.

    Parameters
    ----------
    x : Secret
        ``[.., H, W]``.
    kernel, stride, dilation : int or pair of int
        For height and width.
    padding : int, pair or four of int
        Zeros at top, left, bottom, right.

    Returns
    -------
    Secret
        ``[.., OH, OW]``.

    Notes
    -----
    Sums under a window. Nothing is sent.
    """
    return _one("window_sum", [x], _window(kernel, stride, padding, dilation))


def max_pool(
    x: Secret, kernel: _Pair, stride: _Pair | None = None, padding: _Border = 0, dilation: _Pair = 1,
) -> Secret:
    """The largest number under a window; the border is never the largest.

    Parameters
    ----------
    x : Secret
        ``[.., H, W]``.
    kernel, stride, dilation : int or pair of int
        For height and width.
    padding : int, pair or four of int
        Zeros at top, left, bottom, right.

    Returns
    -------
    Secret
        ``[.., OH, OW]``.

    Notes
    -----
    Two tournaments: of the window's rows, and of their largest numbers.
    """
    return _one("max_pool", [x], _window(kernel, kernel if stride is None else stride, padding, dilation))


def mul(x: Secret | ArrayLike, y: Secret | ArrayLike) -> Secret:
    """``x * y``, broadcast.

    Parameters
    ----------
    x, y : Secret or array_like
        One of them secret.

    Returns
    -------
    Secret
        Of their common shape, as NumPy broadcasts.

    Notes
    -----
    ``|x * y| < 2^(62 - 2f)``. Cost: 2 rounds, 252 bits; with integers 1 round.
    """
    return _one("mul", [x, y])


def matmul(x: Secret | ArrayLike, y: Secret | ArrayLike) -> Secret:
    """Matrix product ``[.., m, k] x [.., k, n]``.

    Parameters
    ----------
    x, y : Secret or array_like
        One of them secret; of two or more axes.

    Returns
    -------
    Secret
        ``[.., m, n]``.

    Notes
    -----
    Cost: 2 rounds, 252 bits for each result.
    """
    return _one("matmul", [x, y])


def conv2d(
    x: Secret, weight: Secret | np.ndarray, stride: _Pair = 1, padding: _Border = 0, dilation: _Pair = 1, groups: int = 1,
) -> Secret:
    """Convolution of ``[N, C, H, W]`` with ``[O, C / groups, kh, kw]``.

    Parameters
    ----------
    x : Secret
    weight : Secret or array_like
    stride, dilation : int or pair of int
        For height and width.
    padding : int, pair or four of int
        Zeros at top, left, bottom, right.
    groups : int

    Returns
    -------
    Secret
        ``[N, O, OH, OW]``.

    Notes
    -----
    Cost: 2 rounds, 252 bits for each result.
    """
    params = _window(weight.shape[-2:], stride, padding, dilation) | {"groups": groups}
    return _one("conv2d", [x, weight], params)


def _product(op, kwargs):
    if op not in _PRODUCTS:
        raise InputError(f"there is no product `{op}`; there are {', '.join(_PRODUCTS)}")
    params = {"op": _PRODUCTS[op]}
    if op == "matmul":
        for flag in ("transpose_lhs", "transpose_rhs"):
            params[flag] = int(kwargs.pop(flag, False))
    elif op != "mul":
        window = [kwargs.pop(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
        params |= _window(kwargs.pop("kernel"), *window) | {"groups": kwargs.pop("groups", 1)}
        if "input" in kwargs:
            params["input"] = _pair(kwargs.pop("input"))
    if kwargs:
        raise TypeError(f"the product `{op}` takes no `{next(iter(kwargs))}`")
    return params


def bilinear(op: str, x: Secret | ArrayLike, y: Secret | ArrayLike, **kwargs: Any) -> Secret:
    """A product of any kind: ``mul``, ``matmul``, ``conv2d``, ``conv2d_input_grad``, ``conv2d_weight_grad``.

    Parameters
    ----------
    op : str
    x, y : Secret or array_like
    transpose_lhs, transpose_rhs : bool
        For ``matmul``: a factor is stored with its last two axes exchanged.
    kernel, stride, padding, dilation, groups
        For convolutions; ``input`` (height and width) for ``conv2d_input_grad``.

    Returns
    -------
    Secret

    Notes
    -----
    Cost: 2 rounds, 252 bits for each number of the result; with integers 1 round, 192 bits.
    """
    return _one("bilinear", [x, y], _product(op, kwargs))


def multiply(
    op: str, x: Secret | ArrayLike, y: Secret | ArrayLike, *, plus: Secret | ArrayLike | None = None, relu: bool = False,
    keep: int | None = None, **kwargs: Any,
) -> Secret:
    """:func:`bilinear` with an addend before the rounding, and a fused ReLU.

    Parameters
    ----------
    op, x, y, **kwargs
        As of :func:`bilinear`.
    plus : Secret or array_like, optional
        A bias or residual, broadcast to the result: it costs nothing.
    relu : bool
        The ReLU of the result: 6 rounds and 648 bits in all, for 2 and 252 without.
    keep : int, optional
        Fraction bits of the result.

    Returns
    -------
    Secret
    """
    params = _product(op, kwargs) | {"relu": int(relu)}
    if keep is not None:
        params["keep"] = keep
    operands = [x, y] if plus is None else [x, y, plus]
    return _one("multiply", operands, params)


def constant(mpc: Mpc, x: ArrayLike) -> Secret:
    """A secret array of public numbers.

    Parameters
    ----------
    mpc : Mpc
    x : array_like

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    Nothing is sent.
    """
    array = _plain(x)
    (handle,) = mpc._session.call("constant", [mpc._public(array, mpc._frac(array.dtype))], None)
    return Secret(mpc, handle, array.dtype)


def gaussian(mpc: Mpc, shape: Sequence[int], deviation: float = 1.0) -> Secret:
    """Gaussian noise that no party knows.

    Each of the three parties adds its own noise, drawn from its operating system's randomness. The noise of any two
    has the standard deviation ``deviation`` and hides the operand from the third party too.

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int
    deviation : float
        From ``2 ** -frac_bits`` to ``2 ** (56 - frac_bits)``.

    Returns
    -------
    Secret
        Independent numbers of mean 0 and variance ``1.5 * deviation ** 2``.

    Notes
    -----
    Each party's part is a normal deviate rounded to ``2 ** -20`` of the deviation or finer. Cost: 3 rounds, 192 bits
    for each number, and a truncation where the sum is rounded to ``frac_bits`` afterwards: at 20 fraction bits, where
    the deviation is below 2.
    """
    if not 2.0**-mpc.frac_bits <= deviation < math.inf:
        unit = f"2 ** -{mpc.frac_bits}"
        raise InputError(f"a standard deviation of {deviation}; it is at least {unit}, the unit of the result, and finite")
    # The least deviation that the library samples is 2^20 units, and a party's part is smaller than the sum.
    finer = 21 - math.floor(math.log2(deviation))
    frac = finer if finer > mpc.frac_bits else mpc.frac_bits
    params = {"shape": [operator.index(n) for n in shape], "deviation": float(deviation), "frac": frac}
    (handle,) = mpc._session.call("gaussian", [], params)
    if frac > mpc.frac_bits:
        (handle,) = mpc._session.call("rescale", [handle], {"frac": mpc.frac_bits})
    return Secret(mpc, handle, np.dtype(np.float64))

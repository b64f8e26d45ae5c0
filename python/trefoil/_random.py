"""Random numbers that no party knows."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from ._errors import InputError
from ._secret import _BOOL, _DOUBLE, _INT, Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._session import Mpc


def _drawn(mpc, function, shape, dtype=_DOUBLE, **params):
    (handle,) = mpc._session.call(function, [], {"shape": [operator.index(n) for n in shape], **params})
    return Secret(mpc, handle, dtype)


def uniform(mpc: Mpc, shape: Sequence[int]) -> Secret:
    """Independent numbers, uniform among those of the session's fraction bits in [0, 1).

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int

    Returns
    -------
    Secret

    Notes
    -----
    No party knows them. At 20 fraction bits 2 rounds and 1,408 bits for each number.
    """
    return _drawn(mpc, "uniform", shape, frac=mpc.frac_bits)


def exponential(mpc: Mpc, shape: Sequence[int]) -> Secret:
    """Independent exponential numbers of mean 1: minus the logarithm of a uniform number.

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int

    Returns
    -------
    Secret
        Of at most 13.86 at 20 fraction bits, where the distribution has a millionth left.

    Notes
    -----
    The cost of :func:`uniform` and of a logarithm.
    """
    return _drawn(mpc, "exponential", shape, frac=mpc.frac_bits)


def laplace(mpc: Mpc, shape: Sequence[int]) -> Secret:
    """Independent numbers of the Laplace distribution of scale 1: the difference of two exponential numbers.

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int

    Returns
    -------
    Secret

    Notes
    -----
    The cost of two :func:`exponential` numbers each. Do not use it as noise for differential privacy, because its tails end and
    it is rounded. Use :func:`gaussian`.
    """
    return _drawn(mpc, "laplace", shape, frac=mpc.frac_bits)


def normal(mpc: Mpc, shape: Sequence[int]) -> Secret:
    """Independent normal numbers of mean 0 and variance 1, by the method of Box and Muller.

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int

    Returns
    -------
    Secret
        Between -5.27 and 5.27 at 20 fraction bits; 1.4e-7 of the distribution lies beyond.

    Notes
    -----
    For two numbers the cost of an exponential number, a square root, a sine, a cosine and two products. No party knows
    any part of them; :func:`gaussian` costs less, and each party knows its own part.
    """
    return _drawn(mpc, "normal", shape, frac=mpc.frac_bits)


def bernoulli(p: Secret) -> Secret:
    """Independent truth values, true with the probabilities ``p``.

    Parameters
    ----------
    p : Secret
        At most 0 is never, at least 1 always. Public probabilities: ``bernoulli(constant(mpc, p))``.

    Returns
    -------
    Secret
        Of the shape of ``p``.

    Notes
    -----
    The cost of :func:`uniform` and a comparison.
    """
    if p.dtype.kind != "f":
        raise InputError(f"probabilities are real numbers, not {p.dtype}; make them real with astype(float)")
    (handle,) = p._mpc._session.call("bernoulli", [p._handle])
    return Secret(p._mpc, handle, _BOOL)


def coins(mpc: Mpc, shape: Sequence[int], p: float) -> Secret:
    """Independent truth values, true with the public probability ``p``, which is rounded down to a multiple of ``2^-64``.

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int
    p : float
        From 0 to 1.

    Returns
    -------
    Secret

    Notes
    -----
    No party knows them. 8 rounds and 567 bits for each.
    """
    return _drawn(mpc, "coins", shape, _BOOL, p=float(p))


def dropout(x: Secret, p: float) -> Secret:
    """``x`` with each number 0 with probability ``p``, and ``1 / (1 - p)`` times itself else. No party knows which.

    Parameters
    ----------
    x : Secret
        Of real numbers. It may require a gradient.
    p : float
        From 0 to below 1.

    Returns
    -------
    Secret
        Of the shape of ``x``.

    Notes
    -----
    The cost of :func:`coins`, a selection and a product with a public number. The dropout of :class:`trefoil.Trainer` has masks
    that all parties know, and costs nothing.
    """
    if x.dtype.kind != "f":
        raise InputError(f"dropout is for real numbers, not {x.dtype}; make them real with astype(float)")
    if not 0 <= p < 1:
        raise InputError(f"a probability of {p}; 0 to below 1 are possible")
    return np.where(coins(x._mpc, x.shape, 1 - p), x, 0.0) * (1 / (1 - p))


def discrete_laplace(mpc: Mpc, shape: Sequence[int], scale: float) -> Secret:
    """Independent integers of the discrete Laplace distribution: ``n`` in proportion to ``exp(-|n| / scale)``.

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int
    scale : float
        From ``2**-5`` to ``2**40``.

    Returns
    -------
    Secret
        Integers.

    Notes
    -----
    No party knows any part of them. Their distance from the exact distribution, in total variation, is at most ``(k + 1) *
    2**-64`` for ``k = ceil(log2(46 * scale))``. 8 rounds and ``128 + 878 k`` bits for each. Noise of differential privacy must
    be an integer too: add it to integers, or to real numbers in units of the last place.
    """
    return _drawn(mpc, "discrete_laplace", shape, _INT, scale=float(scale))


def discrete_normal(mpc: Mpc, shape: Sequence[int], deviation: float) -> Secret:
    """Independent integers of the discrete normal distribution: ``n`` in proportion to ``exp(-n**2 / (2 * deviation**2))``.

    Parameters
    ----------
    mpc : Mpc
    shape : tuple of int
    deviation : float
        From ``2**-3`` to ``2**20``.

    Returns
    -------
    Secret
        Integers.

    Notes
    -----
    No party knows any part of them; of :func:`gaussian`, which costs less, each party knows its own part. Their distance from
    the exact distribution, in total variation, is at most ``5 m * 2**-64`` for a sum of ``m`` integers: one up to a deviation of
    13, 4 for a thousand, 8 for a million. At deviation 3 16 rounds and 4,473 bits for each.
    """
    return _drawn(mpc, "discrete_normal", shape, _INT, deviation=float(deviation))


def weighted_index(weights: Secret) -> Secret:
    """Positions along the last axis, each with a probability that is its weight's part of the sum of all.

    Parameters
    ----------
    weights : Secret
        Not negative, and of a sum above 0: ``x.softmax(-1)``, for instance.

    Returns
    -------
    Secret
        Integers, of the shape without the last axis.

    Notes
    -----
    A uniform number times the sum is compared with all running sums: 10 rounds, and a comparison for each weight.
    """
    if not weights.ndim or not weights.shape[-1]:
        raise InputError(f"weights of shape {weights.shape} have no positions to choose from")
    (handle,) = weights._mpc._session.call("weighted_index", [weights._handle])
    return Secret(weights._mpc, handle, _INT)

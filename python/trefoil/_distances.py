"""Distances of rows, and the loss of triplets of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ._errors import InputError
from ._secret import Secret, _plain

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def _operands(name, *arrays):
    if not any(isinstance(x, Secret) for x in arrays):
        raise InputError(f"{name}: no operand is secret")
    return [x if isinstance(x, Secret) else _plain(x) for x in arrays]


def _order(name, p):
    """The order of a norm, above 0; of 0 there is a count of places that differ."""
    if not isinstance(p, (int, float, np.integer, np.floating)) or isinstance(p, bool) or not p >= 0:
        raise InputError(f"{name}: p is {p!r}; it is a number from 0 on")
    return float(p)


def cdist(x: Secret | ArrayLike, y: Secret | ArrayLike, p: float = 2.0) -> Secret:
    """Distances of all rows of ``x`` to all rows of ``y``, as ``torch.cdist``.

    Parameters
    ----------
    x, y : Secret or array_like
        ``[.., m, k]`` and ``[.., n, k]``, one of them secret. The axes before the last two broadcast.
    p : float
        The order of the norm; public. 2 is the Euclidean distance, 1 the sum of magnitudes, ``math.inf`` the largest
        magnitude, 0 the number of places that differ.

    Returns
    -------
    Secret
        ``[.., m, n]``.

    Raises
    ------
    InputError
        If the rows differ in length.

    Notes
    -----
    Error and range of a :func:`norm` of differences: for ``p=2`` the squares of a distance stay below
    ``2^(62 - 2 frac_bits)``. Bytes: for ``p=2`` a square root for each distance, for other orders a comparison for each of
    the ``m n k`` differences. All of them are in memory at once; take some rows at a time if they are too many.

    Examples
    --------
    >>> nearest = trefoil.functions.cdist(points, centres).argmin(-1)
    """
    p = _order("cdist", p)
    x, y = _operands("cdist", x, y)
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise InputError(f"cdist takes rows of one length, [.., m, k] and [.., n, k], not {x.shape} and {y.shape}")
    x = x.reshape(x.shape[:-1] + (1,) + x.shape[-1:])
    y = y.reshape(y.shape[:-2] + (1,) + y.shape[-2:])
    return _lengths(x - y, p)


def _lengths(differences, p):
    """Norms along the last axis."""
    if 0 in differences.shape:
        # Rows without numbers have no distance.
        return differences._real().sum(-1)
    return np.linalg.norm(differences._real(), p, -1)


def triplet_margin_loss(
    anchor: Secret | ArrayLike, positive: Secret | ArrayLike, negative: Secret | ArrayLike, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False,
) -> Secret:
    """The mean of ``max(0, margin + |anchor - positive| - |anchor - negative|)`` over rows, as ``torch.nn.TripletMarginLoss``.

    It has a gradient, for :meth:`Secret.backward`. A network that a :class:`Trainer` trains computes the loss itself;
    :class:`trefoil.optim.Absolute` shows how.

    Parameters
    ----------
    anchor, positive, negative : Secret or array_like
        ``[.., k]``, one of them secret: rows that are near and far.
    margin : float
        Public. Above 0.
    p : float
        The order of the norm, as of :func:`cdist`.
    eps : float
        Added to each difference, as in PyTorch.
    swap : bool
        True to take the positive's distance to the negative where that is the smaller one.

    Returns
    -------
    Secret
        One number.

    Notes
    -----
    Cost: two distances, or three with ``swap``, and a ReLU for each row.
    """
    p = _order("triplet_margin_loss", p)
    if not 0 < margin < math.inf:
        raise InputError(f"triplet_margin_loss: the margin is {margin}; it is above 0")
    anchor, positive, negative = _operands("triplet_margin_loss", anchor, positive, negative)
    if 0 in (anchor.ndim, positive.ndim, negative.ndim):
        raise InputError("triplet_margin_loss takes rows; a number has no axis")
    far = _distance(anchor, negative, p, eps)
    if swap:
        far = np.minimum(far, _distance(positive, negative, p, eps))
    excess = _distance(anchor, positive, p, eps) - far + margin
    return np.maximum(excess, 0.0).mean()


def _distance(x, y, p, eps):
    """``|x - y + eps|`` along the last axis, of secret rows or of public ones."""
    differences = x - y + eps
    if isinstance(differences, Secret):
        return _lengths(differences, p)
    return np.linalg.norm(differences, p, -1)

"""NumPy's functions of order on secret arrays: sorting, quantiles, histograms.

Secret arrays hold no NaN: sharing refuses it. Equal numbers keep their order, whatever ``kind`` says.
"""

import numpy as np

from ._errors import InputError, RevealError
from ._numpy import _implements, _no_extras
from ._secret import _INT, Secret, _axis, _plain, _promoted


def _line(a, axis):
    """The array and its axis, or the flat array and its only axis."""
    if axis is None:
        return a.reshape(-1) if a.size else a.reshape(0), 0
    return a, _axis(axis, a.ndim)


def _ordered(name, function, a, axis, order, dtype):
    if order is not None:
        raise InputError(f"np.{name}: secret arrays have no fields to order by")
    x, axis = _line(a, axis)
    if x.size == 0 or x.shape[axis] == 1:
        return x.copy() if dtype is None else (x * 0)._like(_INT)
    return x._make(function, {"axis": axis}, dtype)


@_implements(np.sort)
def _sort(a, axis=-1, kind=None, order=None, *, stable=None):
    return _ordered("sort", "sort", a, axis, order, None)


@_implements(np.argsort)
def _argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    return _ordered("argsort", "argsort", a, axis, order, _INT)


def _check_kth(a, kth, axis):
    """NumPy checks the places."""
    n = a.size if axis is None else a.shape[_axis(axis, a.ndim)]
    np.partition(np.zeros(n), kth)


@_implements(np.partition)
def _partition(a, kth, axis=-1, kind="introselect", order=None):
    _check_kth(a, kth, axis)
    return _ordered("partition", "sort", a, axis, order, None)


@_implements(np.argpartition)
def _argpartition(a, kth, axis=-1, kind="introselect", order=None):
    _check_kth(a, kth, axis)
    return _ordered("argpartition", "argsort", a, axis, order, _INT)


@_implements(np.median)
def _median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    _no_extras("np.median", {"out": out})
    x = a._real()
    x._some("median", axis)
    rows, outer, kept = x._rows(axis)
    return rows._make("median", {"axis": len(outer)}).reshape(kept if keepdims else outer)


@_implements(np.quantile)
def _quantile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None, interpolation=None):
    _no_extras("np.quantile", {"out": out, "weights": weights, "interpolation": interpolation})
    if isinstance(q, Secret):
        raise InputError("np.quantile: the quantiles that are asked for are public")
    q = np.asarray(q)
    q = q.astype(float) if q.dtype == object else q
    # NumPy's dtype: that of integers for methods that take one of the numbers.
    dtype = np.quantile(np.zeros(1, a.dtype), q, method=method).dtype
    q = q.astype(float)
    x = a if dtype.kind != "f" else a._real()
    x._some("quantile", axis)
    rows, outer, kept = x._rows(axis)
    count = rows.shape[-1]
    # NumPy's own place of each quantile, by its methods: among the places themselves.
    places = np.quantile(np.arange(count, dtype=float), q.reshape(-1), method=method)
    nearest = np.round(places)
    places = np.where(abs(places - nearest) < 1e-9, nearest, places)
    below = np.floor(places)
    share = places - below
    whole = not share.any()
    above = np.minimum(below + 1, count - 1)
    wanted = (below if whole else np.concatenate([below, above])).astype(int)
    ends = rows._make("order_statistics", {"axis": len(outer), "places": wanted.tolist()})
    found = ends
    if not whole:
        low = ends[..., : q.size]
        found = low + (ends[..., q.size :] - low) * share
    shape = list(q.shape) + (kept if keepdims else outer)
    return np.moveaxis(found, -1, 0).reshape(shape)._like(x.dtype)


@_implements(np.percentile)
def _percentile(a, q, *args, **kwargs):
    if isinstance(q, Secret):
        raise InputError("np.percentile: the percentiles that are asked for are public")
    # NumPy checks the percentages, and names them in its error.
    np.percentile([0.0], q)
    return _quantile(a, np.asarray(q, float) / 100, *args, **kwargs)


@_implements(np.unique)
def _unique(*_, **__):
    raise RevealError(
        "the length of np.unique's result would tell how many distinct numbers there are: trefoil.functions.distinct "
        "counts them on shares, and np.histogram counts between public edges"
    )


@_implements(np.histogram)
def _histogram(a, bins=10, range=None, density=None, weights=None):
    if isinstance(bins, Secret) or isinstance(bins, str) or np.ndim(bins) == 0 and range is None:
        raise InputError("np.histogram of a secret array takes public edges, or a number of bins and their public range")
    # NumPy checks the bins.
    edges = np.histogram_bin_edges(np.zeros(0), bins, range)
    if not isinstance(a, Secret):
        raise InputError("np.histogram: numbers that are public are counted by weights that are public")
    x = a._like(_promoted(a.dtype)).reshape(-1, 1) if a.size else None
    if x is None:
        raise InputError("np.histogram of no numbers")
    if len(edges) < 2:
        raise InputError("np.histogram takes at least two edges")
    # Numbers from each edge on; the last bin has its upper edge.
    reached = x >= edges[:-1]
    beyond = x > edges[-1:]
    reached = np.concatenate([reached, beyond], 1)
    inside = reached[:, :-1].astype(int) - reached[:, 1:].astype(int)
    if weights is None:
        counts = inside.sum(0)
    else:
        if np.shape(weights) != a.shape:
            raise InputError(f"np.histogram: weights of shape {np.shape(weights)} for an array of shape {a.shape}")
        counts = np.sum(np.reshape(weights, (-1, 1)) * inside, 0)
    if density:
        counts = counts / (counts.sum().reshape(1) * np.diff(edges))
    return counts, edges


@_implements(np.corrcoef)
def _corrcoef(x, y=None, rowvar=True, **kwargs):
    from . import functions

    _no_extras("np.corrcoef", {key: value for key, value in kwargs.items() if key not in ("bias", "ddof")})
    rows = variables(x, y, rowvar, "np.corrcoef")
    if rows.shape[1] < 2:
        raise InputError(f"np.corrcoef of {rows.shape[1]} observations")
    unit = functions.normalize(rows, 1, 1e-9)
    n = rows.shape[0]
    # The diagonal is known.
    made = unit @ unit.T / float(rows.shape[1]) * (1.0 - np.eye(n)) + np.eye(n)
    return np.squeeze(made)


def variables(m, y, rowvar, name):
    """One row for each variable, as np.cov takes them."""
    parts = []
    for part in (m, y):
        if part is None:
            continue
        if np.ndim(part) > 2:
            raise InputError(f"{name} takes up to two dimensions, not {np.ndim(part)}")
        if np.ndim(part) < 2:
            part = np.reshape(part, (1, -1))
        elif not rowvar:
            part = np.transpose(part)
        parts.append(part)
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts, 0)
    return rows._real()

"""Statistics of secret arrays: tables of counts, groups, tests and survival curves.

The numbers of rows, the categories and the grids of times are public; which row belongs to which group is secret.
Functions that make a table of groups take ``least``: cells of a group with fewer rows are masked on shares, before
anything is opened. A masked cell shows only that it is masked. The margins of a table could reveal such a cell, so
:func:`contingency` and the others mask the whole table by default if one group is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import functions
from ._distributions import chi_square_tail, normal_tail, student_tail
from ._errors import InputError
from ._numpy import _secret
from ._secret import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

__all__ = [
    "Groups", "Outcome", "Survival", "Table", "Test", "chi_square", "contingency", "correlation", "count", "covariance",
    "group_by", "histogram", "kaplan_meier", "log_rank", "mann_whitney", "mean", "quantiles", "t_test", "variance",
]


# -- results ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Cells of groups. Those of small groups are masked: 0 on shares, with ``kept`` false.

    Attributes
    ----------
    cells : Secret
        The numbers, 0 where masked.
    kept : Secret
        True where a cell is not masked.
    """

    cells: Secret
    kept: Secret

    def reveal(self, *, to: int | None = None) -> np.ma.MaskedArray | None:
        """Show the cells that are not masked.

        Parameters
        ----------
        to : int, optional
            The party that learns them; all unless given.

        Returns
        -------
        numpy.ma.MaskedArray
            None at the other parties.
        """
        shown = self.cells._mpc.reveal(self.cells, self.kept, to=to)
        return None if shown is None else np.ma.MaskedArray(shown[0], mask=~shown[1].astype(bool))


class Groups(NamedTuple):
    """Tables by group: the numbers of rows, the sums and the means."""

    counts: Table
    sums: Table
    means: Table


class Survival(NamedTuple):
    """Tables by time: the numbers at risk, the numbers of events, and the share that survives."""

    at_risk: Table
    events: Table
    survival: Table


class Outcome(NamedTuple):
    """A revealed test: the statistic, its degrees of freedom (infinite for a normal one), the two-sided p-value."""

    statistic: float
    df: float
    pvalue: float


@dataclass(frozen=True)
class Test:
    """The outcome of a test, secret until it is revealed.

    Attributes
    ----------
    statistic : Secret
    df : Secret or float
        Degrees of freedom; public where the numbers of rows give them.
    distribution : str
        ``"t"``, ``"chi-square"`` or ``"normal"``: what the statistic is distributed as, if there is no effect.
    """

    statistic: Secret
    df: Secret | float
    distribution: str

    def reveal(self, *, to: int | None = None) -> Outcome | None:
        """Show the statistic and the degrees of freedom. The p-value is computed from them, in the clear.

        Parameters
        ----------
        to : int, optional
            The party that learns them; all unless given.

        Returns
        -------
        Outcome
            None at the other parties.
        """
        hidden = [self.statistic] + ([self.df] if isinstance(self.df, Secret) else [])
        shown = self.statistic._mpc.reveal(*hidden, to=to)
        if shown is None:
            return None
        df = float(shown[1]) if len(shown) > 1 else float(self.df)  # type: ignore[arg-type]
        return _outcome(float(shown[0]), df, self.distribution)


def _outcome(statistic: float, df: float, distribution: str) -> Outcome:
    """A test with its p-value."""
    if distribution == "t":
        p = 2 * student_tail(abs(statistic), df)
    elif distribution == "chi-square":
        p = chi_square_tail(statistic, df)
    else:
        p = 2 * normal_tail(statistic)
    return Outcome(statistic, df, min(p, 1.0))


# -- of all rows -----------------------------------------------------------------------------------


def count(where: Secret) -> Secret:
    """The number of true values.

    Parameters
    ----------
    where : Secret
        Truth values.

    Returns
    -------
    Secret
        An integer. Exact; nothing is sent.
    """
    return np.count_nonzero(where)  # type: ignore[call-overload, no-any-return]


def mean(x: Secret, axis: int | None = None) -> Secret:
    """Arithmetic means, as :func:`numpy.mean`.

    Parameters
    ----------
    x : Secret
    axis : int, optional
        All axes unless given.

    Returns
    -------
    Secret
        Relative error ``2^-19`` and two units in the last place.
    """
    return x.mean(axis)


def variance(x: Secret, axis: int | None = None, ddof: int = 1) -> Secret:
    """Variances, as :func:`numpy.var`; of a sample unless ``ddof`` is 0.

    Parameters
    ----------
    x : Secret
    axis : int, optional
        All axes unless given.
    ddof : int

    Returns
    -------
    Secret
        Error as :func:`mean`, and a unit for each of the distances from it.
    """
    return x.var(axis, ddof)


def quantiles(x: Secret, q: ArrayLike = (0.25, 0.5, 0.75), axis: int | None = None) -> Secret:
    """Quantiles, as :func:`numpy.quantile`.

    Parameters
    ----------
    x : Secret
    q : array_like
        Public, from 0 to 1.
    axis : int, optional
        All axes unless given.

    Returns
    -------
    Secret
        One unit in the last place, and half a unit times the distance between the neighbours.
    """
    return np.quantile(x, q, axis)  # type: ignore[call-overload, no-any-return]


def covariance(x: Secret, y: Secret | None = None) -> Secret:
    """The covariances of variables, as :func:`numpy.cov`.

    Parameters
    ----------
    x : Secret
        One row for each variable.
    y : Secret, optional
        More variables.

    Returns
    -------
    Secret
        Relative error ``2^-18``, and a unit times the mean size of the numbers.
    """
    return np.cov(x, y)  # type: ignore[arg-type, return-value]


def correlation(x: Secret, y: Secret | None = None) -> Secret:
    """The correlations of variables, as :func:`numpy.corrcoef`.

    Parameters
    ----------
    x : Secret
        One row for each variable, none of them constant.
    y : Secret, optional
        More variables.

    Returns
    -------
    Secret
        Error below ``2^-14``.
    """
    return np.corrcoef(x, y)  # type: ignore[arg-type, return-value]


# -- tables ----------------------------------------------------------------------------------------


def _masked(cells, counts, least, mask):
    if mask not in ("table", "cells"):
        raise InputError(f"mask is {mask!r}: 'table' masks all cells if one group is small, 'cells' the small groups")
    if not isinstance(least, (int, np.integer)) or least < 0:
        raise InputError(f"least is {least!r}: the least number of rows in a group that is shown, 0 for any")
    kept = counts >= int(least)
    if mask == "table":
        kept = np.broadcast_to(kept.all().reshape([1] * cells.ndim), cells.shape)
    return Table(np.where(kept, cells, 0), kept)  # type: ignore[call-overload]


def _categories(categories):
    found = np.asarray(categories)
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "biuf" or len(np.unique(found)) != found.size:
        raise InputError("categories are different public numbers, at least one")
    return found


def _column(x, name):
    if not isinstance(x, Secret) or x.ndim != 1 or x.size == 0:
        raise InputError(f"{name} is a secret array of one axis, with at least one number")
    return x


def _members(keys, categories):
    """A row for each category: 1 where a key is that category."""
    found = _categories(categories)
    return (_column(keys, "a key").reshape(1, -1) == found.reshape(-1, 1)).astype(int)


def histogram(x: Secret, edges: ArrayLike, *, least: int, mask: str = "table") -> Table:
    """Counts between public edges, as :func:`numpy.histogram`.

    Parameters
    ----------
    x : Secret
    edges : array_like
        Rising. A number belongs to the bin that it begins; the last bin has its upper edge too.
    least : int
        The least number of rows of a bin that is shown.
    mask : str
        ``"table"``: one small bin masks all. ``"cells"``: small bins are masked.

    Returns
    -------
    Table
        Integers. Exact. One comparison for each number and edge.
    """
    counts, _ = np.histogram(x, edges)  # type: ignore[call-overload]
    return _masked(counts, counts, least, mask)


def contingency(
    x: Secret, y: Secret, x_categories: ArrayLike, y_categories: ArrayLike, *, least: int, mask: str = "table",
) -> Table:
    """Counts of rows for each pair of public categories.

    Parameters
    ----------
    x, y : Secret
        The two categories of each row. A row of none of them is not counted.
    x_categories, y_categories : array_like
        Public numbers.
    least : int
        The least number of rows of a cell that is shown.
    mask : str
        ``"table"``: one small cell masks all. ``"cells"``: small cells are masked; margins may tell them.

    Returns
    -------
    Table
        Integers, a row for each category of ``x``. Exact. A test for equality for each row and category.
    """
    counts = _counts(x, y, x_categories, y_categories)
    return _masked(counts, counts, least, mask)


def _counts(x, y, x_categories, y_categories):
    if np.shape(x) != np.shape(y):
        raise InputError(f"the two categories of rows have shapes {np.shape(x)} and {np.shape(y)}")
    return _members(x, x_categories) @ _members(y, y_categories).T


def group_by(keys: Secret, categories: ArrayLike, values: Secret, *, least: int, mask: str = "table") -> Groups:
    """Numbers of rows, sums and means of each group.

    Parameters
    ----------
    keys : Secret
        The category of each row. A row of none of them is in no group.
    categories : array_like
        Public numbers.
    values : Secret
        A number for each row.
    least : int
        The least number of rows of a group that is shown.
    mask : str
        ``"table"``: one small group masks all. ``"cells"``: small groups are masked.

    Returns
    -------
    Groups
        Counts and sums are exact; means have the relative error ``2^-18`` and two units in the last place. An empty
        group has the mean 0.
    """
    if np.shape(keys) != np.shape(values):
        raise InputError(f"keys and values have shapes {np.shape(keys)} and {np.shape(values)}")
    members = _members(keys, categories)
    counts = members.sum(1)
    sums = members @ _column(values, "a group's values")
    means = _ratio(sums, counts, keys.size)
    tables = [_masked(cells, counts, least, mask) for cells in (counts, sums, means)]
    return Groups(*tables)


def _ratio(x, counts, most):
    """``x / counts``, 0 for a count of 0. Counts up to ``most`` are made fractions, whose inverses keep their digits."""
    nonzero = counts + (counts == 0).astype(int)
    inverse = functions.reciprocal_positive(nonzero.astype(float) * (1.0 / most))
    return x * (1.0 / most) * inverse


# -- tests -----------------------------------------------------------------------------------------


def t_test(x: Secret, y: Secret, *, equal_var: bool = False) -> Test:
    """Welch's t-test of two samples, or Student's with ``equal_var``.

    Parameters
    ----------
    x, y : Secret
        Samples of two numbers or more.
    equal_var : bool
        Student's test: both samples are drawn with the same variance.

    Returns
    -------
    Test
        Relative error below ``2^-12`` of the statistic and of the degrees of freedom, for deviations from 0.1 to ``2^19``.
    """
    n, m = _column(x, "a sample").size, _column(y, "a sample").size
    if n < 2 or m < 2:
        raise InputError(f"a t-test of samples of {n} and {m} numbers: each takes two or more")
    gap = x._real().mean() - y._real().mean()
    a, b = x._real().var(ddof=1), y._real().var(ddof=1)
    fewer = min(n, m)
    df: Secret | float
    if equal_var:
        df = float(n + m - 2)
        pooled = a * ((n - 1) / df) + b * ((m - 1) / df)
        root = np.sqrt(pooled * (fewer / n + fewer / m))  # type: ignore[call-overload]
    else:
        root = np.sqrt(a * (fewer / n) + b * (fewer / m))  # type: ignore[call-overload]
        # Quotients of roots, since a variance may be beyond the divisors that there are.
        part = np.square(np.sqrt(a * (fewer / n)) / root)  # type: ignore[call-overload]
        rest = 1.0 - part
        df = (fewer - 1) / (part * part * ((fewer - 1) / (n - 1)) + rest * rest * ((fewer - 1) / (m - 1)))
    # An inverse of the root would have few digits where the root is large.
    return Test(gap * math.sqrt(fewer) / root, df, "t")


def chi_square(x: Secret, y: Secret, x_categories: ArrayLike, y_categories: ArrayLike) -> Test:
    """Pearson's chi-square test of independence of two categories, without a correction for continuity.

    Parameters
    ----------
    x, y : Secret
        The two categories of each row.
    x_categories, y_categories : array_like
        Public numbers, two or more each, of which each row has one. Every one should occur.

    Returns
    -------
    Test
        Relative error below ``2^-14``, for up to 2^18 rows.
    """
    counts = _counts(x, y, x_categories, y_categories)
    r, c = counts.shape
    if r < 2 or c < 2:
        raise InputError(f"a chi-square test of {r} and {c} categories: each takes two or more")
    n = x.size
    product = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True)
    # n times the distance from what is expected: whole numbers, so exact.
    gap = (counts * n - product).astype(float) * (1.0 / n)
    expected = (product + (product == 0).astype(int)).astype(float) * (1.0 / n)
    return Test((gap * (gap / expected)).sum(), float((r - 1) * (c - 1)), "chi-square")


def mann_whitney(x: Secret, y: Secret) -> tuple[Secret, Test]:
    """The Mann-Whitney U test of two samples, with midranks for ties.

    Parameters
    ----------
    x, y : Secret
        Samples of one number or more.

    Returns
    -------
    tuple
        U of ``x``, exact, and the test: the magnitude of a normal statistic, with corrections for ties and for
        continuity. Its relative error is below ``2^-10``. The statistic of samples whose numbers are all equal is undefined.
    """
    n, m = _column(x, "a sample").size, _column(y, "a sample").size
    total = n + m
    values = np.concatenate([x, y])
    labels = _secret(x._mpc, np.repeat([0, 1], [n, m]))
    # Equal numbers keep their order, so those of x come first.
    ordered, _, (of_y,) = functions.sort_with(values, [labels], 0)
    of_x = 1 - of_y
    before_y, before_x = _running(of_y), _running(of_x)
    new = np.concatenate([values[:1] * 0 == 0, ordered[1:] != ordered[:-1]])
    place, seen = _run_starts(new, [np.arange(total), before_x - of_x])
    inside = np.arange(total) - place
    # Pairs with the number of x above, and pairs of equal numbers.
    above = (of_x * before_y).sum()
    equal = (of_y * (before_x - seen)).sum()
    u = above.astype(float) + equal.astype(float) * 0.5
    ties = (inside * (inside + 1)).sum() * 3
    share = functions.mul_scalar_to(ties, 1.0 / (total**3 - total), x._mpc.frac_bits)
    share = Secret(x._mpc, share._handle, np.dtype(float))
    scale = math.sqrt(n * m * (total + 1) / 12)
    z = (abs(u - n * m / 2) - 0.5) * (1.0 / scale) * functions.inv_sqrt((1.0 - share).reshape(1)).reshape(())
    return u, Test(z, math.inf, "normal")


def _running(x):
    """Running sums of one axis. Nothing is sent."""
    step = 1
    while step < x.size:
        x = x + np.pad(x[:-step], (step, 0))
        step *= 2
    return x


def _run_starts(new, columns):
    """For each row the numbers that the columns have where its run of equal keys begins."""
    known = new.astype(int)
    carried = [known * column for column in columns]
    values = np.stack(carried)
    step = 1
    while step < new.size:
        # Where no beginning is known yet, the number stands 0: what the row before knows is added.
        open_rows = 1 - known
        values = values + np.pad(values[:, :-step], ((0, 0), (step, 0))) * open_rows
        known = known + np.pad(known[:-step], (step, 0)) * open_rows
        step *= 2
    return values


# -- survival --------------------------------------------------------------------------------------


def _grid(times):
    grid = np.asarray(times, float)
    if grid.ndim != 1 or grid.size == 0 or not np.all(np.diff(grid) > 0):
        raise InputError("the grid of times is public and rising, with at least one time")
    return grid


def _at_risk(times, events, grid):
    """For each time of the grid the rows at risk and the rows with an event, as 0 and 1."""
    if np.shape(times) != np.shape(events):
        raise InputError(f"times and events have shapes {np.shape(times)} and {np.shape(events)}")
    beyond = (_column(times, "times").reshape(1, -1) > grid.reshape(-1, 1)).astype(int)
    risk = np.concatenate([beyond[:1] * 0 + 1, beyond[:-1]], 0)
    return risk, (risk - beyond) * events.astype(bool).astype(int)


def kaplan_meier(times: Secret, events: Secret, grid: ArrayLike, *, least: int, mask: str = "cells") -> Survival:
    """The Kaplan-Meier estimate on a public grid of times.

    Parameters
    ----------
    times : Secret
        When each row had its event or was last seen.
    events : Secret
        Truth values: false where a row was last seen without an event.
    grid : array_like
        Rising times. A time between two of them counts as the later one; one behind the last is never reached.
    least : int
        The least number of rows at risk for which a time is shown.
    mask : str
        ``"cells"``: times with fewer rows are masked. ``"table"``: one of them masks all.

    Returns
    -------
    Survival
        Counts are exact. The survival has an error of ``2^-17`` for each time up to it.
    """
    grid = _grid(grid)
    risk, had = _at_risk(times, events, grid)
    at_risk, dead = risk.sum(1), had.sum(1)
    kept = 1.0 - _ratio(dead.astype(float), at_risk, times.size)
    step = 1
    while step < grid.size:
        kept = np.concatenate([kept[:step], kept[step:] * kept[:-step]])
        step *= 2
    tables = [_masked(cells, at_risk, least, mask) for cells in (at_risk, dead, kept)]
    return Survival(*tables)


def log_rank(times: Secret, events: Secret, groups: Secret, grid: ArrayLike) -> Test:
    """The log-rank test of two groups' survival, on a public grid of times.

    Parameters
    ----------
    times, events : Secret
        As :func:`kaplan_meier`.
    groups : Secret
        Truth values: the group of each row.
    grid : array_like
        Rising times.

    Returns
    -------
    Test
        A chi-square statistic with one degree of freedom. Relative error below ``2^-10``; each time of the grid adds
        ``2^-17`` events.
    """
    grid = _grid(grid)
    if np.shape(times) != np.shape(groups):
        raise InputError(f"times and groups have shapes {np.shape(times)} and {np.shape(groups)}")
    risk, had = _at_risk(times, events, grid)
    member = groups.astype(bool).astype(int)
    n, d = risk.sum(1), had.sum(1)
    n_one, d_one = risk @ member, had @ member
    most = times.size
    share = _ratio(n_one.astype(float), n, most)
    gap = (d_one - d * share).sum()
    # d (n - d) / (n - 1) as a share of d.
    others = _ratio((n - d).astype(float), np.maximum(n - 1, 0), most)
    spread = (d * (share * (1.0 - share)) * others).sum()
    return Test(gap * (gap / spread), 1.0, "chi-square")

"""Analyses: functions of secret arrays that a cluster's servers call on the rows of data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _trefoil, stats
from ._errors import InputError
from ._secret import Secret
from ._session import FRAC_BITS, Mpc

if TYPE_CHECKING:
    from collections.abc import Callable

#: The name of a result that has none.
_ONLY = "result"

#: The numbers of a test.
_TEST = ("statistic", "df")


class Rows:
    """Rows of data sets, as an analysis gets them. ``rows["age"]`` is a column.

    Parameters
    ----------
    values : Secret
        The numbers of all rows: ``(rows, ..)``, one column for each name if there are names.
    target : Secret, optional
        The label of each row: a class from 0 on, or a number.
    columns : sequence of str
        The names of the columns of ``values``.
    label : str, optional
        The name of the column with the labels.

    Attributes
    ----------
    values, target, columns, label
        As given.

    Notes
    -----
    :meth:`Cluster.analyse` makes it of data sets. To try an analysis in a local session, where a number that leaves its
    range is an error, make one of test data: ``Rows(mpc.secret(X), mpc.secret(y), columns=["age", "dose"])``.
    """

    def __init__(
        self, values: Secret, target: Secret | None = None, *, columns: Sequence[str] = (), label: str | None = None,
        _widths: Sequence[int] | None = None,
    ) -> None:
        self.values = values
        self.target = target
        self.columns: list[str] = list(columns)
        self.label = label
        # A column of categories is as many numbers as it has codes.
        widths = [1] * len(self.columns) if _widths is None else list(_widths)
        if self.columns and (values.ndim != 2 or sum(widths) != values.shape[1]):
            raise InputError(f"{len(self.columns)} names of columns for values of shape {values.shape}")
        ends = np.cumsum(widths, dtype=int).tolist()
        self._places = {name: (end - width, end) for name, width, end in zip(self.columns, widths, ends)}

    def __len__(self) -> int:
        """The number of rows."""
        return self.values.shape[0]

    def __repr__(self) -> str:
        return f"Rows({len(self)} rows of {self.columns or list(self.values.shape[1:])})"

    def __getitem__(self, name: str) -> Secret:
        """The column of this name: one number for each row, or as many as its categories have codes."""
        if name == self.label and self.target is not None:
            return self.target
        if name not in self._places:
            known = [*self.columns, *([self.label] if self.label else [])]
            raise InputError(f"there is no column {name!r}; the columns are {', '.join(map(repr, known)) or 'without names'}")
        start, end = self._places[name]
        return self.values[:, start] if end == start + 1 else self.values[:, start:end]


def record(
    tensors: Sequence[tuple[str, list[int], int, list[tuple[str, int]]]], count: int,
    program: Callable[[Rows], Any],
) -> tuple[Any, list[tuple[str, Any]]]:
    """Call a program on rows without numbers. Returns the session with its steps, and the results by name."""
    shapes = [[count, *dims] for _, dims, _, _ in tensors]
    fracs = [frac for _, _, frac, _ in tensors]
    session, handles = _trefoil.Session.recording(shapes, fracs)
    mpc = Mpc(session, FRAC_BITS)
    try:
        arrays = [
            Secret(mpc, handle, np.dtype(np.int64 if frac == 0 else np.float64)) for handle, frac in zip(handles, fracs)
        ]
        rows = _rows(tensors, arrays)
        results = _named(program(rows))
        for name, value in results.items():
            if value._mpc is not mpc:
                raise InputError(f"the analysis returns {name!r}, which is of another session")
        return session, [(name, value._handle) for name, value in results.items()]
    except BaseException:
        session.close(False)
        raise


def _rows(tensors, arrays):
    """Rows of the tensors of data sets, the labels last if there are several."""
    # Rows of more axes than one have no columns.
    places = tensors[0][3] if arrays[0].ndim == 2 else []
    columns, widths = [name for name, _ in places], [width for _, width in places]
    if len(arrays) == 1:
        return Rows(arrays[0], columns=columns, _widths=widths)
    labels, named = arrays[-1], tensors[-1][3]
    label = named[0][0] if len(named) == 1 else tensors[-1][0]
    if labels.ndim == 2 and labels.frac_bits == 0:
        # One-hot codes: the class is their sum with public weights, for which nothing is sent.
        labels = (labels * np.arange(labels.shape[1])).sum(axis=1)
    elif labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    return Rows(arrays[0], labels, columns=columns, label=label, _widths=widths)


def _named(results, path=""):
    """The secret arrays of what a program returns, by name. Names of parts follow those of the whole behind a point."""
    under = lambda part: f"{path}.{part}" if path else str(part)
    if isinstance(results, Secret):
        return {path or _ONLY: results}
    if isinstance(results, stats.Table):
        return {under("cells"): results.cells, under("kept"): results.kept}
    if isinstance(results, stats.Test):
        df = results.df
        if not isinstance(df, Secret):
            # So that whoever gets the statistic gets its degrees of freedom; 0 are those of a normal distribution.
            df = results.statistic * 0 + (df if np.isfinite(df) else 0)
        ends = [f"{what} of {results.distribution}" for what in _TEST]
        return {under(ends[0]): results.statistic, under(ends[1]): df}
    if isinstance(results, Mapping):
        parts = results.items()
    elif isinstance(results, tuple) and hasattr(results, "_fields"):
        parts = zip(results._fields, results)
    elif isinstance(results, (tuple, list)):
        parts = enumerate(results)
    else:
        what = f"for {path!r}" if path else "from the analysis"
        raise InputError(f"{type(results).__name__} {what} is no result: return secret arrays, statistics, or dicts of them")
    return {name: value for part, results in parts for name, value in _named(results, under(part)).items()}


def shown(results: dict[str, np.ndarray]) -> dict[str, Any]:
    """Results as they are shown: masked tables as masked arrays, and tests with their p-values."""
    whole: dict[str, Any] = {}
    for name, value in results.items():
        path, _, part = name.rpartition(".")
        if part == "cells" and f"{path}.kept" in results:
            whole[path] = np.ma.MaskedArray(value, mask=~results[f"{path}.kept"].astype(bool))
        elif part == "kept" and f"{path}.cells" in results:
            continue
        elif (test := _test(results, name, path, part)) is not None:
            whole[path] = test
        elif not (part.startswith("df of ") and f"{path}.statistic of {part[6:]}" in results):
            whole[name] = value
    return whole


def _test(results, name, path, part):
    """The test whose statistic this is, if it is one's."""
    what, _, distribution = part.partition(" of ")
    df = results.get(f"{path}.df of {distribution}")
    if what != _TEST[0] or df is None:
        return None
    freedom = np.inf if distribution == "normal" else float(df)
    return stats._outcome(float(results[name]), freedom, distribution)

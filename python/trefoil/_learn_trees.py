"""Decision trees and gradient boosting, by histograms over secret bins.

Nothing that the parties do depends on a number: all trees have their full depth, all nodes of a level look at all
edges of all columns, and all rows stand in all nodes, with a secret 0 or 1 for whether they belong there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import functions, np
from ._errors import InputError
from ._learn_base import (
    FINE, Classifier, Estimator, Probable, Regressor, Scale, column_of, counted, kept, positive, scaled, times,
)
from ._secret import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

#: Comparisons that are made at a time.
_AT_ONCE = 1 << 20

#: Sums over all rows are scaled down to this many: those of few rows keep their digits.
_SCALED_ROWS = 64.0

#: A split improves its node by more than this share of what the node reaches without it, and a constant.
_LEAST_GAIN, _LEAST_GAIN_AT_ALL = 2.0**-15, 2.0**-20


# -- bins ------------------------------------------------------------------------------------------


def _edges(X: Secret, bins: Any, edges: Secret | ArrayLike | None, sample: int) -> Secret:
    """The edges between bins, ``(columns, bins - 1)``."""
    rows, columns = X.shape
    if edges is not None:
        found = edges if isinstance(edges, Secret) else functions.constant(X._mpc, np.asarray(edges, np.float64))
        found = found.astype(float)
        if found.ndim == 1:
            found = np.broadcast_to(found, (columns, found.size))
        if found.ndim != 2 or found.shape[0] != columns or found.shape[1] < 1:
            raise InputError(f"edges have shape {found.shape}; each of {columns} columns has rising ones")
        return found
    count = counted(bins, "bins", 2, 256) - 1
    taken = np.unique(np.linspace(0, rows - 1, min(rows, sample)).astype(np.int64))
    part = X if taken.size == rows else X[taken]
    return np.quantile(part, np.arange(1, count + 1) / (count + 1), axis=0).T


def _below(X: Secret, edges: Secret) -> Secret:
    """1 where a number is below an edge: ``(rows, columns * edges)``, integers."""
    rows, columns = X.shape
    step = max(1, _AT_ONCE // edges.size)
    parts = []
    for start in range(0, rows, step):
        part = X[start : start + step]
        parts.append((part.reshape(-1, columns, 1) < edges).astype(int).reshape(-1, edges.size))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 0)


# -- trees -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limits:
    """The public shape of trees, and the numbers that limit their splits and leaves."""

    depth: int
    least: float
    penalty: float


@dataclass(frozen=True)
class _Trees:
    """Trees of one shape.

    Attributes
    ----------
    splits : list of Secret
        For each level ``(trees, nodes, columns * edges)``: 1 at the chosen edge. Rows below it go left; all go right
        where there is none. Node ``i`` of ``m`` has the nodes ``i`` and ``i + m`` of the next level to its left and
        right.
    values : Secret
        ``(trees, leaves, outputs)``.
    """

    splits: list[Secret]
    values: Secret

    @staticmethod
    def joined(all_: Sequence[_Trees]) -> _Trees:
        levels = zip(*(trees.splits for trees in all_))
        values = np.concatenate([trees.values for trees in all_], 0)
        return _Trees([np.concatenate(list(level), 0) for level in levels], values)


def _ratio(sums: Secret, penalty: float, unit: float) -> tuple[Secret, Secret]:
    """Sums of slopes over those of curvatures, which come last, and the former times these ratios added up."""
    frac = sums._mpc.frac_bits
    fine = scaled(sums, unit, FINE)
    curve = fine[..., -1:] + penalty * unit
    slope = fine[..., :-1]
    ratio = times(slope, kept("reciprocal_positive", curve), frac)
    return ratio, times(slope, ratio, FINE).sum(-1)


def _grow(below: Secret, slopes: Secret, curves: Secret | None, limits: _Limits) -> tuple[_Trees, Secret]:
    """Trees for slopes ``(rows, trees, outputs)``, and the leaves of the rows, ``(rows, trees, leaves)``.

    Without curvatures ``(rows, trees)`` each row has 1.
    """
    rows, trees, outputs = slopes.shape
    places = below.shape[1]
    unit = min(1.0, _SCALED_ROWS / rows)
    kind = slopes.dtype
    if curves is None:
        curves = functions.constant(below._mpc, np.ones((rows, trees), kind))
    last = curves.reshape(rows, trees, 1)
    weights = np.concatenate([slopes, last], 2).reshape(rows, trees, 1, outputs + 1)
    inside: Secret | None = None
    sums = left_sums = _histogram(below, weights)
    splits = []
    for level in range(limits.depth):
        nodes = 1 << level
        if level:
            # The rows that went right are those of the node without those that went left.
            right_sums = sums - left_sums
            sums = np.concatenate([left_sums, right_sums], 2)
        whole = weights.sum(0)
        split = _best(sums, whole, limits, unit)
        splits.append(split)
        go = functions.bilinear("matmul", below, split.reshape(trees * nodes, places), transpose_rhs=True)
        go = go.reshape(rows, trees, nodes)
        left = weights * go.reshape(rows, trees, nodes, 1)
        if level + 1 < limits.depth:
            left_sums = _histogram(below, left)
        weights = np.concatenate([left, weights - left], 2)
        went = go if inside is None else inside * go
        inside = np.concatenate([went, (1 if inside is None else inside) - went], 2)
    leaves = weights.sum(0)
    if limits.penalty == 0.0:
        leaves = leaves + _one_if_empty(leaves)
    values, _ = _ratio(leaves, limits.penalty, unit)
    assert inside is not None
    return _Trees(splits, values), inside


def _histogram(below: Secret, weights: Secret) -> Secret:
    """The sums of the weights of rows ``(rows, trees, nodes, outputs)`` below each edge, which comes first."""
    sums = functions.bilinear("matmul", below, weights.reshape(weights.shape[0], -1), transpose_lhs=True)
    return sums.reshape(below.shape[1], *weights.shape[1:])


def _best(sums: Secret, whole: Secret, limits: _Limits, unit: float) -> Secret:
    """For each node 1 at the edge whose split reaches most, ``(trees, nodes, edges)``; zeros if none improves it."""
    left, right = sums, whole - sums
    allowed = None
    if limits.least > 0.0:
        both = np.concatenate([left[..., -1], right[..., -1]], 0)
        enough = (both >= limits.least).astype(int)
        # Sides that are too small count as of one more, so that none is divided by 0.
        both = np.concatenate([left, right], 0)
        zeros = np.zeros((*both.shape[:-1], both.shape[-1] - 1), np.int64)
        both = both + np.concatenate([zeros, (1 - enough).reshape(*enough.shape, 1)], 3)
        allowed = enough[: sums.shape[0]] * enough[sums.shape[0] :]
    else:
        both = np.concatenate([left, right], 0)
    _, reached = _ratio(both, limits.penalty, unit)
    gain = reached[: sums.shape[0]] + reached[sums.shape[0] :]
    if allowed is not None:
        gain = gain * allowed
    best, place = functions.top1(gain.transpose(1, 2, 0), 2)
    if limits.penalty == 0.0:
        whole = whole + _one_if_empty(whole)
    _, already = _ratio(whole, limits.penalty, unit)
    worth = best.reshape(already.shape) > already + scaled(already, _LEAST_GAIN, FINE) + _LEAST_GAIN_AT_ALL
    chosen = functions.one_hot(place.reshape(already.shape), sums.shape[0])
    return chosen * worth.astype(int).reshape(*already.shape, 1)


def _one_if_empty(sums: Secret) -> Secret:
    """Zeros of the shape of sums, but 1 for curvatures that are 0."""
    empty = (sums[..., -1:] == 0).astype(int)
    zeros = np.zeros((*sums.shape[:-1], sums.shape[-1] - 1), np.int64)
    return np.concatenate([zeros, empty], -1).astype(sums.dtype)


def _added(trees: _Trees, inside: Secret, kinds: int) -> Secret:
    """The values of the rows' leaves, those of every ``kinds``-th tree added up: ``(rows, kinds * outputs)``."""
    rows, count, leaves = inside.shape
    outputs = trees.values.shape[2]
    by_kind = inside.reshape(rows, count // kinds, kinds, leaves).transpose(2, 0, 1, 3).reshape(kinds, rows, -1)
    values = trees.values.reshape(count // kinds, kinds, leaves, outputs).transpose(1, 0, 2, 3)
    values = values.reshape(kinds, -1, outputs)
    return (by_kind @ values).transpose(1, 0, 2).reshape(rows, kinds * outputs)


def _descend(X: Secret, edges: Secret, trees: _Trees) -> Secret:
    """The leaves of rows, ``(rows, trees, leaves)``: 1 in one of each tree."""
    rows, columns = X.shape
    count, places = trees.splits[0].shape[0], edges.size
    nodes = [level.shape[1] for level in trees.splits]
    splits = np.concatenate([level.reshape(-1, places) for level in trees.splits], 0)
    if count * sum(nodes) < places:
        # One comparison for each node, with the number of its column.
        thresholds = splits @ edges.reshape(-1)
        of_column = splits.reshape(-1, columns, edges.shape[1]).sum(2)
        numbers = functions.bilinear("matmul", X, of_column, transpose_rhs=True)
        go = (numbers < thresholds).astype(int)
    else:
        # One comparison for each edge.
        go = functions.bilinear("matmul", _below(X, edges), splits, transpose_rhs=True)
    inside: Secret | None = None
    start = 0
    for width in nodes:
        level = go[:, start : start + count * width].reshape(rows, count, width)
        start += count * width
        went = level if inside is None else inside * level
        inside = np.concatenate([went, (1 if inside is None else inside) - went], 2)
    assert inside is not None
    return inside


# -- estimators ------------------------------------------------------------------------------------

_PARAMETERS = """bins : int
        Public: bins of each column, 2 to 256.
    edges : Secret or array_like, optional
        Rising edges, for all columns ``(edges,)`` or for each ``(columns, edges)``. Unless given they are secret
        quantiles of up to ``sample`` rows in even distances.
    sample : int
        Public."""

_STRUCTURE = """edges_ : Secret
        The edges of each column.
    features_ : Secret
        ``(trees, nodes, columns)``: 1 at the column by which a node splits, as integers; zeros where all rows go
        right. Nodes are in the order of levels; node ``i`` of ``m`` in a level has the nodes ``i`` and ``i + m`` of
        the next to its left and right.
    thresholds_ : Secret
        ``(trees, nodes)``: rows with a smaller number go left.
    values_ : Secret
        ``(trees, leaves, outputs)``."""


class _Tree(Estimator):
    """What trees have in common."""

    bins: int
    edges: Secret | ArrayLike | None
    sample: int
    edges_: Secret
    features_: Secret
    thresholds_: Secret
    values_: Secret
    n_features_in_: int

    def _bin(self, X: Secret) -> Secret:
        self.edges_ = _edges(X, self.bins, self.edges, counted(self.sample, "sample", 2))
        return _below(X, self.edges_)

    def _plant(self, trees: _Trees) -> None:
        self._trees = trees
        columns, edges = self.edges_.shape
        nodes = [level.shape[1] for level in trees.splits]
        whole = np.concatenate(trees.splits, 1)
        self.features_ = whole.reshape(-1, sum(nodes), columns, edges).sum(3)
        self.thresholds_ = whole @ self.edges_.reshape(-1)
        self.values_ = trees.values

    def _raw(self, X: Secret, kinds: int) -> Secret:
        X = self._ready(X)
        return _added(self._trees, _descend(X, self.edges_, self._trees), kinds)


class _Target:
    """Numbers of mean 0 and variance 1, and the way back."""

    def __init__(self, y: Secret) -> None:
        scale = Scale.of(y.astype(float).reshape(-1, 1))
        self.rows, self._rest = scale.rows()
        self._spread, self._level = scale.spread.back, scale.mean

    def own(self, x: Secret) -> Secret:
        return ((x + self._rest) * self._spread + self._level).reshape(-1)


class _TreeRegressor(_Tree, Regressor):
    """Trees whose values are numbers on the target's scale."""

    _target: _Target

    def predict(self, X: Secret) -> Secret:
        raw = self._raw(X, 1)
        return self._target.own(raw)


class DecisionTreeClassifier(_Tree, Classifier):
    """A decision tree by Gini impurity, as ``sklearn.tree.DecisionTreeClassifier`` on binned columns.

    Parameters
    ----------
    classes : sequence
        The public list of classes.
    max_depth : int
        Public, 1 to 10. The tree has this depth everywhere.
    min_samples_leaf : int
        Public: a split leaves as many rows on both sides.
    PARAMETERS

    Attributes
    ----------
    classes_ : numpy.ndarray
    STRUCTURE

    Notes
    -----
    A split is at an edge, the first among those that reach most. Which edge is chosen may differ from exact
    arithmetic where two reach sums of squares that differ by less than ``2^-15`` of them; a split is made if it
    improves its node by more than that. Shares of classes in a leaf have an error below ``2^-13``.

    Cost: a comparison of each number with each edge, once. A level of ``m`` nodes costs ``m`` products of each row,
    and an argmax of ``columns * edges`` for each node; memory is ``rows * columns * edges`` words.
    """

    def __init__(
        self, classes: Sequence[Any] = (0, 1), *, max_depth: int = 4, min_samples_leaf: int = 1, bins: int = 32,
        edges: Secret | ArrayLike | None = None, sample: int = 1024,
    ) -> None:
        self.classes = classes
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.bins = bins
        self.edges = edges
        self.sample = sample

    def fit(self, X: Secret, y: Secret) -> DecisionTreeClassifier:
        """Grow the tree.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret
            The class of each row.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For shapes that do not fit, fewer than two classes, or parameters out of range.
        """
        X = self._begin(X)
        least = counted(self.min_samples_leaf, "min_samples_leaf")
        limits = _Limits(counted(self.max_depth, "max_depth", 1, 10), least, 0.0)
        of_class = self._members(X, y)
        trees, _ = _grow(self._bin(X), of_class.reshape(X.shape[0], 1, -1), None, limits)
        self._plant(trees)
        return self._done()

    def predict_proba(self, X: Secret) -> Secret:
        """The shares of classes in the leaf of each row.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
            ``(rows, classes)``.
        """
        return self._raw(X, 1)

    def _scores(self, X: Secret) -> Secret:
        return self._raw(X, 1)


class DecisionTreeRegressor(_TreeRegressor):
    """A decision tree by squared error, as ``sklearn.tree.DecisionTreeRegressor`` on binned columns.

    Parameters
    ----------
    max_depth : int
        Public, 1 to 10. The tree has this depth everywhere.
    min_samples_leaf : int
        Public: a split leaves as many rows on both sides.
    PARAMETERS

    Attributes
    ----------
    STRUCTURE

    Notes
    -----
    As :class:`DecisionTreeClassifier`. Values are in standard deviations of ``y``, from its mean; their error is below
    ``2^-12``.
    """

    def __init__(
        self, *, max_depth: int = 4, min_samples_leaf: int = 1, bins: int = 32, edges: Secret | ArrayLike | None = None,
        sample: int = 1024,
    ) -> None:
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.bins = bins
        self.edges = edges
        self.sample = sample

    def fit(self, X: Secret, y: Secret) -> DecisionTreeRegressor:
        """Grow the tree.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret
            A number for each row.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For shapes that do not fit, or parameters out of range.
        """
        X = self._begin(X)
        least = counted(self.min_samples_leaf, "min_samples_leaf")
        limits = _Limits(counted(self.max_depth, "max_depth", 1, 10), least, 0.0)
        target = _Target(column_of(y, X.shape[0]))
        trees, _ = _grow(self._bin(X), target.rows.reshape(-1, 1, 1), None, limits)
        self._target = target
        self._plant(trees)
        return self._done()


class _Boosting(_Tree):
    n_estimators: int
    learning_rate: float
    max_depth: int
    reg_lambda: float
    min_child_weight: float

    def _limits(self, least_penalty: float) -> tuple[int, float, _Limits]:
        rounds = counted(self.n_estimators, "n_estimators", 1, 10000)
        rate = positive(self.learning_rate, "learning_rate")
        penalty = positive(self.reg_lambda, "reg_lambda", least_penalty, beyond=False)
        least = positive(self.min_child_weight, "min_child_weight", beyond=False)
        return rounds, rate, _Limits(counted(self.max_depth, "max_depth", 1, 10), least, penalty)


class GradientBoostingClassifier(_Boosting, Probable):
    """Gradient boosted trees for classes, by the splits and leaves of XGBoost's histogram method.

    Names are those of ``sklearn.ensemble.GradientBoostingClassifier``; ``reg_lambda`` and ``min_child_weight`` are
    XGBoost's. More than two classes have a tree each in every round.

    Parameters
    ----------
    classes : sequence
        The public list of classes.
    n_estimators : int
        Public: rounds.
    learning_rate : float
        Public.
    max_depth : int
        Public, 1 to 10. All trees have this depth everywhere.
    reg_lambda : float
        Public: added to the sum of second derivatives of a leaf, from 0.125 on.
    min_child_weight : float
        Public: the least sum of second derivatives on each side of a split; 0 for any.
    PARAMETERS

    Attributes
    ----------
    classes_ : numpy.ndarray
    STRUCTURE

    Notes
    -----
    As :class:`DecisionTreeClassifier`. The first score is the logarithm of the classes' odds or shares. A value is
    the sum of first derivatives over that of second ones and ``reg_lambda``, times ``learning_rate``, and below
    ``2^10``.

    Cost of a round: a sigmoid of each row, or a softmax; for each tree and level of ``m`` nodes four products of each
    row and node, and an argmax of ``columns * edges`` for each node.
    """

    def __init__(
        self, classes: Sequence[Any] = (0, 1), *, n_estimators: int = 100, learning_rate: float = 0.1,
        max_depth: int = 3, reg_lambda: float = 1.0, min_child_weight: float = 1.0, bins: int = 32,
        edges: Secret | ArrayLike | None = None, sample: int = 1024,
    ) -> None:
        self.classes = classes
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.reg_lambda = reg_lambda
        self.min_child_weight = min_child_weight
        self.bins = bins
        self.edges = edges
        self.sample = sample

    def fit(self, X: Secret, y: Secret) -> GradientBoostingClassifier:
        """Grow the trees, one round after the other.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret
            The class of each row.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For shapes that do not fit, fewer than two classes, or parameters out of range.
        """
        X = self._begin(X)
        rounds, rate, limits = self._limits(0.125)
        of_class = self._members(X, y)
        below = self._bin(X)
        count = of_class.sum(0)
        # A class without a row counts as one of a single row.
        logs = (count + (count == 0).astype(int)).astype(float).log()
        if self.classes_.size == 2:
            of_class = of_class[:, 1:]
            self._start: Secret = logs[1:] - logs[:1]
        else:
            self._start = logs - float(np.log(X.shape[0]))
        scores = np.broadcast_to(self._start, of_class.shape)
        grown = []
        for _ in range(rounds):
            share = scores.sigmoid() if self.classes_.size == 2 else scores.softmax(1)
            # XGBoost's second derivative of a softmax is twice that of one class alone.
            curves = share * (1.0 - share) * (1 if self.classes_.size == 2 else 2)
            trees, inside = _grow(below, (of_class - share).reshape(*share.shape, 1), curves, limits)
            trees = _Trees(trees.splits, trees.values * rate)
            scores = scores + _added(trees, inside, share.shape[1])
            grown.append(trees)
        self._plant(_Trees.joined(grown))
        return self._done()

    def _scores(self, X: Secret) -> Secret:
        X = self._ready(X)
        return self._raw(X, self._start.size) + self._start


class GradientBoostingRegressor(_Boosting, _TreeRegressor):
    """Gradient boosted trees for numbers, as ``sklearn.ensemble.GradientBoostingRegressor`` on binned columns.

    Parameters
    ----------
    n_estimators : int
        Public: rounds.
    learning_rate : float
        Public.
    max_depth : int
        Public, 1 to 10. All trees have this depth everywhere.
    reg_lambda : float
        Public: added to the number of rows of a leaf; 0 for scikit-learn's trees.
    min_child_weight : float
        Public: the least number of rows on each side of a split, at least 1.
    PARAMETERS

    Attributes
    ----------
    STRUCTURE

    Notes
    -----
    As :class:`DecisionTreeRegressor`. Values have been multiplied by ``learning_rate``.

    Cost of a round: for each level of ``m`` nodes three products of each row and node, and an argmax of ``columns *
    edges`` for each node.
    """

    def __init__(
        self, *, n_estimators: int = 100, learning_rate: float = 0.1, max_depth: int = 3, reg_lambda: float = 1.0,
        min_child_weight: float = 1.0, bins: int = 32, edges: Secret | ArrayLike | None = None, sample: int = 1024,
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.reg_lambda = reg_lambda
        self.min_child_weight = min_child_weight
        self.bins = bins
        self.edges = edges
        self.sample = sample

    def fit(self, X: Secret, y: Secret) -> GradientBoostingRegressor:
        """Grow the trees, one after the other.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret
            A number for each row.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For shapes that do not fit, or parameters out of range.
        """
        X = self._begin(X)
        rounds, rate, limits = self._limits(0.0)
        if limits.least < 1.0:
            raise InputError(f"min_child_weight is {limits.least:g}: the number of rows on a side, at least 1")
        target = _Target(column_of(y, X.shape[0]))
        below = self._bin(X)
        left, grown = target.rows, []
        for _ in range(rounds):
            trees, inside = _grow(below, left.reshape(-1, 1, 1), None, limits)
            trees = _Trees(trees.splits, trees.values * rate)
            left = left - _added(trees, inside, 1)
            grown.append(trees)
        self._target = target
        self._plant(_Trees.joined(grown))
        return self._done()


for _class in (DecisionTreeClassifier, DecisionTreeRegressor, GradientBoostingClassifier, GradientBoostingRegressor):
    if _class.__doc__:
        _class.__doc__ = _class.__doc__.replace("PARAMETERS", _PARAMETERS).replace("STRUCTURE", _STRUCTURE)

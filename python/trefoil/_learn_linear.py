"""Linear models. All of them work on columns of one scale, so that the units of the data do not matter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import functions, np
from ._errors import InputError
from ._learn_base import (
    FINE, FINEST, STEPS, Probable, Regressor, Scale, Scorer, bits, column_of, counted, dot, kept, positive, scaled,
    times, zeros,
)
from ._secret import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Added to the diagonal of a matrix before it is inverted, as a share of the diagonal: 2^-13.
_JITTER = 13

#: The largest root of a penalty, next to a curvature of 1. Beyond it a coefficient is 0 for all purposes.
_MOST_PENALTY = 1000.0

#: Fraction bits of the error of an inverse, whose product with that inverse is large where directions are nearly flat.
_ERROR_BITS = 22

#: The least diagonal by which a matrix is scaled: below it entries are rounding.
_LEAST_DIAGONAL = 2.0**-10

#: The most by which a step of Newton's method changes a score.
_MOST_CHANGE = 16.0

#: Corrections of the solution of linear equations.
_CORRECTIONS = 12


# -- linear equations ------------------------------------------------------------------------------


class Inverse:
    """About the inverse of a symmetric matrix that is nowhere negative, by Newton's iteration.

    The matrix has ``FINE`` fraction bits, and a diagonal up to ``2^20``. Its rows and columns are first brought to a
    diagonal of 1. A direction whose curvature is a share ``c`` of that is solved up to the factor ``c / (c + 2^-13)``.
    """

    def __init__(self, matrix: Secret) -> None:
        size = matrix.shape[0]
        diagonal: Secret = np.diagonal(matrix)
        self._root = kept("inv_sqrt_to", diagonal + _LEAST_DIAGONAL, frac=FINE)
        even = times(times(matrix, self._root.reshape(-1, 1), FINE), self._root.reshape(1, -1), FINE)
        even = functions.add(even, np.eye(size) * 2.0**-_JITTER)
        # No eigenvalue exceeds the trace.
        start = 1.0 / (size * 1.01)
        frac = matrix._mpc.frac_bits
        found = bits(functions.sub(2 * start * np.eye(size), scaled(even, start * start, FINE)), frac)
        for _ in range(_JITTER + math.ceil(math.log2(size)) + 1):
            # An error E = 1 - even @ found becomes E @ E.
            error = functions.sub(np.eye(size), dot(even, found, _ERROR_BITS))
            found = found + dot(found, error, frac)
        self._even = found

    def __call__(self, x: Secret) -> Secret:
        """The solution for each column of ``x``, which has ``FINE`` fraction bits; with ``STEPS`` fraction bits."""
        root = self._root.reshape(-1, 1)
        return times(root, dot(self._even, times(root, x, FINE), STEPS), STEPS)


def _gram(rows: Secret, weighted: Secret) -> Secret:
    """``rows.T @ weighted / n`` with ``FINE`` fraction bits."""
    return scaled(dot(rows, weighted, FINE, transpose=True), 1.0 / rows.shape[0], FINE)


def _with_ones(rows: Secret) -> Secret:
    return np.concatenate([rows, np.ones((rows.shape[0], 1))], 1)


def _root_penalty(scale: Scale, strength: float) -> Secret:
    """The root of the penalty of each coefficient of columns on one scale, for one on the columns' own."""
    root = scaled(scale.inverse, math.sqrt(strength), scale.mean.frac_bits)
    return functions.clamp(root, 0.0, _MOST_PENALTY).reshape(-1)


def _diagonal(x: Secret) -> Secret:
    """A matrix with these numbers on its diagonal."""
    return times(x.reshape(-1, 1), functions.constant(x._mpc, np.eye(x.size, dtype=np.int64)), FINE)


def _penalty(scale: Scale, strength: float) -> Secret:
    """The penalty ``strength |w|^2`` of coefficients in the columns' own units, as a matrix; 1 for constant columns."""
    root = _root_penalty(scale, strength)
    squares = times(root, root, FINE)
    return _diagonal(squares + functions.rescale(scale.constant.reshape(-1), FINE))


def _limited(rows: Secret, step: Secret) -> Secret:
    """A step, made shorter where it changes a score by more than ``_MOST_CHANGE``."""
    change = functions.max(abs(dot(rows, step, rows.frac_bits)).reshape(1, -1), 1)
    part = functions.reciprocal_positive(functions.clamp(change * (1.0 / _MOST_CHANGE), 1.0, 2.0**20))
    return times(step, part, STEPS)


def _curvature_of(rows: Secret, weights: Secret) -> Secret:
    """``rows.T @ (weights * rows) / n`` with ``FINE`` fraction bits, for a weight of each row, ``(rows, 1)``."""
    return _gram(rows, times(rows, weights, STEPS))


# -- models ----------------------------------------------------------------------------------------


class _Linear:
    """Coefficients by which rows become scores."""

    n_features_in_: int

    def _keep(self, scale: Scale, rest: Secret, found: Secret, constant: Secret) -> None:
        """Keeps coefficients of columns on one scale, ``(columns, scores)``, and a constant for each score."""
        frac = constant.frac_bits
        self._mean = scale.mean
        self._weights = times(found, scale.inverse.reshape(-1, 1), FINEST)
        self._constant = constant.reshape(1, -1) - dot(rest, found, frac)

    def _linear(self, X: Secret) -> Secret:
        return dot(X - self._mean, self._weights, X.frac_bits) + self._constant

    def _at_zero(self) -> Secret:
        """The scores of a row of zeros, ``(1, scores)``."""
        return self._constant - dot(self._mean, self._weights, self._constant.frac_bits)


class _LeastSquares(_Linear, Regressor):
    def _fit(self, X: Secret, y: Secret, strength: float) -> None:
        X = self._begin(X)
        target = Scale.of(column_of(y, X.shape[0]).astype(float).reshape(-1, 1))
        scale = Scale.of(X)
        rows, rest = scale.rows()
        wanted, left = target.rows()
        matrix = _gram(rows, rows) + _penalty(scale, strength / X.shape[0])
        right = _gram(rows, wanted)
        inverse = Inverse(matrix)
        found = zeros(X._mpc, right.shape, STEPS)
        for _ in range(_CORRECTIONS):
            found = found + inverse(functions.sub(right, dot(matrix, found, FINE)))
        self._keep(scale, rest, found, left.reshape(1))
        self._spread = target.spread.back
        self._level = target.mean.reshape(1)
        own = times(bits(self._weights, STEPS), self._spread, X.frac_bits)
        self.coef_: Secret = own.reshape(-1)
        self.intercept_: Secret = (self._level + (self._at_zero() * self._spread).reshape(1)).reshape(())

    def predict(self, X: Secret) -> Secret:
        X = self._ready(X)
        return (self._linear(X) * self._spread).reshape(-1) + self._level


class LinearRegression(_LeastSquares):
    """Ordinary least squares, as ``sklearn.linear_model.LinearRegression``.

    Attributes
    ----------
    coef_ : Secret
        A coefficient for each column, below ``2^18``.
    intercept_ : Secret

    Notes
    -----
    The equations are solved on columns and numbers of mean 0 and variance 1. Say ``e`` is the least eigenvalue of the
    columns' correlations. For ``e`` from ``2^-10`` on, a prediction has an error below ``2^-17 / e`` standard
    deviations of ``y``, and a coefficient has that divided by the deviation of its column. Of collinear columns no
    single coefficient is determined, and the predictions remain right.

    Deviations of columns are from ``2^-10`` to ``2^16``, that of ``y`` to ``2^20``, and up to ``2^18`` rows are taken. A constant
    column has the coefficient 0.

    Cost: about 350 rounds, five products or truncations of each number of ``X``, and matrices of columns by columns.
    """

    def fit(self, X: Secret, y: Secret) -> LinearRegression:
        """Solve the equations.

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
            For shapes that do not fit, or more than ``2^18`` rows.
        """
        self._fit(X, y, 0.0)
        return self._done()


class Ridge(_LeastSquares):
    """Least squares with the penalty ``alpha |coef_|^2``, as ``sklearn.linear_model.Ridge``.

    Parameters
    ----------
    alpha : float
        Public, above 0.

    Attributes
    ----------
    coef_ : Secret
        A coefficient for each column, below ``2^18``.
    intercept_ : Secret

    Notes
    -----
    Limits, error and cost are those of :class:`LinearRegression`, for the eigenvalues with the penalty. The penalty
    is on coefficients in the columns' own units.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def fit(self, X: Secret, y: Secret) -> Ridge:
        """Solve the equations.

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
            For shapes that do not fit, more than ``2^18`` rows, or an ``alpha`` that is not above 0.
        """
        self._fit(X, y, positive(self.alpha, "alpha"))
        return self._done()


# -- by Newton's method ----------------------------------------------------------------------------


def _close(step: Secret, tol: float) -> Secret:
    """Whether no number of a step exceeds a tolerance."""
    largest = functions.max(abs(step).reshape(1, -1), 1).reshape(())
    return functions.lt(largest, np.float64(tol))


class _Separator(_Linear, Scorer):
    """Scores by which classes are told apart: one for two classes, else one for each."""

    coef_: Secret
    intercept_: Secret

    def __init__(
        self, classes: Sequence[Any] = (0, 1), *, C: float = 1.0, max_iter: int = 20, tol: float = 2.0**-7,
    ) -> None:
        self.classes = classes
        self.C = C
        self.max_iter = max_iter
        self.tol = tol

    def _limits(self) -> tuple[int, float, float]:
        steps, tol = counted(self.max_iter, "max_iter", 1, 1000), positive(self.tol, "tol")
        return steps, tol, positive(self.C, "C")

    def _keep(self, scale: Scale, rest: Secret, found: Secret, constant: Secret) -> None:
        super()._keep(scale, rest, found, constant)
        self.coef_ = bits(self._weights, constant.frac_bits).T
        self.intercept_ = self._at_zero().reshape(-1)

    def _scores(self, X: Secret) -> Secret:
        return self._linear(self._ready(X))


class LogisticRegression(_Separator, Probable):
    """Logistic regression with the penalty ``|coef_|^2 / (2 C)``, as ``sklearn.linear_model.LogisticRegression``.

    Two classes have one row of coefficients. More have a row each, and probabilities by softmax.

    Parameters
    ----------
    classes : sequence
        The public list of classes.
    C : float
        Public: the inverse of the penalty's strength.
    max_iter : int
        Steps of Newton's method. All are made.
    tol : float
        The largest last step, of coefficients of columns on one scale, that counts as converged.

    Attributes
    ----------
    classes_ : numpy.ndarray
    coef_ : Secret
        ``(1, columns)`` for two classes, else ``(classes, columns)``.
    intercept_ : Secret
        One for each row of :attr:`coef_`.
    converged_ : Secret
        Whether the last step was below ``tol``. It is worth revealing: results that have not converged are not those of
        scikit-learn.

    Notes
    -----
    A probability has an error below ``2^-9`` where it converged and the columns are not collinear. Coefficients are the
    less certain the larger ``C`` is: their error is below ``2^-16 / e``, for the least eigenvalue ``e`` of the
    objective's curvature on columns of one scale.

    Deviations of columns are from ``2^-10`` to ``2^16``, and up to ``2^18`` rows are taken. Rows of no listed class
    count as the last one.

    A step that changes a score by more than 16 is made shorter.

    Cost of a step: about ``190 + 4 log2(columns)`` rounds, a product of each number of ``X``, and a sigmoid and a
    place in a tournament for each row; for ``k > 2`` classes ``k (k + 1) / 2`` such products, and matrices of ``k``
    times the columns.
    """

    def fit(self, X: Secret, y: Secret) -> LogisticRegression:
        """Find the coefficients.

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
        steps, tol, strength = self._limits()
        count = X.shape[0]
        of_class = self._members(X, y).astype(float)
        scale = Scale.of(X)
        rows, rest = scale.rows()
        rows = _with_ones(rows)
        size, outputs = rows.shape[1], self.classes_.size
        penalty = np.pad(_penalty(scale, 1.0 / (strength * count)), (0, 1))
        binary = outputs == 2
        if binary:
            of_class, outputs = of_class[:, 1:], 1
        found = step = zeros(X._mpc, (size, outputs), STEPS)
        for _ in range(steps):
            scores = dot(rows, found, X.frac_bits)
            share = scores.sigmoid() if binary else scores.softmax(1)
            slope = _gram(rows, share - of_class) + dot(penalty, found, FINE)
            if binary:
                step = Inverse(_curvature_of(rows, times(share, 1.0 - share, STEPS)) + penalty)(slope)
            else:
                curve = self._curvature(rows, share, penalty)
                step = Inverse(curve)(slope.T.reshape(-1, 1)).reshape(outputs, size).T
                # The same number added to all classes changes nothing: such a part is rounding.
                step = step - scaled(step.sum(1, keepdims=True), 1.0 / outputs, STEPS)
            step = _limited(rows, step)
            found = found - step
        self.converged_: Secret = _close(step, tol)
        intercept = bits(found[-1:], X.frac_bits).reshape(-1)
        self._keep(scale, rest, found[:-1], intercept)
        return self._done()

    @staticmethod
    def _curvature(rows: Secret, share: Secret, penalty: Secret) -> Secret:
        """The second derivatives by the coefficients of all classes, those of a class side by side."""
        count, size = rows.shape
        outputs = share.shape[1]
        one, other = np.triu_indices(outputs)
        weights = times(share[:, one], (one == other).astype(np.int64) - share[:, other], STEPS)
        weighted = times(weights.reshape(count, -1, 1), rows.reshape(count, 1, size), STEPS)
        blocks = _gram(rows, weighted.reshape(count, -1)).reshape(size, -1, size)
        pair = np.zeros((outputs, outputs), np.int64)
        pair[one, other] = pair[other, one] = np.arange(one.size)
        whole = blocks[:, pair.reshape(-1)].reshape(size, outputs, outputs, size).transpose(1, 0, 2, 3)
        same = np.eye(outputs, dtype=np.int64).reshape(outputs, 1, outputs, 1)
        whole = whole + times(functions.constant(rows._mpc, same), penalty.reshape(1, size, 1, size), FINE)
        return whole.reshape(outputs * size, outputs * size)


class PoissonRegressor(_Linear, Regressor):
    """Regression of counts: ``exp(X @ coef_ + intercept_)``, as ``sklearn.linear_model.PoissonRegressor``.

    Parameters
    ----------
    alpha : float
        Public: the penalty ``alpha |coef_|^2 / 2`` beside half the mean deviance.
    max_iter : int
        Steps of Newton's method. All are made.
    tol : float
        The largest last step, of coefficients of columns on one scale, that counts as converged.

    Attributes
    ----------
    coef_ : Secret
        A coefficient for each column.
    intercept_ : Secret
    converged_ : Secret
        Whether the last step was below ``tol``.

    Notes
    -----
    ``y`` is at least 0, with a mean from ``2^-6`` to ``2^14``, and below ``2^12`` times its mean. Expected numbers
    beyond ``e^8`` times the mean are limited to that in the fit, and beyond 59,000 times in a prediction. The
    relative error of a prediction is below ``2^-9`` where the fit converged and the columns are not collinear.

    Deviations of columns are from ``2^-10`` to ``2^16``, and up to ``2^18`` rows are taken.

    Cost of a step: that of a step of :class:`LogisticRegression`.
    """

    def __init__(self, alpha: float = 1.0, *, max_iter: int = 20, tol: float = 2.0**-7) -> None:
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Secret, y: Secret) -> PoissonRegressor:
        """Find the coefficients.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret
            A count for each row, at least 0 and not all 0.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For shapes that do not fit, or parameters out of range.
        """
        X = self._begin(X)
        steps, tol = counted(self.max_iter, "max_iter", 1, 1000), positive(self.tol, "tol")
        alpha = positive(self.alpha, "alpha", beyond=False)
        y = column_of(y, X.shape[0]).astype(float)
        self._level: Secret = y.mean()
        # Counts of mean 1.
        inverse = functions.inv_sqrt_to(self._level.reshape(1, 1), FINE)
        y = times(times(y.reshape(-1, 1), inverse, X.frac_bits), inverse, X.frac_bits)
        scale = Scale.of(X)
        rows, rest = scale.rows()
        rows = _with_ones(rows)
        root = times(_root_penalty(scale, alpha), inverse.reshape(1), X.frac_bits)
        squares = times(root, root, FINE) + functions.rescale(scale.constant.reshape(-1), FINE)
        penalty = np.pad(_diagonal(squares), (0, 1))
        found = step = zeros(X._mpc, (rows.shape[1], 1), STEPS)
        for _ in range(steps):
            expected = functions.clamp(dot(rows, found, X.frac_bits), -12.0, 8.0).exp()
            slope = _gram(rows, expected - y) + dot(penalty, found, FINE)
            step = _limited(rows, Inverse(_gram(rows, rows * expected) + penalty)(slope))
            found = found - step
        self.converged_: Secret = _close(step, tol)
        self._keep(scale, rest, found[:-1], bits(found[-1], X.frac_bits))
        self.coef_: Secret = bits(self._weights, X.frac_bits).reshape(-1)
        self.intercept_: Secret = self._at_zero().reshape(()) + self._level.log()
        return self._done()

    def predict(self, X: Secret) -> Secret:
        X = self._ready(X)
        return functions.clamp(self._linear(X).reshape(-1), -12.0, 10.98).exp() * self._level


class LinearSVC(_Separator):
    """A linear support vector machine with squared hinge loss, as ``sklearn.svm.LinearSVC``.

    The objective is scikit-learn's, in which the intercept has a penalty too: ``(|coef_|^2 + intercept_^2) / 2 + C
    sum(max(0, 1 - t score)^2)`` with ``t`` 1 for a row of the class, else -1. More than two classes are each told
    apart from the rest.

    Parameters
    ----------
    classes : sequence
        The public list of classes.
    C : float
        Public: the inverse of the penalty's strength.
    max_iter : int
        Steps of Newton's method. All are made, each by the best of four public parts.
    tol : float
        The largest last step, of coefficients of columns on one scale, that counts as converged.

    Attributes
    ----------
    classes_ : numpy.ndarray
    coef_ : Secret
        ``(1, columns)`` for two classes, else ``(classes, columns)``.
    intercept_ : Secret
        One for each row of :attr:`coef_`.
    converged_ : Secret
        Whether the last step was below ``tol``.

    Notes
    -----
    Where it converged, a score has an error below ``2^-8``. Means of columns are below ``2^9`` of their deviations.
    Otherwise limits are those of :class:`LogisticRegression`.

    Cost of a step, for each class: about ``140 + 4 log2(columns)`` rounds, a product of each number of ``X``, and for
    each row a comparison and four ReLUs.
    """

    def fit(self, X: Secret, y: Secret) -> LinearSVC:
        """Find the coefficients.

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
        steps, tol, strength = self._limits()
        of_class = self._members(X, y)
        if self.classes_.size == 2:
            of_class = of_class[:, 1:]
        signs = of_class * 2 - 1
        scale = Scale.of(X)
        rows, rest = scale.rows()
        rows = _with_ones(rows)
        penalty = self._penalty(scale, rest, 1.0 / (2 * strength * X.shape[0]))
        parts = [self._separate(rows, signs[:, i : i + 1], penalty, steps) for i in range(signs.shape[1])]
        found = np.concatenate([part for part, _ in parts], 1)
        self.converged_: Secret = _close(np.concatenate([step for _, step in parts], 1), tol)
        self._keep(scale, rest, found[:-1], bits(found[-1], X.frac_bits))
        return self._done()

    @staticmethod
    def _penalty(scale: Scale, rest: Secret, strength: float) -> Secret:
        """The penalty of coefficients and intercept in the columns' own units, for those of columns on one scale."""
        frac = scale.mean.frac_bits
        own = np.pad(_penalty(scale, strength), (0, 1))
        # The intercept is the constant less the means times the coefficients.
        share = (times(scale.mean, scale.inverse, frac) + rest) * math.sqrt(strength)
        last = np.concatenate([-share, np.full((1, 1), math.sqrt(strength))], 1)
        return own + times(last.T, last, FINE)

    @staticmethod
    def _separate(rows: Secret, signs: Secret, penalty: Secret, steps: int) -> tuple[Secret, Secret]:
        """The coefficients that tell one class from the rest, and the last step."""
        frac = rows.frac_bits
        found = step = zeros(rows._mpc, (rows.shape[1], 1), STEPS)
        parts = np.array([1.0, 0.5, 0.25, 0.125])
        for _ in range(steps):
            margin = 1.0 - dot(rows, found, frac) * signs
            inside = (margin > 0).astype(int)
            slope = dot(penalty, found, FINE) - _gram(rows, margin * inside * signs)
            step = Inverse(_gram(rows, rows * inside) + penalty)(slope)
            # The margins and penalties after each part of the step.
            moved = margin + dot(rows, step, frac) * signs * parts
            hinge = moved.relu()
            bent = dot(step, dot(penalty, step, FINE), frac, transpose=True)
            along = dot(step, dot(penalty, found, FINE), frac, transpose=True)
            loss = (hinge * hinge).mean(0, keepdims=True) + bent * (parts * parts) - along * (2 * parts)
            best = functions.one_hot(loss.argmin(1), len(parts)).reshape(1, -1)
            part = (best * parts).sum(1, keepdims=True)
            step = times(step, part, STEPS)
            found = found - step
        return found, step

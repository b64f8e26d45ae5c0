"""Structure without a target: clusters and principal components."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import functions, np
from ._errors import InputError
from ._learn_base import (
    FINE, STEPS, Estimator, Spread, Transformer, bits, centred_rows, counted, dot, kept, rows_of, scaled, times,
)
from ._secret import Secret

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Fraction bits of matrices with numbers up to 1 whose powers are taken.
_POWERS = 28

#: Squarings of a matrix: together its power of 4,096.
_SQUARINGS = 12


class KMeans(Estimator):
    """Clusters by Lloyd's method, as ``sklearn.cluster.KMeans`` with one start.

    Parameters
    ----------
    n_clusters : int
        Public.
    init : "first", Secret or array_like
        The centres to begin with, ``(n_clusters, columns)``; the first rows unless given.
    max_iter : int
        Steps. All are made.

    Attributes
    ----------
    cluster_centers_ : Secret
        ``(n_clusters, columns)``. Error below ``2^-17`` of the root of the mean variance.
    labels_ : Secret
        The cluster of each row of the fit, as integers.
    inertia_ : Secret
        The sum of the squared distances of the rows from their centres, below ``2^42``. Relative error ``2^-15``.
    converged_ : Secret
        Whether the last step moved no row to another cluster.

    Notes
    -----
    The root of the mean variance of the columns is from ``2^-10`` to ``2^20``, and up to ``2^18`` rows are taken. A
    cluster that has no row keeps its centre. A row whose distances from two centres differ by less than ``2^-15`` of
    the mean variance may come to either.

    Cost of a step: a matrix product, and for each row a tournament of its ``n_clusters`` distances and a one-hot place.
    """

    n_features_in_: int
    cluster_centers_: Secret
    labels_: Secret
    inertia_: Secret
    converged_: Secret

    def __init__(self, n_clusters: int = 8, *, init: str | Secret | ArrayLike = "first", max_iter: int = 20) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.max_iter = max_iter

    def fit(self, X: Secret, y: Secret | None = None) -> KMeans:
        """Move centres to the means of their rows.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret, optional
            Without effect.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For fewer rows than clusters, or centres of another shape.
        """
        X = self._begin(X)
        count, columns = X.shape
        clusters = counted(self.n_clusters, "n_clusters", 1, count)
        steps = counted(self.max_iter, "max_iter", 1, 10000)
        mean, centred = centred_rows(X)
        spread = Spread.of(centred, (0, 1))
        inverse = spread.inverse
        rows = times(centred, inverse, X.frac_bits)
        if isinstance(self.init, str):
            if self.init != "first":
                raise InputError(f"init is {self.init!r}: 'first' takes the first rows; or give centres")
            centres = rows[:clusters]
        else:
            given = self.init
            if not isinstance(given, Secret):
                given = functions.constant(X._mpc, np.asarray(given, np.float64))
            if given.shape != (clusters, columns):
                raise InputError(f"init has shape {given.shape}; {clusters} centres have ({clusters}, {columns})")
            centres = times(given.astype(float) - mean, inverse, X.frac_bits)
        of_cluster, labels = self._nearest(rows, centres)
        before = of_cluster
        for _ in range(steps):
            before = of_cluster
            number = of_cluster.sum(0).reshape(-1, 1)
            empty = (number == 0).astype(int)
            share = kept("reciprocal_positive", scaled(number + empty, 1.0 / count, FINE))
            moved = times(scaled(of_cluster.T @ rows, 1.0 / count, FINE), share, X.frac_bits)
            centres = moved + empty * (centres - moved)
            of_cluster, labels = self._nearest(rows, centres)
        self._mean, self._inverse, self._centres = mean, inverse, centres
        self.labels_ = labels
        self.converged_ = (before * of_cluster).sum() == count
        self.cluster_centers_ = centres * spread.back + mean
        self.inertia_ = functions.sum_squares(X - of_cluster @ self.cluster_centers_, (0, 1)).reshape(())
        return self._done()

    @staticmethod
    def _nearest(rows: Secret, centres: Secret) -> tuple[Secret, Secret]:
        """For each row the nearest centre, as 0 and 1 and as a place."""
        far = (centres * centres).sum(1) - dot(rows, 2 * centres.T, rows.frac_bits)
        place = far.argmin(1)
        return functions.one_hot(place, centres.shape[0]), place

    def predict(self, X: Secret) -> Secret:
        """The cluster of each row.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
            Integers from 0 on.
        """
        return self._placed(self._ready(X))[1]

    def _placed(self, X: Secret) -> tuple[Secret, Secret]:
        """As :meth:`_nearest`, for rows in the columns' own units."""
        return self._nearest(times(X - self._mean, self._inverse, X.frac_bits), self._centres)

    def score(self, X: Secret, y: Secret | None = None) -> Secret:
        """Minus the sum of the squared distances of rows from their centres.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret, optional
            Without effect.

        Returns
        -------
        Secret
        """
        X = self._ready(X)
        of_cluster, _ = self._placed(X)
        return -functions.sum_squares(X - of_cluster @ self.cluster_centers_, (0, 1)).reshape(())


class PCA(Transformer):
    """Principal components of the columns' covariances, as ``sklearn.decomposition.PCA``.

    Parameters
    ----------
    n_components : int
        Public.

    Attributes
    ----------
    components_ : Secret
        Directions of length 1, ``(n_components, columns)``; the number of largest size of each is positive.
    explained_variance_, explained_variance_ratio_ : Secret
        The variance along each direction, below ``2^22``, and its share of all.
    mean_ : Secret

    Notes
    -----
    Powers of the covariances give one direction after the other. Those of a variance ``v`` and the next ``w``, as
    shares of all, have an error below ``2^-14 / (v - w)``, for ``v`` from ``2^-10`` and a gap ``1 - w / v`` from
    ``2^-8`` on. Directions of equal variances are not determined. Ratios of variances have an error below ``2^-16``.
    Distances from the mean are below ``2^18``.

    Cost: about 310 rounds for each component, of matrices of columns by columns.
    """

    n_features_in_: int
    components_: Secret
    explained_variance_: Secret
    explained_variance_ratio_: Secret
    mean_: Secret

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def fit(self, X: Secret, y: Secret | None = None) -> PCA:
        """Find the directions of the largest variances.

        Parameters
        ----------
        X : Secret
            Two rows or more.
        y : Secret, optional
            Without effect.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For one row, or more components than rows or columns.
        """
        X = self._begin(X)
        count, columns = X.shape
        if count < 2:
            raise InputError("X has one row; the variance along a direction takes two or more")
        components = counted(self.n_components, "n_components", 1, min(count, columns))
        mean, centred = centred_rows(X)
        spread = Spread.of(centred, (0, 1))
        rows = times(centred, spread.inverse, X.frac_bits)
        covariance = scaled(dot(rows, rows, _POWERS, transpose=True), 1.0 / X.size, _POWERS)
        found, shares = [], []
        for _ in range(components):
            direction = _leading(covariance)
            image = dot(covariance, direction, _POWERS)
            share = dot(direction, image, _POWERS, transpose=True)
            covariance = covariance - times(times(direction, share, _POWERS), direction.T, _POWERS)
            found.append(direction.T)
            shares.append(share)
        self._directions = bits(np.concatenate(found, 0), STEPS)
        self.mean_ = mean.reshape(-1)
        self.components_ = bits(self._directions, X.frac_bits)
        self.explained_variance_ratio_ = bits(np.concatenate(shares, 0), X.frac_bits).reshape(-1)
        level = spread.deviation.reshape(1) * math.sqrt(X.size / (count - 1))
        self.explained_variance_ = self.explained_variance_ratio_ * level * level
        return self._done()

    def transform(self, X: Secret) -> Secret:
        """Rows along the directions.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
            ``(rows, n_components)``.
        """
        X = self._ready(X)
        return dot(X - self.mean_, self._directions.T, X.frac_bits)

    def inverse_transform(self, X: Secret) -> Secret:
        """Rows in the columns' own units, from those along the directions.

        Parameters
        ----------
        X : Secret
            ``(rows, n_components)``.

        Returns
        -------
        Secret
        """
        if not self._fitted:
            raise InputError("this PCA is not fitted; call fit first")
        X = rows_of(X)
        if X.shape[1] != self._directions.shape[0]:
            raise InputError(f"X has {X.shape[1]} columns; there are {self._directions.shape[0]} components")
        return dot(X, self._directions, X.frac_bits) + self.mean_


def _leading(matrix: Secret) -> Secret:
    """The direction in which a symmetric matrix of trace at most 1 is largest, as a column of length 1."""
    size = matrix.shape[0]
    power = matrix
    for i in range(_SQUARINGS + 1):
        if i:
            power = dot(power, power, _POWERS)
        trace: Secret = np.diagonal(power).sum()
        trace = functions.clamp(bits(trace, FINE), 2.0**-20, 4.0)
        power = times(power, kept("reciprocal_positive", trace.reshape(1, 1)), _POWERS)
    diagonal: Secret = np.diagonal(power)
    place = functions.one_hot(diagonal.argmax(), size).reshape(-1, 1)
    column = dot(power, place, _POWERS)
    root = kept("inv_sqrt_to", bits((column * place).sum(), FINE).reshape(1, 1), frac=FINE)
    direction = times(column, root, _POWERS)
    # One step of Newton's method makes the length 1 as exactly as the words allow.
    length = dot(direction, direction, _POWERS, transpose=True)
    return times(direction, 1.5 - scaled(length, 0.5, _POWERS), _POWERS)

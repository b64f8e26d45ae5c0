"""Columns on one scale."""

from __future__ import annotations

from . import functions
from ._learn_base import FINE, Scale, Transformer, times
from ._secret import Secret


class StandardScaler(Transformer):
    """Brings columns to mean 0 and variance 1, as ``sklearn.preprocessing.StandardScaler``.

    Attributes
    ----------
    mean_ : Secret
        The mean of each column. Error of two units in the last place.
    scale_ : Secret
        The standard deviation of each column, 1 for a constant one. Relative error ``2^-16`` and two units.

    Notes
    -----
    A column whose standard deviation is below about ``2^-12`` counts as constant. For deviations ``d`` from ``2^-10``
    to ``2^20`` a number of the rows has a relative error of ``2^-18 + 2^-26 d``, and an absolute one of ``2^-18 / d`` and
    three units: what has come in is rounded to a unit.

    Cost: about 60 rounds for any number of columns, and five products or truncations of each number.
    """

    mean_: Secret
    scale_: Secret
    n_features_in_: int

    def fit(self, X: Secret, y: Secret | None = None) -> StandardScaler:
        """Learn means and standard deviations.

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
            For a shape that is no table.
        """
        scale = Scale.of(self._begin(X))
        self.mean_ = scale.mean.reshape(-1)
        self.scale_ = (scale.deviation + scale.constant.astype(float)).reshape(-1)
        # 1 for a constant column, in the factor's format.
        one = functions.rescale(scale.constant, FINE)
        self._inverse = scale.inverse + one
        return self._done()

    def transform(self, X: Secret) -> Secret:
        """Rows on the learned scale.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
        """
        X = self._ready(X)
        return times(X - self.mean_, self._inverse, X.frac_bits)

    def inverse_transform(self, X: Secret) -> Secret:
        """Rows in the columns' own units again.

        Parameters
        ----------
        X : Secret
            Rows on the learned scale.

        Returns
        -------
        Secret
            ``|X| * scale_`` below ``2^22``.
        """
        X = self._ready(X)
        return X * self.scale_ + self.mean_

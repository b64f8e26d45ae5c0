"""Naive Bayes: classifiers of columns that are independent within a class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import functions, np
from ._learn_base import FINE, Classifier, Scale, bits, kept, positive, scaled, times
from ._secret import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The least variance within a class, as a share of the column's.
_LEAST_VARIANCE = 2.0**-16


class _NaiveBayes(Classifier):
    class_count_: Secret
    class_log_prior_: Secret

    def _count(self, X: Secret, y: Secret) -> Secret:
        """For each row and class 1 where the row is of the class; counts and probabilities of classes."""
        of_class = self._members(X, y)
        self.class_count_ = of_class.sum(0)
        # A class without a row counts as one of a single row.
        self._some = self.class_count_ + (self.class_count_ == 0).astype(int)
        self.class_log_prior_ = self._some.astype(float).log() - math.log(X.shape[0])
        return of_class

    def predict_proba(self, X: Secret) -> Secret:
        """The probability of each class.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
            ``(rows, classes)``.
        """
        return self._scores(X).softmax(1)

    def predict_joint_log_proba(self, X: Secret) -> Secret:
        """Logarithms of the joint probabilities of a row and each class, less what all classes have in common.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
            ``(rows, classes)``.
        """
        return self._scores(X)


class GaussianNB(_NaiveBayes):
    """Naive Bayes of normally distributed columns, as ``sklearn.naive_bayes.GaussianNB``.

    Parameters
    ----------
    classes : sequence
        The public list of classes.
    var_smoothing : float
        Public: the share of the largest variance of all columns that is added to each variance.

    Attributes
    ----------
    classes_ : numpy.ndarray
    theta_, var_ : Secret
        Means and variances, ``(classes, columns)``. Variances are below ``2^22``.
    class_count_, class_log_prior_ : Secret
        The number of rows of each class, exact, and the logarithm of its share.

    Notes
    -----
    Means and variances have an error below ``2^-16`` of the column's deviation and variance, for classes with a
    hundredth of the rows or more. A variance below ``2^-16`` of the column's counts as that. The largest variance of
    a column times ``var_smoothing`` is at most 500 times the least. A logarithm of a probability has an error of
    ``2^-15`` of its size. Every class should occur: one that does not counts as one of a single row.

    Cost: about 200 rounds for a fit, and eight products or truncations of each number of ``X``. A prediction costs a
    product and a square of each number and class.
    """

    theta_: Secret
    var_: Secret

    def __init__(self, classes: Sequence[Any] = (0, 1), *, var_smoothing: float = 1e-9) -> None:
        self.classes = classes
        self.var_smoothing = var_smoothing

    def fit(self, X: Secret, y: Secret) -> GaussianNB:
        """Learn means and variances of each class.

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
            For shapes that do not fit, or fewer than two classes.
        """
        X = self._begin(X)
        smoothing = positive(self.var_smoothing, "var_smoothing", beyond=False)
        of_class = self._count(X, y)
        scale = Scale.of(X)
        rows, rest = scale.rows()
        frac, share = X.frac_bits, 1.0 / X.shape[0]
        inverse = kept("reciprocal_positive", scaled(self._some, share, FINE)).reshape(-1, 1)
        self._means = times(scaled(of_class.T @ rows, share, FINE), inverse, frac)
        gap = rows - of_class @ self._means
        variance = times(scaled(of_class.T @ times(gap, gap, FINE), share, FINE), inverse, FINE)
        widest = functions.max(scale.deviation, 1)
        relative = times(widest, scaled(scale.inverse, math.sqrt(smoothing), 36), FINE)
        variance = variance + times(relative, relative, FINE) + functions.rescale(scale.constant, FINE)
        variance = functions.clamp(variance, _LEAST_VARIANCE, 1000.0)
        self._scale, self._rest = scale, rest
        self._factor = kept("inv_sqrt_to", variance, frac=frac)
        logs = bits(kept("log", variance), frac).sum(1)
        self._start = self.class_log_prior_ - logs * 0.5
        self.theta_ = scale.mean + (self._means + rest) * scale.spread.back
        self.var_ = times(variance, scale.deviation, frac) * scale.deviation
        return self._done()

    def _scores(self, X: Secret) -> Secret:
        X = self._ready(X)
        z = times(X - self._scale.mean, self._scale.inverse, X.frac_bits) - self._rest
        classes, columns = self._means.shape
        gap = (z.reshape(-1, 1, columns) - self._means) * self._factor
        return self._start - functions.sum_squares(gap, (2,)).reshape(-1, classes) * 0.5


class BernoulliNB(_NaiveBayes):
    """Naive Bayes of truth values, as ``sklearn.naive_bayes.BernoulliNB``.

    Parameters
    ----------
    classes : sequence
        The public list of classes.
    alpha : float
        Public: what is added to each count, from ``2^-10`` on.
    binarize : float
        Public: numbers above it count as true.

    Attributes
    ----------
    classes_ : numpy.ndarray
    feature_log_prob_ : Secret
        Logarithms of the probabilities of true, ``(classes, columns)``. Error below ``2^-16``.
    feature_count_ : Secret
        Counts of true values, ``(classes, columns)``. Exact.
    class_count_, class_log_prior_ : Secret
        The number of rows of each class, exact, and the logarithm of its share.

    Notes
    -----
    A logarithm of a probability of a row has an error of ``2^-16`` for each column. A class that does not occur
    counts as one of a single row.

    Cost: a comparison of each number in ``fit`` and in a prediction; 30 rounds of logarithms of ``2 * classes *
    columns``.
    """

    feature_count_: Secret
    feature_log_prob_: Secret

    def __init__(self, classes: Sequence[Any] = (0, 1), *, alpha: float = 1.0, binarize: float = 0.0) -> None:
        self.classes = classes
        self.alpha = alpha
        self.binarize = binarize

    def fit(self, X: Secret, y: Secret) -> BernoulliNB:
        """Count true values in each class.

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
            For shapes that do not fit, fewer than two classes, or an ``alpha`` below ``2^-10``.
        """
        X = self._begin(X)
        alpha = positive(self.alpha, "alpha", 2.0**-10, beyond=False)
        of_class = self._count(X, y)
        count = self.class_count_.reshape(-1, 1)
        self.feature_count_ = of_class.T @ (X > float(self.binarize)).astype(int)
        both = np.concatenate([self.feature_count_, count - self.feature_count_], 1).astype(float) + alpha
        logs = both.log() - (count.astype(float) + 2 * alpha).log()
        true, false = logs[:, : X.shape[1]], logs[:, X.shape[1] :]
        self.feature_log_prob_ = true
        self._factors, self._start = (true - false).T, self.class_log_prior_ + false.sum(1)
        return self._done()

    def _scores(self, X: Secret) -> Secret:
        return (self._ready(X) > float(self.binarize)).astype(int) @ self._factors + self._start


class MultinomialNB(_NaiveBayes):
    """Naive Bayes of counts, as ``sklearn.naive_bayes.MultinomialNB``.

    Parameters
    ----------
    classes : sequence
        The public list of classes.
    alpha : float
        Public: what is added to each count, from ``2^-10`` on.

    Attributes
    ----------
    classes_ : numpy.ndarray
    feature_log_prob_ : Secret
        Logarithms of the probabilities of columns, ``(classes, columns)``. Error below ``2^-16``.
    feature_count_ : Secret
        Sums, ``(classes, columns)``. Exact.
    class_count_, class_log_prior_ : Secret
        The number of rows of each class, exact, and the logarithm of its share.

    Notes
    -----
    Numbers of ``X`` are at least 0, with sums below ``2^41``; those of a row have a sum below ``2^17``. A logarithm
    of a probability of a row has an error of ``2^-16`` times that sum. A class that does not occur counts as one of a
    single row.

    Cost: 30 rounds of logarithms of ``classes * columns`` numbers; a prediction is one product of matrices.
    """

    feature_count_: Secret
    feature_log_prob_: Secret

    def __init__(self, classes: Sequence[Any] = (0, 1), *, alpha: float = 1.0) -> None:
        self.classes = classes
        self.alpha = alpha

    def fit(self, X: Secret, y: Secret) -> MultinomialNB:
        """Add up the rows of each class.

        Parameters
        ----------
        X : Secret
            Rows and columns, no number below 0.
        y : Secret
            The class of each row.

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For shapes that do not fit, fewer than two classes, or an ``alpha`` below ``2^-10``.
        """
        X = self._begin(X)
        alpha = positive(self.alpha, "alpha", 2.0**-10, beyond=False)
        of_class = self._count(X, y)
        self.feature_count_ = of_class.T @ X
        smooth = self.feature_count_ + alpha
        self.feature_log_prob_ = smooth.log() - smooth.sum(1, keepdims=True).log()
        return self._done()

    def _scores(self, X: Secret) -> Secret:
        return self._ready(X) @ self.feature_log_prob_.T + self.class_log_prior_

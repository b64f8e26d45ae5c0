"""What the estimators of ``trefoil.learn`` have in common: checks of input, classes, and columns on one scale."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from . import functions, np
from ._errors import InputError
from ._secret import _DOUBLE, Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

#: The most rows that a fit takes: sums over them stay in the range of a product.
MOST_ROWS = 1 << 18

#: Fraction bits of matrices with numbers about 1, and of factors that bring columns to one scale.
FINE = 26

#: Fraction bits of coefficients in the units of the columns, which multiply numbers of any size.
FINEST = 30

#: Fraction bits of coefficients of columns on one scale.
STEPS = 24

_Self = TypeVar("_Self", bound="Estimator")


class Estimator:
    """An estimator with public parameters and secret results."""

    _fitted: bool = False

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The public parameters by name, as scikit-learn gives them.

        Parameters
        ----------
        deep : bool
            Without effect: no estimator contains another.

        Returns
        -------
        dict
        """
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self: _Self, **params: Any) -> _Self:
        """Change public parameters. They count at the next ``fit``.

        Parameters
        ----------
        **params

        Returns
        -------
        This estimator

        Raises
        ------
        InputError
            For a name that is no parameter.
        """
        for name, value in params.items():
            if name not in self._names():
                raise InputError(f"{type(self).__name__} has no parameter `{name}`; it has {', '.join(self._names())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({given})"

    def _ready(self, X: Secret) -> Secret:
        """The rows that a fitted estimator is asked about, as real numbers."""
        if not self._fitted:
            raise InputError(f"this {type(self).__name__} is not fitted; call fit first")
        X = rows_of(X)
        if X.shape[1] != self.n_features_in_:
            fitted = f"the {type(self).__name__} was fitted to {self.n_features_in_}"
            raise InputError(f"X has {X.shape[1]} columns; {fitted}")
        return X

    def _begin(self, X: Secret) -> Secret:
        """The rows of a fit, as real numbers."""
        X = rows_of(X)
        if X.shape[0] > MOST_ROWS:
            limit = f"sums of more than {MOST_ROWS} leave the range of a product: fit to a sample"
            raise InputError(f"X has {X.shape[0]} rows; {limit}")
        self.n_features_in_: int = X.shape[1]
        return X

    def _done(self: _Self) -> _Self:
        self._fitted = True
        return self


# -- checks ----------------------------------------------------------------------------------------


def rows_of(X: Any) -> Secret:
    """A table of secret numbers, as real ones."""
    if not isinstance(X, Secret):
        raise InputError(f"X is a {type(X).__name__}, not a secret array; mpc.secret(X) makes one")
    if X.ndim != 2:
        raise InputError(f"X has shape {X.shape}; a table has two axes: X.reshape(-1, 1) makes one of a column")
    if 0 in X.shape:
        raise InputError(f"X has shape {X.shape}; it takes at least one row and one column")
    return bits(X.astype(float), X._mpc.frac_bits)


def column_of(y: Any, rows: int) -> Secret:
    """One secret number for each row."""
    if not isinstance(y, Secret):
        raise InputError(f"y is a {type(y).__name__}, not a secret array; mpc.secret(y) makes one")
    if y.shape != (rows,):
        raise InputError(f"y has shape {y.shape}; X has {rows} rows, so that y has shape ({rows},)")
    return y


def positive(value: Any, name: str, least: float = 0.0, *, beyond: bool = True) -> float:
    """A public parameter above a limit, or from it on."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < least or beyond and value == least:
        raise InputError(f"{name} is {value!r}: a public number {'above' if beyond else 'of at least'} {least:g}")
    return float(value)


def counted(value: Any, name: str, least: int = 1, most: int = 1 << 20) -> int:
    """A public parameter that counts something."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(f"{name} is {value!r}: a public integer from {least} to {most}")
    return int(value)


# -- classes ---------------------------------------------------------------------------------------


def listed(classes: ArrayLike) -> NDArray[Any]:
    """The public list of classes."""
    found = np.asarray(classes)
    if found.ndim != 1 or found.dtype.kind not in "biuf" or len(np.unique(found)) != found.size:
        raise InputError("classes is a list of different public numbers, such as range(3)")
    if found.size < 2:
        raise InputError(f"classes has {found.size} entries; there are two or more to tell apart")
    return found.astype(np.int64) if found.dtype.kind in "bu" else found


def members(y: Secret, classes: NDArray[Any]) -> Secret:
    """Integers, a column for each class: 1 where the row is of it. Rows of no listed class count as the last."""
    first = (y.reshape(-1, 1) == classes[:-1].reshape(1, -1)).astype(int)
    return np.concatenate([first, 1 - first.sum(1, keepdims=True)], 1)


def chosen(scores: Secret, classes: NDArray[Any]) -> Secret:
    """For each row the class with the highest score; for one column the second class where it is above 0."""
    if scores.shape[1] == 1:
        second = (scores.reshape(-1) > 0).astype(int)
        named: Secret = second * (classes[1] - classes[0]).item() + classes[0].item()
        return named
    place = scores.argmax(1)
    if (classes == np.arange(classes.size)).all():
        return place
    found: Secret = functions.one_hot(place, classes.size) @ classes
    return found


class Classifier(Estimator):
    """An estimator that tells classes apart."""

    classes: Sequence[Any]
    classes_: NDArray[Any]
    n_features_in_: int

    def predict(self, X: Secret) -> Secret:
        """The most probable class of each row.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
            Of :attr:`classes_`; the first among equals.
        """
        return chosen(self._scores(X), self.classes_)

    def score(self, X: Secret, y: Secret) -> Secret:
        """The share of rows whose class is predicted.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret
            The class of each row.

        Returns
        -------
        Secret
            Error below ``2^-18``.
        """
        found = self.predict(X)
        return (found == column_of(y, found.size)).mean()

    def _scores(self, X: Secret) -> Secret:
        raise NotImplementedError

    def _members(self, X: Secret, y: Secret) -> Secret:
        """Integers, a column for each class: 1 where the row is of it."""
        self.classes_ = listed(self.classes)
        return members(column_of(y, X.shape[0]), self.classes_)


class Scorer(Classifier):
    """A classifier whose scores users may ask for."""

    def decision_function(self, X: Secret) -> Secret:
        """Scores: one for each row for two classes, else one for each class.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
            ``(rows, 1)`` or ``(rows, classes)``.
        """
        return self._scores(X)


class Probable(Scorer):
    """A classifier whose scores are logarithms of odds, or of shares."""

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
        scores = self.decision_function(X)
        if self.classes_.size > 2:
            return scores.softmax(1)
        second = scores.sigmoid()
        return np.concatenate([1.0 - second, second], 1)


class Transformer(Estimator):
    """An estimator that brings rows into another form."""

    def fit(self, X: Secret, y: Secret | None = None) -> Transformer:
        raise NotImplementedError

    def transform(self, X: Secret) -> Secret:
        raise NotImplementedError

    def fit_transform(self, X: Secret, y: Secret | None = None) -> Secret:
        """:meth:`fit`, and the same rows as :meth:`transform` gives them.

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
        return self.fit(X).transform(X)


class Regressor(Estimator):
    """An estimator of real numbers."""

    n_features_in_: int

    def predict(self, X: Secret) -> Secret:
        """The expected number of each row.

        Parameters
        ----------
        X : Secret
            Rows and columns.

        Returns
        -------
        Secret
        """
        raise NotImplementedError

    def score(self, X: Secret, y: Secret) -> Secret:
        """The coefficient of determination: 1 less the share of the variance of ``y`` that is not explained.

        Parameters
        ----------
        X : Secret
            Rows and columns.
        y : Secret
            A number for each row, with a standard deviation from ``2^-10`` on.

        Returns
        -------
        Secret
            Error below ``2^-12``, for scores from -1 on.
        """
        y = column_of(y, rows_of(X).shape[0]).astype(float)
        scale = Scale.of(y.reshape(-1, 1))
        left = times((y - self.predict(X)).reshape(-1, 1), scale.inverse, y._mpc.frac_bits)
        all_ = times(y.reshape(-1, 1) - scale.mean, scale.inverse, y._mpc.frac_bits)
        return 1.0 - ((left * left).mean() / (all_ * all_).mean())


# -- arithmetic ------------------------------------------------------------------------------------


def times(x: Secret, y: Secret, keep: int) -> Secret:
    """``x * y``, broadcast, of any formats, with these fraction bits."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    x, y = (a if a.shape == shape else functions.broadcast(a, shape) for a in (x, y))
    return real(functions.multiply("mul", x, y, keep=keep))


def dot(x: Secret, y: Secret, keep: int, *, transpose: bool = False) -> Secret:
    """``x @ y``, or ``x.T @ y``, of matrices of any formats, with these fraction bits."""
    return real(functions.multiply("matmul", x, y, keep=keep, transpose_lhs=transpose))


def real(x: Secret) -> Secret:
    return Secret(x._mpc, x._handle, _DOUBLE)


def kept(name: str, x: Secret, **params: Any) -> Secret:
    """A function of the library in the format of its operand; those of ``functions`` bring that to the session's."""
    (handle,) = x._mpc._session.call(name, [x._handle], params or None)
    return Secret(x._mpc, handle, _DOUBLE)


def scaled(x: Secret, factor: float, frac_bits: int) -> Secret:
    """``x * factor`` for a public factor, with these fraction bits."""
    return real(functions.mul_scalar_to(x, float(factor), frac_bits))


def bits(x: Secret, frac_bits: int) -> Secret:
    """The same numbers with these fraction bits."""
    return x if x.frac_bits == frac_bits else functions.rescale(x, frac_bits)


def zeros(mpc: Any, shape: Sequence[int], frac_bits: int) -> Secret:
    """Public zeros with these fraction bits."""
    return functions.rescale(functions.constant(mpc, np.zeros(tuple(shape), np.int64)), frac_bits)


#: The variance from which on a mean of squares has more digits than a sum.
_WIDE = 256.0


@dataclass(frozen=True)
class Spread:
    """The standard deviation of numbers of mean 0, along axes that stay with length 1.

    Attributes
    ----------
    deviation : Secret
        0 for a constant.
    inverse : Secret
        1 over it, with ``FINE`` fraction bits; 0 for a constant.
    constant : Secret
        Integers: 1 for a deviation below about ``2^-12``.
    """

    deviation: Secret
    inverse: Secret
    constant: Secret

    @property
    def back(self) -> Secret:
        """What undoes a product with :attr:`inverse`, as it was rounded: about the deviation, and 1 for a constant."""
        known = self.inverse + functions.rescale(self.constant, FINE)
        return bits(kept("reciprocal_positive", known), self.deviation.frac_bits)

    @staticmethod
    def of(centred: Secret, axes: tuple[int, ...]) -> Spread:
        count = math.prod(centred.shape[axis] for axis in axes)
        # The sum of small squares has their digits; that of large ones leaves the range, so they are made small first.
        half = (math.ceil(math.log2(count)) + 1) // 2
        small = scaled(centred, 2.0**-half, centred.frac_bits)
        variance = functions.sum_squares(small, axes) * (4.0**half / count)
        wide = (variance > _WIDE).astype(int)
        narrow = 1 - wide
        squares = functions.sum_squares(centred * narrow, axes)
        constant = (squares < max(count * 2.0**-24, 2.0**-18)).astype(int) * narrow
        both = np.concatenate([squares + (wide + constant).astype(float), variance * wide + narrow.astype(float)], 0)
        groups, root = squares.shape[0], functions.inv_sqrt_to(both, 36)
        inverse = scaled(root[:groups], math.sqrt(count), FINE) * (narrow - constant) + bits(root[groups:], FINE) * wide
        length = functions.sqrt(both)
        deviation = length[:groups] * (1.0 / math.sqrt(count)) * (narrow - constant) + length[groups:] * wide
        return Spread(deviation, inverse, constant)


def centred_rows(X: Secret) -> tuple[Secret, Secret]:
    """The means of columns, ``(1, columns)``, and the rows less them."""
    mean = X.mean(0, keepdims=True)
    # A mean of large numbers is rounded; that of the distances from it is not.
    mean = mean + (X - mean).mean(0, keepdims=True)
    return mean, X - mean


@dataclass(frozen=True)
class Scale:
    """The means of columns, and the factors that give them a variance near 1.

    Attributes
    ----------
    mean : Secret
        ``(1, columns)``.
    spread : Spread
        Of each column.
    centred : Secret
        The rows less the mean.
    """

    mean: Secret
    spread: Spread
    centred: Secret

    @staticmethod
    def of(X: Secret) -> Scale:
        mean, centred = centred_rows(X)
        return Scale(mean, Spread.of(centred, (0,)), centred)

    @property
    def inverse(self) -> Secret:
        """1 over standard deviations, with ``FINE`` fraction bits; 0 for a constant column."""
        return self.spread.inverse

    @property
    def constant(self) -> Secret:
        """Integers: 1 for a constant column."""
        return self.spread.constant

    @property
    def deviation(self) -> Secret:
        """Standard deviations, 0 for a constant column."""
        return self.spread.deviation

    def rows(self) -> tuple[Secret, Secret]:
        """The rows on one scale, and what their means still were."""
        z = times(self.centred, self.inverse, self.mean.frac_bits)
        rest = z.mean(0, keepdims=True)
        return z - rest, rest

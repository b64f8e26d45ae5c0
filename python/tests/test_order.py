"""Sorting, quantiles and histograms against NumPy's own, on the same numbers."""

from fractions import Fraction

import numpy as np
import pytest

import trefoil
from test_numpy import numbers, same
from trefoil import InputError, RangeError, RevealError, functions

UNIT = 2.0**-20


@pytest.mark.parametrize("axis", [0, 1, -1, -2, None])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.bool_])
def test_numbers_are_sorted_along_any_axis(mpc, rng, kind, axis):
    x = numbers(rng, (5, 7), kind)
    same(np.sort(mpc.secret(x), axis), np.sort(x, axis))
    # Equal numbers keep their order.
    same(np.argsort(mpc.secret(np.round(x * 2)), axis), np.argsort(np.round(x * 2), axis, kind="stable"))
    small = mpc.secret(np.round(x * 2), bound=8)
    same(np.argsort(small, axis), np.argsort(np.round(x * 2), axis, kind="stable"))


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (0,), (2, 0), (17,), (3, 1, 2), (100,)])
def test_rows_of_any_length_are_sorted(mpc, rng, shape):
    x = numbers(rng, shape, np.float64)
    same(np.sort(mpc.secret(x)), np.sort(x))
    same(np.argsort(mpc.secret(x)), np.argsort(x, kind="stable"))


def test_the_ends_of_the_range_are_sorted(mpc):
    x = np.array([2.0**42 - 1, -(2.0**42) + 1, 0, UNIT, -UNIT, 2.0**42 - 1])
    same(np.sort(mpc.secret(x)), np.sort(x))
    same(np.argsort(mpc.secret(x)), np.argsort(x, kind="stable"))
    for wrong in (np.nan, np.inf, 2.0**42):
        with pytest.raises(RangeError):
            mpc.secret(np.array([1.0, wrong]))


def test_what_numpy_refuses_is_refused(mpc):
    x = mpc.secret(np.ones((2, 3)))
    for wrong in (2, -3):
        with pytest.raises(np.exceptions.AxisError):
            np.sort(x, wrong)
    with pytest.raises(ValueError, match="kth"):
        np.partition(x, 3)
    with pytest.raises(ValueError, match="range"):
        np.quantile(x, 1.5)
    with pytest.raises(ValueError, match="range"):
        np.percentile(x, 101)
    with pytest.raises(InputError, match="median of no numbers"):
        np.median(mpc.secret(np.zeros((2, 0))), 1)
    with pytest.raises(InputError, match="public edges"):
        np.histogram(x, 3)
    with pytest.raises(ValueError, match="monotonically"):
        np.histogram(x, [1, 0])
    with pytest.raises(RevealError, match="how many distinct"):
        np.unique(x)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
def test_medians_are_numpys(mpc, rng, axis):
    for shape in ((3, 4, 5), (2, 3, 1), (4, 4, 4)):
        for kind in (np.float64, np.int64):
            x = numbers(rng, shape, kind)
            same(np.median(mpc.secret(x), axis), np.median(x, axis), UNIT)
            same(np.median(mpc.secret(x), axis, keepdims=True), np.median(x, axis, keepdims=True), UNIT)


METHODS = ["linear", "lower", "higher", "nearest", "midpoint", "hazen", "weibull", "median_unbiased", "inverted_cdf"]


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_are_numpys_by_each_method(mpc, rng, method):
    x = numbers(rng, (4, 11), np.float64)
    q = np.array([[0.0, 0.31, 0.5], [0.9, 1.0, 0.25]])
    for axis in (None, 0, -1):
        got = np.quantile(mpc.secret(x), q, axis, method=method)
        same(got, np.quantile(x, q, axis, method=method), 6 * UNIT)
    same(np.percentile(mpc.secret(x), 40, 1, method=method), np.percentile(x, 40, 1, method=method), 6 * UNIT)
    same(np.quantile(mpc.secret(x), 0.3, keepdims=True), np.quantile(x, 0.3, keepdims=True), 6 * UNIT)


def test_a_partition_has_its_numbers_in_place(mpc, rng):
    x = numbers(rng, (3, 9), np.float64)
    got = np.partition(mpc.secret(x), 4).reveal()
    assert (got[:, 4] == np.sort(x)[:, 4]).all()
    places = np.argpartition(mpc.secret(x), (2, 5)).reveal()
    assert (np.take_along_axis(x, places, 1)[:, [2, 5]] == np.sort(x)[:, [2, 5]]).all()


def test_histograms_are_numpys(mpc, rng):
    x = numbers(rng, (6, 20), np.float64)
    x[0, :3] = [-3, 0, 3]
    for bins, between in (([-3, -1, 0, 0.5, 3], None), (6, (-3, 3)), ([0, 1], None), (1, (-1, 1))):
        got, edges = np.histogram(mpc.secret(x), bins, between)
        want, same_edges = np.histogram(x, bins, between)
        same(got, want)
        assert (edges == same_edges).all()
        got, _ = np.histogram(mpc.secret(x), bins, between, density=True)
        same(got, np.histogram(x, bins, between, density=True)[0], 16 * UNIT)
        weights = np.abs(numbers(rng, x.shape, np.float64))
        got, _ = np.histogram(mpc.secret(x), bins, between, weights=mpc.secret(weights))
        same(got, np.histogram(x, bins, between, weights=weights)[0])
    whole = rng.integers(0, 5, 50)
    same(np.histogram(mpc.secret(whole), [0, 2, 4])[0], np.histogram(whole, [0, 2, 4])[0])


def test_covariances_and_correlations_are_numpys(mpc, rng):
    x = rng.normal(3, 2, (4, 50))
    x[1] += x[0]
    y = rng.normal(0, 100, (1, 50)) + 50 * x[:1]
    for rowvar in (True, False):
        a, b = (x, y) if rowvar else (x.T, y.T)
        got = np.cov(mpc.secret(a), mpc.secret(b), rowvar=rowvar)
        assert np.allclose(got.reveal(), np.cov(a, b, rowvar=rowvar), rtol=1e-5, atol=1e-3)
        got = np.corrcoef(mpc.secret(a), mpc.secret(b), rowvar=rowvar)
        assert np.allclose(got.reveal(), np.corrcoef(a, b, rowvar=rowvar), atol=2**-14)
    got = np.corrcoef(mpc.secret(x[0]), mpc.secret(y[0]))
    assert np.allclose(got.reveal(), np.corrcoef(x[0], y[0]), atol=2**-14)
    with pytest.raises(InputError, match="1 observations"):
        np.corrcoef(mpc.secret(np.ones((2, 1))))


def test_the_reference_follows_a_sort(mpc, rng):
    x = numbers(rng, (20,), np.float64)
    same(np.sort(mpc.secret(x)), np.sort(x))
    same(np.median(mpc.secret(x)), np.median(x), UNIT)
    with pytest.raises(RangeError):
        np.sort(mpc.secret(x, bound=0.25))


@pytest.mark.parametrize("q, method", [
    (0.4, "inverted_cdf"), ([0.4, 0.7], "lower"), (1, "linear"), (0.5, "linear"), (Fraction(1, 4), "linear"), (0.5, "nearest"),
])
def test_quantiles_of_integers_have_numpys_dtype(mpc, q, method):
    x = np.array([15, 20, 35, 40, 50])
    made, want = np.quantile(mpc.secret(x), q, method=method), np.asarray(np.quantile(x, q, method=method))
    assert made.dtype == (float if want.dtype == object else want.dtype) and np.array_equal(made.reveal(), want)


def test_bins_of_integers_have_exact_edges(mpc):
    """The edge after 337 is 337 and a rounding error above it."""
    x = np.array([337, 404, 739])
    assert np.array_equal(np.histogram(mpc.secret(x), 8296, (2, 2280))[0].reveal(), np.histogram(x, 8296, (2, 2280))[0])


def test_numbers_at_secret_places_are_numpys(mpc, rng):
    x = np.round(rng.normal(0, 5, (3, 7, 2)) * 1024) / 1024
    s = mpc.secret(x)
    places = rng.integers(0, 7, (2, 4))
    p = mpc.secret(places)
    assert (np.take(s, p, axis=1).reveal() == np.take(x, places, axis=1)).all()
    assert (np.take(s, mpc.secret(places % 3), axis=0).reveal() == np.take(x, places % 3, axis=0)).all()
    assert (np.take(s, p).reveal() == np.take(x, places)).all()
    assert (np.take(mpc.secret(x.astype(int)), p, axis=-2).reveal() == np.take(x.astype(int), places, axis=-2)).all()
    flat = places.ravel()
    counted = np.bincount(mpc.secret(flat), minlength=9)
    assert counted.dtype == np.int64 and (counted.reveal() == np.bincount(flat, minlength=9)).all()
    weights = np.round(rng.normal(0, 5, 8) * 1024) / 1024
    assert (np.bincount(p.reshape(-1), mpc.secret(weights), 7).reveal() == np.bincount(flat, weights, 7)).all()
    rows = functions.scatter_add(mpc.secret(x[0]), mpc.secret(np.array([2, 0, 2, 2, 1, 0, 2])), 4).reveal()
    assert (rows == np.stack([x[0][[1, 5]].sum(0), x[0][4], x[0][[0, 2, 3, 6]].sum(0), [0, 0]])).all()
    for wrong in (7, -1):
        with pytest.raises(RangeError, match="from 0 on"):
            np.take(s, mpc.secret(np.array([0, wrong])), axis=1)
    with pytest.raises(InputError, match="minlength"):
        np.bincount(p.reshape(-1))
    with pytest.raises(InputError, match="mode="):
        np.take(s, p, axis=1, mode="clip")

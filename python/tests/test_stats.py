"""Statistics of secret arrays against SciPy's and NumPy's, on the same numbers."""

import numpy as np
import pytest

from trefoil import InputError, stats

scipy_stats = pytest.importorskip("scipy.stats")
tables = pytest.importorskip("tables")

RELATIVE = 2.0**-14


def close(got, want, relative=RELATIVE):
    assert np.allclose(got.statistic, want.statistic, rtol=relative, atol=1e-4), (got, want)
    assert np.allclose(got.pvalue, want.pvalue, rtol=1e-2, atol=1e-4), (got, want)


def test_thin_functions_are_numpys(mpc, rng):
    x, y = rng.normal(2, 3, (2, 40))
    s, t = mpc.secret(x), mpc.secret(y)
    assert stats.count(s > 2).reveal() == (x > 2).sum()
    assert np.isclose(stats.mean(s).reveal(), x.mean(), rtol=1e-5)
    assert np.isclose(stats.variance(s).reveal(), x.var(ddof=1), rtol=1e-5)
    assert np.allclose(stats.quantiles(s).reveal(), np.quantile(x, [0.25, 0.5, 0.75]), atol=1e-5)
    assert np.allclose(stats.covariance(s, t).reveal(), np.cov(x, y), rtol=1e-4)
    assert np.allclose(stats.correlation(s, t).reveal(), np.corrcoef(x, y), atol=RELATIVE)


def test_statistics_of_many_large_numbers_are_numpys(mpc, rng):
    # Sums of squares and of products are beyond the range of fixed point.
    x = rng.normal(50_000, 20_000, 15_000)
    y = x / 2 + rng.normal(0, 9_000, x.size)
    s, t = mpc.secret(x), mpc.secret(y)
    assert np.isclose(stats.variance(s).reveal(), x.var(ddof=1), rtol=1e-5)
    assert np.isclose(np.std(s).reveal(), x.std(), rtol=1e-5)
    assert np.allclose(stats.covariance(s, t).reveal(), np.cov(x, y), rtol=1e-5)
    assert np.allclose(stats.correlation(s, t).reveal(), np.corrcoef(x, y), atol=RELATIVE)
    few = np.cov(mpc.secret(np.stack([x, y, x - y])[:, :7])).reveal()
    assert np.allclose(few, np.cov(np.stack([x, y, x - y])[:, :7]), rtol=1e-4)


def test_tables_mask_small_groups_on_shares(mpc, rng):
    a, b = rng.integers(0, 3, 200), rng.integers(10, 12, 200)
    a[:3] = 7
    b[:3] = 10
    want = np.array([[((a == i) & (b == j)).sum() for j in (10, 11)] for i in (0, 1, 2, 7)])
    s, t = mpc.secret(a), mpc.secret(b)
    cells = (s, t, [0, 1, 2, 7], [10, 11])
    shown = stats.contingency(*cells, least=0).reveal()
    assert (shown == want).all() and not shown.mask.any()
    table = stats.contingency(*cells, least=5, mask="cells")
    shown = table.reveal()
    assert (shown.mask == (want < 5)).all() and (shown == want)[want >= 5].all()
    # What is opened of a masked cell is 0.
    assert (table.cells.reveal()[want < 5] == 0).all()
    assert stats.contingency(*cells, least=5).reveal().mask.all()
    assert not stats.contingency(s, t, [0, 1, 2], [10, 11], least=5).reveal().mask.any()
    for wrong in ({"least": -1}, {"least": 2.5}, {"least": 1, "mask": "rows"}):
        with pytest.raises(InputError):
            stats.contingency(*cells, **wrong)
    for categories in ([], [1, 1], [[1]], ["a"]):
        with pytest.raises(InputError, match="categories"):
            stats.contingency(s, t, categories, [1], least=0)


def test_groups_have_their_counts_sums_and_means(mpc, rng):
    for n, size in ((60, 10), (2000, 1000)):
        keys, values = rng.integers(0, 4, n), np.round(rng.normal(size, size, n) * 1024) / 1024
        keys[:2] = 5
        found = stats.group_by(mpc.secret(keys), [0, 1, 2, 3, 5, 6], mpc.secret(values), least=3, mask="cells")
        counts, sums, means = (table.reveal() for table in found)
        assert (counts.mask == [False] * 4 + [True] * 2).all()
        for i in range(4):
            own = values[keys == i]
            assert counts[i] == len(own) and sums[i] == own.sum()
            assert np.isclose(means[i], own.mean(), rtol=2**-16, atol=2**-18), (means[i], own.mean())
    assert (stats.histogram(mpc.secret(values), [-1e5, 0, 1e5], least=1).reveal() == np.histogram(values, [-1e5, 0, 1e5])[0]).all()


@pytest.mark.parametrize("sizes", [(2, 2), (8, 30), (200, 150)])
@pytest.mark.parametrize("equal_var", [False, True])
def test_t_tests_are_scipys(mpc, rng, sizes, equal_var):
    x, y = rng.normal(1, 2, sizes[0]), rng.normal(0.2, 1, sizes[1])
    want = scipy_stats.ttest_ind(x, y, equal_var=equal_var)
    got = stats.t_test(mpc.secret(x), mpc.secret(y), equal_var=equal_var).reveal()
    close(got, want)
    assert np.isclose(got.df, want.df, rtol=1e-3)


@pytest.mark.parametrize("spread", [0.1, 500.0, 30_000.0, 400_000.0])
def test_t_tests_of_small_and_large_numbers_are_scipys(mpc, rng, spread):
    x, y = rng.normal(0.3 * spread, spread, 40), rng.normal(0, 2 * spread, 25)
    want = scipy_stats.ttest_ind(x, y, equal_var=False)
    got = stats.t_test(mpc.secret(x), mpc.secret(y)).reveal()
    assert np.isclose(got.statistic, want.statistic, rtol=2**-12) and np.isclose(got.df, want.df, rtol=2**-12)


@pytest.mark.parametrize("name", tables.sets())
def test_statistics_of_eleven_data_sets_are_within_their_bounds(mpc, name):
    for statistic, gap, *_ in tables.measured(mpc, tables.sets()[name]):
        assert gap <= tables.BOUNDS[statistic], (statistic, gap)


@pytest.mark.parametrize("n", [30, 1000])
def test_chi_square_is_scipys(mpc, rng, n):
    a = rng.integers(0, 3, n)
    b = (a + (rng.random(n) < 0.6) * rng.integers(0, 3, n)) % 3
    table = [[((a == i) & (b == j)).sum() for j in range(3)] for i in range(3)]
    want = scipy_stats.chi2_contingency(table, correction=False)
    close(stats.chi_square(mpc.secret(a), mpc.secret(b), range(3), range(3)).reveal(), want)


@pytest.mark.parametrize("sizes", [(1, 3), (9, 14), (60, 45)])
@pytest.mark.parametrize("step", [2.0**-12, 0.5])
def test_mann_whitney_is_scipys_with_ties(mpc, rng, sizes, step):
    x, y = (np.round(rng.normal(mean, 1, n) / step) * step for mean, n in zip((0.5, 0), sizes))
    want = scipy_stats.mannwhitneyu(x, y, method="asymptotic")
    u, test = stats.mann_whitney(mpc.secret(x), mpc.secret(y))
    assert u.reveal() == want.statistic
    assert np.isclose(test.reveal().pvalue, want.pvalue, rtol=1e-3, atol=1e-6)
    # Whole numbers too.
    u, _ = stats.mann_whitney(mpc.secret(np.round(x).astype(int)), mpc.secret(np.round(y).astype(int)))
    assert u.reveal() == scipy_stats.mannwhitneyu(np.round(x), np.round(y)).statistic


def survivors(rng, n, rate):
    times = np.minimum(np.ceil(rng.exponential(1 / rate, n)), 12)
    events = (rng.random(n) < 0.7) & (times < 12)
    return times, events


def test_survival_is_scipys(mpc, rng):
    times, events = survivors(rng, 80, 0.2)
    grid = np.arange(1, 12)
    data = scipy_stats.CensoredData(times[events], right=times[~events])
    want = scipy_stats.ecdf(data).sf
    found = stats.kaplan_meier(mpc.secret(times), mpc.secret(events), grid, least=0)
    assert np.allclose(found.survival.reveal(), want.evaluate(grid), atol=2**-14)
    assert (found.at_risk.reveal() == [(times >= t).sum() for t in grid]).all()
    assert (found.events.reveal() == [((times == t) & events).sum() for t in grid]).all()
    masked = stats.kaplan_meier(mpc.secret(times), mpc.secret(events), grid, least=20).survival.reveal()
    assert (masked.mask == [(times >= t).sum() < 20 for t in grid]).all() and masked.mask.any()


def test_log_rank_is_scipys(mpc, rng):
    one, other = survivors(rng, 50, 0.3), survivors(rng, 70, 0.15)
    censored = [scipy_stats.CensoredData(t[e], right=t[~e]) for t, e in (one, other)]
    want = scipy_stats.logrank(*censored)
    times, events = (np.concatenate(parts) for parts in zip(one, other))
    groups = np.arange(120) < 50
    got = stats.log_rank(mpc.secret(times), mpc.secret(events), mpc.secret(groups), np.arange(1, 14)).reveal()
    assert np.isclose(got.statistic, want.statistic**2, rtol=2**-10)
    assert np.isclose(got.pvalue, want.pvalue, rtol=1e-2, atol=1e-4)


def test_tests_refuse_what_they_cannot_use(mpc):
    x = mpc.secret(np.array([1.0]))
    with pytest.raises(InputError, match="two or more"):
        stats.t_test(x, x)
    with pytest.raises(InputError, match="one axis"):
        stats.mann_whitney(x.reshape(1, 1), x)
    with pytest.raises(InputError, match="two or more"):
        stats.chi_square(x, x, [1], [1])
    with pytest.raises(InputError, match="rising"):
        stats.kaplan_meier(x, x > 0, [2, 1], least=0)
    with pytest.raises(InputError, match="shapes"):
        stats.log_rank(x, x > 0, mpc.secret(np.ones(2)), [1.0])

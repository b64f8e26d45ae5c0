"""Every statistic of ``trefoil.stats`` beside SciPy's or NumPy's on eleven data sets: writes the table of ``docs/statistics.md``.

    python tables.py FILE
"""

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats
from estimators import SEED, made_sets, put, real_sets, rounded

import trefoil
from trefoil import stats

TABLE = "table of statistics"
DATA = Path(__file__).parents[2] / "models/data"

#: The bounds that the functions' descriptions state, relative to the largest number of a result, or to 1 if that is larger.
BOUNDS = {
    "count": 0, "mean": 2**-18, "variance": 2**-16, "quantiles": 2**-17, "covariance": 2**-16, "correlation": 2**-14, "histogram": 0,
    "contingency": 0, "group_by": 2**-16, "t_test": 2**-12, "chi_square": 2**-14, "mann_whitney": 2**-10, "kaplan_meier": 2**-13,
    "log_rank": 2**-10,
}


def sets():
    """Two columns of numbers, two of categories, and times with events, of each data set."""
    census = pd.read_csv(gzip.open(DATA / "census.csv.gz"))
    all_ = {name: X for name, (X, _) in (real_sets() | made_sets()).items()}
    all_["census"] = census[["age", "hours-per-week", "education-num"]].to_numpy(float)
    rng = np.random.default_rng(SEED)
    found = {}
    for name, X in all_.items():
        X = rounded(np.asarray(X, float)[:2000])
        wide = sorted(np.argsort(-X.std(0))[:2])
        x, y = X[:, wide[0]], X[:, wide[1]]
        parts = [np.searchsorted(np.quantile(column, [0.33, 0.67]), column) for column in (x, y)]
        # Times of made-up patients, longer where x is above its median.
        longer = x > np.median(x)
        times = np.minimum(np.ceil(rng.exponential(np.where(longer, 9.0, 5.0))), 12)
        events = (rng.random(len(x)) < 0.8) & (times < 12)
        found[name] = x, y, parts[0], parts[1], times, events, longer
    return found


def cases(mpc, x, y, a, b, times, events, longer):
    """The name of each statistic, a call that makes it of secrets, how it is shown, and what it should be."""
    sx, sy, sa, sb, st, se, sl = (mpc.secret(values) for values in (x, y, a, b, times, events, longer))
    edges = np.unique(np.quantile(x, [0, 0.25, 0.5, 0.75, 1])) + 2.0**-7
    edges[0] -= 1
    table = np.array([[((a == i) & (b == j)).sum() for j in range(3)] for i in range(3)])
    grid = np.arange(1, 12)
    survival = scipy.stats.ecdf(scipy.stats.CensoredData(times[events], right=times[~events])).sf.evaluate(grid)
    apart = [scipy.stats.CensoredData(times[events & who], right=times[~events & who]) for who in (longer, ~longer)]
    number = lambda secret: secret.reveal()
    statistic = lambda test: test.reveal().statistic
    yield "count", lambda: stats.count(sx > float(x[0])), number, (x > x[0]).sum()
    yield "mean", lambda: stats.mean(sx), number, x.mean()
    yield "variance", lambda: stats.variance(sx), number, x.var(ddof=1)
    yield "quantiles", lambda: stats.quantiles(sx), number, np.quantile(x, [0.25, 0.5, 0.75])
    yield "covariance", lambda: stats.covariance(sx, sy), number, np.cov(x, y)
    yield "correlation", lambda: stats.correlation(sx, sy), number, np.corrcoef(x, y)
    yield "histogram", lambda: stats.histogram(sx, edges, least=1), number, np.histogram(x, edges)[0]
    yield "contingency", lambda: stats.contingency(sa, sb, range(3), range(3), least=0), number, table
    means = [x[b == part].mean() for part in np.unique(b)]
    yield "group_by", lambda: stats.group_by(sb, np.unique(b), sx, least=1), lambda groups: groups.means.reveal(), means
    half = len(x) // 2
    want = scipy.stats.ttest_ind(x[:half], y[half:], equal_var=False).statistic
    yield "t_test", lambda: stats.t_test(sx[:half], sy[half:]), statistic, want
    if (table.sum(0) > 0).all() and (table.sum(1) > 0).all():
        want = scipy.stats.chi2_contingency(table, correction=False).statistic
        yield "chi_square", lambda: stats.chi_square(sa, sb, range(3), range(3)), statistic, want
    want = scipy.stats.mannwhitneyu(x[:half], y[half:]).statistic
    yield "mann_whitney", lambda: stats.mann_whitney(sx[:half], sy[half:])[0], number, want
    yield "kaplan_meier", lambda: stats.kaplan_meier(st, se, grid, least=0), lambda found: found.survival.reveal(), survival
    yield "log_rank", lambda: stats.log_rank(st, se, sl, np.arange(1, 14)), statistic, scipy.stats.logrank(*apart).statistic ** 2


def measured(mpc, data):
    """The name, the greatest difference relative to the largest number, seconds and cost of each statistic of a
    data set."""
    for name, make, show, want in cases(mpc, *data):
        mpc.cost()
        began = time.perf_counter()
        found = np.asarray(show(make()), float)
        seconds, cost = time.perf_counter() - began, mpc.cost()
        largest = max(np.abs(want).max(), 1.0)
        yield name, np.abs(found - want).max() / largest, seconds, cost


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    found = {}
    with trefoil.local(check=False) as mpc:
        for data, columns in sets().items():
            for name, gap, seconds, cost in measured(mpc, columns):
                found.setdefault(name, []).append((data, gap, seconds, cost, len(columns[0])))
                print(f"{name:14} {data:14} {gap:.1e}", flush=True)
    lines = ["| statistic | data sets | greatest difference | where | bound | seconds, 2,000 rows | MB a party | rounds |",
             "|---|--:|--:|---|--:|--:|--:|--:|"]
    for name, rows in found.items():
        data, gap, *_ = max(rows, key=lambda row: row[1])
        *_, seconds, cost, count = next(row for row in rows if row[4] == 2000)
        exact = "exact" if BOUNDS[name] == 0 else f"{BOUNDS[name]:.1e}"
        lines.append(f"| `{name}` | {len(rows)} | {gap:.1e} | {data} | {exact} | {seconds:.3f} | {cost.bytes / mpc.parties / 1e6:.2f} | {cost.rounds} |")
    print("\n".join(lines))
    put(parser.parse_args().file, TABLE, lines)


if __name__ == "__main__":
    main()

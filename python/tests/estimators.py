"""Every estimator of ``trefoil.learn`` beside scikit-learn's on the same data: writes tables of ``docs/estimators.md``.

    python estimators.py [--boosting] FILE
"""

import argparse
import platform
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn import (
    cluster, datasets, decomposition, ensemble, linear_model, metrics, naive_bayes, preprocessing, svm, tree,
)

import trefoil
from trefoil import learn

SEED = 7
TABLE = "table of estimators"
BOOSTING = "table of boosting"


# -- data ------------------------------------------------------------------------------------------


def rounded(X):
    """Numbers as the session's words hold them."""
    return np.round(X * 2**20) / 2**20


def standard(X):
    X = X[:, X.std(0) > 0]
    return rounded(preprocessing.StandardScaler().fit_transform(X))


def real_sets():
    """scikit-learn's own data."""
    digits = datasets.load_digits(return_X_y=True)
    return {
        "iris": datasets.load_iris(return_X_y=True),
        "wine": datasets.load_wine(return_X_y=True),
        "breast cancer": datasets.load_breast_cancer(return_X_y=True),
        "diabetes": datasets.load_diabetes(return_X_y=True),
        "digits": (digits[0], digits[1]),
    }


def made_sets():
    """Made data, of one seed."""
    rng = np.random.default_rng(SEED)
    counts = rng.normal(size=(2000, 8))
    words = rng.dirichlet(np.full(100, 0.3), 4)
    topic = rng.integers(0, 4, 1000)
    return {
        "two classes": datasets.make_classification(2000, 20, n_informative=8, flip_y=0.05, random_state=SEED),
        "line": datasets.make_regression(2000, 20, n_informative=10, noise=20.0, random_state=SEED),
        "blobs": datasets.make_blobs(2000, 5, centers=4, cluster_std=2.0, random_state=SEED),
        "visits": (counts, rng.poisson(np.exp(1 + counts @ rng.normal(0, 0.3, 8)))),
        "words": (np.stack([rng.multinomial(80, words[t]) for t in topic]), topic),
    }


# -- one estimator ---------------------------------------------------------------------------------


def binned(X, edges):
    return np.stack([np.searchsorted(row, x, "right") for x, row in zip(X.T, edges)], 1)


def difference(ours, theirs, mpc, X, seen):
    """The greatest difference of what the two predict, and what that is."""
    S = mpc.secret(X)
    if hasattr(theirs, "predict_proba"):
        return "probability", abs(ours.predict_proba(S).reveal() - theirs.predict_proba(seen)).max()
    if hasattr(theirs, "decision_function"):
        got = ours.decision_function(S).reveal().reshape(len(X), -1)
        return "score of a row", abs(got - theirs.decision_function(seen).reshape(len(X), -1)).max()
    if isinstance(theirs, cluster.KMeans):
        spread = np.sqrt(X.var(0).mean())
        return "centre / deviation", abs(ours.cluster_centers_.reveal() - theirs.cluster_centers_).max() / spread
    if isinstance(theirs, decomposition.PCA):
        return "component", abs(ours.components_.reveal() - theirs.components_).max()
    if isinstance(theirs, preprocessing.StandardScaler):
        return "scaled number", abs(ours.transform(S).reveal() - theirs.transform(X)).max()
    want = theirs.predict(seen)
    return "prediction / deviation", abs(ours.predict(S).reveal() - want).max() / want.std()


def scores(ours, theirs, mpc, X, y, seen):
    if isinstance(theirs, preprocessing.StandardScaler):
        return "", ""
    if isinstance(theirs, decomposition.PCA):
        return f"{theirs.explained_variance_ratio_.sum():.4f}", f"{ours.explained_variance_ratio_.reveal().sum():.4f}"
    if isinstance(theirs, cluster.KMeans):
        return f"{theirs.score(X):.5g}", f"{ours.score(mpc.secret(X)).reveal():.5g}"
    # Of counts scikit-learn has another score: that of the deviance.
    whose = "" if type(theirs).__module__.startswith("sklearn") else " (XGBoost)"
    counts = isinstance(theirs, linear_model.PoissonRegressor)
    theirs_ = metrics.r2_score(y, theirs.predict(X)) if counts else theirs.score(seen, y)
    return f"{theirs_:.4f}{whose}", f"{ours.score(mpc.secret(X), mpc.secret(y)).reveal():.4f}"


def row(mpc, name, ours, theirs, X, y):
    S, T = mpc.secret(X), mpc.secret(y)
    mpc.cost()
    start = time.perf_counter()
    ours.fit(S, T)
    # All that was asked for is computed when something of it is shown.
    next(value for value in vars(ours).values() if isinstance(value, trefoil.Secret)).reveal()
    seconds, cost = time.perf_counter() - start, mpc.cost()
    seen = binned(X, ours.edges_.reveal()) if hasattr(ours, "edges_") else X
    theirs.fit(seen, y)
    what, gap = difference(ours, theirs, mpc, X, seen)
    want, got = scores(ours, theirs, mpc, X, y, seen)
    done = "" if not hasattr(ours, "converged_") or ours.converged_.reveal() else " (not converged)"
    cells = [
        f"`{type(ours).__name__}`{done}", f"{name}, {X.shape[0]:,} x {X.shape[1]}", want, got, f"{gap:.1e} {what}",
        f"{seconds:.1f}", f"{cost.bytes / mpc.parties / 1e6:.1f}", f"{cost.rounds:,}",
    ]
    print("  ".join(cells), flush=True)
    return "| " + " | ".join(cells) + " |"


def boosted_classifier(**options):
    """XGBoost's boosting, or scikit-learn's where it is missing."""
    try:
        import xgboost
    except ImportError:
        return ensemble.GradientBoostingClassifier(random_state=0, **options)
    return xgboost.XGBClassifier(tree_method="exact", learning_rate=0.1, **options)


def table():
    """All estimators, each on data of its kind."""
    sets = {name: (np.asarray(X, float), y) for name, (X, y) in (real_sets() | made_sets()).items()}
    plain = {name: (rounded(X), y) for name, (X, y) in sets.items()}
    even = {name: (standard(X), y) for name, (X, y) in sets.items()}
    labels = lambda name: np.unique(sets[name][1])
    exact = {"tol": 1e-10, "max_iter": 100000}
    jobs = []
    for name in ("wine", "breast cancer"):
        jobs.append((name, learn.StandardScaler(), preprocessing.StandardScaler(), *plain[name]))
    for name in ("diabetes", "line", "breast cancer"):
        jobs.append((name, learn.LinearRegression(), linear_model.LinearRegression(), *plain[name]))
    for name in ("diabetes", "line"):
        jobs.append((name, learn.Ridge(1.0), linear_model.Ridge(1.0), *plain[name]))
    for name in ("breast cancer", "iris", "wine", "two classes"):
        jobs.append((name, learn.LogisticRegression(labels(name)), linear_model.LogisticRegression(**exact), *even[name]))
    counted = linear_model.PoissonRegressor(alpha=0.01, **exact)
    jobs.append(("visits", learn.PoissonRegressor(0.01), counted, *plain["visits"]))
    for name in ("breast cancer", "iris", "two classes"):
        jobs.append((name, learn.LinearSVC(labels(name)), svm.LinearSVC(dual=False, **exact), *even[name]))
    for name, smooth in (("iris", 1e-9), ("wine", 1e-9), ("digits", 1e-3)):
        ours, theirs = learn.GaussianNB(labels(name), var_smoothing=smooth), naive_bayes.GaussianNB(var_smoothing=smooth)
        jobs.append((name, ours, theirs, *(even if name == "digits" else plain)[name]))
    dark = {"binarize": 7.5}
    jobs.append(("digits", learn.BernoulliNB(range(10), **dark), naive_bayes.BernoulliNB(**dark), *plain["digits"]))
    for name in ("digits", "words"):
        jobs.append((name, learn.MultinomialNB(labels(name)), naive_bayes.MultinomialNB(), *plain[name]))
    for name, count in (("iris", 3), ("blobs", 4), ("digits", 10)):
        X, y = plain[name]
        start = cluster.KMeans(count, init=X[:count], n_init=1, max_iter=30, tol=0)
        jobs.append((name, learn.KMeans(count, max_iter=30), start, X, y))
    for name in ("iris", "wine", "breast cancer"):
        jobs.append((name, learn.PCA(3), decomposition.PCA(3), *even[name]))
    for name in ("iris", "breast cancer", "two classes"):
        ours = learn.DecisionTreeClassifier(labels(name), max_depth=4, bins=16)
        jobs.append((name, ours, tree.DecisionTreeClassifier(max_depth=4, random_state=0), *plain[name]))
    for name in ("diabetes", "line"):
        ours = learn.DecisionTreeRegressor(max_depth=4, bins=16)
        jobs.append((name, ours, tree.DecisionTreeRegressor(max_depth=4, random_state=0), *plain[name]))
    for name in ("breast cancer", "two classes"):
        ours = learn.GradientBoostingClassifier(labels(name), n_estimators=20, max_depth=3, bins=16)
        jobs.append((name, ours, boosted_classifier(n_estimators=20, max_depth=3), *plain[name]))
    for name in ("diabetes", "line"):
        ours = learn.GradientBoostingRegressor(n_estimators=20, max_depth=3, bins=16, reg_lambda=0.0)
        theirs = ensemble.GradientBoostingRegressor(n_estimators=20, max_depth=3, random_state=0)
        jobs.append((name, ours, theirs, *plain[name]))
    head = ["estimator", "data", "scikit-learn's score", "score", "greatest difference", "seconds", "MB a party", "rounds"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|--:|--:|---|--:|--:|--:|"]
    with trefoil.local(check=False) as mpc:
        lines += [row(mpc, *job) for job in jobs]
    return lines


def boosting():
    """Fifty trees of depth 4 on 10,000 rows of 20 columns, beside a library of boosted trees in the clear."""
    X, y = datasets.make_classification(12000, 20, n_informative=10, flip_y=0.05, class_sep=0.8, random_state=SEED)
    X = rounded(X)
    train, test = slice(0, 10000), slice(10000, None)
    try:
        import xgboost

        options = {"n_jobs": 2, "max_bin": 32, "tree_method": "hist", "reg_lambda": 1.0}
        theirs = xgboost.XGBClassifier(n_estimators=50, max_depth=4, learning_rate=0.1, **options)
        label = "XGBoost"
    except ImportError:
        theirs = ensemble.HistGradientBoostingClassifier(max_iter=50, max_depth=4, learning_rate=0.1, max_bins=32)
        label = "scikit-learn's `HistGradientBoostingClassifier`"
    start = time.perf_counter()
    theirs.fit(X[train], y[train])
    clear = time.perf_counter() - start
    lines = ["|  | AUC on 2,000 new rows | accuracy | seconds | MB a party | rounds |", "|---|--:|--:|--:|--:|--:|"]
    shares = theirs.predict_proba(X[test])[:, 1]

    def told(shares):
        return f"{metrics.roc_auc_score(y[test], shares):.4f} | {((shares > 0.5) == y[test]).mean():.4f}"

    lines.append(f"| {label}, in the clear | {told(shares)} | {clear:.1f} | | |")
    with trefoil.local(check=False) as mpc:
        ours = learn.GradientBoostingClassifier(n_estimators=50, max_depth=4, learning_rate=0.1, bins=32)
        S, T = mpc.secret(X[train]), mpc.secret(y[train])
        mpc.cost()
        start = time.perf_counter()
        ours.fit(S, T).values_.reveal()
        seconds, cost = time.perf_counter() - start, mpc.cost()
        new = mpc.secret(X[test])
        mpc.cost()
        start = time.perf_counter()
        shares = ours.predict_proba(new).reveal()[:, 1]
        later, used = time.perf_counter() - start, mpc.cost()
    rows = ("fit", seconds, cost, told(shares)), ("probabilities of the 2,000 rows", later, used, " | ")
    for what, spent, cost, said in rows:
        mega = cost.bytes / 3 / 1e6
        lines.append(f"| `GradientBoostingClassifier`, {what} | {said} | {spent:.1f} | {mega:,.0f} | {cost.rounds:,} |")
    print("\n".join(lines), flush=True)
    return lines


def put(path, what, lines):
    """Writes lines between the two marks of a table."""
    text = path.read_text()
    begin, end = f"<!-- {what} -->\n", f"<!-- end of the {what} -->"
    before, rest = text.split(begin)
    path.write_text(before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1])


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--boosting", action="store_true", help="the table of boosting alone")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}")
    if options.boosting:
        put(options.file, BOOSTING, boosting())
    else:
        put(options.file, TABLE, table())


if __name__ == "__main__":
    main()

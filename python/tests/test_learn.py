"""Estimators on shares against scikit-learn's, on the same numbers, within the errors that they state."""

import numpy as np
import pytest

import trefoil
from trefoil import InputError, learn

pytest.importorskip("sklearn")

from sklearn import cluster, datasets, decomposition, ensemble, linear_model, naive_bayes, preprocessing, svm, tree  # noqa: E402


def table(load, columns=None, standard=False):
    """A data set of scikit-learn's, as the session's words hold it."""
    X, y = load(return_X_y=True)
    X = X[:, :columns]
    X = preprocessing.StandardScaler().fit_transform(X) if standard else X
    return np.round(X * 2**20) / 2**20, y


def fit(mpc, estimator, X, y=None):
    return estimator.fit(mpc.secret(X), None if y is None else mpc.secret(y))


def binned(X, edges):
    """The bin of each number."""
    return np.stack([np.searchsorted(row, x, "right") for x, row in zip(X.T, edges)], 1)


# -- linear models ---------------------------------------------------------------------------------


def test_a_scaler_is_scikit_learns(mpc):
    X, _ = table(datasets.load_wine)
    X[:, 3] = 7.25
    # Far from 0, and so wide that the sum of squares has no encoding.
    X[:, 4] += 2.0**14
    X[:, 5] = np.round(X[:, 5] * 2.0**19)
    assert len(X) * X[:, 5].var() > 2**42
    want = preprocessing.StandardScaler().fit(X)
    found = fit(mpc, learn.StandardScaler(), X)
    assert np.allclose(found.mean_.reveal(), want.mean_, rtol=2**-30, atol=2**-18)
    assert np.allclose(found.scale_.reveal(), want.scale_, rtol=2**-16, atol=2**-19)
    rows = found.transform(mpc.secret(X))
    few = np.arange(X.shape[1]) != 5
    assert np.allclose(rows.reveal()[:, few], want.transform(X)[:, few], rtol=2**-14, atol=2**-15)
    assert np.allclose(rows.reveal()[:, 5], want.transform(X)[:, 5], rtol=2**-6)
    assert np.allclose(found.inverse_transform(rows).reveal()[:, few], X[:, few], rtol=2**-14, atol=2**-8)
    assert found.scale_.reveal()[3] == 1


def test_least_squares_are_scikit_learns(mpc):
    X, y = table(datasets.load_diabetes)
    least = np.linalg.eigvalsh(np.corrcoef(X.T))[0]
    for ours, theirs in (
        (learn.LinearRegression(), linear_model.LinearRegression()), (learn.Ridge(0.5), linear_model.Ridge(0.5)),
    ):
        found, want = fit(mpc, ours, X, y), theirs.fit(X, y)
        stated = 2**-17 / least * y.std()
        assert abs(found.predict(mpc.secret(X)).reveal() - want.predict(X)).max() < stated
        assert (abs(found.coef_.reveal() - want.coef_) < stated / X.std(0)).all()
        assert abs(found.intercept_.reveal() - want.intercept_) < stated
        assert abs(found.score(mpc.secret(X), mpc.secret(y)).reveal() - want.score(X, y)) < 2**-12


def test_columns_of_any_size_are_fitted_in_range(mpc, rng):
    """The reference beside the parties finds whatever leaves its range."""
    X = rng.normal(3, 1, (60, 4)) * [2.0**-8, 1, 2.0**8, 2.0**16]
    X = np.round(np.c_[X, np.full(60, 5.5)] * 2**20) / 2**20
    part = X[:, :4] / X[:, :4].std(0)
    y = 3000 + 500 * (part - part.mean(0)) @ [1, -2, 0.5, 1] + rng.normal(0, 100, 60)
    # scikit-learn would drop the small column.
    want = linear_model.LinearRegression().fit(part, y)
    found = fit(mpc, learn.LinearRegression(), X, y)
    got = found.predict(mpc.secret(X))
    assert np.allclose(got.reveal(), want.predict(part), atol=2**-10 * y.std())
    assert found.coef_.reveal()[4] == 0
    kind = (y > 3000).astype(int)
    model = fit(mpc, learn.LogisticRegression(max_iter=6), X, kind)
    assert model.score(mpc.secret(X), mpc.secret(kind)).reveal() > 0.8


@pytest.mark.parametrize("load, columns, C", [(datasets.load_breast_cancer, 8, 1.0), (datasets.load_iris, 4, 10.0)])
def test_logistic_regression_is_scikit_learns(mpc, load, columns, C):
    X, y = table(load, columns, standard=True)
    y = y * 3 + 2
    classes = np.unique(y)
    want = linear_model.LogisticRegression(C=C, tol=1e-10, max_iter=10000).fit(X, y)
    found = fit(mpc, learn.LogisticRegression(classes, C=C, max_iter=10), X, y)
    assert found.converged_.reveal()
    assert found.coef_.shape == want.coef_.shape and found.intercept_.shape == want.intercept_.shape
    assert abs(found.coef_.reveal() - want.coef_).max() < 2**-9
    assert abs(found.intercept_.reveal() - want.intercept_).max() < 2**-9
    assert abs(found.predict_proba(mpc.secret(X)).reveal() - want.predict_proba(X)).max() < 2**-9
    assert (found.predict(mpc.secret(X)).reveal() == want.predict(X)).mean() > 0.99
    assert abs(found.score(mpc.secret(X), mpc.secret(y)).reveal() - want.score(X, y)) < 0.01


def test_penalties_are_in_the_columns_own_units(mpc):
    X, y = table(datasets.load_iris)
    X, y = X[50:] * [1, 1, 10, 0.1], y[50:]
    X = np.round(X * 2**20) / 2**20
    want = linear_model.LogisticRegression(C=0.1, tol=1e-10, max_iter=10000).fit(X, y)
    found = fit(mpc, learn.LogisticRegression([1, 2], C=0.1, max_iter=8), X, y)
    assert abs(found.predict_proba(mpc.secret(X)).reveal() - want.predict_proba(X)).max() < 2**-9


def test_few_steps_are_not_taken_for_converged(mpc):
    X, y = table(datasets.load_iris, standard=True)
    X, y = X[50:], y[50:]
    assert not fit(mpc, learn.LogisticRegression([1, 2], C=100.0, max_iter=2), X, y).converged_.reveal()


def test_classes_without_a_minimum_are_reported_and_stay_in_range(mpc):
    """Three classes that a plane separates, without a penalty to speak of."""
    X, y = table(datasets.load_iris)
    X = X[::3] * 2.0**17
    found = fit(mpc, learn.LogisticRegression(range(3), max_iter=8), X, y[::3])
    share = found.score(mpc.secret(X), mpc.secret(y[::3]))
    assert not found.converged_.reveal() and share.reveal() > 0.9


def test_regression_of_counts_is_scikit_learns(mpc, rng):
    X = np.round(rng.normal(size=(200, 4)) * 2**20) / 2**20
    y = rng.poisson(np.exp(1.5 + X @ [0.5, -0.3, 0.2, 0]))
    want = linear_model.PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=10000).fit(X, y)
    found = fit(mpc, learn.PoissonRegressor(0.1, max_iter=7), X, y)
    assert found.converged_.reveal()
    assert np.allclose(found.coef_.reveal(), want.coef_, atol=2**-10)
    assert abs(found.intercept_.reveal() - want.intercept_) < 2**-10
    assert np.allclose(found.predict(mpc.secret(X)).reveal(), want.predict(X), rtol=2**-9)


@pytest.mark.parametrize("load, columns", [(datasets.load_breast_cancer, 6), (datasets.load_iris, 4)])
def test_support_vector_machines_are_scikit_learns(mpc, load, columns):
    X, y = table(load, columns)
    X = X + 0.5
    classes = np.unique(y)
    X = np.round(X / X.std(0) * 2**20) / 2**20
    want = svm.LinearSVC(C=0.5, tol=1e-10, max_iter=100000, dual=False).fit(X, y)
    found = fit(mpc, learn.LinearSVC(classes, C=0.5, max_iter=10), X, y)
    assert found.converged_.reveal()
    scores = found.decision_function(mpc.secret(X)).reveal().reshape(len(X), -1)
    assert abs(scores - want.decision_function(X).reshape(len(X), -1)).max() < 2**-8
    assert (found.predict(mpc.secret(X)).reveal() == want.predict(X)).mean() > 0.99


# -- naive Bayes -----------------------------------------------------------------------------------


def test_naive_bayes_of_normal_columns_is_scikit_learns(mpc):
    X, y = table(datasets.load_wine)
    want = naive_bayes.GaussianNB().fit(X, y)
    found = fit(mpc, learn.GaussianNB(range(3)), X, y)
    assert (abs(found.theta_.reveal() - want.theta_) < 2**-15 * X.std(0) + 2**-19).all()
    assert (abs(found.var_.reveal() - want.var_) < 2**-15 * X.var(0) + 2**-18).all()
    assert (found.class_count_.reveal() == want.class_count_).all()
    got, wanted = found.predict_joint_log_proba(mpc.secret(X)).reveal(), want.predict_joint_log_proba(X)
    got, wanted = got - got[:, :1], wanted - wanted[:, :1]
    assert (abs(got - wanted) < 2**-13 * (1 + abs(wanted))).all()
    assert (found.predict(mpc.secret(X)).reveal() == want.predict(X)).all()


def test_naive_bayes_of_counts_is_scikit_learns(mpc):
    X, y = datasets.load_digits(return_X_y=True)
    X, y = X[:300].astype(int), y[:300]
    for ours, theirs, error in (
        (learn.MultinomialNB(range(10)), naive_bayes.MultinomialNB(), 2**-16 * X.sum(1).max()),
        (learn.BernoulliNB(range(10), binarize=4.0), naive_bayes.BernoulliNB(binarize=4.0), 2**-16 * 64),
    ):
        found, want = fit(mpc, ours, X, y), theirs.fit(X, y)
        assert (found.feature_count_.reveal() == want.feature_count_).all()
        assert abs(found.feature_log_prob_.reveal() - want.feature_log_prob_).max() < 2**-16
        logs = found.predict_joint_log_proba(mpc.secret(X)).reveal()
        assert abs(logs - want.predict_joint_log_proba(X)).max() < error
        assert (found.predict(mpc.secret(X)).reveal() == want.predict(X)).mean() > 0.99


# -- clusters and components -----------------------------------------------------------------------


def test_clusters_are_scikit_learns(mpc):
    X, _ = table(datasets.load_wine)
    for init in ("first", X[[0, 70, 150]]):
        start = X[:3] if isinstance(init, str) else init
        want = cluster.KMeans(3, init=start, n_init=1, max_iter=15, tol=0).fit(X)
        found = fit(mpc, learn.KMeans(3, init=init, max_iter=15), X)
        assert found.converged_.reveal() == (want.n_iter_ < 15)
        assert (found.labels_.reveal() == want.labels_).all()
        error = 2**-17 * np.sqrt(X.var(0).mean()) + 2**-16
        assert np.allclose(found.cluster_centers_.reveal(), want.cluster_centers_, atol=error)
        assert np.isclose(found.inertia_.reveal(), want.inertia_, rtol=2**-15)
        assert (found.predict(mpc.secret(X[:20])).reveal() == want.predict(X[:20])).all()
        assert np.isclose(found.score(mpc.secret(X[:20])).reveal(), want.score(X[:20]), rtol=2**-15)


def test_an_empty_cluster_keeps_its_centre(mpc, rng):
    X = np.round(rng.normal(size=(30, 2)) * 2**20) / 2**20
    centres = fit(mpc, learn.KMeans(2, init=[[0.0, 0.0], [50.0, 50.0]], max_iter=2), X).cluster_centers_.reveal()
    assert np.allclose(centres, [X.mean(0), [50, 50]], atol=2**-14)


def test_components_are_scikit_learns(mpc):
    X, _ = table(datasets.load_wine, 6, standard=True)
    want = decomposition.PCA(3).fit(X)
    found = fit(mpc, learn.PCA(3), X)
    ratio = want.explained_variance_ratio_
    assert abs(found.explained_variance_ratio_.reveal() - ratio).max() < 2**-16
    assert np.allclose(found.explained_variance_.reveal(), want.explained_variance_, atol=2**-12)
    gaps = -np.diff([*ratio, 0.5 * ratio[-1]])
    assert (abs(found.components_.reveal() - want.components_).max(1) < 2**-14 / gaps).all()
    rows = found.transform(mpc.secret(X))
    assert abs(rows.reveal() - want.transform(X)).max() < 2**-10
    assert abs(found.inverse_transform(rows).reveal() - want.inverse_transform(want.transform(X))).max() < 2**-10


# -- trees -----------------------------------------------------------------------------------------


def test_a_tree_of_classes_is_scikit_learns(mpc):
    X, y = table(datasets.load_breast_cancer, 6)
    found = fit(mpc, learn.DecisionTreeClassifier(max_depth=3, bins=8), X, y)
    edges = found.edges_.reveal()
    assert np.allclose(edges, np.quantile(X, np.arange(1, 8) / 8, axis=0).T, rtol=2**-16, atol=2**-18)
    want = tree.DecisionTreeClassifier(max_depth=3, random_state=0).fit(binned(X, edges), y)
    assert abs(found.predict_proba(mpc.secret(X)).reveal() - want.predict_proba(binned(X, edges))).max() < 2**-13
    assert (found.predict(mpc.secret(X)).reveal() == want.predict(binned(X, edges))).all()
    # A node has one column, or none; here the first has scikit-learn's.
    features = found.features_.reveal()[0]
    assert set(features.sum(1)) <= {0, 1} and features[0].argmax() == want.tree_.feature[0]
    assert found.thresholds_.shape == (1, 7) and found.values_.shape == (1, 8, 2)


def test_a_tree_of_three_classes_leaves_pure_nodes_alone(mpc):
    X, y = table(datasets.load_iris)
    found = fit(mpc, learn.DecisionTreeClassifier(range(3), max_depth=3, min_samples_leaf=5, bins=8), X, y)
    edges = found.edges_.reveal()
    want = tree.DecisionTreeClassifier(max_depth=3, min_samples_leaf=5, random_state=0).fit(binned(X, edges), y)
    assert abs(found.score(mpc.secret(X), mpc.secret(y)).reveal() - want.score(binned(X, edges), y)) < 2**-12
    assert (found.features_.reveal()[0].sum(1) == 0).any()


def test_trees_of_numbers_are_scikit_learns(mpc):
    X, y = table(datasets.load_diabetes, 6)
    grid = np.quantile(X, np.arange(1, 8) / 8, axis=0).T
    grid = np.round(grid * 2**20) / 2**20
    B = binned(X, grid)
    found = fit(mpc, learn.DecisionTreeRegressor(max_depth=3, edges=grid, min_samples_leaf=4), X, y)
    want = tree.DecisionTreeRegressor(max_depth=3, min_samples_leaf=4, random_state=0).fit(B, y)
    assert abs(found.predict(mpc.secret(X)).reveal() - want.predict(B)).max() < 2**-12 * y.std()
    options = dict(n_estimators=5, max_depth=2, learning_rate=0.3)
    found = fit(mpc, learn.GradientBoostingRegressor(edges=grid, reg_lambda=0.0, **options), X, y)
    want = ensemble.GradientBoostingRegressor(random_state=0, **options).fit(B, y)
    assert abs(found.predict(mpc.secret(X)).reveal() - want.predict(B)).max() < 2**-10 * y.std()
    assert abs(found.score(mpc.secret(X), mpc.secret(y)).reveal() - want.score(B, y)) < 2**-10


def boosted(B, edges, y, rounds, depth, rate, penalty, least):
    """Scores of boosting by second derivatives, one row at a time: what the parties compute in the mass."""
    scores = np.full(len(y), np.log(y.mean() / (1 - y.mean())))
    for _ in range(rounds):
        share = 1 / (1 + np.exp(-scores))
        slopes, curves = y - share, share * (1 - share)

        def reached(rows):
            return slopes[rows].sum() ** 2 / (curves[rows].sum() + penalty)

        def grow(rows, level):
            if level == depth:
                scores[rows] += rate * slopes[rows].sum() / (curves[rows].sum() + penalty)
                return
            best = (reached(rows) + 1e-4, rows[:0], rows)
            for column in range(B.shape[1]):
                for edge in range(edges):
                    below = B[rows, column] <= edge
                    left, right = rows[below], rows[~below]
                    if min(curves[left].sum(), curves[right].sum()) >= least:
                        best = max(best, (reached(left) + reached(right), left, right), key=lambda found: found[0])
            for part in best[1:]:
                grow(part, level + 1)

        grow(np.arange(len(y)), 0)
    return scores


def test_boosted_classes_are_those_of_second_derivatives(mpc, rng):
    X = np.round(rng.normal(size=(300, 4)) * 2**20) / 2**20
    y = (X @ [1, -1, 0.5, 0] + rng.normal(size=300) > 0.3).astype(int)
    options = dict(n_estimators=10, max_depth=2, learning_rate=0.5, reg_lambda=1.0, min_child_weight=2.0)
    found = fit(mpc, learn.GradientBoostingClassifier(**options, bins=8), X, y)
    B = binned(X, found.edges_.reveal())
    want = boosted(B, 7, y, 10, 2, 0.5, 1.0, 2.0)
    scores = found.decision_function(mpc.secret(X)).reveal().reshape(-1)
    assert abs(scores - want).max() < 2**-9
    # Few nodes are compared one by one; with 30 nodes above, rows are compared with all 28 edges.
    few = fit(mpc, learn.GradientBoostingClassifier(**options | {"n_estimators": 1}, bins=8), X, y)
    scores = few.decision_function(mpc.secret(X)).reveal().reshape(-1)
    assert abs(scores - boosted(B, 7, y, 1, 2, 0.5, 1.0, 2.0)).max() < 2**-9


def test_boosting_tells_three_classes_apart(mpc):
    X, y = table(datasets.load_iris)
    options = dict(n_estimators=3, max_depth=2, bins=8, learning_rate=0.5)
    found = fit(mpc, learn.GradientBoostingClassifier([0, 1, 2], **options), X, y)
    shares = found.predict_proba(mpc.secret(X)).reveal()
    assert abs(shares.sum(1) - 1).max() < 2**-14
    assert found.score(mpc.secret(X), mpc.secret(y)).reveal() > 0.95
    assert found.values_.shape == (9, 4, 1)


# -- what is refused -------------------------------------------------------------------------------

CLASSIFIERS = [
    learn.BernoulliNB, learn.DecisionTreeClassifier, learn.GaussianNB, learn.GradientBoostingClassifier, learn.LinearSVC,
    learn.LogisticRegression, learn.MultinomialNB,
]
ALL = [getattr(learn, name) for name in learn.__all__]


@pytest.mark.parametrize("kind", ALL)
def test_bad_input_is_refused_by_name(mpc, kind):
    X, y = mpc.secret(np.ones((6, 2))), mpc.secret(np.arange(6) % 2)
    alone = kind in (learn.KMeans, learn.PCA, learn.StandardScaler)
    for wrong, said in (
        (np.ones((6, 2)), "not a secret array"), (X.reshape(-1), "two axes"), (X[:0], "at least one row"), (X[:, :0], "column"),
    ):
        with pytest.raises(InputError, match=said):
            kind().fit(wrong, y)
    if not alone:
        for wrong, said in ((y[:5], "y has shape"), (y.reshape(-1, 1), "y has shape"), (np.ones(6), "not a secret array")):
            with pytest.raises(InputError, match=said):
                kind().fit(X, wrong)
    with pytest.raises(InputError, match="call fit first"):
        getattr(kind(), "transform" if hasattr(kind, "transform") else "predict")(X)
    with pytest.raises(InputError, match="no parameter `depth`"):
        kind().set_params(depth=3)
    given = kind().get_params()
    assert kind().set_params(**given).get_params() == given and repr(kind()).startswith(kind.__name__)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("classes", [[], [1], [1, 1], [[0, 1]], ["a", "b"]])
def test_classes_are_public_and_several(mpc, kind, classes):
    with pytest.raises(InputError, match="classes"):
        kind(classes).fit(mpc.secret(np.ones((4, 2))), mpc.secret(np.arange(4) % 2))


@pytest.mark.parametrize("estimator", [
    learn.Ridge(0.0), learn.Ridge(-1.0), learn.LogisticRegression(C=0.0), learn.LogisticRegression(max_iter=0),
    learn.LinearSVC(C=float("nan")), learn.PoissonRegressor(-1.0), learn.BernoulliNB(alpha=0.0),
    learn.MultinomialNB(alpha=1e-9), learn.KMeans(9), learn.KMeans(2, init="random"), learn.KMeans(2, init=[[0.0], [1.0]]),
    learn.PCA(3), learn.PCA(0), learn.DecisionTreeClassifier(bins=1), learn.DecisionTreeRegressor(max_depth=0),
    learn.DecisionTreeRegressor(edges=[[1.0, 2.0]]), learn.GradientBoostingClassifier(reg_lambda=0.0),
    learn.GradientBoostingRegressor(min_child_weight=0.0), learn.GradientBoostingRegressor(learning_rate=0.0),
])
def test_parameters_out_of_range_are_refused(mpc, estimator):
    with pytest.raises(InputError):
        estimator.fit(mpc.secret(np.arange(12.0).reshape(6, 2)), mpc.secret(np.arange(6) % 2))


def test_one_row_and_one_class_stay_in_range(mpc, rng):
    one, many = mpc.secret(np.ones((1, 2))), mpc.secret(rng.normal(size=(20, 2)))
    for estimator in (learn.LinearRegression(), learn.DecisionTreeRegressor(max_depth=1), learn.LogisticRegression(max_iter=3)):
        assert estimator.fit(one, mpc.secret(np.ones(1))).predict(one).reveal() == 1
    for estimator in (learn.Ridge(), learn.LinearSVC(max_iter=3), learn.GradientBoostingClassifier(n_estimators=1, bins=4)):
        assert (estimator.fit(many, mpc.secret(np.ones(20))).predict(many).reveal() == 1).all()


def test_rows_with_other_columns_are_refused(mpc):
    X, y = table(datasets.load_iris)
    found = fit(mpc, learn.GaussianNB(range(3)), X, y)
    with pytest.raises(InputError, match="3 columns"):
        found.predict(mpc.secret(X[:, :3]))


def test_nothing_is_shown_before_reveal(mpc):
    """What a fit learns is secret."""
    X, y = table(datasets.load_iris)
    X, y = X[:30], y[:30]
    found = fit(mpc, learn.GaussianNB([0, 1]), X, y)
    learned = [value for name, value in vars(found).items() if name.endswith("_") and name not in ("classes_", "n_features_in_")]
    assert len(learned) >= 3 and all(isinstance(value, trefoil.Secret) for value in learned)

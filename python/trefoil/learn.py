"""Estimators with scikit-learn's names, trained and evaluated on secret shares.

``fit(X, y)`` takes secret arrays, and what it learns is secret: ``coef_``, ``cluster_centers_``, the splits of trees.
Public are the numbers of rows and columns, the list of classes and all parameters. Nothing that the parties do
depends on a number: an iteration has a fixed count of steps, and all trees have their full depth.

Fits bring columns to one scale themselves; coefficients are in the columns' own units, and penalties are on those, as
in scikit-learn. The docstrings state limits and errors, and a user may reveal whether an iterative fit has converged:
``converged_``.
"""

from ._learn_bayes import BernoulliNB, GaussianNB, MultinomialNB
from ._learn_groups import PCA, KMeans
from ._learn_linear import LinearRegression, LinearSVC, LogisticRegression, PoissonRegressor, Ridge
from ._learn_scale import StandardScaler
from ._learn_trees import (
    DecisionTreeClassifier, DecisionTreeRegressor, GradientBoostingClassifier, GradientBoostingRegressor,
)

__all__ = [
    "BernoulliNB", "DecisionTreeClassifier", "DecisionTreeRegressor", "GaussianNB", "GradientBoostingClassifier",
    "GradientBoostingRegressor", "KMeans", "LinearRegression", "LinearSVC", "LogisticRegression", "MultinomialNB",
    "PCA", "PoissonRegressor", "Ridge", "StandardScaler",
]

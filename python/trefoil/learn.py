"""Estimators."""
from ._learn_bayes import BernoulliNB, GaussianNB, MultinomialNB
from ._learn_groups import PCA, KMeans
from ._learn_linear import LinearRegression, LinearSVC, LogisticRegression, PoissonRegressor, Ridge
from ._learn_scale import StandardScaler

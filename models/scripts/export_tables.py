"""Trains models of tables with scikit-learn, XGBoost and LightGBM, and exports them with the libraries' answers.

    pip install -r models/scripts/table-requirements.txt
    python models/scripts/export_tables.py FOLDER            all of them, at the sizes people use
    python models/scripts/export_tables.py FOLDER --shipped  those of `models/data/tables`

Beside `NAME.onnx` lies `NAME.safetensors` with rows `in.0` that the model was not trained on, and what the library
itself, not onnxruntime, answers to them: `out.0`, `out.1`, ... in the order of the file, all as f32. Labels that are
texts stand as their position among the model's classes. Data sets are those that scikit-learn contains.
"""

import argparse
import pathlib
import warnings

import numpy as np
import onnx
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn import (datasets, ensemble, linear_model, naive_bayes, neighbors, neural_network, pipeline, preprocessing,
                     svm, tree)
from xgboost import XGBClassifier, XGBRegressor

import onnx_files

# Rows that each model answers.
ROWS = 24

# Opset of ONNX and of its tables, as the converters take them.
OPSETS = {"": 18, "ai.onnx.ml": 3}


def split(data):
    """Rows to train on and rows to ask about, as f32: the converters compare and multiply in it."""
    x, y = data.data.astype(np.float32), data.target
    order = np.random.default_rng(7).permutation(len(x))
    asked, trained = order[:ROWS], order[ROWS:]
    return x[trained], y[trained], x[asked]


IRIS, WINE = split(datasets.load_iris()), split(datasets.load_wine())
CANCER, DIABETES = split(datasets.load_breast_cancer()), split(datasets.load_diabetes())


def scaled(model):
    return pipeline.make_pipeline(preprocessing.StandardScaler(), model)


def named(data, names):
    """The same data with texts for labels."""
    x, y, asked = data
    return x, np.array(names)[y], asked


def models(small):
    """Name, model and data of each; with few and shallow trees where they are small."""
    trees = 4 if small else 100
    rounds = 5 if small else 200
    depth = {"max_depth": 3} if small else {}
    leaves = {"num_leaves": 5, "verbose": -1} if small else {"verbose": -1}
    hidden = (8,) if small else (64, 32)
    text = named(IRIS, ["setosa", "versicolor", "virginica"])
    sizes = {"random_state": 1, **depth}
    yield "logistic", scaled(linear_model.LogisticRegression()), CANCER
    yield "logistic-several", scaled(linear_model.LogisticRegression()), WINE
    yield "logistic-texts", linear_model.LogisticRegression(max_iter=1000), text
    yield "linear", linear_model.LinearRegression(), DIABETES
    yield "svc", scaled(svm.SVC()), CANCER
    yield "svc-several", scaled(svm.SVC()), IRIS
    yield "svc-probability", scaled(svm.SVC(probability=True, random_state=1)), IRIS
    yield "svr", scaled(svm.SVR()), DIABETES
    yield "mlp", scaled(neural_network.MLPClassifier(hidden, max_iter=300, random_state=1)), WINE
    yield "mlp-regressor", scaled(neural_network.MLPRegressor(hidden_layer_sizes=hidden, max_iter=300, random_state=1)), DIABETES
    yield "forest", ensemble.RandomForestClassifier(trees, **sizes), WINE
    yield "forest-regressor", ensemble.RandomForestRegressor(trees, **sizes), DIABETES
    yield "xgboost", XGBClassifier(n_estimators=rounds, **sizes), CANCER
    yield "xgboost-several", XGBClassifier(n_estimators=rounds, **sizes), WINE
    yield "xgboost-regressor", XGBRegressor(n_estimators=rounds, **sizes), DIABETES
    yield "lightgbm", LGBMClassifier(n_estimators=rounds, **leaves), CANCER
    yield "lightgbm-several", LGBMClassifier(n_estimators=rounds, **leaves), WINE
    yield "lightgbm-regressor", LGBMRegressor(n_estimators=rounds, **leaves), DIABETES
    if small:
        return
    yield "logistic-raw", linear_model.LogisticRegression(max_iter=10_000), CANCER
    yield "ridge", linear_model.Ridge(), DIABETES
    yield "lasso", linear_model.Lasso(0.1), DIABETES
    yield "sgd", scaled(linear_model.SGDClassifier(random_state=1)), IRIS
    yield "perceptron", scaled(linear_model.Perceptron()), IRIS
    yield "linear-svc", scaled(svm.LinearSVC()), CANCER
    yield "linear-svr", scaled(svm.LinearSVR()), DIABETES
    yield "svc-linear", scaled(svm.SVC(kernel="linear")), CANCER
    yield "svc-polynomial", scaled(svm.SVC(kernel="poly")), IRIS
    yield "svc-sigmoid", scaled(svm.SVC(kernel="sigmoid")), CANCER
    yield "svc-texts", scaled(svm.SVC()), text
    yield "nu-svc", scaled(svm.NuSVC(nu=0.1)), CANCER
    yield "nu-svr", scaled(svm.NuSVR()), DIABETES
    yield "one-class", scaled(svm.OneClassSVM()), WINE
    yield "tree", tree.DecisionTreeClassifier(random_state=1), WINE
    yield "tree-regressor", tree.DecisionTreeRegressor(random_state=1), DIABETES
    yield "forest-texts", ensemble.RandomForestClassifier(trees, random_state=1), text
    yield "forest-two", ensemble.RandomForestClassifier(trees, random_state=1), CANCER
    yield "extra-trees", ensemble.ExtraTreesClassifier(trees, random_state=1), IRIS
    yield "boosting", ensemble.GradientBoostingClassifier(random_state=1), CANCER
    yield "boosting-several", ensemble.GradientBoostingClassifier(random_state=1), IRIS
    yield "boosting-regressor", ensemble.GradientBoostingRegressor(random_state=1), DIABETES
    yield "histogram-boosting", ensemble.HistGradientBoostingClassifier(random_state=1), CANCER
    yield "histogram-regressor", ensemble.HistGradientBoostingRegressor(random_state=1), DIABETES
    yield "ada", ensemble.AdaBoostClassifier(random_state=1), CANCER
    yield "bagging", ensemble.BaggingClassifier(random_state=1), IRIS
    yield "voting", ensemble.VotingClassifier([
        ("a", scaled(linear_model.LogisticRegression())),
        ("b", tree.DecisionTreeClassifier(random_state=1)),
    ], voting="soft", flatten_transform=False), IRIS
    yield "mlp-texts", scaled(neural_network.MLPClassifier(hidden, max_iter=300, random_state=1)), text
    yield "categories", pipeline.make_pipeline(
        preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"), linear_model.LogisticRegression(),
    ), tuple(values.round() if i != 1 else values for i, values in enumerate(IRIS))
    yield "ordinals", pipeline.make_pipeline(
        preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        tree.DecisionTreeClassifier(random_state=1),
    ), tuple(values.round() if i != 1 else values for i, values in enumerate(IRIS))
    yield "naive-bayes", naive_bayes.GaussianNB(), IRIS
    yield "neighbours", neighbors.KNeighborsClassifier(), IRIS
    yield "neighbours-regressor", neighbors.KNeighborsRegressor(), DIABETES
    yield "min-max", pipeline.make_pipeline(preprocessing.MinMaxScaler(), linear_model.LogisticRegression()), WINE
    yield "robust", pipeline.make_pipeline(preprocessing.RobustScaler(), linear_model.LogisticRegression()), WINE
    yield "normalised", pipeline.make_pipeline(preprocessing.Normalizer(), linear_model.LogisticRegression()), WINE
    yield "polynomial", pipeline.make_pipeline(
        preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(2), linear_model.Ridge()), DIABETES
    yield "bins", pipeline.make_pipeline(
        preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
        linear_model.LogisticRegression()), IRIS


def converted(model, x, maps):
    """The ONNX file; with probabilities as maps by label, the converters' default, where `maps` says so."""
    kind = type(model).__name__
    inputs = [("x", FloatTensorType([None, x.shape[1]]))]
    if kind.startswith("XGB"):
        return convert_xgboost(model, initial_types=inputs, target_opset=15)
    if kind.startswith("LGBM"):
        return convert_lightgbm(model, initial_types=inputs, target_opset=15, zipmap=maps)
    steps = getattr(model, "steps", [(None, model)])
    last = steps[-1][1]
    options = {id(model): {"zipmap": maps}} if hasattr(last, "classes_") and not isinstance(last, svm.LinearSVC) else None
    return to_onnx(model, x[:1], options=options, target_opset=OPSETS)


def answers(model, x, outputs):
    """What the library itself answers: label and scores of classifiers, numbers of others."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        answer = [model.predict(x).reshape(len(x), -1)]
        if hasattr(model, "decision_function"):
            answer.append(model.decision_function(x).reshape(len(x), -1))
        return answer[:outputs]
    label = model.predict(x)
    if label.dtype.kind in "UO":
        label = np.searchsorted(classes, label)
    if outputs == 1:
        return [label]
    if hasattr(model, "predict_proba"):
        return [label, model.predict_proba(x)]
    scores = model.decision_function(x)
    if scores.ndim > 1:
        return [label, scores]
    # The converter leaves a machine of two classes libsvm's sign, by which the first class is the positive one.
    last = getattr(model, "steps", [(None, model)])[-1][1]
    sign = -1 if isinstance(last, (svm.SVC, svm.NuSVC)) else 1
    return [label, np.stack([-sign * scores, sign * scores], 1)]


def steady(model, x):
    """The rows of which answers stay when they move by a millionth: others stand on a threshold of a tree, and there
    the 20 bits behind the point may decide otherwise than the 24 bits of a float."""
    method = next(name for name in ("predict_proba", "decision_function", "predict") if hasattr(model, name))
    ask = getattr(model, method)
    answer = ask(x).reshape(len(x), -1)
    step = np.float32(1e-6) * np.maximum(1, np.abs(x))
    moved = [np.abs(ask(x + by).reshape(len(x), -1) - answer).max(1) for by in (-step, step)]
    return x[np.maximum(*moved) <= max(1, np.abs(answer).max()) / 128]


def save(name, model, data, folder):
    x, y, asked = data
    model.fit(x, y)
    # Every other classifier's probabilities come as a map.
    written = converted(model, x, maps=len(name) % 2 == 0)
    onnx.checker.check_model(written)
    onnx_files.strip(written.graph)
    onnx.save(written, folder / f"{name}.onnx")
    if any("Tree" in node.op_type for node in written.graph.node):
        asked = steady(model, asked)
    assert len(asked) >= ROWS // 4, f"only {len(asked)} rows are steady"
    answer = answers(model, asked, len(written.graph.output))
    tensors = {"in.0": asked} | {f"out.{i}": values for i, values in enumerate(answer)}
    onnx_files.save_tensors(tensors, folder / f"{name}.safetensors")
    used = sorted({node.op_type for node in written.graph.node})
    print(f"{name}: {(folder / f'{name}.onnx').stat().st_size} bytes: {' '.join(used)}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shipped", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    for name, model, data in models(options.shipped):
        try:
            save(name, model, data, options.folder)
        except Exception as error:
            # A converter that knows a model no longer is not ours to mend; the count says how many there are.
            reason = str(error).splitlines()[0][:120]
            print(f"{name}: not exported: {type(error).__name__}: {reason}", flush=True)


if __name__ == "__main__":
    main()

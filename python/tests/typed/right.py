"""Typed code of a user, in which type checkers find no mistake."""

import os
from typing import Any

import numpy
import trefoil
from trefoil import np
from numpy.typing import NDArray
from typing_extensions import assert_type


def arrays(x: trefoil.Secret, w: NDArray[numpy.float64]) -> trefoil.Secret:
    assert_type(np.exp(x), trefoil.Secret)
    assert_type(np.exp(x).reveal(), numpy.ndarray)
    assert_type(np.maximum(0.0, x), trefoil.Secret)
    assert_type(np.where(x > 0, x, 0.0), trefoil.Secret)
    assert_type(np.concatenate([x, w]), trefoil.Secret)
    assert_type(np.split(x, 2), list[trefoil.Secret])
    assert_type(np.sum(x, axis=0), trefoil.Secret)
    assert_type(np.linalg.norm(x), trefoil.Secret)
    assert_type(np.sort(x), trefoil.Secret)
    assert_type(np.quantile(x, [0.1, 0.9], axis=0), trefoil.Secret)
    assert_type(np.histogram(x, [0, 1, 2])[0], trefoil.Secret)
    assert_type(np.einsum("ij,j->i", w, x), trefoil.Secret)
    assert_type(np.zeros(3) * x, trefoil.Secret)
    assert_type(w @ x, trefoil.Secret)
    assert_type(2 / x ** 2 - -x, trefoil.Secret)
    assert_type(x == 1, trefoil.Secret)
    assert_type(~(x > 0) & (x < 1), trefoil.Secret)
    assert_type(x[0, ..., None].T, trefoil.Secret)
    assert_type([row for row in x], list[trefoil.Secret])
    assert_type(trefoil.functions.exp(x), trefoil.Secret)
    assert_type(trefoil.functions.max(x, axis=0), trefoil.Secret)
    assert_type(trefoil.functions.top1(x), tuple[trefoil.Secret, trefoil.Secret])
    # Of a type that is not known: NumPy's annotations allow no more.
    y: trefoil.Secret = numpy.exp(x) + x
    x[0] = 1.0
    return y.reshape(-1, 2).sum(axis=(0, 1)).sigmoid()


def estimators(x: trefoil.Secret, y: trefoil.Secret) -> trefoil.Secret:
    rows = trefoil.learn.StandardScaler().fit_transform(x)
    model = trefoil.learn.LogisticRegression([0, 1], C=2.0).fit(rows, y)
    assert_type(model.coef_, trefoil.Secret)
    assert_type(model.converged_.reveal(), numpy.ndarray)
    assert_type(model.predict_proba(rows), trefoil.Secret)
    trees = trefoil.learn.GradientBoostingRegressor(n_estimators=5, edges=[0.0, 1.0]).fit(x, y)
    assert_type(trees.values_, trefoil.Secret)
    assert_type(trefoil.learn.KMeans(2, init=x[:2]).fit(x).labels_, trefoil.Secret)
    return trees.set_params(bins=8).fit(x, y).score(x, y)


class Straight(trefoil.Function):
    @staticmethod
    def forward(context: Any, x: trefoil.Secret, scale: float) -> trefoil.Secret:
        context.scale = scale
        return np.sign(x).astype(float)

    @staticmethod
    def backward(context: Any, grad: trefoil.Secret) -> tuple[trefoil.Secret, None]:
        return grad * context.scale, None


def session() -> None:
    with trefoil.local(frac_bits=16) as mpc:
        x, w = mpc.secret([[1.0, 2.0]]), mpc.secret(numpy.ones(2), bound=1.0)
        assert_type(x, trefoil.Secret)
        assert_type(mpc.reveal(x, w), list[numpy.ndarray])
        shown = x.reveal(to=1)
        if shown is not None:
            assert_type(shown, numpy.ndarray)
        w.requires_grad = True
        assert_type(Straight.apply(w, 2.0), trefoil.Secret)
        (x @ w).sum().backward()
        if w.grad is not None:
            w = w - 0.1 * w.grad
        arrays(x, numpy.ones(2))
        assert_type(mpc.cost().bytes, int)
        mpc.load("x", key=None).save(os.path.join("folder", "x"))


def training(images: numpy.ndarray, labels: numpy.ndarray) -> dict[str, float]:
    model = trefoil.Model.from_onnx("model.onnx", dims={"n": 4})
    adam = trefoil.optim.Adam(lr=trefoil.optim.Cosine(1e-3, steps=100))
    trainer = trefoil.Trainer(model, "cross_entropy", adam, batch_size=16, metrics=("loss", "accuracy"))
    for x, y in trainer.batches(images, labels, seed=1):
        trainer.step(x, y, lr=1e-4)
    steps = trainer.fit(images, labels, epochs=2, validation=(images, labels), callbacks=[lambda trainer, seen: seen["loss"] < 0.1])
    assert_type(steps, list[dict[str, float]])
    assert_type(trainer.predict(images), trefoil.Secret)
    return trainer.evaluate(images, labels, metrics=["loss", "f1"])


def cluster(rows: numpy.ndarray) -> None:
    with trefoil.connect("client.toml") as cluster:
        for info in cluster.models():
            print(info.name)
        cluster.data.put("rows", rows, readers=["alice"])

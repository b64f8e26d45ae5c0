"""Typed code of a user with mistakes, each on a line that ends in `error`."""

import numpy
import trefoil
from trefoil import np


def arrays(x: trefoil.Secret) -> float:
    numpy.linalg.inv(x)  # error
    np.searchsorted(x, 1)  # error
    float(x)  # error
    range(10)[x]  # error
    x.item()  # error
    x // 2  # error
    np.exp(x).item()  # error
    np.exp(x).shown()  # error
    x.sum(axis="rows")  # error
    x.reveal(0)  # error
    x.reveal(to=1).sum()  # error
    x.reshape("2")  # error
    trefoil.functions.exp([1.0])  # error
    trefoil.functions.clamp(x, 0.0)  # error
    return x.sum()  # error


def estimators(x: trefoil.Secret) -> None:
    trefoil.learn.Ridge(penalty=1.0)  # error
    trefoil.learn.PCA(2).fit(numpy.ones((3, 2)))  # error


def session() -> None:
    trefoil.local(frac=16)  # error
    mpc = trefoil.local(frac_bits="16")  # error
    mpc.secret([1.0], owner="alice")  # error
    mpc.reveal([1.0])  # error
    mpc.costs()  # error


def training(model: trefoil.Model) -> None:
    trainer = trefoil.Trainer(model, "cross_entropy", batchsize=16)  # error
    trainer.fit([1.0], [2], epochs="2")  # error
    trainer.steps.reveal()  # error
    trefoil.optim.SGD(rate=0.1)  # error
    trefoil.optim.Adam(lr="fast")  # error

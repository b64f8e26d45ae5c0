"""How a training goes: losses, optimisers and learning rates. All of it is public."""

import math
from dataclasses import dataclass

from ._errors import ConfigError


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy of the softmax of logits ``[batch, classes]`` and classes, as ``torch.nn.CrossEntropyLoss``.

    Attributes
    ----------
    label_smoothing : float
        The part of each label that all classes share.
    """

    label_smoothing: float = 0.0

    def _named(self):
        return "cross_entropy", {"smoothing": float(self.label_smoothing)}


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Cross-entropy of the sigmoid of each logit and a label from 0 to 1, as ``torch.nn.BCEWithLogitsLoss``."""

    def _named(self):
        return "binary_cross_entropy", {}


@dataclass(frozen=True)
class MeanSquare:
    """The mean square of the differences, as ``torch.nn.MSELoss``."""

    def _named(self):
        return "mean_square", {}


@dataclass(frozen=True)
class Huber:
    """Half the square of a difference up to ``delta``, and linear beyond, as ``torch.nn.HuberLoss``."""

    delta: float = 1.0

    def _named(self):
        return "huber", {"delta": float(self.delta)}


@dataclass(frozen=True)
class Cosine:
    """A learning rate that falls from ``lr`` to 0 in half a cosine wave of so many steps.

    Attributes
    ----------
    lr : float
    steps : int
    warm_up : int
        Steps in which it rises to ``lr`` first, in equal parts.
    """

    lr: float
    steps: int
    warm_up: int = 0

    def __call__(self, step):
        part = min(step, self.steps) / max(self.steps, 1)
        return self.lr * (0.5 + 0.5 * math.cos(math.pi * part)) * _rise(step, self.warm_up)


@dataclass(frozen=True)
class StepLR:
    """A learning rate that is multiplied by ``gamma`` after every ``every`` steps."""

    lr: float
    every: int
    gamma: float = 0.1
    warm_up: int = 0

    def __call__(self, step):
        return self.lr * self.gamma ** (step // max(self.every, 1)) * _rise(step, self.warm_up)


def _rise(step, warm_up):
    return min((step + 1) / max(warm_up, 1), 1.0)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, as ``torch.optim.SGD``.

    Attributes
    ----------
    lr : float, Cosine or StepLR
        The learning rate, for the mean of a batch's losses.
    momentum : float
    nesterov : bool
    weight_decay : float

    Notes
    -----
    The rate is a factor of what joins the momentum, not of the momentum itself: the same as PyTorch's while it
    does not change.
    """

    lr: object = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def _named(self):
        numbers = {"momentum": float(self.momentum), "nesterov": float(self.nesterov), "weight_decay": float(self.weight_decay)}
        return "sgd", numbers


def _rate(lr):
    """The largest rate, and the rate of each step."""
    if isinstance(lr, (int, float)):
        return float(lr), lambda step: float(lr)
    if callable(lr) and hasattr(lr, "lr"):
        return float(lr.lr), lr
    raise ConfigError("`lr` is a number, or one of trefoil.optim's schedules")

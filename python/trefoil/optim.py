"""How a training goes: losses, optimisers and learning rates. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass

from ._errors import ConfigError


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy of the softmax of logits ``[batch, classes]`` and classes, as ``torch.nn.CrossEntropyLoss``.

    Attributes
    ----------
    label_smoothing : float
        The part of each label that all classes share.

    Notes
    -----
    The loss that is shown is ``-ln(p + 2^-20)`` for the probability ``p`` of the right class, so that there is one for
    ``p = 0`` too: it is below PyTorch's by about ``2^-20 / p``, and never above 13.87. Gradients are those of ``-ln p``.
    It counts the classes as they are given, also where labels are smoothed.
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
class DP:
    """Differential privacy: each example's gradient is clipped, and noise that nobody knows is added to their sum.

    Attributes
    ----------
    clip : float
        The largest norm of an example's gradient, all trained weights together.
    noise : float
        The noise multiplier: what any two of the three servers add has this standard deviation, times ``clip``.
    delta : float
        The delta at which epsilon is told.
    microbatch : int
        Rows whose mean gradient is clipped together: 1 for each example. A row is protected as with half the noise where
        there are more.

    Notes
    -----
    Epsilon is for one who knows in which steps a row takes part: shuffling in public amplifies nothing. Metrics are exact
    sums over training rows, so none are shown; evaluate on other rows.
    """

    clip: float
    noise: float
    delta: float = 1e-5
    microbatch: int = 1

    def _numbers(self):
        return float(self.clip), float(self.noise), int(self.microbatch), float(self.delta)


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

    def _named(self):
        return "cosine", {"lr": float(self.lr), "steps": int(self.steps), "warm_up": int(self.warm_up)}


@dataclass(frozen=True)
class StepLR:
    """A learning rate that is multiplied by ``gamma`` after every ``every`` steps."""

    lr: float
    every: int
    gamma: float = 0.1
    warm_up: int = 0

    def _named(self):
        numbers = {"lr": float(self.lr), "every": int(self.every), "gamma": float(self.gamma), "warm_up": int(self.warm_up)}
        return "steps", numbers


def _schedule(lr):
    """A learning rate by its name, with its numbers."""
    if isinstance(lr, (Cosine, StepLR)):
        return lr._named()
    if isinstance(lr, (int, float)):
        return "constant", {"lr": float(lr), "warm_up": 0}
    raise ConfigError("`lr` is a number, or one of trefoil.optim's schedules; a step takes another rate by `lr=`")


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

    lr: float | Cosine | StepLR = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def _named(self):
        numbers = {"momentum": float(self.momentum), "nesterov": bool(self.nesterov), "weight_decay": float(self.weight_decay)}
        return "sgd", numbers


@dataclass(frozen=True)
class Adam:
    """Adam, as ``torch.optim.Adam``.

    Attributes
    ----------
    lr : float, Cosine or StepLR
    betas : tuple of float
        The parts of first and second moment that go on. The first is taken to the nearest 32nd.
    eps : float
        Keeps small second moments from making large steps; its square is added below the root.
    weight_decay : float
        Added to the gradient, times the weight.
    amsgrad : bool
        Whether steps follow the largest second moment so far.
    by_row : bool
        Whether all weights of an output neuron or of a filter share a second moment: one inverse root for each
        of them instead of one for each weight, by far the largest part of a step.
    every : int
        Steps from one inverse root to the next; those between are as cheap as gradient descent.

    Notes
    -----
    Second moments have 38 fraction bits. A smaller one is 0, and its weight stays where it is, while PyTorch moves it
    by ``lr`` however small the gradient was: in the first step those of gradients below some ``2**-13`` of the batch's
    mean loss, and below ``2**-17`` later. From ``eps=2**-12`` on both make the same steps.

    With ``every`` above 1 a weight whose gradient was 0 when the roots were taken, a pixel's that was dark until then,
    makes its next steps by the root of 0, as long as ``lr / eps`` times the gradient: choose ``eps=2**-12`` or more.
    """

    lr: float | Cosine | StepLR = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    by_row: bool = False
    every: int = 1

    _decoupled = False

    def _named(self):
        numbers = {
            "betas": [float(beta) for beta in self.betas], "eps": float(self.eps), "weight_decay": float(self.weight_decay),
            "decoupled": self._decoupled, "amsgrad": bool(self.amsgrad), "by_row": bool(self.by_row), "every": int(self.every),
        }
        return "adam", numbers


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay leaves the moments alone, as ``torch.optim.AdamW``.

    Attributes
    ----------
    weight_decay : float
        Times the rate, the part of each weight that is lost in every step.
    """

    weight_decay: float = 1e-2

    _decoupled = True

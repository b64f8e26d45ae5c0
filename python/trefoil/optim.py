"""Losses, optimisers and learning rates of a training. All of them are public."""

from __future__ import annotations

from dataclasses import dataclass

from ._errors import ConfigError


def _numbers(values):
    """Numbers of a public weight: a list, an array or a tensor of PyTorch."""
    if values is None:
        return ()
    values = values.tolist() if hasattr(values, "tolist") else values
    return tuple(float(v) for v in (values if isinstance(values, (list, tuple)) else [values]))


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy of the softmax of logits ``[batch, classes, ...]`` and labels, as ``torch.nn.CrossEntropyLoss``.

    Attributes
    ----------
    label_smoothing : float
        The part of each label that all classes share.
    weight : sequence of float, optional
        The weight of each class; public. The mean is over the sum of a batch's weights.
    ignore_index : int, optional
        A label that is ignored: the mean is over the others. PyTorch's -100 is ignored only if it is given here.
    soft : bool
        True if labels are real numbers in the logits' shape: the classes' probabilities, or those times a row's weight
        (``sample_weight[:, None] * one_hot``). The mean is over all rows.
    axis : int
        The axis of classes. It is 1 as in PyTorch, for rows and pictures ``[n, k, h, w]``, or -1 for sequences
        ``[n, t, k]``.

    Notes
    -----
    Labels have the shape of the logits without the axis of classes. If they are plain classes, neither smoothed nor
    soft, the loss that is shown is ``-ln(p + 2^-20)`` for the probability ``p`` of the right class. It is below
    PyTorch's by about ``2^-20 / p``, and never above 13.87. Gradients are those of ``-ln p``. The options ``weight``
    and ``ignore_index`` cost an inverse of one number and a product for each logit.
    """

    label_smoothing: float = 0.0
    weight: tuple[float, ...] | None = None
    ignore_index: int | None = None
    soft: bool = False
    axis: int = 1

    _name = "cross_entropy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _numbers(self.weight) or None)
        if self.soft and self.ignore_index is not None:
            raise ConfigError("soft labels are ignored where they are 0; leave `ignore_index` out")

    def _named(self, rank=2):
        if not -rank < self.axis < rank or self.axis == 0:
            raise ConfigError(f"the network's result has {rank} axes; classes lie along one of 1 to {rank - 1}, not {self.axis}")
        numbers = {"smoothing": float(self.label_smoothing), "weights": list(self.weight or ()), "soft": bool(self.soft),
                   "ignore": self.ignore_index is not None, "axis": self.axis % rank}
        return self._name, numbers


@dataclass(frozen=True)
class LogLikelihood(CrossEntropy):
    """Minus the logarithm of the right class's probability, as ``torch.nn.NLLLoss``: the network gives logarithms."""

    _name = "log_likelihood"


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Cross-entropy of the sigmoid of each logit and a label from 0 to 1, as ``torch.nn.BCEWithLogitsLoss``.

    Attributes
    ----------
    pos_weight : float or sequence of float, optional
        The weight of a label of 1, one number or one for each column; public.
    probabilities : bool
        True if the network itself ends in a sigmoid, as for ``torch.nn.BCELoss``.
    """

    pos_weight: float | tuple[float, ...] | None = None
    probabilities: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "pos_weight", _numbers(self.pos_weight) or None)
        if self.probabilities and self.pos_weight:
            raise ConfigError("`pos_weight` is for logits; leave the network's sigmoid out")

    def _named(self, rank=2):
        if self.probabilities:
            return "probability_cross_entropy", {}
        return "binary_cross_entropy", {"positive": list(self.pos_weight or ())}


@dataclass(frozen=True)
class MeanSquare:
    """The mean square of the differences, as ``torch.nn.MSELoss``."""

    def _named(self, rank=2):
        return "mean_square", {}


@dataclass(frozen=True)
class Absolute:
    """The mean magnitude of the differences, as ``torch.nn.L1Loss``.

    With labels of zeros it is the mean of results that are losses themselves, at least 0, such as those of triplets.

    Examples
    --------
    >>> class Triplet(torch.nn.Module):
    ...     def __init__(self, net, margin=1.0):
    ...         super().__init__()
    ...         self.net, self.loss = net, torch.nn.TripletMarginLoss(margin, reduction="none")
    ...     def forward(self, anchor, positive, negative):
    ...         return self.loss(self.net(anchor), self.net(positive), self.net(negative)).unsqueeze(1)
    >>> trainer = trefoil.Trainer(Triplet(net), "absolute", example=(x, x, x))
    >>> trainer.step(anchor, positive, negative, np.zeros((len(anchor), 1)))
    """

    def _named(self, rank=2):
        return "absolute", {}


@dataclass(frozen=True)
class Huber:
    """Half the square of a difference up to ``delta``, and linear beyond, as ``torch.nn.HuberLoss``."""

    delta: float = 1.0

    def _named(self, rank=2):
        return "huber", {"delta": float(self.delta)}


@dataclass(frozen=True)
class SmoothAbsolute:
    """Half the square of a difference over ``beta`` up to it, and its magnitude beyond, as ``torch.nn.SmoothL1Loss``."""

    beta: float = 1.0

    def _named(self, rank=2):
        return "smooth_absolute", {"beta": float(self.beta)}


@dataclass(frozen=True)
class DP:
    """Differential privacy: each example's gradient is clipped, and noise that no party knows is added to their sum.

    Attributes
    ----------
    clip : float
        The largest norm of an example's gradient, all trained weights together.
    noise : float
        The noise multiplier. The noise of any two of the three servers has this standard deviation, times ``clip``.
    delta : float
        The delta at which epsilon is stated.
    microbatch : int
        Rows whose mean gradient is clipped together: 1 for each example. With more, a row is protected as with half
        the noise.

    Notes
    -----
    Epsilon holds against an attacker who knows the steps in which a row takes part: public shuffling amplifies nothing.
    Metrics are exact sums over training rows, so none are shown; evaluate on other rows.
    """

    clip: float
    noise: float
    delta: float = 1e-5
    microbatch: int = 1

    def _numbers(self):
        return float(self.clip), float(self.noise), int(self.microbatch), float(self.delta)


@dataclass(frozen=True)
class Cosine:
    """A learning rate that falls from ``lr`` to 0 in half a cosine wave of ``steps`` steps.

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


@dataclass(frozen=True)
class Rates:
    """A learning rate for each step, for any of PyTorch's schedules. For a :class:`Trainer` only.

    Steps after the last rate take that rate.

    Examples
    --------
    >>> trefoil.optim.Rates([0.1 * 0.95**step for step in range(100)])
    """

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", _numbers(self.rates))
        if not self.rates:
            raise ConfigError("give at least one rate")

    @property
    def lr(self) -> float:
        """The largest."""
        return max(self.rates)

    def _at(self, step):
        return self.rates[min(step, len(self.rates) - 1)]


def _schedule(lr):
    """A learning rate by its name, with its numbers."""
    if isinstance(lr, Rates):
        return "constant", {"lr": lr.lr, "warm_up": 0}
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
    lr : float, Cosine, StepLR or Rates
        The learning rate, for the mean of a batch's losses.
    momentum : float
    nesterov : bool
    weight_decay : float

    Notes
    -----
    The parties keep the momentum times the learning rate. A rate of 0 makes it 0, so no larger rate can follow, and from
    one step to the next a rate grows at most 1024 times; both are errors.
    """

    lr: float | Cosine | StepLR | Rates = 0.1
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
    lr : float, Cosine, StepLR or Rates
    betas : tuple of float
        The decay rates of the first and second moment. The first is 0 or from 1/32 to below 1.
    eps : float
        Prevents large steps from small second moments: added to their root, as in PyTorch.
    weight_decay : float
        Added to the gradient, times the weight.
    amsgrad : bool
        True if steps use the largest second moment so far.
    by_row : bool
        True if all weights of an output neuron or of a filter share a second moment. Each neuron or filter then needs
        one inverse root instead of one for each weight. These roots are by far the largest part of a step.
    every : int
        Steps from one inverse root to the next; those between are as cheap as gradient descent.

    Notes
    -----
    Gradients of the batch's mean loss from ``1e-6`` to about 20 make PyTorch's steps. Smaller ones are mostly rounding:
    their weights move by less than in PyTorch, and :meth:`trefoil.Trainer.check` warns of it; a weight on which the loss
    does not depend, such as a bias before a norm, moves at random. An ``eps`` above ``1e-8`` costs a second inverse for each
    second moment.

    With ``every`` above 1, choose ``eps=2**-12`` or more. A weight may have had the gradient 0 when the roots were
    taken, such as that of a pixel that was dark until then. Its next steps use the root of 0: they are as long as
    ``lr / eps`` times the gradient.
    """

    lr: float | Cosine | StepLR | Rates = 1e-3
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

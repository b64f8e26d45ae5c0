"""Training: steps of a network's plan on shares of its weights."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _frozen, _like_torch, _trefoil, functions, optim
from ._errors import ConfigError, InputError, PrecisionWarning, RangeError
from ._model import Model, outside_of, within_table
from ._progress import bar
from ._secret import _INT, Secret, _floats, _plain, _whole
from ._session import local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from ._session import Mpc

Loss = Union[str, optim.CrossEntropy, optim.BinaryCrossEntropy, optim.MeanSquare, optim.Absolute, optim.Huber, optim.SmoothAbsolute]
Optimiser = Union[optim.SGD, optim.Adam]

_LOSSES = {
    "cross_entropy": optim.CrossEntropy(), "binary_cross_entropy": optim.BinaryCrossEntropy(),
    "mean_square": optim.MeanSquare(), "absolute": optim.Absolute(), "huber": optim.Huber(),
    "smooth_absolute": optim.SmoothAbsolute(), "log_likelihood": optim.LogLikelihood(),
}

#: The metrics that each step can show.
METRICS = ("loss", "accuracy")


def loss_of(loss):
    """A loss by its name, or itself."""
    if isinstance(loss, str) and loss not in _LOSSES:
        raise ConfigError(f"there is no loss {loss!r}; there are {', '.join(_LOSSES)}, and those of trefoil.optim")
    loss = _LOSSES[loss] if isinstance(loss, str) else _like_torch.loss(loss)
    if not hasattr(loss, "_named"):
        known = ", ".join(f"trefoil.optim.{type(own).__name__}" for own in _LOSSES.values())
        raise ConfigError(f"a {type(loss).__name__} is not a loss of this package; take {known}")
    return loss


def planned(model, loss, optimiser, batch_size, *, metrics, trained, clip_norm, seed, privacy=None, accumulate=1, standardize=False):
    """The plan of a training, for this process or for a cluster's servers."""
    if _like_torch.is_module(model):
        raise InputError("a module of PyTorch needs an example of its input: Trainer(module, ..., example=x), or trefoil.Model.from_torch(module, x)")
    if not isinstance(model, Model):
        raise InputError(f"a {type(model).__name__} is not a model; make one by trefoil.Model.from_torch(net, example) or from_onnx")
    if not isinstance(optimiser, (optim.SGD, optim.Adam)):
        raise ConfigError(f"a {type(optimiser).__name__} is not an optimiser of this package; take trefoil.optim.SGD, Adam or AdamW")
    if isinstance(metrics, str):
        raise ConfigError(f"metrics are a sequence of names: ({metrics!r},)")
    unknown = set(metrics) - set(METRICS)
    if unknown:
        raise ConfigError(f"there is no metric {sorted(unknown)[0]!r}; there are {' and '.join(METRICS)}")
    if model._unlike:
        raise InputError(f"it would not be trained as in PyTorch: {model._unlike[0]}")
    trained = model._trained if trained is None else trained
    return _trefoil.Training(
        model._model, int(batch_size), loss._named(_rank(model)), optimiser._named(), optim._schedule(optimiser.lr), list(metrics),
        trained=None if trained is None else list(trained),
        clip=None if clip_norm is None else float(clip_norm), seed=int(seed),
        privacy=None if privacy is None else privacy._numbers(), accumulate=int(accumulate),
        standardize=bool(standardize),
    )


def _rank(model):
    """Axes of a model's result."""
    shapes = list(model.outputs.values())
    return len(shapes[0]) if shapes else 0


def one_hot(labels, classes, ignored=None):
    """Public classes as rows of zeros and a one; of zeros alone where they are ignored."""
    there = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    if labels.dtype.kind not in "iu" or there.any() and not 0 <= labels[there].min() <= labels[there].max() < classes:
        others = "" if ignored is None else f", or {ignored}"
        raise InputError(f"labels are classes: integers from 0 to {classes - 1}{others}; `ignore_index` names one that is ignored")
    return np.where(there[..., None], np.eye(classes, dtype=np.int64)[np.where(there, labels, 0)], 0)


def _classes(loss, labels, shape):
    """Labels of a loss that compares classes, as the plan takes them: in the shape of the logits."""
    axis = loss.axis % len(shape)
    classes = shape[axis]
    if labels.ndim == len(shape):
        if isinstance(labels, Secret):
            return labels
        if loss.soft:
            if labels.size and not 0 <= labels.min() <= labels.max() < np.inf:
                raise InputError("soft labels are parts of classes, numbers of at least 0")
            return labels
        sums = labels.sum(axis)
        if not np.isin(labels, (0, 1)).all() or not ((sums == 1) | (sums == 0) & (loss.ignore_index is not None)).all():
            raise InputError("labels of cross-entropy are classes, or rows of zeros with a single one; parts of classes need soft=True")
        return labels
    if loss.soft:
        raise InputError(f"soft labels have the shape of the network's result, not {labels.shape}")
    if labels.ndim != len(shape) - 1:
        raise InputError(f"labels have shape {labels.shape}, and the network's result {tuple(shape)}")
    if not isinstance(labels, Secret):
        hot = one_hot(labels, classes, loss.ignore_index)
    elif loss.ignore_index is None:
        hot = functions.one_hot(labels, classes)
    else:
        hot = labels[..., None] == np.arange(classes)
    return hot if axis == len(shape) - 1 else np.moveaxis(hot, -1, axis)


def _checked_labels(loss, labels):
    """Public labels that the loss has a meaning for."""
    if isinstance(loss, optim.BinaryCrossEntropy) and labels.size and not 0 <= labels.min() <= labels.max() <= 1:
        raise InputError("labels of binary cross-entropy lie within 0 to 1")
    return labels


def _loss_value(loss, z, y):
    """The sums of a loss on shares, and the function that makes a mean of them."""
    rows, each = z.shape[0], int(np.prod(z.shape[1:]))
    mean = lambda total: float(total) / (rows * each)
    if isinstance(loss, optim.CrossEntropy):
        axis = loss.axis % z.ndim
        weight = np.ones(z.shape[axis]) if loss.weight is None else np.array(loss.weight)
        weight = weight.reshape(-1, *[1] * (z.ndim - 1 - axis))
        logs = z if isinstance(loss, optim.LogLikelihood) else functions.log_softmax(z, axis)
        counted = y * weight
        parts = counted
        if loss.label_smoothing:
            there = y.sum(axis, keepdims=True) if loss.ignore_index is not None else 1.0
            parts = counted * (1 - loss.label_smoothing) + there * (weight * (loss.label_smoothing / z.shape[axis]))
        if loss.soft:
            return [(parts * logs).sum()], lambda total: -float(total) / (rows * each / z.shape[axis])
        return [(parts * logs).sum(), counted.sum()], lambda total, count: -float(total) / max(float(count), 1e-9)
    if isinstance(loss, optim.BinaryCrossEntropy):
        if loss.probabilities:
            z = np.log(np.maximum(z, 2**-16)) - np.log(np.maximum(1 - z, 2**-16))
        soft = np.maximum(-z, 0) + np.log(1 + np.exp(-np.abs(z)))
        factor = 1.0 if loss.pos_weight is None else 1.0 + y * (np.array(loss.pos_weight) - 1.0)
        return [((1 - y) * z + factor * soft).sum()], mean
    d = z - y
    if isinstance(loss, optim.MeanSquare):
        return [(d * d).sum()], mean
    if isinstance(loss, optim.Absolute):
        return [np.abs(d).sum()], mean
    limit = loss.delta if isinstance(loss, optim.Huber) else loss.beta
    clipped = np.clip(d, -limit, limit)
    return [(clipped * (d - clipped * 0.5)).sum()], lambda total: mean(total) / (1.0 if isinstance(loss, optim.Huber) else limit)


def _guesses(loss, z, y):
    """Guessed and right classes, one-hot along the last axis; zeros where a place is ignored."""
    if isinstance(loss, optim.CrossEntropy) and not loss.soft:
        axis = loss.axis % z.ndim
        z, y = np.moveaxis(z, axis, -1), np.moveaxis(y, axis, -1)
        guess = functions.one_hot(z.argmax(-1), z.shape[-1])
        if loss.ignore_index is not None:
            guess = guess * y.sum(-1, keepdims=True)
        return guess.reshape(-1, z.shape[-1]), y.reshape(-1, z.shape[-1])
    if isinstance(loss, optim.BinaryCrossEntropy):
        limit = 0.5 if loss.probabilities else 0.0
        return (z > limit).astype(np.int64).reshape(-1, 1), (y > 0.5).astype(np.int64).reshape(-1, 1)
    raise ConfigError("accuracy, f1 and auc are of classes, or of columns of 0 and 1")


def _accuracy(loss, z, y):
    guess, right = _guesses(loss, z, y)
    if guess.shape[1] == 1:
        return [(guess == right).astype(np.int64).sum()], lambda hits: float(hits) / guess.shape[0]
    return [(guess * right).sum(), right.sum()], lambda hits, count: float(hits) / max(float(count), 1.0)


def _f1(loss, z, y):
    guess, right = _guesses(loss, z, y)

    def finish(hits, guessed, labelled):
        scores = 2 * np.asarray(hits, float) / np.maximum(np.asarray(guessed, float) + np.asarray(labelled, float), 1.0)
        return scores[-1] if len(scores) <= 2 else scores.mean()

    return [(guess * right).sum(0), guess.sum(0), right.sum(0)], finish


def _auc(loss, z, y):
    if isinstance(loss, optim.BinaryCrossEntropy) and z.size == z.shape[0]:
        score, right = z.reshape(-1), y.reshape(-1)
    elif isinstance(loss, optim.CrossEntropy) and not loss.soft and z.ndim == 2 and z.shape[1] == 2 and loss.ignore_index is None:
        score, right = z[:, 1] - z[:, 0], y[:, 1].astype(np.float64)
    else:
        raise ConfigError("auc is of one column of 0 and 1, or of two classes")
    if z.shape[0] > _MOST_PAIRED:
        raise InputError(f"auc compares every pair of rows; take at most {_MOST_PAIRED}, not {z.shape[0]}")
    row, column = score.reshape(-1, 1), score.reshape(1, -1)
    above = ((row > column).astype(np.int64) + (row >= column).astype(np.int64)).astype(np.float64) * 0.5
    pairs = right @ (above @ (1 - right))
    return [pairs, right.sum()], lambda pairs, ones: float(pairs) / max(float(ones) * (z.shape[0] - float(ones)), 0.5)


#: Rows whose pairs an area under the curve compares.
_MOST_PAIRED = 2048

_EVALUATED = {"loss": _loss_value, "accuracy": _accuracy, "f1": _f1, "auc": _auc}


def as_torch(state, like):
    """A state as tensors of PyTorch, in the shapes and dtypes of a module's or of another state's."""
    import torch

    target = like.state_dict() if hasattr(like, "state_dict") else like
    missing = [name for name in state if name not in target]
    if missing:
        raise InputError(f"the module has no weight {missing[0]!r}")
    return {
        name: torch.from_numpy(np.ascontiguousarray(values)).reshape(target[name].shape).to(target[name].dtype)
        for name, values in state.items()
    }


def _shaped(flat):
    return [values.reshape(shape) for values, shape in flat]


def checked(training, batch, rate):
    """:meth:`Trainer.check` of a training; also the state after the step in floats."""
    start, rates = _shaped(training.start()), (rate, rate)
    # The first step that moves the weights.
    step = next(step for step in itertools.count() if training.updates(step))
    fixed, left = training.inspect(start, batch, step, rates)
    if left is not None:
        raise RangeError(
            f"the first step would leave the range of fixed point at `{left[0]}`: {left[1]}; bring the inputs to about 1 in "
            f"size, or normalise what comes before"
        )
    fixed, floats = _shaped(fixed), _shaped(training.step_in_the_clear(start, batch, step, rates)[0])
    slopes = {}
    kept = {name: values for (name, _, _), values in zip(training.state(), floats)}
    for (name, _, learnt), before, one, other in zip(training.state(), start, fixed, floats):
        want = (other - before).ravel()
        size = np.linalg.norm(want)
        # A gradient that is 0 up to rounding, such as a bias's before a norm: the weight's moves have no effect.
        if not learnt or size == 0 or np.abs(kept.get(f"{name}.momentum", want)).max() < 1e-9:
            continue
        slopes[name] = float((one - before).ravel() @ want / size**2)
        # The error from rounding to the weight's format.
        if abs(slopes[name] - 1) > 0.02 + 3 * 2**-26 / size:
            text = f"`{name}` would move {slopes[name]:.2f} times as far as in floats: its gradients are too small for their format"
            warnings.warn(text, PrecisionWarning, stacklevel=3)
    return slopes, floats


#: Numbers behind frozen layers that are kept for a training; one takes 48 bytes of all parties together.
_MOST_KEPT = 1 << 24


class Trainer:
    """Trains a model by three parties: weights, data and gradients stay secret from step to step.

    Parameters
    ----------
    model : Model or torch.nn.Module
        From :meth:`Model.from_torch` or :meth:`Model.from_onnx`, with one result, or a module with ``example``.
        The training begins with its weights and does not change the object.
    loss : one of trefoil.optim's losses, its name in small letters (``"cross_entropy"``), or one of torch.nn's
    optimiser : trefoil.optim.SGD, Adam or AdamW, or one of torch.optim's with these names
    batch_size : int
        Rows of every step. A last batch may have fewer.
    mpc : Mpc, optional
        The session; three parties in this process unless given.
    metrics : sequence of str, optional
        The metrics that each step shows: ``"loss"`` and, for cross-entropy, ``"accuracy"``. They are revealed to all
        parties, as sums over a batch. ``()`` shows nothing. The loss unless given, and with ``privacy`` nothing.
    trained : sequence of str, optional
        Names of the weights that are trained. Unless given, all of them; for a network of PyTorch, the parameters
        that required a gradient when it was imported. Batch normalisations without a trained weight keep their
        running statistics.
    clip_norm : float, optional
        The largest norm of all gradients together, as ``torch.nn.utils.clip_grad_norm_``. Larger ones are
        scaled down.
    seed : int
        The seed of the dropouts' coins; public.
    owner : int
        The party that has the weights at the start.
    privacy : DP, optional
        Clip the gradient of each example and add noise; :meth:`epsilon` returns the resulting epsilon.
    accumulate : int
        The number of steps whose gradients are added up before the weights follow them: with PyTorch, ``loss / accumulate``
        and a step of the optimiser after as many backward passes. The result is that of one step on all these rows, whose
        memory it does not need; means over the weights of labels (``weight=``, ``ignore_index=``) are those of each batch.
        Learning rates count updates. Steps that have not filled an update wait for the next ones. The sums of gradients
        are part of the state, and only a step that ends in an update has the cost of one.
    guard_every : int
        The number of steps from one range check to the next; :meth:`fit` also checks its last step. The parties compare
        sums over every layer's values and gradients with their bounds. :class:`RangeError` names a layer that left its
        range. A check costs about 5 rounds, and 1 % of a small network's bytes. 0 turns checks off. With ``privacy``
        they are always off, since noise does not protect their findings.
    example : tensor, tuple of tensors, or dict of them
        For a module: arguments of its forward, as for :meth:`Model.from_torch`.
    check : bool
        Pass the first data that are given in the clear to :meth:`check` before they are shared. Parties on three
        machines do not: call :meth:`check` on the machine that has the data.

    Notes
    -----
    Batch normalisations that are trained take the batch's statistics and update their running ones, as in
    PyTorch; :meth:`predict` and :meth:`model` apply the running ones. Dropouts leave out elements in every step,
    and nothing when the network is applied. Cost: a step sends the bytes of its forward pass and about twice as many
    for the gradients; Adam adds an inverse root for every weight, or for every row with ``by_row``.

    Raises
    ------
    InputError
        Naming a layer that cannot be trained.

    Examples
    --------
    >>> trainer = trefoil.Trainer(model, "cross_entropy", trefoil.optim.SGD(lr=0.1, momentum=0.9), batch_size=32)
    >>> for epoch in range(5):
    ...     for x, y in trainer.batches(images, labels, seed=epoch):
    ...         seen = trainer.step(x, y)          # {"loss": 2.3, "accuracy": 0.09}
    >>> net.load_state_dict(trainer.state_dict(like=net), strict=False)
    """

    def __init__(
        self, model: Model | Any, loss: Loss | Any = "cross_entropy", optimiser: Optimiser | Any = optim.SGD(), *, batch_size: int = 32,
        mpc: Mpc | None = None, metrics: Sequence[str] | None = None, trained: Sequence[str] | None = None,
        clip_norm: float | None = None, seed: int = 0, owner: int = 0, privacy: optim.DP | None = None,
        guard_every: int = 1, check: bool = True, example: Any = None, accumulate: int = 1,
    ) -> None:
        self.loss: Any = loss_of(loss)
        self.optimiser: Optimiser = _like_torch.optimiser(optimiser)
        if example is not None:
            if trained is None and self.optimiser is not optimiser:
                trained = _like_torch.names_of(model, optimiser)
            model = Model.from_torch(model, example)
        self.batch_size: int = int(batch_size)
        self.privacy: optim.DP | None = privacy
        if metrics is None:
            metrics = ("loss",) if privacy is None else ()
        self.metrics: tuple[str, ...] = metrics if isinstance(metrics, str) else tuple(metrics)
        self.accumulate: int = int(accumulate)
        self._how = {
            "metrics": self.metrics, "trained": trained, "clip_norm": clip_norm, "seed": seed, "privacy": privacy,
            "accumulate": self.accumulate,
        }
        self._training = planned(model, self.loss, self.optimiser, batch_size, **self._how)
        #: Plans of steps by their rows, and by whether rows have passed the layers that come before what is trained.
        self._plans = {(self.batch_size, False): self._training}
        self._model, self._owner = model, owner
        #: The network's layers before those that change, and from these on; False until they are asked for.
        self._halves = False
        self.mpc: Mpc = local() if mpc is None else mpc
        self._inputs = self._training.inputs()
        self._tables = dict(zip(model.inputs, model._model.table_rows))
        self._state = self.mpc._session.train_state(self._training, owner)
        self.guard_every: int = int(guard_every)
        self._unchecked = check and self.mpc._session.me is None
        #: Numbers of each epoch of :meth:`fit`.
        self.history: list[dict[str, float]] = []
        #: The weights as they are applied, and after which step.
        self._finished = None
        self.steps: int = 0
        self._last_rate = None

    def __repr__(self) -> str:
        return f"Trainer({self._model!r}, {self.loss!r}, {self.optimiser!r}, batch_size={self.batch_size}, steps={self.steps})"

    def epsilon(self, uses: int) -> float:
        """Epsilon of a row that took part in ``uses`` steps, at most once in each, at ``privacy.delta``.

        Parameters
        ----------
        uses : int
            After :meth:`fit`, the epochs.

        Raises
        ------
        InputError
            If the training is without ``privacy``.
        """
        epsilon = self._training.epsilon(int(uses))
        if epsilon is None:
            raise InputError("a training without privacy= has no epsilon")
        return epsilon

    # -- data --------------------------------------------------------------------------------------

    def secret(self, *arrays: Secret | ArrayLike, owner: int = 0) -> list[Secret]:
        """Secret-share data and labels in the formats of the training, once for all epochs.

        Parameters
        ----------
        *arrays : array_like
            One for each input of the model, then the labels: classes (integers) for cross-entropy.
        owner : int

        Returns
        -------
        list of Secret
        """
        self._count(arrays)
        if self._unchecked and not any(isinstance(x, Secret) for x in arrays) and len(arrays[0]) >= self.batch_size:
            self._unchecked = False
            self.check(*(x[: self.batch_size] for x in arrays))
        return [self._shared(x, spec, owner) for x, spec in zip(arrays, self._inputs)]

    def batches(self, *arrays: Secret | ArrayLike, seed: int = 0, drop_last: bool = True) -> Iterator[tuple[Any, ...]]:
        """Batches of an epoch: every row once, in an order derived from ``seed``, which is public.

        Parameters
        ----------
        *arrays : Secret or array_like
            Data and labels. Pass the result of :meth:`secret` to share them only once.
        drop_last : bool
            Leave out rows that do not fill a batch. Otherwise they form a smaller last batch.
        """
        arrays = [x if isinstance(x, Secret) else np.asarray(x) for x in arrays]
        self._count(arrays)
        return self._batches(arrays, seed, drop_last)

    def _batches(self, arrays, seed, drop_last):
        rows = {x.shape[0] for x in arrays}
        if len(rows) != 1:
            raise InputError(f"data and labels have {sorted(rows)} rows")
        order = np.random.default_rng(seed).permutation(rows.pop())
        for start in range(0, len(order) - (self.batch_size - 1 if drop_last else 0), self.batch_size):
            picked = order[start : start + self.batch_size]
            yield tuple(x[picked] for x in arrays)

    def _count(self, arrays):
        if len(arrays) != len(self._inputs):
            names = ", ".join(name for name, _, _, _ in self._inputs)
            raise InputError(f"{len(arrays)} arrays are given; a step takes {len(self._inputs)}: {names}")

    def _shared(self, x, spec, owner):
        name, shape, frac, integer = spec
        if name == "labels":
            x = self._labels(x, shape)
        if isinstance(x, Secret):
            if integer and x.frac_bits != 0:
                raise InputError(f"`{name}` must consist of integers")
            return x if x.frac_bits == frac else functions.rescale(x, frac)
        within_table(name, x, self._tables.get(name))
        array = _plain(x)
        array = _whole(name, array) if integer else array.astype(np.float64)
        public = self.mpc._public(array, frac)
        (handle,) = self.mpc._session.input(owner, [public], [list(array.shape)], [frac])
        return Secret(self.mpc, handle, _INT if integer else np.dtype(np.float64))

    def _labels(self, labels, shape):
        """Labels as the plan takes them: one-hot for cross-entropy, columns where the network has one output."""
        labels = labels if isinstance(labels, Secret) else _checked_labels(self.loss, _plain(labels))
        if isinstance(self.loss, optim.CrossEntropy):
            return _classes(self.loss, labels, shape)
        if labels.ndim == 1 and len(shape) == 2 and shape[1] == 1:
            return labels.reshape(-1, 1)
        return labels

    # -- steps -------------------------------------------------------------------------------------

    def step(self, *batch: Secret | ArrayLike, lr: float | None = None, owner: int = 0) -> dict[str, float]:
        """One step: forward, gradients, update.

        Parameters
        ----------
        *batch : Secret or array_like
            Data and labels of ``batch_size`` rows.
        lr : float, optional
            A learning rate for this step, at most the optimiser's, which it replaces. As in PyTorch, a momentum follows
            from the gradients alone, whatever the rates of the steps before.
        owner : int
            The party that has these public arrays.

        Returns
        -------
        dict of str to float
            The metrics, of the network before the step: means over the batch.

        Notes
        -----
        Only the metrics are revealed. ``mpc.cost()`` returns the bytes that the step sent, layer by layer.
        """
        return self._step(self.secret(*batch, owner=owner), None if lr is None else float(lr))

    def _plan(self, rows, passed=False):
        """The plan of a step of ``rows`` rows, at most a batch's."""
        if (rows, passed) not in self._plans:
            if not 0 < rows <= self.batch_size:
                raise InputError(f"a batch has {rows} rows; a step takes {self.batch_size}, or fewer")
            if self.privacy is not None and rows < self.batch_size:
                raise InputError(f"a batch has {rows} rows; with privacy every step takes {self.batch_size}")
            model = self._halves[1] if passed else self._model
            self._plans[rows, passed] = planned(model, self.loss, self.optimiser, rows, **self._how)
        return self._plans[rows, passed]

    def _in_formats(self, state, training, of):
        """Tensors of one plan's state in the order and formats of another's; it may lack some that stay as they are."""
        if training is of:
            return state
        handles = {name: handle for (name, _, _), handle in zip(self._training.state(), self._state)}
        handles |= {name: handle for (name, _, _), handle in zip(of.state(), state)}
        session = self.mpc._session
        aligned = lambda x, frac: x if x.frac == frac else session.call("rescale", [x], {"frac": frac})[0]
        return [aligned(handles[name], frac) for (name, _, _), frac in zip(training.state(), training.state_fracs())]

    def _frozen_half(self):
        """The layers before those that change, as a model; None if each of a step's layers depends on the step."""
        if self._halves is False:
            recorded, trained = self._model._recorded, self._how["trained"]
            trained = self._model._trained if trained is None else trained
            parts = None if recorded is None or self.privacy is not None else _frozen.cut(recorded, trained)
            self._halves = None if parts is None else tuple(Model._of(part) for part in parts)
            if self._halves is not None and not self._fits(*self._halves):
                self._halves = None
        return None if self._halves is None else self._halves[0]

    def _keeps(self, rows):
        """True if rows pass the layers that stay as they are once, and are kept behind these."""
        half = self._frozen_half()
        return half is not None and rows * sum(int(np.prod(shape[1:])) for shape in half.outputs.values()) <= _MOST_KEPT

    def _fits(self, before, after):
        """True if rows pass the first half apart from each other, and the second has tensors of this training alone."""
        if not before._model.keeps_rows_apart:
            return False
        self._halves = before, after
        own = {name: shape for name, shape, _ in self._training.state()}
        return all(own.get(name) == shape for name, shape, _ in self._plan(self.batch_size, True).state())

    def _passed(self, arrays):
        """Rows behind the layers that stay as they are, which they pass in batches, and the arrays that later layers take."""
        before, after = self._halves
        given = dict(zip(self._model.inputs, arrays))
        names, guarded = list(before.outputs), before._guarded if self.guard_every else []
        weights, parts = before._weights_of(self.mpc, self._owner), []
        for at in range(0, arrays[0].shape[0], self.batch_size):
            rows = [given[name][at : at + self.batch_size] for name in before.inputs]
            handles = before._handles(self.mpc, rows, self._owner)
            try:
                made = before._guarded_run(self.mpc, weights, handles, guarded)
            except RangeError as error:
                raise RangeError(f"rows {at} to {at + rows[0].shape[0] - 1}: {error}") from None
            parts.append([Secret(self.mpc, handle, np.dtype(np.float64)) for handle in made])
        given |= {name: np.concatenate(column) for name, column in zip(names, zip(*parts))}
        inputs = self._plan(self.batch_size, True).inputs()
        rows = [given[name] for name in after.inputs] + [arrays[-1]]
        return [x if x.frac_bits == frac else functions.rescale(x, frac) for x, (_, _, frac, _) in zip(rows, inputs)]

    def _step(self, batch, rate=None, last=False, passed=False):
        rows = batch[0].shape[0] if batch[0].shape else 0
        training = self._plan(rows, passed)
        for x, (name, shape, _, _) in zip(batch, training.inputs()):
            if x.shape != tuple(shape):
                raise InputError(f"`{name}` has shape {x.shape}; a step takes {tuple(shape)}")
        rate = self._rate_of(self.steps) if rate is None else rate
        rates = rate, rate if self._last_rate is None else self._last_rate
        due = self.guard_every and (last or self.steps % self.guard_every == 0)
        guarded = training.guarded(self.steps, rates) if due else []
        handles = [x._handle for x in batch]
        before = self._in_formats(self._state, training, self._training)
        made = self.mpc._session.train_step(training, before, handles, self.steps, rates, bool(guarded))
        state, seen = made[: len(before)], made[len(before) :]
        shown = self.mpc._session.reveal(seen, None) if seen else []
        outside = outside_of(guarded, shown.pop()) if guarded else None
        if outside:
            raise RangeError(
                f"step {self.steps}: values of {outside}, or their gradients, have left the range of fixed point, and the step "
                f"is not taken; the training diverges, which a smaller learning rate or clip_norm= prevents, or a secret position "
                f"lies outside of its table"
            )
        self._state = self._in_formats(state, self._training, training)
        if self._training.updates(self.steps):
            self._last_rate = rate
        self.steps += 1
        return {name: float(sums[0]) / rows for name, sums in zip(self.metrics, shown)}

    def _rate_of(self, step):
        """The learning rate of a step, counted from 0."""
        lr = self.optimiser.lr
        return lr._at(step // self.accumulate) if isinstance(lr, optim.Rates) else self._training.rate(step)

    def fit(
        self, *arrays: Secret | ArrayLike | Any, epochs: int = 1, seed: int = 0, owner: int = 0, progress: bool = True,
        drop_last: bool = True, validation: Sequence[Secret | ArrayLike] | None = None, metrics: Sequence[str] = ("loss",),
        callbacks: Sequence[Callable[[Trainer, dict[str, float]], Any]] = (), early_stopping: int | None = None,
    ) -> list[dict[str, float]]:
        """Share data once, and train for ``epochs`` epochs.

        Rows pass the layers before all trained weights once, not in every step, if the network is one of PyTorch and their
        results have at most ``2^24`` numbers; the batches of a loader pass all layers. The steps are the same, up to rounding.

        Parameters
        ----------
        *arrays : Secret or array_like, or a torch.utils.data.DataLoader
            Data and labels. A loader's batches are shared when they arrive, in every epoch.
        progress : bool
            Show a progress bar, if tqdm is installed.
        drop_last : bool
            As for :meth:`batches`.
        validation : sequence of array_like, optional
            Data and labels that are not trained on. :meth:`evaluate` shows their ``metrics`` after every epoch.
        metrics : sequence of str
            The validation's metrics, as for :meth:`evaluate`.
        callbacks : sequence of callables
            Called after every epoch with the trainer and the epoch's entry of ``history``: means of the steps'
            metrics, and ``val_loss`` and others of the validation. A callback that returns True ends the training.
        early_stopping : int, optional
            The number of epochs without a smaller ``val_loss`` after which the training ends.

        Returns
        -------
        list of dict
            The metrics of each step.
        """
        if early_stopping is not None and (validation is None or "loss" not in metrics):
            raise ConfigError("early_stopping looks at the loss of a validation: give validation=, and leave the loss in metrics=")
        loader = arrays[0] if len(arrays) == 1 and _like_torch.is_loader(arrays[0]) else None
        shared = None if loader is not None else self.secret(*arrays, owner=owner)
        each = len(loader) if loader is not None else -(-(shared[0].shape[0] - (self.batch_size - 1 if drop_last else 0)) // self.batch_size)
        if each < 1:
            rows = 0 if shared is None else shared[0].shape[0]
            raise InputError(f"{rows} rows do not fill a batch of {self.batch_size}; drop_last=False takes a smaller one")
        validation = None if validation is None else self.secret(*validation, owner=owner)
        passed = shared is not None and epochs > 0 and self._keeps(shared[0].shape[0])
        if passed:
            shared = self._passed(shared)
        seen, best, since = [], np.inf, 0
        with bar(epochs * each, "step", progress) as made:
            for epoch in range(epochs):
                batches = self._loaded(loader, owner) if shared is None else self._batches(shared, seed + epoch, drop_last)
                start = len(seen)
                for batch in batches:
                    seen.append(self._step(batch, last=len(seen) == epochs * each - 1, passed=passed))
                    made.step(seen[-1])
                numbers = {name: float(np.mean([step[name] for step in seen[start:]])) for name in self.metrics}
                if validation is not None:
                    numbers |= {f"val_{name}": value for name, value in self.evaluate(*validation, metrics=metrics).items()}
                self.history.append(numbers)
                ends = [callback(self, numbers) is True for callback in callbacks]
                if early_stopping is not None:
                    since = 0 if numbers["val_loss"] < best else since + 1
                    best = min(best, numbers["val_loss"])
                if any(ends) or early_stopping is not None and since >= early_stopping:
                    break
        return seen

    def _loaded(self, loader, owner):
        for batch in loader:
            if not isinstance(batch, (list, tuple)):
                raise InputError(f"a loader's batches are tuples of data and labels, not a {type(batch).__name__}")
            yield self.secret(*batch, owner=owner)

    def evaluate(self, *arrays: Secret | ArrayLike, metrics: Sequence[str] = ("loss",), owner: int = 0) -> dict[str, float]:
        """Metrics of the network as :meth:`predict` applies it. The metrics alone are revealed, to all parties.

        Parameters
        ----------
        *arrays : Secret or array_like
            Data and labels, as many rows as fit in memory.
        metrics : sequence of str
            ``"loss"``; ``"accuracy"`` and ``"f1"`` (for more than two classes the mean of the classes') where labels are classes
            or columns of 0 and 1; ``"auc"``, the area under the ROC curve, of one column or two classes.

        Returns
        -------
        dict of str to float

        Notes
        -----
        ``"auc"`` compares every pair of rows: a million comparisons for 1000 rows. ``"f1"`` reveals, for each class,
        the numbers of rows that were right, guessed and labelled so.
        """
        unknown = set(metrics) - set(_EVALUATED)
        if unknown or isinstance(metrics, str):
            raise ConfigError(f"there is no metric {metrics if isinstance(metrics, str) else sorted(unknown)[0]!r} in a sequence of {', '.join(_EVALUATED)}")
        self._count(arrays)
        *inputs, labels = arrays
        z = self.predict(*inputs, owner=owner)
        name, shape, frac, integer = self._inputs[-1]
        labels = self._shared(labels, (name, (z.shape[0], *shape[1:]), frac, integer), owner)
        shown = {name: _EVALUATED[name](self.loss, z, labels) for name in metrics}
        revealed = self.mpc.reveal(*(x for parts in shown.values() for x in parts[0]))
        revealed = iter(revealed if isinstance(revealed, (list, tuple)) else [revealed])
        return {name: float(finish(*[next(revealed) for _ in parts])) for name, (parts, finish) in shown.items()}

    # -- checkpoints -------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None) -> None:
        """Write the state between two steps as shares, each party its own share: weights, moments, the number of steps.

        Parameters
        ----------
        folder : str or path
            It is created if missing.
        key : str or path, optional
            As for :meth:`Secret.save`.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = self._training.state()
        for i, (handle, (_, shape, _)) in enumerate(zip(self._state, tensors)):
            Secret(self.mpc, handle, np.dtype(np.float64)).save(folder / f"state-{i}", key=key)
        public = {"steps": self.steps, "rate": self._last_rate, "state": [[name, list(shape)] for name, shape, _ in tensors]}
        (folder / "state.json").write_text(json.dumps(public))

    def load(self, folder: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None) -> None:
        """Continue from a state that :meth:`save` wrote, of a training with the same model, optimiser and batch.

        Parameters
        ----------
        folder : str or path
        key : str or path, optional
            The key under which it was saved.

        Raises
        ------
        InputError
            If it is not such a state, or that of another training.
        """
        folder = Path(folder)
        try:
            public = json.loads((folder / "state.json").read_text())
            steps, tensors = int(public["steps"]), [(name, tuple(shape)) for name, shape in public["state"]]
            rate = None if public["rate"] is None else float(public["rate"])
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise InputError(f"{folder} has no state of a training: {cause}") from None
        if tensors != [(name, tuple(shape)) for name, shape, _ in self._training.state()]:
            raise InputError(f"{folder} has the state of another training: its tensors have other names or shapes")
        state = [self.mpc.load(folder / f"state-{i}", key=key) for i in range(len(tensors))]
        for x, (name, shape), frac in zip(state, tensors, self._training.state_fracs()):
            if x.shape != shape or x.frac_bits != frac:
                raise InputError(f"`{name}` of {folder} has {x.frac_bits} fraction bits and shape {x.shape}, not {frac} and {shape}")
        self._state = [x._handle for x in state]
        self.steps, self._last_rate, self._finished = steps, rate, None

    # -- results -----------------------------------------------------------------------------------

    def predict(self, *inputs: Secret | ArrayLike, owner: int = 0) -> Secret:
        """The network's result with the current weights, which stay secret.

        Parameters
        ----------
        *inputs : Secret or array_like
        owner : int
            The party that has these public arrays.
        Returns
        -------
        Secret

        Notes
        -----
        After a step the first call computes the weights to apply. If batch normalisations are trained, that takes
        an inverse root for each of their channels.
        """
        if len(inputs) != len(self._inputs) - 1:
            names = ", ".join(name for name, _, _, _ in self._inputs[:-1])
            raise InputError(f"{len(inputs)} inputs are given; the network takes {len(self._inputs) - 1}: {names}")
        secrets = []
        for x, spec, frac in zip(inputs, self._inputs, self._training.inference_fracs()):
            secrets.append(self._shared(x, (spec[0], spec[1], frac, spec[3]), owner)._handle)
        if self._finished is None or self._finished[0] != self.steps:
            self._finished = self.steps, self.mpc._session.train_finish(self._training, self._state)
        (made,) = self.mpc._session.train_apply(self._training, self._finished[1], secrets)
        return Secret(self.mpc, made, np.dtype(np.float64))

    def state_dict(self, like: Any = None) -> dict[str, Any] | None:
        """Reveal the weights and running statistics that are trained, by their names in the network.

        Parameters
        ----------
        like : torch.nn.Module or mapping of str to tensor, optional
            Gives shapes, dtypes and tensors of PyTorch instead of NumPy's arrays; for ``load_state_dict``.

        Returns
        -------
        dict of str to numpy.ndarray, or to torch.Tensor
        """
        names = [(i, name, shape) for i, (name, shape, learnt) in enumerate(self._training.state()) if learnt]
        shown = self.mpc._session.reveal([self._state[i] for i, _, _ in names], None)
        if shown is None:
            return None
        state = {name: values.reshape(shape) for (_, name, shape), values in zip(names, shown)}
        return state if like is None else as_torch(state, like)

    def model(self) -> Model | None:
        """Reveal the weights, as a :class:`Model` of the trained network, which can be trained on."""
        shown = self.mpc._session.reveal(self._state, None)
        if shown is None:
            return None
        shapes = [shape for _, shape, _ in self._training.state()]
        state = [np.ascontiguousarray(v.reshape(s), np.float64) for v, s in zip(shown, shapes)]
        learnt = {name: values for (name, _, learnt), values in zip(self._training.state(), state) if learnt}
        old = self._model
        made = Model(self._training.model(state), old._trained, old._unlike, old._file, old._weights | learnt)
        made._recorded = None if old._recorded is None else _frozen.changed(old._recorded, learnt)
        return made

    def evaluate_step(
        self, state: list[np.ndarray] | None, *batch: ArrayLike, step: int = 0, lr: float | None = None,
        last_lr: float | None = None,
    ) -> tuple[list[np.ndarray], dict[str, float]]:
        """A step in the clear, in 64-bit floats, which :meth:`step` approximates.

        Parameters
        ----------
        state : list of numpy.ndarray or None
            The state before it; None for that of the start.
        *batch : array_like
        step : int
            The number of steps made before.
        lr : float, optional
            A learning rate instead of the optimiser's.
        last_lr : float, optional
            The learning rate of the update before, if it was not the optimiser's: a momentum in ``state`` has it as a factor.

        Returns
        -------
        list of numpy.ndarray, dict of str to float
            The state after it, and the metrics.
        """
        state = _shaped(self._training.start()) if state is None else state
        rate = self._rate_of(step) if lr is None else float(lr)
        last = self._rate_of(max(step - self.accumulate, 0)) if last_lr is None else float(last_lr)
        after, seen = self._training.step_in_the_clear(state, self._in_the_clear(batch), int(step), (rate, last))
        metrics = {name: float(sums[0]) / self.batch_size for name, (sums, _) in zip(self.metrics, seen)}
        return _shaped(after), metrics

    def check(self, *batch: ArrayLike) -> dict[str, float]:
        """Make the first step in the clear, in fixed point with every range checked and at the largest learning rate.

        Parameters
        ----------
        *batch : array_like
            Data and labels of ``batch_size`` rows like those of the training, not secret themselves.

        Returns
        -------
        dict of str to float
            For each weight the slope of its moves against those in 64-bit floats. It is 1 if they are equal, and 0
            for a weight that should move but does not.

        Warns
        -----
        PrecisionWarning
            Naming a weight whose moves are too small for its format, or for that of its gradients.

        Raises
        ------
        RangeError
            Naming the layer that leaves its range, and its limit.

        Notes
        -----
        Nothing is sent. It takes about as long as a step on one machine, twice.
        """
        rate = float(getattr(self.optimiser.lr, "lr", self.optimiser.lr))
        return checked(self._training, self._in_the_clear(batch), rate)[0]

    def _in_the_clear(self, batch):
        self._count(batch)
        for x, (name, _, _, _) in zip(batch, self._inputs):
            within_table(name, x, self._tables.get(name))
        arrays = [self._labels(x, shape) if name == "labels" else _plain(x)
                  for x, (name, shape, _, _) in zip(batch, self._inputs)]
        return [_floats(x) for x in arrays]

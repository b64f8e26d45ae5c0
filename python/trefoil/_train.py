"""Training: steps of a network's plan on shares of its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _trefoil, functions, optim
from ._errors import ConfigError, InputError
from ._model import Model
from ._progress import bar
from ._secret import _INT, Secret, _plain, _whole
from ._session import local

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike

    from ._session import Mpc

Loss = Union[str, optim.CrossEntropy, optim.BinaryCrossEntropy, optim.MeanSquare, optim.Huber]
Optimiser = Union[optim.SGD, optim.Adam]

_LOSSES = {
    "cross_entropy": optim.CrossEntropy(), "binary_cross_entropy": optim.BinaryCrossEntropy(),
    "mean_square": optim.MeanSquare(), "huber": optim.Huber(),
}

#: What each step can show.
METRICS = ("loss", "accuracy")


def loss_of(loss):
    """A loss by its name, or itself."""
    if isinstance(loss, str) and loss not in _LOSSES:
        raise ConfigError(f"there is no loss {loss!r}; there are {', '.join(_LOSSES)}, and those of trefoil.optim")
    return _LOSSES[loss] if isinstance(loss, str) else loss


def planned(model, loss, optimiser, batch_size, *, metrics, trained, clip_norm, seed, privacy=None):
    """The plan of a training, for this process or for a cluster's servers."""
    unknown = set(metrics) - set(METRICS)
    if unknown:
        raise ConfigError(f"there is no metric {sorted(unknown)[0]!r}; there are {' and '.join(METRICS)}")
    if model._unlike:
        raise InputError(f"it would not be trained as in PyTorch: {model._unlike[0]}")
    return _trefoil.Training(
        model._model, int(batch_size), loss._named(), optimiser._named(), optim._schedule(optimiser.lr), list(metrics),
        trained=None if trained is None else list(trained), frozen=list(model._frozen),
        clip=None if clip_norm is None else float(clip_norm), seed=int(seed),
        privacy=None if privacy is None else privacy._numbers(),
    )


def one_hot(labels, classes):
    """Public classes as rows of zeros and a one."""
    if labels.dtype.kind not in "iu" or labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise InputError(f"labels are classes: integers from 0 to {classes - 1}")
    return np.eye(classes, dtype=np.int64)[labels]


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


class Trainer:
    """Trains a model by three parties: weights, data and gradients stay secret from step to step.

    Parameters
    ----------
    model : Model
        From :meth:`Model.from_torch` or :meth:`Model.from_onnx`, with one result. It begins with its weights and
        is not changed itself.
    loss : one of trefoil.optim's losses, or ``"cross_entropy"``, ``"binary_cross_entropy"``, ``"mean_square"``, ``"huber"``
    optimiser : trefoil.optim.SGD, Adam or AdamW
    batch_size : int
        Rows of every step.
    mpc : Mpc, optional
        The session; three parties in this process unless given.
    metrics : sequence of str, optional
        What each step shows: ``"loss"`` and, for cross-entropy, ``"accuracy"``. Everything that is shown is
        revealed to all parties: sums over a batch. ``()`` shows nothing. The loss unless given, and with ``privacy``
        nothing.
    trained : sequence of str, optional
        Names of the weights that are trained; all unless given, of a network of PyTorch its parameters.
    clip_norm : float, optional
        The largest norm of all gradients together, as ``torch.nn.utils.clip_grad_norm_``: larger ones are
        scaled down.
    seed : int
        What dropouts draw their coins from; public.
    owner : int
        The party that has the weights at the start.
    privacy : DP, optional
        Clip the gradient of each example and add noise; :meth:`epsilon` says what that is worth.

    Notes
    -----
    Batch normalisations that are trained take the batch's statistics, and their running ones follow, as in
    PyTorch; :meth:`predict` and :meth:`model` apply the running ones. Dropouts leave out elements in every step,
    and nothing when the network is applied. Cost: a step sends what its forward pass sends and about twice as much
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
        self, model: Model, loss: Loss = "cross_entropy", optimiser: Optimiser = optim.SGD(), *, batch_size: int = 32,
        mpc: Mpc | None = None, metrics: Sequence[str] | None = None, trained: Sequence[str] | None = None,
        clip_norm: float | None = None, seed: int = 0, owner: int = 0, privacy: optim.DP | None = None,
    ) -> None:
        self.loss = loss_of(loss)
        self.optimiser = optimiser
        self.batch_size = int(batch_size)
        self.privacy = privacy
        if metrics is None:
            metrics = ("loss",) if privacy is None else ()
        self.metrics = tuple(metrics)
        self._training = planned(
            model, self.loss, optimiser, batch_size, metrics=self.metrics, trained=trained, clip_norm=clip_norm, seed=seed,
            privacy=privacy,
        )
        self._model = model
        self._own = mpc is None
        self.mpc = local() if self._own else mpc
        self._inputs = self._training.inputs()
        self._state = self.mpc._session.train_state(self._training, owner)
        #: The weights as they are applied, and after which step.
        self._finished = None
        self.steps = 0

    def __repr__(self):
        return f"Trainer({self._model!r}, {self.loss!r}, {self.optimiser!r}, batch_size={self.batch_size}, steps={self.steps})"

    def epsilon(self, uses: int) -> float:
        """Epsilon of a row that took part in so many steps, at most once in each, at ``privacy.delta``.

        Parameters
        ----------
        uses : int
            After :meth:`fit`, the epochs.

        Raises
        ------
        InputError
            If the training has no ``privacy``.
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
        return [self._shared(x, spec, owner) for x, spec in zip(arrays, self._inputs)]

    def batches(self, *arrays: Secret | ArrayLike, seed: int = 0) -> Iterator[tuple[Any, ...]]:
        """Batches of an epoch: every row once in an order that follows from ``seed``, which is public.

        Rows that do not fill a batch are left out.

        Parameters
        ----------
        *arrays : Secret or array_like
            Data and labels. Pass what :meth:`secret` returned to share them but once.
        """
        arrays = [x if isinstance(x, Secret) else np.asarray(x) for x in arrays]
        self._count(arrays)
        rows = {x.shape[0] for x in arrays}
        if len(rows) != 1:
            raise InputError(f"data and labels have {sorted(rows)} rows")
        order = np.random.default_rng(seed).permutation(rows.pop())
        for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
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
        array = _plain(x)
        array = _whole(name, array) if integer else array.astype(np.float64)
        public = self.mpc._public(array, frac)
        (handle,) = self.mpc._session.input(owner, [public], [list(array.shape)], [frac])
        return Secret(self.mpc, handle, _INT if integer else np.dtype(np.float64))

    def _labels(self, labels, shape):
        """Labels as the plan takes them: one-hot for cross-entropy, columns where the network has one output."""
        labels = labels if isinstance(labels, Secret) else np.asarray(labels)
        if isinstance(self.loss, optim.CrossEntropy) and labels.ndim == 1:
            classes = shape[1]
            return functions.one_hot(labels, classes) if isinstance(labels, Secret) else one_hot(labels, classes)
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
            A learning rate for this step, up to the optimiser's, instead of the optimiser's own.
        owner : int
            The party whose public arrays these are.

        Returns
        -------
        dict of str to float
            The metrics, of the network before the step: means over the batch.

        Notes
        -----
        Nothing but the metrics is revealed. ``mpc.cost()`` says what the step sent, layer by layer.
        """
        shared = self.secret(*batch, owner=owner)
        for x, (name, shape, _, _) in zip(shared, self._inputs):
            if x.shape != tuple(shape):
                raise InputError(f"`{name}` has shape {x.shape}; a step takes {tuple(shape)}")
        handles = [x._handle for x in shared]
        rate = None if lr is None else float(lr)
        made = self.mpc._session.train_step(self._training, self._state, handles, self.steps, rate)
        self._state, seen = made[: len(self._state)], made[len(self._state) :]
        self.steps += 1
        if not seen:
            return {}
        shown = self.mpc._session.reveal(seen, None)
        return {name: float(sums[0]) / self.batch_size for name, sums in zip(self.metrics, shown)}

    def fit(
        self, *arrays: Secret | ArrayLike, epochs: int = 1, seed: int = 0, owner: int = 0, progress: bool = True,
    ) -> list[dict[str, float]]:
        """Share data once, and make ``epochs`` times the steps of an epoch.

        Parameters
        ----------
        *arrays : Secret or array_like
            Data and labels.
        progress : bool
            Whether to show a progress bar, if tqdm is installed.

        Returns
        -------
        list of dict
            The metrics of each step.
        """
        shared = self.secret(*arrays, owner=owner)
        steps = shared[0].shape[0] // self.batch_size
        if not steps:
            raise InputError(f"{shared[0].shape[0]} rows do not fill a batch of {self.batch_size}")
        seen = []
        with bar(epochs * steps, "step", progress) as made:
            for epoch in range(epochs):
                for batch in self.batches(*shared, seed=seed + epoch):
                    seen.append(self.step(*batch))
                    made.step(seen[-1])
        return seen

    # -- results -----------------------------------------------------------------------------------

    def predict(self, *inputs: Secret | ArrayLike, owner: int = 0) -> Secret:
        """The network's result with the weights of now, which stay secret.

        Parameters
        ----------
        *inputs : Secret or array_like
        owner : int
            The party whose public arrays these are.
        Returns
        -------
        Secret

        Notes
        -----
        After a step the first call makes the weights to apply: where batch normalisations are trained, that takes
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
        """Reveal the weights, as a :class:`Model` of the trained network."""
        shown = self.mpc._session.reveal(self._state, None)
        if shown is None:
            return None
        shapes = [shape for _, shape, _ in self._training.state()]
        state = [np.ascontiguousarray(v.reshape(s), np.float64) for v, s in zip(shown, shapes)]
        return Model(self._training.model(state))

    def evaluate_step(
        self, state: list[np.ndarray] | None, *batch: ArrayLike, step: int = 0, lr: float | None = None,
    ) -> tuple[list[np.ndarray], dict[str, float]]:
        """A step in the clear, in 64-bit floats: what :meth:`step` comes close to.

        Parameters
        ----------
        state : list of numpy.ndarray or None
            The state before it; None for that of the start.
        *batch : array_like
        step : int
            How many steps were made before.
        lr : float, optional
            A learning rate instead of the optimiser's.

        Returns
        -------
        list of numpy.ndarray, dict of str to float
            The state after it, and the metrics.
        """
        self._count(batch)
        if state is None:
            state = [values.reshape(shape) for values, shape in self._training.start()]
        arrays = [self._labels(x, shape) if name == "labels" else np.asarray(x)
                  for x, (name, shape, _, _) in zip(batch, self._inputs)]
        arrays = [np.ascontiguousarray(x, np.float64) for x in arrays]
        rate = None if lr is None else float(lr)
        after, seen = self._training.step_in_the_clear(state, arrays, int(step), rate)
        metrics = {name: float(sums[0]) / self.batch_size for name, (sums, _) in zip(self.metrics, seen)}
        return [values.reshape(shape) for values, shape in after], metrics

"""A client of a cluster: three servers that keep models and run them."""

from __future__ import annotations

import os
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _trefoil
from ._progress import bar
from ._session import Cost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from numpy.typing import ArrayLike

    from ._model import Model

#: Most jobs of one client that are under way at once.
JOBS = 8


@dataclass(frozen=True)
class ModelInfo:
    """What is listed of a model at the servers.

    ``inputs`` and ``outputs`` are shapes without the batch; ``state`` is ``"ready"``, or says why the model
    cannot be used.
    """

    name: str
    owner: str
    parameters: int
    inputs: list[list[int]]
    outputs: list[list[int]]
    state: str


class Cluster:
    """A client's way to its three servers. Made by :func:`trefoil.connect`."""

    def __init__(self, config):
        self._config = os.fspath(config)
        first = _trefoil.Connection(self._config)
        self.name = first.name
        self._idle = queue.LifoQueue()
        self._idle.put(first)
        self._pool = ThreadPoolExecutor(JOBS, thread_name_prefix="trefoil job")
        self._closed = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"Cluster(client {self.name!r})"

    def close(self) -> None:
        """Leave the servers. Jobs under way are waited for."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get()

    def _with(self, talk):
        if self._closed:
            raise _trefoil_closed()
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = _trefoil.Connection(self._config)
        # One that has failed connects again at its next call.
        try:
            return talk(connection)
        finally:
            self._idle.put(connection)

    def ping(self) -> list[float]:
        """Round trips to the three servers, in seconds.

        Raises
        ------
        Unreachable
            Naming the server that does not answer.
        """
        return self._with(lambda c: c.ping())

    def put(
        self, name: str, model: Model, *, readers: Sequence[str] | str = (),
        ranges: dict[str, tuple[float, float]] | None = None, labels: Sequence[str] = (), replace: bool = False,
        progress: bool = False,
    ) -> None:
        """Secret-share a model among the servers.

        Parameters
        ----------
        name : str
        model : Model
        readers : sequence of str, or "everyone"
            Clients that may run it besides this one.
        ranges : dict, optional
            By the input's name, the least and the greatest value for which the model was made: clients
            refuse others.
        labels : sequence of str
            Names of the classes.
        replace : bool
            Whether it may take the place of a model of this client's of the same name.
        progress : bool
            Whether to show a bar while the shares are sent, if tqdm is installed.

        Raises
        ------
        Refused
            With the servers' reason; the models in force are as before then.
        """
        ranges = ranges or {}
        names = list(model.inputs)
        unknown = set(ranges) - set(names)
        if unknown:
            raise ValueError(f"the model has no input {sorted(unknown)[0]!r}; it has {', '.join(names)}")
        bounds = [ranges.get(n) for n in names] if ranges else []
        bounds = [None if b is None else (float(b[0]), float(b[1])) for b in bounds]
        who = None if readers == "everyone" else list(readers)
        with bar(None, "B", progress) as sent:
            self._with(lambda c: c.put(name, model._model, who, bounds, list(labels), replace, sent.at))

    def infer(self, name: str, *inputs: ArrayLike, cost: bool = False, progress: bool = False) -> Any:
        """Run a model on inputs, which are secret-shared on this machine.

        Parameters
        ----------
        name : str
        *inputs : array_like
            One for each of the model's inputs, the batch first.
        cost : bool
            Whether to return the :class:`Cost` too.
        progress : bool
            Whether to show a bar while the shares are sent, if tqdm is installed.

        Returns
        -------
        numpy.ndarray, or a tuple of them if the model has several outputs; with ``cost`` a pair of that
        and a Cost

        Raises
        ------
        Unreachable, Refused, RangeError
        """
        arrays = [np.ascontiguousarray(x, np.float64) for x in inputs]
        with bar(None, "B", progress) as sent:
            outputs, (bytes_, rounds, seconds) = self._with(lambda c: c.infer(name, arrays, sent.at))
        shown = tuple(values.reshape(shape) for _, values, shape in outputs)
        shown = shown[0] if len(shown) == 1 else shown
        return (shown, Cost(bytes_, 0, rounds, seconds, ())) if cost else shown

    def submit(self, name: str, *inputs: ArrayLike) -> Future[Any]:
        """As :meth:`infer`, without waiting.

        Returns
        -------
        concurrent.futures.Future
            Its result is the answer. Up to eight jobs are under way at once.
        """
        return self._pool.submit(self.infer, name, *inputs)

    def models(self) -> list[ModelInfo]:
        """The models that this client may use, as a list of :class:`ModelInfo`."""
        return [ModelInfo(*listed) for listed in self._with(lambda c: c.models())]

    def share(self, name: str, readers: Sequence[str] | str) -> None:
        """Let these clients run a model of this one's, and nobody else; or ``"everyone"``."""
        self._with(lambda c: c.share(name, None if readers == "everyone" else list(readers)))

    def remove(self, name: str) -> None:
        """Remove a model of this client's from all servers."""
        self._with(lambda c: c.remove(name))


def _trefoil_closed():
    from ._errors import Error

    return Error("the cluster is closed; connect again")


def connect(config: str | os.PathLike[str] | None = None) -> Cluster:
    """Connect to a cluster's three servers as a client.

    Parameters
    ----------
    config : path, optional
        The client's ``client.toml``, as ``trefoil cluster init`` makes it; the environment variable
        ``TREFOIL_CONFIG`` names it otherwise.

    Returns
    -------
    Cluster
        For ``with trefoil.connect("client.toml") as cluster: ...``

    Raises
    ------
    ConfigError
        If the file is not usable. The servers are met at the first call.
    """
    from ._errors import ConfigError

    config = config or os.environ.get("TREFOIL_CONFIG")
    if not config:
        raise ConfigError('name this client\'s file: trefoil.connect("client.toml") or TREFOIL_CONFIG')
    return Cluster(config)

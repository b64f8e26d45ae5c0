"""Runs: trainings and analyses at the servers, from their owner's side."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ._errors import Error
from ._progress import bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._cluster import Cluster

#: The time between two checks for Ctrl-C while a program follows a run, in seconds.
_TICK = 0.1


@dataclass(frozen=True)
class Join:
    """Two data sets whose rows the servers bring together by their secret keys (``key=`` of ``cluster.data.put``).

    Nobody learns which rows have a partner. Everything else of the keys stays secret too, except for whether a set has a key
    twice, and in an inner join whether there are ``rows`` pairs. If there are fewer, the run is refused. The owners of both data sets consent to
    the join with the rest of the run.

    Parameters
    ----------
    left, right : str
        The data sets. Columns of ``right`` follow those of ``left``.
    rows : int, optional
        Of an inner join: the number of pairs that the run trains on, those of the lowest keys, which are hashes.
    kind : "inner" or "left"
        A left join keeps all rows of ``left`` and takes no ``rows``. Without a partner they have zeros in the columns of
        ``right``: the mean of a column that a schema scales by ``standard``, and none of the categories of a one-hot code.
        The labels must come with ``left``.
    """

    left: str
    right: str
    rows: int | None = None
    kind: Literal["inner", "left"] = "inner"


@dataclass(frozen=True)
class DataInfo:
    """A data set in the servers' list.

    Its ``tensors`` are name, shape of a row, and fraction bits of each tensor of the rows, the labels last. Its ``key``
    are the columns of which the rows' keys were made, none if rows have no keys. Its
    ``readers`` are the clients that may name it in a run: None for everyone, and if this client is not the owner. Its
    ``state`` is ``"ready"``, or the reason why it cannot be used.
    """

    name: str
    owner: str
    rows: int
    tensors: list[tuple[str, list[int], int]]
    key: list[str]
    readers: list[str] | None
    state: str


@dataclass(frozen=True)
class RunInfo:
    """A run in the servers' list.

    Its ``data`` are names and owners of its data sets, its ``joins`` those that are joined by key. Its ``epochs`` are None if
    it is an analysis. Its ``step`` is the number of steps that the servers have kept.
    Its ``recipients`` are the clients other than its owner that get the trained weights or the results. The owners of data in
    ``missing`` have not consented. The ``fingerprint`` identifies the run for :meth:`Cluster.approve`.
    """

    name: str
    owner: str
    data: list[tuple[str, str]]
    joins: list[Join]
    rows: int
    epochs: int | None
    step: int
    recipients: list[str]
    missing: list[str]
    fingerprint: str
    state: str


def run_info(listed: dict[str, Any]) -> RunInfo:
    """A run as the compiled half describes it."""
    return RunInfo(**listed | {"joins": [Join(*join) for join in listed["joins"]]})


@dataclass(frozen=True)
class Progress:
    """A run after a slice of steps: ``step`` of ``steps`` are done.

    ``loss`` and ``accuracy`` are means over the rows since they left last, of the network before each step. They are
    None if they do not leave with this slice (``metrics_every`` sets when they do), or if the run does not ask for
    them. The numbers ``bytes`` and ``rounds`` are those among the servers.
    """

    step: int
    steps: int
    epoch: int
    loss: float | None
    accuracy: float | None
    seconds: float
    bytes: int
    rounds: int


class Run(Future[list[Progress]]):
    """A training or an analysis at the servers, driven from here. Made by :meth:`Cluster.train` and
    :meth:`Cluster.analyse`.

    Its result, as a :class:`concurrent.futures.Future`'s, is the list of all :class:`Progress`. It stops when the
    program ends. The same call then continues from the state that the servers have kept.

    Attributes
    ----------
    name, fingerprint : str
        The owners of data consent to these.
    info : RunInfo
        The run as it was begun.
    """

    def __init__(
        self, cluster: Cluster, info: RunInfo, metrics: Sequence[str], progress: bool,
    ) -> None:
        super().__init__()
        self.info = info
        self.name: str = info.name
        self.fingerprint: str = info.fingerprint
        self._cluster, self._metrics = cluster, metrics
        self._seen, self._missing, self._failure = [], tuple(info.missing), None
        self._news = threading.Condition()
        self._stopping = False
        self._bar = bar(None, "step", progress)
        self._thread = threading.Thread(target=self._drive, name=f"trefoil run {info.name}")
        self._thread.start()

    def __repr__(self) -> str:
        seen = self._seen
        at = f"step {seen[-1].step} of {seen[-1].steps}" if seen else f"after step {self.info.step}"
        return f"Run({self.name!r}, {at}{', done' if self.done() else ''})"

    @property
    def missing(self) -> tuple[str, ...]:
        """Owners of data who have not consented yet; the run waits for them."""
        return self._missing

    @property
    def failure(self) -> str | None:
        """The reason why the last slice failed, while the run tries to continue; None otherwise."""
        return self._failure

    def follow(self) -> Iterator[Progress]:
        """Yield the progress of every slice on arrival, from the first that this program has seen. Ends with the run.

        Yields
        ------
        Progress

        Raises
        ------
        Error
            If the run fails.
        """
        at = 0
        while True:
            with self._news:
                while at == len(self._seen) and not self.done():
                    self._news.wait(_TICK)
                new, ended = self._seen[at:], self.done()
            yield from new
            at += len(new)
            if ended and at == len(self._seen):
                self.result()
                return

    def stop(self) -> None:
        """Stop after one more step, which the servers keep."""
        self._stopping = True

    def cancel(self) -> bool:
        """As :meth:`stop`; the result covers the steps made so far. False if the run has ended already."""
        self.stop()
        return not self.done()

    def join(self) -> None:
        """Wait until the run has ended, with or without success."""
        self._thread.join()

    def _drive(self):
        self.set_running_or_notify_cancel()
        try:
            with self._bar:
                self._cluster._connection().drive(self.name, self._told)
            self.set_result(list(self._seen))
        except _Over:
            self.set_exception(Error(f"the program ended before run {self.name!r}"))
        except BaseException as error:  # noqa: BLE001 - the caller of result() gets it
            self.set_exception(error)
        with self._news:
            self._news.notify_all()

    def _told(self, slices, failure, missing):
        """Takes the news of the run. Returns whether to continue."""
        if not threading.main_thread().is_alive():
            raise _Over
        with self._news:
            if missing is not None:
                self._missing = tuple(missing)
            if failure is not None or slices:
                self._failure = failure
            for slice_ in slices:
                shown = dict(zip(self._metrics, slice_.pop("metrics") or ()))
                self._seen.append(Progress(**slice_, loss=shown.get("loss"), accuracy=shown.get("accuracy")))
                if self._bar.at is not None:
                    self._bar.at(self._seen[-1].step, self._seen[-1].steps)
            self._news.notify_all()
        return not self._stopping


class _Over(Exception):
    """The interpreter is ending: no caller waits for the run."""

"""A client of a cluster: three servers that keep models and data, run the models and train on the data."""

from __future__ import annotations

import os
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _like_torch, _trefoil, optim
from ._analysis import record, shown
from ._chat import Chat
from ._conversation import Conversation
from ._errors import ConfigError, Error, InputError
from ._model import Model
from ._progress import bar
from ._run import DataInfo, Join, Run, RunInfo, run_info
from ._secret import _floats, _plain
from ._session import FRAC_BITS, Cost
from ._tables import framed, table_of
from ._train import METRICS, as_torch, loss_of, one_hot, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from typing import Literal

    from numpy.typing import ArrayLike

    from ._analysis import Rows
    from ._train import Loss, Optimiser

#: The most jobs of one client that run at once.
JOBS = 8


@dataclass(frozen=True)
class ModelInfo:
    """A model in the servers' list.

    ``inputs`` and ``outputs`` are shapes of one example; ``state`` is ``"ready"``, or states why the model
    cannot be used.
    """

    name: str
    owner: str
    parameters: int
    inputs: list[list[int]]
    outputs: list[list[int]]
    state: str


def _who(readers):
    """Clients as the compiled half takes them: None for everyone."""
    return None if readers == "everyone" else _named(readers)


def _named(clients):
    """Clients by their names; one string alone is one client, not its letters."""
    return [clients] if isinstance(clients, str) else list(clients)


class Data:
    """A client's data sets at the servers: ``cluster.data``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def put(
        self, name: str, *arrays: ArrayLike, classes: int | None = None,
        only: Literal["values", "labels"] | None = None, readers: Sequence[str] | str = (), least_batch: int = 2,
        metric_rows: int = 100, most_numbers_out: int | None = None, privacy_budget: float | None = None,
        delta: float = 1e-5, replace: bool = False, progress: bool = False, label: str | None = None,
        drop: Sequence[str] = (), schema: str | os.PathLike[str] | None = None, key: str | Sequence[str] = (),
        key_secret: str | os.PathLike[str] | None = None,
    ) -> None:
        """Secret-share rows of data and their labels among the servers, for trainings.

        Parameters
        ----------
        name : str
        *arrays : array_like, or one table
            One for each input of the networks that are to be trained, then the labels; a row for each example.
            Integers stay integers, real numbers get 20 fraction bits. A table holds both: a frame of pandas or polars,
            or a mapping of names to columns. The names of its columns become public; its index stays here.
        classes : int, optional
            The number of classes. The labels are then integers from 0 on, as cross-entropy takes them.
        only : "values" or "labels", optional
            For rows whose other half another client owns: all arrays are values, or the one array is the labels. A run
            puts such data sets side by side, row by row; values of several owners are joined along their first axis.
        readers : sequence of str, or "everyone"
            Other clients that may name it in a run. No run begins on it before this client consents.
        least_batch : int
            Runs whose batches have fewer rows are refused. Batches of 1 row always are.
        metric_rows : int
            Runs are refused if metrics leave as sums over fewer rows than this, or than all of them.
        most_numbers_out : int, optional
            Runs are refused if more numbers may leave in all: weights, metrics, and what the guard found.
        privacy_budget : float, optional
            Runs are refused if all runs on this data together would exceed this epsilon for a row. Runs without noise
            are refused too.
        delta : float
            The delta at which that epsilon holds.
        replace : bool
            Replace a data set of this client's of the same name. Runs that use the old one then end.
        progress : bool
            Show a bar while the shares are sent, if tqdm is installed.
        label : str, optional
            The column of a table with the labels, unless the schema names it. They are classes if there are ``classes``,
            or if the schema gives them names; numbers else.
        drop : sequence of str
            Columns of a table to leave out.
        schema : path, optional
            A description of a table's columns, as ``trefoil data schema`` writes it: ranges, categories, scales and
            missing values. Columns are matched to it by name.
        key : str or sequence of str, optional
            The column of a table that says whose row it is, or several that say so together. The servers get a hash of
            60 bits of its cells as a secret, which no network sees; runs join two data sets by it (:meth:`Cluster.train`).
            Cells are compared as texts: a column of integers with gaps becomes one of floats in pandas, and ``7.0`` is
            not ``7``.
        key_secret : path, optional
            The file of the secret under which the key is hashed, 64 hexadecimal letters: the same for all owners whose
            data is joined, and unknown to the servers. ``trefoil store key FILE`` makes one.

        Raises
        ------
        InputError
            If arrays and labels do not fit each other, or naming the row and column that does not fit the schema, or
            the rows whose key is empty or that of another row.
        RangeError
            Naming a number that is too large.
        Refused
            With the servers' reason. The data at the servers stays as it was.
        """
        if only not in (None, "values", "labels"):
            raise InputError(f'only={only!r}; it is "values" or "labels"')
        if only == "values" and classes is not None:
            raise InputError('classes= are of labels, which only="values" leaves to another data set')
        if only == "labels" and len(arrays) != 1:
            raise InputError(f"{len(arrays)} arrays; labels are one")
        table = table_of(arrays[0]) if len(arrays) == 1 else None
        if table is None and (label is not None or drop or schema is not None or key):
            raise InputError("label=, drop=, schema= and key= are of one table with named columns")
        if bool(key) != (key_secret is not None):
            raise InputError("key= and key_secret= belong together: the columns, and the secret under which they are hashed")
        if table is None and len(arrays) < (2 if only is None else 1):
            raise InputError("give an array for each input of the network, and the labels last")
        if min(int(least_batch), int(metric_rows)) < 1 or (most_numbers_out is not None and int(most_numbers_out) < 0):
            raise InputError("least_batch= and metric_rows= are 1 or more, most_numbers_out= is 0 or more")
        budget = None if privacy_budget is None else (float(privacy_budget), float(delta))
        most = None if most_numbers_out is None else int(most_numbers_out)
        conditions = (int(least_batch), int(metric_rows), most, budget)
        if table is None:
            rows = _tensors(arrays, classes, only)
        else:
            count = None if classes is None else int(classes)
            described = None if schema is None else os.fspath(schema)
            keyed = None if key_secret is None else (_named(key), os.fspath(key_secret))
            rows = (table, label, _named(drop), count, described, only, keyed)
        with bar(None, "B", progress) as sent:
            self._cluster._with(lambda c: c.put_data(name, rows, conditions, _who(readers), replace, sent.at))

    def list(self) -> list[DataInfo]:
        """The data sets that this client may name in a run, as a list of :class:`DataInfo`."""
        return [DataInfo(**listed) for listed in self._cluster._with(lambda c: c.data_sets())]

    def share(self, name: str, readers: Sequence[str] | str) -> None:
        """Allow exactly these clients to name a data set of this one's in their runs.

        Parameters
        ----------
        name : str
        readers : sequence of str, or "everyone"
        """
        self._cluster.share(name, readers)

    def remove(self, name: str) -> None:
        """Remove a data set of this client's from all servers. Runs that use it then end.

        Parameters
        ----------
        name : str
        """
        self._cluster.remove(name)


def _sets(data):
    """Data sets that a run puts together, as the compiled half takes them."""
    if isinstance(data, Join):
        return [data.left, data.right], (data.kind, data.rows)
    return ([data] if isinstance(data, str) else list(data)), None


def _tensors(arrays, classes, only):
    """The name and numbers of each tensor of a data set, the labels last."""
    values = [_plain(x) for x in arrays]
    labels = [] if only == "values" else [_labels(values.pop(), classes)]
    names = ["values"] if len(values) == 1 else [f"values {i}" for i in range(len(values))]
    return [(n, _encoded(n, x)) for n, x in zip([*names, "labels"], [*values, *labels])]


def _labels(labels, classes):
    """The labels that a loss compares with, a row for each example."""
    if classes is not None:
        if labels.ndim != 1:
            raise InputError(f"labels have shape {labels.shape}; with classes= they are one integer for each row")
        return one_hot(labels, int(classes))
    if labels.dtype.kind in "iub":
        raise InputError("labels are integers: say how many classes= there are, or pass real numbers")
    return labels.reshape(-1, 1) if labels.ndim == 1 else labels


def _encoded(name, array):
    if array.dtype.kind not in "fiub":
        raise InputError(f"`{name}` has dtype {array.dtype}; rows are integers and real numbers")
    kind = np.float64 if array.dtype.kind == "f" else np.int64
    return _trefoil.Public(np.ascontiguousarray(array, kind), FRAC_BITS if kind == np.float64 else 0)


class Cluster:
    """A client's connection to its three servers. Made by :func:`trefoil.connect`.

    Attributes
    ----------
    name : str
        The client's.
    data : Data
        Its data sets: ``put``, ``list``, ``share``, ``remove``.
    """

    def __init__(self, config: str | os.PathLike[str]) -> None:
        self._config = os.fspath(config)
        first = self._connection()
        self.name: str = first.name
        self._idle = queue.LifoQueue()
        self._idle.put(first)
        self._pool = ThreadPoolExecutor(JOBS, thread_name_prefix="trefoil job")
        self._runs = []
        self._closed = False
        self.data: Data = Data(self)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(wait=kind is None)

    def __repr__(self) -> str:
        return f"Cluster(client {self.name!r})"

    def close(self, wait: bool = True) -> None:
        """Disconnect from the servers, once the jobs in progress are done.

        Parameters
        ----------
        wait : bool
            Wait for runs too. Otherwise they stop after one more step, from which they can continue. They also do so
            if an exception leaves the ``with`` block.
        """
        self._closed = True
        for run in self._runs:
            if wait:
                run.join()
            else:
                run.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get()

    def _connection(self):
        return _trefoil.Connection(self._config)

    def _with(self, talk):
        if self._closed:
            raise Error("the cluster is closed; connect again")
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = self._connection()
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
        progress: bool = False, schema: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None, form: str = "{}", stop: Sequence[str] = (),
        prompt_steps: Sequence[int] | None = None, public_weights: bool = False,
    ) -> None:
        """Secret-share a model among the servers.

        Parameters
        ----------
        name : str
        model : Model
        readers : sequence of str, or "everyone"
            Other clients that may run it.
        ranges : dict, optional
            By the input's name, the least and the greatest value for which the model was made. Clients
            refuse others.
        labels : sequence of str
            Names of the classes.
        replace : bool
            Replace a model of this client's of the same name.
        progress : bool
            Show a bar while the shares are sent, if tqdm is installed.
        schema : path, optional
            A description of the columns of tables, as ``trefoil data schema`` writes it. Clients match the columns of
            their tables to it by name, and prepare their numbers as it says.
        tokenizer : path, optional
            The ``tokenizer.json`` of a language model: public as the labels are, for :meth:`chat`.
        form : str
            The text around what a person says to a language model, with ``{}`` in its place.
        stop : sequence of str
            Tokens behind which an answer ends, as the tokenizer has them.
        prompt_steps : sequence of int, optional
            Tokens in each of the longer steps by which a language model from a file also reads a prompt, at most four
            numbers. Unless given, 4 and 16 where the model has them; ``()`` for none.
        public_weights : bool
            Give every server the weights in the clear: for a model that anyone may have. What clients send and get stays
            secret, and products with the weights cost half as many bytes.

        Raises
        ------
        InputError
            If the tokenizer has more tokens than the model's table, or lacks one that ends answers.
        Refused
            With the servers' reason. The models at the servers stay as they were.
        """
        ranges = ranges or {}
        names = list(model.inputs)
        unknown = set(ranges) - set(names)
        if unknown:
            raise ValueError(f"the model has no input {sorted(unknown)[0]!r}; it has {', '.join(names)}")
        bounds = [ranges.get(n) for n in names] if ranges else []
        bounds = [None if b is None else (float(b[0]), float(b[1])) for b in bounds]
        with bar(None, "B", progress) as sent:
            described = None if schema is None else os.fspath(schema)
            who, names = _who(readers), list(labels)
            text = None if tokenizer is None else (os.fspath(tokenizer), form, list(stop))
            steps = None if prompt_steps is None else [int(n) for n in prompt_steps]
            self._with(
                lambda c: c.put(
                    name, model._model, who, bounds, names, described, replace, sent.at, text, steps, public_weights
                )
            )

    def infer(
        self, name: str, *inputs: ArrayLike, cost: bool = False, progress: bool = False, drop: Sequence[str] = (),
    ) -> Any:
        """Run a model on inputs, which are secret-shared on this machine.

        Parameters
        ----------
        name : str
        *inputs : array_like
            One for each of the model's inputs, the batch first; in their whole shapes for a model whose inputs and outputs do
            not all begin with the batch. Or one table of all inputs: a frame of pandas or polars, or a mapping of names
            to columns. Its columns are matched by name to those that the model's owner has named, and prepared as the
            owner says; arrays hold the same numbers, in the columns' order.
        cost : bool
            Return the :class:`Cost` too.
        progress : bool
            Show a bar while the shares are sent, if tqdm is installed.
        drop : sequence of str
            Columns of a table to leave out.

        Returns
        -------
        numpy.ndarray, or a tuple of them if the model has several outputs; with ``cost`` a pair of that
        and a Cost. Of a frame of pandas, a frame or series with its index.

        Raises
        ------
        Unreachable, Refused, RangeError
        """
        table = table_of(inputs[0]) if len(inputs) == 1 else None
        if table is None and drop:
            raise InputError("drop= names columns of a table")
        given = [_floats(x) for x in inputs] if table is None else (table, _named(drop))
        with bar(None, "B", progress) as sent:
            shown, (bytes_, rounds, seconds), labels = self._answer(name, given, sent.at)
        if table is not None:
            shown = tuple(framed(values, inputs[0], labels) for values in shown)
        shown = shown[0] if len(shown) == 1 else shown
        return (shown, Cost(bytes_, 0, rounds, seconds, ())) if cost else shown

    def conversation(self, name: str) -> Conversation:
        """Begin a conversation with a model that keeps values from step to step: a language model with its caches.

        Parameters
        ----------
        name : str

        Returns
        -------
        Conversation
            Closed at the end of a ``with`` block, or by its ``close``.
        """
        return Conversation(self, name)

    def chat(self, name: str) -> Chat:
        """Begin a text with a language model that returns the next token, in which client and model write in turn.

        Parameters
        ----------
        name : str

        Returns
        -------
        Chat
            Closed at the end of a ``with`` block, or by its ``close``.

        Raises
        ------
        InputError
            If the model's steps do not take one token and return the next.
        """
        return Chat(self, name)

    def _step(self, name, given, place):
        """A step of a conversation: its number, and the positions before it."""
        shown, _, _ = self._answer(name, [_floats(x) for x in given], place=place)
        return shown[0] if len(shown) == 1 else shown

    def _answer(self, name, given, sent=None, place=None):
        """The arrays of an answer, its bytes, rounds and seconds, and the names of classes."""
        outputs, cost, labels = self._with(lambda c: c.infer(name, given, sent, place))
        return tuple(values.reshape(shape) for _, values, shape in outputs), cost, labels

    def submit(self, name: str, *inputs: ArrayLike) -> Future[Any]:
        """As :meth:`infer`, without waiting.

        Parameters
        ----------
        name : str
        *inputs : array_like
        Returns
        -------
        concurrent.futures.Future
            Its result is the answer. Up to eight jobs run at once.
        """
        return self._pool.submit(self.infer, name, *inputs)

    def models(self) -> list[ModelInfo]:
        """The models that this client may use, as a list of :class:`ModelInfo`."""
        return [ModelInfo(*listed) for listed in self._with(lambda c: c.models())]

    def share(self, name: str, readers: Sequence[str] | str) -> None:
        """Allow exactly these clients to use a model or data set of this one's.

        Parameters
        ----------
        name : str
        readers : sequence of str, or "everyone"
        """
        self._with(lambda c: c.share(name, _who(readers)))

    def remove(self, name: str) -> None:
        """Remove a model, data set or run of this client's from all servers.

        Parameters
        ----------
        name : str
        """
        self._with(lambda c: c.remove(name))

    # -- training ----------------------------------------------------------------------------------

    def train(
        self, name: str, model: Model, data: str | Join | Sequence[str | Sequence[str] | Join], *, epochs: int = 1,
        batch_size: int = 32, loss: Loss = "cross_entropy", optimiser: Optimiser = optim.SGD(),
        metrics: Sequence[str] | None = None,
        trained: Sequence[str] | None = None, clip_norm: float | None = None, seed: int = 0, labels: Sequence[str] = (),
        recipients: Sequence[str] = (), metrics_every: int | None = None, weights_after: Sequence[int] = (),
        privacy: optim.DP | None = None, standardize: bool = False, replace: bool = False, progress: bool = False,
    ) -> Run:
        """Train a model on data that the servers keep, as shares.

        The run begins once the owners of all its data have consented (:meth:`approve`). It makes its steps in slices
        of about a second, between which other clients' jobs run. A run of the same name and with the same arguments
        continues from the state that the servers have kept.

        Parameters
        ----------
        name : str
            The run's.
        model : Model
            With one result. It begins with its weights, which are secret-shared on this machine.
        data : str or sequence of str
            Data sets, of one owner or of several; their rows follow each other. An inner list of names,
            as in ``[["pixels", "labels"], "more"]``, holds columns of the same rows, in the same order. A :class:`Join`,
            as in ``Join("hospital", "bank", rows=500)``, holds columns of rows that have one key.
        epochs : int
            The number of passes over the rows.
        batch_size : int
            Rows of every step. Rows that do not fill one are left out of an epoch.
        loss, optimiser, trained, clip_norm
            As of :class:`Trainer`.
        metrics : sequence of str, optional
            The metrics that this client gets after each epoch, as means over its rows: ``"loss"``, and for
            cross-entropy ``"accuracy"``. Both unless given, and with ``privacy`` none.
        seed : int
            For the rows' order and dropouts; public.
        labels : sequence of str
            Names of the classes, for the model that :meth:`publish` makes.
        recipients : sequence of str
            Other clients that may :meth:`get` the trained weights. The owners of the data consent to them with the
            rest of the run.
        metrics_every : int, optional
            The number of steps over which metrics are summed before they leave the servers; an epoch's unless given.
        weights_after : sequence of int
            Steps after which the weights may leave, or a model be made of them, in addition to the last.
        privacy : DP, optional
            Clip the gradient of each example and add noise. The owners of the data see the resulting epsilon.
        standardize : bool
            Bring each column to mean 0 and deviation 1 by the rows of all owners: the network begins with a layer whose
            numbers the servers make on shares before the first step. Columns of categories stay as they are.
        replace : bool
            Replace a run of the same name and begin again.
        progress : bool
            Show bars, if tqdm is installed.

        Returns
        -------
        Run
            A :class:`concurrent.futures.Future`; :meth:`Run.follow` yields loss and accuracy as they arrive.

        Raises
        ------
        InputError
            Naming a layer that cannot be trained.
        Refused
            If a data set is missing or does not fit the network, or another run has the name.

        Notes
        -----
        The servers learn neither data nor weights nor metrics. The program of the training is public.
        """
        loss, optimiser = loss_of(loss), _like_torch.optimiser(optimiser)
        if metrics is None and privacy is not None:
            metrics = ()
        elif metrics is None:
            metrics = METRICS if isinstance(loss, optim.CrossEntropy) and not loss.soft else METRICS[:1]
        if int(epochs) < 1:
            raise ConfigError(f"epochs is {epochs}; a run has 1 or more")
        if isinstance(optimiser.lr, optim.Rates):
            raise ConfigError("a run's schedule is public before it begins: take optim.Cosine or optim.StepLR, or train by a Trainer")
        openings = (None if metrics_every is None else int(metrics_every), [int(step) for step in weights_after])
        if openings[0] is not None and openings[0] < 1 or any(step < 1 for step in openings[1]):
            raise ConfigError("metrics_every and weights_after count steps from 1")
        training = planned(
            model, loss, optimiser, batch_size, metrics=metrics, trained=trained, clip_norm=clip_norm, seed=seed,
            privacy=privacy, standardize=standardize,
        )
        sets = [_sets(names) for names in ([data] if isinstance(data, (str, Join)) else data)]
        with bar(None, "B", progress) as sent:
            begun = self._with(
                lambda c: c.begin(
                    name, training, sets, int(epochs), int(seed), list(labels), _named(recipients), openings, replace,
                    sent.at,
                )
            )
        return self._follow(Run(self, run_info(begun), tuple(metrics), progress))

    def analyse(
        self, name: str, program: Callable[[Rows], Any],
        data: str | Join | Sequence[str | Sequence[str] | Join], *, recipients: Sequence[str] = (), replace: bool = False,
        progress: bool = False,
    ) -> Run:
        """Compute statistics, or fit estimators, on data that the servers keep, as shares.

        The program is called here, on rows without numbers, and its calls are recorded. The servers make the same calls on
        the shares, once the owners of all data have consented to them (:meth:`approve`). :meth:`get` returns the results.

        Parameters
        ----------
        name : str
            The run's.
        program : callable
            Takes :class:`Rows` and returns a secret array, a statistic of :mod:`trefoil.stats`, or a dict of these by name.
            It may use all of :mod:`trefoil.stats`, :mod:`trefoil.learn`, :mod:`trefoil.functions` and NumPy's functions. It
            cannot reveal anything: what it returns leaves the servers, and nothing else. So its steps depend on no number.
        data : str or sequence of str
            Data sets, as of :meth:`train`: an inner list has columns of the same rows, a :class:`Join` those of rows that
            have one key, and the rows of what follows come after.
        recipients : sequence of str
            Other clients that may :meth:`get` the results.
        replace : bool
            Replace a run of the same name and begin again.
        progress : bool
            Show a bar, if tqdm is installed.

        Returns
        -------
        Run
            A :class:`concurrent.futures.Future`, done once the results can be taken.

        Raises
        ------
        InputError
            If the program reveals something, brings secret numbers of its own, or returns no secret array.
        Refused
            If a data set is missing, or its owner's conditions do not allow it, or another run has the name.

        Notes
        -----
        The program is public, and with it all shapes and parameters. Servers cannot tell whether a result is a mean of all
        rows or a single row: an owner consents to the steps that ``trefoil run show`` prints, and limits the numbers that
        leave by ``most_numbers_out=`` of ``cluster.data.put``. Nobody sees a number that leaves its range at the servers: try
        a program in a local session first.

        Examples
        --------
        >>> def study(rows):
        ...     model = learn.LogisticRegression(classes=[0, 1]).fit(rows.values, rows.target)
        ...     return {"coef": model.coef_, "mean age": rows["age"].mean()}
        >>> cluster.analyse("risk", study, Join("hospital", "laboratory", rows=440)).result()
        >>> cluster.get("risk")["mean age"]
        """
        sets = [_sets(names) for names in ([data] if isinstance(data, (str, Join)) else data)]
        count, tensors = self._with(lambda c: c.rows_of(sets))
        session, results = record(tensors, count, program)
        try:
            begun = self._with(lambda c: c.analyse(name, session, results, sets, _named(recipients), replace))
        finally:
            session.close(False)
        return self._follow(Run(self, run_info(begun), (), progress))

    def _follow(self, run):
        """Keeps a run until it is done."""
        self._runs = [known for known in self._runs if not known.done()] + [run]
        return run

    def runs(self) -> list[RunInfo]:
        """This client's runs, and those that use its data, as a list of :class:`RunInfo`."""
        return [run_info(listed) for listed in self._with(lambda c: c.runs())]

    def approve(self, run: str | RunInfo, fingerprint: str | None = None) -> None:
        """Consent to a run on this client's data: to exactly that of the fingerprint.

        Parameters
        ----------
        run : str or RunInfo
            As :meth:`runs` lists it; of a name the fingerprint is needed too.
        fingerprint : str, optional
            At least its first 32 letters, as the run's owner or :meth:`runs` states it.

        Raises
        ------
        InputError
            If the run has another fingerprint.
        Refused
            If it does not use data of this client's.

        Notes
        -----
        :meth:`runs` lists the owners of the rows, the number of epochs and the recipients of the weights. The command
        ``trefoil run show`` prints the network, its optimiser and everything else that the fingerprint covers.
        """
        name = run.name if isinstance(run, RunInfo) else run
        letters = run.fingerprint if isinstance(run, RunInfo) else fingerprint
        if letters is None:
            raise InputError("pass the run as runs() lists it, or its name and fingerprint")
        self._with(lambda c: c.approve(name, letters))

    def withdraw(self, run: str | RunInfo) -> None:
        """Withdraw the consent to a run on this client's data. The current step ends first, and none follows.

        Parameters
        ----------
        run : str or RunInfo
        Raises
        ------
        Refused
            If the run does not use data of this client's.
        """
        self._with(lambda c: c.withdraw(run.name if isinstance(run, RunInfo) else run))

    def get(self, run: str, into: Any = None) -> Any:
        """The trained weights of a run, or the results of an analysis, reconstructed on this machine. The run is this
        client's, or names this client among its recipients.

        Parameters
        ----------
        run : str
        into : torch.nn.Module or Model, optional
            A module gets the weights and is returned. Of a :class:`Model` another one with the weights is returned.

        Returns
        -------
        dict of str to numpy.ndarray, torch.nn.Module, or Model
            Without ``into`` weights and running statistics by their names in the network. Of an analysis its results by
            their names: arrays, integers as ``int64``, tables with masked cells, and tests with their p-values.

        Raises
        ------
        InputError
            If ``into`` is given for an analysis.
        """
        _, weights, model = self._with(lambda c: c.get(run))
        if model is None and into is not None:
            raise InputError(f"{run!r} is an analysis, which has no weights: leave into= out")
        if isinstance(into, Model):
            return Model(model)
        typed = lambda values, whole: values.astype(np.int64) if whole else values
        state = {name: typed(values, whole).reshape(shape) for name, (values, shape), whole in weights}
        if model is None:
            return shown(state)
        if into is None:
            return state
        into.load_state_dict(as_torch(state, into), strict=False)
        return into

    def publish(self, run: str, name: str, *, readers: Sequence[str] | str = (), replace: bool = False) -> None:
        """Make a model of the weights of this client's run, for :meth:`infer`. No weight leaves the servers.

        Parameters
        ----------
        run : str
        name : str
            The model's.
        readers : sequence of str, or "everyone"
            Other clients that may run it.
        replace : bool
            Replace a model of this client's of the same name.
        """
        self._with(lambda c: c.publish(run, name, _who(readers), replace))


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
        If the file is not usable. The client connects to the servers at the first call.
    """
    config = config or os.environ.get("TREFOIL_CONFIG")
    if not config:
        raise ConfigError('name this client\'s file: trefoil.connect("client.toml") or TREFOIL_CONFIG')
    return Cluster(config)

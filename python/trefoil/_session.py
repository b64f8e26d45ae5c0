"""Sessions: parties as threads of this process, or this process as one of three."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from . import _trefoil
from ._errors import ConfigError, InputError
from ._secret import Secret, _plain, _widest

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from ._conversation import SecretConversation
    from ._model import Model

#: Fraction bits of real numbers unless given: a range of +-2^42 in steps of 2^-20.
FRAC_BITS = 20


@dataclass(frozen=True)
class Step:
    """The cost of the calls of one name.

    Attributes
    ----------
    name : str
        The function, or the layer of a model.
    bytes : int
        Bytes sent, without framing.
    rounds : int
        Steps of causal depth: messages that had to wait for others.
    seconds : float
        Seconds from call to answer.
    calls : int
        The number of calls.
    """

    name: str
    bytes: int
    rounds: int
    seconds: float
    calls: int


@dataclass(frozen=True)
class Cost:
    """The cost of a session since the last :meth:`Mpc.cost`.

    ``bytes``, ``messages`` and ``rounds`` are those of the parties in this process: of all in a local session, a dealer's
    included; of this party in a session of three machines. A party that only had to send may be behind the others when the
    cost is read. It then also counts the rounds in which it catches up. No party is behind after a
    :meth:`Mpc.reveal` to all. ``str()`` is a table.
    """

    bytes: int
    messages: int
    rounds: int
    seconds: float
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        rows = [("step", "calls", "bytes", "rounds", "ms")]
        for step in self.steps:
            ms = f"{1e3 * step.seconds:.2f}"
            rows.append((step.name, str(step.calls), str(step.bytes), str(step.rounds), ms))
        total = ("in all", "", str(self.bytes), str(self.rounds), f"{1e3 * self.seconds:.2f}")
        rows.append(total)
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        line = lambda row: "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        return "\n".join(line(row).rstrip() for row in rows)


class Mpc:
    """A session of parties. Made by :func:`trefoil.local` and :func:`trefoil.party`.

    Attributes
    ----------
    frac_bits : int
        Fraction bits of real numbers.
    party : int or None
        This process's party, None where all are here.
    parties : int
        The number of parties that compute.

    Notes
    -----
    Every call, its shapes and the order of calls are public: parties see which program runs, not on
    which numbers. A session may be used from several threads; its calls come one after the other.
    """

    def __init__(self, session: _trefoil.Session, frac_bits: int) -> None:
        self._session = session
        self.frac_bits: int = frac_bits
        self.party: int | None = session.me
        self.parties: int
        self.parties, self._dealers = session.members
        #: Runs with a guard so far: each has other public signs.
        self._guarded = 0

    def __enter__(self) -> Mpc:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # After an error the others are not waited for.
        self._session.close(kind is None)

    def __repr__(self) -> str:
        who = f"{self.parties} parties and a dealer" if self._dealers else "three parties"
        where = f"{who} in this process" if self.party is None else f"party {self.party}"
        state = ", closed" if self._session.closed else ""
        return f"Mpc({where}, frac_bits={self.frac_bits}{state})"

    def close(self) -> None:
        """End the session. Secret arrays of it cannot be used any more.

        A party of three machines waits until the others have ended theirs too.
        """
        self._session.close(True)

    # -- into and out of the session ---------------------------------------------------------------

    def secret(
        self, x: ArrayLike | None = None, *, owner: int = 0, bound: float | None = None,
        shape: tuple[int, ...] | None = None, dtype: DTypeLike | None = None,
    ) -> Secret:
        """Secret-share an array.

        Parameters
        ----------
        x : array_like
            Whatever ``numpy.asarray`` takes: numbers, lists, arrays of NumPy, PyTorch, JAX or pandas.
            Real numbers are rounded to ``frac_bits`` fraction bits; integers and truth values stay exact.
        owner : int
            The party whose numbers they are. In a session of three machines the others' ``x`` gives the
            shape alone; they may pass ``shape`` (and ``dtype``) in its place.
        bound : float, optional
            A number that none exceeds in magnitude, which all parties know. Comparisons cost less then; a
            wrong bound gives wrong results.
        shape, dtype : optional
            For a party that is not the owner.

        Returns
        -------
        Secret

        Raises
        ------
        RangeError
            For NaN, infinities and numbers of 2^(62 - frac_bits) or more in magnitude, naming the place.

        Notes
        -----
        One round; 64 bits for each number in all.
        """
        if isinstance(x, Secret):
            raise InputError("the array is secret already")
        if x is None:
            if shape is None:
                raise InputError("give the numbers, or at a party that does not own them a shape")
            dtype = _widest(dtype or np.float64)
            public, shape = None, tuple(operator.index(n) for n in shape)
        else:
            array = _plain(x) if dtype is None else _plain(_plain(x).astype(dtype))
            dtype, shape = array.dtype, array.shape
            public = self._public(array, self._frac(dtype))
        frac = self._frac(dtype)
        (handle,) = self._session.input(owner, [public], [list(shape)], [frac])
        secret = Secret(self, handle, dtype)
        return secret if bound is None else secret.with_bound(bound)

    @overload
    def reveal(self, *secrets: Secret, to: None = None) -> list[np.ndarray]: ...
    @overload
    def reveal(self, *secrets: Secret, to: int) -> list[np.ndarray] | None: ...
    def reveal(self, *secrets: Secret, to: int | None = None) -> list[np.ndarray] | None:
        """Show several arrays in one round. As :meth:`Secret.reveal`.

        Parameters
        ----------
        *secrets : Secret
        to : int, optional
            Show them to this party alone.
        Returns
        -------
        list of numpy.ndarray, or None at a party to which they are not shown
        """
        public = [type(x).__name__ for x in secrets if not isinstance(x, Secret)]
        if public:
            raise InputError(f"reveal takes secret arrays, one after the other; one is a {public[0]}")
        opened = self._session.reveal([x._handle for x in secrets], to)
        if opened is None:
            return None
        return [x._show(values) for x, values in zip(secrets, opened)]

    def load(self, path: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None) -> Secret:
        """Read a secret array that :meth:`Secret.save` wrote, each party its own file.

        Parameters
        ----------
        path : path
            As it was given to :meth:`Secret.save`.
        key : path, optional
            The key file that was given to :meth:`Secret.save`, if one was.

        Returns
        -------
        Secret
        Raises
        ------
        InputError
            If a file is missing, damaged, another party's or of another array, or does not open with the key.
        """
        key = None if key is None else os.fspath(key)
        handle, dtype = self._session.load(os.fspath(path), key)
        return Secret(self, handle, np.dtype(dtype))

    def run(
        self, model: Model, *inputs: Secret | ArrayLike, owner: int = 0, guard: bool = True,
    ) -> Secret | tuple[Secret, ...]:
        """Run a model on secret or public inputs.

        Nothing is shown but, with a guard, the names of layers that have left the range of fixed point.

        Parameters
        ----------
        model : Model
            Its weights are secret-shared by ``owner`` at the first run in this session.
        *inputs : Secret or array_like
            One for each of the model's inputs.
        guard : bool
            Let the parties compare the values of all layers with their range. Without it a result may be wrong without an
            error where nobody has the numbers. Costs 8 rounds with the opening of what it found, and bytes in proportion to the
            number of layers.

        Returns
        -------
        Secret, or a tuple of them if the model has several outputs

        Raises
        ------
        RangeError
            Naming a layer whose values have left their range, or a function's domain.
        """
        return model._run(self, inputs, owner, guard)

    def conversation(self, model: Model, *, owner: int = 0) -> SecretConversation:
        """Begin a text with a language model that keeps values from step to step, which stay secret.

        Parameters
        ----------
        model : Model
            Its weights are secret-shared by ``owner`` at the first run in this session.
        owner : int
            The party that has weights and prompts.

        Returns
        -------
        SecretConversation

        Raises
        ------
        InputError
            If the model keeps nothing from step to step.
        """
        from ._conversation import SecretConversation

        return SecretConversation(self, model, owner)

    # -- looking at the session --------------------------------------------------------------------

    def cost(self) -> Cost:
        """Bytes, rounds and seconds since the last call of this, in all and by step.

        Returns
        -------
        Cost
        """
        bytes_, messages, rounds, seconds, steps = self._session.cost()
        return Cost(bytes_, messages, rounds, seconds, tuple(Step(*step) for step in steps))

    # -- for Secret and functions ------------------------------------------------------------------

    def _frac(self, dtype):
        return self.frac_bits if dtype.kind == "f" else 0

    def _public(self, array, frac):
        """A public array as words, in the format of a secret one."""
        dtype = np.int64 if frac == 0 else np.float32 if array.dtype == np.float32 else np.float64
        return _trefoil.Public(np.asarray(array, dtype=dtype, order="C"), frac)


def local(
    *, parties: int | None = None, engine: str = "auto", frac_bits: int = FRAC_BITS, truncation: str = "default",
    profile: str = "balanced", security: str = "semi-honest", check: bool = True, network: str | None = None,
    threads: int | None = None,
) -> Mpc:
    """Start three parties as threads of this process, or ``parties`` of them and a dealer.

    Parameters
    ----------
    parties : int, optional
        Unless given, three parties hold replicated shares, and no two of them may collude. With a number from 2 to
        16, that many hold masked shares: all but one may collude. One more thread is their dealer, who colludes with
        nobody. Bytes grow with the number of pairs of parties.
    engine : str
        Where tensors are computed: ``"cpu"``, ``"cuda:0"`` or another device, or ``"auto"``: the first CUDA device
        if there is one, else the CPU. Results are the same.
    frac_bits : int
        Fraction bits of real numbers, 8 to 26; the range is +-2^(62 - frac_bits).
    truncation : str
        The rounding of products: ``"default"`` (the floor, or one unit above), ``"early"`` (below 1.5 units, mean
        0, fewer bytes), ``"exact"`` (the floor) or ``"dither"`` (a fair coin; not with ``parties``).
    profile : str
        The cost to minimise: ``"bytes"``, or for links with a long round trip ``"slow-links"``, which takes fewer rounds
        of more bytes and is not for ``parties``. ``"balanced"`` saves rounds where they cost few bytes.
    security : str
        ``"semi-honest"``: parties follow the protocol. ``"checked"``: before anything is revealed each party proves to
        both others that its messages were right; a lie ends the session, and the error names two parties of which one
        lied. Truncation is then ``"early"``'s or finer. Not with ``parties``.
    check : bool
        Compute every call on the numbers themselves too, and raise a :class:`RangeError` where a product, a sum or a
        promised bound does not hold, or a number lies outside of a function's domain. On shares no party notices: the
        result is wrong. Steps of a training that its guard watches are left out. ``False`` saves the time.
    network : str, optional
        ``"lan"`` (1 Gbit/s, 1 ms round trip) or ``"wan"`` (100 Mbit/s, 40 ms): messages take as long as there.
    threads : int, optional
        Threads of each party; an equal part of the machine's unless given.

    Returns
    -------
    Mpc
        For ``with trefoil.local() as mpc: ...``

    Raises
    ------
    ConfigError
        For a number, a name or an engine that does not exist, and for what ``parties`` does not go with.

    Notes
    -----
    For development and measurements: a process that has all shares keeps nothing secret. The same script
    runs on three machines with :func:`trefoil.party`, where nobody has the numbers, so nobody checks them: first run it
    here on test data.
    """
    _check_frac(frac_bits)
    if threads is not None and operator.index(threads) < 1:
        raise ConfigError(f"threads is {threads}; a party has 1 or more")
    counts = isinstance(parties, (int, np.integer)) and not isinstance(parties, bool) and 2 <= parties <= 16
    if parties is not None and not counts:
        raise ConfigError(f"parties is {parties!r}: 2 to 16 compute with a dealer; leave it out for three without one")
    session = _trefoil.Session.local(engine, truncation, profile, security, bool(check), network, threads, parties)
    return Mpc(session, frac_bits)


def party(
    config: str | os.PathLike[str] | None = None, *, engine: str | None = None, frac_bits: int = FRAC_BITS,
    truncation: str = "default", profile: str = "balanced", security: str = "semi-honest",
) -> Mpc:
    """Take part in a session of three machines that run the same script.

    Parameters
    ----------
    config : path, optional
        This party's ``party.toml``, as ``python -m trefoil init`` makes it; the environment variable
        ``TREFOIL_PARTY`` names it otherwise.
    engine : str, optional
        As for :func:`trefoil.local`; that of the file unless given. The others may have another.
    frac_bits, truncation, profile, security
        As for :func:`trefoil.local`; the same at all parties.

    Returns
    -------
    Mpc

    Raises
    ------
    ConfigError
        If the file is not usable.
    Unreachable
        Naming the party that did not connect.
    """
    _check_frac(frac_bits)
    config = config or os.environ.get("TREFOIL_PARTY")
    if not config:
        raise ConfigError("name this party's file: trefoil.party(\"party.toml\") or TREFOIL_PARTY")
    return Mpc(_trefoil.Session.party(os.fspath(config), engine, truncation, profile, security), frac_bits)


def _check_frac(frac_bits):
    if not isinstance(frac_bits, int) or not 8 <= frac_bits <= 26:
        raise ConfigError(f"frac_bits is {frac_bits}: functions are exact to their bounds for 8 to 26")

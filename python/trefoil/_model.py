"""Models: a public plan, and weights that only their owner has."""

from __future__ import annotations

import os
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _trefoil
from . import _calls as _  # noqa: F401 - registers the translations of calls
from ._aten import translated
from ._errors import InputError, RangeError
from ._record import record
from ._secret import Secret, _INT, _floats, _plain, _whole
from ._session import FRAC_BITS, local

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike


def within_table(name, x, rows):
    """Refuses public positions outside of a table, which would read zeros."""
    if rows is None or isinstance(x, Secret):
        return
    places = _plain(x).reshape(-1)
    outside = np.flatnonzero((places < 0) | (places >= rows))
    if outside.size:
        raise RangeError(f"`{name}`: element {outside[0]} is {places[outside[0]]}; the table has rows 0 to {rows - 1}")


def outside_of(names, found):
    """The values that have left their range by a guard's findings, in words; None if there are none."""
    outside = [name for name, word in zip(names, found) if word]
    others = f" and {len(outside) - 1} others" if outside[1:] else ""
    return f"`{outside[0]}`{others}" if outside else None


def _secret(mpc, handle):
    return Secret(mpc, handle, _INT if handle.frac == 0 else np.dtype(np.float64))


class Model:
    """A network that runs on secret inputs with secret weights.

    Made by :meth:`from_onnx` and :meth:`from_torch`. The network's layers and shapes are public to
    those who run it; weights and inputs are not.
    """

    def __init__(
        self, model: _trefoil.Model, trained: list[str] | None = None, unlike: Sequence[str] = (),
        file: bytes | str | os.PathLike[str] | None = None, weights: dict[str, np.ndarray] | None = None,
    ) -> None:
        self._model = model
        #: The ONNX file that the model came from, or its path, and the weights changed since.
        self._file, self._weights = file, weights or {}
        #: Names of the weights that training changes; None stands for all of them.
        self._trained = trained
        #: Layers that a training would not train as PyTorch does, each with a remedy.
        self._unlike = unlike
        #: The calls of a network of PyTorch.
        self._recorded = None
        self._shared = weakref.WeakKeyDictionary()
        self._own = None

    @classmethod
    def from_onnx(
        cls, source: bytes | str | os.PathLike[str], *, frac_bits: int = FRAC_BITS, dims: dict[str, int] | None = None,
        answers: Literal["token", "sample", "logits"] = "token", temperature: float = 1.0,
    ) -> Model:
        """Import an ONNX model of opset 11 to 21.

        Parameters
        ----------
        source : path or bytes
        frac_bits : int
            Fraction bits of inputs, layers and results, 4 to 28.
        dims : dict, optional
            Sizes for dimensions that the file leaves open, by name; the batch may stay open.
        answers : "token", "sample" or "logits"
            What a step of a language model returns that keeps keys and values of earlier ones: the token with the highest
            score, one drawn at random by the scores, or the scores of all. With enough scores a client learns the model's
            last layer.
        temperature : float
            With ``answers="sample"``: scores are divided by it before a token is drawn, so small numbers prefer the
            highest.

        Raises
        ------
        InputError
            Naming the node or tensor that cannot be imported.
        """
        source = source if isinstance(source, (bytes, bytearray)) else os.fspath(source)
        source = bytes(source) if isinstance(source, bytearray) else source
        if answers not in ("token", "sample", "logits"):
            raise InputError(f'answers={answers!r}; it is "token", "sample" or "logits"')
        if not 1e-3 <= temperature <= 1e3:
            raise InputError(f"temperature={temperature!r}; it is a number from 0.001 to 1000")
        imported = _trefoil.Model.from_onnx(source, frac_bits, list((dims or {}).items()), answers, temperature)
        return cls(imported, file=source)

    @classmethod
    def from_torch(
        cls, module: Any, example: Any, *, frac_bits: int = FRAC_BITS, outputs: Sequence[str] | None = None,
    ) -> Model:
        """Import a network of PyTorch, as ``torch.export`` writes it down, in evaluation mode.

        Parameters
        ----------
        module : torch.nn.Module
            From torchvision, transformers, or one's own; without steps that depend on its data.
        example : tensor, tuple of tensors, or dict of them
            Arguments of its forward. Only their shapes and dtypes matter. The model takes any batch if all of
            them begin with the batch and the module serves any.
        frac_bits : int
            Fraction bits of inputs, layers and results, 4 to 28.
        outputs : sequence of str, optional
            Names of the results to keep, where the module returns several, for instance ``["logits"]``.

        Raises
        ------
        InputError
            If PyTorch is missing or older than 2.6, or naming the call of the network that lacks a private form.

        Notes
        -----
        Weights are those at the time of the call. Neither onnx nor onnxscript is needed.
        """
        return cls._of(record(module, example, outputs), frac_bits)

    @classmethod
    def _of(cls, recorded, frac_bits=FRAC_BITS):
        written, trained = translated(recorded)
        made = cls(_trefoil.Model.from_onnx(written, frac_bits, [], "logits", 1.0), trained, recorded.unlike, written)
        made._recorded = recorded
        return made

    def to_onnx(self) -> bytes:
        """The model as an ONNX file with the current weights: the imported file, or the one made of a module.

        Raises
        ------
        InputError
            For a model without a file: one that a cluster's run has made. Also if the file would have 2 GiB or more.

        Notes
        -----
        Weights that lie beside the imported file (``.onnx.data``) become part of what is returned.
        """
        if self._file is None:
            raise InputError("this model came without a file: write the weights of a run by `trefoil run get --into FILE`")
        file, folder = self._file, None
        if not isinstance(file, bytes):
            folder = os.path.dirname(os.fspath(file)) or "."
            with open(file, "rb") as opened:
                file = opened.read()
        weights = [(name, np.ascontiguousarray(values, np.float64)) for name, values in self._weights.items()]
        return _trefoil.onnx_with_weights(file, folder, weights)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`to_onnx` into a file, which :meth:`from_onnx` and other programs read.

        Parameters
        ----------
        path : str or path
        """
        written = self.to_onnx()
        with open(path, "wb") as file:
            file.write(written)

    @property
    def frac_bits(self) -> int:
        """Fraction bits of inputs, layers and results."""
        return self._model.frac

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return self._model.parameters

    @property
    def inputs(self) -> dict[str, tuple[int | None, ...]]:
        """Names and shapes of the inputs; None stands for the batch if the model takes any."""
        return self._shapes(self._model.inputs)

    @property
    def outputs(self) -> dict[str, tuple[int | None, ...]]:
        """Names and shapes of the outputs."""
        return self._shapes(self._model.outputs)

    def _shapes(self, of):
        if self._model.batch is not None:
            return {name: tuple(shape) for name, shape, _ in of(self._model.batch)}
        one, two = of(1), of(2)
        shape = lambda a, b: tuple(None if m != n else m for m, n in zip(a, b))
        return {name: shape(a, b) for (name, a, _), (_, b, _) in zip(one, two)}

    def __repr__(self) -> str:
        side = lambda all_: ", ".join(f"{name} {list(shape)}" for name, shape in all_.items())
        return f"Model({side(self.inputs)} -> {side(self.outputs)}, {self.parameters} weights)".replace("None", "n")

    def infer(self, *inputs: ArrayLike, **named: ArrayLike) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run the model by three parties in this process, weights and inputs secret.

        Parameters
        ----------
        *inputs : array_like
            One for each of the model's inputs, in the order of :attr:`inputs`.
        **named : array_like
            The same by name, as in ``model.infer(age=ages, income=incomes)``, of a model whose columns are inputs.

        Returns
        -------
        numpy.ndarray, or a tuple of them if the model has several outputs

        Raises
        ------
        InputError
            Naming an input that is missing, or that the model does not have.
        """
        inputs, mpc = self._in_order(inputs, named), self._session()
        outputs = self._run(mpc, inputs, 0)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        shown = tuple(mpc.reveal(*outputs))
        return shown[0] if len(shown) == 1 else shown

    def generate(
        self, prompt: Sequence[int], new: int = 20, *, stop: Sequence[int] = (), choose: Callable[[np.ndarray], int] | None = None,
    ) -> list[int]:
        """Continue a prompt of tokens by three parties in this process: weights, tokens and what the model keeps are secret.

        Parameters
        ----------
        prompt, new, stop, choose
            As of :meth:`SecretConversation.generate`, for a text of its own.

        Returns
        -------
        list of int
            The tokens that were added.

        Raises
        ------
        InputError
            If the model keeps nothing from step to step.

        Notes
        -----
        Where ``stop`` is empty and the model chooses tokens itself, they are shown at the end alone.
        """
        with self._session().conversation(self) as text:
            return text.generate(prompt, new, stop=stop, choose=choose)

    def evaluate(self, *inputs: ArrayLike, **named: ArrayLike) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run the model in the clear, in 64-bit floats, which :meth:`infer` approximates.

        Parameters
        ----------
        *inputs, **named : array_like
            As of :meth:`infer`.

        Returns
        -------
        numpy.ndarray, or a tuple of them if the model has several outputs
        """
        inputs = [_floats(x) for x in self._checked(self._in_order(inputs, named))]
        outputs = self._model.evaluate(inputs)
        shown = tuple(values.reshape(shape) for values, shape in outputs)
        return shown[0] if len(shown) == 1 else shown

    def check(self, *inputs: ArrayLike, **named: ArrayLike) -> float:
        """Run the model in fixed point in the clear, and find where a number leaves its range.

        Parameters
        ----------
        *inputs, **named : array_like
            As of :meth:`infer`.

        Returns
        -------
        float
            The largest difference between the private result and :meth:`evaluate`.

        Raises
        ------
        RangeError
            Naming the layer's operation, the place and the limit; also for a number outside of a function's domain, such as
            the logarithm's of 0.
        """
        inputs = self._in_order(inputs, named)
        want = self.evaluate(*inputs)
        with local(frac_bits=max(8, min(26, self.frac_bits))) as mpc:
            outputs = self._run(mpc, inputs, 0)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            got = mpc.reveal(*outputs)
        want = want if isinstance(want, tuple) else (want,)
        return max(float(np.max(np.abs(g - w), initial=0.0)) for g, w in zip(got, want))

    def _session(self):
        """A local session of the model's own."""
        if self._own is None or self._own._session.closed:
            self._own = local(frac_bits=max(8, min(26, self.frac_bits)))
        return self._own

    def _in_order(self, inputs, named):
        """Inputs that are given by name, in the model's order."""
        if not named:
            return inputs
        names = list(self.inputs)
        if inputs:
            raise InputError("give the inputs in their order or by name, and not some of each")
        lacking = [name for name in names if name not in named]
        unknown = [name for name in named if name not in names]
        if lacking or unknown:
            fault = f"`{lacking[0]}` is missing" if lacking else f"there is no input `{unknown[0]}`"
            raise InputError(f"{fault}; the model takes {', '.join(names)}")
        return tuple(named[name] for name in names)

    def _checked(self, inputs):
        expected = self._model.inputs(self._model.batch or 1)
        if len(inputs) != len(expected):
            names = ", ".join(name for name, _, _ in expected)
            raise InputError(f"{len(inputs)} inputs are given; the model takes {len(expected)}: {names}")
        for x, (name, _, _), rows in zip(inputs, expected, self._model.table_rows):
            within_table(name, x, rows)
        return inputs

    def _run(self, mpc, inputs, owner, guard=True):
        if self._model.positions()[0]:
            raise InputError("the model keeps values from step to step: mpc.conversation(model) and model.generate run it")
        guarded = self._guarded if guard else []
        made = self._guarded_run(mpc, self._weights_of(mpc, owner), self._handles(mpc, inputs, owner), guarded)
        outputs = tuple(_secret(mpc, handle) for handle in made)
        return outputs[0] if len(outputs) == 1 else outputs

    @cached_property
    def _guarded(self):
        """The names of the values that a guard checks."""
        return self._model.guarded()

    def _first_states(self, mpc, owner):
        """What stays from step to step, before the first one."""
        states = []
        for _, dims, frac, _ in self._model.states():
            states.append((mpc._public(np.zeros(dims, np.int64 if frac == 0 else np.float64), frac), dims, frac))
        publics, dims, fracs = map(list, zip(*states))
        return [_secret(mpc, handle) for handle in mpc._session.input(owner, publics, dims, fracs)]

    def _step(self, mpc, inputs, states, owner):
        """The results of a step, and what stays behind it."""
        handles = self._handles(mpc, inputs, owner)
        kept = [state._handle for state in states]
        made = self._guarded_run(mpc, self._weights_of(mpc, owner), handles, self._guarded, kept)
        made = [_secret(mpc, handle) for handle in made]
        count = len(made) - len(states)
        return tuple(made[:count]), made[count:]

    def _guarded_run(self, mpc, weights, inputs, guarded, states=()):
        """The results, and behind them what stays from step to step. A guard checks the values with these names."""
        if not guarded:
            return mpc._session.run(self._model, weights, inputs, None, list(states))
        mpc._guarded += 1
        made = mpc._session.run(self._model, weights, inputs, mpc._guarded, list(states))
        (found,) = mpc._session.reveal([made.pop()], None)
        outside = outside_of(guarded, found)
        if outside:
            raise RangeError(
                f"values of {outside} have left the range of fixed point, or a function's domain; normalise the inputs, or a "
                f"secret position lies outside of its table"
            )
        return made

    def _weights_of(self, mpc, owner):
        """The weights in a session, where they are shared once."""
        if mpc not in self._shared:
            self._shared[mpc] = mpc._session.weights(self._model, owner)
        return self._shared[mpc]

    def _handles(self, mpc, inputs, owner):
        """The inputs in a session, in their formats."""
        expected = self._model.inputs(self._model.batch or 1)
        secrets = []
        for x, (name, _, integer), frac in zip(self._checked(inputs), expected, self._model.input_fracs):
            if not isinstance(x, Secret):
                array = _plain(x)
                array = _whole(name, array) if integer else array
                public = mpc._public(array, 0 if integer else frac)
                (handle,) = mpc._session.input(owner, [public], [list(array.shape)], [0 if integer else frac])
            elif x.frac_bits != frac:
                (handle,) = mpc._session.call("rescale", [x._handle], {"frac": frac})
            else:
                handle = x._handle
            secrets.append(handle)
        return secrets

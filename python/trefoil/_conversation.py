"""Conversations with models that keep values from step to step."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import InputError, Refused
from ._secret import Secret

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ._cluster import Cluster
    from ._model import Model
    from ._session import Mpc

# The words of a server that does not have a conversation, or not all of it.
_GONE = "send its text again"


class _Text:
    """A text that grows by steps of a model: what conversations at servers and in a session have in common."""

    def __init__(self, step: int) -> None:
        #: Positions of a step.
        self._step = step
        #: Steps so far.
        self._steps = 0
        #: The token that was chosen last, which the model has not seen yet.
        self._last: list[int] = []

    @property
    def at(self) -> int:
        """The positions so far."""
        return self._steps * self._step

    def extend(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def rewind(self, to: int) -> None:
        """Forget the positions from number ``to`` on. Nothing is sent.

        Parameters
        ----------
        to : int
            A multiple of the positions of a step.
        """
        if not 0 <= to <= self.at or to % self._step:
            raise InputError(f"position {to}: a multiple of {self._step} from 0 to {self.at} is possible")
        self._cut(to // self._step)
        self._steps, self._last = to // self._step, []

    def generate(
        self, prompt: Sequence[int] | np.ndarray[Any, Any], new: int = 20, *, stop: Sequence[int] = (),
        choose: Callable[[np.ndarray[Any, Any]], int] | None = None,
    ) -> list[int]:
        """Continue a prompt of tokens, one after the other.

        The model takes the number of one token at a step. It returns the next one, or its scores for all: these are revealed,
        and the highest is chosen. The token that is added last becomes part of the text with the next call.

        Parameters
        ----------
        prompt : sequence of int
            At least one token.
        new : int
            The most tokens to add.
        stop : sequence of int
            Tokens behind which nothing is added.
        choose : callable, optional
            From a vector of scores to a token; the highest, unless given.

        Returns
        -------
        list of int
            The tokens that were added.
        """
        tokens = [*self._last, *(int(token) for token in prompt)]
        if not tokens:
            raise InputError("the prompt has no tokens; give one at least")
        if self._step != 1:
            raise InputError(f"the model takes {self._step} positions at a step; generate needs one that takes 1")
        result = None
        for token in tokens:
            result = self.extend(np.array([[token]]))
        added: list[Any] = []
        while len(added) < new:
            added.append(self._next(result, choose, bool(stop)))
            if (stop and added[-1] in stop) or len(added) == new:
                break
            result = self.extend(np.reshape(added[-1], (1, 1)))
        shown = self._shown(added)
        self._last = shown[-1:]
        return shown

    def _cut(self, steps: int) -> None:
        """Forgets the steps from this number on."""
        raise NotImplementedError

    def _next(self, result: Any, choose: Callable[[np.ndarray[Any, Any]], int] | None, shown: bool) -> Any:
        """The next token, from a step's result."""
        array = np.asarray(result).reshape(-1)
        if array.size > 1:
            return int(np.argmax(array) if choose is None else choose(array))
        if choose is not None:
            raise InputError('the model returns tokens: make it with answers="logits" to choose them')
        return int(array[-1])

    def _shown(self, tokens: list[Any]) -> list[int]:
        return tokens


class Conversation(_Text):
    """A text that grows at the servers. They keep, as shares, the values that a model needs of it.

    Each :meth:`extend` sends what comes next, and gets the model's results for it. The servers keep a conversation in memory
    alone. One that has ended there, because a server was started again or memory was short, is sent again by itself. The servers
    see neither prompts nor scores nor tokens, but their number.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        step = cluster._with(lambda c: c.positions(name))
        if step == 0:
            raise InputError(f"model {name!r} keeps nothing from step to step; Cluster.infer runs it")
        super().__init__(step)
        self._cluster, self._name = cluster, name
        self._id = secrets.token_hex(16)
        # What was said, step by step: it is sent again where the servers have lost it.
        self._said: list[tuple[np.ndarray[Any, Any], ...]] = []

    def extend(self, *inputs: ArrayLike) -> Any:
        """Run the model on the next positions.

        Parameters
        ----------
        *inputs : array_like
            One for each of the model's inputs, with as many positions as its file has.

        Returns
        -------
        numpy.ndarray, or a tuple of them if the model has several outputs

        Raises
        ------
        Unreachable, Refused, RangeError
            The conversation is then what it was.
        """
        given = tuple(np.array(x) for x in inputs)
        try:
            results = self._send(given, len(self._said))
        except Refused as error:
            if _GONE not in str(error):
                raise
            for number, said in enumerate(self._said):
                self._send(said, number)
            results = self._send(given, len(self._said))
        self._said.append(given)
        self._steps, self._last = len(self._said), []
        return results

    def close(self) -> None:
        """Make the servers forget the conversation."""
        self._cluster._with(lambda c: c.close(self._id))
        self._said.clear()
        self._steps, self._last = 0, []

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.close()

    def _cut(self, steps: int) -> None:
        del self._said[steps:]

    def _send(self, given: tuple[np.ndarray[Any, Any], ...], number: int) -> Any:
        place = (self._id, number * self._step)
        return self._cluster._step(self._name, given, place)


class SecretConversation(_Text):
    """A text that grows in a session of parties, which keep the values that a model needs of it as secret arrays.

    Each :meth:`extend` runs the model on what comes next. Its results are secret, and so is what it keeps. Made by
    :meth:`Mpc.conversation`.
    """

    def __init__(self, mpc: Mpc, model: Model, owner: int) -> None:
        step, most = model._model.positions()
        if step == 0:
            raise InputError("the model keeps nothing from step to step; mpc.run runs it")
        super().__init__(step)
        self._mpc, self._model, self._owner, self._most = mpc, model, owner, most
        self._states: list[Secret] = self._empty()

    def extend(self, *inputs: Secret | ArrayLike) -> Any:
        """Run the model on the next positions.

        Parameters
        ----------
        *inputs : Secret or array_like
            One for each of the model's inputs, with as many positions as its file has.

        Returns
        -------
        Secret, or a tuple of them if the model has several outputs

        Raises
        ------
        InputError
            If the text would be longer than the model was checked for.
        RangeError
            Naming a layer whose values have left their range. The text is then what it was.
        """
        if self._most is not None and self.at + self._step > self._most:
            raise InputError(f"the text has {self.at} positions; the model was checked for {self._most} at most")
        results, self._states = self._model._step(self._mpc, inputs, self._states, self._owner)
        self._steps, self._last = self._steps + 1, []
        return results[0] if len(results) == 1 else results

    def close(self) -> None:
        """Forget the text."""
        self._states, self._steps, self._last = self._empty(), 0, []

    def __enter__(self) -> SecretConversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self._states = []

    def _empty(self) -> list[Secret]:
        return self._model._first_states(self._mpc, self._owner)

    def _cut(self, steps: int) -> None:
        kept = slice(0, steps * self._step)
        axes = (axis for *_, axis in self._model._model.states())
        self._states = [state[(slice(None),) * axis + (kept,)] for state, axis in zip(self._states, axes)]

    def _next(self, result: Any, choose: Any, shown: bool) -> Any:
        if isinstance(result, tuple):
            raise InputError(f"the model has {len(result)} results, and which is the next token is not known; extend returns them")
        if result.dtype.kind == "i" and choose is None and not shown:
            # A token that goes on without being seen.
            return result.reshape(-1)[-1]
        return super()._next(result.reveal(), choose, shown)

    def _shown(self, tokens: list[Any]) -> list[int]:
        hidden = [token for token in tokens if isinstance(token, Secret)]
        if not hidden:
            return tokens
        return [int(token) for token in self._mpc.reveal(*hidden)]

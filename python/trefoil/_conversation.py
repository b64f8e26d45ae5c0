"""Conversations with models that keep values from step to step."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import InputError, Refused

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ._cluster import Cluster

# The words of a server that does not have a conversation, or not all of it.
_GONE = "send its text again"


class Conversation:
    """A text that grows at the servers. They keep, as shares, the values that a model needs of it.

    Each :meth:`extend` sends what comes next, and gets the model's results for it. The servers keep a conversation in memory
    alone. One that has ended there, because a server was started again or memory was short, is sent again by itself.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        step = cluster._with(lambda c: c.positions(name))
        if step == 0:
            raise InputError(f"model {name!r} keeps nothing from step to step; Cluster.infer runs it")
        self._cluster, self._name, self._step = cluster, name, step
        self._id = secrets.token_hex(16)
        # What was said, step by step: it is sent again where the servers have lost it.
        self._said: list[tuple[np.ndarray[Any, Any], ...]] = []
        # The token that was chosen last, which the model has not seen yet.
        self._last: list[int] = []

    @property
    def at(self) -> int:
        """The positions so far."""
        return len(self._said) * self._step

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
        self._last = []
        return results

    def rewind(self, to: int) -> None:
        """Forget the positions from number ``to`` on. Nothing is sent.

        Parameters
        ----------
        to : int
            A multiple of the positions of a step.
        """
        if not 0 <= to <= self.at or to % self._step:
            raise InputError(f"position {to}: a multiple of {self._step} from 0 to {self.at} is possible")
        del self._said[to // self._step :]
        self._last = []

    def generate(
        self, prompt: Sequence[int] | np.ndarray[Any, Any], new: int = 20, *, stop: Sequence[int] = (),
        choose: Callable[[np.ndarray[Any, Any]], int] | None = None,
    ) -> list[int]:
        """Continue a prompt of tokens, one after the other.

        The model takes the number of one token at a step and returns its scores for the next one. They are revealed to this
        client, which chooses; the servers see neither prompt nor scores nor choice, but their number. The token that is
        added last becomes part of the conversation with the next call.

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
            raise InputError(f"model {self._name!r} takes {self._step} positions at a step; generate needs one that takes 1")
        scores = None
        for token in tokens:
            scores = self.extend(np.array([[token]]))
        added: list[int] = []
        while len(added) < new:
            vector = np.asarray(scores).reshape(-1)
            added.append(int(np.argmax(vector) if choose is None else choose(vector)))
            if added[-1] in stop or len(added) == new:
                break
            scores = self.extend(np.array([[added[-1]]]))
        self._last = added[-1:]
        return added

    def close(self) -> None:
        """Make the servers forget the conversation."""
        self._cluster._with(lambda c: c.close(self._id))
        self._said.clear()
        self._last = []

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, given: tuple[np.ndarray[Any, Any], ...], number: int) -> Any:
        place = (self._id, number * self._step)
        return self._cluster._step(self._name, given, place)

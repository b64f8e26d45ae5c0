"""Texts that a client and a language model write in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ._errors import InputError
from ._session import Cost

if TYPE_CHECKING:
    from ._cluster import Cluster


class Chat:
    """A text under way with a language model that chooses its next token at the servers.

    Words become tokens on this machine, and tokens words: servers see neither. They keep what the model needs of the text
    as shares in memory. If they lose it, because one was started again, this class sends the text again.

    Attributes
    ----------
    cost : Cost or None
        That of the last answer.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._chat = cluster._with(lambda c: c.chat(name))
        self.cost: Cost | None = None

    @property
    def tokens(self) -> list[int]:
        """All tokens so far, the client's and the model's."""
        return list(self._chat.said)

    def say(self, words: str, *, new: int = 256, ahead: int = 1) -> str:
        """Say something, and return the model's answer.

        Parameters
        ----------
        words : str
        new : int
            The most tokens of the answer. It ends earlier behind a token that ends answers.
        ahead : int
            Tokens that the servers choose before they answer. More save time where servers are far away; those behind
            the end of an answer are for nothing.

        Raises
        ------
        InputError
            If the model has no tokenizer.
        Unreachable, Refused, RangeError
        """
        return "".join(self.stream(words, new=new, ahead=ahead))

    def stream(self, words: str, *, new: int = 256, ahead: int = 1) -> Iterator[str]:
        """As :meth:`say`, piece by piece: each piece comes when its token does.

        Parameters
        ----------
        words : str
        new, ahead : int

        Yields
        ------
        str
        """
        shown, added = "", []
        for token in self._added(self._chat.encode(words), new, ahead, self._chat.stop):
            added.append(token)
            # What is not a whole character yet comes later.
            text = self._chat.decode(added).rstrip("\ufffd")
            if text.startswith(shown) and len(text) > len(shown):
                yield text[len(shown):]
                shown = text

    def generate(self, tokens: Sequence[int], new: int = 20, *, stop: Sequence[int] = (), ahead: int = 1) -> list[int]:
        """Say tokens, and return those that the model adds.

        Parameters
        ----------
        tokens : sequence of int
            May be empty if something was said before.
        new : int
            The most tokens to add.
        stop : sequence of int
            Tokens behind which nothing is added. They are not among the result.
        ahead : int
            As in :meth:`say`.
        """
        return list(self._added([int(token) for token in tokens], new, ahead, list(stop)))

    def rewind(self, to: int) -> None:
        """Forget the tokens from number ``to`` on. Nothing is sent.

        Parameters
        ----------
        to : int
            From 0 to the number of tokens so far.
        """
        if not 0 <= to <= len(self._chat.said):
            raise InputError(f"token {to}: there are {len(self._chat.said)}")
        self._chat.cut(to)

    def close(self) -> None:
        """Make the servers forget the text."""
        self._cluster._with(lambda c: c.end(self._chat))

    def __enter__(self) -> Chat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.close()

    def _added(self, given: list[int], new: int, ahead: int, stop: list[int]) -> Iterator[int]:
        """The tokens that the model adds, in their order, without one that ends the answer."""
        if min(new, ahead) < 1:
            raise InputError("new= and ahead= are 1 or more")
        bytes_, rounds, seconds, added = 0, 0, 0.0, 0
        while added < new:
            count, words = min(ahead, new - added), given
            found, paid = self._cluster._with(lambda c: c.say(self._chat, words, count))
            given, added = [], added + len(found)
            bytes_, rounds, seconds = bytes_ + paid[0], rounds + paid[1], seconds + paid[2]
            self.cost = Cost(bytes_, 0, rounds, seconds, ())
            for at, token in enumerate(found):
                if token in stop:
                    # The model went on behind the end of its answer: that was not said.
                    self._chat.cut(len(self._chat.said) - (len(found) - at - 1))
                    return
                yield token

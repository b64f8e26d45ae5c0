"""A dealer's tapes, by which two servers compute instead of three.

The dealer makes the two tapes of a model's plan and signs them, and never sees an input or an answer. Each server takes in its
own; each answer uses one place of both. See ``docs/two-servers.md``.
"""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import _trefoil
from ._errors import InputError

if TYPE_CHECKING:
    from ._model import Model

__all__ = ["TapeInfo", "add", "make", "read"]

#: The most answers of a tape, and the most examples of an answer.
_MOST_ANSWERS, _MOST_EXAMPLES = 2**32, 65_536


@dataclass(frozen=True)
class TapeInfo:
    """A tape: the ``party`` whose it is, the places ``left`` of all ``answers``, and the most ``examples`` of each.

    Parameters
    ----------
    party : int
    left, answers, examples : int
    """

    party: int
    left: int
    answers: int
    examples: int


def make(
    model: Model, folder: str | os.PathLike[str], dealer: str | os.PathLike[str], answers: int, *, batch: int = 1,
    truncation: str = "default", profile: str = "balanced", generator: str = "aes-128-ctr",
) -> list[Path]:
    """Make the tapes of both servers for a model, as ``trefoil tape make`` does.

    Parameters
    ----------
    model : Model
        Only its plan is used. It must be put at the servers as it is here: another plan needs other tapes.
    folder : path
        Gets ``party-0.tape`` and ``party-1.tape``, and a signed label beside each.
    dealer : path
        The dealer's ``dealer.toml``, as ``trefoil cluster init --protocol rss-dealt`` makes it.
    answers : int
        The number of places of the tapes. Each is for one answer, or for those of jobs that wait and fit together.
    batch : int
        The most examples of each place.
    truncation, profile
        As in the servers' ``party.toml``.
    generator : str
        The streams of the servers: ``"aes-128-ctr"``, or ``"chacha12"`` where one computes on a GPU.

    Returns
    -------
    list of Path
        The tapes of party 0 and party 1. Each is as secret as a private key: move it to its server, and keep no copy.

    Raises
    ------
    InputError
        For numbers that no tape can have.
    Error
        If a file exists already or cannot be written, or the dealer's files are not usable.

    Notes
    -----
    The time of three parties' inference for each answer, on this machine.
    """
    answers, batch = operator.index(answers), operator.index(batch)
    for name, number, most in (("answers", answers, _MOST_ANSWERS), ("batch", batch, _MOST_EXAMPLES)):
        if not 1 <= number <= most:
            raise InputError(f"{name} is {number}; 1 to {most} are possible")
    made = _trefoil.make_tapes(
        model._model, os.fspath(folder), os.fspath(dealer), answers, batch, truncation, profile, generator,
    )
    return [Path(path) for path in made]


def add(tape: str | os.PathLike[str], party: str | os.PathLike[str]) -> tuple[Path, str]:
    """Move a tape to its server's folder, where it is played from, as ``trefoil tape add`` does. The server may run.

    Parameters
    ----------
    tape : path
        With its label beside it.
    party : path
        The server's ``party.toml``.

    Returns
    -------
    tuple
        Where the tape is now, and the name of the dealer who signed it.

    Raises
    ------
    Error
        If it is not a whole tape of this server, no dealer of the cluster signed it, or it was added before.
    """
    path, dealer = _trefoil.add_tape(os.fspath(tape), os.fspath(party))
    return Path(path), dealer


def read(tape: str | os.PathLike[str]) -> TapeInfo:
    """What a tape is for, and how much of it is left.

    Parameters
    ----------
    tape : path
        A tape that no server has open. ``trefoil status`` shows those of a running server.

    Returns
    -------
    TapeInfo

    Raises
    ------
    Error
        If it is not a whole tape, is open elsewhere, or its key is kept in the store of a server.
    """
    return TapeInfo(*_trefoil.read_tape(os.fspath(tape)))

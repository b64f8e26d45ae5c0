"""Computation on secret-shared data with NumPy's interface.

Three parties hold shares of every secret array; none of them learns a number. See ``trefoil.local`` to
begin, ``trefoil.Model`` for networks and ``trefoil.Trainer`` to train them. See ``trefoil.connect`` for a cluster's
servers and ``trefoil.party`` for the same script on three machines.
"""

from . import _order, functions, learn, optim, stats, tapes
from ._analysis import Rows
from ._autograd import Function, no_grad
from ._cluster import Cluster, ModelInfo, connect
from ._chat import Chat
from ._conversation import Conversation, SecretConversation
from ._errors import Cheated, ConfigError, Error, InputError, PrecisionWarning, RangeError, Refused, RevealError, Unreachable
from ._model import Model
from ._run import DataInfo, Join, Progress, Run, RunInfo
from ._secret import Secret
from ._session import Cost, Mpc, Step, local, party
from ._train import Trainer
from ._trefoil import __version__
from .optim import DP

__all__ = [
    "DP",
    "Cheated",
    "Cluster",
    "ConfigError",
    "Chat",
    "Conversation",
    "Cost",
    "DataInfo",
    "Error",
    "Function",
    "InputError",
    "Join",
    "Model",
    "ModelInfo",
    "Mpc",
    "PrecisionWarning",
    "Progress",
    "RangeError",
    "Refused",
    "RevealError",
    "Rows",
    "Run",
    "RunInfo",
    "Secret",
    "SecretConversation",
    "Step",
    "Trainer",
    "Unreachable",
    "connect",
    "functions",
    "learn",
    "local",
    "no_grad",
    "optim",
    "party",
    "stats",
    "tapes",
]

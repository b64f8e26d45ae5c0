"""NumPy's functions with types that know secret arrays: ``from trefoil import np``.

The functions are NumPy's own. For type checkers and editors ``np.exp(x)`` is secret here if ``x`` is, so that they offer
``reveal()``. Under the name ``numpy`` it is of an unknown type, because NumPy's annotations cannot say more.
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return dir(_numpy)

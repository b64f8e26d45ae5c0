"""Tables with named columns: frames of pandas and polars, and mappings of columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from ._errors import InputError


def table_of(x: Any) -> bytes | None:
    """A frame or a mapping of columns as the text of a table whose first row names them; None for anything else."""
    if isinstance(x, Mapping):
        return _of_columns({str(name): list(column) for name, column in x.items()})
    if hasattr(x, "to_csv") and hasattr(x, "columns"):
        return x.to_csv(index=False).encode()
    if hasattr(x, "write_csv"):
        return x.write_csv().encode()
    return None


def _of_columns(columns):
    counts = {len(column) for column in columns.values()}
    if len(counts) != 1:
        lengths = ", ".join(f"{name}: {len(column)}" for name, column in columns.items())
        raise InputError(f"the columns of a table have as many rows, and these have {lengths or 'none'}")
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(columns)
    rows.writerows(zip(*columns.values()))
    return text.getvalue().encode()


def framed(values: Any, frame: Any, labels: list[str]) -> Any:
    """An output with the index of the frame that was its input; as it is for anything but pandas' frames."""
    if not hasattr(frame, "index") or not hasattr(frame, "iloc") or values.ndim not in (1, 2):
        return values
    import pandas

    if values.ndim == 1:
        return pandas.Series(values, index=frame.index)
    named = labels if len(labels) == values.shape[1] else None
    return pandas.DataFrame(values, index=frame.index, columns=named)

"""Annotations: every public name has a type, right code passes type checkers, and mistakes are reported where they are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import trefoil
import trefoil.np
from trefoil import Secret, _numpy

PACKAGE = Path(trefoil.__file__).parent
TYPED = Path(__file__).parent / "typed"


def run(tool, *arguments, cwd):
    """The output of a type checker that knows the package."""
    pytest.importorskip(tool)
    paths = {"PYTHONPATH": str(PACKAGE.parent), "MYPYPATH": str(PACKAGE.parent), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    command = [sys.executable, "-m", tool, *arguments]
    return subprocess.run(command, cwd=cwd, env=os.environ | paths, capture_output=True, text=True, timeout=200).stdout


def marked():
    """The lines of mistakes."""
    lines = (TYPED / "wrong.py").read_text().splitlines()
    return [at for at, line in enumerate(lines, 1) if line.endswith("# error")]


def reported(found):
    """For each of the two files the lines with errors, of pairs of a path and a line; no other file has any."""
    assert {Path(path).name for path, _ in found} <= {"right.py", "wrong.py"}
    return [sorted({line for path, line in found if Path(path).name == name}) for name in ("right.py", "wrong.py")]


def test_mypy_passes_right_code_and_reports_mistakes(tmp_path):
    output = run("mypy", "--follow-imports=silent", f"--cache-dir={os.devnull}", str(TYPED), cwd=tmp_path)
    found = [(path, int(line)) for path, line in re.findall(r"(?m)^(.*?\.pyi?):(\d+): error:", output)]
    assert reported(found) == [[], marked()], output


def test_pyright_passes_right_code_and_reports_mistakes(tmp_path):
    output = run("pyright", "--outputjson", "--pythonpath", sys.executable, str(TYPED), cwd=tmp_path)
    problems = [d for d in json.loads(output)["generalDiagnostics"] if d["severity"] == "error"]
    found = [(d["file"], d["range"]["start"]["line"] + 1) for d in problems]
    assert reported(found) == [[], marked()], output


def test_every_public_name_has_a_type(tmp_path):
    arguments = ["--outputjson", "--ignoreexternal", "--verifytypes", "trefoil", "--pythonpath", sys.executable]
    told = json.loads(run("pyright", *arguments, cwd=tmp_path))["typeCompleteness"]
    unknown = [symbol["name"] for symbol in told["symbols"] if not symbol["isTypeKnown"]]
    assert told["packageName"] == "trefoil" and len(told["symbols"]) > 300
    assert unknown == [] and told["completenessScore"] == 1


#: Functions that take no secret array, or show what must stay secret.
REFUSED = {"argwhere", "array_repr", "array_str", "flatnonzero", "iscomplexobj", "nonzero", "result_type", "sliding_window_view",
           "unique"}


def test_the_types_of_numpys_functions_are_those_of_all_that_take_secret_arrays(mpc):
    text = (PACKAGE / "np.pyi").read_text()
    typed = set(re.findall(r"(?m)^(\w+): _", text)) | set(re.findall(r"(?m)^def ([a-z]\w*)", text)) | {"norm"}
    there = {f.__name__ for f in _numpy._FUNCTIONS} | {f.__name__ for f in _numpy._UFUNCS}
    assert {getattr(numpy, name, numpy.linalg.norm).__name__ for name in typed - {"linalg"}} == there - REFUSED
    x = mpc.secret(numpy.array([0.5, 0.25]))
    for name in re.findall(r"(?m)^(\w+): _OfOne$", text):
        x_ = x > 0 if name in ("invert", "logical_not") else x
        assert isinstance(getattr(trefoil.np, name)(x_), Secret), name
    assert trefoil.np.exp is numpy.exp and "float64" in dir(trefoil.np)

"""The notebooks run, cell after cell.

Their cells are plain Python, so that an interpreter runs them as it runs a script: a kernel would be thirty packages more to
install, and a way to run what no script can. What they import is here or named in `requirements.txt`; where PyTorch is
missing they say what they do instead.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(p.name for p in FOLDER.glob("*.ipynb"))
PROGRAM = os.environ.get("TREFOIL_PROGRAM") or shutil.which("trefoil")

RUNNER = """
import json, sys
for number, cell in enumerate(json.load(sys.stdin), 1):
    exec(compile(cell, f"cell {number}", "exec"))
"""


def cells(name):
    notebook = json.loads((FOLDER / name).read_text())
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_is_a_notebook_for_each_use():
    assert NOTEBOOKS == ["1-private-inference.ipynb", "2-three-hospitals.ipynb", "3-private-training.ipynb", "4-a-cluster.ipynb",
                         "5-joined-tables.ipynb", "6-a-study.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name):
    code = cells(name)
    for cell in code:
        ast.parse(cell)
    if any("TREFOIL_PROGRAM" in cell for cell in code) and not PROGRAM:
        pytest.skip("TREFOIL_PROGRAM does not name the program `trefoil`")
    environment = os.environ | {"MPLBACKEND": "agg"}
    ran = subprocess.run([sys.executable, "-c", RUNNER], input=json.dumps(code), capture_output=True, text=True, timeout=200,
                         cwd=FOLDER, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_as_it_ran(name):
    notebook = json.loads((FOLDER / name).read_text())
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [o for cell in notebook["cells"] for o in cell.get("outputs", [])]
    assert outputs and all(o["output_type"] != "error" for o in outputs)
    # No machine's paths.
    assert not re.search("/(home|root|tmp|work|Users)/", json.dumps(outputs))

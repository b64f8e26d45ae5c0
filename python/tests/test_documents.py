"""What is printed in documents and shipped as examples runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "python/README.md", *(f"python/docs/{p.name}" for p in (ROOT / "python/docs").glob("*.md"))]


def run(code, **options):
    environment = os.environ | {"MPLBACKEND": "agg"}
    ran = subprocess.run([sys.executable, *code], capture_output=True, text=True, timeout=200, cwd=ROOT,
                         env=environment, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    blocks = [block for block in blocks if "import trefoil" in block]
    for block in blocks:
        printed = run(["-c", block])
        # A comment behind a print says what comes, as far as it goes.
        wanted = re.findall(r"print\(.*\) +# (\S.*?)(?:\.\.)?$", block, re.M)
        for text in wanted:
            if re.match(r"[\d\[S-]", text):
                assert text in printed, (text, printed)


@pytest.mark.parametrize("example", sorted(p.name for p in (ROOT / "python/examples").glob("*.py")))
def test_an_example_runs(example):
    assert run([f"python/examples/{example}"])

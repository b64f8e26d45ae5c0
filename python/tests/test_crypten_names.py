"""Each public name of CrypTen has a row in the documents, and each name that a row gives is there."""

import re
from pathlib import Path

import numpy as np
import pytest

import trefoil

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OBJECTS = {
    "trefoil": trefoil, "np": np, "x": trefoil.Secret, "mpc": trefoil.Mpc, "model": trefoil.Model, "trainer": trefoil.Trainer,
}
CRATES = {"net": ROOT / "net/src", "mpc_core": ROOT / "mpc-core/src"}


def names_of_crypten():
    lines = [line for line in (HERE / "crypten_names.txt").read_text().splitlines() if not line.startswith("#")]
    groups = {}
    for paragraph in "\n".join(lines).split("\n\n"):
        group, _, names = paragraph.partition(":")
        groups[group.strip()] = names.split()
    return groups


def rows():
    """The names of CrypTen and the text beside them, of each row of each group."""
    group, found = None, {}
    for line in (ROOT / "python/docs/crypten-names.md").read_text().splitlines():
        if line.startswith("## "):
            group = line[3:]
            found[group] = []
        elif group and line.startswith("| `"):
            theirs, here = re.fullmatch(r"\| (.*?) \| (.*) \|", line).groups()
            found[group].append((re.findall(r"`\.?(\w+)`", theirs), here))
    return found


def is_there(name):
    """True if a name in code is one of this package, of NumPy or of a crate."""
    if "::" in name:
        crate, *_, last = name.split("::")
        word = re.compile(rf"\b(fn|struct|trait|mod|type|enum|use .*)\b.*\b{last}\b")
        return any(word.search(file.read_text()) for file in CRATES[crate].rglob("*.rs"))
    first, *rest = name.split(".")
    thing = OBJECTS[first]
    for part in rest:
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
    return True


def names_in(text):
    spans = re.findall(r"`([^`]+)`", text)
    return [s for s in spans if "::" in s or re.fullmatch(rf"({'|'.join(OBJECTS)})(\.\w+)+", s)]


@pytest.mark.parametrize("group", names_of_crypten())
def test_each_name_of_crypten_has_one_row(group):
    names = names_of_crypten()[group]
    stated = [name for theirs, _ in rows()[group] for name in theirs]
    assert sorted(stated) == sorted(names)


def test_each_name_beside_them_is_there():
    named = [name for group in rows().values() for _, here in group for name in names_in(here)]
    assert len(named) > 120
    assert [name for name in named if not is_there(name)] == []


def test_a_name_that_is_not_there_is_found():
    assert not is_there("trefoil.cryptensor")
    assert not is_there("x.get_plain_text")
    assert not is_there("net::all_to_all")


def test_what_has_no_counterpart_says_why():
    none = [here for group in rows().values() for _, here in group if here.startswith("None")]
    assert len(none) > 4
    assert [here for here in none if not re.match("None( in Python)?: .{20}|None: see `", here)] == []

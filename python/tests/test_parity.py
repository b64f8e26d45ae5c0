"""First steps of recorded networks against PyTorch's: one setting of each, or all with ``TREFOIL_PARITY=all``."""

import os
import zlib

import parity
import pytest

import trefoil

ALL = os.environ.get("TREFOIL_PARITY") == "all"


def setting_of(name):
    settings = parity.settings()
    return settings[zlib.crc32(name.encode()) % len(settings)]


@pytest.mark.parametrize("name", parity.names())
def test_a_first_step_is_that_of_pytorch_or_is_not_taken_silently(name):
    if ALL:
        counts, notes = parity.counted(name)
        assert parity.row(name, counts) in parity.PAGE.read_text().splitlines(), notes
        return
    try:
        tensor, slope, off = parity.Case(name).worst(*setting_of(name))
    except trefoil.PrecisionWarning:
        return
    assert off <= 0.02, f"{tensor} moves {slope} times as far"


def test_enough_networks_are_recorded():
    assert len(parity.names()) >= 30


def test_the_page_names_every_network_and_no_setting_that_differs():
    rows = [line.split(" | ") for line in parity.PAGE.read_text().splitlines() if line.endswith(" |")]
    counts = {row[0].strip("| "): [int(n.strip(" |")) for n in row[1:]] for row in rows[1:]}
    whole = counts.pop("**all**")
    assert sorted(counts) == parity.names()
    assert all(sum(row) == len(parity.settings()) and row[3] == 0 for row in counts.values())
    assert whole == [sum(column) for column in zip(*counts.values())]

"""First steps of recorded networks against PyTorch's, one setting of each; ``python python/tests/parity.py`` makes all."""

import zlib

import parity
import pytest

import trefoil


def setting_of(name):
    settings = parity.settings()
    return settings[zlib.crc32(name.encode()) % len(settings)]


@pytest.mark.parametrize("name", parity.names())
def test_a_first_step_is_that_of_pytorch_or_is_not_taken_silently(name):
    try:
        tensor, slope, off = parity.Case(name).worst(*setting_of(name))
    except trefoil.PrecisionWarning:
        return
    assert off <= 0.02, f"{tensor} moves {slope} times as far"


def test_enough_networks_are_recorded():
    assert len(parity.names()) >= 30

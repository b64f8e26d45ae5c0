import zlib

import numpy as np
import pytest

import trefoil


@pytest.fixture(scope="session")
def mpc():
    with trefoil.local() as mpc:
        yield mpc


@pytest.fixture
def rng(request):
    """Numbers that follow from the test's name: repeatable, and others for each test."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))

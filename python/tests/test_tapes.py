"""Tapes of a dealer that Python makes, and two servers that play them."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import ConfigError, Error, InputError, Refused, Unreachable, tapes

DIGITS = Path(__file__).parents[2] / "models/data/digits.onnx"
PROGRAM = os.environ.get("TREFOIL_PROGRAM") or shutil.which("trefoil")

pytestmark = pytest.mark.skipif(not PROGRAM, reason="TREFOIL_PROGRAM does not name the program `trefoil`")


@pytest.fixture
def cluster(tmp_path):
    """The files of two servers, a dealer and a client."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    hosts = ",".join(f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)
    for s in sockets:
        s.close()
    folder = tmp_path / "two"
    command = [PROGRAM, "cluster", "init", str(folder), "--protocol", "rss-dealt", "--hosts", hosts, "--clients", "alice"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_two_servers_answer_by_tapes_that_were_made_here(cluster, tmp_path):
    model = trefoil.Model.from_onnx(DIGITS)
    made = tapes.make(model, tmp_path / "tapes", cluster / "dealer-dealer/dealer.toml", answers=3, batch=2)
    assert [path.name for path in made] == ["party-0.tape", "party-1.tape"]
    assert [tapes.read(path) for path in made] == [tapes.TapeInfo(party, 3, 3, 2) for party in (0, 1)]
    configs = [cluster / f"party-{party}/party.toml" for party in (0, 1)]
    with pytest.raises(InputError, match="not of party 1"):
        tapes.add(made[0], configs[1])
    places = [tapes.add(*pair) for pair in zip(made, configs)]
    assert [dealer for _, dealer in places] == ["dealer", "dealer"] and not made[0].exists()
    servers = [
        subprocess.Popen([PROGRAM, "party", "--config", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for config in configs
    ]
    try:
        images = np.random.default_rng(1).uniform(0, 1, (2, 1, 8, 8))
        with trefoil.connect(cluster / "client-alice/client.toml") as alice:
            deadline = time.monotonic() + 30
            while True:
                try:
                    alice.put("digits", model)
                    break
                except (Unreachable, Refused):
                    # The servers may not have met yet.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
            assert np.abs(alice.infer("digits", images) - model.evaluate(images)).max() < 1e-4
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert [tapes.read(path).left for path, _ in places] == [2, 2]


def test_tapes_that_nobody_can_make_are_refused(cluster, tmp_path):
    model = trefoil.Model.from_onnx(DIGITS)
    dealer = cluster / "dealer-dealer/dealer.toml"
    for wrong, said in (({"answers": 0}, "answers is 0"), ({"answers": 1, "batch": 70_000}, "batch is 70000")):
        with pytest.raises(InputError, match=said):
            tapes.make(model, tmp_path / "tapes", dealer, **wrong)
    with pytest.raises(ConfigError, match="generator `none`"):
        tapes.make(model, tmp_path / "tapes", dealer, 1, generator="none")
    with pytest.raises(ConfigError, match="none.toml"):
        tapes.make(model, tmp_path / "tapes", cluster / "none.toml", 1)
    with pytest.raises(Error, match="not a|too short|not whole|not complete"):
        tapes.read(DIGITS)

"""A client of three servers, which are processes of the program."""

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import ConfigError, InputError, RangeError, Refused, Unreachable

DATA = Path(__file__).parents[2] / "models/data"
PROGRAM = os.environ.get("TREFOIL_PROGRAM") or shutil.which("trefoil")

pytestmark = pytest.mark.skipif(not PROGRAM, reason="TREFOIL_PROGRAM does not name the program `trefoil`")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    [s.close() for s in sockets]
    return ports


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster") / "files"
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))
    command = [PROGRAM, "cluster", "init", str(folder), "--hosts", hosts, "--clients", "alice,bob"]
    subprocess.run(command, check=True, capture_output=True)
    servers = [
        subprocess.Popen([PROGRAM, "party", "--config", str(folder / f"party-{i}/party.toml")],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for i in range(3)
    ]
    yield folder
    [server.kill() for server in servers]
    [server.wait() for server in servers]


@pytest.fixture(scope="module")
def alice(folder):
    with trefoil.connect(folder / "client-alice/client.toml") as cluster:
        deadline = time.monotonic() + 30
        while True:
            try:
                cluster.put("digits", trefoil.Model.from_onnx(DATA / "digits.onnx"))
                break
            except (Unreachable, Refused):
                # The servers may not have met yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield cluster


def test_a_model_is_put_listed_run_shared_and_removed(alice, folder):
    model = trefoil.Model.from_onnx(DATA / "digits.onnx")
    images = np.random.default_rng(1).uniform(0, 1, (3, 1, 8, 8))
    want = model.evaluate(images)
    (info,) = alice.models()
    assert (info.name, info.owner, info.parameters, info.state) == ("digits", "alice", 31674, "ready")
    answer, cost = alice.infer("digits", images, cost=True)
    assert np.abs(answer - want).max() < 1e-4 and cost.rounds > 10 and cost.bytes > 0
    jobs = [alice.submit("digits", images[i : i + 1]) for i in range(3)]
    assert np.abs(np.concatenate([job.result(60) for job in jobs]) - want).max() < 1e-4
    with trefoil.connect(folder / "client-bob/client.toml") as bob:
        with pytest.raises(Refused):
            bob.infer("digits", images)
        alice.share("digits", ["bob"])
        assert np.abs(bob.infer("digits", images) - want).max() < 1e-4
        with pytest.raises(Refused):
            bob.remove("digits")
    alice.put("digits", model, replace=True)
    alice.remove("digits")
    assert alice.models() == []
    assert len(alice.ping()) == 3


def test_errors_come_with_the_librarys_sentences(alice, folder, tmp_path):
    model = trefoil.Model.from_onnx(DATA / "digits.onnx")
    (name,) = model.inputs
    alice.put("bounded", model, ranges={name: (0, 1)})
    with pytest.raises(RangeError, match="outside of 0 to 1"):
        alice.infer("bounded", np.full((1, 1, 8, 8), 2.0))
    with pytest.raises(InputError, match="takes"):
        alice.infer("bounded", np.zeros((1, 8, 8)))
    with pytest.raises(Refused, match="nothing"):
        alice.infer("nothing", np.zeros((1, 1, 8, 8)))
    with pytest.raises(InputError, match="not a name"):
        alice.put("../x", model)
    # After each of them the next call works.
    assert alice.infer("bounded", np.zeros((1, 1, 8, 8))).shape == (1, 10)
    with pytest.raises(ConfigError, match="client.toml"):
        trefoil.connect(tmp_path / "client.toml")
    text = (folder / "client-bob/client.toml").read_text()
    ports = iter((1, 2, 3))
    text = re.sub(r"127\.0\.0\.1:\d+", lambda _: f"127.0.0.1:{next(ports)}", text)
    text = re.sub(r"connect_seconds = \d+", "connect_seconds = 1", text)
    (folder / "client-bob/lost.toml").write_text(text)
    with trefoil.connect(folder / "client-bob/lost.toml") as lost, pytest.raises(Unreachable, match="party 0"):
        lost.ping()


def test_a_progress_bar_is_told_what_has_left(alice, monkeypatch):
    import types

    told = []
    bar = type("Bar", (), {"n": 0, "total": None, "update": lambda self, n: setattr(self, "n", self.n + n),
                           "close": lambda self: told.append((self.n, self.total))})
    tqdm = types.SimpleNamespace(tqdm=lambda **_: bar())
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", tqdm)
    monkeypatch.setitem(__import__("sys").modules, "tqdm", types.SimpleNamespace(auto=tqdm))
    alice.put("watched", trefoil.Model.from_onnx(DATA / "digits.onnx"), progress=True)
    # Two components of 31,674 words, and two keys: one party gets no words.
    (left, whole), = told
    assert left == whole and whole >= 31674 * 8
    alice.infer("watched", np.zeros((1, 1, 8, 8)), progress=True)
    assert len(told) == 2 and told[1][0] == told[1][1] > 0
    alice.remove("watched")

"""The same script as threads of a process and as three processes."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import trefoil

SCRIPT = """
import sys, numpy as np, trefoil

def program(mpc):
    mpc.cost()
    # In a session of three machines each party has its own numbers alone.
    def own(owner, values):
        mine = mpc.party in (None, owner)
        return mpc.secret(values, owner=owner) if mine else mpc.secret(shape=np.shape(values), owner=owner)
    x = own(0, np.arange(100.0).reshape(10, 10) / 50)
    w = own(1, np.eye(10) * 2)
    n = mpc.secret(np.arange(10) if mpc.party in (None, 2) else None, owner=2, shape=(10,), dtype=int)
    y = np.maximum(x @ w - 1, 0) + n
    shown = np.sum(y, axis=1).reveal()
    one = n.reveal(to=1)
    assert (one is not None) == (mpc.party in (None, 1))
    return shown, mpc.cost()

if __name__ == "__main__":
    with trefoil.party() as mpc:
        shown, cost = program(mpc)
    print("shown", " ".join(f"{v:.3f}" for v in shown))
    print("cost", cost.bytes, cost.rounds)
"""


#: A library that does as the driver of a CUDA device would.
STAND_IN = os.environ.get("TREFOIL_STAND_IN")


def run(script, *arguments, **options):
    command = [sys.executable, "-m", "trefoil", "run", str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def as_processes_and_as_threads(tmp_path, text):
    """What three processes print and the script's `program` returns in one, and the rounds of both; they moved the same
    bytes."""
    script = tmp_path / "script.py"
    script.write_text(text)
    ran = run(script)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    names = {"__name__": "script"}
    exec(text, names)
    with trefoil.local() as mpc:
        shown, cost = names["program"](mpc)
    costs = [tuple(map(int, found)) for found in re.findall(r"cost (\d+) (\d+)", ran.stdout)]
    assert len(costs) == 3
    assert sum(bytes_ for bytes_, _ in costs) == cost.bytes
    printed = [re.search(rf"party {party}: shown (.*)", ran.stdout)[1].split() for party in range(3)]
    rounds = max(rounds for _, rounds in costs), cost.rounds
    return [[float(number) for number in numbers] for numbers in printed], shown, rounds


def test_a_script_of_three_processes_moves_the_bytes_of_one_process(tmp_path):
    printed, shown, rounds = as_processes_and_as_threads(tmp_path, SCRIPT)
    assert rounds[0] == rounds[1]
    for numbers in printed:
        assert numbers == pytest.approx(shown.tolist(), abs=2e-3)


ENGINES = """
import os, sys, numpy as np, trefoil

def program(mpc):
    x, w = np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(1, 2, 8).reshape(4, 2)
    y = np.maximum(mpc.secret(x) @ mpc.secret(w, owner=1), 0) * 3
    return " ".join(f"{number:.6f}" for number in y.reveal().reshape(-1)), mpc.cost()

if sys.argv[1] == "threads":
    for engine in ("cpu", "cuda:0"):
        with trefoil.local(engine=engine, truncation="exact") as mpc:
            shown, cost = program(mpc)
        print(engine, "shown", shown)
        print(engine, "cost", cost.bytes, cost.rounds)
else:
    # The second of three processes computes on the device.
    engine = "cuda:0" if "party-1" in os.environ["TREFOIL_PARTY"] else "cpu"
    with trefoil.party(engine=engine, truncation="exact") as mpc:
        shown, _ = program(mpc)
    print("mixed", "shown", shown)
"""


@pytest.mark.skipif(not STAND_IN, reason="TREFOIL_STAND_IN does not name a library in the place of CUDA's driver")
def test_parties_on_a_device_compute_what_parties_on_cpus_do(tmp_path):
    (tmp_path / "libcuda.so").symlink_to(STAND_IN)
    options = {"env": os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}}
    script = tmp_path / "script.py"
    script.write_text(ENGINES)
    command = [sys.executable, str(script), "threads"]
    threads = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert threads.returncode == 0, threads.stderr
    said = dict(line.split(" ", 2)[0:3:2] for line in threads.stdout.splitlines() if " shown " in line)
    costs = re.findall(r"cost (.*)", threads.stdout)
    assert said["cpu"] == said["cuda:0"] and len(said["cpu"].split()) == 6
    assert len(costs) == 2 and costs[0] == costs[1]
    mixed = run(script, "parties", **options)
    assert mixed.returncode == 0, mixed.stdout + mixed.stderr
    assert mixed.stdout.count(f"mixed shown {said['cpu']}") == 3
    # A device that is too old for the kernels is not passed over in silence.
    options["env"]["PTX_EMU_CAPABILITY"] = "50"
    old = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert old.returncode != 0 and "engine `cuda:0`" in old.stderr


def test_a_party_that_fails_ends_the_others_and_is_shown(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import trefoil\n"
        "with trefoil.party() as mpc:\n"
        "    x = mpc.secret([1.0])\n"
        "    if mpc.party == 1:\n"
        "        raise SystemExit('no more')\n"
        "    (x * x).reveal()\n"
    )
    began = time.monotonic()
    ran = run(script)
    assert ran.returncode != 0 and time.monotonic() - began < 30
    assert "party 1: no more" in ran.stderr
    assert re.search(r"party [02]: trefoil._errors.\w+: .*party 1", ran.stderr), ran.stderr


def test_the_files_of_three_machines_are_made_without_the_program(tmp_path):
    made = lambda *arguments: subprocess.run(
        [sys.executable, "-m", "trefoil", "init", str(tmp_path / "files"), *arguments], capture_output=True, text=True, timeout=60
    )
    ran = made("--hosts", "a.example,b.example,c.example:7", "--clients", "alice")
    assert ran.returncode == 0, ran.stderr
    file = tmp_path / "files/party-2/party.toml"
    assert str(file) in ran.stdout and "c.example:7" in file.read_text() and "client alice" in ran.stdout
    again = made()
    assert again.returncode == 1 and "holds a cluster already" in again.stderr
    few = made("--hosts", "a,b")
    assert few.returncode == 1 and "name 3" in few.stderr and "Traceback" not in few.stderr


def test_parties_with_different_options_do_not_begin(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, trefoil\n"
        "modes = {'party-0': 'exact'}\n"
        "name = os.path.basename(os.path.dirname(os.environ['TREFOIL_PARTY']))\n"
        "with trefoil.party(truncation=modes.get(name, 'default')) as mpc:\n"
        "    mpc.secret([1.0])\n"
    )
    ran = run(script)
    assert ran.returncode != 0 and "differs" in ran.stderr


def test_a_session_of_three_machines_goes_on_after_an_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import trefoil\n"
        "with trefoil.party() as mpc:\n"
        "    # A shape that does not fit is an error at all three, and the session goes on.\n"
        "    x = mpc.secret([1.0, 2.0])\n"
        "    try:\n"
        "        x + mpc.secret([1.0, 2.0, 3.0])\n"
        "    except trefoil.InputError as error:\n"
        "        print(error)\n"
        "    print((x + x).reveal().tolist(), mpc)\n"
    )
    ran = run(script)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for party in range(3):
        assert f"party {party}: [2.0, 4.0] Mpc(party {party}, frac_bits=20)" in ran.stdout


def test_the_program_starts_a_script_too(tmp_path):
    program = os.environ.get("TREFOIL_PROGRAM") or shutil.which("trefoil")
    if not program:
        pytest.skip("TREFOIL_PROGRAM does not name the program `trefoil`")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, trefoil\n"
        "with trefoil.party() as mpc:\n"
        "    print(sys.argv[1:], mpc.secret([1.5]).reveal().tolist())\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    environment = os.environ | {"PYTHON": sys.executable}
    options = {"capture_output": True, "text": True, "timeout": 120, "env": environment}
    ran = subprocess.run([program, "run", str(script), "--rows", "0"], **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for party in range(3):
        assert f"party {party}: ['--rows', '0'] [1.5]" in ran.stdout
    ran = subprocess.run([program, "run", str(script), "--rows", "7"], **options)
    assert ran.returncode == 3 and "ended with" in ran.stderr
    ran = subprocess.run([program, "run", str(script)], **options | {"env": os.environ | {"PYTHON": str(tmp_path / "none")}})
    assert ran.returncode == 4 and "PYTHON" in ran.stderr


TRAINING = """
import numpy as np, trefoil

def program(mpc):
    model = trefoil.Model.from_onnx(NETWORK)
    trainer = trefoil.Trainer(model, optimiser=trefoil.optim.SGD(lr=0.2, momentum=0.9), batch_size=16, mpc=mpc)
    def own(owner, values, dtype):
        # Whoever does not own the rows knows their shape alone.
        mine = mpc.party in (None, owner)
        return mpc.secret(values, owner=owner) if mine else mpc.secret(shape=values.shape, dtype=dtype, owner=owner)
    rng = np.random.default_rng(3)
    images, labels = rng.uniform(0, 1, (32, 64)), rng.integers(0, 10, 32)
    rows = trainer.secret(own(1, images, float), own(2, labels, int))
    # All parties have come as far as each other then, which those who only gave rows had not.
    rows[1][0].reveal()
    mpc.cost()
    losses = [trainer.step(*batch)["loss"] for batch in trainer.batches(*rows)]
    return losses, mpc.cost()

if __name__ == "__main__":
    with trefoil.party() as mpc:
        losses, cost = program(mpc)
    print("shown", *losses)
    print("cost", cost.bytes, cost.rounds)
"""


def test_a_training_of_three_processes_is_that_of_one_process(tmp_path):
    network = Path(__file__).parents[1] / "notebooks/perceptron.onnx"
    printed, losses, rounds = as_processes_and_as_threads(tmp_path, TRAINING.replace("NETWORK", repr(str(network))))
    assert rounds[0] == rounds[1]
    for numbers in printed:
        assert numbers == pytest.approx(losses, abs=1e-3)

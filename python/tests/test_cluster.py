"""A client of three servers, which are processes of the program."""

import gzip
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import ConfigError, InputError, RangeError, Refused, Unreachable
from trefoil._onnx import Writer

DATA = Path(__file__).parents[2] / "models/data"
PROGRAM = os.environ.get("TREFOIL_PROGRAM") or shutil.which("trefoil")

pytestmark = pytest.mark.skipif(not PROGRAM, reason="TREFOIL_PROGRAM does not name the program `trefoil`")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    [s.close() for s in sockets]
    return ports


def made(folder):
    """The files of a cluster and its clients."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))
    command = [PROGRAM, "cluster", "init", str(folder), "--hosts", hosts, "--clients", "alice,bob,carol"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def served(folder, party):
    command = [PROGRAM, "party", "--config", str(folder / f"party-{party}/party.toml")]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("cluster") / "files")
    servers = [served(folder, party) for party in range(3)]
    yield folder
    [server.kill() for server in servers]
    [server.wait() for server in servers]


@pytest.fixture(scope="module")
def alice(folder):
    cluster = trefoil.connect(folder / "client-alice/client.toml")
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
    # A test that failed may have left a run of many steps.
    cluster.close(wait=False)


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


def test_positions_outside_of_a_table_are_refused_for_models_put_from_here(alice):
    model = trefoil.Model.from_onnx(DATA / "onnx/embedding-opset17.onnx")
    (shape,) = model.inputs.values()
    places = np.zeros([n or 1 for n in shape], int)
    alice.put("words", model)
    assert np.abs(alice.infer("words", places) - model.evaluate(places)).max() < 1e-3
    places.flat[1] = 10**6
    with pytest.raises(RangeError, match="element 1"):
        alice.infer("words", places)
    with pytest.raises(InputError, match="complex"):
        alice.infer("words", places * 1j)
    alice.remove("words")


@pytest.mark.parametrize("name", ["linear-opset21", "reductions-opset18"])
def test_tensors_that_do_not_begin_with_the_batch_keep_their_shapes(alice, rng, name):
    model = trefoil.Model.from_onnx(DATA / f"onnx/{name}.onnx")
    inputs = [rng.uniform(0.5, 1, shape) for shape in model.inputs.values()]
    alice.put("whole", model)
    answers = alice.infer("whole", *inputs)
    assert [answer.shape for answer in answers] == list(model.outputs.values())
    assert len({shape[:1] for shape in [*model.inputs.values(), *model.outputs.values()]}) > 1
    for answer, want in zip(answers, model.evaluate(*inputs)):
        assert np.abs(answer - want).max() < 1e-3
    with pytest.raises(InputError):
        alice.infer("whole", *(np.concatenate([x, x]) for x in inputs))
    alice.remove("whole")


def test_calls_after_a_restart_of_servers_find_them(tmp_path):
    folder = made(tmp_path / "files")
    servers = [served(folder, party) for party in range(3)]
    images = np.zeros((1, 1, 8, 8))

    def patiently(call):
        deadline = time.monotonic() + 30
        while True:
            try:
                return call()
            except (Unreachable, Refused):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    try:
        with trefoil.connect(folder / "client-alice/client.toml") as cluster, trefoil.connect(folder / "client-alice/client.toml") as other:
            patiently(lambda: cluster.put("digits", trefoil.Model.from_onnx(DATA / "digits.onnx")))
            for party in (2, 0):
                servers[party].kill()
                servers[party].wait()
                servers[party] = served(folder, party)
                # Whoever connects afresh finds them linked; so does the connection from before.
                patiently(lambda: other.infer("digits", images))
                assert len(cluster.models()) == 1
                assert cluster.infer("digits", images).shape == (1, 10)
    finally:
        [server.kill() for server in servers]
        [server.wait() for server in servers]


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
    with trefoil.connect(nobody_there(folder, 1)) as lost, pytest.raises(Unreachable, match="party 0"):
        lost.ping()


def nobody_there(folder, seconds):
    """The file of a client whose servers do not answer, for which it waits so long."""
    text = (folder / "client-bob/client.toml").read_text()
    ports = iter((1, 2, 3))
    text = re.sub(r"127\.0\.0\.1:\d+", lambda _: f"127.0.0.1:{next(ports)}", text)
    text = re.sub(r"connect_seconds = \d+", f"connect_seconds = {seconds}", text)
    path = folder / f"client-bob/lost-{seconds}.toml"
    path.write_text(text)
    return path


INTERRUPTED = """
import os, signal, sys, threading, time, trefoil
# Python ignores the signal where whoever started it does, as a shell does for jobs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
with trefoil.connect(sys.argv[1]) as lost:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.perf_counter()
    try:
        lost.ping()
    except KeyboardInterrupt:
        print("took", time.perf_counter() - began - 0.5)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_a_wait_for_servers_within_half_a_second(alice, folder):
    command = [sys.executable, "-c", INTERRUPTED, nobody_there(folder, 60)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert ran.returncode == 0, ran.stderr
    assert float(re.search(r"took (\S+)", ran.stdout)[1]) < 0.5


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


@pytest.fixture(scope="module")
def bob(alice, folder):
    cluster = trefoil.connect(folder / "client-bob/client.toml")
    yield cluster
    cluster.close(wait=False)


@pytest.fixture(scope="module")
def carol(alice, folder):
    cluster = trefoil.connect(folder / "client-carol/client.toml")
    yield cluster
    cluster.close(wait=False)


@pytest.fixture(scope="module")
def digits():
    with gzip.open(DATA / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", ndmin=2)
    return table[:, :64] / 16, table[:, 64].astype(int)


NETWORK = Path(__file__).parents[1] / "notebooks/perceptron.onnx"
HOW = {"batch_size": 64, "optimiser": trefoil.optim.SGD(lr=0.2, momentum=0.9)}


def test_pixels_and_labels_of_the_same_rows_may_have_an_owner_each(alice, bob, carol, digits):
    images, labels = digits
    alice.data.put("left", images[:200, :40], only="values", readers=["carol"])
    bob.data.put("right", images[:200, 40:], only="values", readers=["carol"])
    carol.data.put("classes", labels[:200], classes=10, only="labels")
    carol.data.put("whole", images[200:300], labels[200:300], classes=10)
    run = carol.train("apart", trefoil.Model.from_onnx(NETWORK), [["left", "right", "classes"], "whole"], **HOW)
    assert run.missing == ("alice", "bob") and run.info.rows == 300
    alice.approve("apart", run.fingerprint)
    bob.approve("apart", run.fingerprint)
    assert run.result(60)[-1].step == 4
    carol.data.put("joined", images[:300], labels[:300], classes=10)
    same = carol.train("together", trefoil.Model.from_onnx(NETWORK), "joined", **HOW)
    assert abs(same.result(60)[-1].loss - run.result()[-1].loss) < 1e-3
    for owner, names in [(carol, ["apart", "together", "classes", "whole", "joined"]), (alice, ["left"]), (bob, ["right"])]:
        for name in names:
            owner.remove(name)
    for wrong, reason in [
        (lambda: alice.data.put("x", labels, only="labels"), "integers"),
        (lambda: alice.data.put("x", images, labels, only="labels"), "2 arrays"),
        (lambda: alice.data.put("x", images, classes=10, only="values"), "leaves to another"),
        (lambda: alice.data.put("x", images, only="rows"), "rows"),
        (lambda: alice.data.put("x", images), "labels last"),
    ]:
        with pytest.raises(InputError, match=reason):
            wrong()


def test_two_owners_of_other_columns_in_other_orders_train_together(alice, bob, carol, folder, digits):
    images, labels = digits
    secret = folder / "join.key"
    secret.write_text("5a" * 32)
    secret.chmod(0o600)
    names = [f"pixel {at}" for at in range(64)]

    def table(rows, columns, **more):
        return {"id": [f"person {row}" for row in rows]} | {names[at]: images[rows, at] for at in columns} | more

    hospital, bank = np.arange(600), np.arange(100, 800)[::-1]
    keyed = {"key": "id", "key_secret": secret, "readers": ["carol"]}
    alice.data.put("hospital", table(hospital, range(40), digit=labels[hospital]), label="digit", classes=10, **keyed)
    bob.data.put("bank", table(bank, range(40, 64)), only="values", **keyed)
    assert [(s.name, s.key, s.tensors[0]) for s in carol.data.list()] == [
        ("bank", ["id"], ("values", [24], 20)), ("hospital", ["id"], ("values", [40], 20))
    ]
    model = trefoil.Model.from_onnx(NETWORK)
    run = carol.train("joined", model, trefoil.Join("hospital", "bank", rows=500), **HOW)
    assert run.missing == ("alice", "bob") and run.info.rows == 500
    # The join is part of what is consented to.
    (info,) = alice.runs()
    assert info.joins == [trefoil.Join("hospital", "bank", rows=500)] and info.fingerprint == run.fingerprint
    alice.approve("joined", run.fingerprint)
    bob.approve("joined", run.fingerprint)
    seen = run.result(60)
    assert seen[-1].step == seen[-1].steps and np.isfinite(seen[-1].loss)
    left = carol.train("left", model, [trefoil.Join("hospital", "bank", kind="left")], **HOW)
    assert left.info.rows == 600
    left.cancel()
    # One pair more than there are, and joins that are none.
    more = carol.train("more", model, trefoil.Join("hospital", "bank", rows=501), **HOW)
    alice.approve("more", more.fingerprint)
    bob.approve("more", more.fingerprint)
    with pytest.raises(Refused, match="fewer than 501 of their rows have a partner"):
        more.result(60)
    for join, reason in [
        (trefoil.Join("hospital", "bank"), "an inner join needs `rows`"),
        (trefoil.Join("hospital", "bank", rows=5, kind="left"), "leave `rows` out"),
    ]:
        with pytest.raises(InputError, match=reason):
            carol.train("wrong", model, join, **HOW)
    twice = {"id": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]}
    for wrong, reason in [
        (lambda: bob.data.put("x", twice, only="values", key="id", key_secret=secret), "rows 2, 4 is also that of another"),
        (lambda: bob.data.put("x", twice, only="values", key="id"), "belong together"),
        (lambda: bob.data.put("x", images, labels, key="id", key_secret=secret), "one table with named columns"),
    ]:
        with pytest.raises(InputError, match=reason):
            wrong()
    for run in ["joined", "left", "more"]:
        carol.remove(run)
    alice.data.remove("hospital")
    bob.data.remove("bank")


def test_a_network_learns_from_two_owners_who_consent(alice, bob, carol, digits):
    images, labels = digits
    known, test = images[:1200], images[1200:]
    alice.data.put("a", known[:600], labels[:600], classes=10, readers=["carol"])
    bob.data.put("b", known[600:], labels[600:1200], classes=10)
    with pytest.raises(Refused, match="`b`"):
        carol.train("early", trefoil.Model.from_onnx(NETWORK), ["a", "b"])
    bob.data.share("b", ["carol"])
    sets = carol.data.list()
    assert [(s.name, s.owner, s.rows, s.state) for s in sets] == [("a", "alice", 600, "ready"), ("b", "bob", 600, "ready")]
    assert sets[0].tensors == [("values", [64], 20), ("labels", [10], 0)] and sets[0].readers is None
    assert alice.data.list()[0].readers == ["carol"]

    model = trefoil.Model.from_onnx(NETWORK)
    with pytest.raises(InputError, match="no name"):
        carol.train("digits", model, ["a", "b"], recipients=["no name"], **HOW)
    run = carol.train("digits", model, ["a", "b"], epochs=4, recipients=["alice"], **HOW)
    assert run.missing == ("alice", "bob") and not run.done()
    (info,) = alice.runs()
    assert (info.name, info.owner, info.rows, info.epochs, info.step) == ("digits", "carol", 1200, 4, 0)
    # Who gets the weights is part of what is consented to.
    assert info.recipients == run.info.recipients == ["alice"]
    assert info.data == [("a", "alice"), ("b", "bob")] and info.missing == ["alice", "bob"]
    assert info.fingerprint == run.fingerprint
    for wrong in ("0" * 64, run.fingerprint[:31]):
        with pytest.raises(InputError, match="another fingerprint"):
            alice.approve("digits", wrong)
    with pytest.raises(Refused, match="no data of yours"):
        carol.approve(info)
    alice.approve(info)
    bob.approve("digits", run.fingerprint[:32])

    seen = list(run.follow())
    assert seen == run.result(60) and run.missing == ()
    assert [p.step for p in seen] == sorted({p.step for p in seen}) and seen[-1].step == seen[-1].steps == 4 * 18
    # Metrics leave once for each pass over the data, as means over all of its rows.
    shown = [p for p in seen if p.loss is not None]
    assert [p.step for p in shown] == [18, 36, 54, 72] and seen[-1].epoch == 4
    assert shown[0].loss > 1 and shown[-1].loss < 0.5 and shown[-1].accuracy > 0.85
    assert all(p.bytes > 0 and p.rounds > 0 for p in seen)
    assert carol.runs()[0].step == 72

    # The weights come back to their owner and the recipients, as arrays and as a model.
    weights = carol.get("digits")
    same = alice.get("digits")
    assert same.keys() == weights.keys() and all(np.array_equal(same[name], w) for name, w in weights.items())
    shapes = {name: w.shape for name, w in weights.items()}
    mine = carol.get("digits", into=model)
    clear = mine.evaluate(test)
    assert (clear.argmax(1) == labels[1200:]).mean() > 0.85
    (first, second) = [n for n, shape in shapes.items() if len(shape) == 2]
    (one, two) = [n for n, shape in shapes.items() if len(shape) == 1]
    hidden = np.maximum(test @ weights[first].T + weights[one], 0)
    assert np.abs(hidden @ weights[second].T + weights[two] - clear).max() < 1e-6
    with pytest.raises(Refused, match="belongs to client carol"):
        bob.get("digits")

    # And without them it serves as a model.
    carol.publish("digits", "learnt", readers=["alice"])
    assert np.abs(alice.infer("learnt", test) - clear).max() < 1e-3
    carol.remove("learnt")
    carol.remove("digits")
    alice.data.remove("a")
    bob.data.remove("b")
    assert alice.runs() == [] and carol.data.list() == []


def test_a_run_that_was_stopped_goes_on_from_what_the_servers_kept(alice, digits):
    images, labels = digits
    alice.data.put("mine", images, labels, classes=10)
    how = HOW | {"epochs": 4000, "metrics": ["loss"]}
    run = alice.train("long", trefoil.Model.from_onnx(NETWORK), "mine", **how)
    first = next(run.follow())
    assert first.step == 1 and first.steps == 4000 * 28 and first.accuracy is None
    assert run.cancel()
    last = run.result(60)[-1]
    assert run.done() and not run.cancel() and alice.runs()[0].step == last.step < last.steps
    with pytest.raises(Refused, match="another run of that name"):
        alice.train("long", trefoil.Model.from_onnx(NETWORK), "mine", **how | {"epochs": 3})
    again = alice.train("long", trefoil.Model.from_onnx(NETWORK), "mine", **how)
    assert next(again.follow()).step == last.step + 1
    again.stop()
    again.result(60)
    # What runs alone does not wait for it.
    assert len(alice.ping()) == 3
    alice.remove("long")
    alice.data.remove("mine")


def test_runs_spend_the_privacy_budget_of_a_data_set(alice, carol, digits):
    images, labels = digits
    alice.data.put("dear", images, labels, classes=10, readers=["carol"], privacy_budget=2.0, delta=1e-5)
    model, privacy = trefoil.Model.from_onnx(NETWORK), trefoil.DP(clip=1.0, noise=2.409)
    train = lambda name, **how: carol.train(name, model, "dear", batch_size=64, optimiser=trefoil.optim.SGD(lr=0.2), **how)
    with pytest.raises(Refused, match="this run has no noise"):
        train("bare")
    run = train("noisy", privacy=privacy)
    alice.approve("noisy", run.fingerprint)
    seen = run.result(60)
    # Nothing but the weights leaves.
    assert seen[-1].step == seen[-1].steps and all(p.loss is None and p.accuracy is None for p in seen)
    assert np.isfinite(np.concatenate([w.ravel() for w in carol.get("noisy").values()])).all()
    # One pass is within the budget, two are beyond it; one with little noise is refused before anybody is asked.
    again = train("again", privacy=privacy)
    alice.approve("again", again.fingerprint)
    beyond = r"after this run epsilon would be \d+\.\d+ at delta 0.00001; its owner allows 2"
    with pytest.raises(Refused, match=beyond):
        again.result(60)
    with pytest.raises(Refused, match=beyond):
        train("loud", privacy=trefoil.DP(clip=1.0, noise=0.5))
    with pytest.raises(InputError, match="exact sums over training rows"):
        train("shown", privacy=privacy, metrics=["loss"])
    carol.remove("noisy")
    carol.remove("again")
    alice.data.remove("dear")


def test_consent_that_is_taken_back_ends_a_run(alice, carol, digits):
    images, labels = digits
    alice.data.put("lent", images, labels, classes=10, readers=["carol"])
    run = carol.train("doubtful", trefoil.Model.from_onnx(NETWORK), "lent", epochs=4000, **HOW)
    (info,) = alice.runs()
    alice.approve(info)
    assert next(run.follow()).step == 1
    with pytest.raises(Refused, match="no data of yours"):
        carol.withdraw("doubtful")
    alice.withdraw(info)
    with pytest.raises(Refused, match="consent of alice"):
        run.result(60)
    assert alice.runs()[0].missing == ["alice"]
    carol.remove("doubtful")
    alice.data.remove("lent")


ENDING = """
import sys, trefoil
cluster = trefoil.connect(sys.argv[1])
run = cluster.train("endless", trefoil.Model.from_onnx(sys.argv[2]), "kept", epochs=100000, batch_size=64)
print("step", next(run.follow()).step)
"""


def test_a_program_that_ends_does_not_wait_for_its_runs(alice, folder, digits):
    images, labels = digits
    alice.data.put("kept", images, labels, classes=10)
    client = folder / "client-alice/client.toml"
    ran = subprocess.run([sys.executable, "-c", ENDING, client, NETWORK], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "step 1" in ran.stdout, ran.stderr
    # With a with-block that is left by an exception, as Ctrl-C is one, neither.
    script = ENDING.replace("cluster = ", "with ").replace("argv[1])", "argv[1]) as cluster:", 1)
    script = re.sub(r"^(run|print)", r"    \1", script, flags=re.M) + "    raise KeyboardInterrupt\n"
    ran = subprocess.run([sys.executable, "-c", script, client, NETWORK], capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0 and "step" in ran.stdout and "KeyboardInterrupt" in ran.stderr
    deadline = time.monotonic() + 30
    while True:
        try:
            alice.remove("endless")
            break
        except Refused:
            # The last slice may still run.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    alice.data.remove("kept")


def test_what_cannot_be_trained_on_is_said_before_anything_is_sent(alice, digits):
    images, labels = digits
    model = trefoil.Model.from_onnx(NETWORK)
    with pytest.raises(InputError, match="labels last"):
        alice.data.put("x", images)
    with pytest.raises(InputError, match="classes="):
        alice.data.put("x", images, labels)
    with pytest.raises(InputError, match="from 0 to 8"):
        alice.data.put("x", images, labels, classes=9)
    with pytest.raises(InputError, match="rows, not the same"):
        alice.data.put("x", images, labels[:-1], classes=10)
    with pytest.raises(RangeError, match="element 64 is NaN"):
        alice.data.put("x", np.r_[images[:1], np.full((1, 64), np.nan)], labels[:2], classes=10)
    with pytest.raises(InputError, match="not a name"):
        alice.data.put("../x", images, labels, classes=10)
    with pytest.raises(Refused, match="`nothing`"):
        alice.train("r", model, "nothing")
    alice.data.put("other", images[:, :32], labels.astype(float))
    assert alice.data.list()[0].tensors == [("values", [32], 20), ("labels", [1], 20)]
    with pytest.raises(Refused, match="a row of it has .* are wanted"):
        alice.train("r", model, "other")
    with pytest.raises(ConfigError, match="epochs"):
        alice.train("r", model, "other", epochs=0)
    with pytest.raises(InputError, match="runs\\(\\) lists it"):
        alice.approve("r")
    with pytest.raises(Refused, match="none of that name"):
        alice.get("r")
    alice.data.remove("other")
    assert alice.data.list() == [] and alice.runs() == []


def linear(weights):
    """The model of ``x @ weights``."""
    writer = Writer()
    writer.input("x", ["N", len(weights)], False)
    writer.node("MatMul", ["x", writer.constant(weights, "weights")], "y")
    writer.output("y")
    return trefoil.Model.from_onnx(writer.finish())


def test_answers_of_models_put_from_here_are_guarded(alice):
    alice.put("thousand", linear(np.full([2, 1], 1e3)))
    assert alice.infer("thousand", [[5.0, -2.0]]).item() == pytest.approx(3000, abs=0.1)
    with pytest.raises(RangeError, match="MatMul|layer"):
        alice.infer("thousand", [[9e7, 9e7]])


def test_tables_are_matched_by_the_names_of_their_columns(alice, tmp_path):
    generator = np.random.default_rng(1)
    values = generator.uniform([20, 0, 0.001], [80, 1, 0.009], [120, 3])
    weights = np.array([[0.05], [2.0], [300.0]])
    table = {name: values[:, at] for at, name in enumerate(["age", "smokes", "dose"])}
    schema = tmp_path / "schema.toml"
    columns = [("age", 50, 20), ("smokes", 0, 1), ("dose", 0, 0.01)]
    text = "".join(
        f'[[column]]\nname = "{name}"\nrange = [0, 120]\ncenter = {center}\nspread = {spread}\n'
        for name, center, spread in columns
    )
    schema.write_text(text + '[label]\nname = "risk"\n')
    scaled = np.stack([(table[name] - center) / spread for name, center, spread in columns], axis=1)
    alice.put("risk", linear(weights), schema=schema)
    expected = scaled @ weights
    turned = {name: table[name] for name in ["dose", "age", "smokes"]}
    # A table in any order, and an array in the owner's.
    for given in (turned, values):
        assert np.allclose(alice.infer("risk", given), expected, atol=1e-3)
    more = dict(turned, id=np.arange(120))
    assert np.allclose(alice.infer("risk", more, drop=["id"]), expected, atol=1e-3)
    far = dict(turned, age=np.full(120, 121.0))
    short = dict(turned, age=[1.0])
    for given, said in [
        (more, "column `id` is not among those that are wanted"),
        ({"age": table["age"], "dose": table["dose"]}, "no column `smokes`"),
        (far, "row 2, column `age`: 121 is outside of its range"),
        (short, "as many rows"),
        (values + 200, "column `age`"),
    ]:
        with pytest.raises(InputError, match=re.escape(said)):
            alice.infer("risk", given)

    # Classes that a network without a bias can tell apart.
    risk = (table["age"] > 50).astype(int)
    alice.data.put("patients", dict(turned, risk=risk), schema=schema, classes=2, metric_rows=1)
    how = {"epochs": 30, "batch_size": 20, "optimiser": trefoil.optim.SGD(0.5)}
    alice.train("risks", linear(np.zeros([3, 2])), "patients", **how).result(60)
    alice.publish("risks", "learnt")
    found = alice.infer("learnt", turned)
    assert np.mean(np.argmax(found, axis=1) == risk) > 0.9
    for arguments, said in [
        (dict(label="risks", classes=2), "no column `risks`, but `risk`: did you mean that?"),
        (dict(label="risk", classes=2, schema=schema, drop=["dose"]), "no column `dose`"),
        (dict(classes=2), "nothing says what its label is"),
    ]:
        with pytest.raises(InputError, match=re.escape(said)):
            alice.data.put("bad", dict(turned, risk=risk), **arguments)
    with pytest.raises(InputError, match="one table"):
        alice.data.put("bad", values, risk, label="risk", classes=2)

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(turned, index=[f"p{at}" for at in range(120)])
    answered = alice.infer("learnt", frame)
    assert list(answered.index) == list(frame.index)
    assert np.allclose(answered.to_numpy(), found, atol=1e-3)

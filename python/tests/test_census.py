"""Tables from end to end: two offices put files with other columns and orders, and a model of both answers a third file."""

import gzip
import json
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from test_cluster import DATA, PROGRAM, made, served

import trefoil
from trefoil import learn

pytestmark = pytest.mark.skipif(not PROGRAM, reason="TREFOIL_PROGRAM does not name the program `trefoil`")

TEXTS = ["workclass", "marital-status", "occupation", "relationship", "race", "sex"]
NUMBERS = ["age", "education-num", "hours-per-week", "capital-gain", "capital-loss"]
CENSUS = pd.read_csv(gzip.open(DATA / "census.csv.gz"), dtype={"person": str}, keep_default_na=False)
KNOWN, NEW = CENSUS[:9000], CENSUS[9000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("census") / "files")
    servers = [served(folder, party) for party in range(3)]
    # The registry knows 8,500 people, the tax office 8,200, in another order; 7,700 are known to both.
    registry = KNOWN[:8500][["relationship", "age", "sex", "race", "occupation", "person", "hours-per-week", "workclass", "education-num",
                             "marital-status"]]
    taxes = KNOWN[800:].sample(frac=1, random_state=1)[["capital-loss", "over-50k", "person", "capital-gain"]]
    registry.to_csv(folder / "registry.csv", index=False)
    taxes.to_csv(folder / "taxes.csv", index=False, sep=";")
    # The same columns in another order again, and one that no network sees.
    NEW[[*reversed(TEXTS), "native-country", *reversed(NUMBERS), "over-50k"]].to_csv(folder / "new.csv", index=False)
    yield folder
    [server.kill() for server in servers]
    [server.wait() for server in servers]


def command(folder, who, *words):
    """What the program answers a client."""
    words = ["--json", "--config", str(folder / f"client-{who}/client.toml"), *map(str, words)]
    deadline = time.monotonic() + 30
    while True:
        ran = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120)
        if ran.returncode == 0:
            return json.loads(ran.stdout) if ran.stdout.strip() else None
        # The servers may not have met yet.
        if time.monotonic() > deadline or "meet" not in ran.stderr and "reach" not in ran.stderr and "link" not in ran.stderr:
            raise AssertionError(ran.stderr)
        time.sleep(0.2)


def columns(table):
    """The numbers of a table's rows as the joined data sets have them, the registry's first."""
    of = lambda name: [(f"{name} {text}", table[name] == text) for text in sorted(set(KNOWN[:8500][name]))]
    named = []
    for name in ["relationship", "age", "sex", "race", "occupation", "hours-per-week", "workclass", "education-num", "marital-status",
                 "capital-loss", "capital-gain"]:
        named += of(name) if name in TEXTS else [(name, table[name])]
    return pd.DataFrame({name: values.astype(float) for name, values in named})


def test_two_offices_put_their_files_and_a_model_of_both_answers_a_third(folder):
    subprocess.run([PROGRAM, "store", "key", folder / "join.key"], check=True, capture_output=True)
    # Steps see rows in the order of their keys, which are hashes under it: the same in each run.
    (folder / "join.key").write_text("c0" * 32 + "\n")
    keyed = ["--key", "person", "--key-secret", folder / "join.key"]
    subprocess.run([PROGRAM, "data", "schema", folder / "registry.csv", "--drop", "person", "--output", folder / "registry.toml"],
                   check=True, capture_output=True)
    command(folder, "alice", "data", "put", "registry", folder / "registry.csv", "--schema", folder / "registry.toml", "--only", "values",
            *keyed)
    command(folder, "bob", "data", "put", "taxes", folder / "taxes.csv", "--separator", ";", "--label", "over-50k", "--classes", 2, *keyed)
    command(folder, "bob", "data", "share", "taxes", "--with", "alice")
    alice, bob = (trefoil.connect(folder / f"client-{name}/client.toml") for name in ("alice", "bob"))
    both = KNOWN[800:8500]
    numbers = columns(both)
    join = trefoil.Join("registry", "taxes", rows=len(both))

    def study(rows):
        assert rows.columns[:3] == ["relationship", "age", "sex"] and rows.label == "over-50k"
        scaled = learn.StandardScaler().fit_transform(rows.values)
        model = learn.LogisticRegression(classes=[0, 1], C=0.1).fit(scaled, rows.target)
        return {"coefficients": model.coef_, "converged": model.converged_, "ages": rows["age"].sum()}

    run = alice.analyse("study", study, join)
    command(folder, "bob", "run", "approve", "study", run.fingerprint)
    run.result(timeout=240)
    found = alice.get("study")
    scaled = (numbers - numbers.mean()) / numbers.std(ddof=0)
    clear = LogisticRegression(C=0.1, tol=1e-9, max_iter=10_000).fit(scaled, both["over-50k"])
    assert found["converged"] and abs(found["ages"] - both["age"].sum()) < 0.1
    np.testing.assert_allclose(found["coefficients"].ravel(), clear.coef_.ravel(), atol=2e-3)

    start = trefoil.Model.from_onnx(DATA / "census.onnx")
    rate = trefoil.optim.Cosine(0.1, steps=3 * (len(both) // 100))
    run = alice.train("income", start, join, epochs=3, batch_size=100, optimiser=trefoil.optim.SGD(rate, momentum=0.9), standardize=True)
    bob.approve(run.name, run.fingerprint)
    run.result(timeout=240)
    alice.publish("income", "over-50k")
    answered = command(folder, "alice", "infer", "--model", "over-50k", "--label", "over-50k", "--drop", "native-country", folder / "new.csv")
    ours = np.array([one["top"][0]["class"] for one in answered["answers"]])
    scaled = (columns(NEW) - numbers.mean()) / numbers.std(ddof=0)
    theirs = clear.predict(scaled)
    truth = NEW["over-50k"].to_numpy()
    assert (ours == theirs).mean() > 0.98, (ours == theirs).mean()
    assert abs((ours == truth).mean() - (theirs == truth).mean()) < 0.005
    alice.close()
    bob.close()

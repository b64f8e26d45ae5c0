"""Analyses at a cluster's servers: statistics and estimators on data that clients have put, with their consent."""

import gzip
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.linear_model import LogisticRegression
from test_cluster import DATA, PROGRAM, made, served

import trefoil
from trefoil import InputError, Refused, Unreachable, functions, learn, stats

pytestmark = pytest.mark.skipif(not PROGRAM, reason="TREFOIL_PROGRAM does not name the program `trefoil`")

CELLS = pd.read_csv(gzip.open(DATA / "cells.csv.gz"))
COLUMNS = [name for name in CELLS.columns if name not in ("patient", "malignant")]
PAIRS = 430


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("analyses") / "files")
    config = folder / "party-2/party.toml"
    config.write_text(config.read_text() + '\n[audit]\nfile = "audit.jsonl"\n')
    servers = [served(folder, party) for party in range(3)]
    yield folder, servers
    [server.kill() for server in servers]
    [server.wait() for server in servers]


def client(folder, name):
    return trefoil.connect(folder[0] / f"client-{name}/client.toml")


@pytest.fixture(scope="module")
def owners(folder, tmp_path_factory):
    """A hospital, with ten columns and the diagnosis, and a laboratory with twenty others, in another order."""
    secret = tmp_path_factory.mktemp("secret") / "join.key"
    subprocess.run([PROGRAM, "store", "key", str(secret)], check=True, capture_output=True)
    alice, bob = client(folder, "alice"), client(folder, "bob")
    hospital = CELLS[:440][["patient", *COLUMNS[:10], "malignant"]]
    laboratory = CELLS[:460][["patient", *COLUMNS[10:]]].sample(frac=1, random_state=1)
    keyed = dict(key="patient", key_secret=secret, readers=["carol"])
    deadline = time.monotonic() + 30
    while True:
        try:
            alice.data.put("hospital", hospital, label="malignant", classes=2, **keyed)
            break
        except (Unreachable, Refused):
            # The servers may not have met yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    bob.data.put("laboratory", laboratory, only="values", **keyed)
    for owner, rows in (alice, CELLS[:300]), (bob, CELLS[300:500]):
        owner.data.put(f"rows of {owner.name}".replace(" ", "-"), rows[[*COLUMNS[:3], "malignant"]], label="malignant", readers=["carol"])
    yield alice, bob
    alice.close(wait=False), bob.close(wait=False)


@pytest.fixture(scope="module")
def carol(folder, owners):
    with client(folder, "carol") as carol:
        yield carol


def consent(run, *owners):
    for owner in owners:
        owner.approve(run.name, run.fingerprint)


def test_statistics_of_the_rows_of_two_owners_are_those_of_all_rows(carol, owners):
    def study(rows):
        assert rows.columns == COLUMNS[:3] and rows.label == "malignant" and len(rows) == 500
        radius, malignant = rows[COLUMNS[0]], rows["malignant"]
        return {
            "means": rows.values.mean(axis=0),
            "quartiles": np.quantile(radius, [0.25, 0.5, 0.75]),
            "correlation": stats.correlation(radius, rows[COLUMNS[1]]),
            "by group": stats.group_by(malignant, [0, 1], radius, least=5),
            "large": stats.histogram(radius, [0, 15, 20, 1e3], least=200),
            "t": stats.t_test(radius[:300], radius[300:]),
            "tests": [stats.mann_whitney(radius[:50], radius[450:])[1]],
            "malignant": (malignant > 0.5).sum(),
            "largest": functions.top_k(radius, 3)[0],
        }

    run = carol.analyse("two-owners", study, ["rows-of-alice", "rows-of-bob"], recipients=["alice"])
    assert run.info.epochs is None and set(run.missing) <= {"alice", "bob"}
    consent(run, *owners)
    progress = run.result(timeout=120)
    assert progress[-1].step == progress[-1].steps and all(one.loss is None for one in progress)
    rows = CELLS[:500]
    for reader in carol, owners[0]:
        found = reader.get("two-owners")
        np.testing.assert_allclose(found["means"], rows[COLUMNS[:3]].mean(), atol=1e-4)
        np.testing.assert_allclose(found["quartiles"], rows[COLUMNS[0]].quantile([0.25, 0.5, 0.75]), atol=1e-4)
        np.testing.assert_allclose(found["correlation"], np.corrcoef(rows[COLUMNS[0]], rows[COLUMNS[1]]), atol=1e-3)
        np.testing.assert_allclose(found["largest"], np.sort(rows[COLUMNS[0]])[:-4:-1], atol=1e-4)
        of = rows.groupby("malignant")[COLUMNS[0]]
        np.testing.assert_array_equal(found["by group.counts"], of.count())
        np.testing.assert_allclose(found["by group.means"], of.mean(), atol=1e-3)
        assert found["large"].mask.all() and not found["by group.means"].mask.any()
        radius = rows[COLUMNS[0]].to_numpy()
        wanted = scipy.stats.ttest_ind(radius[:300], radius[300:], equal_var=False)
        np.testing.assert_allclose([found["t"].statistic, found["t"].pvalue], [wanted.statistic, wanted.pvalue], atol=1e-3)
        wanted = scipy.stats.mannwhitneyu(radius[:50], radius[450:], use_continuity=False)
        np.testing.assert_allclose(found["tests.0"].pvalue, wanted.pvalue, atol=1e-3)
        assert found["malignant"].dtype == np.int64 and found["malignant"] == rows["malignant"].sum()
    with pytest.raises(Refused, match="there is no such model|belongs to"):
        owners[1].get("two-owners")
    with pytest.raises(Refused, match="an analysis, of which no model can be made"):
        carol.publish("two-owners", "model")
    with pytest.raises(InputError, match="leave into= out"):
        carol.get("two-owners", into=trefoil.Model.from_onnx(DATA / "digits.onnx"))


def risk(rows):
    model = learn.LogisticRegression(classes=[0, 1], C=0.5).fit(learn.StandardScaler().fit_transform(rows.values), rows.target)
    return {"coef": model.coef_, "intercept": model.intercept_, "converged": model.converged_}


def test_an_estimator_is_fitted_to_joined_rows_also_when_a_server_is_killed(carol, owners, folder):
    join = trefoil.Join("hospital", "laboratory", rows=PAIRS)
    run = carol.analyse("risk", risk, join)
    consent(run, *owners)
    # Some steps are done, and then a server is gone for good: its successor knows what was kept, or begins again.
    next(run.follow())
    where, servers = folder
    servers[1].kill()
    servers[1].wait()
    servers[1] = served(where, 1)
    run.result(timeout=240)
    found = carol.get("risk")
    assert found["converged"]
    # The joined rows are those of the lowest keys, so the fit of all rows that both know is near, not equal.
    rows = CELLS[:440]
    columns = rows[COLUMNS].to_numpy()
    columns = (columns - columns.mean(0)) / columns.std(0)
    wanted = LogisticRegression(C=0.5, tol=1e-8, max_iter=10_000).fit(columns, rows["malignant"])
    assert np.corrcoef(found["coef"].ravel(), wanted.coef_.ravel())[0, 1] > 0.98
    # The same call finds the run, done.
    again = carol.analyse("risk", risk, join)
    assert again.fingerprint == run.fingerprint and again.result(timeout=30) == []
    with pytest.raises(Refused, match="another run of that name"):
        carol.analyse("risk", lambda rows: rows.values.sum(), join)


def test_a_join_goes_well_although_a_server_is_killed_in_the_middle_of_it(carol, owners, folder, tmp_path):
    subprocess.run([PROGRAM, "store", "key", str(tmp_path / "key")], check=True, capture_output=True)
    keyed = dict(key="id", key_secret=tmp_path / "key", readers=["carol"])
    count = 30_000
    left = pd.DataFrame({"id": np.arange(count), "a": np.arange(count) % 7, "y": 0.0})
    right = pd.DataFrame({"id": np.arange(count)[::-1] + 10_000, "b": np.arange(count) % 5})
    owners[0].data.put("left", left, label="y", **keyed)
    owners[1].data.put("right", right, only="values", **keyed)
    both = left.merge(right, on="id")
    run = carol.analyse("killed", lambda rows: (rows["a"] * rows["b"]).sum(), trefoil.Join("left", "right", rows=len(both)))
    consent(run, *owners)
    where, servers = folder
    audit = where / "party-2/audit.jsonl"
    joins = lambda: sum('"join"' in line and '"killed"' in line for line in audit.read_text().splitlines())
    while not joins():
        time.sleep(0.01)
    servers[2].kill()
    servers[2].wait()
    assert not run._seen, "the server was killed before the join was done"
    servers[2] = served(where, 2)
    run.result(timeout=240)
    assert carol.get("killed")["result"] == pytest.approx((both["a"] * both["b"]).sum(), abs=1)
    assert joins() == 2


def test_what_an_analysis_cannot_do_is_said_before_anything_is_sent(carol, owners):
    rows = "rows-of-alice"
    known = len(carol.runs())
    for program, reason in [
        (lambda rows: rows.values.mean().reveal(), "shows its results alone"),
        (lambda rows: rows.values + trefoil.local().__enter__().secret([1.0]), "session"),
        (lambda rows: rows.values.mean(axis=0)._mpc.secret(np.ones(3)), "takes its secret numbers from data sets"),
        (lambda rows: rows["no column"], "there is no column 'no column'; the columns are"),
        (lambda rows: 3.0, "float from the analysis is no result"),
        (lambda rows: {"n": len(rows)}, "int for 'n' is no result"),
        (lambda rows: {}, "0 results|0 steps"),
        (lambda rows: rows.values, "the rows themselves|0 steps"),
        (lambda rows: rows.values @ rows.values, "shape"),
    ]:
        with pytest.raises((InputError, Refused, ValueError), match=reason):
            carol.analyse("wrong", program, rows)
    assert len(carol.runs()) == known
    with pytest.raises(Refused, match="numbers would leave, and its owner allows 2"):
        owners[0].data.put("few", CELLS[:50][[COLUMNS[0], "malignant"]], label="malignant", most_numbers_out=2, readers="everyone")
        carol.analyse("much", lambda rows: rows.values[:3] * 2, "few")


def test_an_analysis_is_tried_in_a_local_session_first():
    def study(rows):
        return {"mean": rows["age"].mean(), "share": rows.target.mean(), "both": (rows["age"] * rows["died"]).sum()}

    age, died = np.array([30.0, 50, 70, 90]), np.array([0, 0, 1, 1])
    with trefoil.local() as mpc:
        rows = trefoil.Rows(mpc.secret(age.reshape(4, 1)), mpc.secret(died), columns=["age"], label="died")
        assert len(rows) == 4 and "age" in repr(rows)
        found = {name: float(value.reveal()) for name, value in study(rows).items()}
        with pytest.raises(InputError, match="2 names of columns for values of shape"):
            trefoil.Rows(rows.values, columns=["age", "dose"])
    assert found == {"mean": 60.0, "share": 0.5, "both": 160.0}

"""Sessions: what is public, what is refused, interrupts, files, costs, errors."""

import os
import pickle
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import ConfigError, Error, InputError, RangeError, RevealError


def test_what_becomes_no_array_of_real_numbers_is_refused(mpc):
    class Tensor:
        """As PyTorch's that require a gradient."""

        def detach(self):
            return self

        def __array__(self, *_, **__):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")

    with pytest.raises(trefoil.InputError, match=r"x.detach\(\)"):
        mpc.secret(Tensor())
    for wrong in (lambda: mpc.secret(np.array([1j]), dtype=float), lambda: mpc.secret(["a"]), lambda: mpc.secret([[1], [1, 2]])):
        with pytest.raises(trefoil.InputError):
            wrong()


def test_a_number_outside_of_a_functions_domain_is_an_error(mpc):
    functions = {
        "log: element 1 is 0": np.log, "log: element 2 is -1.5": lambda x: np.log10(x[[0, 0, 2]]), "log: element 2 is -0.5": np.log1p,
        "sqrt: element 2 is -1.5": np.sqrt, "inv_sqrt: element 1": lambda x: x**-0.5, "reciprocal: element 1 is 0": lambda x: 1 / x,
        "div: element 1 is 0": lambda x: np.array([1.0, 2.0, 3.0]) / x, "pow: element 1 is 0": lambda x: x**-3,
        "powf: element 1 is 0": lambda x: x**-0.3, "exp: element 0 is 16": lambda x: np.exp(x * 8),
        "log: element 1 is 0; its domain is x > 0": lambda x: x ** (x * 0 + 2),
    }
    with trefoil.local(check=False) as unchecked:
        x, good = mpc.secret([2.0, 0.0, -1.5]), mpc.secret([0.5, 0.125, 0.75])
        for message, function in functions.items():
            # On shares some number comes out.
            function(unchecked.secret(x.reveal())).reveal()
            with pytest.raises(trefoil.RangeError, match=message):
                function(x)
            function(good).reveal()
    with pytest.raises(trefoil.RangeError, match="one_hot: element 1 is 3; its domain is the classes"):
        trefoil.functions.one_hot(mpc.secret([2, 3]), 3)
    assert np.abs(np.sqrt(x * 0).reveal()).max() < 1e-3 and np.std(x - x).reveal() < 1e-3


def test_what_is_shown_is_shape_and_format_and_never_a_number(mpc):
    x = mpc.secret([[1234.5, -4321.25]])
    assert repr(x) == str(x) == "Secret(shape=(1, 2), dtype=float64, frac_bits=20)"
    assert "1234" not in f"{x} {x!r} {mpc!r} {vars(type(x)).get('__dict__')}"
    assert (x.shape, x.ndim, x.size, len(x), x.dtype) == ((1, 2), 2, 2, 1, np.float64)


@pytest.mark.parametrize(
    "need",
    [np.asarray, bool, float, int, list(range(3)).__getitem__, lambda x: x.item(), lambda x: x.tolist(),
     lambda x: 1.0 in x, complex, lambda x: np.ones(1)[x], lambda x: f"{x:.2f}"],
)
def test_whatever_needs_numbers_says_reveal(mpc, need):
    with pytest.raises((RevealError, TypeError, IndexError, InputError), match="reveal|where|secret|index"):
        need(mpc.secret(1.0))


@pytest.mark.parametrize("need", [round, lambda x: x // 2, lambda x: 7 % x, lambda x: divmod(x, 2)])
def test_what_has_no_secret_form_says_so(mpc, need):
    with pytest.raises(TypeError, match="no rounding and no division with remainder"):
        need(mpc.secret([5, 7]))


def test_what_is_secret_or_public_in_the_wrong_place_is_said(mpc):
    x = mpc.secret([1.0, 2.0])
    with pytest.raises(InputError, match="secret already"):
        mpc.secret(x)
    with pytest.raises(InputError, match="one is a list"):
        mpc.reveal([x, x])
    for bound in (-1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="bound is"):
            mpc.secret([1.0], bound=bound)


def test_a_class_that_makes_arrays_of_others_leaves_secrets_alone(mpc):
    class Column(np.ndarray):
        """As a column of pandas does: it defers to what claims more."""

        def __mul__(self, other):
            return NotImplemented if getattr(other, "__pandas_priority__", 0) > 3000 else super().__mul__(other)

    column = np.array([2.0, 3.0]).view(Column)
    assert (column * mpc.secret([1.0, 2.0])).reveal().tolist() == [2.0, 6.0]


def test_secret_arrays_are_not_pickled_and_not_hashed(mpc):
    with pytest.raises(TypeError, match="save"):
        pickle.dumps(mpc.secret(1.0))
    with pytest.raises(TypeError):
        hash(mpc.secret(1.0))


@pytest.mark.parametrize(
    "values",
    [1, 1.5, True, [1, 2], [[1.5], [2.5]], (1, 2.5), np.float32(2.5), np.arange(6, dtype=np.uint8).reshape(2, 3),
     np.arange(6.0).reshape(2, 3).T, np.arange(10.0)[::-2], np.array([], float), np.float16([1.5])],
)
def test_whatever_numpy_takes_can_be_made_secret(mpc, values):
    want = np.asarray(values)
    got = mpc.secret(values).reveal()
    assert got.shape == want.shape and got.dtype.kind == ("i" if want.dtype.kind == "u" else want.dtype.kind)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("values", [[1j], ["a"], [None], np.datetime64("2020-01-01"), object()])
def test_what_is_no_number_is_refused_in_words(mpc, values):
    with pytest.raises(InputError, match="truth values, integers and real numbers"):
        mpc.secret(values)


def test_numbers_out_of_range_are_named_by_their_place(mpc):
    with pytest.raises(RangeError, match="element 1 is NaN"):
        mpc.secret([1.0, float("nan")])
    with pytest.raises(RangeError, match="element 0 is 1"):
        mpc.secret([1e15])
    with pytest.raises(RangeError, match="not below 2\\^62"):
        mpc.secret([2**62])


def test_a_session_goes_on_after_an_error(mpc):
    x = mpc.secret([1.0, 2.0, 3.0])
    for _ in range(3):
        with pytest.raises(ValueError, match="do not fit"):
            x + mpc.secret([1.0, 2.0])
        with pytest.raises(Error):
            mpc._session.call("no such function", [x._handle], None)
    assert np.array_equal((x + x).reveal(), [2, 4, 6])


def test_bytes_and_rounds_are_those_of_the_library(mpc):
    x = mpc.secret(np.zeros(3072))
    mpc.cost()
    x + x
    assert (lambda c: (c.bytes, c.rounds))(mpc.cost()) == (0, 0)
    x * x
    cost = mpc.cost()
    # 252 bits for each number in two rounds, of all parties together.
    assert (cost.bytes, cost.rounds) == (252 * 3072 // 8, 2)
    assert [(step.name, step.bytes, step.calls) for step in cost.steps] == [("mul", cost.bytes, 1)]
    assert "mul" in str(cost) and cost.seconds > 0
    assert mpc.cost().bytes == 0


def test_a_bound_makes_comparisons_cheaper_and_is_checked(mpc):
    x = mpc.secret(np.arange(100.0))
    mpc.cost()
    x < 5
    wide = mpc.cost().bytes
    y = x.with_bound(128)
    assert y.width < x.width
    mpc.cost()
    assert np.array_equal((y < 5).reveal(), np.arange(100) < 5)
    assert mpc.cost().bytes < wide
    with pytest.raises(RangeError):
        x.with_bound(1.0) < 5


def test_a_number_out_of_range_is_an_error_and_the_session_goes_on(mpc):
    big = mpc.secret([1.0, 3e6])
    assert np.allclose((big + big).reveal(), [2, 6e6])
    with pytest.raises(RangeError, match="element 1 .* 2\\^62"):
        big * big
    assert np.allclose((big * 2).reveal(), [2, 6e6])
    y = mpc.secret([2.0])
    assert np.allclose((y * y).reveal(), [4.0])
    with trefoil.local(check=False) as unchecked:
        big = unchecked.secret([1.0, 3e6])
        # Nobody sees that the number is wrong.
        assert abs((big * big).reveal()[1] - 9e12) > 1


def test_a_fault_that_the_parties_find_has_their_error(mpc):
    x = mpc.secret([[1.0, 2.0]])
    with pytest.raises(trefoil.InputError):
        x @ mpc.secret(np.ones((3, 3)))


def test_the_reference_computes_from_the_numbers_that_the_parties_had(mpc):
    """Rounding differs. A call that depends on it is checked on the parties' numbers, not on the reference's."""
    x = mpc.secret(np.full(1000, 1 / 3))
    for _ in range(20):
        parts = x * 0.7 - x * 0.3 - x * 0.4
        # Some are one unit above 0, others below.
        near = np.sign(parts).reveal()
        assert np.array_equal((np.sign(parts) * 2**21).reveal(), near * 2**21)


def test_the_reference_adds_nothing_to_the_cost(mpc):
    x = mpc.secret([2.0])
    mpc.cost()
    x * x
    (step,) = mpc.cost().steps
    assert (step.name, step.calls) == ("mul", 1)


def test_shares_are_saved_and_loaded(mpc, tmp_path):
    for values in ([[1.5, -2.0]], [3, 4], [True, False]):
        x = mpc.secret(values)
        files = x.save(tmp_path / "x")
        assert [Path(f).name for f in files] == ["x.party0", "x.party1", "x.party2"]
        with trefoil.local() as other:
            y = other.load(tmp_path / "x")
            assert y.dtype == x.dtype and np.array_equal(y.reveal(), values)
    if os.name == "posix":
        assert Path(files[0]).stat().st_mode & 0o777 == 0o600


def test_shares_are_saved_under_a_key(mpc, tmp_path):
    for name, digit in (("one", "a"), ("two", "b")):
        (tmp_path / name).write_text(digit * 64 + "\n")
        (tmp_path / name).chmod(0o600)
    x = mpc.secret([1.5, -2.0])
    files = x.save(tmp_path / "x", key=tmp_path / "one")
    assert all(Path(f).read_bytes().startswith(b"trefoil-sealed") for f in files)
    assert np.array_equal(mpc.load(tmp_path / "x", key=tmp_path / "one").reveal(), [1.5, -2.0])
    with pytest.raises(InputError, match="does not open"):
        mpc.load(tmp_path / "x", key=tmp_path / "two")
    with pytest.raises(InputError, match="it is encrypted: give the key"):
        mpc.load(tmp_path / "x")
    x.save(tmp_path / "x")
    with pytest.raises(InputError, match="not encrypted"):
        mpc.load(tmp_path / "x", key=tmp_path / "one")


def test_damaged_and_mixed_shares_are_refused_by_name(mpc, tmp_path):
    mpc.secret([1.0, 2.0]).save(tmp_path / "x")
    mpc.secret([1.0, 2.0]).save(tmp_path / "y")
    with pytest.raises(InputError, match="z.party0"):
        mpc.load(tmp_path / "z")
    x, y = (tmp_path / f"{name}.party1" for name in "xy")
    kept = x.read_bytes()
    x.write_bytes(y.read_bytes())
    with pytest.raises(InputError, match="different arrays"):
        mpc.load(tmp_path / "x")
    x.write_bytes((tmp_path / "x.party2").read_bytes())
    with pytest.raises(InputError, match="share of party 2"):
        mpc.load(tmp_path / "x")
    x.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(InputError, match="does not fit the other"):
        mpc.load(tmp_path / "x")
    x.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(InputError, match="x.party1"):
        mpc.load(tmp_path / "x")


def test_numbers_are_shown_to_one_party(mpc):
    assert np.array_equal(mpc.secret([1.0]).reveal(to=2), [1.0])
    assert [list(x) for x in mpc.reveal(mpc.secret([1]), mpc.secret([2.5]))] == [[1], [2.5]]
    with pytest.raises(InputError, match="0, 1 or 2"):
        mpc.secret([1.0]).reveal(to=3)


def test_sessions_are_apart_and_end():
    with trefoil.local() as one, trefoil.local() as other:
        with pytest.raises(InputError, match="different sessions"):
            one.secret(1.0) + other.secret(1.0)
    with pytest.raises(Error, match="closed"):
        one.secret(1.0)


@pytest.mark.parametrize(
    "options",
    [{"engine": "abacus"}, {"network": "moon"}, {"truncation": "up"}, {"profile": "x"}, {"frac_bits": 40}, {"threads": 0}],
)
def test_options_that_do_not_exist_are_named(options):
    with pytest.raises(ConfigError, match=str(next(iter(options.values())))):
        trefoil.local(**options)


@pytest.mark.parametrize("truncation", ["default", "early", "exact", "dither"])
def test_products_are_rounded_as_the_session_says(truncation):
    with trefoil.local(truncation=truncation, frac_bits=12) as mpc:
        x = np.linspace(-3, 3, 400)
        a, b = np.floor(x * 4096), np.floor(x[::-1] * 4096)
        product = mpc.secret(a / 4096) * mpc.secret(b / 4096)
        units = product.reveal() * 4096 - a * b / 4096
        low, high = {"exact": (-1, 0), "early": (-1.5, 1.5)}.get(truncation, (-1, 1))
        assert low <= units.min() and units.max() <= high and units.any()
        assert product.frac_bits == 12


def test_a_session_for_slow_links_takes_fewer_rounds_to_the_same_numbers():
    rounds = {}
    for profile in "bytes", "slow-links":
        with trefoil.local(profile=profile) as mpc:
            x = np.linspace(0.5, 8, 100)
            secret = mpc.secret(x)
            mpc.cost()
            y = np.sqrt(secret)
            rounds[profile] = mpc.cost().rounds
            assert np.abs(y.reveal() - np.sqrt(x)).max() < 2**-16
    assert rounds["slow-links"] <= 14 < rounds["bytes"]


def test_a_session_whose_parties_prove_their_messages_gives_the_same_numbers():
    x = np.linspace(-4, 4, 64).reshape(8, 8)
    sent = {}
    for security in "semi-honest", "checked":
        with trefoil.local(security=security) as mpc:
            secret = mpc.secret(x)
            product = secret @ secret.T
            assert np.abs(product.reveal() - x @ x.T).max() < 2**-16
            assert np.abs(secret.sigmoid().reveal() - 1 / (1 + np.exp(-x))).max() < 2**-16
            sent[security] = mpc.cost().bytes
    assert sent["checked"] > sent["semi-honest"]
    with pytest.raises(trefoil.ConfigError, match="security `none`"):
        trefoil.local(security="none")


def test_a_shaped_network_takes_its_time():
    with trefoil.local(network="wan") as mpc:
        x = mpc.secret([1.0])
        began = time.perf_counter()
        x * x
        # Two rounds of 20 ms one way.
        assert time.perf_counter() - began >= 0.04


def test_threads_of_python_take_turns(mpc):
    wrong = []

    def work(n):
        x = mpc.secret(np.full(50, n))
        for _ in range(10):
            if not np.array_equal((x * x).reveal(), np.full(50, n * n)):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_python_runs_while_a_session_computes(mpc):
    x = mpc.secret(np.zeros((400, 400)))
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    np.exp(x)
    done.set()
    thread.join()
    assert len(ticks) > 5


INTERRUPTED = """
import os, signal, threading, time, numpy as np, trefoil
# Python ignores the signal where whoever started it does, as a shell does for jobs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
with trefoil.local(network=NETWORK) as mpc:
    x = mpc.secret(np.ones(SIZE))
    def interrupt():
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    began = time.perf_counter()
    try:
        while True:
            np.exp(x)
    except KeyboardInterrupt:
        took = time.perf_counter() - began - 1.0
    # The session and its secrets are still there.
    assert (x[:2] + x[:2]).reveal().tolist() == [2, 2]
    print(f"took {took:.3f}")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("network, size", [(None, 1_000_000), ("wan", 1000)])
def test_ctrl_c_ends_a_long_call_within_half_a_second(network, size):
    script = INTERRUPTED.replace("NETWORK", repr(network)).replace("SIZE", str(size))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert float(re.search(r"took (\S+)", ran.stdout)[1]) < 0.5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_told_why_it_has_no_session(mpc):
    x = mpc.secret([1.0])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            x.reveal()
        except Error as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert b"fork" in os.read(read, 1000)
    assert x.reveal() == [1.0]


def test_functions_without_a_secret_form_are_named(mpc):
    x = mpc.secret(np.eye(2))
    with pytest.raises(TypeError, match="numpy.linalg.svd|svd"):
        np.linalg.svd(x)
    with pytest.raises(TypeError, match="np.arctan"):
        np.arctan(x)
    with pytest.raises(TypeError, match="out"):
        np.add(x, x, out=np.zeros((2, 2)))
    with pytest.raises(TypeError, match="where"):
        np.sum(x, where=np.eye(2, dtype=bool))
    with pytest.raises(InputError, match="a place is secret"):
        np.ones(3)[0:1] + x[mpc.secret(1)]


def test_dropped_secrets_give_their_memory_back():
    resource = pytest.importorskip("resource")
    with trefoil.local() as mpc:
        x = mpc.secret(np.zeros(200_000))
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20):
            x + x
        before = peak()
        for _ in range(200):
            x + x
        # 200 results of three parties, two words each, would be 1.9 GB.
        assert peak() - before < 200_000


def test_engines_are_named_and_a_missing_device_is_an_error():
    with trefoil.local(engine="cpu") as mpc:
        assert (mpc.secret([2.0]) * 3).reveal() == [6.0]
    with pytest.raises(ConfigError, match="`auto`, `cpu`, or `cuda:`"):
        trefoil.local(engine="abacus")
    with pytest.raises(ConfigError, match="engine `cuda:4096`"):
        trefoil.local(engine="cuda:4096")


def test_numbers_go_out_without_a_copy(mpc):
    shown = mpc.secret(np.zeros((100, 100))).reveal()
    # The array is a view of what the session decoded, which nobody else holds.
    assert not shown.flags.owndata and shown.flags.writeable and shown.base is not None

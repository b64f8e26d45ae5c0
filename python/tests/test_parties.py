"""Sessions of any number of parties with a dealer."""

from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import ConfigError, InputError, RangeError

DIGITS = Path(__file__).parents[2] / "models/data/digits.onnx"


@pytest.fixture(scope="module", params=[2, 3, 5])
def parties(request):
    with trefoil.local(parties=request.param) as mpc:
        yield mpc


def test_functions_give_the_same_numbers_for_any_number_of_parties(parties, rng):
    x, y = rng.uniform(-4, 4, (2, 6, 6))
    a, b = parties.secret(x), parties.secret(y, owner=parties.parties - 1)
    assert np.abs((a @ b).reveal() - x @ y).max() < 2**-16
    assert np.abs(a.sigmoid().reveal() - 1 / (1 + np.exp(-x))).max() < 2**-16
    assert np.abs(np.maximum(a, 0).reveal() - np.maximum(x, 0)).max() < 2**-19
    assert np.array_equal((a < b).reveal(), x < y)
    assert np.array_equal(np.argmax(a, axis=1).reveal(), np.argmax(x, axis=1))
    assert np.abs(np.sort(a, axis=1).reveal() - np.sort(x, axis=1)).max() < 2**-19


def test_the_session_says_who_computes(parties):
    assert parties.party is None
    assert f"{parties.parties} parties and a dealer in this process" in repr(parties)
    with trefoil.local() as three:
        assert (three.parties, "three parties" in repr(three)) == (3, True)


def test_one_party_sees_numbers_that_are_shown_to_it(parties):
    last = parties.parties - 1
    assert np.array_equal(parties.secret([1.0, 2.0]).reveal(to=last), [1, 2])
    for call in (lambda x: x.reveal(to=last + 1), lambda _: parties.secret([1.0], owner=last + 1)):
        with pytest.raises(InputError, match=f"`(to|owner)` is a party: 0.* {last}$"):
            call(parties.secret([1.0]))


def test_a_relu_costs_what_the_protocol_says(parties):
    count = 6400
    x = parties.secret(np.linspace(-1, 1, count))
    parties.cost()
    y = x.relu()
    cost = parties.cost()
    assert np.abs(y.reveal() - np.maximum(np.linspace(-1, 1, count), 0)).max() < 2**-20
    assert cost.rounds == 4
    # At most 103 bits from each party to each other, and the dealer's corrections to one of them.
    pairs = parties.parties * (parties.parties - 1)
    between = count * pairs * 103 // 8
    assert 0 < cost.bytes < between + count * 64


def test_a_model_runs_and_recognises_digits(parties, rng):
    model = trefoil.Model.from_onnx(DIGITS)
    images = rng.uniform(0, 1, (3, 1, 8, 8))
    shown = parties.run(model, images).reveal()
    assert np.abs(shown - model.evaluate(images)).max() < 2**-9


def test_secrets_outlive_a_call_that_fails(parties):
    x = parties.secret([1.5, -2.0])
    with pytest.raises(InputError):
        x @ parties.secret(np.ones((3, 3)))
    assert np.array_equal((x + x).reveal(), [3, -4])
    assert np.abs((x * x).reveal() - [2.25, 4]).max() < 2**-19


def test_the_reference_beside_the_parties_finds_a_range_that_breaks(parties):
    x = parties.secret([2.0**20])
    assert np.abs((x * 2.0).reveal() - 2.0**21).max() < 2**-18
    with pytest.raises(RangeError):
        x * x * x


def test_saved_shares_are_read_by_sessions_of_the_same_number_alone(tmp_path):
    with trefoil.local(parties=2) as mpc:
        files = mpc.secret([1.25, -3.0]).save(tmp_path / "x")
        assert [Path(file).name for file in files] == ["x.party0", "x.party1", "x.party2"]
        assert np.array_equal(mpc.load(tmp_path / "x").reveal(), [1.25, -3])
    with trefoil.local(parties=2) as mpc:
        x = mpc.load(tmp_path / "x")
        assert np.abs((x * x).reveal() - [1.5625, 9]).max() < 2**-18
    with trefoil.local() as mpc, pytest.raises(InputError, match="`dealt-2`, and the session is of `rss`"):
        mpc.load(tmp_path / "x")
    with trefoil.local(parties=3) as mpc, pytest.raises(InputError, match="x.party"):
        mpc.load(tmp_path / "x")


@pytest.mark.parametrize("number", [1, 0, -3, 17, True, 2.0, "3", 10**30])
def test_numbers_of_parties_that_do_not_exist_are_refused(number):
    with pytest.raises(ConfigError, match="parties is .*2 to 16"):
        trefoil.local(parties=number)


@pytest.mark.parametrize("option", [{"security": "checked"}, {"profile": "slow-links"}, {"truncation": "dither"}])
def test_options_of_three_parties_are_refused_by_name(option):
    ((name, value),) = option.items()
    with pytest.raises(ConfigError, match=f'{name}="{value}" is for three parties'):
        trefoil.local(parties=3, **option)


@pytest.mark.parametrize("truncation", ["default", "early", "exact"])
def test_products_are_rounded_as_the_session_says(truncation):
    with trefoil.local(parties=2, truncation=truncation, frac_bits=12) as mpc:
        x = np.linspace(-3, 3, 400)
        a, b = np.floor(x * 4096), np.floor(x[::-1] * 4096)
        units = (mpc.secret(a / 4096) * mpc.secret(b / 4096)).reveal() * 4096 - a * b / 4096
        low, high = {"exact": (-1, 0)}.get(truncation, (-1, 1))
        assert low <= units.min() and units.max() <= high and units.any()

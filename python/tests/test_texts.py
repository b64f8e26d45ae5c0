"""Language models in a session: what they keep from step to step stays secret."""

import numpy as np
import pytest

import trefoil
from test_conversation import TOKENS, highest, scores, summing
from trefoil import InputError, RangeError


@pytest.fixture(scope="module")
def scoring():
    return trefoil.Model.from_onnx(summing(), answers="logits")


@pytest.fixture(scope="module")
def choosing():
    return trefoil.Model.from_onnx(summing())


def test_each_step_goes_on_from_what_was_said(mpc, scoring):
    with mpc.conversation(scoring) as text, mpc.conversation(scoring) as other:
        for at, token in enumerate([3, 1, 5]):
            got = text.extend([[token]])
            assert np.abs(got.reveal().reshape(-1) - scores([3, 1, 5][: at + 1])).max() < 1e-4
            other.extend([[0]])
        text.rewind(1)
        # A secret token is as good as a known one.
        got = text.extend(mpc.secret([[2]]))
        assert np.abs(got.reveal().reshape(-1) - scores([3, 2])).max() < 1e-4 and text.at == 2
        for to in [3, -1]:
            with pytest.raises(InputError, match="from 0 to 2"):
                text.rewind(to)
        text.close()
        assert text.at == 0
        got = text.extend([[4]])
        assert np.abs(got.reveal().reshape(-1) - scores([4])).max() < 1e-4


def test_tokens_are_added_as_in_the_clear(mpc, scoring, choosing):
    for model in (scoring, choosing):
        with mpc.conversation(model) as text:
            want = highest([4, 2], 4)
            assert text.generate([4, 2], 4) == want
            want += highest([4, 2, *want, 1], 2)
            assert text.generate([1], 2) == want[4:]
            said = [4, 2, *want[:4], 1, *want[4:], 0]
            assert text.generate([0], 5, stop=range(TOKENS)) == highest(said, 1)
            with pytest.raises(InputError, match="no tokens"):
                mpc.conversation(model).generate([])
    with mpc.conversation(scoring) as text:
        assert text.generate([0], 1, choose=lambda vector: int(np.argmin(vector))) == [int(np.argmin(scores([0])))]
    with pytest.raises(InputError, match='answers="logits"'):
        mpc.conversation(choosing).generate([0], 1, choose=np.argmin)
    assert scoring.generate([4, 2], 3) == choosing.generate([4, 2], 3) == highest([4, 2], 3)


def test_tokens_that_go_on_unseen_are_opened_once(mpc, choosing):
    with mpc.conversation(choosing) as text:
        text.generate([1], 1)
        mpc.cost()
        text.generate([1], 4)
        calls = {step.name: step.calls for step in mpc.cost().steps}
        # The guard of each of five steps, and the tokens.
        assert calls["reveal"] == 5 + 1


def test_what_does_not_go_on_and_what_does_are_told_apart(mpc, scoring):
    with pytest.raises(InputError, match="mpc.conversation"):
        mpc.run(scoring, [[1]])
    with pytest.raises(InputError, match="mpc.conversation"):
        scoring.infer([[1]])
    with pytest.raises(RangeError, match="rows 0 to 5"):
        mpc.conversation(scoring).extend([[TOKENS]])
    with pytest.raises(InputError, match="2 inputs are given"):
        mpc.conversation(scoring).extend([[1]], [[1]])

"""Conversations: steps of a model that keeps values at the servers."""

import json
from pathlib import Path

import numpy as np
import pytest

import trefoil
from test_cluster import PROGRAM, alice, folder  # noqa: F401  (fixtures)
from trefoil import InputError, RangeError, Refused
from trefoil._onnx import Writer

pytestmark = pytest.mark.skipif(not PROGRAM, reason="TREFOIL_PROGRAM does not name the program `trefoil`")

TOKENS, SIZE = 6, 4

rng = np.random.default_rng(5)
TABLE = rng.normal(size=(TOKENS, SIZE))
READ = rng.normal(size=(SIZE, TOKENS))


def summing():
    """A model whose scores are of the sum of the rows of all tokens so far."""
    file = Writer()
    file.input("input_ids", [1, 1], True)
    file.input("past_key_values.0.key", [1, 1, "past", SIZE], False)
    row = file.node("Gather", [file.constant(TABLE.astype(np.float32), "table"), "input_ids"])
    row = file.node("Reshape", [row, file.constant(np.array([1, 1, 1, SIZE]))])
    file.node("Concat", ["past_key_values.0.key", row], "present.0.key", axis=2)
    total = file.node("ReduceSum", ["present.0.key", file.constant(np.array([2]))], keepdims=0)
    file.node("MatMul", [total, file.constant(READ.astype(np.float32), "read")], "logits")
    file.output("logits")
    file.output("present.0.key")
    return file.finish()


def scores(tokens):
    return TABLE[list(tokens)].sum(axis=0) @ READ


@pytest.fixture(scope="module")
def speaker(alice):  # noqa: F811
    model = trefoil.Model.from_onnx(summing(), answers="logits")
    assert [name for name, *_ in model._model.inputs(1)] == ["input_ids"]
    alice.put("speaker", model, replace=True)
    return alice


@pytest.fixture(scope="module")
def chooser(alice):  # noqa: F811
    model = trefoil.Model.from_onnx(summing())
    assert [name for name, *_ in model._model.outputs(1)] == ["token"]
    alice.put("chooser", model, replace=True)
    return alice


def test_tokens_are_drawn_by_the_scores(alice, chooser):  # noqa: F811
    cold = trefoil.Model.from_onnx(summing(), answers="sample", temperature=0.001)
    alice.put("cold", cold, replace=True)
    with chooser.chat("chooser") as likeliest, alice.chat("cold") as drawn:
        assert drawn.generate([3, 1], new=6) == likeliest.generate([3, 1], new=6)
    hot = trefoil.Model.from_onnx(summing(), answers="sample", temperature=1000)
    alice.put("hot", hot, replace=True)
    with alice.chat("hot") as talk:
        tokens = talk.generate([3], new=24)
        # Nearly uniform: the same token 24 times in a row is out of the question.
        assert len(set(tokens)) > 1 and all(0 <= token < TOKENS for token in tokens)
    with pytest.raises(InputError, match="from 0.001 to 1000"):
        trefoil.Model.from_onnx(summing(), answers="sample", temperature=0)
    with pytest.raises(InputError, match='"token", "sample" or "logits"'):
        trefoil.Model.from_onnx(summing(), answers="words")


def test_each_step_goes_on_from_what_was_said(speaker):
    with speaker.conversation("speaker") as talk, speaker.conversation("speaker") as other:
        for at, token in enumerate([3, 1, 5]):
            got = talk.extend(np.array([[token]]))
            assert np.abs(got.reshape(-1) - scores([3, 1, 5][: at + 1])).max() < 1e-4
            other.extend(np.array([[0]]))
        talk.rewind(1)
        got = talk.extend(np.array([[2]]))
        assert np.abs(got.reshape(-1) - scores([3, 2])).max() < 1e-4 and talk.at == 2
        for to in [3, -1]:
            with pytest.raises(InputError, match="from 0 to 2"):
                talk.rewind(to)


def test_tokens_are_added_as_in_the_clear(speaker):
    said = [4, 2]
    with speaker.conversation("speaker") as talk:
        added = talk.generate(said, 4)
        more = talk.generate([1], 2)
        for token in [*added, None, *more]:
            if token is None:
                said.append(1)
                continue
            assert token == int(np.argmax(scores(said)))
            said.append(token)
        assert talk.generate([0], 5, stop=range(TOKENS)) == [int(np.argmax(scores([*said, 0])))]
        assert talk.generate([0], 1, choose=lambda vector: int(np.argmin(vector))) != []
        with pytest.raises(InputError, match="no tokens"):
            speaker.conversation("speaker").generate([])


def test_a_conversation_that_the_servers_lost_is_said_again(speaker):
    with speaker.conversation("speaker") as talk:
        talk.extend(np.array([[3]]))
        talk.extend(np.array([[1]]))
        speaker._with(lambda client: client.close(talk._id))
        got = talk.extend(np.array([[5]]))
        assert np.abs(got.reshape(-1) - scores([3, 1, 5])).max() < 1e-4


def test_models_that_keep_nothing_have_no_conversations(speaker):
    with pytest.raises(InputError, match="keeps nothing from step to step"):
        speaker.conversation("digits")
    with pytest.raises(Refused, match="conversations alone"):
        speaker.infer("speaker", np.array([[1]]))
    with pytest.raises(RangeError, match="outside of 0 to 5"), speaker.conversation("speaker") as talk:
        talk.extend(np.array([[TOKENS]]))


HELPER = Path(__file__).parents[2] / "models/data/helper"


def highest(tokens, new):
    tokens = list(tokens)
    for _ in range(new):
        tokens.append(int(np.argmax(scores(tokens))))
    return tokens[-new:]


def test_servers_choose_tokens_as_in_the_clear(chooser):
    with chooser.chat("chooser") as chat:
        want = highest([3, 1, 5], 8)
        assert chat.generate([3, 1, 5], 3) == want[:3]
        assert chat.generate([], 5, ahead=4) == want[3:] and chat.tokens == [3, 1, 5, *want]
        assert chat.cost.rounds > 0 and chat.cost.bytes > 0
        chat.rewind(4)
        said = [3, 1, 5, want[0], 2]
        # An answer that ends within what the servers chose ahead goes on behind its end.
        more = highest(said, 6)
        end = next(at for at, token in enumerate(more) if token not in more[:at] and at > 0)
        assert chat.generate([2], 6, ahead=6, stop=[more[end]]) == more[:end]
        assert chat.tokens == [*said, *more[: end + 1]]
        assert chat.generate([4], 2) == highest([*said, *more[: end + 1], 4], 2)
        for bad in [lambda: chat.rewind(99), lambda: chat.generate([1], 0), lambda: chat.say("words")]:
            with pytest.raises(InputError):
                bad()
        with pytest.raises(InputError, match="token 6: the model takes 0 to 5"):
            chat.generate([TOKENS], 1)


def test_a_conversation_takes_the_tokens_that_servers_choose(chooser):
    with chooser.conversation("chooser") as talk:
        assert talk.generate([3, 1, 5], 4) == highest([3, 1, 5], 4)
        with pytest.raises(InputError, match='answers="logits"'):
            talk.generate([1], 1, choose=np.argmax)


def test_only_models_that_return_tokens_chat(speaker):
    for name in ["speaker", "digits"]:
        with pytest.raises(InputError, match="return the next"):
            speaker.chat(name)


def test_the_model_that_ships_answers_as_in_floats(alice):  # noqa: F811
    model = trefoil.Model.from_onnx(HELPER / "helper.onnx")
    text = {"tokenizer": HELPER / "tokenizer.json", "form": "<|question|>{}\n", "stop": ["<|end|>"]}
    alice.put("helper", model, replace=True, **text)
    turns = json.loads((HELPER / "texts.json").read_text())
    with alice.chat("helper") as chat:
        pieces = list(chat.stream(turns[0]["question"]))
        assert len(pieces) > 3 and "".join(pieces) == turns[0]["answer"]
        rounds, bytes_ = chat.cost.rounds, chat.cost.bytes
        assert chat.say(turns[1]["question"], ahead=8) == turns[1]["answer"]
    alice.put("helper", model, replace=True, public_weights=True, **text)
    with alice.chat("helper") as chat:
        assert chat.say(turns[0]["question"]) == turns[0]["answer"]
        assert chat.cost.rounds < rounds and chat.cost.bytes < bytes_
    # The words of a question go in by steps of 4 and 16 tokens, or one by one.
    alice.put("helper", model, replace=True, prompt_steps=(), **text)
    with alice.chat("helper") as chat:
        assert chat.say(turns[0]["question"]) == turns[0]["answer"] and chat.cost.rounds > 1.1 * rounds
    with pytest.raises(trefoil.Error, match="lengths of steps"):
        alice.put("helper", model, replace=True, prompt_steps=range(2, 9), **text)
    with pytest.raises(InputError, match="no token `<end>`"):
        alice.put("helper", model, replace=True, **{**text, "stop": ["<end>"]})
    with pytest.raises(InputError, match="where a person"):
        alice.put("helper", model, replace=True, **{**text, "form": "no place"})
    with pytest.raises(InputError, match="no tokenizer.json"):
        alice.put("helper", model, replace=True, **{**text, "tokenizer": HELPER / "questions.txt"})
    with pytest.raises(InputError, match="the model's table 6 rows"):
        alice.put("small", trefoil.Model.from_onnx(summing()), **text)

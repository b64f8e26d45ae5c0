"""Networks: privately, in the clear, and within their ranges."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import trefoil
from trefoil import InputError, RangeError

DATA = Path(__file__).parents[2] / "models/data"


@pytest.fixture(scope="module")
def digits():
    with gzip.open(DATA / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", ndmin=2)
    return table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].astype(int)


@pytest.fixture(scope="module")
def model():
    return trefoil.Model.from_onnx(DATA / "digits.onnx")


def test_a_network_reads_digits_privately(model, digits):
    images, truth = (part[:100] for part in digits)
    private, clear = model.infer(images), model.evaluate(images)
    assert private.shape == clear.shape == (len(images), 10)
    assert np.abs(private - clear).max() < 1e-4
    assert (private.argmax(1) == truth).mean() > 0.98
    # Again, on the session and the weights that are there.
    assert np.abs(model.infer(images[:3]) - clear[:3]).max() < 1e-4


def test_what_is_public_of_a_model_is_shown(model):
    (name,), (out,) = model.inputs, model.outputs
    assert model.inputs[name] == (None, 1, 8, 8) and model.outputs[out] == (None, 10)
    assert model.parameters == 31674 and model.frac_bits == 20
    assert "31674 weights" in repr(model) and "[n, 1, 8, 8]" in repr(model)
    assert model.check(np.zeros((1, 1, 8, 8))) < 1e-4


def test_a_model_is_part_of_a_program_on_secrets(mpc, model, digits):
    images, truth = digits
    scores = mpc.run(model, mpc.secret(images[:20]))
    right = np.argmax(scores, axis=1) == mpc.secret(truth[:20])
    assert right.sum().reveal() >= 19
    mpc.cost()
    mpc.run(model, images[:1])
    steps = [step.name for step in mpc.cost().steps]
    assert len(steps) > 5 and "input" in steps


def test_ranges_that_break_are_found(model):
    with pytest.raises(RangeError):
        model.check(np.full((1, 1, 8, 8), 1e6))


def test_bytes_and_bad_files_are_told_apart(digits):
    images, _ = digits
    model = trefoil.Model.from_onnx((DATA / "digits.onnx").read_bytes(), frac_bits=16)
    assert np.abs(model.infer(images[:2]) - model.evaluate(images[:2])).max() < 0.02
    with pytest.raises(InputError, match="ONNX"):
        trefoil.Model.from_onnx(b"no model")
    with pytest.raises(InputError, match="nowhere.onnx"):
        trefoil.Model.from_onnx("nowhere.onnx")
    with pytest.raises(InputError, match="1"):
        model.infer(images, images)
    with pytest.raises(InputError, match="shape"):
        model.infer(np.zeros((1, 1, 9, 9)))


def test_a_model_with_several_inputs_and_integers_runs(mpc):
    model = trefoil.Model.from_onnx(DATA / "onnx/embedding-opset17.onnx")
    sizes = {name: tuple(n or 2 for n in shape) for name, shape in model.inputs.items()}
    inputs = [np.zeros(shape, int) for shape in sizes.values()]
    outputs = model.infer(*inputs)
    want = model.evaluate(*inputs)
    for got, clear in zip(outputs if isinstance(outputs, tuple) else [outputs], want if isinstance(want, tuple) else [want]):
        assert np.abs(got - clear).max() < 1e-3
    for run in (model.infer, model.evaluate):
        with pytest.raises(trefoil.Error, match="consists of integers.* 1 is 0.5"):
            run(*[np.where(np.arange(x.size).reshape(x.shape) == 1, 0.5, 0) for x in inputs])


def test_inputs_are_given_by_name():
    model = trefoil.Model.from_onnx(DATA / "onnx/elementwise-opset21.onnx")
    one, other = model.inputs
    inputs = {one: np.linspace(0.5, 1.5, 24).reshape(2, 3, 4), other: np.full((3, 1), 0.75)}
    turned = {other: inputs[other], one: inputs[one]}
    for got, want in zip(model.infer(**turned), model.evaluate(*inputs.values())):
        assert np.abs(got - want).max() < 1e-2
    for got, want in zip(model.evaluate(**turned), model.evaluate(*inputs.values())):
        assert (got == want).all()
    for named, reason in [
        ({one: inputs[one]}, f"`{other}` is missing; the model takes {one}, {other}"),
        (turned | {"age": 1.0}, "there is no input `age`"),
    ]:
        with pytest.raises(InputError, match=reason):
            model.infer(**named)
    with pytest.raises(InputError, match="not some of each"):
        model.evaluate(inputs[one], **{other: inputs[other]})


def test_positions_outside_of_a_table_are_refused():
    model = trefoil.Model.from_onnx(DATA / "onnx/embedding-opset17.onnx")
    (shape,) = model.inputs.values()
    places = np.zeros([n or 2 for n in shape], int)
    for outside in (-1, 10**6):
        places.flat[1] = outside
        for run in (model.infer, model.evaluate, model.check):
            with pytest.raises(RangeError, match=f"element 1 is {outside}; the table has rows 0 to"):
                run(places)


def test_complex_inputs_are_refused(model):
    for run in (model.infer, model.evaluate):
        with pytest.raises(InputError, match="complex"):
            run(np.zeros((1, 1, 8, 8), complex))

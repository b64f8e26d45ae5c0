"""Numbers outside of a function's domain inside of a model: `check` names the layer, on shares nobody would see it."""

import numpy as np
import pytest

import trefoil
from trefoil import RangeError
from trefoil._record import Batch, Call, Recorded, Ref, Value

#: The call, a number within its domain and one outside, and what is said of that.
FUNCTIONS = {
    "log": ("aten.log.default", 0.5, 0.0, "too low"),
    "reciprocal": ("aten.reciprocal.default", -0.5, 0.0, "too small"),
    "sqrt": ("aten.sqrt.default", 0.0, -1.0, "too low"),
    "rsqrt": ("aten.rsqrt.default", 4.0, -4.0, "too low"),
    "exp": ("aten.exp.default", 2.0, 12.0, "too large"),
}


def network(target):
    """A layer of one number, and a function behind it."""
    value = Value((Batch(1), 2), "f")
    calls = [
        Call("scaled", "aten.mul.Tensor", (Ref("x"), Ref("weight")), {}, (value,)),
        Call("function", target, (Ref("scaled"),), {}, (value,)),
    ]
    weight = {"weight": np.array([1.0, 2.0], np.float32)}
    return trefoil.Model._of(Recorded({"x": value}, weight, calls, {"y": Ref("function")}, True, ("weight",)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_model_is_checked_for_what_its_functions_are_not_right_for(mpc, name):
    target, inside, outside, message = FUNCTIONS[name]
    model = network(target)
    good, bad = np.array([[0.25, inside / 2]]), np.array([[0.25, outside / 2]])
    assert model.check(good) < 1e-2
    with pytest.raises(RangeError, match=f"node `.*`: .*: its operand .* is {message}"):
        model.check(bad)
    mpc.run(model, good)
    with pytest.raises(RangeError, match=message):
        mpc.run(model, bad)
    # The session goes on.
    assert np.allclose(mpc.run(model, good).reveal(), model.evaluate(good), rtol=1e-3, atol=1e-3)
    with trefoil.local(check=False) as unchecked:
        # The parties' guard names the layer too.
        with pytest.raises(RangeError, match="values of `.*` have left the range of fixed point, or a function's domain"):
            unchecked.run(model, bad)
        # Without either nothing is said.
        assert unchecked.run(model, bad, guard=False).reveal().shape == (1, 2)


def test_a_quotient_is_checked_by_its_divisor(mpc):
    value = Value((Batch(1), 2), "f")
    calls = [Call("quotient", "aten.div.Tensor", (Ref("x"), Ref("y")), {}, (value,))]
    model = trefoil.Model._of(Recorded({"x": value, "y": value}, {}, calls, {"z": Ref("quotient")}, True, ()))
    x = np.array([[1.0, 2.0]])
    assert model.check(x, [[0.5, -4.0]]) < 1e-3
    with pytest.raises(RangeError, match="its operand 0.* is too small"):
        model.check(x, [[0.5, 0.0]])

"""CrypTen's own tests on Trefoil, by an adapter that presents Trefoil under CrypTen's names.

    git clone https://github.com/facebookresearch/CrypTen
    python bench/peers/crypten_adapter CrypTen/test test_arithmetic test_binary test_mpc test_autograd test_gradients

It needs PyTorch and the package trefoil, and nothing of CrypTen but its files of tests. All parties are threads of one
process, which is the only member of CrypTen's world: what it holds of a shared number is the number's word. Tests that
CrypTen runs once for each provider of triples run once. Results must agree to the 5 % that its tests ask for unless a test
says otherwise; its own runs allow 50 %. The test of the cache of triples ends at once, as in CrypTen's own run on
replicated shares, which need none. The program prints the counts, and the tests that fail with their errors.
"""

import contextlib
import pathlib
import random
import sys
import types
import unittest

import torch
from methods import TABLE, window_of
from tensor import ArithmeticSharedTensor, BinarySharedTensor, CrypTensor, MPCTensor, Sharing, as_torch, cat, stack, tracking

# -- CrypTen's gradients ---------------------------------------------------------------------------


class AutogradContext:
    """What CrypTen's functions keep for their gradients."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.flat, self.kept = set(), None

    def mark_non_differentiable(self, *tensors):
        self.flat |= set(map(id, tensors))

    def is_differentiable(self, tensor):
        return id(tensor) not in self.flat


class AutogradFunction:
    """A function of CrypTen's with its gradient: ours of the method of that name."""

    @classmethod
    def forward(cls, context, *inputs, **kwargs):
        def leaf(x):
            real = isinstance(x, CrypTensor) or isinstance(x, torch.Tensor) and x.is_floating_point()
            return CrypTensor(as_torch(x._tensor.secret.reveal()) if isinstance(x, CrypTensor) else x, requires_grad=True) if real else x

        inputs = [leaf(x) for x in inputs]
        with tracking(True):
            made = getattr(inputs[0], cls.name)(*inputs[1:], **kwargs)
        context.kept = made, [x for x in inputs if isinstance(x, CrypTensor)]
        return made

    @staticmethod
    def backward(context, grad):
        made, leaves = context.kept
        made.backward(grad)
        grads = tuple(leaf.grad for leaf in leaves)
        return grads if len(grads) > 1 else grads[0]


FUNCTION_REGISTRY = {}


def register_function(name):
    def register(cls):
        if name in FUNCTION_REGISTRY:
            raise ValueError(f"there is a function {name!r}")
        cls.name = name
        FUNCTION_REGISTRY[name] = cls
        return cls

    return register


for _name in " ".join(TABLE).split():
    if not _name.startswith("_"):
        register_function(_name)(type(_name, (AutogradFunction,), {}))


# -- CrypTen's modules -----------------------------------------------------------------------------


class _Config(types.SimpleNamespace):
    mpc = types.SimpleNamespace(provider="TFP", protocol="replicated")

    @contextlib.contextmanager
    def temp_override(self, _):
        yield


class _Communicator:
    get = lambda self: self
    get_world_size = lambda self: 1
    get_rank = lambda self: 0
    broadcast = lambda self, x, src=0: x
    scatter = lambda self, shares, src=0: shares[0]


class _Case(unittest.TestCase):
    """What CrypTen starts processes for runs here."""

    rank, world_size, device = 0, 1, torch.device("cpu")

    def setUp(self, world_size=1):
        torch.manual_seed(1)
        random.seed(1)
        self.default_tolerance = 0.05


def get_random_test_tensor(max_value=6, min_value=None, size=(1, 5), is_float=False, ex_zero=False, device=None):
    low = -max_value if min_value is None else min_value
    x = torch.rand(tuple(size)) * (max_value - low) + low if is_float else torch.randint(low, max_value, tuple(size))
    return torch.where(x == 0, torch.ones_like(x), x) if ex_zero else x


def onehot(indices, num_targets=None):
    return torch.nn.functional.one_hot(indices, -1 if num_targets is None else num_targets)


def _pool2d_reshape(x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The numbers of a picture under each position of a window, and the shape of the positions."""
    window = window_of(x, kernel, stride, padding, dilation, ceil_mode)
    top, left, bottom, right = window["padding"]
    x = torch.nn.functional.pad(x.double(), (left, right, top, bottom))
    under = torch.nn.functional.unfold(x.reshape(-1, 1, *x.shape[-2:]), window["kernel"], window["dilation"], 0, window["stride"]).transpose(1, 2)
    size = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[-2:], window["kernel"], window["stride"], window["dilation"])]
    return under, torch.Size((*x.shape[:-2], *size))


comm = _Communicator()


def modules():
    """The contents of CrypTen's modules that its tests import, by the modules' names."""
    own = globals()
    return {
        "crypten": {"cryptensor": MPCTensor, "CrypTensor": CrypTensor, "cat": cat, "stack": stack, "no_grad": lambda: tracking(False),
                    "init": lambda *_: None, "is_encrypted_tensor": lambda x: isinstance(x, CrypTensor),
                    "get_default_cryptensor_type": lambda: "mpc", "set_default_cryptensor_type": lambda _: None},
        "crypten.communicator": {"get": comm.get}, "crypten.config": {"cfg": _Config()},
        "crypten.common": {}, "crypten.common.functions": {}, "crypten.common.functions.pooling": {"_pool2d_reshape": _pool2d_reshape},
        "crypten.common.tensor_types": {
            "is_float_tensor": lambda x: isinstance(x, torch.Tensor) and x.is_floating_point(),
            "is_int_tensor": lambda x: isinstance(x, torch.Tensor) and not x.is_floating_point(),
        },
        "crypten.common.rng": {"generate_random_ring_element": lambda size, **_: torch.randint(-(1 << 40), 1 << 40, tuple(size)),
                               "generate_kbit_random_tensor": lambda size, **_: torch.randint(0, 1 << 30, tuple(size))},
        "crypten.gradients": {name: own[name] for name in ("AutogradContext", "AutogradFunction", "FUNCTION_REGISTRY", "register_function")}
        | {"get_grad_fn": FUNCTION_REGISTRY.get},
        "crypten.mpc": {"MPCTensor": MPCTensor, "ptype": Sharing, "arithmetic": Sharing.arithmetic, "binary": Sharing.binary},
        "crypten.mpc.ptype": {"ptype": Sharing},
        "crypten.mpc.primitives": {"ArithmeticSharedTensor": ArithmeticSharedTensor, "BinarySharedTensor": BinarySharedTensor},
        "test": {},
        "test.multiprocess_test_case": {
            "MultiProcessTestCase": _Case, "get_random_test_tensor": get_random_test_tensor, "onehot": onehot,
        },
    }


def main(folder, names):
    """Run CrypTen's tests of these names, and print how many pass. True if any fails."""
    contents = modules()
    for name in contents:
        sys.modules[name] = types.ModuleType(name)
    for name in contents:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    # Afterwards: `crypten.mpc.ptype` is a module, and an enumeration of that name in `crypten.mpc`.
    for name, names_in_it in contents.items():
        vars(sys.modules[name]).update(names_in_it)
    failed = False
    for name in names:
        module = types.ModuleType(name)
        exec(compile((pathlib.Path(folder) / f"{name}.py").read_text(), name, "exec"), module.__dict__)
        # CrypTen runs the same tests once for each provider of triples.
        case = next(x for x in vars(module).values() if isinstance(x, type) and issubclass(x, _Case) and x is not _Case)
        result = unittest.TestResult()
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
        suite.run(result)
        wrong = result.failures + result.errors
        print(f"{name}: {result.testsRun - len(wrong)} of {result.testsRun}", flush=True)
        for test, text in wrong:
            print("   ", test.id().split(".")[-1], "|", text.strip().splitlines()[-1][:300])
        failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

"""Networks of PyTorch: recorded graphs always, PyTorch itself where TREFOIL_TORCH is set."""

import gzip
import json
import os

import numpy as np
import pytest
import torch_models
from torch_models import FOLDER, data, fill

import trefoil
from trefoil import InputError
from trefoil._record import Batch, Call, Recorded, Ref, Value

TORCH = bool(os.environ.get("TREFOIL_TORCH"))


def network(recorded):
    return trefoil.Model._of(recorded)


def relative(got, want):
    return np.abs(got - want).max() / max(1.0, np.abs(want).max())


@pytest.mark.parametrize("name", sorted(p.name.removesuffix(".json.gz") for p in FOLDER.glob("*.json.gz")))
def test_a_recorded_network_computes_what_pytorch_did(name):
    case = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    recorded = Recorded.load(case["network"], fill)
    assert recorded.batch
    model = network(recorded)
    numbers = [x if kept is None else np.array(kept) for x, kept in zip(data(case["shapes"]), case["inputs"])]
    clear = model.evaluate(*numbers)
    want = np.array(case["output"]).reshape(clear.shape)
    # PyTorch computes in 32-bit floats.
    assert relative(clear, want) < 2e-5
    private = model.infer(*(x[:2] for x in numbers))
    assert relative(private, want[:2]) < 1e-4


def of_calls(*calls, shape=(Batch(1), 4), **constants):
    """A record of calls on an input `x`; the last one makes the result."""
    made = [Call(name, target, args, {}, (Value(value, "f"),)) for name, target, args, value in calls]
    arrays = {name: np.asarray(a) for name, a in constants.items()}
    return Recorded({"x": Value(shape, "f")}, arrays, made, {"y": Ref(made[-1].name)}, True)


def test_calls_without_a_private_form_are_named():
    recorded = of_calls(("mode 1", "aten.mode.default", (Ref("x"),), (Batch(1), 4)))
    with pytest.raises(InputError, match=r"`mode 1` calls aten.mode.default"):
        network(recorded)
    recorded = of_calls(("div 1", "aten.div.Tensor_mode", (Ref("x"), 2.0, "floor"), (Batch(1), 4)))
    with pytest.raises(InputError, match=r"`div 1` .*rounded quotient"):
        network(recorded)
    recorded = of_calls(("relu 1", "aten.relu.default", (Ref("x"), 1, 2, 3), (Batch(1), 4)))
    with pytest.raises(InputError, match=r"`relu 1` .*arguments"):
        network(recorded)


def test_a_record_comes_back_from_its_text():
    recorded = of_calls(
        ("a", "aten.view.default", (Ref("x"), [Batch(1), 2, 2]), (Batch(1), 2, 2)),
        ("b", "aten.add.Tensor", (Ref("a"), Ref("w")), (Batch(1), 2, 2)),
        w=np.array([1.5, -2.0], np.float32), shape=(Batch(1), 4),
    )
    again = Recorded.load(recorded.dump(), None)
    assert (again.inputs, again.calls, again.outputs) == (recorded.inputs, recorded.calls, recorded.outputs)
    x = np.arange(8.0).reshape(2, 4)
    assert np.array_equal(network(again).evaluate(x), x.reshape(2, 2, 2) + [1.5, -2.0])


def test_a_part_is_replaced(rng):
    part = ("a", "aten.slice.Tensor", (Ref("x"), 1, 2, 4), (Batch(1), 2))
    whole = ("b", "aten.slice_scatter.default", (Ref("x"), Ref("a"), 1, 1, 3), (Batch(1), 4))
    x = rng.uniform(-2, 2, (3, 4))
    assert np.array_equal(network(of_calls(part, whole)).evaluate(x), x[:, [0, 2, 3, 3]])


CALLS = {
    "rsub": ("aten.rsub.Scalar", (Ref("x"), 3.0), lambda x: 3 - x),
    "clamp below": ("aten.clamp.default", (Ref("x"), 0.25), lambda x: np.maximum(x, 0.25)),
    "elu": ("aten.elu.default", (Ref("x"), 1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
    "hardswish": ("aten.hardswish.default", (Ref("x"),), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardsigmoid": ("aten.hardsigmoid.default", (Ref("x"),), lambda x: np.clip(x + 3, 0, 6) / 6),
    "var": ("aten.var.correction", (Ref("x"), [1], 1, True), lambda x: x.var(1, ddof=1, keepdims=True)),
    "cumsum": ("aten.cumsum.default", (Ref("x"), 1), lambda x: x.cumsum(1)),
    "flip": ("aten.flip.default", (Ref("x"), [1]), lambda x: x[:, ::-1]),
    "select": ("aten.select.int", (Ref("x"), 1, -1), lambda x: x[:, -1]),
    "every other": ("aten.slice.Tensor", (Ref("x"), 1, 0, 9223372036854775807, 2), lambda x: x[:, ::2]),
    "pad": ("aten.constant_pad_nd.default", (Ref("x"), [1, 2], 0.5), lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=0.5)),
    "where": ("aten.where.self", (Ref("c"), Ref("x"), Ref("w")), lambda x: np.where([True, False, True, False], x, 2.5)),
    "repeat": ("aten.repeat.default", (Ref("x"), [1, 2]), lambda x: np.tile(x, (1, 2))),
    "argmax": ("aten.argmax.default", (Ref("x"), 1), lambda x: x.argmax(1)),
    "logical": ("aten.ge.Scalar", (Ref("x"), 0.5), lambda x: x >= 0.5),
    "index": ("aten.index.Tensor", (Ref("x"), [None, Ref("at")]), lambda x: x[:, [3, 0]]),
    "amax": ("aten.amax.default", (Ref("x"), [1], True), lambda x: x.max(1, keepdims=True)),
    "rms": ("aten.rms_norm.default", (Ref("x"), [4], None, 1e-3), lambda x: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3)),
    "celu": ("aten.celu.default", (Ref("x"), 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x / 0.5))),
    "scatter": ("aten.scatter.src", (Ref("x"), 1, Ref("row"), Ref("x")), lambda x: put(x, [3, 0, 3], x[:, :3], False)),
    "scatter_add": ("aten.scatter_add.default", (Ref("x"), 1, Ref("row"), Ref("x")), lambda x: put(x, [3, 0, 3], x[:, :3], True)),
    "index_add": ("aten.index_add.default", (Ref("x"), 1, Ref("at4"), Ref("x")), lambda x: put(x, [3, 0, 3, 3], x, True)),
    "index_put": ("aten.index_put.default", (Ref("x"), [None, Ref("at")], Ref("w"), False), lambda x: put(x, [3, 0], 2.5, False)),
    "windows": ("aten.unfold.default", (Ref("x"), 1, 2, 1), lambda x: np.stack([x[:, :2], x[:, 1:3], x[:, 2:]], 1)),
    "sort": ("aten.sort.default", (Ref("x"), 1, True), lambda x: -np.sort(-x, 1)),
    "topk": ("aten.topk.default", (Ref("x"), 2, 1, False), lambda x: np.sort(x, 1)[:, :2]),
    "cumprod": ("aten.cumprod.default", (Ref("x"), 1), lambda x: x.cumprod(1)),
    "norm": ("aten.linalg_vector_norm.default", (Ref("x"), 2, [1], True), lambda x: np.sqrt((x * x).sum(1, keepdims=True))),
    "largest": ("aten.linalg_vector_norm.default", (Ref("x"), float("inf"), [1]), lambda x: np.abs(x).max(1)),
    "hypot": ("aten.hypot.default", (Ref("x"), Ref("w")), lambda x: np.hypot(x, 2.5)),
    "logsumexp": ("aten.logsumexp.default", (Ref("x"), [1]), lambda x: np.log(np.exp(x).sum(1))),
    "softplus": ("aten.softplus.default", (Ref("x"), 2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
}


def put(x, places, new, add):
    """Numbers at places of each row, or added to what is there."""
    x, new = x.copy(), np.broadcast_to(new, (len(x), len(places)))
    for i, place in enumerate(places):
        x[:, place] = x[:, place] * add + new[:, i]
    return x


#: The same of pictures `[n, 1, 2, 2]`, made of the rows.
PICTURES = {
    "nearest": ("aten.upsample_nearest2d.vec", ([4, 6], None), lambda x: x.repeat(2, 2).repeat(3, 3)),
    "bilinear": ("aten.upsample_bilinear2d.vec", ([3, 2], True, None), lambda x: np.stack([x[:, :, 0], x.mean(2), x[:, :, 1]], 2)),
    "half pixels": ("aten.upsample_bilinear2d.vec", (None, False, [2.0, 1.0]),
                    lambda x: np.stack([a * x[:, :, 0] + (1 - a) * x[:, :, 1] for a in (1, 0.75, 0.25, 0)], 2)),
    "bicubic": ("aten.upsample_bicubic2d.vec", ([2, 3], True, None),
                lambda x: np.stack([x[..., 0], x.mean(-1), x[..., 1]], -1)),
    "adaptive": ("aten.adaptive_max_pool2d.default", ([1, 2],), lambda x: x.max(2, keepdims=True)),
    "overlapping": ("aten.adaptive_max_pool2d.default", ([3, 1],),
                    lambda x: np.stack([x[:, :, 0].max(2, keepdims=True), x.max((2, 3), keepdims=True)[:, :, 0], x[:, :, 1].max(2, keepdims=True)], 2)),
    "diagonal": ("aten.diagonal.default", (0, 2, 3), lambda x: x.diagonal(axis1=2, axis2=3)),
    "index": ("aten.index.Tensor", ([None, None, Ref("i"), Ref("j")],), lambda x: x[:, :, [1, 0], [0, 0]]),
}


@pytest.mark.parametrize("name", PICTURES)
def test_calls_on_pictures_mean_what_they_mean_in_pytorch(rng, name):
    target, args, meaning = PICTURES[name]
    x = np.round(rng.uniform(-2, 2, (3, 4)) * 256) / 256
    want = meaning(x.reshape(3, 1, 2, 2))
    places = {"i": np.array([1, 0]), "j": np.array([0, 0])} if name == "index" else {}
    view = ("picture", "aten.view.default", (Ref("x"), [-1, 1, 2, 2]), (Batch(1), 1, 2, 2))
    recorded = of_calls(view, (name, target, (Ref("picture"), *args), (Batch(1), *want.shape[1:])), **places)
    if "adaptive" in target:
        recorded.outputs = {"y": Ref(f"{name}:0")}
    model = network(recorded)
    assert np.allclose(model.evaluate(x), want, atol=1e-6)
    assert np.allclose(model.infer(x), want, atol=1e-3)


def test_a_bag_is_the_sum_of_its_rows_and_a_bilinear_layer_that_of_products(rng):
    table, weight = rng.uniform(-1, 1, (9, 3)).astype(np.float32), rng.uniform(-1, 1, (2, 3, 3)).astype(np.float32)
    view = Call("flat", "aten.view.default", (Ref("x"), [-1]), {}, (Value((Batch(4),), "i"),))
    bag = Call("bag", "aten._embedding_bag.default", (Ref("table"), Ref("flat"), Ref("starts"), False, 0), {}, (Value((Batch(1), 3), "f"),))
    product = Call("product", "aten._trilinear.default", (Ref("bag:0"), Ref("weight"), Ref("bag:0"), [1, 3], [0], [1, 2], [2, 3]), {},
                   (Value((Batch(1), 2), "f"),))
    recorded = Recorded({"x": Value((Batch(1), 4), "i")}, {"table": table, "weight": weight, "starts": np.array([0, 4])},
                        [view, bag, product], {"y": Ref("product")}, True)
    x = rng.integers(0, 9, (2, 4))
    sums = table[x].sum(1, dtype=np.float64)
    assert np.allclose(network(recorded).evaluate(x), np.einsum("bi,oij,bj->bo", sums, weight, sums), atol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_calls_mean_what_they_mean_in_pytorch(rng, name):
    target, args, meaning = CALLS[name]
    x = np.round(rng.uniform(-2, 2, (3, 4)) * 256) / 256
    want = meaning(x)
    shape = (Batch(1), *want.shape[1:])
    constants = {"c": np.array([True, False, True, False]), "w": np.float32(2.5), "at": np.array([3, 0]),
                 "row": np.array([[3, 0, 3]]), "at4": np.array([3, 0, 3, 3])}
    used = {k: a for k, a in constants.items() if f"'{k}'" in repr(args)}
    calls = [(name, target, args, shape)]
    if target.startswith("aten.scatter"):
        # PyTorch spreads the places over the batch.
        calls = [("spread", "aten.expand.default", (Ref("row"), [Batch(1), 3]), (Batch(1), 3)),
                 (name, target, (*args[:2], Ref("spread"), args[3]), shape)]
    recorded = of_calls(*calls, **used)
    if name in ("sort", "topk"):
        recorded.outputs = {"y": Ref(f"{name}:0")}
    model = network(recorded)
    assert np.allclose(model.evaluate(x), want, atol=1e-9)
    assert np.allclose(model.infer(x), want, atol=1e-3)


@pytest.mark.skipif(not TORCH, reason="TREFOIL_TORCH is not set: PyTorch itself is not used")
class TestPyTorch:
    """Run by TREFOIL_TORCH=1 in an environment with torch, torchvision and transformers."""

    @pytest.mark.parametrize("name", [p.name.removesuffix(".json.gz") for p in FOLDER.glob("*.json.gz")])
    def test_a_small_network_is_recorded_as_it_was(self, name):
        module, example = dict(torch_models.small())[name]()
        self.compare(name, module, example, 3)

    @pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vgg11", "densenet121", "efficientnet_b0", "squeezenet1_1", "vit_b_16"])
    def test_a_whole_network_runs_privately(self, name):
        module, example = dict(torch_models.whole())[name]()
        self.compare(name, module, example, 1)

    @staticmethod
    def compare(name, module, example, batch):
        import torch

        module, _ = torch_models.filled(module)
        model = trefoil.Model.from_torch(module, example)
        tensors = list(example.values()) if isinstance(example, dict) else [example]
        inputs = [((batch, *t.shape[1:]), "f" if t.is_floating_point() else "i") for t in tensors]
        numbers = data(inputs)
        if len(numbers) == 2:
            numbers[1] = (numbers[1] > 30).astype(np.int64)
        operands = [torch.from_numpy(x) for x in numbers]
        with torch.no_grad():
            result = module(**dict(zip(example, operands))) if isinstance(example, dict) else module(*operands)
        want = torch_models.output(result).double().numpy()
        clear, private = relative(model.evaluate(*numbers), want), relative(model.infer(*numbers), want)
        print(f"\n{name}: in the clear {clear:.1e}, private {private:.1e} of {np.abs(want).max():.2f}")
        model._own.close()
        assert clear < 1e-4 and private < 1e-2

    def test_errors_of_an_export_say_what_is_needed(self):
        import torch

        class Branches(torch.nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        with pytest.raises(Exception, match="data-dependent|Could not guard|guard"):
            trefoil.Model.from_torch(Branches(), torch.zeros(2, 3))
        with pytest.raises(InputError, match="there is no result"):
            trefoil.Model.from_torch(torch.nn.Linear(3, 2), torch.zeros(1, 3), outputs=["logits"])

        for module, example in ((3, torch.zeros(1, 3)), (torch.nn.Linear(3, 2), (1, 3)), (torch.nn.Linear(3, 2), [[0.0] * 3])):
            with pytest.raises(InputError, match="takes a torch.nn.Module|is a tensor"):
                trefoil.Model.from_torch(module, example)

    def test_tensors_are_operands_and_functions_of_pytorch_say_what_takes_secrets(self, mpc):
        import torch

        x = mpc.secret(torch.tensor([1.0, 2.0]))
        for got in (torch.ones(2) * x, torch.ones(2) + x - 1, x * torch.ones(2), torch.eye(2) @ x, -(torch.zeros(2) - x)):
            assert isinstance(got, trefoil.Secret) and np.abs(got.reveal() - [1, 2]).max() < 1e-5
        for function in (torch.exp, torch.nn.functional.relu, torch.nn.Linear(2, 2)):
            with pytest.raises(TypeError, match="takes no secret arrays: NumPy's functions do"):
                function(x)

    def test_a_module_is_left_as_it_was(self):
        import torch

        module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))
        module.train()
        model = trefoil.Model.from_torch(module, torch.zeros(2, 3))
        assert module.training and module[1].training
        assert model.inputs == {"input": (None, 3)} and model.parameters

    @pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
    @pytest.mark.parametrize("how", [{"size": (7, 3)}, {"scale_factor": 2.0}, {"scale_factor": (1.5, 3.0)}])
    def test_pictures_are_resized(self, mode, how):
        import torch

        module, x = torch.nn.Upsample(mode=mode, **how), torch.rand(2, 3, 4, 6)
        model = trefoil.Model.from_torch(module, x)
        assert np.abs(model.evaluate(x) - module(x).numpy()).max() < 1e-5

    @pytest.mark.parametrize("optimiser", ["SGD", "Adam", "AdamW"])
    def test_a_network_is_trained_as_by_pytorch_and_gets_its_weights_back(self, optimiser):
        import torch
        from torch import nn

        torch.manual_seed(5)
        net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, momentum=0.3), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Flatten(), nn.Dropout(0.0), nn.Linear(64, 3)).double()
        rng = np.random.default_rng(3)
        images, labels = rng.standard_normal((32, 1, 8, 8)).astype(np.float32), rng.integers(0, 3, 32)
        numbers = {"lr": 2**-6, "weight_decay": 2**-5} | ({"momentum": 0.5} if optimiser == "SGD" else {"betas": (0.90625, 0.99)})
        with trefoil.local() as mpc:
            model = trefoil.Model.from_torch(net.float(), torch.zeros(1, 1, 8, 8))
            trainer = trefoil.Trainer(model, "cross_entropy", getattr(trefoil.optim, optimiser)(**numbers), batch_size=8, mpc=mpc)
            net.double().train()
            theirs = getattr(torch.optim, optimiser)(net.parameters(), **numbers)
            for x, y in trainer.batches(images, labels, seed=1):
                theirs.zero_grad()
                loss = nn.functional.cross_entropy(net(torch.from_numpy(x).double()), torch.from_numpy(y))
                loss.backward()
                theirs.step()
                assert trainer.step(x, y)["loss"] == pytest.approx(float(loss.detach()), abs=5e-3)
            ours = trainer.state_dict(like=net)
            want = {name: t for name, t in net.state_dict().items() if "tracked" not in name}
            assert ours.keys() == want.keys()
            worst = max(float((ours[name] - want[name]).abs().max()) for name in want)
            print(f"\n{optimiser}: weights off by {worst:.1e} after 4 steps")
            assert worst < 4e-3
            net.load_state_dict(ours, strict=False)
            net.eval()
            with torch.no_grad():
                logits = net(torch.from_numpy(images[:4]).double()).numpy()
            assert np.abs(trainer.predict(images[:4]).reveal() - logits).max() < 5e-3

    def test_what_requires_no_gradient_stays(self):
        import torch
        from torch import nn
        from torch.nn.utils import parametrizations

        class Low(nn.Module):
            """A frozen layer with two small factors beside it, as LoRA has them."""

            def __init__(self, layer):
                super().__init__()
                self.layer = layer.requires_grad_(False)
                self.a = nn.Parameter(torch.randn(2, layer.in_features) / 4)
                self.b = nn.Parameter(torch.randn(layer.out_features, 2) / 4)

            def forward(self, x):
                return nn.functional.linear(x, self.layer.weight + self.b @ self.a, self.layer.bias)

        torch.manual_seed(3)
        nets = {
            "frozen": nn.Sequential(nn.Linear(8, 6).requires_grad_(False), nn.Tanh(), nn.Linear(6, 3)),
            "low rank": nn.Sequential(Low(nn.Linear(8, 6)), nn.Tanh(), Low(nn.Linear(6, 3))),
            "weight norm": nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 6)), nn.Tanh(), nn.Linear(6, 3)),
        }
        x, labels = torch.randn(8, 8), torch.randint(0, 3, (8,))
        for name, net in nets.items():
            with trefoil.local() as mpc:
                trainer = trefoil.Trainer(trefoil.Model.from_torch(net, x), optimiser=trefoil.optim.SGD(lr=0.125), batch_size=8, mpc=mpc)
                trainer.step(x.numpy(), labels.numpy())
                learnt = trainer.state_dict(like=net)
            asking = {name: p for name, p in net.named_parameters() if p.requires_grad}
            assert learnt.keys() == asking.keys(), name
            nn.functional.cross_entropy(net(x), labels).backward()
            for key, p in asking.items():
                want = -0.125 * p.grad
                assert (learnt[key] - p - want).abs().max() < 1e-4 and want.abs().max() > 1e-3, (name, key)

    def test_dropout_is_that_of_the_module(self):
        import torch
        from torch import nn

        net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
        x, y = np.ones((4, 8)), np.array([0, 1, 2, 0])
        with trefoil.local() as mpc:
            trainer = trefoil.Trainer(trefoil.Model.from_torch(net, torch.zeros(1, 8)), batch_size=4, mpc=mpc)
            losses = {round(trainer.evaluate_step(None, x, y, step=step)[1]["loss"], 6) for step in range(4)}
            assert len(losses) == 4


def test_without_pytorch_it_is_said_what_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="needs PyTorch"):
        trefoil.Model.from_torch(None, np.zeros((1, 2)))


@pytest.mark.skipif(not TORCH, reason="TREFOIL_TORCH is not set: PyTorch itself is not used")
def test_layers_that_a_training_would_not_train_as_pytorch_does_are_known():
    from torch import nn

    from trefoil._record import _unlike

    like = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Dropout2d(0.0), nn.LayerNorm(4))
    assert _unlike(nn, like) == ()
    unlike = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.BatchNorm2d(3, momentum=None), nn.Dropout2d(0.1), nn.AlphaDropout(0.2),
                           nn.BatchNorm2d(3).requires_grad_(False), nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)))
    found = _unlike(nn, unlike)
    assert [text.split(":")[0] for text in found] == ["0", "1", "2", "3", "4", "5.parametrizations.weight.0"]
    assert ".eval()" in found[4] and "power iteration" in found[5]
    assert _unlike(nn, unlike[4].eval()) == ()
    assert "affine=True" in found[0] and "momentum" in found[1] and "Dropout2d" in found[2] and "AlphaDropout" in found[3]

"""One step of whole networks here and in PyTorch: architectures times optimisers, rates and batches.

    python python/tests/parity.py record [NAME ...]     # needs torch, torchvision, timm and transformers
    python python/tests/parity.py [NAME ...]            # the table; needs nothing but what was recorded
    python python/tests/parity.py page                  # all of it, as docs/parity.md

A recorded network comes with the moves of PyTorch's first step in 64-bit floats, for a learning rate of 1: those of
every optimiser are proportional to it. Of a tensor's moves up to ``SAMPLE`` are kept.
"""

import copy
import itertools
import json
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
from torch_models import data, fill

import trefoil
from trefoil import optim
from trefoil._record import Recorded
from trefoil._train import checked, loss_of, one_hot, planned

FOLDER = Path(__file__).parent / "parity"
PAGE = Path(__file__).parents[2] / "docs/parity.md"
SAMPLE = 24
BATCHES = (2, 8)
CLASSES = 10

#: Rates and numbers of each optimiser, as PyTorch has them.
OPTIMISERS = {
    "SGD": ((0.1, 0.01, 0.001), {}),
    "momentum": ((0.1, 0.01, 0.001), {"momentum": 0.9}),
    "Adam": ((0.01, 0.001, 0.0001), {}),
    "AdamW": ((0.01, 0.001, 0.0001), {"weight_decay": 0.01}),
}

#: Those whose first steps differ.
MOVES = ("SGD", "Adam", "AdamW")


#: The beginning of the page.
HEAD = """# First steps against PyTorch

Each of {networks} small networks of torchvision, timm, transformers and PyTorch makes its first step in 24 settings: by SGD, SGD with a
momentum of 0.9, Adam and AdamW, each at three learning rates, with batches of 2 and of 8 rows. The step in fixed point is
compared with PyTorch's in 64-bit floats.

- **Agree**: the moves of every tensor have a slope on PyTorch's within 2 % of 1, beyond the rounding of weights.
- **Refused**: `Trainer.check` raises a `RangeError`, because a value would leave the range of fixed point.
- **Warned**: `Trainer.check` gives a `PrecisionWarning`, because gradients of a tensor are too small for their format.
- **Differ**: none of these. A step of this kind would be wrong without a word.

`python python/tests/parity.py page` writes this page; `TREFOIL_PARITY=all` before the package's tests compares it with a new
measurement. Without it they make one setting of each network.

| network | agree | refused | warned | differ |
|---|---:|---:|---:|---:|
"""


def optimiser(name, rate):
    kind = optim.SGD if name in ("SGD", "momentum") else getattr(optim, name)
    return kind(lr=rate, **OPTIMISERS[name][1])


def sampled(name, size):
    """Which of a tensor's moves are kept."""
    if size <= SAMPLE:
        return np.arange(size)
    return np.sort(np.random.default_rng(zlib.crc32(name.encode())).choice(size, SAMPLE, replace=False))


def numbers(inputs, batch):
    """Inputs and labels of a batch."""
    arrays = data([((batch, *shape), kind) for shape, kind in inputs])
    return arrays, np.random.default_rng(batch).integers(0, CLASSES, batch)


# -- here ------------------------------------------------------------------------------------------


class Case:
    """A recorded network with PyTorch's moves."""

    def __init__(self, name):
        with np.load(FOLDER / f"{name}.npz") as file:
            index = json.loads(bytes(file["index"]))
            ends = np.cumsum(list(index.values()))
            self.moves = dict(zip(index, np.split(file["moves"], ends[:-1])))
            self.recorded = Recorded.load(bytes(file["network"]).decode(), fill)
        self.name = name
        self.inputs = [(v.shape[1:], v.kind) for v in self.recorded.inputs.values()]
        self.model = trefoil.Model._of(self.recorded)

    def slopes(self, which, rate, batch):
        """For each tensor the slope of its moves in fixed point on PyTorch's, and how far it moved: of all its moves on
        those in floats, times that of the kept ones in floats on PyTorch's.
        """
        training = planned(self.model, loss_of("cross_entropy"), optimiser(which, rate), batch, metrics=(), trained=None,
                           clip_norm=None, seed=0)
        arrays, labels = numbers(self.inputs, batch)
        arrays = [np.ascontiguousarray(x, np.float64) for x in (*arrays, one_hot(labels, CLASSES))]
        here, after = checked(training, arrays, rate)
        start = [values.reshape(shape) for values, shape in training.start()]
        slopes = {}
        for (name, _, learnt), before, values in zip(training.state(), start, after):
            key = f"{'SGD' if which == 'momentum' else which} {batch} {name}"
            if not learnt or key not in self.moves:
                continue
            want = rate * self.moves[key].astype(np.float64)
            got = (values - before).ravel()[sampled(name, values.size)]
            size = float(np.linalg.norm(want))
            # A gradient that is 0 but for rounding, as a bias has before a norm, has no direction.
            if name in here and np.abs(self.moves[f"SGD {batch} {name}"]).max() > 1e-9:
                slopes[name] = here[name] * float(got @ want) / size**2, size * np.sqrt(values.size / want.size)
        missing = {key.split(" ", 2)[2] for key in self.moves} - {name for name, _, learnt in training.state() if learnt}
        if missing:
            raise AssertionError(f"{sorted(missing)[0]} is not trained")
        return slopes

    def worst(self, which, rate, batch):
        """The tensor whose slope is farthest from 1, beyond what its rounding adds, and the slope. A step of which the
        check warns is refused.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("error", trefoil.PrecisionWarning)
            slopes = self.slopes(which, rate, batch)
        noise = lambda size: 3 * 2.0**-26 / size
        off = {name: max(0.0, abs(slope - 1) - noise(size)) for name, (slope, size) in slopes.items()}
        name = max(off, key=off.get)
        return name, slopes[name][0], off[name]


def names():
    return sorted(p.stem for p in FOLDER.glob("*.npz"))


def settings():
    return [(which, rate, batch) for which, (rates, _) in OPTIMISERS.items() for rate in rates for batch in BATCHES]


def counted(name):
    """How many settings of a network agree, are refused, are warned of, and differ; and a note on each that does not agree."""
    counts, notes, case = [0, 0, 0, 0], [], Case(name)
    for setting in settings():
        try:
            tensor, slope, off = case.worst(*setting)
            at = 0 if off <= 0.02 else 3
            note = f"{setting}: {tensor} moves {slope:.3f} times"
        except (trefoil.Error, trefoil.PrecisionWarning) as error:
            at = 1 if isinstance(error, trefoil.Error) else 2
            note = f"{setting}: {str(error)[:150]}"
        counts[at] += 1
        if at:
            notes.append((at, note))
    return counts, notes


def table(wanted):
    """Prints a line for each network, and the worst of what does not agree."""
    total = np.zeros(4, int)
    for name in wanted:
        counts, notes = counted(name)
        total += counts
        print(f"{name:20} agree {counts[0]:3}  refused {counts[1]:3}  warned {counts[2]:3}  differ {counts[3]:3}", flush=True)
        for _, note in notes if "-v" in sys.argv else sorted(notes, key=lambda n: -n[0])[:1]:
            print(f"    {note}", flush=True)
    print("{} networks: {} settings agree to 2 %, {} are refused, {} warned of, {} differ".format(len(wanted), *total))


def row(name, counts):
    """A network's line of the page."""
    return f"| {name} | " + " | ".join(map(str, counts)) + " |"


def page():
    """Measures all networks, and writes the page."""
    rows, total = [], np.zeros(4, int)
    for name in names():
        counts, _ = counted(name)
        total += counts
        rows.append(row(name, counts))
        print(rows[-1], flush=True)
    PAGE.write_text(HEAD.format(networks=len(rows)) + "\n".join([*rows, row("**all**", total), ""]))


# -- PyTorch ---------------------------------------------------------------------------------------


def architectures():
    """Names, and functions that make a module and an example."""
    import timm
    import torch
    import torchvision.models as tv
    import transformers as hf
    from torch import nn
    from timm.layers import GatedMlp
    from timm.models.convmixer import ConvMixer
    from timm.models.metaformer import MetaFormer
    from timm.models.mlp_mixer import MixerBlock, MlpMixer, ResBlock, SpatialGatingBlock
    from torchvision.models.vision_transformer import VisionTransformer

    image, words = torch.zeros(1, 3, 32, 32), torch.ones(1, 8, dtype=torch.int64)
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
             "num_labels": CLASSES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

    class Last(nn.Module):
        """Classes by the last word."""

        def __init__(self, body, size):
            super().__init__()
            self.body, self.head = body, nn.Linear(size, CLASSES)

        def forward(self, x):
            y = self.body(x)
            return self.head((y[0] if isinstance(y, tuple) else y.last_hidden_state)[:, -1])

    class Logits(nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body

        def forward(self, x):
            return self.body(x).logits

    def resnet(block, **more):
        """The first half of a ResNet."""
        whole = tv.ResNet(block, [1, 1, 0, 0], num_classes=CLASSES, **more)
        whole.layer3 = whole.layer4 = nn.Identity()
        whole.fc = nn.Linear(128 * block.expansion, CLASSES)
        return whole

    def of_timm(name, **more):
        return timm.create_model(name, num_classes=CLASSES, **more)

    def mixer(block, **more):
        return MlpMixer(num_classes=CLASSES, img_size=32, patch_size=8, num_blocks=2, embed_dim=32, block_layer=block, **more)

    basic, bottleneck = tv.resnet.BasicBlock, tv.resnet.Bottleneck
    yield "resnet", lambda: (resnet(basic), image)
    yield "resnet_bottleneck", lambda: (resnet(bottleneck), image)
    yield "resnext", lambda: (resnet(bottleneck, groups=4, width_per_group=8), image)
    yield "mobilenet_v2", lambda: (tv.MobileNetV2(CLASSES, 0.25, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]), image)
    yield "mobilenet_v3", lambda: (tv.mobilenet_v3_small(num_classes=CLASSES, width_mult=0.25), image)
    yield "vgg_bn", lambda: (nn.Sequential(
        *(layer for a, b in ((3, 8), (8, 16), (16, 16)) for layer in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))),
        nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, CLASSES)), image)
    yield "alexnet", lambda: (nn.Sequential(
        nn.Conv2d(3, 8, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Dropout(), nn.Linear(144, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, CLASSES)), image)
    yield "densenet", lambda: (tv.DenseNet(8, (2, 2), 16, num_classes=CLASSES), image)
    yield "squeezenet", lambda: (tv.squeezenet1_1(num_classes=CLASSES), image)
    yield "shufflenet_v2", lambda: (tv.ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 64], num_classes=CLASSES), image)
    yield "efficientnet", lambda: (tv.EfficientNet([
        tv.efficientnet.MBConvConfig(1, 3, 1, 8, 8, 1, 1, 1), tv.efficientnet.MBConvConfig(4, 3, 2, 8, 16, 1, 1, 1)],
        dropout=0.0, num_classes=CLASSES, last_channel=32), image)
    yield "convnext", lambda: (tv.ConvNeXt([tv.convnext.CNBlockConfig(16, 32, 1), tv.convnext.CNBlockConfig(32, None, 1)], num_classes=CLASSES), image)
    yield "regnet", lambda: (tv.RegNet(tv.regnet.BlockParams([1, 1], [8, 16], [4, 4], [1.0, 1.0], [2, 2], se_ratio=0.25), num_classes=CLASSES, stem_width=8), image)
    yield "vit", lambda: (VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=CLASSES), image)
    yield "swin", lambda: (tv.SwinTransformer([4, 4], 16, [1, 1], [2, 2], [4, 4], num_classes=CLASSES), image)
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2}
    yield "timm_vit", lambda: (of_timm("vit_tiny_patch16_224", **small, num_heads=2), image)
    yield "timm_deit3", lambda: (of_timm("deit3_small_patch16_224", **small, num_heads=2), image)
    yield "timm_mixer", lambda: (mixer(MixerBlock), image)
    yield "timm_resmlp", lambda: (mixer(ResBlock, mlp_ratio=4), image)
    yield "timm_gmlp", lambda: (mixer(SpatialGatingBlock, mlp_ratio=4, mlp_layer=GatedMlp), image)
    yield "timm_convmixer", lambda: (ConvMixer(16, 2, kernel_size=3, patch_size=4, num_classes=CLASSES), image)
    yield "timm_cait", lambda: (of_timm("cait_xxs24_224", **small, num_heads=2), image)
    yield "timm_poolformer", lambda: (MetaFormer(depths=(1, 1), dims=(16, 32), num_classes=CLASSES), image)
    yield "timm_beit", lambda: (of_timm("beit_base_patch16_224", **small, num_heads=2), image)
    yield "bert", lambda: (Logits(hf.BertForSequenceClassification(hf.BertConfig(**sizes))), words)
    yield "roberta", lambda: (Logits(hf.RobertaForSequenceClassification(hf.RobertaConfig(**sizes))), words)
    yield "electra", lambda: (Logits(hf.ElectraForSequenceClassification(hf.ElectraConfig(**sizes, embedding_size=16))), words)
    yield "albert", lambda: (Logits(hf.AlbertForSequenceClassification(hf.AlbertConfig(**sizes, embedding_size=16, classifier_dropout_prob=0.0))), words)
    yield "distilbert", lambda: (Logits(hf.DistilBertForSequenceClassification(hf.DistilBertConfig(
        vocab_size=99, dim=32, n_layers=2, n_heads=2, hidden_dim=64, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=CLASSES))), words)
    yield "gpt2", lambda: (Last(hf.GPT2Model(hf.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)), 32), words)
    yield "opt", lambda: (Last(hf.OPTModel(hf.OPTConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64, dropout=0.0, word_embed_proj_dim=32)), 32), words)
    yield "llama", lambda: (Last(hf.LlamaModel(hf.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64)), 32), words)
    yield "mistral", lambda: (Last(hf.MistralModel(hf.MistralConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, sliding_window=None)), 32), words)
    yield "hf_vit", lambda: (Logits(hf.ViTForImageClassification(hf.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8, num_labels=CLASSES))), image)
    yield "lstm", lambda: (Last(nn.LSTM(8, 16, 2, batch_first=True), 16), torch.zeros(1, 5, 8))
    yield "gru", lambda: (Last(nn.GRU(8, 16, batch_first=True), 16), torch.zeros(1, 5, 8))
    yield "mlp", lambda: (nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 16), nn.Tanh(),
                                        nn.Linear(16, CLASSES)), torch.zeros(1, 1, 8, 8))


def record(name, make):
    """Writes a network and PyTorch's moves."""
    import torch
    from torch_models import filled

    from trefoil._record import record as recorded_of

    torch.manual_seed(0)
    module, example = make()
    for layer in module.modules():
        # What is left out by chance is not compared.
        if "drop" in type(layer).__name__.lower() or "StochasticDepth" in type(layer).__name__:
            for attribute in ("p", "drop_prob"):
                if hasattr(layer, attribute):
                    setattr(layer, attribute, 0.0)
    module, filling = filled(module)
    recorded = recorded_of(module, example)
    kept = {}
    inputs = [(v.shape[1:], v.kind) for v in recorded.inputs.values()]
    for batch, which in itertools.product(BATCHES, MOVES):
        twin = copy.deepcopy(module).double().train()
        arrays, labels = numbers(inputs, batch)
        operands = [torch.from_numpy(x) if x.dtype.kind == "i" else torch.from_numpy(x).double() for x in arrays]
        before = {n: p.detach().clone() for n, p in twin.named_parameters()}
        step = getattr(torch.optim, which)(twin.parameters(), lr=2**-10, **OPTIMISERS[which][1])
        torch.nn.functional.cross_entropy(twin(*operands), torch.from_numpy(labels)).backward()
        step.step()
        for n, p in twin.named_parameters():
            if n in recorded.parameters and p.grad is not None:
                moved = ((p.detach() - before[n]) * 2**10).numpy().ravel()
                kept[f"{which} {batch} {n}"] = moved[sampled(n, moved.size)].astype(np.float32)
    FOLDER.mkdir(exist_ok=True)
    write(FOLDER / f"{name}.npz", recorded.dump(filling), kept)
    print(f"{name}: {sum(p.numel() for p in module.parameters())} weights, {len(recorded.calls)} calls", flush=True)


def write(path, network, moves):
    as_bytes = lambda text: np.frombuffer(text.encode(), np.uint8)
    index = json.dumps({key: len(values) for key, values in moves.items()})
    np.savez_compressed(path, network=as_bytes(network), index=as_bytes(index), moves=np.concatenate(list(moves.values())))


def main():
    wanted = [a for a in sys.argv[1:] if a not in ("record", "-v")]
    if wanted == ["page"]:
        return page()
    if "record" not in sys.argv:
        return table(wanted or names())
    for name, make in architectures():
        if wanted and name not in wanted:
            continue
        try:
            record(name, make)
        except Exception as error:  # noqa: BLE001 - the others are recorded all the same
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()

"""Networks for the tests of `Model.from_torch`; with PyTorch, records the small ones for tests without it.

    python python/tests/torch_models.py
"""

import gzip
import json
import math
import zlib
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "recorded"


def fill(name, shape):
    """A weight's numbers, which follow from its name: what recorded networks leave out."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) < 2:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    return (1.4 / math.sqrt(math.prod(shape[1:])) * rng.standard_normal(shape)).astype(np.float32)


def data(inputs):
    """Numbers for inputs of these shapes and kinds."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(s).astype(np.float32) if kind == "f" else rng.integers(1, 90, s) for s, kind in inputs]


def small():
    """Names, and functions that make a module and an example."""
    import torch
    import torchvision.models as tv
    import transformers as hf
    from torch import nn
    from torchvision.models.vision_transformer import VisionTransformer

    image, words = torch.zeros(1, 3, 32, 32), torch.ones(1, 8, dtype=torch.int64)
    bert = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}

    class Recurrent(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.out = layer, nn.Linear(16, 3)

        def forward(self, x):
            return self.out(self.layer(x)[0][:, -1])

    def block(inputs, outputs, kernel, stride=1):
        return [nn.Conv1d(inputs, outputs, kernel, stride, kernel // 2), nn.BatchNorm1d(outputs), nn.Hardtanh(0, 20)]

    def vgg():
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(True),
                  nn.MaxPool2d(2, 2), nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(784, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, 10)]
        return nn.Sequential(*layers)

    def conv_transpose():
        return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(0.2), nn.GroupNorm(2, 8), nn.ELU(),
                             nn.ConvTranspose2d(8, 4, 3, 2, 1, 1), nn.Softplus(), nn.AvgPool2d(4, ceil_mode=True), nn.PReLU(4))

    yield "resnet", lambda: (tv.ResNet(tv.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10), image)
    yield "mobilenet_v3", lambda: (tv.mobilenet_v3_small(num_classes=10, width_mult=0.5), image)
    yield "vgg", lambda: (vgg(), image)
    yield "densenet", lambda: (tv.DenseNet(8, (2, 2), 16, num_classes=10), image)
    yield "squeezenet", lambda: (tv.squeezenet1_1(num_classes=10), image)
    yield "vit", lambda: (VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10), image)
    yield "generator", lambda: (conv_transpose(), image)
    yield "bert", lambda: (hf.BertForSequenceClassification(hf.BertConfig(**bert)), {"input_ids": words, "attention_mask": words})
    yield "distilbert", lambda: (
        hf.DistilBertForSequenceClassification(hf.DistilBertConfig(vocab_size=99, dim=32, n_layers=2, n_heads=2, hidden_dim=64)), words)
    yield "gpt2", lambda: (hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)), words)
    yield "hf_vit", lambda: (
        hf.ViTForImageClassification(hf.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                                  image_size=32, patch_size=8)), image)
    yield "llama", lambda: (
        hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                           num_key_value_heads=2, intermediate_size=64)), words)
    yield "lstm", lambda: (Recurrent(nn.LSTM(8, 16, 2, batch_first=True)), torch.zeros(1, 5, 8))
    yield "gru", lambda: (Recurrent(nn.GRU(8, 16, batch_first=True)), torch.zeros(1, 5, 8))
    yield "mlp", lambda: (
        nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 10),
                      nn.LogSoftmax(1)), torch.zeros(1, 1, 8, 8))
    yield "wav2letter", lambda: (
        nn.Sequential(*block(13, 32, 11, 2), *block(32, 32, 11), *block(32, 48, 5), nn.Conv1d(48, 29, 1), nn.LogSoftmax(1)),
        torch.zeros(1, 13, 60))


def whole():
    """The networks at their own size, as they come."""
    import torch
    import torchvision.models as tv

    for name in ("resnet18", "mobilenet_v3_small", "vgg11", "densenet121", "efficientnet_b0", "squeezenet1_1", "vit_b_16"):
        yield name, lambda name=name: (getattr(tv, name)(), torch.zeros(1, 3, 224, 224))


def filled(module):
    """The module with the weights of :func:`fill`, to be evaluated; and the names of these."""
    import torch

    state = {}
    for name, tensor in module.state_dict().items():
        if tensor.dtype.is_floating_point:
            state[name] = torch.from_numpy(fill(name, tuple(tensor.shape)))
    module.load_state_dict(state, strict=False)
    return module.eval(), set(state)


def output(result):
    """The logits of a result."""
    return getattr(result, "logits", result)


def main():
    import torch

    from trefoil._record import record

    FOLDER.mkdir(exist_ok=True)
    for name, make in small():
        module, example = make()
        module, names = filled(module)
        recorded = record(module, example)
        inputs = [[[3, *v.shape[1:]], v.kind] for v in recorded.inputs.values()]
        numbers = [torch.from_numpy(x) for x in data(inputs)]
        if name == "bert":
            numbers[1] = (numbers[1] > 30).long()
        named = dict(zip(recorded.inputs, numbers))
        with torch.no_grad():
            result = module(**named) if isinstance(example, dict) else module(*numbers)
        # Tied weights have one name in the record; all of a module's are left out.
        text = json.dumps({
            "network": recorded.dump(names), "inputs": [x.tolist() if x.dtype == torch.int64 else None for x in numbers],
            "shapes": inputs, "output": output(result).double().reshape(-1).tolist(),
        })
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(f"{name}: {len(recorded.calls)} calls, {(FOLDER / f'{name}.json.gz').stat().st_size} bytes")


if __name__ == "__main__":
    main()

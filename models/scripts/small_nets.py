"""Small networks with the structure of the large ones, exported by PyTorch."""

import io
import warnings

import onnx
import torch
import transformers
from torch import nn
from torch.nn import functional as F

import calibrate


class Residual(nn.Module):
    """ResNet: a stem, a plain block, a block that halves the image and doubles the channels."""

    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.short = nn.Identity()
            if stride != 1:
                conv = nn.Conv2d(channels, out, 1, stride, bias=False)
                self.short = nn.Sequential(conv, nn.BatchNorm2d(out))

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + self.short(x))

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(self.Block(8, 8, 1), self.Block(8, 12, 2))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        x = self.blocks(self.pool(F.relu(self.bn(self.conv(x)))))
        return self.head(torch.flatten(self.average(x), 1))


class Dense(nn.Module):
    """DenseNet: batch norm and ReLU before each convolution, concatenation, a transition."""

    def __init__(self, growth=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, 1, 1, bias=False)
        self.layers = nn.ModuleList()
        for index in range(3):
            channels = 6 + index * growth
            self.layers.append(nn.Sequential(
                nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 8, 1, bias=False),
                nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, growth, 3, 1, 1, bias=False),
            ))
        channels = 6 + 3 * growth
        self.transition = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 9, 1, bias=False),
            nn.AvgPool2d(2), nn.BatchNorm2d(9), nn.ReLU(),
        )
        self.head = nn.Linear(9, 5)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        x = self.transition(torch.cat(features, 1))
        return self.head(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class Mobile(nn.Module):
    """MobileNet: inverted residuals with depthwise convolutions; version 3's gate and swish."""

    class Block(nn.Module):
        def __init__(self, channels, hidden, activation, gate):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), activation(),
                nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden, bias=False),
                nn.BatchNorm2d(hidden), activation(),
            )
            self.gate = None
            if gate:
                self.gate = nn.Sequential(
                    nn.AdaptiveAvgPool2d(1), nn.Conv2d(hidden, 4, 1), nn.ReLU(),
                    nn.Conv2d(4, hidden, 1), nn.Hardsigmoid(),
                )
            conv = nn.Conv2d(hidden, channels, 1, bias=False)
            self.tail = nn.Sequential(conv, nn.BatchNorm2d(channels))

        def forward(self, x):
            y = self.body(x)
            if self.gate is not None:
                y = y * self.gate(y)
            return x + self.tail(y)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.blocks = nn.Sequential(
            self.Block(8, 16, nn.ReLU6, False), self.Block(8, 16, nn.Hardswish, True)
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 6))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean([2, 3]))


class Fire(nn.Module):
    """SqueezeNet: squeeze, two expansions side by side, a convolution as the classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.one, self.three = nn.Conv2d(4, 6, 1), nn.Conv2d(4, 6, 3, padding=1)
        self.head = nn.Conv2d(12, 5, 1)

    def forward(self, x):
        x = F.relu(self.squeeze(self.pool(F.relu(self.stem(x)))))
        x = torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)
        return F.adaptive_avg_pool2d(F.relu(self.head(x)), 1).flatten(1)


class Vision(nn.Module):
    """ViT: patches by a convolution, class token, positions, one encoder block, GELU."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 17, 16) * 0.3)
        self.block = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(16, eps=1e-6)
        self.head = nn.Linear(16, 7)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.block(x))[:, 0])


class Bert(nn.Module):
    """BERT: one encoder block after the embeddings, with a mask, and the pooled output."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mix, self.pooler = (
            nn.Linear(width, width) for _ in range(5)
        )
        self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-5), nn.LayerNorm(width, eps=1e-5)

    def forward(self, x, mask):
        def split(y):
            return y.view(y.shape[0], y.shape[1], self.heads, -1).permute(0, 2, 1, 3)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(-1, -2) / (query.shape[-1] ** 0.5)
        scores = scores + ((1.0 - mask) * -64.0)[:, None, None, :]
        context = (torch.softmax(scores, dim=-1) @ value).permute(0, 2, 1, 3).flatten(2)
        x = self.norm1(x + self.mix(context))
        x = self.norm2(x + self.narrow(F.gelu(self.wide(x))))
        return x, torch.tanh(self.pooler(x[:, 0]))


class Tokens(nn.Module):
    """BERT or RoBERTa as the library `transformers` has it: tokens and a mask to hidden states."""

    def __init__(self, kind=transformers.BertModel, config=transformers.BertConfig):
        super().__init__()
        self.model = kind(
            config(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                   intermediate_size=24, max_position_embeddings=12, pad_token_id=1),
            add_pooling_layer=False,
        )

    def forward(self, tokens, mask):
        return self.model(input_ids=tokens, attention_mask=mask).last_hidden_state


def roberta():
    """Positions are counted from the tokens that are no padding."""
    return Tokens(transformers.RobertaModel, transformers.RobertaConfig)


class Patches(nn.Module):
    """ViT as the library `transformers` has it."""

    def __init__(self):
        super().__init__()
        self.model = transformers.ViTForImageClassification(transformers.ViTConfig(
            image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1,
            num_attention_heads=2, intermediate_size=24, num_labels=5,
        ))

    def forward(self, x):
        return self.model(pixel_values=x).logits


class Speech(nn.Module):
    """Wav2Letter: one-dimensional convolutions over the sound, log-probabilities per step."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 8, 25, 8, 12), nn.ReLU(), nn.Conv1d(8, 8, 7, 1, 3), nn.ReLU(),
            nn.Conv1d(8, 12, 5, 2, 2), nn.ReLU(), nn.Conv1d(12, 9, 1), nn.ReLU(),
        )

    def forward(self, x):
        return F.log_softmax(self.layers(x), dim=1)


class Coder(nn.Module):
    """Convolutions down and transposed convolutions up again."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 6, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(6, 8, 3, 2, 1), nn.ELU()
        )
        self.up = nn.Sequential(
            nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1), nn.PReLU(6),
            nn.ConvTranspose2d(6, 1, 4, 2, 1), nn.Sigmoid(),
        )

    def forward(self, x):
        return self.up(self.down(x))


class LeNet(nn.Module):
    """LeNet with average pooling and a softmax."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 10, 5),
            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(40, 24), nn.ReLU6(),
            nn.Linear(24, 10), nn.Softmax(dim=1),
        )

    def forward(self, x):
        return self.layers(x)


# Name, network, opset, whether PyTorch's current exporter makes it, shapes of the inputs.
NETS = [
    ("residual", Residual, 18, True, [(2, 3, 24, 24)]),
    ("dense", Dense, 18, True, [(2, 3, 10, 10)]),
    ("mobile", Mobile, 18, True, [(2, 3, 12, 12)]),
    ("fire", Fire, 18, True, [(2, 3, 16, 16)]),
    ("vision", Vision, 18, True, [(2, 3, 16, 16)]),
    ("vision", Vision, 20, True, [(2, 3, 16, 16)]),
    ("bert", Bert, 20, True, [(2, 6, 16), "mask"]),
    ("tokens", Tokens, 18, True, ["tokens", "padding"]),
    ("roberta", roberta, 18, True, ["tokens", "padding"]),
    ("patches", Patches, 18, True, [(2, 3, 16, 16)]),
    ("speech", Speech, 18, True, [(2, 1, 160)]),
    ("coder", Coder, 21, True, [(2, 1, 12, 12)]),
    ("lenet", LeNet, 18, True, [(2, 1, 16, 16)]),
    # The older exporter, whose files are common.
    ("residual", Residual, 11, False, [(2, 3, 24, 24)]),
    ("mobile", Mobile, 12, False, [(2, 3, 12, 12)]),
    ("vision", Vision, 14, False, [(2, 3, 16, 16)]),
    ("bert", Bert, 17, False, [(2, 6, 16), "mask"]),
    ("tokens", Tokens, 17, False, ["tokens", "padding"]),
    ("patches", Patches, 17, False, [(2, 3, 16, 16)]),
    ("lenet", LeNet, 11, False, [(2, 1, 16, 16)]),
    # With a batch of any size, which shows as arithmetic on shapes inside the graph.
    ("vision-batch", Vision, 18, True, [(2, 3, 16, 16)]),
    ("vision-batch", Vision, 16, False, [(2, 3, 16, 16)]),
    ("tokens-batch", Tokens, 18, True, ["tokens", "padding"]),
    ("tokens-batch", Tokens, 17, False, ["tokens", "padding"]),
    ("roberta-batch", roberta, 17, False, ["tokens", "padding"]),
    ("residual-batch", Residual, 19, True, [(2, 3, 24, 24)]),
    ("dense-batch", Dense, 12, False, [(2, 3, 10, 10)]),
]


def exports():
    """Yields name, ONNX model and inputs of every network."""
    for name, build, opset, current, shapes in NETS:
        torch.manual_seed(len(name) * 100 + opset)
        inputs = [_input(shape) for shape in shapes]
        model = calibrate.calibrate(build(), *inputs)
        largest = calibrate.largest_activation(model, *inputs)
        assert largest < 1024, f"{name}: activations reach {largest}"
        names = [f"x{index}" for index in range(len(inputs))]
        any_batch = name.endswith("-batch")
        proto = _export(model, tuple(inputs), names, opset, current, any_batch)
        yield f"{name}-opset{opset}", proto, [value.numpy() for value in inputs]


def _input(shape):
    if shape == "mask":
        return torch.tensor([[1.0] * 6, [1.0] * 4 + [0.0] * 2])
    if shape == "tokens":
        return torch.tensor([[7, 22, 3, 15, 9, 28], [4, 11, 26, 17, 1, 1]])
    if shape == "padding":
        return torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    return torch.randn(shape)


def _export(model, inputs, names, opset, current, any_batch):
    options = {"input_names": names, "opset_version": opset}
    if current:
        if any_batch:
            batch = torch.export.Dim("batch")
            options["dynamic_shapes"] = tuple({0: batch} for _ in inputs)
        return torch.onnx.export(model, inputs, dynamo=True, verbose=False, **options).model_proto
    if any_batch:
        options["dynamic_axes"] = {name: {0: "batch"} for name in names}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, file, dynamo=False, **options)
    return onnx.load_model_from_string(file.getvalue())

"""Records a few training steps of small networks in PyTorch, for the tests of nn-layers.

    python models/scripts/train_fixtures.py nn-layers/tests/data

Each file holds the weights at the start, the batches, the loss before each step, and all weights and running
statistics after the last. Everything is computed in 64-bit floats; the files say which version made them.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 4
BATCH = 4


class Residual(nn.Module):
    """Batch norms before ReLU, before a sum, and of a projection."""

    shape = (3, 6, 6)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(4, momentum=0.25, eps=1e-3)
        self.down = nn.Conv2d(4, 4, 1, stride=2, bias=False)
        self.bn3 = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)) + self.bn3(self.down(x)))
        return self.fc(x.mean((2, 3)))


class Dense(nn.Module):
    """A batch norm of rows behind a matrix product."""

    shape = (5,)

    def __init__(self):
        super().__init__()
        # A bias before a batch norm has no gradient, and Adam would follow its rounding.
        self.fc1 = nn.Linear(5, 7, bias=False)
        self.bn = nn.BatchNorm1d(7)
        self.fc2 = nn.Linear(7, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.bn(self.fc1(x))))


class Convolutions(nn.Module):
    """Groups, steps, dilation, a transposed convolution, group norm and SiLU."""

    shape = (4, 6, 6)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, 8)
        self.conv2 = nn.Conv2d(8, 4, 3, stride=2, padding=2, dilation=2)
        self.up = nn.ConvTranspose2d(4, 3, 3, stride=2)
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        x = F.silu(self.norm(self.conv1(x)))
        x = F.silu(self.conv2(x))
        return self.fc(self.up(x).mean((2, 3)))


class Attention(nn.Module):
    """One head over four tokens, layer norm, GELU."""

    shape = (4, 6)

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.query = nn.Linear(6, 6)
        # A bias of the keys has no gradient either.
        self.key = nn.Linear(6, 6, bias=False)
        self.value = nn.Linear(6, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        y = self.norm(x)
        scores = self.query(y) @ self.key(y).transpose(1, 2) / 6**0.5
        x = x + scores.softmax(-1) @ self.value(y)
        return self.fc(F.gelu(x).mean(1))


NETWORKS = {"residual": Residual, "dense": Dense, "convolutions": Convolutions, "attention": Attention}

# Of Adam in all recordings.
BETAS = (0.90625, 0.99)
# Beside a root that is large: Trefoil adds its square below the root.
EPSILON = 1e-13


def sgd(**options):
    return lambda weights: torch.optim.SGD(weights, lr=0.125, **options)


def adam(kind, **options):
    return lambda weights: kind(weights, lr=2**-7, betas=BETAS, eps=EPSILON, **options)


CASES = [
    ("residual", "sgd", sgd(momentum=0.5)),
    ("dense", "sgd", sgd(momentum=0.5, nesterov=True, weight_decay=2**-6)),
    ("dense", "adam", adam(torch.optim.Adam)),
    ("dense", "amsgrad", adam(torch.optim.Adam, amsgrad=True, weight_decay=2**-6)),
    ("dense", "adamw", adam(torch.optim.AdamW, weight_decay=2**-4)),
    ("attention", "sgd", sgd(momentum=0.5)),
    ("convolutions", "sgd", sgd()),
]


def tensor(x):
    return {"dims": list(x.shape), "values": x.detach().flatten().tolist()}


def state(network):
    named = network.state_dict().items()
    return {name: tensor(x.clone()) for name, x in named if not name.endswith("num_batches_tracked")}


def record(name, kind, optimiser, smoothing):
    torch.manual_seed(7)
    network = NETWORKS[name]()
    with torch.no_grad():
        for module in network.modules():
            if hasattr(module, "weight") and not isinstance(module, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
    network.train()
    start = state(network)
    steps = optimiser(network.parameters())
    batches, losses = [], []
    for _ in range(STEPS):
        x = torch.rand(BATCH, *network.shape) * 2 - 1
        labels = torch.randint(0, 3, (BATCH,))
        # Values that the fixed-point format has, so that only the arithmetic differs.
        x = (x * 256).round() / 256
        loss = F.cross_entropy(network(x), labels, label_smoothing=smoothing)
        steps.zero_grad()
        loss.backward()
        steps.step()
        batches.append({"x": tensor(x), "labels": labels.tolist()})
        losses.append(loss.item())
    return {
        "made_by": f"torch {torch.__version__}",
        "network": name,
        "optimiser": kind,
        "smoothing": smoothing,
        "start": start,
        "batches": batches,
        "losses": losses,
        "end": state(network),
    }


def main():
    torch.set_default_dtype(torch.float64)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, kind, optimiser in CASES:
        smoothing = 0.125 if name == "attention" else 0.0
        text = json.dumps(record(name, kind, optimiser, smoothing))
        (folder / f"{name}-{kind}.json").write_text(text + "\n")


main()

"""Trains the LeNet-class model for the 8x8 digits and exports it to ONNX.

    pip install -r models/scripts/requirements.txt
    python models/scripts/train_digits.py

Reads `models/data/digits.csv.gz`. The last 360 of the 1,797 images are the test set, as is usual
for this file: they come from other writers than the first 1,437, which the model learns from.
Nothing is chosen by looking at the test set. One thread and a fixed seed make the run
repeatable on one machine; another CPU may round differently and arrive at other weights.

Writes into `models/data`: `digits.onnx`, and `digits-logits.npy` with PyTorch's f32 logits of
the 360 test images, 360 x 10, in the order of the file.
"""

import copy
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import onnx_files

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
TEST_IMAGES = 360
EPOCHS = 100
BATCH = 64


def load():
    """Images as N x 1 x 8 x 8 in [0, 1], and labels."""
    table = np.loadtxt(DATA / "digits.csv.gz", delimiter=",", dtype=np.float32)
    images = torch.from_numpy(table[:, :64] / 16.0).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(table[:, 64].astype(np.int64))
    return images, labels


class Digits(nn.Module):
    """Two convolutions, max pooling, a convolution, average pooling, two linear layers."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 48, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(48 * 2 * 2, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, image):
        return self.classifier(self.features(image))


def augment(images, generator):
    """Turns, slants, stretches and shifts each image a little."""
    count = len(images)

    def uniform(low, high):
        return torch.empty(count).uniform_(low, high, generator=generator)

    angle, slant = uniform(-0.15, 0.15), uniform(-0.15, 0.15)
    cos, sin = torch.cos(angle), torch.sin(angle)
    high, wide = uniform(0.9, 1.1), uniform(0.9, 1.1)
    rows = [
        torch.stack([cos * high, (slant * cos - sin) * wide, uniform(-0.15, 0.15)], dim=1),
        torch.stack([sin * high, (slant * sin + cos) * wide, uniform(-0.15, 0.15)], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), images.shape, align_corners=False)
    return F.grid_sample(images, grid, align_corners=False).clamp(0, 1)


def train(images, labels):
    generator = torch.Generator().manual_seed(1998)
    model = Digits()
    average = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=6e-3, total_steps=steps)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images), generator=generator)
        total = 0.0
        for picked in order.split(BATCH)[: len(images) // BATCH]:
            logits = model(augment(images[picked], generator))
            loss = F.cross_entropy(logits, labels[picked], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), model.parameters()):
                    mean.lerp_(weight, 0.01)
        if epoch % 25 == 24:
            print(f"epoch {epoch + 1}: mean loss {total / (len(images) // BATCH):.4f}")
    return average.eval()


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    images, labels = load()
    model = train(images[:-TEST_IMAGES], labels[:-TEST_IMAGES])
    with torch.no_grad():
        logits = model(images[-TEST_IMAGES:])
        train_right = model(images[:-TEST_IMAGES]).argmax(1) == labels[:-TEST_IMAGES]
    right = logits.argmax(1) == labels[-TEST_IMAGES:]
    print(f"training images right: {train_right.float().mean():.2%}")
    print(f"test images right: {right.sum()} of {TEST_IMAGES} ({right.float().mean():.2%})")
    print(f"largest logit: {logits.abs().max():.3f}")
    np.save(DATA / "digits-logits.npy", logits.numpy())
    program = torch.onnx.export(
        model,
        (images[:2],),
        input_names=["image"],
        output_names=["logits"],
        opset_version=18,
        dynamo=True,
        dynamic_shapes={"image": {0: torch.export.Dim("batch")}},
    )
    onnx_files.save(program.model_proto, DATA / "digits.onnx")
    check(images[-TEST_IMAGES:].numpy(), logits.numpy())


def check(images, logits):
    """The exported file gives PyTorch's logits."""
    import onnxruntime

    session = onnxruntime.InferenceSession(DATA / "digits.onnx")
    (found,) = session.run(["logits"], {"image": images})
    print(f"onnxruntime differs by at most {np.abs(found - logits).max():.1e}")


if __name__ == "__main__":
    main()

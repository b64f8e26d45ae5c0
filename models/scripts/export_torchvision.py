"""Exports torchvision's classifiers with random weights, with inputs and onnxruntime's logits.

    pip install -r models/scripts/requirements.txt
    python models/scripts/export_torchvision.py [FOLDER] [NAME ...]

Writes `NAME.onnx` and `NAME.safetensors` into FOLDER (`target/torchvision` by default), for the
names given or all of them; 1.1 GB in all, hence not in the repository. The input `in.0` is a
photograph from `models/data`, prepared as for ImageNet; `out.0` holds onnxruntime's logits.
Weights are seeded and scaled so that activations keep a magnitude of about one.
"""

import pathlib
import sys

import numpy as np
import onnxruntime
import torch
import torchvision
from PIL import Image
from torchvision import transforms

import calibrate
import onnx_files

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES = ["alexnet", "vgg16_bn", "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1",
         "densenet121"]
OPSET = 18


def photographs():
    """Both photographs, 2 x 3 x 224 x 224."""
    prepare = transforms.Compose([
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])
    files = [ROOT / "models/data" / name for name in ("china.jpg", "flower.jpg")]
    return torch.stack([prepare(Image.open(file).convert("RGB")) for file in files])


def export(name, folder):
    torch.manual_seed(20)
    images = photographs()
    model = calibrate.calibrate(torchvision.models.get_model(name, weights=None), images)
    largest = calibrate.largest_activation(model, images)
    assert largest < 1024, f"{name}: activations reach {largest}"
    image = images[:1]
    program = torch.onnx.export(
        model, (image,), dynamo=True, verbose=False, opset_version=OPSET,
        input_names=["image"], output_names=["logits"],
    )
    path = folder / f"{name}.onnx"
    onnx_files.save(program.model_proto, path)
    (logits,) = onnxruntime.InferenceSession(path).run(None, {"image": image.numpy()})
    onnx_files.save_tensors({"in.0": image, "out.0": logits}, folder / f"{name}.safetensors")
    size = path.stat().st_size / 1e6
    print(f"{name}: {size:.0f} MB, largest activation {largest:.1f}, largest logit "
          f"{np.abs(logits).max():.2f}", flush=True)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target/torchvision"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in sys.argv[2:] or NAMES:
        export(name, folder)


if __name__ == "__main__":
    main()

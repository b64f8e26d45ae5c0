"""Exports the architectures of torchvision, timm and transformers with random weights, and what PyTorch answers.

    pip install -r models/scripts/network-requirements.txt
    python models/scripts/export_networks.py FOLDER [torchvision timm transformers] [--only NAME] [--first N]

Beside `NAME.onnx` lies `NAME.safetensors` with inputs `in.0`, ... and PyTorch's results `out.0`, ..., all as f32. What is
there already is not made again. One architecture after the other is exported by PyTorch's older exporter and by its newer one. What an exporter cannot
export, or exports so that onnxruntime answers otherwise than PyTorch, is left out and said. Of timm each of its modules
gives the smallest network among its first five by name; those of transformers have their usual structure, but two
layers of 32 features. Inputs are as small as a network takes them.
"""

import argparse
import io
import pathlib
import signal
import sys
import traceback
import warnings

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import torchvision
import transformers

import calibrate
import onnx_files

# Seconds for one network.
LIMIT = 240

# The largest network, in parameters: random weights of more say nothing more about operators.
LARGEST = 40_000_000

OLD, NEW = 17, 20

TORCHVISION = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3",
    "maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18",
    "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_32",
    "wide_resnet50_2", "deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large", "mc3_18", "mvit_v1_b",
    "r2plus1d_18", "r3d_18", "s3d", "swin3d_t",
]

TEXTS = [
    "albert", "bart", "bert", "bloom", "camembert", "codegen", "convbert", "deberta", "deberta-v2", "distilbert",
    "electra", "ernie", "falcon", "fnet", "gemma", "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "mpnet",
    "opt", "phi", "qwen2", "roberta", "roformer", "squeezebert", "stablelm", "t5", "xglm", "xlm-roberta",
]

IMAGES = ["beit", "convnext", "convnextv2", "cvt", "deit", "dinov2", "mobilevit", "poolformer", "regnet", "resnet",
          "segformer", "swin", "vit"]

# What configurations call sizes, and the sizes here.
SIZES = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 32, "word_embed_proj_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "rotary_dim": 8,
    "intermediate_size": 64, "n_inner": 64, "hidden_dim": 64, "d_ff": 64, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "ffn_dim": 64, "vocab_size": 101, "max_position_embeddings": 64, "n_positions": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}


class Late(Exception):
    pass


def late(*_):
    raise Late(f"took more than {LIMIT} s")


class Tensors(torch.nn.Module):
    """A network whose results are its tensors alone, in order."""

    def __init__(self, network, names=None, **options):
        super().__init__()
        self.network, self.names, self.options = network, names, options

    def forward(self, *inputs):
        if self.names:
            found = self.network(**dict(zip(self.names, inputs, strict=True)), **self.options)
        else:
            found = self.network(*inputs, **self.options)
        if isinstance(found, dict):
            found = tuple(found.values())
        found = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(value for value in found if torch.is_tensor(value))


def calibrated(model, *inputs):
    """With weights that keep activations at about one, where the network can be run so; else as it is."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # The deviation of a channel of few pixels is that of several images.
    several = [torch.randn(8, *x.shape[1:]) if x.is_floating_point() else x for x in inputs]
    try:
        calibrate.calibrate(model, *several)
        with torch.no_grad():
            if all(torch.isfinite(value).all() for value in model(*inputs)):
                return model
    except Exception:
        pass
    model.load_state_dict(before)
    return model.eval()


def of_torchvision():
    for name in TORCHVISION:
        def build(name=name):
            options = {"weights": None}
            if "deeplab" in name or "fcn" in name or "lraspp" in name:
                options["weights_backbone"] = None
            size = {"inception_v3": 75, "maxvit_t": 224, "vit_b_32": 224, "alexnet": 64}.get(name, 64)
            video = name in ("mc3_18", "mvit_v1_b", "r2plus1d_18", "r3d_18", "s3d", "swin3d_t")
            shape = [1, 3, 16, size, size] if video else [1, 3, size, size]
            if name == "mvit_v1_b":
                shape = [1, 3, 16, 224, 224]
            if name == "s3d":
                shape = [1, 3, 16, 224, 224]
            if name in ("googlenet", "inception_v3"):
                options |= {"init_weights": True, "aux_logits": False}
            return Tensors(torchvision.models.get_model(name, **options)), [torch.randn(shape)]
        yield f"torchvision-{name}", build


def of_timm():
    modules = {}
    for name in timm.list_models():
        modules.setdefault(timm.models._registry._model_to_module[name], []).append(name)
    for module, names in sorted(modules.items()):
        def build(names=names):
            def parameters(name):
                with torch.device("meta"):
                    return sum(p.numel() for p in timm.create_model(name).parameters())
            name = min(names[:5], key=parameters)
            model = timm.create_model(name)
            size = model.default_cfg["input_size"][-1]
            for smaller in (64, 96, 128):
                try:
                    try:
                        small = timm.create_model(name, img_size=smaller).eval()
                    except TypeError:
                        small = timm.create_model(name).eval()
                    with torch.no_grad():
                        small(torch.randn(1, 3, smaller, smaller))
                    model, size = small, smaller
                    break
                except Exception:
                    continue
            return Tensors(model), [torch.randn(1, 3, size, size)]
        yield f"timm-{module}", build


def of_transformers():
    for kind in TEXTS:
        def build(kind=kind):
            config = transformers.AutoConfig.for_model(kind)
            for name, value in SIZES.items():
                if hasattr(config, name):
                    try:
                        setattr(config, name, value)
                    except (AttributeError, NotImplementedError):
                        pass
            if kind == "gpt_neo":
                config.attention_types = [[["global", "local"], 1]]
                config.attention_layers = ["global", "local"]
            if hasattr(config, "use_cache"):
                config.use_cache = False
            config._attn_implementation = "eager"
            model = transformers.AutoModel.from_config(config, attn_implementation="eager")
            ids = torch.randint(3, 100, (1, 10))
            names, inputs = ["input_ids", "attention_mask"], [ids, torch.ones_like(ids)]
            inputs[1][0, -3:] = 0
            if kind in ("fnet", "bloom"):
                names, inputs = names[:1], inputs[:1]
            if kind in ("t5",):
                model = model.encoder
            return Tensors(model, names, return_dict=False), inputs
        yield f"transformers-{kind}", build
    for kind in IMAGES:
        def build(kind=kind):
            config = transformers.AutoConfig.for_model(kind)
            for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
                if isinstance(getattr(config, name, None), int):
                    setattr(config, name, SIZES[name])
            size = 256 if kind == "mobilevit" else 64
            if isinstance(getattr(config, "image_size", None), int):
                config.image_size = size
            model = transformers.AutoModel.from_config(config, attn_implementation="eager")
            return Tensors(model, ["pixel_values"], return_dict=False), [torch.randn(1, 3, size, size)]
        yield f"transformers-{kind}", build


def exported(model, inputs, opset):
    if opset == NEW:
        program = torch.onnx.export(model, tuple(inputs), dynamo=True, verbose=False, opset_version=opset)
        return program.model_proto
    file = io.BytesIO()
    torch.onnx.export(model, tuple(inputs), file, dynamo=False, opset_version=opset)
    return onnx.load_model_from_string(file.getvalue())


def save(name, build, opset, folder):
    torch.manual_seed(3)
    model, inputs = build()
    count = sum(p.numel() for p in model.parameters())
    if count > LARGEST:
        raise ValueError(f"has {count} parameters")
    model = calibrated(model.eval(), *inputs)
    with torch.no_grad():
        wanted = [value.float().numpy() for value in model(*inputs)]
        written = exported(model, inputs, opset)
    session = onnxruntime.InferenceSession(written.SerializeToString())
    feed = {spec.name: value.numpy() for spec, value in zip(session.get_inputs(), inputs, strict=True)}
    got = session.run(None, feed)
    assert len(got) == len(wanted), f"{len(got)} results, PyTorch has {len(wanted)}"
    for a, b in zip(got, wanted, strict=True):
        assert np.isfinite(b).all(), "is not finite"
        assert np.abs(a - b).max() < 1e-3 * max(1, np.abs(b).max()), "onnxruntime answers otherwise"
    onnx_files.strip(written.graph)
    onnx.save(written, folder / f"{name}.onnx")
    tensors = {f"in.{i}": value.numpy() for i, value in enumerate(inputs)}
    onnx_files.save_tensors(tensors | {f"out.{i}": v for i, v in enumerate(wanted)}, folder / f"{name}.safetensors")
    largest = max(np.abs(value).max() for value in wanted)
    print(f"{name}: {count / 1e6:.1f} M parameters, inputs {[list(x.shape) for x in inputs]}, opset {opset}, "
          f"largest result {largest:.1f}", flush=True)


def main():
    libraries = {"torchvision": of_torchvision, "timm": of_timm, "transformers": of_transformers}
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("library", nargs="*", default=list(libraries))
    parser.add_argument("--only")
    parser.add_argument("--first", type=int)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, late)
    made = 0
    for library in options.library:
        for i, (name, build) in enumerate(list(libraries[library]())[:options.first]):
            there = (options.folder / f"{name}.safetensors").exists()
            if there or options.only not in (None, name):
                made += there
                continue
            signal.alarm(LIMIT)
            try:
                save(name, build, [OLD, NEW][i % 2], options.folder)
                made += 1
            except Exception as error:
                reason = (str(error).splitlines() or [""])[0][:160]
                print(f"{name}: left out: {type(error).__name__}: {reason}", flush=True)
                if options.only:
                    traceback.print_exc()
            finally:
                signal.alarm(0)
    sys.exit(0 if made else 1)


if __name__ == "__main__":
    main()

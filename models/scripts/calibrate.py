"""Random weights under which activations keep a magnitude of about one from layer to layer.

A network with the weights of PyTorch's default initialisation lets its signal fade or grow, so
that comparing outputs says little about the layers. Here every linear layer is scaled by the
signal that reaches it, and batch normalisation gets the statistics of that signal.
"""

import torch
from torch import nn

LINEAR = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def calibrate(model, *inputs):
    """Scales the weights of `model` in place by one pass over `inputs`; returns it in eval mode."""
    model.eval()
    hooks = []
    for module in model.modules():
        if isinstance(module, LINEAR):
            nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
            hooks.append(module.register_forward_pre_hook(_scale))
        elif isinstance(module, NORMS):
            nn.init.normal_(module.weight, mean=1.0, std=0.1)
            nn.init.normal_(module.bias, std=0.1)
            hooks.append(module.register_forward_pre_hook(_observe))
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return model


def _scale(module, inputs):
    """Makes the output of a linear layer, its bias apart, have standard deviation one."""
    bias, module.bias = module.bias, None
    spread = module.forward(*inputs).std()
    module.bias = bias
    module.weight /= spread


def _observe(module, inputs):
    (x,) = inputs
    dims = [axis for axis in range(x.dim()) if axis != 1]
    module.running_mean.copy_(x.mean(dims))
    module.running_var.copy_(x.var(dims))


def largest_activation(model, *inputs):
    """The largest magnitude that leaves any module."""
    largest = 0.0

    def watch(_module, _inputs, output):
        nonlocal largest
        tensors = output if isinstance(output, (tuple, list)) else [output]
        for tensor in tensors:
            if torch.is_tensor(tensor) and tensor.numel() > 0:
                largest = max(largest, tensor.abs().max().item())

    hooks = [module.register_forward_hook(watch) for module in model.modules()]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return largest

"""Losses and optimisers of PyTorch as those of this package; PyTorch itself is not needed."""

from . import optim
from ._errors import ConfigError

_MISSES = "this package has no counterpart: "


def _of_torch(x, package):
    return any(c.__module__.startswith(f"torch.{package}") for c in type(x).__mro__)


def is_module(x):
    """True if an object is a module of PyTorch."""
    return any(c.__name__ == "Module" for c in type(x).__mro__) and _of_torch(x, "nn")


def loss(x):
    """The loss that a module of PyTorch is, or ``x`` itself if it is none.

    Raises
    ------
    ConfigError
        Naming the feature of the module that no loss of this package supports.
    """
    if not _of_torch(x, "nn") or not hasattr(x, "reduction"):
        return x
    name = type(x).__name__
    if x.reduction != "mean":
        raise ConfigError(f"{name}(reduction={x.reduction!r}): losses are means over a batch; a sum is the mean times the rows, a factor of lr")
    weight = getattr(x, "weight", None)
    if name in ("CrossEntropyLoss", "NLLLoss"):
        ignored = None if x.ignore_index == -100 else x.ignore_index
        if name == "NLLLoss":
            return optim.LogLikelihood(weight=weight, ignore_index=ignored)
        return optim.CrossEntropy(x.label_smoothing, weight, ignored)
    if weight is not None:
        raise ConfigError(f"{name}(weight=): {_MISSES}take pos_weight")
    makes = {
        "BCEWithLogitsLoss": lambda: optim.BinaryCrossEntropy(x.pos_weight), "BCELoss": lambda: optim.BinaryCrossEntropy(probabilities=True),
        "MSELoss": optim.MeanSquare, "L1Loss": optim.Absolute, "HuberLoss": lambda: optim.Huber(x.delta),
        "SmoothL1Loss": lambda: optim.SmoothAbsolute(x.beta),
    }
    if name == "TripletMarginLoss":
        raise ConfigError("TripletMarginLoss has no labels: let the network compute it of three inputs, with reduction=\"none\" and a last axis of "
                          "1, and train it by loss=\"absolute\" with labels of zeros; Absolute shows how")
    if name not in makes:
        raise ConfigError(f"{name}: {_MISSES}there are {', '.join(['CrossEntropyLoss', 'NLLLoss', *makes])}")
    return makes[name]()


def optimiser(x):
    """The optimiser that one of PyTorch is, or ``x`` itself if it is none.

    Raises
    ------
    ConfigError
        Naming the feature of the optimiser that none of this package supports.
    """
    if not _of_torch(x, "optim") or not hasattr(x, "param_groups"):
        return x
    name = type(x).__name__
    groups = [{k: v for k, v in group.items() if k not in ("params", "initial_lr")} for group in x.param_groups]
    if any(group != groups[0] for group in groups):
        raise ConfigError(f"{name} has groups of parameters with numbers of their own; a Trainer has one group, and `trained=` names its weights")
    numbers = groups[0]
    if name not in ("SGD", "Adam", "AdamW"):
        raise ConfigError(f"torch.optim.{name}: {_MISSES}there are SGD, Adam and AdamW")
    for option in ("maximize", "dampening"):
        if numbers.get(option):
            raise ConfigError(f"torch.optim.{name}({option}=): {_MISSES}leave it out")
    if name == "SGD":
        return optim.SGD(float(numbers["lr"]), float(numbers["momentum"]), bool(numbers["nesterov"]), float(numbers["weight_decay"]))
    kind = optim.AdamW if name == "AdamW" or numbers.get("decoupled_weight_decay") else optim.Adam
    return kind(
        lr=float(numbers["lr"]), betas=tuple(float(b) for b in numbers["betas"]), eps=float(numbers["eps"]),
        weight_decay=float(numbers["weight_decay"]), amsgrad=bool(numbers["amsgrad"]),
    )


def names_of(module, x):
    """The names of a module's parameters that an optimiser of PyTorch has, or None if it has all that require a gradient."""
    own = {id(p) for group in x.param_groups for p in group["params"]}
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    names = [name for name, p in named if id(p) in own]
    if not names:
        raise ConfigError("the optimiser has none of the module's parameters")
    return None if len(names) == len(named) else names


def is_loader(x):
    """True if an object gives batches, as PyTorch's DataLoader does."""
    return hasattr(x, "__iter__") and hasattr(x, "__len__") and not hasattr(x, "shape") and not isinstance(x, (list, tuple, str, bytes, dict))

"""Times CrypTen: additive sharing among three processes over loopback, triples from a fourth, its dealer.

Operations on encrypted tensors are timed: encrypting and revealing are not. A training step is as it ships: its update
sets gradients to zero that came out wrong, which takes comparisons. The loss, which no gradient needs, is left out. Each
process has one thread, as CrypTen's own launcher sets it. See common.py for what is said.
"""

import os
import tempfile
import warnings

import common


def join(rank, folder):
    """Makes this process party `rank`; the one after the parties is the dealer."""
    os.environ.update(
        WORLD_SIZE=str(common.PARTIES), RANK=str(rank), RENDEZVOUS=f"file://{folder}/rendezvous",
        DISTRIBUTED_BACKEND="gloo", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    warnings.filterwarnings("ignore")
    import crypten
    import torch

    torch.set_num_threads(1)
    crypten.cfg.mpc.provider = "TTP"
    crypten.cfg.communicator.verbose = True  # counts bytes and rounds
    crypten.init()
    return crypten, torch


def dealer(rank, folder):
    crypten, _ = join(rank, folder)
    crypten.mpc.provider.TTPServer()


def function(operation):
    """An operation on encrypted tensors, and the same in the clear."""
    import torch

    name, *numbers = operation.split()
    if name == "conv":
        stride, padding = map(int, numbers)
        return (lambda x, w: x.conv2d(w, stride=stride, padding=padding),
                lambda x, w: torch.conv2d(x, w, stride=stride, padding=padding))
    both = {
        "add": lambda x, y: x + y,
        "relu": lambda x: x.relu(),
        "multiply": lambda x, y: x * y,
        "matmul": lambda x, y: x.matmul(y),
        "softmax": lambda x: x.softmax(1),
        "exp": lambda x: x.exp(),
        "reciprocal": lambda x: x.reciprocal(),
        "sqrt": lambda x: x.sqrt(),
        "sigmoid": lambda x: x.sigmoid(),
        "sin": lambda x: x.sin(),
    }
    if name in both:
        return both[name], both[name]
    return {
        "gelu": (lambda x: x / 2 * (1 + (x * 0.5 ** 0.5).erf()), torch.nn.functional.gelu),
        "negative": (lambda x: x < 0, lambda x: (x < 0).float()),
        "maxpool": (lambda x: x.max_pool2d(2, stride=2), lambda x: torch.max_pool2d(x, 2)),
    }[name]


def torch_network(case):
    """The network with its weights."""
    import torch
    from torch import nn

    layers, x, weights = common.network(case)
    modules, weights = [], iter(weights)
    for kind, *numbers in layers:
        if kind in ("conv", "dense"):
            kernel, bias = map(torch.from_numpy, next(weights))
            shape = kernel.shape
            module = nn.Conv2d(shape[1], *numbers) if kind == "conv" else nn.Linear(shape[1], shape[0])
            module.weight.data, module.bias.data = kernel, bias
        else:
            module = {"pool": nn.AvgPool2d, "relu": nn.ReLU, "flatten": nn.Flatten}[kind](*numbers)
        modules.append(module)
    return nn.Sequential(*modules).eval(), torch.from_numpy(x)


def trained(net, x, labels):
    """The weights of a network after a step."""
    import torch

    loss = torch.nn.functional.cross_entropy(net(x), labels)
    weights = list(net.parameters())
    gradients = torch.autograd.grad(loss, weights)
    return [(weight - common.RATE * gradient).detach() for weight, gradient in zip(weights, gradients)]


def party(rank, pipe, folder):
    crypten, torch = join(rank, folder)
    from crypten import communicator

    state = {}

    def load_training(case):
        net, x = torch_network(case)
        labels = torch.from_numpy(common.labels(case))
        private = crypten.nn.from_pytorch(net, x[:1]).encrypt(src=0).train()
        named = dict(private.named_parameters())
        weights = [named[f"{name}.data"] for name, _ in net.named_parameters()]
        start = [weight.clone() for weight in weights]
        loss = crypten.nn.CrossEntropyLoss(skip_forward=True)

        def begin():
            private.zero_grad()
            for weight, first in zip(weights, start):
                weight.set(first)

        def step(x, labels):
            loss(private(x), labels).backward()
            private.update_parameters(common.RATE)
            return weights

        state["begin"], state["run"] = begin, step
        state["arguments"] = [crypten.cryptensor(each, src=0) for each in (x, labels)]
        state["expected"] = trained(net, x, labels)

    def load(case):
        state.clear()
        state["begin"], state["learns"] = lambda: None, case in common.TRAININGS
        if state["learns"]:
            load_training(case)
        elif case in common.OPERATIONS:
            state["run"], plain = function(common.OPERATIONS[case][0])
            arguments = [torch.from_numpy(x) for x in common.operands(case)]
            state["arguments"] = [crypten.cryptensor(x, src=0) for x in arguments]
            state["expected"] = plain(*arguments)
        else:
            net, x = torch_network(case)
            state["run"] = crypten.nn.from_pytorch(net, x[:1]).eval().encrypt(src=0)
            state["arguments"] = [crypten.cryptensor(x, src=0)]
            with torch.no_grad():
                state["expected"] = net(x)

    def run():
        def work():
            with crypten.enable_grad() if state["learns"] else crypten.no_grad():
                state["result"] = state["run"](*state["arguments"])

        state["begin"]()
        communicator.get().barrier()
        crypten.reset_communication_stats()
        times = common.clocked(work)
        statistics = communicator.get().get_communication_stats()
        state["sent"] = int(statistics["bytes"]) // 2, statistics["rounds"]  # it counts both ways
        communicator.get().barrier()
        return times

    def sent():
        return state["sent"]

    def error():
        # `get_plain_text` decodes some negative numbers as one too many, so the words are decoded here.
        def decoded(result):
            shares = result._tensor
            return shares.reveal().double() / shares.encoder.scale

        if not state["learns"]:
            return common.largest_error(decoded(state["result"]), state["expected"])
        pairs = zip(state["result"], state["expected"])
        return max(common.largest_error(decoded(weight), expected) for weight, expected in pairs)

    common.obey(pipe, {"load": load, "run": run, "sent": sent, "error": error})


def main():
    import crypten
    import torchvision  # noqa: F401, which crypten.nn needs

    folder = tempfile.mkdtemp(prefix="crypten-bench-")
    parties = common.Parties(party, folder)
    helper = common.start(dealer, common.PARTIES, folder)

    def measure(case, effort):
        parties.ask("load", case)
        answer = common.repeat(lambda: parties.ask("run"), effort)
        sent = parties.ask("sent")
        answer["bytes_per_party"] = max(count for count, _ in sent)
        answer["rounds"] = max(rounds for _, rounds in sent)
        answer["max_abs_error"] = max(parties.ask("error"))
        return answer

    introduction = {
        "system": f"CrypTen {crypten.__version__}",
        "protocol": "additive sharing and a dealer, 16 fraction bits",
        "network": "tcp",
        "cases": [*common.OPERATIONS, *common.NETWORKS, *common.TRAININGS],
    }
    common.serve(introduction, measure)
    parties.close()
    helper.terminate()


if __name__ == "__main__":
    main()

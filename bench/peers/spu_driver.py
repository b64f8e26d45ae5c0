"""Times SecretFlow SPU, ABY3 over 64 bits, in three processes over loopback.

Only `Runtime.run` is timed: compiling, sharing and revealing are not. See common.py for what is said. A join of tables is a
private set intersection of two processes, one of which learns the keys that both have.
"""

import os
import re
import socket
import tempfile

import common

os.environ.setdefault("JAX_PLATFORMS", "cpu")
SENT = re.compile(r"Link details: total send bytes (\d+)")


#: Rows of each table, half of whose keys are in both.
JOINS = {"protocols/join/1e4": 10_000, "protocols/join/1e5": 100_000}


def table(path, first, rows):
    """Writes a table of a key and two columns."""
    with open(path, "w") as file:
        file.write("key,a,b\n")
        file.writelines(f"{key * 0x9E3779B97F4A7C15 % (1 << 60)},{key % 1000},{key % 77}\n" for key in range(first, first + rows))


def intersect(link, rank, folder, rows):
    """Finds the rows whose keys both tables have, for the first process alone, by KKRT: the quickest here."""
    from spu import psi

    source, found = os.path.join(folder, f"{rank}.csv"), os.path.join(folder, f"{rank}-found.csv")
    if not os.path.exists(source):
        table(source, rank * rows // 2, rows)
    protocol = psi.PsiProtocolConfig(protocol=psi.PsiProtocol.PROTOCOL_KKRT, receiver_rank=0)
    source = psi.InputParams(path=source, selected_keys=["key"], keys_unique=True)
    job = psi.PsiExecuteConfig(protocol_conf=protocol, input_params=source, output_params=psi.OutputParams(path=found))
    report = psi.psi_execute(job, link)
    if rank == 0 and report.intersection_count != rows // 2:
        raise RuntimeError(f"{report.intersection_count} of {rows // 2} pairs")


def config(libspu):
    settings = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM64)
    settings.enable_pphlo_profile = True  # prints the bytes that were sent
    return settings


def party(rank, pipe, ports, logs):
    log = logs[rank]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    from spu import api, libspu

    def linked(ports):
        description = libspu.link.Desc()
        description.recv_timeout_ms = description.http_timeout_ms = 600_000
        for peer, port in enumerate(ports):
            description.add_party(f"party-{peer}", f"127.0.0.1:{port}")
        return libspu.link.create_brpc(description, rank)

    link = linked(ports[:common.PARTIES])
    # Of the two whose tables are joined.
    pair = linked(ports[common.PARTIES:]) if rank < 2 else None
    state = {}

    def load(program, names, shares):
        state["program"] = libspu.Executable()
        state["program"].ParseFromString(program)
        state["runtime"] = api.Runtime(link, config(libspu))
        for name, share in zip(names, shares):
            state["runtime"].set_var(name, share)

    def timed(work):
        link.barrier()
        times = common.clocked(work)
        link.barrier()
        return times

    def run():
        return timed(lambda: state["runtime"].run(state["program"]))

    def join(folder, rows):
        return timed(lambda: pair and intersect(pair, rank, folder, rows))

    def sent():
        with open(log) as text:
            return int(SENT.findall(text.read())[-1])

    def result(names):
        return [state["runtime"].get_var(name) for name in names]

    common.obey(pipe, {"load": load, "run": run, "join": join, "sent": sent, "result": result})


def free_ports():
    sockets = [socket.socket() for _ in range(common.PARTIES + 2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def convolution(jax, x, kernel, stride, border):
    layout = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), [(border, border)] * 2, dimension_numbers=layout)


def windows(jax, x, kernel, stride, first, combine):
    """Pooling. Where windows do not overlap, a reshape is faster in SPU than `reduce_window`."""
    batch, channels, size, _ = x.shape
    if kernel == stride and size % kernel == 0:
        parts = x.reshape(batch, channels, size // kernel, kernel, size // kernel, kernel)
        return parts.sum((3, 5)) if combine is jax.lax.add else parts.max((3, 5))
    shape = (1, 1, kernel, kernel), (1, 1, stride, stride)
    return jax.lax.reduce_window(x, first, combine, *shape, "VALID")


def function(jax, operation):
    """The JAX function of an operation's name."""
    name, *numbers = operation.split()
    if name == "conv":
        stride, border = map(int, numbers)
        return lambda x, kernel: convolution(jax, x, kernel, stride, border)
    jnp = jax.numpy
    return {
        "add": lambda x, y: x + y,
        "relu": lambda x: jnp.maximum(x, 0),
        "negative": lambda x: x < 0,
        "multiply": lambda x, y: x * y,
        "matmul": jnp.matmul,
        "softmax": lambda x: jax.nn.softmax(x, axis=-1),
        "exp": jnp.exp,
        "reciprocal": lambda x: 1 / x,
        "sqrt": jnp.sqrt,
        "sigmoid": jax.nn.sigmoid,
        "gelu": lambda x: jax.nn.gelu(x, approximate=False),
        "sin": jnp.sin,
        "maxpool": lambda x: windows(jax, x, 2, 2, -jnp.inf, jax.lax.max),
    }[name]


def apply(jax, layers):
    """The JAX function of a network: weights one after the other behind the input."""
    def run(x, *weights):
        weights = iter(weights)
        for kind, *numbers in layers:
            if kind == "conv":
                kernel, bias = next(weights), next(weights)
                x = convolution(jax, x, kernel, *numbers[2:]) + bias[:, None, None]
            elif kind == "pool":
                x = windows(jax, x, *numbers, 0.0, jax.lax.add) / numbers[0] ** 2
            elif kind == "flatten":
                x = x.reshape(x.shape[0], -1)
            elif kind == "dense":
                kernel, bias = next(weights), next(weights)
                x = x @ kernel.T + bias
            else:
                x = jax.numpy.maximum(x, 0)
        return x
    return run


def learn(jax, layers):
    """The JAX function of a step of gradient descent: the weights after it."""
    network = apply(jax, layers)

    def loss(weights, x, labels):
        logits = network(x, *weights)
        return -(labels * jax.nn.log_softmax(logits)).sum() / labels.shape[0]

    def step(x, labels, *weights):
        gradients = jax.grad(loss)(weights, x, labels)
        return [weight - common.RATE * gradient for weight, gradient in zip(weights, gradients)]
    return step


def main():
    import jax
    import spu
    from spu import api, libspu
    from spu.utils import frontend

    folder = tempfile.mkdtemp(prefix="spu-bench-")
    logs = [os.path.join(folder, str(rank)) for rank in range(common.PARTIES)]
    parties = common.Parties(party, free_ports(), logs)
    io = api.Io(common.PARTIES, config(libspu))
    secret = libspu.Visibility.VIS_SECRET

    def measure(case, effort):
        if case in JOINS:
            folder = tempfile.mkdtemp(prefix="spu-join-")
            answer = common.repeat(lambda: parties.ask("join", folder, JOINS[case]), effort)
            return answer | {"protocol": "PSI by KKRT, two parties, one of which learns the common keys"}
        if case in common.OPERATIONS:
            run, arguments = function(jax, common.OPERATIONS[case][0]), common.operands(case)
        else:
            layers, x, weights = common.network(case)
            weights = [part for pair in weights for part in pair]
            if case in common.TRAININGS:
                run, arguments = learn(jax, layers), [x, common.labels(case), *weights]
            else:
                run, arguments = apply(jax, layers), [x, *weights]
        names = [f"in{i}" for i in range(len(arguments))]
        program, _ = frontend.compile(
            frontend.Kind.JAX, run, arguments, {}, names, [secret] * len(names),
            lambda outputs: [f"out{i}" for i in range(len(outputs))])
        shares = [io.make_shares(argument, secret) for argument in arguments]
        of_rank = [[share[rank] for share in shares] for rank in range(common.PARTIES)]
        parties.ask("load", program.SerializeToString(), tuple(names), of_rank)
        answer = common.repeat(lambda: parties.ask("run"), effort)
        answer["bytes_per_party"] = max(parties.ask("sent"))
        results = parties.ask("result", tuple(program.output_names))
        expected = jax.tree_util.tree_leaves(jax.jit(run)(*arguments))
        found = [io.reconstruct(shares) for shares in map(list, zip(*results))]
        answer["max_abs_error"] = max(map(common.largest_error, found, expected))
        return answer

    introduction = {
        "system": f"SPU {spu.__version__}",
        "protocol": "ABY3, 18 fraction bits",
        "network": "tcp",
        "cases": [*common.OPERATIONS, *common.NETWORKS, *common.TRAININGS, *JOINS],
    }
    common.serve(introduction, measure)
    parties.close()


if __name__ == "__main__":
    main()

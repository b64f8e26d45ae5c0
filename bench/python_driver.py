"""Times calls of the Python package, as the drivers in `peers` time other systems.

Three parties are threads of this process, with the threads each that the first argument says.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import common  # noqa: E402
import numpy as np  # noqa: E402

import trefoil  # noqa: E402


def main():
    threads = int(sys.argv[1])
    mpc = trefoil.local(engine="cpu", threads=threads, check=False)
    random = np.random.default_rng(2021)
    row, image, square = random.standard_normal(1000), random.standard_normal(1_000_000), random.standard_normal((1024, 1024))

    def secrets(*arrays):
        return [mpc.secret(x) for x in arrays]

    cases = {
        "python/add/1000": (lambda x, y: x + y, secrets(row, row)),
        "python/mul/1000": (lambda x, y: x * y, secrets(row, row)),
        "python/matmul/1024": (lambda x, y: x @ y, secrets(square, square)),
        "python/relu/1e6": (lambda x: x.relu(), secrets(image)),
        "python/secret/1e6": (lambda x: mpc.secret(x), [image]),
        "python/reveal/1e6": (lambda x: x.reveal(), secrets(image)),
    }

    def measure(case, effort):
        function, operands = cases[case]
        mpc.cost()
        function(*operands)
        cost = mpc.cost()
        answer = common.repeat(lambda: [common.clocked(lambda: function(*operands))], effort)
        return answer | {"bytes_per_party": cost.bytes // 3, "rounds": cost.rounds}

    introduction = {"system": "trefoil", "protocol": "rss", "network": "in-process", "cases": [*cases]}
    common.serve(introduction, measure)


if __name__ == "__main__":
    main()

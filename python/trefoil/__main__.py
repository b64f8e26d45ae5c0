"""Runs a script as three parties on this machine, over TLS between three processes.

    python -m trefoil run script.py arguments ..
    trefoil-run script.py arguments ..
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from . import _trefoil

#: How long the others may go on after a party has failed, in seconds.
_GRACE = 5.0


def _free_ports():
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _copy(pipe, party, out, lock):
    for line in pipe:
        with lock:
            out.write(f"party {party}: {line}")
            out.flush()


def run(arguments=None):
    """Start a script three times, as parties 0, 1 and 2, and wait for them.

    Parameters
    ----------
    arguments : list of str, optional
        The script and its arguments; the command line's otherwise.

    Returns
    -------
    int
        0, or the status of the first party that failed.

    Notes
    -----
    Each party is a process with certificates of a cluster that is made for this run alone; it finds its
    ``party.toml`` in ``TREFOIL_PARTY``, where :func:`trefoil.party` looks.
    """
    parser = argparse.ArgumentParser(prog="trefoil-run", description="Run a script as three parties on this machine.")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trefoil-run-") as folder:
        files = os.path.join(folder, "cluster")
        _trefoil.cluster_files(files, [f"127.0.0.1:{port}" for port in _free_ports()])
        lock, parties, copies = threading.Lock(), [], []
        for party in range(3):
            environment = os.environ | {
                "TREFOIL_PARTY": os.path.join(files, f"party-{party}", "party.toml"),
                "PYTHONUNBUFFERED": "1",
            }
            started = subprocess.Popen(
                [sys.executable, given.script, *given.arguments],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            parties.append(started)
            for pipe, out in ((started.stdout, sys.stdout), (started.stderr, sys.stderr)):
                copies.append(threading.Thread(target=_copy, args=(pipe, party, out, lock)))
                copies[-1].start()
        try:
            status = _wait(parties)
        except KeyboardInterrupt:
            # The terminal has told the parties too.
            status = 130
        for party in parties:
            if party.poll() is None:
                party.send_signal(signal.SIGTERM)
        for party in parties:
            party.wait()
        for copy in copies:
            copy.join()
    return status


def _wait(parties):
    """0 once all have ended well; else the status of the first that failed, when the others had time to say why."""
    while True:
        ended = [party.poll() for party in parties]
        failed = [status for status in ended if status]
        if failed:
            deadline = time.monotonic() + _GRACE
            while any(party.poll() is None for party in parties) and time.monotonic() < deadline:
                time.sleep(0.05)
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if None not in ended:
            return 0
        time.sleep(0.05)


def main():
    if len(sys.argv) < 2 or sys.argv[1] != "run":
        print("usage: python -m trefoil run script.py ..", file=sys.stderr)
        return 2
    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())

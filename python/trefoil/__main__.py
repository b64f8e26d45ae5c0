"""Runs a script as three parties, over TLS between three processes of this machine or on three hosts, and makes the files
by which three machines do.

    python -m trefoil run script.py arguments ..
    trefoil-run script.py arguments ..
    trefoil-run --hosts a.example,b.example,c.example script.py arguments ..
    python -m trefoil init folder --hosts a.example,b.example,c.example
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from . import _hosts, _trefoil
from ._errors import Error

#: The time that the others get to end after a party has failed, in seconds.
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


def run(arguments: list[str] | None = None) -> int:
    """Start a script three times, as parties 0, 1 and 2, and wait for them.

    Parameters
    ----------
    arguments : list of str, optional
        The options, the script and its arguments; the command line's otherwise.

    Returns
    -------
    int
        0, or the status of the first party that failed; 255 for a host that is lost, and 130 after Ctrl-C.

    Notes
    -----
    Each party is a process with certificates of a cluster that is made for this run alone; it finds its
    ``party.toml`` in ``TREFOIL_PARTY``, where :func:`trefoil.party` looks.
    """
    about = "Run a script as three parties, on this machine or on three hosts."
    parser = argparse.ArgumentParser(prog="trefoil-run", description=about)
    add = parser.add_argument
    add("--hosts", metavar="A,B,C", help="three of [USER@]HOST[:PORT]: parties 0, 1 and 2 run there, started over ssh")
    add("--ssh", metavar="PROGRAM", help="runs a command at a host; otherwise the variable TREFOIL_SSH, or ssh")
    add("--python", metavar="PROGRAM", default="python3", help="each host's Python with the package trefoil (%(default)s)")
    add("--directory", metavar="PATH", help="where the script runs at each host; the home directory unless given")
    add("--copy", metavar="PATH", action="append", default=[],
        help="a file or folder that is copied beside the script at each host; may be given again")
    add("script")
    add("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if given.hosts is None:
        return _run_here(given.script, given.arguments)
    names = [name.strip() for name in given.hosts.split(",") if name.strip()]
    try:
        return _hosts.run(
            names, given.script, given.arguments,
            ssh=_hosts.ssh_of(given.ssh), python=given.python, directory=given.directory, copies=given.copy,
        )
    except Error as error:
        print(f"trefoil-run: {error}", file=sys.stderr)
        return 2


def _run_here(script, arguments):
    """Runs the parties as three processes of this machine. Returns the status of the first that failed."""
    with tempfile.TemporaryDirectory(prefix="trefoil-run-") as folder:
        files = os.path.join(folder, "cluster")
        _trefoil.cluster_files(files, [f"127.0.0.1:{port}" for port in _free_ports()], [])
        lock, parties, copies = threading.Lock(), [], []
        for party in range(3):
            environment = os.environ | {
                "TREFOIL_PARTY": os.path.join(files, f"party-{party}", "party.toml"),
                "PYTHONUNBUFFERED": "1",
            }
            started = subprocess.Popen(
                [sys.executable, script, *arguments],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            parties.append(started)
            for pipe, out in ((started.stdout, sys.stdout), (started.stderr, sys.stderr)):
                copies.append(threading.Thread(target=_copy, args=(pipe, party, out, lock)))
                copies[-1].start()
        try:
            status = _wait(parties)
        except KeyboardInterrupt:
            # The terminal has sent the signal to the parties too.
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


def init(arguments: list[str] | None = None) -> int:
    """Make certificates and configuration files of three parties, and of clients.

    Parameters
    ----------
    arguments : list of str, optional
        The folder and its options; the command line's otherwise.

    Returns
    -------
    int
        0, or 1 if they cannot be made.
    """
    about = "Make the files of three parties, for trefoil.party(), and of clients, for trefoil.connect()."
    parser = argparse.ArgumentParser(prog="python -m trefoil init", description=about)
    parser.add_argument("folder", help="the folder to make")
    parser.add_argument("--hosts", default="", metavar="A,B,C", help="three of HOST or HOST:PORT; this machine unless given")
    parser.add_argument("--clients", default="", metavar="NAMES", help="names of clients")
    given = parser.parse_args(arguments)
    names = lambda text: [name.strip() for name in text.split(",") if name.strip()]
    try:
        members = _trefoil.cluster_files(given.folder, names(given.hosts), names(given.clients))
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for role, config in members:
        print(f"{role:<16} {config}")
    print("\nCopy each folder to its machine; keep the authority's folder offline. TREFOIL_PARTY names a party's file.")
    return 0


def main() -> int:
    """The command line of ``python -m trefoil``."""
    commands = {"run": run, "init": init}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        print(f"usage: python -m trefoil {{{','.join(commands)}}} ..", file=sys.stderr)
        return 2
    return commands[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())

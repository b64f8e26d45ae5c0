"""``trefoil-run --hosts``: a script as three parties on three hosts, each started over ssh."""

from __future__ import annotations

import base64
import json
import os
import queue
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from . import _trefoil
from ._errors import ConfigError

#: A host from which nothing comes for this time is given up, in seconds.
_SILENCE = 4.5

#: The time that the others get to end after a party has failed or was interrupted, in seconds.
_GRACE = 5.0

#: The options that ssh gets: no questions, and no longer wait for a connection than for a sign of life.
_OPTIONS = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=4"]

#: The line by which a host's shell says that it has the command.
_HELLO = "trefoil-run"

#: Reads a program from its input and runs it. What follows there is for that program.
_BOOT = 'import sys; exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())), "trefoil-run", "exec"))'


class _Host:
    """A host's ssh, and what is known of its party.

    Parameters
    ----------
    party : int
        The number of its party.
    name : str
        ``[USER@]HOST[:PORT]``.
    """

    def __init__(self, party, name):
        self.name = name
        #: The address for ssh, without the port of the party.
        self.target = name
        user, _, place = name.rpartition("@")
        if place.startswith("["):
            self.target = f"{user}@" * bool(user) + place[1:].partition("]")[0]
        elif ":" in place:
            self.target = name.rpartition(":")[0]
        #: The address for the other parties.
        self.address = place
        self.label = f"party {party} on {name}"
        self.process, self.status, self.began = None, None, False
        self.heard = time.monotonic()
        self.errors, self.readers = [], []

    def start(self, ssh, python, text):
        command = f"echo {_HELLO}; exec {shlex.quote(python)} -uc {shlex.quote(_BOOT)}"
        # In a session of its own ssh does not get Ctrl-C, which goes to the scripts through their hosts.
        self.process = subprocess.Popen(
            [*ssh, *_OPTIONS, self.target, command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        self.heard = time.monotonic()
        self.send(text)

    def read(self, events):
        """Begins to pass on its lines, and None at its end."""
        self.readers = [
            threading.Thread(target=self._read_errors, daemon=True), threading.Thread(target=self._read, args=(events,), daemon=True)
        ]
        for reader in self.readers:
            reader.start()

    def _read(self, events):
        for line in self.process.stdout:
            events.put((self, line.decode(errors="replace").rstrip("\n")))
        self.process.wait()
        # What ssh said last belongs to its end.
        self.readers[0].join(1)
        events.put((self, None))

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors = [*self.errors[-9:], line.decode(errors="replace").rstrip()]

    def send(self, data):
        """Sends bytes to the host, which need not take them."""
        threading.Thread(target=self._write, args=(data,), daemon=True).start()

    def _write(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except OSError:
            # ssh has ended; its status says why.
            pass

    def end(self):
        """Asks the host to end its script."""
        try:
            self.process.stdin.close()
        except OSError:
            pass


def _program():
    """The text of the program for hosts, after its length."""
    text = Path(__file__).with_name("_started.py").read_bytes()
    return b"%d\n" % len(text) + text


def _files(script, copies):
    """The script and what is copied with it, by the names that they get in the folder of a host."""
    files = {}
    for path in (script, *copies):
        path = Path(path)
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file")
        found = [p for p in sorted(path.rglob("*")) if p.is_file()] if path.is_dir() else [path]
        for file in found:
            files[str(file.relative_to(path.parent))] = base64.b64encode(file.read_bytes()).decode()
    return files


def _requests(hosts, script, arguments, directory, copies):
    """The first line for each host. Certificates are made for this run alone, and each host gets its own."""
    files = _files(script, copies)
    with tempfile.TemporaryDirectory(prefix="trefoil-run-") as folder:
        made = Path(folder) / "cluster"
        _trefoil.cluster_files(str(made), [host.address for host in hosts], [])
        for party in range(len(hosts)):
            own = made / f"party-{party}"
            identity = {
                f"identity/{path.name}": base64.b64encode(path.read_bytes()).decode()
                for path in own.iterdir() if path.is_file()
            }
            request = {
                "files": files | identity, "script": Path(script).name, "config": "identity/party.toml",
                "arguments": arguments, "directory": directory,
            }
            yield json.dumps(request).encode() + b"\n"


def run(
    names: list[str], script: str, arguments: list[str], *, ssh: str, python: str, directory: str | None, copies: list[str],
) -> int:
    """Start a script at three hosts and wait until all have ended.

    Parameters
    ----------
    names : list of str
        Three of ``[USER@]HOST[:PORT]``: ssh connects to ``USER@HOST``, the other parties to ``HOST:PORT``.
    script : str
        A file of this machine, which is copied to each host.
    arguments : list of str
        The script's arguments.
    ssh : str
        The program that runs a command at a host, with options of its own.
    python : str
        Each host's Python, which has the package.
    directory : str or None
        Where the script runs at each host; where ssh begins otherwise.
    copies : list of str
        Files and folders of this machine that are copied to the script's folder.

    Returns
    -------
    int
        0, the status of the first party that failed, 255 for a host that is lost, or 130 after Ctrl-C.

    Raises
    ------
    ConfigError
        If there are not three hosts, or a file does not exist.
    """
    if len(names) != 3:
        raise ConfigError(f"--hosts names {len(names)} hosts; name 3, as in --hosts a,b,c")
    hosts = [_Host(party, name) for party, name in enumerate(names)]
    program, events = _program(), queue.Queue()
    for host, request in zip(hosts, list(_requests(hosts, script, arguments, directory, copies))):
        try:
            host.start(shlex.split(ssh), python, program + request)
        except OSError as error:
            _stop(hosts)
            raise ConfigError(f"--ssh {ssh}: {error}") from None
        host.read(events)
    try:
        status = _follow(hosts, events, None)
    except KeyboardInterrupt:
        for host in hosts:
            host.send(b"interrupt\n")
        status = 130
    try:
        if status:
            # The others find out too; this is the time to say what they know.
            _follow(hosts, events, time.monotonic() + _GRACE)
    finally:
        _stop(hosts)
        _drain(events)
    return status


def _follow(hosts, events, until):
    """Shows what hosts say until all have ended, one has failed, or it is late. Returns the status; with a time it goes
    on after failures, and says nothing of hosts that are lost."""
    while any(host.status is None for host in hosts):
        if until is not None and time.monotonic() > until:
            return 0
        try:
            host, line = events.get(timeout=0.1)
            host.heard = time.monotonic()
            _take(host, line, until is None)
        except queue.Empty:
            pass
        now = time.monotonic()
        for host in hosts:
            if host.status is None and now - host.heard > _SILENCE:
                host.status = 255
                if until is None:
                    _lost(host, f"nothing came from it for {_SILENCE} seconds" if host.began else
                          f"it did not answer within {_SILENCE} seconds")
        failed = [host.status for host in hosts if host.status]
        if failed and until is None:
            return failed[0]
    return 0


def _take(host, line, first):
    """Takes a line of a host, or its end."""
    if line is None:
        if host.status is None:
            host.status = 255
            reason = f"ssh ended with {host.process.returncode}" + "".join(f"\n    {line}" for line in host.errors)
            if first:
                _lost(host, reason)
    elif not host.began:
        # What a shell prints at its start comes first.
        host.began = line == _HELLO
    elif line[:1] in ("o", "e"):
        out = sys.stdout if line[0] == "o" else sys.stderr
        out.write(f"{host.label}: {line[1:]}\n")
        out.flush()
    elif line[:1] == "x":
        host.status = int(line[1:])
    elif line[:1] == "f":
        host.status = 1
        _lost(host, f"cannot start the script: {line[1:]}")


def _lost(host, reason):
    print(f"trefoil-run: {host.label}: {reason}", file=sys.stderr, flush=True)


def _drain(events):
    """Shows what came last."""
    while not events.empty():
        host, line = events.get()
        if line is not None:
            _take(host, line, False)


def _stop(hosts):
    """Ends what still runs: hosts are asked, and their ssh is killed if that does not help."""
    running = [host for host in hosts if host.process is not None]
    for host in running:
        threading.Thread(target=host.end, daemon=True).start()
    until = time.monotonic() + _GRACE
    for host in running:
        # A lost host does not hear what it is asked.
        left = 0.5 if host.status == 255 else max(until - time.monotonic(), 0.1)
        try:
            host.process.wait(left)
        except subprocess.TimeoutExpired:
            host.process.kill()
            host.process.wait()
        for reader in host.readers:
            reader.join(1)


def ssh_of(given: str | None) -> str:
    """The program that reaches hosts: the one given, that of ``TREFOIL_SSH``, or ssh.

    Parameters
    ----------
    given : str or None
        That of the command line.

    Returns
    -------
    str
    """
    return given or os.environ.get("TREFOIL_SSH") or "ssh"

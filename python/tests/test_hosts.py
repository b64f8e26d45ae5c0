"""A script as three parties on three hosts. A program that runs commands on this machine stands in for ssh."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, trefoil
print("began", sys.argv[1:], flush=True)
with trefoil.party() as mpc:
    import beside
    print(mpc.party, (mpc.secret([1.5]) * beside.FACTOR).reveal().tolist(), os.getcwd())
print("over", file=sys.stderr)
"""

#: Parties that wait for nobody, so that the launcher alone ends them.
WAITING = """
import os, signal, sys, time
party = os.environ["TREFOIL_PARTY"]
number = int(open(party).read().split("party = ")[1][0])
try:
    print("here", os.path.dirname(os.path.dirname(party)), flush=True)
    ACTION
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(3)
"""


def ssh(folder, text='exec sh -c "$command"'):
    """Makes a stand-in: a shell script that has the host's name in `$host` and its command in `$command`."""
    path = folder / "ssh"
    skip = 'while [ "$1" = -o ]; do shift 2; done\nhost=$1\ncommand=$2\n'
    path.write_text(f"#!/bin/sh\n{skip}{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def hosts():
    """Three names of this machine, with ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return [f"{name}:{port}" for name, port in zip(("localhost", "me@127.0.0.1", "localhost"), ports)]


def start(hosts, ssh, script, *arguments, options=()):
    command = [sys.executable, "-m", "trefoil", "run", "--hosts", ",".join(hosts), "--ssh", ssh, "--python", sys.executable,
               *options, str(script), *arguments]
    # A run of the tests in the background may ignore interrupts, which would pass on to the script.
    heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeds)


def waiting(tmp_path, action="pass"):
    script = tmp_path / "waiting.py"
    script.write_text(WAITING.replace("ACTION", action))
    return script


def test_a_script_runs_at_three_hosts_and_each_line_names_its_host(tmp_path, hosts):
    script, beside, place = tmp_path / "script.py", tmp_path / "beside.py", tmp_path / "place"
    script.write_text(SCRIPT)
    beside.write_text("FACTOR = 2")
    place.mkdir()
    options = ["--copy", str(beside), "--directory", str(place)]
    # A shell may greet before it runs the command.
    greeting = ssh(tmp_path, 'echo "welcome to $host"; exec sh -c "$command"')
    ran = start(hosts, greeting, script, "--rows", "a b; c", options=options)
    out, errors = ran.communicate(timeout=120)
    assert ran.returncode == 0, out + errors
    for party, host in enumerate(hosts):
        assert f"party {party} on {host}: began ['--rows', 'a b; c']" in out
        assert f"party {party} on {host}: {party} [3.0] {place}" in out
        assert f"party {party} on {host}: over" in errors
    assert "welcome" not in out + errors


def test_a_party_that_fails_ends_the_others(tmp_path, hosts):
    ran = start(hosts, ssh(tmp_path), waiting(tmp_path, "if number == 1: sys.exit('no more')"))
    out, errors = ran.communicate(timeout=60)
    assert ran.returncode == 1 and f"party 1 on {hosts[1]}: no more" in errors
    assert out.count("here") == 3
    # Nothing stays behind.
    assert not any(Path(line.split("here ")[1]).exists() for line in out.splitlines() if "here" in line)


LOST = {
    "refused": ('if [ "$host" = me@127.0.0.1 ]; then echo "connect: refused" >&2; exit 255; fi; exec sh -c "$command"', "pass",
                "ssh ended with 255\n    connect: refused"),
    "silent": ('if [ "$host" = me@127.0.0.1 ]; then exec sleep 60; fi; exec sh -c "$command"', "pass", "it did not answer within 4.5 s"),
    "later": ('exec sh -c "$command"', "if number == 1: os.kill(os.getppid(), signal.SIGSTOP); sys.exit()",
              "nothing came from it for 4.5 s"),
}


def test_a_host_that_is_lost_is_named_within_five_seconds(tmp_path, hosts):
    began, running = time.monotonic(), {}
    for way, (text, action, _) in LOST.items():
        folder = tmp_path / way
        folder.mkdir()
        running[way] = start(hosts, ssh(folder, text), waiting(folder, action))
    first = {way: ran.stderr.readline() for way, ran in running.items()}
    # The launchers have started meanwhile, and the script before it stops its host.
    assert time.monotonic() - began < 5 + 5
    for way, (_, _, said) in LOST.items():
        assert first[way].startswith(f"trefoil-run: party 1 on {hosts[1]}: ")
        errors = first[way] + running[way].stderr.read()
        assert running[way].wait(60) == 255 and said in errors, errors


def test_an_interrupt_reaches_the_scripts(tmp_path, hosts):
    ran = start(hosts, ssh(tmp_path), waiting(tmp_path))
    folders = [ran.stdout.readline().split("here ")[1].strip() for _ in range(3)]
    ran.send_signal(signal.SIGINT)
    out, errors = ran.communicate(timeout=60)
    assert ran.returncode == 130 and "Traceback" not in errors, errors
    assert out.count("interrupted") == 3
    assert not any(os.path.exists(folder) for folder in folders)


def test_what_cannot_be_started_is_said(tmp_path, hosts):
    cases = [
        (hosts[:2], waiting(tmp_path), [], "names 2 hosts; name 3"),
        (hosts, tmp_path / "none.py", [], "none.py: there is no such file"),
        (hosts, waiting(tmp_path), ["--ssh", str(tmp_path / "no-ssh")], "no-ssh"),
        (hosts, waiting(tmp_path), ["--directory", "/no/such/place"], "cannot start the script: .*no/such/place"),
        (hosts, waiting(tmp_path), ["--python", "/no/python"], "ssh ended with 127\n .*no/python"),
    ]
    running = [(start(names, ssh(tmp_path), script, options=options), said) for names, script, options, said in cases]
    for ran, said in running:
        _, errors = ran.communicate(timeout=60)
        assert ran.returncode not in (0, None) and "Traceback" not in errors
        assert re.search(said, errors), errors

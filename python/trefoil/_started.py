"""The part of ``trefoil-run --hosts`` that runs on each host: it writes down the files of its party, starts the script and
reports on it.

The launcher sends this file's text, so a host needs no part of the package before the script itself begins. It uses
Python's own library alone.

From the launcher come a line of JSON (:func:`main`), then lines that say ``interrupt``; its end asks the script to end.
To the launcher go lines whose first letter is their kind: ``o`` and ``e`` are the script's output and errors, ``.`` says
that this host is alive, ``x`` is the script's status, and ``f`` the reason why it could not be started.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

#: The time that a script gets to end before it is killed, in seconds.
GRACE = 3.0

#: The time between two signs of life, in seconds.
BEAT = 1.0

_lock = threading.Lock()


def report(kind, text=""):
    """Sends a line to the launcher.

    Parameters
    ----------
    kind : str
        One letter.
    text : str
        What follows it, without a line feed.
    """
    with _lock:
        try:
            sys.stdout.buffer.write(f"{kind}{text}\n".encode(errors="replace"))
            sys.stdout.buffer.flush()
        except OSError:
            # The launcher is gone, which the end of the input says too.
            pass


def _beat():
    report(".")
    timer = threading.Timer(BEAT, _beat)
    timer.daemon = True
    timer.start()


def _copy(pipe, kind):
    for line in pipe:
        report(kind, line.rstrip("\n"))


def _signal(script, number):
    try:
        os.killpg(script.pid, number)
    except ProcessLookupError:
        pass


def _obey(script):
    """Passes on what the launcher asks for; after its last word the script has to end."""
    for line in sys.stdin.buffer:
        if line.strip() == b"interrupt":
            _signal(script, signal.SIGINT)
    _signal(script, signal.SIGTERM)
    try:
        script.wait(GRACE)
    except subprocess.TimeoutExpired:
        _signal(script, signal.SIGKILL)


def _written(request):
    """A folder that only this user may read, with the request's files."""
    folder = tempfile.mkdtemp(prefix="trefoil-run-")
    os.umask(0o077)
    for name, content in request["files"].items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))
    return folder


def main():
    """Runs the script that the launcher's first line describes.

    The line is a dictionary: ``files`` are names and contents in base 64, among them the ``script`` and the party's
    ``config``; ``arguments`` are those of the script, which runs in the ``directory``, or where the host's shell begins.
    """
    _beat()
    line = sys.stdin.buffer.readline()
    if not line:
        return
    request = json.loads(line)
    mask = os.umask(0o077)
    folder = _written(request)
    os.umask(mask)
    try:
        script = subprocess.Popen(
            [sys.executable, os.path.join(folder, request["script"]), *request["arguments"]],
            env={**os.environ, "TREFOIL_PARTY": os.path.join(folder, request["config"]), "PYTHONUNBUFFERED": "1"},
            cwd=request["directory"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        report("f", str(error))
        return
    copies = [threading.Thread(target=_copy, args=made, daemon=True) for made in ((script.stdout, "o"), (script.stderr, "e"))]
    threads = [*copies, threading.Thread(target=_obey, args=(script,), daemon=True)]
    for thread in threads:
        thread.start()
    status = script.wait()
    for copy in copies:
        # A process that the script has left behind may keep its output open.
        copy.join(GRACE)
    shutil.rmtree(folder, ignore_errors=True)
    report("x", str(status if status >= 0 else 128 - status))


if __name__ == "__main__":
    main()
    # Threads that wait for the launcher end with the process.
    sys.stdout.flush()
    os._exit(0)

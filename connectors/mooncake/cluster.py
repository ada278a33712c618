"""A Mooncake cluster of two processes on free ports of 127.0.0.1: a master, and a mooncake_client that lends memory.

    python cluster.py [BYTES [DESCRIPTOR]]     lends BYTES (default 2147483648)

One line of JSON goes to the descriptor (default 1): addresses and process numbers, or {"error": why}. End of file on standard input ends
both, whatever state they are in. For `tiercel bench remote`, and for trying things by hand; nothing is kept, nothing is replicated.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PATIENCE_S = 20.0
PR_SET_PDEATHSIG = 1


class Cluster:
    """Servers that end with this process, by stop() or by its death."""

    def __init__(self, programs):
        self._programs, self._started = Path(programs), []

    def start(self, lent_bytes):
        """Returns what is told. Raises OSError where a program is missing, RuntimeError where one does not come up."""
        master, http, peer = free_port(), free_port(), free_port()
        first = self._run("mooncake_master", "--rpc_address=127.0.0.1", f"--rpc_port={master}", "--metrics_host=127.0.0.1",
                          f"--metrics_port={http}", "--default_kv_lease_ttl=5000", "--client_ttl=10", "--logtostderr=1")
        self._wait(first, "the master", lambda: reachable(master) and ask(http, "health"))
        second = self._run("mooncake_client", "--host=127.0.0.1", f"--port={peer}", f"--master_server_address=127.0.0.1:{master}",
                           "--metadata_server=P2PHANDSHAKE", "--protocol=tcp", f"--global_segment_size={lent_bytes}", "--threads=4")
        self._wait(second, "the mooncake_client", lambda: reachable(peer) and ask(http, "get_all_segments").split())
        return {"master": f"127.0.0.1:{master}", "peer": f"127.0.0.1:{peer}", "pids": {"master": first.pid, "peer": second.pid}}

    def stop(self):
        for child in self._started:
            child.kill()  # also where it is stopped
        for child in self._started:
            child.wait()

    def _run(self, program, *arguments):
        path = self._programs / program
        if not path.exists():
            raise OSError(f"{program} does not stand beside {sys.executable}; tools/connectors.sh makes an environment that has it")
        child = subprocess.Popen([path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 preexec_fn=_end_with_parent)
        self._started.append(child)
        return child

    @staticmethod
    def _wait(child, what, ready):
        until = time.monotonic() + PATIENCE_S
        while not ready():
            if child.poll() is not None:
                raise RuntimeError(f"{what} ended with {child.returncode}")
            if time.monotonic() > until:
                raise RuntimeError(f"{what} did not come up within {PATIENCE_S:g} s")
            time.sleep(0.02)


def _end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def reachable(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def ask(port, path):
    """An answer of the master's HTTP server; '' when there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=2) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def main(arguments):
    lent = int(arguments[0]) if arguments else 2 << 30
    cluster = Cluster(Path(sys.executable).parent)
    try:
        try:
            told = cluster.start(lent)
        except (OSError, RuntimeError) as error:
            told = {"error": str(error)}
        os.write(int(arguments[1]) if arguments[1:] else 1, json.dumps(told).encode() + b"\n")
        while "error" not in told and os.read(0, 4096):
            pass
    finally:
        cluster.stop()
    return 1 if "error" in told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

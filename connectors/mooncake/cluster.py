"""A Mooncake cluster on free ports of 127.0.0.1. As a program: two processes, a master and a mooncake_client that lends memory.

    python cluster.py [BYTES [DESCRIPTOR]]     lends BYTES (default 2147483648)

One line of JSON goes to the descriptor (default 1): addresses and process numbers, or {"error": why}. End of file on standard input ends
both, whatever state they are in. For `tiercel bench remote`, for the tests, and for trying things by hand; nothing is kept, nothing is
replicated.
"""

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from memory_socket import memory_socket

PATIENCE_S = 60.0  # only a program that does not come up at all takes so long
PR_SET_PDEATHSIG = 1


class Cluster:
    """Servers that end with this process, by stop() or by its death. `programs`: the folder that has them. `ttl_s`: how long the master waits
    for a client that is silent. `metadata`: with an HTTP metadata server. `said`: where they say what they say.

    Raises OSError where a program is missing, RuntimeError where one does not come up."""

    def __init__(self, programs, ttl_s=10, metadata=False, said=subprocess.DEVNULL):
        self._programs, self._ttl_s, self._said, self._started = Path(programs), ttl_s, said, []
        self.port, self.http = free_port(), free_port()
        self.metadata_server, self.meta, self.master = "P2PHANDSHAKE", None, None
        if metadata:
            self.metadata_port = free_port()
            self.metadata_server = f"http://127.0.0.1:{self.metadata_port}/metadata"

    def start(self):
        """The servers, without anybody who lends."""
        if self.metadata_server != "P2PHANDSHAKE":
            self.start_metadata_server()
        self.start_master()

    def start_metadata_server(self):
        self.meta = self._run("mooncake_http_metadata_server", "--host", "127.0.0.1", "--port", str(self.metadata_port))
        self._wait(self.meta, "the metadata server", lambda: reachable(self.metadata_port))

    def start_master(self):
        self.master = self._run("mooncake_master", "--rpc_address=127.0.0.1", f"--rpc_port={self.port}", "--metrics_host=127.0.0.1",
                                f"--metrics_port={self.http}", "--default_kv_lease_ttl=5000", f"--client_ttl={self._ttl_s}", "--logtostderr=1")
        self._wait(self.master, "the master", lambda: reachable(self.port) and self.ask("health"))

    def start_client(self, lends):
        """A mooncake_client; returns the process and its address. `lends`: bytes, or as "64MB"; "0MB" for none."""
        port, before = free_port(), self._names()
        client = self._run("mooncake_client", "--host=127.0.0.1", f"--port={port}", f"--master_server_address=127.0.0.1:{self.port}",
                           f"--metadata_server={self.metadata_server}", "--protocol=tcp", f"--global_segment_size={lends}", "--threads=4")

        def is_up():
            return reachable(port) and shares_memory(port) and (lends == "0MB" or bool(self._names() - before))
        self._wait(client, "the mooncake_client", is_up)
        return client, f"127.0.0.1:{port}"

    def ask(self, path):
        """An answer of the master's HTTP server; '' when there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{path}", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def segments(self):
        """How many lend memory; one that has died counts until the master's client_ttl is over."""
        return len(self._names())

    def _names(self):
        return set(self.ask("get_all_segments").split())

    def stop(self):
        for child in self._started:
            child.kill()  # also where it is stopped
        for child in self._started:
            child.wait()

    def _run(self, program, *arguments):
        path = self._programs / program
        if not path.exists():
            raise OSError(f"{program} does not stand beside {sys.executable}; tools/connectors.sh makes an environment that has it")
        child = subprocess.Popen([path, *arguments], stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
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
    """Below those that the kernel gives to clients: one that keeps trying a server which is gone could be given that server's own."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(10000, 30000)))
                return probe.getsockname()[1]
            except OSError:
                continue


def reachable(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def shares_memory(port):
    """A mooncake_client does so through a socket of its own, a moment after its port is open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as beside:
        return beside.connect_ex(memory_socket(port)) == 0


def main(arguments):
    lent = int(arguments[0]) if arguments else 2 << 30
    cluster = Cluster(Path(sys.executable).parent)
    try:
        try:
            cluster.start()
            peer, address = cluster.start_client(lent)
            told = {"master": f"127.0.0.1:{cluster.port}", "peer": address, "pids": {"master": cluster.master.pid, "peer": peer.pid}}
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

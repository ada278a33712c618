"""A Mooncake cluster on free ports of 127.0.0.1, for tests: a master, a metadata server, mooncake_client processes."""

import signal
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from connector_node import SOURCE, check, free_port, reachable, start_program, stop_program, wait_for

CLIENT_TTL_S = 3  # how long the master waits for a client that is silent; 10 by default


def environment_python():
    """The Python of the connectors' environment, made where it is not there yet; else the reason, as the second of the pair."""
    made = subprocess.run([SOURCE / "tools" / "connectors.sh"], capture_output=True, text=True, timeout=600)
    return (made.stdout.strip(), "") if made.returncode == 0 else (None, (made.stderr.strip().splitlines() or ["no reason given"])[-1])


class Cluster:
    """`python`: of the environment that has the wheel; its programs stand beside it."""

    def __init__(self, python, metadata=False):
        self.programs = Path(python).parent
        self.port, self.http = free_port(), free_port()
        self.said = tempfile.TemporaryFile()
        self.metadata_server, self.meta = "P2PHANDSHAKE", None
        if metadata:
            self.metadata_port = free_port()
            self.metadata_server = f"http://127.0.0.1:{self.metadata_port}/metadata"
            self.start_metadata_server()
        self.start_master()

    def _start(self, program, *arguments):
        return start_program([self.programs / program, *arguments], stdout=self.said, stderr=self.said)

    def start_metadata_server(self):
        self.meta = self._start("mooncake_http_metadata_server", "--host", "127.0.0.1", "--port", self.metadata_port)
        check(wait_for(lambda: reachable(self.metadata_port)), "the metadata server does not come up")

    def start_master(self):
        self.master = self._start("mooncake_master", "--rpc_address=127.0.0.1", f"--rpc_port={self.port}", "--metrics_host=127.0.0.1",
                                  f"--metrics_port={self.http}", "--default_kv_lease_ttl=5000", f"--client_ttl={CLIENT_TTL_S}", "--logtostderr=1")
        check(wait_for(lambda: reachable(self.port) and self.ask("health")), "the master does not come up")

    def ask(self, path):
        """An answer of the master's HTTP server, '' when there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{path}", timeout=2) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def segments(self):
        return len(self.ask("get_all_segments").split())

    def start_client(self, lends="64MB"):
        """A mooncake_client; returns the process and its address. `lends`: "0MB" for none."""
        port, wanted = free_port(), self.segments() + (lends != "0MB")
        client = self._start("mooncake_client", "--host=127.0.0.1", f"--port={port}", f"--master_server_address=127.0.0.1:{self.port}",
                             f"--metadata_server={self.metadata_server}", "--protocol=tcp", f"--global_segment_size={lends}", "--threads=4")
        check(wait_for(lambda: reachable(port) and self.segments() >= wanted), "the mooncake_client does not come up")
        return client, f"127.0.0.1:{port}"

    def config(self, **more):
        return {"master_server_address": f"127.0.0.1:{self.port}", "metadata_server": self.metadata_server, "local_hostname": "127.0.0.1",
                "probe_s": 0.5, **more}

    def stop(self):
        for process in (self.master, self.meta):
            if process:
                stop_program(process, signal.SIGTERM)

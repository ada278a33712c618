"""A Mooncake cluster for tests: the one of connectors/mooncake/cluster.py, out of the environment that has the wheel."""

import subprocess
import sys
import tempfile
from pathlib import Path

from connector_node import SOURCE  # which knows where `cluster` is

import cluster

CLIENT_TTL_S = 3  # how long the master waits for a client that is silent; 10 by default
PATIENT = {"rpc_timeout_s": 10, "transfer_timeout_s": 5}  # a busy machine's servers are slow, and that is not what is tested


def environment_python():
    """The Python of the connectors' environment, made where it is not there yet; else the reason, as the second of the pair."""
    made = subprocess.run([SOURCE / "tools" / "connectors.sh"], capture_output=True, text=True, timeout=600)
    return (made.stdout.strip(), "") if made.returncode == 0 else (None, (made.stderr.strip().splitlines() or ["no reason given"])[-1])


class Cluster(cluster.Cluster):
    """Started; raises where that fails. `python`: of the environment that has the wheel; its programs stand beside it."""

    def __init__(self, python, metadata=False, ttl_s=CLIENT_TTL_S):
        super().__init__(Path(python).parent, ttl_s, metadata, tempfile.TemporaryFile())
        self.python = python
        self.start()

    def start_client(self, lends="64MB"):
        return super().start_client(lends)

    def config(self, **more):
        return {"master_server_address": f"127.0.0.1:{self.port}", "metadata_server": self.metadata_server, "local_hostname": "127.0.0.1",
                "probe_s": 0.5, **PATIENT, **more}

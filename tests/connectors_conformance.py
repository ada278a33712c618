#!/usr/bin/env python3
"""The contract of a remote store (the program remote_conformance) over each connector, with real servers behind them.

  connectors_conformance.py PROGRAM memory|valkey|mooncake|mooncake_metadata|mooncake_dummy [option of PROGRAM ...]
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from checks import check, ends, left_out, run_program, stop_program
from connector_cluster import Cluster, environment_python
from connector_node import SOURCE
from connectors_valkey import NO_SERVER, Server, server_program

TIMEOUT_S = 800  # less than ctest's own limit: what was said until then is seen
LONG = bool(os.environ.get("TIERCEL_LONG_TESTS"))
SIZES = ["--exchange-mib", "1024", "--object-bytes-max", str(1 << 30)] if LONG else []


def conforms(python, connector, config, *options):
    words = " ".join(f"'{word}'" for word in (python, SOURCE / "connectors" / connector))
    done = run_program([PROGRAM, "--connector", words, "--config", json.dumps(config), *options, *MORE], timeout=TIMEOUT_S, capture_output=True,
                       text=True, errors="replace")
    lines = done.stdout.splitlines()
    said = [line for line in lines if "[  FAILED" in line or "Failure" in line or "PASSED" in line or line.startswith("skipped")]
    print("\n".join(said[-60:]), flush=True)
    if not check(done.returncode == 0, connector, "does not keep the contract:", done.returncode):
        print(done.stdout[-20_000:], done.stderr[-4000:], sep="\n", flush=True)


def memory():
    conforms(sys.executable, "memory", {"capacity_bytes": "2500MiB"}, "--own-objects", "--forgets", *SIZES)


def valkey():
    if server_program() is None:
        left_out("1 case", NO_SERVER)
        return
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        conforms(sys.executable, "valkey", {"url": f"valkey://127.0.0.1:{server.port}"})
        server.stop()


def mooncake(metadata=False, dummy=False):
    python, why_not = environment_python()
    if python is None:
        left_out("1 case", f"the wheel is not installed: {why_not}")
        return
    cluster = Cluster(python, metadata)
    # What is stored outlives the connector that the contract kills: somebody else lends the memory.
    client, address = cluster.start_client("2500MB" if LONG else "512MB")
    if dummy:
        conforms(python, "mooncake", {"client_server_address": address, "bounce_bytes": "64MiB"})
    else:
        conforms(python, "mooncake", cluster.config(), *SIZES)
    stop_program(client)
    cluster.stop()


CASES = {"memory": memory, "valkey": valkey, "mooncake": mooncake, "mooncake_metadata": lambda: mooncake(metadata=True),
         "mooncake_dummy": lambda: mooncake(dummy=True)}

if __name__ == "__main__":
    PROGRAM, MORE = sys.argv[1], sys.argv[3:]
    CASES[sys.argv[2]]()
    ends(f"conformance of {sys.argv[2]}")

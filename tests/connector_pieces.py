#!/usr/bin/env python3
"""From which size of its pieces on an object of an engine's own pools is put and got as it lies, and below which it is gathered into one
buffer first: both ways measured, with a master and mooncake_client processes on 127.0.0.1 that are started and stopped here. No test.

    connector_pieces.py [LIBTIERCEL.SO] [ROUNDS]     prints one line for each size of the pieces of an object of 1 MiB

The threshold is DIRECT_PIECE_BYTES of connectors/mooncake/owned_pools.py; the figures are in docs/guide/connectors.md.
"""

import json
import os
import statistics
import sys
import time

from checks import run_program
from connector_node import SOURCE

PIECES = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10]
OBJECT_BYTES, PAGES = 1 << 20, 16


def measure(address, rounds):
    """In the Python that has the wheel: seconds to store and to load PAGES objects, by size of the pieces and by way."""
    sys.path += [str(SOURCE / "connectors"), str(SOURCE / "connectors" / "mooncake")]
    from owned_pools import OwnedPools, PageSet
    from pool_plan import PoolPlan
    from tiercel_connector.library import Library
    library = Library()
    for size in PIECES:
        spec = json.dumps({"tiercel_spec": 1, "model_type": "pieces", "page_tokens": 16, "topology": {"tp": 1}, "groups": [
            {"kind": "full", "layers": [[0, OBJECT_BYTES // size - 1]], "components": [{"name": "record", "opaque_bytes": size}]}]})
        ways = {}
        for least in (0, 1 << 30):  # as it lies; gathered
            owned = OwnedPools(PoolPlan(library, spec, "layer_first", PAGES), {"client_server_address": address}, "pieces",
                               direct_piece_bytes=least, timeout_s=30)
            stores, loads = [], []
            for turn in range(rounds + 2):
                sets = [PageSet(f"{turn:08}{page:08}".encode(), {"full": page}) for page in range(PAGES)]
                for verb, seconds in ((owned.store, stores), (owned.load, loads)):
                    began = time.perf_counter()
                    failed = sum(status != 0 for status in verb(sets))
                    seconds.append(float("nan") if failed else time.perf_counter() - began)
                owned.remove(sets)
            ways[least] = [statistics.median(seconds[2:]) * 1e6 / PAGES for seconds in (stores, loads)]
            codes = owned.stats()["codes"]
            owned.close()
            if codes:
                print(f"{size >> 10:7} KiB   {'gathered' if least else 'as it lies'}: of {2 * PAGES * len(stores)} objects these failed: {codes}", flush=True)
        (put, get), (gathered_put, gathered_get) = ways.values()
        print(f"{size >> 10:7} KiB   {put:7.0f} {gathered_put:9.0f}   {get:7.0f} {gathered_get:9.0f}", flush=True)


def main():
    from connector_cluster import Cluster, environment_python
    if len(sys.argv) > 1:
        os.environ["TIERCEL_LIBRARY"] = os.path.abspath(sys.argv[1])
    python, why_not = environment_python()
    if python is None:
        sys.exit(f"the wheel is not installed: {why_not}")
    os.environ.setdefault("MC_TCP_ENABLE_CONNECTION_POOL", "1")  # of the mooncake_client; else a connection a piece, until there are no ports left
    cluster = Cluster(python)
    lender = cluster.start_client("256MB")[1]
    for words, address in (("memory that the engine's own mooncake_client lends", lender), ("another one's, by tcp", cluster.start_client("0MB")[1])):
        print(f"{words}: microseconds for an object of 1 MiB, {PAGES} a call, median\n     pieces   store, as it lies, gathered   load, as it lies, gathered",
              flush=True)
        run_program([python, __file__, "--measure", address, sys.argv[2] if len(sys.argv) > 2 else "15"], check=True)
    cluster.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], int(sys.argv[3]))
    else:
        main()

#!/usr/bin/env python3
"""An engine's own host pools in Mooncake: with a stand-in for the library (connector_owned_stand_in.py), then engine processes that are dummy
clients of two mooncake_client processes on 127.0.0.1, with a master, all started and stopped here.

    connectors_owned.py [LIBTIERCEL.SO]     default: what TIERCEL_LIBRARY names

The wheel is installed by tools/connectors.sh; where it cannot be, the cases with it are left out and counted.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from checks import check, ends, hang, left_out, read_line, run_cases, run_program, start_program, stop_program, wait_for
from connector_cluster import Cluster, environment_python
from connector_node import ABSENT, DOWN, INVALID, LATE, OK, SOURCE, free_port

STAND_IN, ENGINE = SOURCE / "tests" / "connector_owned_stand_in.py", SOURCE / "tests" / "connector_owned_engine.py"
INTERLEAVED = "layer,component|page,token,head,dim"
KV = [{"name": "k", "shape": [2, 64], "dtype": "bf16"}, {"name": "v", "shape": [2, 64], "dtype": "bf16"}]
STATE = {"kind": "state", "layers": [0, 2, 4], "components": [{"name": "conv", "shape": [96, 3], "dtype": "bf16"},
                                                              {"name": "temporal", "shape": [4, 32, 32], "dtype": "f32"}]}
FULL, WINDOW = {"kind": "full", "layers": [3, 7], "components": KV}, {"kind": "window", "window_tokens": 64, "layers": [1, 5, 6], "components": KV}
LATENT = [{"kind": "full", "replicated": True, "layers": [0, 1, 2, 3], "components": [{"name": "latent", "shape": [1, 576], "dtype": "bf16"}]},
          {"kind": "follower", "replicated": True, "layers": [1, 3], "components": [{"name": "index_k", "shape": [1, 128], "dtype": "fp8"},
                                                                                   {"name": "index_scale", "shape": [1, 1], "dtype": "f32"}]}]
MODELS = {"full + state": [FULL, STATE], "full + window + state": [FULL, WINDOW, STATE], "latent + index keys": LATENT}
PAGES = 6


def spec_of(groups, page_tokens=32):
    return json.dumps({"tiercel_spec": 1, "model_type": "t", "page_tokens": page_tokens, "topology": {"tp": 1}, "groups": groups})


class Engine:
    """A process that owns pools."""

    def __init__(self, cluster, address, spec, layout, pages=PAGES, **more):
        self.said, self.layout = tempfile.TemporaryFile(), layout
        self.process = start_program([cluster.python, ENGINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        self.opened = self.ask("open", spec=spec, layout=layout, pages=pages, config={"client_server_address": address, "probe_s": 0.5},
                               **{"timeout_s": 30, **more})  # a busy machine's servers are slow

    def ask(self, what, **arguments):
        try:
            self.process.stdin.write((json.dumps([what, arguments]) + "\n").encode())
            self.process.stdin.flush()
            return json.loads(read_line(self.process, f"the engine, told to {what}", 300))
        except (OSError, SystemExit):
            print(self.words(), flush=True)
            raise

    def verb(self, name, sets):
        return self.ask("verb", name=name, sets=sets)["statuses"]

    def words(self):
        self.said.seek(0)
        return self.said.read().decode(errors="replace")[-2000:]

    def close(self):
        self.ask("close")
        stop_program(self.process)


def sets_of(engine, seed, pages=PAGES, pools=None):
    """A set for each page number, of all pools."""
    pools = pools or engine.ask("stats")["pools"]
    return [[f"{seed:08x}{page:08x}", {name: page for name in pools}] for page in range(pages)]


def every_class_goes_round(cluster):
    """Written in one layout by one process, loaded by it, and by others in other layouts, through the other mooncake_client."""
    seed, copied = 0, 0
    for model, groups in MODELS.items():
        spec = spec_of(groups)
        readers = [Engine(cluster, cluster.addresses[1], spec, layout, **more)
                   for layout, more in (("page_first_direct", {}), ("page_first", {}), (INTERLEAVED, {"direct_piece_bytes": 0}))]
        for layout, more in (("layer_first", {"direct_piece_bytes": 0}), ("layer_first", {}), (INTERLEAVED, {"direct_piece_bytes": 0}), ("page_first", {})):
            seed += 1
            writer = Engine(cluster, cluster.addresses[0], spec, layout, **more)
            check("error" not in writer.opened and bool(writer.opened["staged"]) == (not more), model, layout, writer.opened)
            sets = sets_of(writer, seed)
            writer.ask("fill", seed=seed)
            edges = writer.ask("edges")
            check(writer.verb("exists", sets) == [ABSENT] * PAGES and writer.verb("store", sets) == [OK] * PAGES, model, layout, "stored")
            calls = writer.ask("stats")["calls"]
            check(calls["batch_put_from_multi_buffers"] == 1 and calls["batch_is_exist"] == 2, "one put, one look-up for each verb", calls)
            writer.ask("erase")
            check(writer.verb("load", sets) == [OK] * PAGES and writer.ask("edges") == edges, model, layout, "first and last bytes of each buffer")
            for engine in (writer, *readers):
                if engine is not writer:
                    engine.ask("erase")
                    check(engine.verb("exists", sets) == [OK] * PAGES and engine.verb("load", sets) == [OK] * PAGES, model, layout, engine.layout)
                compared, wrong = engine.ask("wrong", seed=seed)
                check(compared == PAGES * sum(engine.opened["bytes"]) and wrong == 0, model, layout, "to", engine.layout, wrong, "of", compared)
                copied += compared
            writer.verb("remove", sets)
            writer.close()
        for reader in readers:
            reader.close()
    print(f"  {copied >> 10} KiB compared byte by byte, three quarters of them in second processes")


def small_case(cluster):
    """H01 for real: 128 and 64 and 32 bytes, all of them through a second process."""
    spec = spec_of([{"kind": "full", "layers": [1], "components": [{"name": "k", "shape": [1, 8], "dtype": "bf16"},
                                                                   {"name": "v", "shape": [1, 8], "dtype": "bf16"}]},
                    {"kind": "state", "layers": [0], "components": [{"name": "temporal", "shape": [1, 4, 4], "dtype": "f32"},
                                                                    {"name": "conv", "shape": [4, 4], "dtype": "bf16"}]}], page_tokens=4)
    pools = [{"group": 0, "name": "full"}, {"group": 1, "name": "state", "layout": "page_first_kv_split"}]
    writer, reader = (Engine(cluster, address, spec, "page_first", 1, pools=pools) for address in cluster.addresses)
    check(writer.opened["required_bytes"] == 224 and writer.opened["buffers"] == [[128], [64, 32]], writer.opened)
    sets = sets_of(writer, 0x5A, 1)
    writer.ask("fill", seed=90)
    reader.ask("erase")
    check(writer.verb("store", sets) == [OK] and reader.verb("load", sets) == [OK], "through a second process")
    check(reader.ask("wrong", seed=90) == [224, 0] and reader.ask("edges") == writer.ask("edges"), "every byte")
    writer.close()
    reader.close()


def twice_and_wrong(cluster):
    """H13, sets with holes, pages of another size under the same name, sets that make no sense."""
    spec = spec_of(MODELS["full + window + state"])
    writer, reader = (Engine(cluster, address, spec, "layer_first", direct_piece_bytes=0) for address in cluster.addresses)
    writer.ask("fill", seed=70)
    keys = [f"aa{at:06x}" for at in range(4)]
    statuses = writer.verb("store", [[keys[0], {"full": 0}], [keys[1], {"full": 1, "state": 1}], [keys[0], {"full": 5}], [keys[2], {"full": 99}],
                                     [keys[3], {"none": 0}]])
    check(statuses == [OK, OK, OK, INVALID, INVALID], "stored", statuses)
    reader.ask("erase")
    statuses = reader.verb("load", [[keys[0], {"full": 0}], [keys[1], {"full": 1}], [keys[0], {"full": 2}], [keys[1], {"full": 3, "window64": 0}],
                                    [keys[0], {"full": 1}]])
    check(statuses == [OK, OK, OK, ABSENT, INVALID], "a key twice, a set with a hole, a page for two keys", statuses)
    edges = reader.ask("edges")[0]
    was = writer.ask("edges")[0]
    check(edges[0][:2] == was[0][:2] and edges[0][2:] == "ee", "page 0 came, the last page did not", edges, was)
    statuses = writer.verb("store", [[keys[3], {"full": 2}], [keys[1], {"full": 2}], [keys[3], {"full": 2}]])
    check(statuses == [OK] * 3 and reader.verb("exists", [[keys[3], {"full": 0}], [keys[2], {"full": 0}]]) == [OK, ABSENT], "new, present, new")
    check(writer.verb("remove", [[keys[3], {"full": 0}]]) == [OK] and reader.verb("exists", [[keys[3], {"full": 0}]]) == [ABSENT], "removed")
    writer.close()
    reader.close()


def client_dies(cluster):
    """Under an engine: each call ends, as DOWN; usable again by itself."""
    client, address = cluster.start_client()
    engine = Engine(cluster, address, spec_of(MODELS["full + state"]), "layer_first", direct_piece_bytes=0, timeout_s=5)
    engine.ask("fill", seed=80)
    sets = sets_of(engine, 0x80)
    check(engine.verb("store", sets) == [OK] * PAGES, "stored")
    hang(client)
    before = engine.ask("stats")["calls"]
    done = [engine.ask("verb", name=name, sets=sets) for name in ("exists", "load", "store", "load")]
    check(done[0]["statuses"] == [LATE] * PAGES and all(each["statuses"] == [DOWN] * PAGES for each in done[1:]), "stopped", done)
    print("  mooncake_client stopped: calls end after {} s".format(", ".join(f"{each['seconds']:.2f}" for each in done)))
    after = engine.ask("stats")["calls"]
    check(after == {**before, "batch_is_exist": before["batch_is_exist"] + 1}, "one call, which ends by its limit; then the breaker answers", after)
    client.send_signal(signal.SIGCONT)
    began = time.monotonic()
    check(wait_for(lambda: engine.verb("store", sets) == [OK] * PAGES), "usable after it went on", engine.ask("stats"))
    print(f"  usable {time.monotonic() - began:.1f} s after it went on")
    engine.ask("erase")
    check(engine.verb("load", sets) == [OK] * PAGES and engine.ask("wrong", seed=80)[1] == 0, "and what it loads is right")
    client.kill()
    client.wait()
    before = engine.ask("stats")["calls"]
    done = [engine.ask("verb", name=name, sets=sets) for name in ("load", "exists", "store")]
    check(all(each["statuses"] == [DOWN] * PAGES for each in done), "killed", done)
    check(sum(engine.ask("stats")["calls"].values()) == sum(before.values()) + 1, "one call; then the breaker answers", before, engine.ask("stats"))
    print("  mooncake_client killed: calls end after {} s".format(", ".join(f"{each['seconds']:.1f}" for each in done)))
    engine.close()
    check(wait_for(lambda: cluster.segments() == 2), "the master forgets it")
    nobody = Engine(cluster, f"127.0.0.1:{free_port()}", spec_of(MODELS["full + state"]), "layer_first")
    check(nobody.opened.get("status") == DOWN and "no mooncake_client answers" in nobody.opened["error"], nobody.opened)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ["TIERCEL_LIBRARY"] = os.path.abspath(sys.argv[1])
    checked = run_program([sys.executable, STAND_IN], timeout=600)
    check(checked.returncode == 0, "the cases with the stand-in")
    python, why_not = environment_python()
    cases = (small_case, every_class_goes_round, twice_and_wrong, client_dies)
    if python is None:
        left_out(f"{len(cases)} cases", f"the wheel is not installed: {why_not}")
    else:
        world = Cluster(python)
        world.addresses = [world.start_client()[1] for _ in range(2)]
        run_cases(cases, world)
        world.stop()
    ends("connectors owned")

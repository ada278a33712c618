#!/usr/bin/env python3
"""The Mooncake connector: with a stand-in for the library, then with the official wheel, a master, a metadata server and mooncake_client
processes on free ports of 127.0.0.1, all started and stopped here, some of them killed and stopped on the way.

The wheel is installed by tools/connectors.sh; where it cannot be, the cases with it are left out and counted.
"""

import signal
import socket
import sys
import time

from checks import check, ends, hang, left_out, run_cases, run_program, wait_for
from connector_cluster import CLIENT_TTL_S, Cluster, environment_python
from connector_node import (ABSENT, DOWN, EXISTS, FAILED, GET, INVALID, LATE, NO_ROOM, OK, PUT, REMOVE, REPLACE, SOURCE, TOO_LARGE,
                            WRONG_SIZE, Connector, free_port, refused)

FOLDER = SOURCE / "connectors" / "mooncake"
STAND_IN = SOURCE / "tests" / "connector_mooncake_stand_in.py"


def connect(cluster, config=None, **more):
    """Started again where the library's set-up fails, as a node does; that is seen now and then, and said."""
    for _ in range(3):
        node = Connector([cluster.python, FOLDER], cluster.config(**(config or {})), **more)
        if node.hello is None or node.hello.status != DOWN:
            break
        print("  started again:", node.hello.text)
        node.close()
    check(node.hello and node.hello.status == OK, config, node.hello)
    return node


def closes(*nodes):
    for node in nodes:
        status, said = node.close()
        check(status == 0, "the end:", status, said[-500:])


def until(node, verb, items, status):
    """Seconds until the verb's only item ends so, for people."""
    began = time.monotonic()
    found = wait_for(lambda: node.call(verb, items).statuses == [status])
    took = time.monotonic() - began
    check(found, "not so:", items, status, node.call(verb, items))
    return took


def objects(cluster):
    """One lends and puts, another one lends nothing and gets."""
    a, b = connect(cluster, {"global_segment_size": "128MiB"}, data_bytes=16 << 20, arena_bytes=1 << 20), connect(cluster, data_bytes=16 << 20)
    check(a.put(["x", "y", "x"], size=1000).statuses == [OK] * 3, "put, one name twice")
    done = b.get(["x", "y", "z", "x"], size=1000)
    check(done.results == [(OK, 1000), (OK, 1000), (ABSENT, 0), (OK, 1000)], "get", done)
    check(b.got(0, 1000) == b.got(3, 1000) == b"\1" * 1000 and b.got(1, 1000) == b"\2" * 1000, "bytes, of the name that came twice, too")
    check(a.put(["x"], size=500, fill=9).statuses == [OK] and b.get(["x"], size=1000).statuses == [OK], "what is there stays")
    check(b.call(EXISTS, ["x", "z"]).results == [(OK, 0), (ABSENT, 0)], "exists, sizes are not known")
    for size in (1, 999, 1001, 5000):
        check(b.get(["x"], size=size).statuses == [WRONG_SIZE], "another size:", size)
        if size > 1:
            check(b.call(GET, [("x", [(0, 0, 1), (0, 9000, size - 1)])]).statuses == [WRONG_SIZE], "another size, in pieces:", size)
    check(b.call(GET, [("x", [(0, at * 20, 10) for at in range(100)]), ("y", [(0, 5000, 1000)])]).statuses == [OK, OK], "pieces and none")
    check(b"".join(bytes(b.data[at * 20:at * 20 + 10]) for at in range(100)) == b"\1" * 1000, "bytes in pieces")
    a.arena[:8], a.data[:8] = b"arena..\n", b"data...\n"
    check(a.call(PUT, [("p", [(1, 0, 8), (0, 0, 8), (1, 0, 8)])]).statuses == [OK] and b.get(["p"], size=24).statuses == [OK], "put in pieces")
    check(b.got(0, 24) == b"arena..\ndata...\narena..\n", b.got(0, 24))
    check(a.put(["x", "x"], size=7, fill=5, verb=REPLACE).statuses == [OK, OK] and b.get(["x"], size=7).statuses == [OK], "replace")
    check(b.got(0, 7) == b"\6" * 7, "the second of two stays")
    check(a.call(REPLACE, [("x", [(0, 0, 3), (1, 0, 5)])]).statuses == [OK] and b.get(["x"], size=8).statuses == [OK], "replace in pieces")
    check(b.got(0, 8) == b"\5\5\5arena", b.got(0, 8))
    check(b.call(REMOVE, ["x", "x", "none"]).statuses == [OK, ABSENT, ABSENT], "removed although it was just looked at")
    check(b.call(GET, [("y", [(0, (16 << 20) - 8, 9)])]).statuses == [INVALID], "outside the memory: not given to the library")
    names = [f"n{at}" for at in range(64)]
    check(a.put(names, size=200_000).statuses == [OK] * 64 and b.get(names, size=200_000).statuses == [OK] * 64, "12 MB in a batch")
    check(all(b.got(at, 200_000) == bytes([1 + at]) * 200_000 for at in range(64)), "their bytes")
    closes(b)
    check(cluster.segments() == 1, "what a lends")
    closes(a)
    check(wait_for(lambda: cluster.segments() == 0), "is given back")


def gives_back(cluster):
    """What is lent goes back at the end, and not only when the master has waited for long enough."""
    patient = Cluster(cluster.python, ttl_s=3600)
    closes(connect(patient, {"global_segment_size": "16MiB"}))
    check(wait_for(lambda: patient.segments() == 0), "by the end of file")
    a = connect(patient, {"global_segment_size": "16MiB"})
    check(patient.segments() == 1, "what a lends")
    a.process.send_signal(signal.SIGTERM)
    check(a.ended()[0] == 0 and wait_for(lambda: patient.segments() == 0), "by SIGTERM")
    patient.stop()


def no_room(cluster):
    b = connect(cluster, data_bytes=32 << 20)
    check(b.put(["x"]).statuses == [NO_ROOM], "nobody lends")
    a = connect(cluster, {"global_segment_size": "16MiB"}, data_bytes=32 << 20)
    statuses = a.put([f"n{at}" for at in range(20)], size=1 << 20).statuses
    check(statuses[0] == OK and NO_ROOM in statuses and set(statuses) == {OK, NO_ROOM}, "a full segment", statuses)
    check(a.call(PUT, [("big", [(0, 0, 20 << 20)])]).statuses == [NO_ROOM], "more than the segment has")
    closes(a, b)


def dummy(cluster):
    """Dummy client of a mooncake_client on this machine; another connector reads what it stored."""
    client, address = cluster.start_client()
    config = {"client_server_address": address, "bounce_bytes": "16MiB", "workers": 2, "probe_s": 0.5}
    d, b = Connector([cluster.python, FOLDER], config, data_bytes=24 << 20), connect(cluster, data_bytes=16 << 20)
    check(d.hello.status == OK and d.put(["x", "y", "x"], size=1000).statuses == [OK] * 3, d.hello)
    for node in (d, b):
        check(node.get(["x", "y", "z", "x"], size=1000).statuses == [OK, OK, ABSENT, OK], "get")
        check(node.got(0, 1000) == node.got(3, 1000) == b"\1" * 1000 and node.got(1, 1000) == b"\2" * 1000, "bytes")
        check(node.get(["x"], size=999).statuses == node.get(["x"], size=1001).statuses == [WRONG_SIZE], "sizes")
    done = d.call(PUT, [("big", [(0, 0, (8 << 20) + 1)]), ("e", [(0, 0, 5 << 20)]), ("f", [(0, 5 << 20, 1), (0, 7 << 20, 5 << 20)])])
    check(done.statuses == [TOO_LARGE, OK, OK], "what no slice of the block holds, and what takes two calls", done)
    check(d.call(GET, [("e", [(0, 0, 5 << 20)]), ("f", [(0, 8 << 20, 5 << 20), (0, 7 << 20, 1)])]).statuses == [OK, OK], "back in other pieces")
    check(d.put(["x"], size=10, fill=7, verb=REPLACE).statuses == [OK] and b.get(["x"], size=10).statuses == [OK], "replace")
    check(b.got(0, 10) == b"\7" * 10 and d.call(REMOVE, ["x", "x"]).statuses == [OK, ABSENT], "remove")
    store = d.stats()["store"]
    check(store["dummy"] and store["bounce_copied_bytes"] > 20 << 20, store)

    hang(client)
    asked = [d.ask(EXISTS, ["y"], deadline_s=0.5), d.ask(GET, [("y", [(0, 0, 1000)])], deadline_s=0.5)]
    check(d.pings(), "a ping while the mooncake_client hangs")
    done = [d.wait(batch) for batch in asked]
    check(done[0] and done[0].statuses in ([LATE], [DOWN]), "a look-up", done)
    check(done[1] and done[1].statuses[0] in (LATE, DOWN), "a get: its bytes are still in the block", done)
    client.send_signal(signal.SIGCONT)
    print(f"  mooncake_client stopped: usable {until(d, EXISTS, ['y'], OK):.1f} s after it went on")
    client.kill()
    client.wait()
    done = [d.call(EXISTS, ["y"]) for _ in range(3)]
    check([each.statuses for each in done] == [[DOWN]] * 3 and d.pings(), "killed", done)
    closes(d, b)
    check(wait_for(lambda: cluster.segments() == 0), "the master forgets it")


def master_dies(cluster):
    """One call finds out; the next ones are spared, the connector answers, and heals by itself."""
    a, b = connect(cluster, {"global_segment_size": "64MiB"}), connect(cluster, {"rpc_timeout_s": 2})
    a.put(["x"])
    cluster.master.kill()
    cluster.master.wait()
    for node in (a, b):
        done = [node.call(EXISTS, ["x"]), node.get(["x"]), node.put(["y"]), node.call(REMOVE, ["x"])]
        check(all(each.statuses == [DOWN] for each in done) and node.pings(), "a dead master", done)
        check(f"127.0.0.1:{cluster.port} does not answer" in done[2].text, done[2])
        check(sum(node.stats()["store"]["codes"].values()) == 1, "the first one asks the library, the others are spared", node.stats())
    check(wait_for(lambda: b.stats()["store"]["probes"] > 0), "it is asked whether it is back, which takes more than four seconds")
    check(b.call(EXISTS, ["x"]).statuses == [DOWN] and b.pings(), "during the probe")
    cluster.start_master()
    took = until(b, EXISTS, ["x"], ABSENT), until(a, PUT, [("x", [(0, 0, 64)])], OK)
    print("  master killed: look-ups again {:.1f} s after its start, puts {:.1f} s later".format(*took))
    check(b.get(["x"]).statuses == [OK] and b.stats()["store"]["breaker_trips"] == 1, b.stats())

    hang(cluster.master)
    asked = [b.ask(EXISTS, ["x"], deadline_s=0.3)] + [b.ask(GET, [("x", [(0, 64 * at, 64)])]) for at in range(3)]
    check(b.pings(), "a ping while every worker waits for the master")
    done = [b.wait(batch) for batch in asked]
    check(done[0] and done[0].statuses == [LATE], "a look-up ends by its deadline", done)
    check(all(each and each.statuses == [DOWN] for each in done[1:]), "a stopped master: by its time-out, long before the deadline", done)
    cluster.master.send_signal(signal.SIGCONT)
    print(f"  master stopped: gets end after {max(each.seconds for each in done):.1f} s, usable {until(b, EXISTS, ['x'], OK):.1f} s after it went on")
    closes(a, b)


def lender_dies(cluster):
    """Killed, and stopped: its objects fail, nobody else's do, and the master stays in favour. Where the machine is so busy that the master gives
    the stopped one up meanwhile, its objects are absent."""
    a, b = connect(cluster, {"global_segment_size": "64MiB"}, data_bytes=4 << 20), connect(cluster, {"transfer_timeout_s": 2}, data_bytes=4 << 20)
    a.put(["x", "y"], size=100_000)
    check(b.get(["x"], size=100_000).statuses == [OK], "get")
    hang(a.process)
    hung = b.ask(GET, [("x", [(0, 0, 100_000)])])
    check(b.pings() and b.call(EXISTS, ["y"]).statuses in ([OK], [ABSENT]), "look-ups go on")
    done = b.wait(hung)
    check(done and done.statuses in ([FAILED], [ABSENT]), "a stopped peer: by its time-out, long before the deadline", done)
    a.process.send_signal(signal.SIGCONT)
    began = time.monotonic()
    check(wait_for(lambda: a.put(["x", "y"], size=100_000).statuses == [OK, OK] and b.get(["x"], size=100_000).statuses == [OK]), "usable again")
    print(f"  peer stopped: get ended after {done.seconds:.1f} s, usable {time.monotonic() - began:.1f} s after it went on")
    a.process.kill()
    a.process.wait()
    c = connect(cluster, {"global_segment_size": "64MiB"})
    done = b.get(["x", "y"], size=100_000)
    check(set(done.statuses) <= {FAILED, ABSENT}, "a dead peer", done)
    check(b.stats()["store"]["breaker"] == "", "a peer's death does not close the road to the master")
    took = until(b, EXISTS, ["x"], ABSENT)
    check(b.put(["x"]).statuses == [OK], "and the others lend on")
    print(f"  peer killed: its objects are absent after {took:.1f} s (client_ttl {CLIENT_TTL_S} s)")
    closes(b, c)


def hung_peer_without_metadata_server(cluster):
    """First contact with a peer that hangs never returns: one worker is lost, the others and the end are not."""
    patient = Cluster(cluster.python, ttl_s=3600)  # the master does not give the peer up
    a, b = connect(patient, {"global_segment_size": "64MiB"}), connect(patient)
    a.put(["x"])
    hang(a.process)
    hung = b.ask(GET, [("x", [(0, 0, 64)])], deadline_s=0.5)
    check(b.wait(hung, 3) is None, "if it ends now, the guide can say so")
    check(b.call(EXISTS, ["x"]).statuses == [OK] and b.pings(), "the others go on")
    status, said = b.close()
    check(status == 0, "the end of a connector with a stuck worker", status, said)
    a.process.send_signal(signal.SIGCONT)
    closes(a)
    patient.stop()


def metadata_server_dies(cluster):
    """Peers that know each other go on."""
    a, b = connect(cluster, {"global_segment_size": "64MiB"}), connect(cluster)
    check(a.put(["x"]).statuses == [OK] and b.get(["x"]).statuses == [OK], "before")
    cluster.meta.kill()
    cluster.meta.wait()
    check(a.put(["y"]).statuses == [OK] and b.get(["x", "y"]).statuses == [OK, OK], "known peers")
    refused([cluster.python, FOLDER], cluster.config(), DOWN, "no metadata server answers", "metadata_server")
    closes(a, b)


def set_up_fails(python):
    """In words."""
    command, nowhere = [python, FOLDER], f"127.0.0.1:{free_port()}"
    refused(command, {"url": f"mooncake://{nowhere}"}, DOWN, f"no master answers at {nowhere}", "master_server_address")
    refused(command, {"client_server_address": nowhere}, DOWN, f"no mooncake_client answers at {nowhere}", "client_server_address")
    refused(command, {}, INVALID, "MOONCAKE_MASTER")
    with socket.socket() as something:
        something.bind(("127.0.0.1", 0))
        something.listen()
        address = "127.0.0.1:{}".format(something.getsockname()[1])
        refused(command, {"client_server_address": address}, DOWN, f"{address} is no mooncake_client")
        refused(command, {"master_server_address": address}, DOWN, f"is {address} a master that answers")
    refused([sys.executable, "-I", "-S", FOLDER], {"url": "mooncake://x"}, DOWN, "tools/connectors.sh")


if __name__ == "__main__":
    checked = run_program([sys.executable, STAND_IN], timeout=600)
    check(checked.returncode == 0, "the cases with the stand-in")
    python, why_not = environment_python()
    with_peers = (objects, gives_back, no_room, dummy, master_dies, hung_peer_without_metadata_server)
    with_metadata = (objects, lender_dies, metadata_server_dies)
    if python is None:
        left_out(f"{1 + len(with_peers) + len(with_metadata)} cases", f"the wheel is not installed: {why_not}")
    else:
        run_cases((set_up_fails,), python)
        for tests, metadata in ((with_peers, False), (with_metadata, True)):
            world = Cluster(python, metadata)
            run_cases(tests, world, suffix=" (metadata server)" if metadata else "")
            world.stop()
    ends("connectors mooncake")

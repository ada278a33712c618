#!/usr/bin/env python3
"""Two nodes (examples/cluster) over a real Mooncake and a real Valkey, and kill -9 and SIGSTOP of every process between them: connector,
master or server, the peer that lends memory, metadata server, mooncake_client under a dummy client, the other node.

Called with the node's program. Each time: every match ends, whatever hangs; no byte is wrong; what is missed is missed for the reasons that
trouble has; both heal by themselves; and nothing of exchange, slots and leases stays behind. How long beyond its deadline a match took is
counted and printed; it fails a test only where it is seconds, for the machine may be busy.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from connector_cluster import Cluster, environment_python
from connector_node import check, ends, hang, start_program, stop_program, wait_for
from connectors_valkey import Server, server_program

PAGES = 6
DEADLINE_MS = 400
TROUBLE = {"tier_down", "too_late"}
GONE = TROUBLE | {"never_stored", "evicted", "state_missing", "after_gap"}  # the store has forgotten it, or may not say so yet
HEAL_S = 90
OVERRUNS = []


class Node:
    def __init__(self, url):
        self.said = tempfile.TemporaryFile()
        self.process = start_program([PROGRAM, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        check(self.line().get("open") == "1", url, "does not open")

    def line(self):
        text, _, why = self.process.stdout.readline().decode().partition("why=")
        return {**dict(word.split("=", 1) for word in text.split()), "why": why.strip()}

    def send(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def do(self, *words):
        self.send(*words)
        return self.line()

    def status(self):
        return self.do("status")

    def close(self):
        self.process.stdin.close()
        check(self.process.wait(30) == 0, "the end of a node")


class Pair:
    """One stores prompts, the other one looks for each of them once: its memory has not got it."""

    def __init__(self, url):
        self.first, self.second, self.prompt, self.stored = Node(url), Node(url), 0, 0
        self.store(60)

    def store(self, count):
        for _ in range(count):
            self.stored += 1
            check(self.first.do("store", self.stored, PAGES).get("stored") == str(PAGES), "a store")
        wait_for(lambda: self.first.status()["moving"] == "0" or self.first.status()["down"] == "1", 20)

    def judge(self, got, what, reasons):
        """One that has ended: bytes, reasons, time."""
        check(got.get("wrong") == "0", what, "wrong bytes", got)
        late = int(got["ms"]) - DEADLINE_MS
        OVERRUNS.append(late)
        check(late < 5000, what, "long after its deadline:", got)
        missed = set(got["missed"].split(",")) - {"nothing"}
        check(missed <= reasons and (missed or got["pages"] == str(PAGES)), what, got)
        return got

    def look(self, what, reasons):
        self.prompt += 1
        return self.judge(self.second.do("load", self.prompt, PAGES, DEADLINE_MS), what, reasons)

    def trouble(self, what, act, reasons=frozenset(TROUBLE), misses=True):
        """`act` while a match is under way, then matches during the trouble."""
        self.prompt += 1
        self.second.send("load", self.prompt, PAGES, DEADLINE_MS)
        act()
        self.judge(self.second.line(), what, reasons)
        seen = [self.look(what, reasons) for _ in range(4)]
        check(not misses or any(got["pages"] == "0" for got in seen), what, "nothing was missed: has it happened?", seen)
        self.first.do("store", 10_000 + self.prompt, PAGES)  # its node goes on, too
        return seen

    def heals(self, what):
        began = time.monotonic()

        def well():
            self.prompt = self.stored
            self.store(1)
            return self.look(what, GONE)["from_store"] == str(PAGES)
        healed = wait_for(well, HEAL_S)
        check(healed, what, "does not heal:", self.first.status(), self.second.status())
        print(f"  {what}: well {time.monotonic() - began:.1f} s later", flush=True)
        for node in (self.first, self.second):
            nothing = ("exchange", "unquiet", "moving", "batches", "leased", "in_flight")
            check(wait_for(lambda: all(node.status()[name] == "0" for name in nothing), 20), what, "stays behind:", node.status())
        self.store(8)

    def connector(self, what, number):
        """The second node's own connector."""
        before = self.second.status()
        pid = int(before["pid"])  # a child of the node's, alive
        self.trouble(what, lambda: os.kill(pid, number), misses=number == signal.SIGSTOP)
        check(wait_for(lambda: self.second.status()["ready"] == "1" and self.second.status()["pid"] != before["pid"], 60),
              what, "is not started again", self.second.status())
        self.heals(what)

    def connector_without_metadata_server(self, cluster):
        """It cannot come up, and says why, until there is one."""
        what = "connector killed while there is no metadata server"
        pid = int(self.second.status()["pid"])
        self.trouble(what, lambda: os.kill(pid, signal.SIGKILL))
        check(wait_for(lambda: "no metadata server answers" in self.second.status()["why"], 20), what, self.second.status())
        check(self.look(what, TROUBLE)["pages"] == "0", what)
        cluster.start_metadata_server()

    def stopped(self, what, process, **more):
        """Stopped, and after a while it goes on."""
        self.trouble(what, lambda: hang(process), **more)
        process.send_signal(signal.SIGCONT)
        self.heals(what)

    def ends(self):
        self.first.close()
        self.second.close()


def kill(process):
    process.kill()
    process.wait()


def url_of(cluster, **more):
    options = {"local_hostname": "127.0.0.1", "probe_s": 1, "metadata_server": cluster.metadata_server, **more}
    return f"mooncake://127.0.0.1:{cluster.port}?" + "&".join(f"{name}={value}" for name, value in options.items())


def over_mooncake(python):
    cluster = Cluster(python, metadata=True)
    lender, _ = cluster.start_client("128MB")
    pair = Pair(url_of(cluster))
    check(pair.look("at peace", set())["from_store"] == str(PAGES), "at peace")
    pair.connector("connector killed", signal.SIGKILL)
    pair.connector("connector stopped", signal.SIGSTOP)
    pair.stopped("master stopped", cluster.master)
    pair.stopped("lender stopped", lender)
    pair.trouble("metadata server stopped", lambda: hang(cluster.meta), misses=False)
    cluster.meta.send_signal(signal.SIGCONT)
    pair.heals("metadata server stopped")
    pair.trouble("master killed", lambda: kill(cluster.master), GONE)
    cluster.start_master()
    pair.heals("master killed")
    pair.trouble("lender killed", lambda: kill(lender), GONE)
    lender, _ = cluster.start_client("128MB")
    pair.heals("lender killed")
    pair.trouble("metadata server killed", lambda: kill(cluster.meta), misses=False)
    pair.heals("metadata server killed")
    pair.connector_without_metadata_server(cluster)
    stop_program(lender)  # the new metadata server knows of nobody who was there before
    lender, _ = cluster.start_client("128MB")
    pair.heals("connector killed while there is no metadata server")
    kill(pair.first.process)
    check(pair.look("the other node killed", GONE)["wrong"] == "0", "the other node killed")
    pair.second.close()
    stop_program(lender)
    cluster.stop()


def over_mooncake_without_metadata_server(python):
    """Peers ask each other: first contact with one that hangs never returns, and the node ends the connector for it."""
    cluster = Cluster(python)
    lender, _ = cluster.start_client("128MB")
    pair = Pair(url_of(cluster))
    pair.stopped("lender stopped before the first contact", lender)
    pair.trouble("lender killed", lambda: kill(lender), GONE)
    lender, _ = cluster.start_client("128MB")
    pair.heals("lender killed")
    pair.ends()
    stop_program(lender)
    cluster.stop()


def over_a_dummy_client(python):
    cluster = Cluster(python)
    client, address = cluster.start_client("128MB")
    pair = Pair(url_of(cluster, client_server_address=address, bounce_bytes="32MiB", workers=2))
    pair.stopped("mooncake_client stopped", client)
    pair.connector("dummy client killed", signal.SIGKILL)
    pair.ends()
    stop_program(client)
    cluster.stop()


def over_valkey(folder):
    server = Server(folder)
    pair = Pair(f"valkey://127.0.0.1:{server.port}")
    pair.connector("connector killed", signal.SIGKILL)
    pair.connector("connector stopped", signal.SIGSTOP)
    pair.stopped("server stopped", server.process)
    pair.trouble("server killed", lambda: kill(server.process), GONE)
    server.start()
    pair.heals("server killed")
    pair.ends()
    server.stop()


def main(folder):
    parts, left_out = [], []
    if server_program() is None:
        left_out.append("1 function, there is no valkey-server")
    else:
        parts.append((over_valkey, folder))
    python, why_not = environment_python()
    if python is None:
        left_out.append(f"3 functions, Mooncake's wheel is not installed: {why_not}")
    else:
        os.environ["TIERCEL_CONNECTOR_PYTHON"] = python
        parts += [(part, python) for part in (over_mooncake, over_mooncake_without_metadata_server, over_a_dummy_client)]
    for part, argument in parts:
        print(part.__name__, flush=True)
        began = time.monotonic()
        part(argument)
        print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    for line in left_out:
        print("skipped:", line)
    beyond = [late for late in OVERRUNS if late > 50]
    print(f"{len(OVERRUNS)} matches; beyond deadline + 50 ms: {len(beyond)}{f', at most {max(beyond)} ms' if beyond else ''}")


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    os.environ.pop("TIERCEL_REMOTE", None)
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
    ends("remote kills")

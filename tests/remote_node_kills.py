#!/usr/bin/env python3
"""Two nodes (examples/cluster) over a real Mooncake and a real Valkey, and kill -9 and SIGSTOP of every process between them: connector,
master or server, the peer that lends memory, metadata server, mooncake_client under a dummy client, the other node.

Called with the node's program. Each time: every match ends, whatever hangs; no byte is wrong; what is missed is missed for the reasons that
trouble has; both heal by themselves; and nothing of exchange, slots and leases stays behind. How long beyond its deadline a match took is
counted and printed. It fails a test only where it is seconds, and more than the machine itself is late: a thread that only sleeps measures that.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from checks import check, ends, hang, left_out, read_line, run_cases, start_program, stop_program, wait_for
from connector_cluster import Cluster, environment_python
from connectors_valkey import NO_SERVER, Server, server_program

PAGES = 6
DEADLINE_MS = 400
TROUBLE = {"tier_down", "too_late"}
GONE = TROUBLE | {"never_stored", "evicted", "state_missing", "after_gap"}  # the store has forgotten it, or may not say so yet
HEAL_S = 90
LATE_MS = 5000  # beyond its deadline: no match takes so long unless something holds it up
OVERRUNS = []  # of each match: milliseconds beyond its deadline


class Sleeper:
    """How late the machine itself is: a thread that sleeps a little and looks at the clock."""

    STEP_S = 0.02

    def __init__(self):
        self.worst_ms = self.latest_ms = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        before = time.monotonic()
        while True:
            time.sleep(self.STEP_S)
            now = time.monotonic()
            late = (now - before - self.STEP_S) * 1000
            self.worst_ms, self.latest_ms, before = max(self.worst_ms, late), max(self.latest_ms, late), now

    def take_ms(self):
        """The most since it was last asked."""
        taken, self.latest_ms = self.latest_ms, 0.0
        return taken


class Node:
    def __init__(self, url, direct):
        """`direct`: records move between its memory and the connector without a copy."""
        self.said = tempfile.TemporaryFile()
        self.process = start_program([PROGRAM, url, *(["4096"] if direct else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        check(self.answer().get("open") == "1", url, "does not open")

    def answer(self):
        """The next one, by name. Ends the test where none comes: a match has its deadline, and a store waits for 10 s at most."""
        text, _, why = read_line(self.process, "a node").partition("why=")
        return {**dict(word.split("=", 1) for word in text.split()), "why": why.strip()}

    def send(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def status(self):
        return self.ask("status")

    def close(self):
        self.process.stdin.close()
        try:
            check(self.process.wait(60) == 0, "the end of a node")
        except subprocess.TimeoutExpired:
            check(False, "a node does not end")


class Pair:
    """The first node stores prompts, the second one looks for each of them once: its memory has not got it. `prompts`: numbers of those that
    the store has taken and nobody has looked for. `what`, everywhere: which trouble it is, for people."""

    def __init__(self, url, direct=(True, True)):
        self.first, self.second = (Node(url, each) for each in direct)
        self.direct, self.number, self.prompts = direct, 0, []
        self.store(60)

    def store(self, count):
        """That many new prompts, each until the remote store has all of it: a Mooncake still places some with a lender that was killed."""
        for _ in range(count):
            check(wait_for(self.store_prompt, HEAL_S), "the store takes nothing:", self.first.status())

    def store_prompt(self):
        """Whether the store has taken a new one."""
        self.number += 1
        before = int(self.first.status()["stored"])
        got = self.first.ask("store", self.number, PAGES)
        check(got.get("computed") == str(PAGES), "the first node does not take a prompt:", self.number, got)
        check(wait_for(self.writes_nothing), "is still being written:", self.first.status())
        taken = int(self.first.status()["stored"]) - before == PAGES + 1  # and the snapshot
        self.prompts += [self.number] * taken
        return taken

    def writes_nothing(self):
        status = self.first.status()
        return status["moving"] == "0" or status["down"] == "1"

    def check_match(self, got, what, reasons):
        """One that has ended: its bytes, why it missed, how late it was. Returns it."""
        if not check({"wrong", "ms", "missed", "pages"} <= got.keys(), what, "no answer to a match:", got):
            raise SystemExit("the node is not to be followed")
        check(got["wrong"] == "0", what, "wrong bytes", got)
        late_ms, machine_ms = int(got["ms"]) - DEADLINE_MS, SLEEPER.take_ms()
        OVERRUNS.append(late_ms)
        check(late_ms < LATE_MS + 10 * machine_ms, what, "long after its deadline:", got, f"and the machine is late by {machine_ms:.0f} ms")
        missed = set(got["missed"].split(",")) - {"nothing"}
        check(missed <= reasons and (missed or got["pages"] == str(PAGES)), what, got)
        return got

    def match(self, what, reasons):
        """The second node looks for the next prompt."""
        return self.check_match(self.second.ask("load", self.prompts.pop(0), PAGES, DEADLINE_MS), what, reasons)

    def trouble(self, what, act, reasons=frozenset(TROUBLE), misses=True):
        """`act` while a match is under way, then matches during the trouble."""
        self.second.send("load", self.prompts.pop(0), PAGES, DEADLINE_MS)
        act()
        self.check_match(self.second.answer(), what, reasons)
        seen = [self.match(what, reasons) for _ in range(4)]
        check(not misses or any(got["pages"] == "0" for got in seen), what, "nothing was missed: has it happened?", seen)
        got = self.first.ask("store", 10_000 + self.number, PAGES)  # its node goes on, too
        check(got.get("computed") == str(PAGES), what, "the first node takes no prompt:", got)
        return seen

    def heals(self, what):
        began = time.monotonic()

        def finds_a_new_prompt():
            self.prompts.clear()
            return self.store_prompt() and self.match(what, GONE)["from_store"] == str(PAGES)
        healed = wait_for(finds_a_new_prompt, HEAL_S)
        check(healed, what, "does not heal:", self.first.status(), self.second.status())
        print(f"  {what}: well {time.monotonic() - began:.1f} s later", flush=True)
        for node in (self.first, self.second):
            counters = ("exchange", "unquiet", "moving", "batches", "leased", "in_flight")

            def has_nothing_under_way(node=node):
                status = node.status()
                return all(status[name] == "0" for name in counters)
            check(wait_for(has_nothing_under_way), what, "stays behind:", node.status())
        self.store(8)

    def connector(self, what, number):
        """The second node's own connector."""
        before = self.second.status()
        pid = int(before["pid"])  # a child of the node's, alive
        self.trouble(what, lambda: os.kill(pid, number), misses=number == signal.SIGSTOP)

        def is_another_one():
            status = self.second.status()
            return status["ready"] == "1" and status["pid"] != before["pid"]
        check(wait_for(is_another_one, HEAL_S), what, "is not started again", self.second.status())
        self.heals(what)

    def connector_without_metadata_server(self, cluster):
        """It cannot come up, and says why, until there is one."""
        what = "connector killed while there is no metadata server"
        pid = int(self.second.status()["pid"])
        self.trouble(what, lambda: os.kill(pid, signal.SIGKILL))
        check(wait_for(lambda: "no metadata server answers" in self.second.status()["why"]), what, self.second.status())
        check(self.match(what, TROUBLE)["pages"] == "0", what)
        cluster.start_metadata_server()

    def stopped(self, what, process, **more):
        """Stopped, and after a while it goes on."""
        self.trouble(what, lambda: hang(process), **more)
        process.send_signal(signal.SIGCONT)
        self.heals(what)

    def ends(self):
        for node, direct in ((self.first, self.direct[0]), (self.second, self.direct[1])):
            check((node.status()["direct"] != "0") == direct, "bytes that moved without a copy", direct, node.status())
            node.close()


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
    check(pair.match("at peace", set())["from_store"] == str(PAGES), "at peace")
    pair.connector("connector killed", signal.SIGKILL)
    pair.connector("connector stopped", signal.SIGSTOP)
    pair.stopped("master stopped", cluster.master)
    pair.stopped("lender stopped", lender)
    pair.trouble("metadata server stopped", lambda: hang(cluster.meta), misses=False)
    cluster.meta.send_signal(signal.SIGCONT)
    pair.heals("metadata server stopped")
    pair.trouble("metadata server killed", lambda: kill(cluster.meta), misses=False)
    pair.heals("metadata server killed")
    pair.connector_without_metadata_server(cluster)
    stop_program(lender)  # the new metadata server knows of nobody who was there before
    lender, _ = cluster.start_client("128MB")
    pair.heals("connector killed while there is no metadata server")
    # From here on objects are lost, markers of the namespace too: until both nodes have looked for those again, one
    # may ask for what the other has stored under new ones.
    pair.trouble("master killed", lambda: kill(cluster.master), GONE)
    cluster.start_master()
    pair.heals("master killed")
    pair.trouble("lender killed", lambda: kill(lender), GONE)
    lender, _ = cluster.start_client("128MB")
    pair.heals("lender killed")
    kill(pair.first.process)
    check(pair.match("the other node killed", GONE)["wrong"] == "0", "the other node killed")
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
    pair = Pair(url_of(cluster, client_server_address=address, bounce_bytes="32MiB", workers=2), direct=(False, True))
    pair.stopped("mooncake_client stopped", client)
    pair.connector("dummy client killed", signal.SIGKILL)
    pair.ends()
    stop_program(client)
    cluster.stop()


def over_valkey(folder):
    server = Server(folder)
    pair = Pair(f"valkey://127.0.0.1:{server.port}", direct=(True, False))
    pair.connector("connector killed", signal.SIGKILL)
    pair.connector("connector stopped", signal.SIGSTOP)
    pair.stopped("server stopped", server.process)
    pair.trouble("server killed", lambda: kill(server.process), GONE)
    server.start()
    pair.heals("server killed")
    pair.ends()
    server.stop()


def main(folder):
    if server_program() is None:
        left_out("1 function", NO_SERVER)
    else:
        run_cases((over_valkey,), folder)
    python, why_not = environment_python()
    over_wheel = (over_mooncake, over_mooncake_without_metadata_server, over_a_dummy_client)
    if python is None:
        left_out(f"{len(over_wheel)} functions", f"Mooncake's wheel is not installed: {why_not}")
    else:
        os.environ["TIERCEL_CONNECTOR_PYTHON"] = python
        run_cases(over_wheel, python)
    beyond = [late for late in OVERRUNS if late > 50]
    print(f"{len(OVERRUNS)} matches; beyond deadline + 50 ms: {len(beyond)}{f', at most {max(beyond)} ms' if beyond else ''}; "
          f"the machine itself was late by {SLEEPER.worst_ms:.0f} ms at most")


if __name__ == "__main__":
    PROGRAM, SLEEPER = sys.argv[1], Sleeper()
    os.environ.pop("TIERCEL_REMOTE", None)
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
    ends("remote kills")

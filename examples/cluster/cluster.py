#!/usr/bin/env python3
"""Two machines that share what they have computed through Mooncake, on one computer: what one stores the other loads, and what happens
when something between them is stopped or killed.

    examples/cluster/cluster.py [--programs build/release/bin] [--model MODEL.gguf]

Starts, on free ports of 127.0.0.1: Mooncake's master and metadata server, a mooncake_client that lends memory, and two nodes
(cluster_node, main.cc beside this), each with a connector of its own. Everything that it starts it ends. Needs the official wheel, which
tools/connectors.sh installs; without it this says so and ends. With llama.cpp (`tiercel llama`) and a model the second machine answers a
question over a system prompt that the first one computed; without --model a tiny one with random weights is made for that.
"""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "connectors" / "mooncake"))
from cluster import free_port, reachable  # noqa: E402

STARTED = []
LEASE_S, CLIENT_TTL_S = 2, 3  # what the master gives: short, so that nobody waits for this example
MARKERS_S = 6  # a little longer than nodes trust the markers that they have seen
PAGES = 8  # of a prompt
PROBLEMS = []


def say(text):
    print(text, flush=True)


def expect(holds, *what):
    """What this example promises; it goes on to its end all the same."""
    if not holds:
        PROBLEMS.append(" ".join(map(str, what)))
        say("UNEXPECTED: " + PROBLEMS[-1])


def until(holds, patience_s=30):
    """Seconds until it holds; None: it did not."""
    began = time.monotonic()
    while time.monotonic() - began < patience_s:
        if holds():
            return time.monotonic() - began
        time.sleep(0.05)
    return None


def start(arguments, **more):
    child = subprocess.Popen([str(each) for each in arguments], **more)
    STARTED.append(child)
    return child


def end(child, number=signal.SIGTERM):
    if child.poll() is None:
        child.send_signal(signal.SIGCONT)
        child.send_signal(number)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Mooncake:
    """A master, a metadata server, and a machine that lends memory."""

    def __init__(self, python, said):
        self.programs, self.said = Path(python).parent, said
        self.rpc, self.http, self.metadata_port, self.client_port = free_port(), free_port(), free_port(), free_port()
        self.metadata = self.run("mooncake_http_metadata_server", "--host", "127.0.0.1", "--port", self.metadata_port)
        self.start_master()
        expect(until(lambda: reachable(self.metadata_port)) is not None, "the metadata server does not come up")
        self.start_lender()

    def run(self, program, *arguments):
        return start([self.programs / program, *arguments], stdout=self.said, stderr=self.said)

    def start_master(self):
        self.master = self.run("mooncake_master", "--rpc_address=127.0.0.1", f"--rpc_port={self.rpc}", "--metrics_host=127.0.0.1",
                               f"--metrics_port={self.http}", f"--default_kv_lease_ttl={1000 * LEASE_S}", f"--client_ttl={CLIENT_TTL_S}",
                               "--logtostderr=1")
        expect(until(lambda: reachable(self.rpc) and self.ask("health") != "") is not None, "the master does not come up")

    def start_lender(self):
        before = len(self.ask("get_all_segments").split())
        self.lender = self.run("mooncake_client", "--host=127.0.0.1", f"--port={self.client_port}", f"--master_server_address=127.0.0.1:{self.rpc}",
                               f"--metadata_server=http://127.0.0.1:{self.metadata_port}/metadata", "--protocol=tcp",
                               "--global_segment_size=128MB", "--threads=2")
        expect(until(lambda: len(self.ask("get_all_segments").split()) > before) is not None, "nobody lends memory")

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{path}", timeout=2) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def url(self):
        return (f"mooncake://127.0.0.1:{self.rpc}?metadata_server=http://127.0.0.1:{self.metadata_port}/metadata"
                "&local_hostname=127.0.0.1&probe_s=1")


class Machine:
    """A node, told what to do line by line."""

    def __init__(self, name, program, url, said):
        self.name = name
        self.process = start([program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, bufsize=0)
        self.buffer = b""
        expect("open" in self.line(60), name, "does not open")

    def line(self, patience_s=60):
        ends = time.monotonic() + patience_s
        while b"\n" not in self.buffer:
            if not select.select([self.process.stdout], [], [], max(ends - time.monotonic(), 0))[0]:
                raise TimeoutError(f"{self.name} does not answer")
            got = os.read(self.process.stdout.fileno(), 4096)
            if not got:
                raise EOFError(f"{self.name} has ended")
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        text, _, why = line.decode().partition("why=")
        return {**dict(word.split("=", 1) for word in text.split()), "why": why}

    def do(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        return self.line()

    def load(self, prompt, deadline_ms=2000):
        got = self.do("load", prompt, PAGES, deadline_ms)
        expect(got["wrong"] == "0", self.name, "wrong bytes of prompt", prompt, got)
        return got

    def status(self):
        return self.do("status")

    def is_idle(self):
        return self.status()["moving"] == "0"


def words_of(got):
    if got["pages"] == "0":
        return f"nothing, because {got['missed'].replace(',', ', ')}, after {got['ms']} ms"
    return f"{got['pages']} pages, {got['from_store']} of them from the store, every byte as it was stored, after {got['ms']} ms"


class Story:
    """Prompts by number; each is looked for once, so that the store is asked, not a memory."""

    def __init__(self, cluster, first, second):
        self.cluster, self.first, self.second = cluster, first, second
        self.number = 0
        self.prompts = []  # that lie in the store, and that nobody has looked for

    def store_one(self):
        """Whether the store has taken all of it: while something comes back, it may not."""
        self.number += 1
        before = int(self.first.status()["stored"])
        self.first.do("store", self.number, PAGES)
        if until(self.first.is_idle) is None or int(self.first.status()["stored"]) - before != PAGES + 1:  # and the snapshot
            return False
        self.prompts.append(self.number)
        return True

    def store(self, count):
        for _ in range(count):
            expect(until(self.store_one) is not None, "the first machine cannot store", self.first.status())

    def load(self, **more):
        return self.second.load(self.prompts.pop(0), **more)

    def finds(self, what):
        """What is found when a prompt is looked for. A busy computer may be late once."""
        for _ in range(3):
            got = self.load()
            if got["from_store"] == str(PAGES):
                break
        expect(got["from_store"] == str(PAGES), what, got)
        return words_of(got)

    def heals(self, what):
        """Both are well again: what the one stores anew the other finds."""
        def well():
            self.prompts.clear()
            return self.store_one() and self.load()["from_store"] == str(PAGES)
        took = until(well, 60)
        expect(took is not None, "it does not heal:", what, self.first.status(), self.second.status())
        if took is not None:
            say(f"   {what}; {took:.1f} s later what one machine stores the other finds again")
        self.store(4)


def plain(story):
    story.store(6)
    say(f"1. The first machine stored 6 prompts of 8 pages. The second one looks for a prompt: {story.finds('what is stored is found:')}")


def connector_killed(story):
    before = story.second.status()
    os.kill(int(before["pid"]), signal.SIGKILL)  # a child of our node, which starts another one
    say(f"2. The second machine's connector (process {before['pid']}) was killed. It looks: {words_of(story.load())}")
    took = until(lambda: story.second.status()["ready"] == "1")
    after = story.second.status()
    expect(took is not None and int(after["starts"]) > int(before["starts"]), "the connector is not started again", after)
    story.heals(f"its node has started another one (process {after['pid']})")


def stopped(story, process, act, who, deadline_ms):
    process.send_signal(signal.SIGSTOP)
    got = story.load(deadline_ms=deadline_ms)
    expect(got["pages"] == "0" and set(got["missed"].split(",")) <= {"too_late", "tier_down"}, who, "stopped:", got)
    say(f"{act}. {who} was stopped. The second machine looks, with {deadline_ms} ms to spare: {words_of(got)}")
    process.send_signal(signal.SIGCONT)
    story.heals("it goes on")


def master_stopped(story):
    stopped(story, story.cluster.master, 3, "The master", 500)


def metadata_server_killed(story):
    end(story.cluster.metadata, signal.SIGKILL)
    found = story.finds("machines that have met need no metadata server:")
    say(f"4. The metadata server was killed. The second machine looks: {found}")


def lender_stopped(story):
    stopped(story, story.cluster.lender, 5, "The machine that lends memory", 1000)


def master_killed(story):
    end(story.cluster.master, signal.SIGKILL)
    got = [story.load() for _ in range(3)]
    expect(all(each["pages"] == "0" for each in got), "without a master:", got)
    say(f"6. The master was killed. The second machine looks three times: {'; '.join(words_of(each) for each in got)}")
    story.cluster.start_master()
    story.heals("a new master was started, and knows nothing of before")
    # Nor of the markers of namespaces, for which a node looks again every five seconds, when it is used: until both have, one stores under new
    # markers what the other looks for under the old ones.
    time.sleep(MARKERS_S)
    story.store(1)
    story.load()
    time.sleep(1)
    story.prompts.clear()
    story.store(4)


def first_machine_killed(story):
    end(story.first.process, signal.SIGKILL)
    found = story.finds("what is stored outlives who stored it:")
    say(f"7. The first machine was killed. The second one looks for what it had stored: {found}")


def llama(programs, cluster, model, folder):
    tiercel = programs / "tiercel"
    if not tiercel.exists():
        return say("8. `tiercel` is not built here, so no model answers.")
    if not model:
        made = subprocess.run([sys.executable, TOP / "integrations" / "llamacpp" / "tests" / "tiny_models.py", folder / "models"],
                              capture_output=True, text=True)
        model = folder / "models" / "granite_hybrid.gguf"
        if made.returncode != 0:
            return say("8. There is no model: give one with --model.")
    if subprocess.run([tiercel, "llama", "ask", "-m", model, "--no-cache", "--prompt-tokens", "8", "-n", "1"], capture_output=True).returncode != 0:
        return say("8. `tiercel llama` is not built here, so no model answers.")
    def ask(machine, question):
        done = subprocess.run([tiercel, "llama", "ask", "--json", "--exact", "-m", model, "-t", "1", "-n", "8", "--cache", folder / machine, "--cache-bytes",
                               "128MiB", "--host-bytes", "64MiB", "--remote", cluster.url(), "--prompt-tokens", "600", "--question-tokens", "24",
                               "--question-seed", str(question)], capture_output=True, text=True, timeout=300)
        expect(done.returncode == 0, "tiercel llama ask:", done.stderr)
        return json.loads(done.stdout) if done.returncode == 0 else {"remote_tokens": 0, "computed_tokens": 0, "notes": [done.stderr]}

    first = ask("first", 2)
    for question in (3, 4, 5):  # the same beginning; a busy computer may be late once
        other = ask(f"another {question}", question)
        if other["remote_tokens"] > 0:
            break
    expect(other["remote_tokens"] > 0, "the other machine computes all of it:", first, other)
    say(f"8. llama.cpp on two machines, two questions over one beginning: the first one computed {first['computed_tokens']} tokens, the second one "
        f"took {other['remote_tokens']} from the store and computed {other['computed_tokens']}.")


def main():
    parser = argparse.ArgumentParser(description="Two machines that share a cache through Mooncake; things are stopped and killed on the way.")
    parser.add_argument("--programs", type=Path, default=TOP / "build" / "release" / "bin", help="the folder of the built programs")
    parser.add_argument("--model", help="a GGUF model for the last act")
    arguments = parser.parse_args()
    made = subprocess.run([TOP / "tools" / "connectors.sh"], capture_output=True, text=True)
    if made.returncode != 0:
        say("skipped: Mooncake is not here: " + (made.stderr.strip().splitlines() or ["no reason given"])[-1])
        return 0
    python = os.environ["TIERCEL_CONNECTOR_PYTHON"] = made.stdout.strip()
    os.environ.pop("TIERCEL_REMOTE", None)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile() as log:
        cluster = Mooncake(python, log)
        first, second = (Machine(each, arguments.programs / "cluster_node", cluster.url(), log) for each in ("the first machine", "the second machine"))
        say(f"A master, a metadata server, a machine that lends 128 MB, and two nodes with their connectors run on 127.0.0.1 ({cluster.rpc}).")
        story = Story(cluster, first, second)
        for act in (plain, connector_killed, master_stopped, metadata_server_killed, lender_stopped, master_killed, first_machine_killed):
            act(story)
        end(cluster.lender)
        # Until the master has noticed, it places objects there, and they are lost.
        expect(until(lambda: cluster.ask("get_all_segments").split() == []) is not None, "the master does not forget who is gone")
        cluster.metadata = cluster.run("mooncake_http_metadata_server", "--host", "127.0.0.1", "--port", cluster.metadata_port)
        until(lambda: reachable(cluster.metadata_port))
        cluster.start_lender()
        llama(arguments.programs, cluster, arguments.model, Path(name))
        second.process.stdin.close()
        expect(second.process.wait(30) == 0, "the second machine ends in good order")
    say("Everything that was started here is ended." if not PROBLEMS else f"{len(PROBLEMS)} things went otherwise than they should.")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    try:
        status = main()
    finally:
        for child in reversed(STARTED):
            end(child)
    sys.exit(status)

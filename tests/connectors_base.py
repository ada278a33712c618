#!/usr/bin/env python3
"""The base package of the connectors, through the memory connector: rings, checks, workers, deadlines, the end.

The node's end is written here (connector_node.py); one that speaks nonsense is written here, too.
"""

import json
import os
import random
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

from checks import PATIENCE_S, check, ends, run_cases, run_program, wait_for
from connector_node import (ABSENT, CANCEL, CANCELLED, DONE, DOWN, EXISTS, FAILED, GET, INVALID, LATE, NO_ROOM, OK, PING, PUT, REMOVE,
                            REPLACE, SOURCE, STATS, TOO_LARGE, WRONG_SIZE, Connector, refused, request)

MEMORY = [sys.executable, SOURCE / "connectors" / "memory"]


def memory(config=None, **more):
    return Connector(MEMORY, config if config is not None else {}, **more)


def ends_well(connector):
    status, said = connector.close()
    check(status == 0 and said == "", "the end:", status, said)


def objects():
    """What the verbs mean."""
    node = memory()
    check(node.hello.status == OK, node.hello)
    check(node.put(["a", "b"]).statuses == [OK, OK], "put")
    check(node.put(["a"], fill=9).statuses == [OK], "put of what is there")
    done = node.get(["a", "b", "c"])
    check(done.results == [(OK, 64), (OK, 64), (ABSENT, 0)], "get", done)
    check(node.got(0) == b"\1" * 64 and node.got(1) == b"\2" * 64, "bytes of what was put first")
    check(node.call(EXISTS, ["a", "z", "b"]).results == [(OK, 64), (ABSENT, 0), (OK, 64)], "exists")
    check(node.get(["a"], size=63).results == [(WRONG_SIZE, 0)] and node.get(["a"], size=65).results == [(WRONG_SIZE, 0)], "another size")
    check(node.put(["a"], size=40, fill=5, verb=REPLACE).statuses == [OK] and node.get(["a"], size=40).statuses == [OK], "replace")
    check(node.got(0, 40) == b"\5" * 40, "bytes of what replaced it")
    check(node.call(REMOVE, ["a", "a"]).statuses == [OK, ABSENT], "remove")
    check(node.put(["t", "t"], fill=7).statuses == [OK, OK] and node.get(["t", "t"]).statuses == [OK, OK], "the same name twice")
    check(node.got(0) == node.got(1) == b"\7" * 64, "each position has its own bytes")
    check(node.call(PUT, []).results == [] and node.call(PING).results == [], "no items")
    counters = node.stats()
    check(counters["store"]["objects"] == 2 and counters["connector"]["put_ok"] == 5, counters)
    ends_well(node)

    node = memory({"capacity_bytes": 200, "object_bytes_max": 150})
    check(node.put(["a"], 151).statuses == [TOO_LARGE] and node.put(["a"], 150).statuses == [OK], "object_bytes_max")
    check(node.put(["b"], 51).statuses == [NO_ROOM] and node.put(["b", "c"], 50).statuses == [OK, NO_ROOM], "capacity")
    ends_well(node)


def several_pieces():
    """An object in odd pieces of both regions; put in one way, got in another."""
    node = memory(arena_bytes=100_000, arena_offset=5000)
    data = bytes(random.Random(1).randbytes(3000))
    node.arena[7:1007], node.data[1:1001], node.arena[99_000:100_000] = data[:1000], data[1000:2000], data[2000:]
    done = node.call(PUT, [("x", [(1, 7, 1000), (0, 1, 1000), (1, 99_000, 1000)])])
    check(done.statuses == [OK], "put in pieces", done)
    done = node.call(GET, [("x", [(0, 5000 + at * 2, 1) for at in range(500)] + [(1, 3, 2500)])])
    check(done.results == [(OK, 3000)], "get in pieces", done)
    check(bytes(node.data[5000:6000:2]) + bytes(node.arena[3:2503]) == data and node.data[5001] == 0, "bytes, and nothing between them")
    ends_well(node)


def refusals():
    """What does not hold together is refused, and touches no other item."""
    node = memory(arena_bytes=4096)
    node.put(["there"])
    good = ("there", [(0, 0, 64)])
    for bad in (("", [(0, 64, 64)]), ("x" * 121, [(0, 64, 64)]), ("a/b", [(0, 64, 64)]), ("a\n", [(0, 64, 64)]), ("\xe4", [(0, 64, 64)]),
                ("x", []), ("x", [(0, 64, 0)]), ("x", [(2, 0, 8)]), ("x", [(1, 4000, 97)]), ("x", [(0, (1 << 20) - 8, 9)]),
                ("x", [(0, (1 << 64) - 8, 16)]), ("x", [(0, 8, (1 << 64) - 4)]), ("x", [(1, 8, 8), (1, 4096, 1)])):
        for verb in (GET, PUT, REPLACE):
            done = node.call(verb, [bad, good])
            check(done.statuses == [INVALID, OK], verb, str(bad)[:60], done)
    for verb in (EXISTS, REMOVE):
        check(node.call(verb, [("there", [(0, 0, 8)]), "other"]).statuses == [INVALID, ABSENT], "segments where none belong")
    check(node.call(GET, [("there", [(0, 0, 32), (0, 31, 32)]), ("there", [(0, 100, 64)])]).statuses == [INVALID, OK], "its own pieces overlap")
    done = node.call(GET, [good, ("there", [(0, 63, 64)]), ("there", [(0, 127, 64)]), ("there", [(1, 0, 64)])])
    check(done.statuses == [OK, INVALID, OK, OK], "destinations overlap", done)
    check(node.call(PUT, [("p", [(0, 0, 64)]), ("q", [(0, 0, 64)])]).statuses == [OK, OK], "sources may be the same")
    check(node.call(77, ["a"]).statuses == [INVALID] and node.call(PING, ["a"]).statuses == [INVALID], "verbs")

    broken = bytearray(request(GET, 900, [good, ("there", [(0, 64, 64)])], 1 << 62))
    struct.pack_into("<I", broken, 32 + 16 + 8, 0)  # the second item's first segment: the first one's
    done = node.wait(node.ask(GET, batch=900, raw=bytes(broken)))
    check(done.status == INVALID and done.statuses == [INVALID, INVALID], "segments that do not follow each other", done)
    struct.pack_into("<Q", broken, 8, 901)
    struct.pack_into("<I", broken, 32 + 16 + 8, 1)
    struct.pack_into("<I", broken, 32 + 16, 20)  # the second one's name: inside the tables
    check(node.wait(node.ask(GET, batch=901, raw=bytes(broken))).statuses == [OK, INVALID], "a name that is none")
    ends_well(node)


def nonsense():
    """A ring that cannot be followed ends the process with a line, and nothing else happens."""
    header = lambda size, count=0, segments=0, batch=5: struct.pack("<IHHQQII", size, GET, 0, batch, 1 << 62, count, segments)
    for name, raw in (("no multiple of 8", header(36) + bytes(8)), ("zero", header(0)), ("longer than what is there", header(64)),
                      ("shorter than its header", struct.pack("<IHHQ", 16, GET, 0, 1)), ("items that are not there", header(32, 1)),
                      ("segments that are not there", header(32, 0, 1)), ("more items than may be", header(32, 4097)),
                      ("batch 0", header(32, batch=0))):
        node = memory()
        node.ask(GET, batch=5, raw=raw)
        status, said = node.ended()
        check(status == 3 and said.count("\n") == 1 and "the node broke the contract" in said, name, status, said)
    node = memory()
    node.positions[0][0] = 1 << 40  # a tail far ahead
    os.eventfd_write(node.fds[1], 1)
    status, said = node.ended()
    check(status == 3 and "tail" in said, "a tail far ahead", status, said)
    for variable in ("", "version=2 exchange=3 requests=4 completions=5", "version=1 exchange=x", "version=1 exchange=99 requests=4 completions=5"):
        done = run_program(MEMORY, input=b"{}\n", capture_output=True, env={**os.environ, "TIERCEL_CONNECTOR": variable}, timeout=PATIENCE_S)
        check(done.returncode == 2 and done.stderr.count(b"\n") == 1, variable, done)


def wrap_around():
    """Messages of every length through small rings, many times round, with fillers on both sides."""
    node = memory(ring_bytes=4096)
    draw, waiting, sent, round_bytes = random.Random(7), [], 0, 0
    while sent < 3000:
        count = draw.randrange(0, 60)
        names = ["n" * draw.randrange(1, 20) for _ in range(count)]
        try:
            waiting.append((node.ask(EXISTS, names), count))
            sent += 1
        except BlockingIOError:
            pass
        if len(waiting) > 12 or sent == 3000:
            for batch, count in waiting:
                done = node.wait(batch)
                if not check(done and done.statuses == [ABSENT] * count, "batch", batch, "of", count, done):
                    return
            waiting = []
    check(node.positions[0][0] > 50 * 4096 and node.positions[2][0] > 50 * 4096, "many times round")
    ends_well(node)


def full_completion_ring():
    """A node that does not read: what does not fit is kept, in order, and pings are kept with it."""
    node = memory(ring_bytes=4096)
    asked = []
    for _ in range(20):  # 20 answers of 100 results each are more than the ring holds
        batch = None
        while batch is None:
            try:
                batch = node.ask(EXISTS, ["x"] * 100)
            except BlockingIOError:
                time.sleep(0.005)
        asked.append(batch)
    time.sleep(0.3)
    check(node.positions[2][0] - node.positions[3][0] <= 4096, "the ring holds what it can")
    ping = node.ask(PING)
    for batch in asked:
        done = node.wait(batch)
        check(done and done.statuses == [ABSENT] * 100, batch, done)
    check(node.wait(ping).status == OK, "the ping after them")
    ends_well(node)


def deadlines():
    """Workers that are stuck hold up what they are stuck in, and nothing else."""
    node = memory({"workers": 2, "faults": {"hang_every": 1, "verbs": ["get"]}})
    node.put(["a"])
    stuck = [node.ask(GET, [("a", [(0, 0, 64)])], deadline_s=seconds) for seconds in (0.2, 0.5)]  # too far apart to go together
    check(node.pings(), "a ping while every worker is stuck")
    done = node.wait(node.ask(EXISTS, ["a"], deadline_s=600))
    check(done and done.statuses == [OK], "a look-up while every worker is stuck", done)
    waiting = node.ask(GET, [("a", [(0, 64, 64)])], deadline_s=0.3)
    cancelled = node.ask(GET, [("a", [(0, 128, 64)])], deadline_s=600)
    node.ask(CANCEL, batch=cancelled)
    done = node.wait(cancelled)
    check(done and done.status == CANCELLED and done.statuses == [CANCELLED], "cancelled while it waited", done)
    done = node.wait(waiting)
    check(done and done.status == LATE and done.statuses == [LATE] and done.seconds > 0.25, "late while it waited", done)
    node.ask(CANCEL, batch=stuck[0])
    check(node.pings() and node.wait(stuck[0], 0.3) is None, "what is in a call that hangs does not end")
    status, said = node.close()
    check(status == 0 and said == "", "end of file with stuck workers", status, said)

    node = memory({"workers": 2, "faults": {"hang_every": 2, "verbs": ["get"]}})
    node.put(["a"])
    check(node.get(["a"]).statuses == [OK], "the first")
    # Whichever is the second of all gets hangs; not both in one call.
    asked = [node.ask(GET, [("a", [(0, at, 64)])], deadline_s=seconds) for at, seconds in ((0, 100), (64, 200))]
    check(wait_for(lambda: node.drain() or any(batch in node.done for batch in asked)), "one of two goes on")
    check(node.call(EXISTS, ["a"]).statuses == [OK] and sum(batch in node.done for batch in asked) == 1, "one stuck worker, the other goes on")
    check(all(node.done[batch].statuses == [OK] for batch in asked if batch in node.done), "and is right", node.done)
    node.close()

    node = memory({"workers": 2, "faults": {"hang_every": 1, "verbs": ["exists", "remove"]}})
    stuck, given_up = node.ask(EXISTS, ["a", "/"], deadline_s=0.2), node.ask(REMOVE, ["a"], deadline_s=600)
    time.sleep(0.1)  # most likely into the call; before it the answer is the same
    node.ask(CANCEL, batch=given_up)
    check(node.wait(given_up).statuses == [CANCELLED], "a call that touches no memory is left when it is cancelled")
    done = node.wait(stuck)
    check(done and done.status == LATE and done.statuses == [LATE, INVALID], "and at its deadline", done)
    status, said = node.close()
    check(status == 0, status, said)

    node = memory({"workers": 1, "faults": {"delay_s": 0.3, "verbs": ["put"]}})
    done = node.put(["a", "b"], deadline_s=0.1)
    check(done.statuses == [LATE, LATE], "the deadline passes inside the call", done)
    ends_well(node)
    # Answered is the last of many: a busy machine may be late with the cancel of the first.
    node = memory({"workers": 1, "faults": {"delay_s": 0.3, "verbs": ["put"]}})
    running = [node.ask(PUT, [("a", [(0, 0, 64)])]) for _ in range(100)]
    time.sleep(0.1)
    for batch in running:
        node.ask(CANCEL, batch=batch)
    node.ask(CANCEL, batch=12345)  # of nothing
    statuses = [node.wait(batch).statuses for batch in running]
    check(statuses[-1] == [CANCELLED] and statuses.count([OK]) + statuses.count([CANCELLED]) == 100, "cancelled inside the call, and before it", statuses)
    check(node.call(EXISTS, ["a"], deadline_s=-1).statuses == [LATE], "a deadline that has passed")
    ends_well(node)


def together():
    """Where nobody else is free, what waits goes to the store in one call, and each batch has its own answer."""
    node = memory({"workers": 1, "faults": {"delay_s": 0.5, "raise_every": 3, "verbs": ["get"]}})
    node.put(["a", "b"], fill=7)
    gets = [[("a", 0)], [("b", 64)], [("none", 128), ("a", 192), ("b", 256)], [("a", 320), ("/", 384)]]
    asked = [node.ask(GET, [(name, [(0, at, 64)]) for name, at in items]) for items in gets[:1]]
    wait_for(lambda: node.stats()["connector"]["running"] == 2)  # it, and this question
    asked += [node.ask(GET, [(name, [(0, at, 64)]) for name, at in items]) for items in gets[1:]]
    far = node.ask(GET, [("b", [(0, 448, 64)])], deadline_s=2 * PATIENCE_S)  # another deadline: its own call, the third, which fails
    got = [node.wait(batch).statuses for batch in asked]
    check(got == [[OK], [OK], [ABSENT, OK, OK], [OK, INVALID]], "each its own", got)
    check([node.got(at // 64)[0] for at in (0, 64, 192, 256, 320)] == [7, 8, 7, 8, 7], "and its own bytes")
    check(node.wait(far).statuses == [FAILED], "what is not of their time goes alone", node.wait(far))
    ends_well(node)


def a_later_round_that_fails():
    """Of a batch with a name twice, what was done stays done."""
    code = """
import sys; sys.path.append({!r}); import tiercel_connector as t
class Twice(t.BackEnd):
    distinct_names, workers, calls = True, 1, 0
    def open(self, options): pass
    def get(self, items, limit):
        self.calls += 1
        if self.calls == 2:
            raise t.Down("gone")
        return [t.Status.OK for _ in items]
t.run(Twice())
""".format(str(SOURCE / "connectors"))
    node = Connector([sys.executable, "-c", code], {})
    done = node.call(GET, [("a", [(0, 0, 64)]), ("a", [(0, 64, 64)])])
    check(done.status == OK and done.statuses == [OK, DOWN], "a batch of which something was done was tried", done)
    ends_well(node)


def faults():
    """A batch that fails is a batch; a process that dies says so by its status."""
    node = memory({"faults": {"fail_every": 3, "raise_every": 2, "verbs": ["put"]}})
    check(node.put(["a", "b", "c"]).statuses == [OK, OK, FAILED], "every third item fails")
    done = node.put(["a", "b"])
    check(done.status == FAILED and done.statuses == [FAILED, FAILED] and done.text == "a deliberate fault", done)
    check(node.put(["a", "d"]).statuses == [OK, OK], "and goes on")
    ends_well(node)
    node = memory({"faults": {"damage_every": 1}})
    check(node.put(["a"]).statuses == [OK] and node.get(["a"]).statuses == [OK] and node.got(0) == b"\0" + b"\1" * 63, "damage")
    ends_well(node)
    node = memory({"faults": {"die_every": 1}})
    check(node.put(["a"]) is None and node.ended()[0] == -signal.SIGABRT, "death in a call")


def options():
    """What is wrong with the configuration stands in the hello."""
    for config, word in (("{", "no JSON object"), ("[]", "no JSON object"), ({"worker": 3}, "no option 'worker'"), ({"workers": 0}, "from 1 to 64"),
                         ({"workers": "many"}, "'many'"), ({"capacity_bytes": "1 parsec"}, "4gb"), ({"faults": 3}, "'faults'"),
                         ({"faults": {"delay_s": -1}}, "seconds"), ({"faults": {"hang": 1}}, "option 'faults' has no option 'hang'")):
        refused(MEMORY, config, INVALID, word)
    node = memory({"workers": "2", "faults": {"delay_s": "0.01"}})
    check(node.hello.status == OK and node.stats()["connector"]["workers"] == 2, "numbers as texts", node.hello)
    node.close()
    for text, size in (("2kb", 2048), ("3 MiB", 3 << 20), ("0.5g", 1 << 29), (4096, 4096), ("7", 7)):
        node = memory({"capacity_bytes": text})
        check(node.stats()["store"]["capacity_bytes"] == size, text)
        node.close()


def the_end():
    """SIGTERM ends in order, what waits is cancelled; end of file ends at once."""
    node = memory({"workers": 1, "faults": {"delay_s": 0.3, "verbs": ["put"]}})
    running = [node.ask(PUT, [(name, [(0, 0, 64)])]) for name in "abcdefghijklmnopqrstuvwxyz" * 4]
    time.sleep(0.1)
    node.process.send_signal(signal.SIGTERM)
    statuses = [done and done.statuses for done in map(node.wait, running)]
    check(statuses[-1] == [CANCELLED] and all(each in ([OK], [CANCELLED]) for each in statuses), "what was under way, and what waited", statuses)
    status, said = node.ended()
    check(status == 0 and said == "", "SIGTERM", status, said)
    code = "import sys, time; sys.path.append({!r}); import tiercel_connector as t; ".format(str(SOURCE / "connectors"))
    slow = "t.service.OPEN_S = 0.3; t.run(type('Slow', (t.BackEnd,), {'open': lambda self, options: time.sleep(60)})())"
    node = Connector([sys.executable, "-c", code + slow], {})
    check(node.hello.status == DOWN and "hangs" in node.hello.text and node.ended()[0] == 1, "a back end that does not open", node.hello)
    node = memory()
    node.process.send_signal(signal.SIGINT)
    check(node.pings(), "an interrupt of the terminal is the node's affair")
    ends_well(node)


def the_guides_example():
    """The connector that docs/guide/connectors.md shows."""
    text = (SOURCE / "docs" / "guide" / "connectors.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    code = next(block for block in blocks if "class Table" in block).replace('"connectors"', repr(str(SOURCE / "connectors")))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "table.py"
        program.write_text(code, encoding="utf-8")
        for kept in (False, True):
            node = Connector([sys.executable, program], {"file": f"{folder}/objects"})
            check(node.hello.status == OK and node.call(EXISTS, ["a"]).results == [(OK, 64) if kept else (ABSENT, 0)], node.hello)
            check(node.put(["a", "b", "a"], fill=1 + kept).statuses == [OK] * 3 and node.get(["a", "c"]).statuses == [OK, ABSENT], "put, get")
            check(node.got(0) == b"\1" * 64 and node.get(["a"], size=63).statuses == [WRONG_SIZE], "what is there stays")
            check(node.put(["b"], size=9, fill=8, verb=REPLACE).statuses == [OK] and node.get(["b"], size=9).statuses == [OK], "replace")
            check(node.got(0, 9) == b"\x08" * 9 and node.call(REMOVE, ["b", "b"]).statuses == [OK, ABSENT], "remove")
            ends_well(node)
        node = Connector([sys.executable, program], {"file": f"{folder}/no/such"})
        check(node.hello.status == DOWN and "option 'file'" in node.hello.text and node.ended()[0] == 1, node.hello)


def a_question_that_hangs_for_good():
    """It holds no memory, so no node ends the process for it; its thread would be gone for good."""
    code = "import sys, threading; sys.path.append({!r}); import tiercel_connector as t; ".format(str(SOURCE / "connectors"))
    hangs = "t.service.STUCK_S = 0.3; t.run(type('Hangs', (t.BackEnd,), {'open': lambda *_: None, 'exists': lambda *_: threading.Event().wait()})())"
    node = Connector([sys.executable, "-c", code + hangs], {})
    check(node.call(EXISTS, ["a"], deadline_s=0.1).status == LATE, "left at its deadline")
    status, said = node.ended()
    check(status == 4 and "has not returned" in said, "ends, and says why", status, said)


def stats_have_no_deadline():
    node = memory()
    statuses = {node.call(STATS, deadline_s=-1).status for _ in range(300)}
    check(statuses == {OK}, "numbers, whatever stands where others have a deadline", statuses)
    ends_well(node)


def text_is_bounded():
    done = memory().call(STATS)
    check(done.verb == DONE and len(done.text) <= 4096 and json.loads(done.text)["connector"]["workers"] == 4, done)


if __name__ == "__main__":
    run_cases((objects, several_pieces, refusals, nonsense, wrap_around, full_completion_ring, deadlines, together, a_later_round_that_fails, faults, options, the_end,
               the_guides_example, a_question_that_hangs_for_good, stats_have_no_deadline, text_is_bounded))
    ends("connectors base")

"""The node's end of a connector, for the tests connectors_*.py: starts one, asks it, checks every answer against the contract.

The constants and structs are stated here once more, from include/tiercel/connector.h and not from the package under test.
"""

import json
import mmap
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import PATIENCE_S, check, start_program

SOURCE = Path(__file__).resolve().parent.parent
sys.path.append(str(SOURCE / "connectors" / "mooncake"))
from cluster import free_port, reachable  # noqa: E402,F401: for those that import this
OK, ABSENT, WRONG_SIZE, NO_ROOM, TOO_LARGE, INVALID, FAILED, DOWN, LATE, CANCELLED = range(10)
EXISTS, GET, PUT, REMOVE, STATS, PING, CANCEL, REPLACE, HELLO, DONE = 1, 2, 3, 4, 5, 6, 7, 8, 16, 17
MAGIC = int.from_bytes(b"TIERCONN", "little")


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Done:
    """A completion: `verb`, `batch`, `status`, `text`, `results` (pairs of status and bytes), `seconds` since it was asked for."""

    def __init__(self, message, asked_ns):
        size, self.verb, _, self.batch, self.status, text, items, _ = struct.unpack_from("<IHHQiIII", message)
        check(size == len(message) == 32 + 16 * items + text + -text % 8, "a completion's length", size, len(message), items, text)
        self.results = [(status, count) for status, _, count in struct.iter_unpack("<iIQ", message[32:32 + 16 * items])]
        self.text = message[32 + 16 * items:32 + 16 * items + text].decode()
        self.seconds = (now_ns() - asked_ns) / 1e9 if asked_ns else 0.0

    @property
    def statuses(self):
        return [status for status, _ in self.results]

    def __repr__(self):
        return f"Done(batch={self.batch}, status={self.status}, {self.results[:8]}, {self.text!r}, {self.seconds:.2f} s)"


class Connector:
    """A connector process and its exchange. `data` and `arena` are memoryviews of regions 0 and 1."""

    def __init__(self, command, config, ring_bytes=65536, data_bytes=1 << 20, arena_bytes=0, arena_offset=0, hello_s=PATIENCE_S, environment=None):
        total = 4096 + 2 * ring_bytes + data_bytes
        self.fds = [os.memfd_create("exchange"), os.eventfd(0), os.eventfd(0, os.EFD_NONBLOCK)]
        os.ftruncate(self.fds[0], total)
        self.whole = memoryview(mmap.mmap(self.fds[0], total))
        struct.pack_into("<QIIQQQQQQQ", self.whole, 0, MAGIC, 1, 4096, total, 4096, ring_bytes, 4096 + ring_bytes, ring_bytes,
                         4096 + 2 * ring_bytes, data_bytes)
        self.ring_bytes, self.data, self.arena = ring_bytes, self.whole[4096 + 2 * ring_bytes:], None
        self.requests, self.completions = self.whole[4096:4096 + ring_bytes], self.whole[4096 + ring_bytes:4096 + 2 * ring_bytes]
        self.positions = [self.whole[at:at + 8].cast("Q") for at in (128, 192, 256, 320)]
        variable = "version=1 exchange={} requests={} completions={}".format(*self.fds)
        if arena_bytes:
            self.fds.append(os.memfd_create("arena"))
            os.ftruncate(self.fds[3], arena_offset + arena_bytes)
            self.arena = memoryview(mmap.mmap(self.fds[3], arena_offset + arena_bytes))[arena_offset:]
            variable += f" arena={self.fds[3]}:{arena_bytes}:{arena_offset}"
        self.said = tempfile.TemporaryFile()  # no pipe: a library that says much would stop when nobody reads
        self.process = start_program(command, stdin=subprocess.PIPE, stderr=self.said, pass_fds=self.fds,
                                     env={**os.environ, **(environment or {}), "TIERCEL_CONNECTOR": variable})
        self.process.stdin.write((config if isinstance(config, str) else json.dumps(config)).encode() + b"\n")
        self.process.stdin.flush()
        self.asked, self.done, self.last = {}, {}, 0
        self.hello = self.wait(0, hello_s)
        if self.hello is not None:
            check(self.hello.verb == HELLO, "the first completion is the hello", self.hello)

    # ---- asking ----

    def ask(self, verb, items=(), deadline_s=PATIENCE_S, batch=None, raw=None):
        """Writes one request. `items`: a name, or (name, [(region, offset, length), ...]), each. Returns the batch's number."""
        if batch is None:
            self.last += 1
            batch = self.last
        self.asked[batch] = now_ns()
        message = raw if raw is not None else request(verb, batch, items, self.asked[batch] + int(deadline_s * 1e9))
        tail, head = self.positions[0][0], self.positions[1][0]
        end = self.ring_bytes - tail % self.ring_bytes
        filler = end if len(message) > end else 0
        if tail + filler + len(message) - head > self.ring_bytes:
            raise BlockingIOError("the request ring is full")
        if filler:  # up to the ring's end
            struct.pack_into("<IHH", self.requests, tail % self.ring_bytes, filler, 0, 0)
            tail += filler
        place = tail % self.ring_bytes
        self.requests[place:place + len(message)] = message
        self.positions[0][0] = tail + len(message)
        os.eventfd_write(self.fds[1], 1)
        return batch

    def call(self, verb, items=(), deadline_s=PATIENCE_S):
        """Asks and waits. Returns the Done, or None when nothing came in time."""
        return self.wait(self.ask(verb, items, deadline_s), deadline_s + PATIENCE_S)

    def put(self, names, size=64, fill=1, verb=PUT, **more):
        """Objects of `size` bytes, each byte `fill` plus the item's position, from region 0."""
        for at in range(len(names)):
            self.data[at * size:(at + 1) * size] = bytes([(fill + at) % 256]) * size
        return self.call(verb, [(name, [(0, at * size, size)]) for at, name in enumerate(names)], **more)

    def get(self, names, size=64, **more):
        """Into region 0, each with its own place; cleared before."""
        self.data[:len(names) * size] = bytes(len(names) * size)
        return self.call(GET, [(name, [(0, at * size, size)]) for at, name in enumerate(names)], **more)

    def got(self, at, size=64):
        return bytes(self.data[at * size:(at + 1) * size])

    def stats(self):
        return json.loads(self.call(STATS).text or "{}")

    def pings(self):
        """Whether a ping is answered."""
        done = self.call(PING)
        return bool(done) and done.status == OK

    # ---- answers ----

    def drain(self):
        """Takes all completions that there are."""
        try:
            os.eventfd_read(self.fds[2])
        except BlockingIOError:
            pass
        tail, head = self.positions[2][0], self.positions[3][0]
        while head != tail:
            place = head % self.ring_bytes
            size, verb = struct.unpack_from("<IH", self.completions, place)
            if not check(size % 8 == 0 and 8 <= size <= min(tail - head, self.ring_bytes - place), "a completion of", size, "bytes"):
                raise SystemExit("the completion ring cannot be followed")
            if verb:
                done = Done(bytes(self.completions[place:place + size]), self.asked.get(struct.unpack_from("<Q", self.completions, place + 8)[0]))
                check(done.batch not in self.done, "a second completion of a batch", done)
                check(done.batch in self.asked or verb == HELLO, "a completion that nobody asked for", done)
                self.done[done.batch] = done
            head += size
        self.positions[3][0] = head

    def wait(self, batch, patience_s=PATIENCE_S):
        """The batch's Done; None when it does not come in time, or the process ends."""
        until = time.monotonic() + patience_s
        while True:
            over = self.process.poll() is not None or time.monotonic() > until
            self.drain()
            if batch in self.done or over:
                return self.done.get(batch)
            select.select([self.fds[2]], [], [], min(0.2, max(0.0, until - time.monotonic())))

    # ---- the end ----

    def close(self):
        """End of file. Returns exit status and what was said on stderr. A status of 0 says that it ended by itself, within its own 5 s."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        return self.ended()

    def ended(self):
        """Waits for the process's end, kills it where it does not come."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.seek(0)
        said = self.said.read().decode(errors="replace")
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        return self.process.returncode, said


def refused(command, config, status, *words, **more):
    """A connector that says in one line why it cannot serve, and ends."""
    node = Connector(command, config, **more)
    check(node.hello and node.hello.status == status and all(word in node.hello.text for word in words) and "\n" not in node.hello.text,
          config, node.hello)
    check(node.ended()[0] == 1, config, "the connector ends when it cannot serve")


def request(verb, batch, items, deadline_ns):
    """A request message, as the contract has it."""
    items = [(item, []) if isinstance(item, str) else item for item in items]
    pieces = [piece for _, own in items for piece in own]
    at, first, rows, names = 32 + 16 * len(items) + 24 * len(pieces), 0, b"", b""
    for name, own in items:
        raw = name.encode("latin-1")
        rows += struct.pack("<IIII", at + len(names), len(raw), first, len(own))
        names += raw
        first += len(own)
    body = rows + b"".join(struct.pack("<IIQQ", region, 0, offset, length) for region, offset, length in pieces) + names
    body += bytes(-len(body) % 8)
    return struct.pack("<IHHQQII", 32 + len(body), verb, 0, batch, deadline_ns, len(items), len(pieces)) + body

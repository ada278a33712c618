"""The shared memory between a node and this process: where it is, the regions that segments name, and the two rings.

Threads: a Requests object belongs to one thread; Completions may be written by any, one at a time.
"""

import ctypes
import mmap
import os
import sys
import threading
from array import array
from collections import deque
from itertools import chain

from .contract import (COMPLETION, COMPLETION_HEAD, COMPLETION_TAIL, EXCHANGE, HEADER_END, MAGIC, MESSAGE, REQUEST, REQUEST_HEAD,
                       REQUEST_TAIL, RESULT, TEXT_BYTES_MAX, VERSION, Nonsense, Verb)


HUGE_PAGE = 2 << 20
FIXED = 0x10  # MAP_FIXED, which the mmap module does not have
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, of Linux 5.14
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _map(fd, size, offset):
    """The address of a shared mapping that lies to huge pages as the file does: where the file is on huge pages, so is it. The mmap
    module leaves the place to the kernel, which looks for none like that in shared memory."""
    room = size + 2 * HUGE_PAGE
    reserved = _LIBC.mmap(None, room, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if reserved == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"{room} bytes of addresses cannot be reserved")
    place = reserved + (offset - reserved) % HUGE_PAGE
    if _LIBC.mmap(place, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | FIXED, fd, offset) != place:
        raise OSError(ctypes.get_errno(), f"descriptor {fd} cannot be mapped")
    return place


class Region:
    """Shared memory that segments may name: `address` (an int, for native calls), `bytes`, `view` (a writable memoryview)."""

    def __init__(self, fd, size, offset=0):
        """Maps `size` bytes of the descriptor from `offset` (any, not only whole pages)."""
        within = offset % mmap.ALLOCATIONGRANULARITY
        if size <= 0 or os.fstat(fd).st_size < offset + size:
            raise Nonsense(f"descriptor {fd} has {os.fstat(fd).st_size} bytes, wanted {size} from {offset} on")
        # The mapping stays as long as the process: an address that was handed out never goes stale.
        self.address = _map(fd, within + size, offset - within) + within
        self.bytes = size
        self.view = memoryview((ctypes.c_char * size).from_address(self.address)).cast("B")

    def touch(self):
        """Fills the page tables, so that no transfer waits for them; where the kernel cannot, transfers do."""
        begin = self.address & -mmap.PAGESIZE
        _LIBC.madvise(begin, self.address + self.bytes - begin, POPULATE_WRITE)

    def part(self, offset, size):
        """A region inside this one."""
        inner = object.__new__(Region)
        inner.address, inner.bytes, inner.view = self.address + offset, size, self.view[offset:offset + size]
        return inner


_FIRST, _SECOND = threading.Lock(), threading.Lock()


def _fence():
    """Orders the stores before it against those after it on every processor: two locks in a row, each taken and given back.

    Python has no fence. On x86-64 none is needed; elsewhere what precedes a release stays before it, what follows an acquire
    stays behind it, and a release and the next acquire keep their order.
    """
    with _FIRST:
        pass
    with _SECOND:
        pass


class Exchange:
    """The exchange as TIERCEL_CONNECTOR describes it: `regions` (by number), `requests`, `completions`."""

    def __init__(self, description):
        """`description`: the variable's value. Raises Nonsense when it, or the exchange's header, breaks the contract."""
        if sys.byteorder != "little":
            raise Nonsense("the exchange is little-endian, this machine is not")
        try:
            words = dict(word.split("=", 1) for word in description.split())
            version, fd, requests, completions = (int(words[name]) for name in ("version", "exchange", "requests", "completions"))
            arena = [int(number) for number in words["arena"].split(":")] if "arena" in words else None
        except (KeyError, ValueError):
            raise Nonsense(f"TIERCEL_CONNECTOR is '{description}', which is no description of an exchange") from None
        if version != VERSION:
            raise Nonsense(f"the node speaks version {version} of the contract, this connector version {VERSION}")
        whole = Region(fd, os.fstat(fd).st_size)
        if whole.bytes < HEADER_END:
            raise Nonsense(f"the exchange has {whole.bytes} bytes, less than its header")
        magic, version, header, total, *places = EXCHANGE.unpack_from(whole.view)
        if magic != MAGIC or version != VERSION or total > whole.bytes:
            raise Nonsense(f"the exchange's header has magic {magic:#x}, version {version}, {total} of {whole.bytes} bytes")
        parts = [(places[at], places[at + 1]) for at in (0, 2, 4)]
        for offset, size in parts:
            if offset % 8 or offset < max(header, HEADER_END) or offset + size > total:
                raise Nonsense(f"a part of the exchange from {offset}, {size} bytes, is not inside its {total}")
        for offset, size in parts[:2]:
            if size < 4096 or size & (size - 1):
                raise Nonsense(f"a ring of {size} bytes is no power of two from 4096 on")
        self.regions = [whole.part(*parts[2])]
        self.regions[0].touch()
        if arena:
            self.regions.append(Region(*arena))
        for inherited in (fd, requests, completions, *(arena or ())[:1]):
            os.set_inheritable(inherited, False)
        os.set_blocking(requests, False)  # several threads are woken by it
        self.requests = Requests(whole.view, parts[0], requests)
        self.completions = Completions(whole.view, parts[1], completions)


def _position(view, offset):
    """A position of a ring: read and written whole, as one word."""
    return view[offset:offset + 8].cast("Q")


class Requests:
    """The request ring, read by the one thread that owns this."""

    def __init__(self, whole, place, event):
        self._ring = whole[place[0]:place[0] + place[1]]
        self._bytes = place[1]
        self._tail, self._head = _position(whole, REQUEST_TAIL), _position(whole, REQUEST_HEAD)
        self.event = event

    def waiting(self):
        """Whether there are messages. Cost: two reads of memory."""
        return self._head[0] != self._tail[0]

    def take(self):
        """All messages there are, each copied out: the node could change what stands in the ring while it is being checked."""
        clear(self.event)
        head, tail = self._head[0], self._tail[0]
        if tail - head > self._bytes:
            raise Nonsense(f"the request ring's tail {tail} is not within {self._bytes} of its head {head}")
        messages = []
        while head != tail:
            place = head % self._bytes
            size, verb, _ = MESSAGE.unpack_from(self._ring, place)
            if size % 8 or not 8 <= size <= min(tail - head, self._bytes - place):
                raise Nonsense(f"a message of {size} bytes at {head}, with the tail at {tail}")
            if verb != Verb.FILLER:
                if size < REQUEST.size:
                    raise Nonsense(f"a request of {size} bytes, less than its header")
                messages.append(bytes(self._ring[place:place + size]))
            head += size
        _fence()
        self._head[0] = head
        return messages


class Completions:
    """The completion ring. What finds no room waits here, in order, until flush() is called again."""

    def __init__(self, whole, place, event):
        self._ring = whole[place[0]:place[0] + place[1]]
        self._bytes = place[1]
        self._tail, self._head = _position(whole, COMPLETION_TAIL), _position(whole, COMPLETION_HEAD)
        self._event = event
        self._lock = threading.Lock()
        self._waiting = deque()

    def send(self, verb, batch, status, results=(), text="", held=False):
        """Writes one completion, or keeps it; with `held` it is kept for the next one, which is about to come, and that is well. `results`:
        pairs of status and bytes. Returns whether all are written."""
        raw = text.encode("utf-8", "replace")[:TEXT_BYTES_MAX]
        size = COMPLETION.size + len(results) * RESULT.size + len(raw)
        padding = -size % 8
        message = bytearray(COMPLETION.pack(size + padding, verb, 0, batch, status, len(raw), len(results), 0))
        # A status is no negative number: with its padding it is one word, and a result two.
        message += array("Q", chain.from_iterable(results)).tobytes()
        message += raw + bytes(padding)
        if len(message) > self._bytes:
            raise Nonsense(f"a completion of {len(message)} bytes does not fit a ring of {self._bytes}")
        with self._lock:
            self._waiting.append(message)
            return held or self._flush()

    def flush(self):
        """Tries again what is waiting. Returns whether all are written."""
        with self._lock:
            return self._flush()

    def taken(self):
        """Whether the node has taken all that was written."""
        return not self._waiting and self._head[0] == self._tail[0]

    def _flush(self):
        written = False
        while self._waiting and self._write(self._waiting[0]):
            self._waiting.popleft()
            written = True
        if written:
            _notify(self._event)
        return not self._waiting

    def _write(self, message):
        tail, head = self._tail[0], self._head[0]
        if tail - head > self._bytes:
            raise Nonsense(f"the completion ring's head {head} is not within {self._bytes} of its tail {tail}")
        place, free = tail % self._bytes, self._bytes - (tail - head)
        end = self._bytes - place
        if len(message) > end:
            # The filler goes alone: with the message it could be more than the ring ever has free.
            if free < end:
                return False
            MESSAGE.pack_into(self._ring, place, end, Verb.FILLER, 0)
            _fence()
            self._tail[0] = tail + end
            _notify(self._event)
            return self._write(message)
        if free < len(message):
            return False
        self._ring[place:place + len(message)] = message
        _fence()
        self._tail[0] = tail + len(message)
        return True


def _notify(event):
    try:
        os.eventfd_write(event, 1)
    except BlockingIOError:
        pass  # it is full of earlier ones: the reader is awake


def clear(event):
    """Forgets that there was an event."""
    try:
        os.eventfd_read(event)
    except BlockingIOError:
        pass

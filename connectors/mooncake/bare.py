"""The official Mooncake client without anything around it, in a tight loop: what the connector is compared with.

    python bare.py CONFIGURATION BYTES [DESCRIPTOR]

CONFIGURATION is the connector's own (docs/guide/connectors.md), BYTES the memory that objects come from and go to. Reads one command a
line from the descriptor and answers each with one line (without a descriptor: standard input and output). The first line is {"pages": ...},
the page size that the memory got, or {"error": why}. A command: {"do": "put" | "get" | "exists" | "remove", "names": [...], "bytes": of each
object, "batch": objects of one call}; the answer: {"ns": [of each call], "failed": objects, "code": of the first of them}.
"""

import ctypes
import json
import mmap
import os
import sys
import time

# Last: this folder has the name of the library's package, which must be found first.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from set_up import library_store, set_up_store, shared_block  # noqa: E402
from settings import Settings  # noqa: E402
from tiercel_connector import Options, StoreError  # noqa: E402


class Bare:
    """One client and one block of memory, all of it touched."""

    def __init__(self, config, size, make_store=library_store):
        """`make_store`: for tests. Raises StoreError with the reason in words."""
        settings = Settings(Options(config))
        self.store, self.size = set_up_store(settings, make_store, size), size
        self.address = shared_block(self.store, size, "the objects") if settings.standalone_storage else self._own(size)
        if not settings.standalone_storage and settings.protocol == "rdma" and (code := self.store.register_buffer(self.address, size)) != 0:
            raise StoreError(f"the memory ({size} bytes) cannot be registered for rdma: {code}")
        ctypes.memset(self.address, 0x5A, size)
        self.pages = _page_kind(self.address, size)

    def _own(self, size):
        """Private memory from a border of huge pages on, on huge pages where they can be had."""
        huge = 2 << 20
        self._memory = mmap.mmap(-1, size + huge, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        return address + -address % huge

    def perform(self, command):
        do, names, size, batch = command["do"], command["names"], command.get("bytes", 0), command["batch"]
        calls = [names[at:at + batch] for at in range(0, len(names), batch)]
        slots = self.size // size if size else 0
        places = [[self.address + (first + at) % slots * size for at in range(len(call))] if size else None
                  for first, call in zip(range(0, len(names), batch), calls)]
        right = size if do == "get" else 1 if do == "exists" else 0
        times, codes, now = [], [], time.perf_counter_ns
        begun = now()
        for call, own in zip(calls, places):
            if do == "get":
                codes += self.store.batch_get_into(call, own, [size] * len(call))
            elif do == "put":
                codes += self.store.batch_put_from(call, own, [size] * len(call))
            elif do == "exists":
                codes += self.store.batch_is_exist(call)
            else:
                codes += self.store.batch_remove(call, True)
            ended = now()
            times.append(ended - begun)
            begun = ended
        wrong = [code for code in codes if code != right]
        return {"ns": times, "failed": len(wrong), "code": wrong[0] if wrong else 0}


def _page_kind(address, size):
    """"2 MiB" where all of it, at least, is on huge pages; by the kernel's own table."""
    huge, inside = 0, False
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as table:
        for line in table:
            head = line.split()
            if "-" in head[0]:
                begin, end = (int(part, 16) for part in head[0].split("-"))
                inside = begin < address + size and end > address
            elif inside and head[0] in ("AnonHugePages:", "ShmemPmdMapped:"):
                huge += int(head[1]) << 10
    return "2 MiB" if huge >= size else "mixed" if huge else "4 KiB"


def main(config, size, descriptor=None):
    reading = sys.stdin if descriptor is None else os.fdopen(int(descriptor), "r")
    writing = sys.stdout if descriptor is None else os.fdopen(os.dup(int(descriptor)), "w")
    say = lambda answer: print(json.dumps(answer), file=writing, flush=True)
    try:
        bare = Bare(json.loads(config), int(size))
    except (StoreError, OSError, ValueError) as error:
        say({"error": str(error)})
        return 1
    say({"pages": bare.pages})
    for line in reading:
        say(bare.perform(json.loads(line)))
    writing.flush()
    os._exit(0)  # the library's own end takes its time


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

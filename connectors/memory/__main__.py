"""The smallest connector: a dictionary, gone with its process. For tests, and as an example to start from.

Options: `capacity_bytes` (default 1 GiB), `object_bytes_max` (default: the capacity), `workers`; and, for tests of what is above,
`faults`: an object of
  delay_s        every call waits so long first
  fail_every     every n-th item is FAILED
  raise_every    every n-th call raises an error, so that its batch fails
  hang_every     every n-th call never returns
  die_every      every n-th call ends the process, as a crash of a native library would
  damage_every   every n-th get delivers one wrong byte
  verbs          a list of "exists", "get", "put", "remove": which calls are meant; without it, all
"""

import os
import sys
import threading
import time

# Last, so that nothing here hides an installed package of the same name.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tiercel_connector import BackEnd, BadOption, Status, StoreError, run  # noqa: E402


class Faults:
    """What goes wrong on purpose. Threads: any."""

    KINDS = ("fail_every", "raise_every", "hang_every", "die_every", "damage_every")

    def __init__(self, options):
        self.delay_s = options.seconds("delay_s", 0.0)
        self.every = {kind: options.count(kind, 0) for kind in self.KINDS}
        self.verbs = options.raw("verbs", ["exists", "get", "put", "remove"])
        if not isinstance(self.verbs, list):
            raise BadOption(f"option 'verbs': wanted a list, got {self.verbs!r}")
        options.refuse_others()
        self._seen = dict.fromkeys(self.KINDS, 0)
        self._lock = threading.Lock()

    def due(self, kind):
        with self._lock:
            self._seen[kind] += 1
            return self.every[kind] > 0 and self._seen[kind] % self.every[kind] == 0

    def call(self, verb):
        """At the beginning of a call of this verb."""
        if verb not in self.verbs:
            return
        time.sleep(self.delay_s)
        if self.due("hang_every"):
            threading.Event().wait()
        if self.due("die_every"):
            os.abort()
        if self.due("raise_every"):
            raise StoreError("a deliberate fault")

    def item(self, verb):
        """Whether this item is to fail."""
        return verb in self.verbs and self.due("fail_every")


class Memory(BackEnd):
    def open(self, options):
        self.capacity = options.size("capacity_bytes", 1 << 30)
        self.object_max = options.size("object_bytes_max", self.capacity)
        self.faults = Faults(options.inner("faults"))
        options.refuse_others()
        self.objects, self.used = {}, 0
        self.lock = threading.Lock()

    def exists(self, names, limit):
        self.faults.call("exists")
        return [self._look(name) for name in names]

    def get(self, items, limit):
        self.faults.call("get")
        return [limit.ended() or self._get(item) for item in items]

    def put(self, items, replace, limit):
        self.faults.call("put")
        return [limit.ended() or self._put(item, replace) for item in items]

    def remove(self, names, limit):
        self.faults.call("remove")
        return [self._remove(name) for name in names]

    def stats(self):
        return {"objects": len(self.objects), "bytes": self.used, "capacity_bytes": self.capacity}

    def _look(self, name):
        if self.faults.item("exists"):
            return Status.FAILED, 0
        data = self.objects.get(name)
        return (Status.ABSENT, 0) if data is None else (Status.OK, len(data))

    def _get(self, item):
        if self.faults.item("get"):
            return Status.FAILED
        data = self.objects.get(item.name)
        if data is None:
            return Status.ABSENT
        if len(data) != item.bytes:
            return Status.WRONG_SIZE
        item.fill(data)
        if "get" in self.faults.verbs and self.faults.due("damage_every"):
            item.views()[0][0] ^= 1
        return Status.OK

    def _put(self, item, replace):
        if self.faults.item("put"):
            return Status.FAILED
        if item.bytes > min(self.object_max, self.capacity):
            return Status.TOO_LARGE
        with self.lock:
            old = self.objects.get(item.name)
            if old is not None and not replace:
                return Status.OK
            grows = item.bytes - len(old or b"")
            if self.used + grows > self.capacity:
                return Status.NO_ROOM
            self.objects[item.name] = item.joined()
            self.used += grows
        return Status.OK

    def _remove(self, name):
        if self.faults.item("remove"):
            return Status.FAILED
        with self.lock:
            data = self.objects.pop(name, None)
            self.used -= len(data or b"")
        return Status.ABSENT if data is None else Status.OK


if __name__ == "__main__":
    run(Memory())

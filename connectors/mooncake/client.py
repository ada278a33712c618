"""Mooncake's client library as a back end. What it does not check is checked before, what it does not bound is bounded around it.

The library (0.3.13) ends the process on most calls before a successful setup and after close, believes every pointer, fills only one
buffer of a name that a batch has twice, and spends more than four seconds on each call while the master is dead. So: nothing is
called before setup has answered 0; pointers come from checked pieces; the base sends no name twice (distinct_names); after the first
answer that the master is gone a breaker answers, and asks on a thread of its own.

With tcp the shared memory is not registered: transfers do without, and a registered range can be read and written by whoever reaches
the client's data port, which listens on all addresses. With rdma there is no other way, and all of it is registered once.
"""

import os
import threading
from collections import Counter

from breaker import Breaker
from codes import CALL_BYTES, CALL_PIECES, DOWN_CODES, PROBE, RESULT_MAX, are_codes, is_size, status_of
from log import bound_standard_error
from memory import Bounce, scratch
from set_up import library_store, set_up_store, where
from settings import Settings
from tiercel_connector import BackEnd, Down, Status, StoreError


class Mooncake(BackEnd):
    distinct_names = True
    # A thread in the library's transfer waits busily: on two cores four of them get half of what one gets.
    workers = max(1, min(4, len(os.sched_getaffinity(0)) // 2))

    def __init__(self, make_store=None):
        """`make_store`: for tests, makes what stands in for the library's class."""
        self._make_store = make_store or library_store
        self._store = self._bounce = self._breaker = None
        self._closed = False
        self._codes, self._lock = Counter(), threading.Lock()

    def open(self, options):
        self._settings = settings = Settings(options)
        if self._make_store is library_store:
            bound_standard_error()
        store = set_up_store(settings, self._make_store, settings.bounce_bytes)
        try:
            self._share_memory(store)
            self._breaker = Breaker(lambda: store.is_exist(PROBE) >= 0, settings.probe_s)
        except BaseException:
            store.close()  # what it lends goes back at once
            raise
        self._store = store

    def _share_memory(self, store):
        settings = self._settings
        if settings.standalone_storage:
            self.copies = True
            self._bounce = Bounce(store, settings.bounce_bytes, self.workers)
        elif settings.protocol == "rdma":
            for region in self.regions:
                if (code := store.register_buffer(region.address, region.bytes)) != 0:
                    raise StoreError(f"the shared memory ({region.bytes} bytes) cannot be registered for rdma: {code}")

    def close(self):
        """Also twice, and after an open that failed: then it does nothing."""
        if self._store is None or self._closed:
            return
        self._closed = True
        # Unmounts what is lent at once; without it the master sends others there for `client_ttl` more. Not under a probe.
        idle = self._breaker.end(1.0)
        self._breaker.trip("the connector is closed")  # for good: the library ends the process on calls after its close
        if idle:
            self._store.close()

    # ---- verbs ----

    def exists(self, names, limit):
        """Grants each object that is there a lease, as every look-up of Mooncake's does; sizes would cost another, and are not asked for."""
        codes = self._call("batch_is_exist", names)
        there, absent = (Status.OK, 0), (Status.ABSENT, 0)
        return [there if code > 0 else absent if code == 0 else (self._status(code), 0) for code in codes]

    def get(self, items, limit):
        return self._in_calls(items, limit, self._get_bounced if self._bounce else self._get)

    def put(self, items, replace, limit):
        if self._bounce:
            return self._in_calls(items, limit, lambda some, limit: self._put_bounced(some, replace, limit))
        return self._in_calls(items, limit, self._replace if replace else self._put)

    def remove(self, names, limit):
        # Without force an object that was looked at in the last ten seconds stays.
        return [self._status(code) if code else Status.OK for code in self._call("batch_remove", names, True)]

    def stats(self):
        with self._lock:
            codes = {str(code): count for code, count in sorted(self._codes.items())[:40]}
        return {"at": self._where(), "dummy": bool(self._bounce), "protocol": self._settings.protocol,
                "lent_bytes": 0 if self._bounce else self._settings.global_segment_size, "codes": codes,
                "breaker": self._breaker.why() or "", "breaker_trips": self._breaker.trips, "probes": self._breaker.probes,
                "bounce_copied_bytes": self._bounce.copied if self._bounce else 0}

    # ---- straight between the shared memory and the network ----

    def _get(self, items, limit):
        return [self._got(item, code) for item, code in zip(items, self._moved("batch_get_into", items))]

    def _put(self, items, limit):
        return [self._status(code) if code else Status.OK for code in self._moved("batch_put_from", items)]

    def _moved(self, call, items):
        """The codes of the call, in its multi-buffer form where an object is in several pieces."""
        names = [item.name for item in items]
        if all([len(item.pieces) == 1 for item in items]):
            return self._call(call, names, [item.addresses()[0] for item in items], [item.bytes for item in items])
        return self._call(f"{call}_multi_buffers", names, [item.addresses() for item in items], [item.lengths() for item in items])

    def _replace(self, items, limit):
        """There is no multi-buffer form of it: an object in pieces is gathered first."""
        statuses = []
        for item in items:
            if len(item.pieces) == 1:
                code, = self._call("batch_upsert_from", [item.name], item.addresses(), item.lengths())
            else:
                with scratch(item.bytes, self._store, self._settings.protocol == "rdma") as (address, view):
                    _gather(item, view)
                    code, = self._call("batch_upsert_from", [item.name], [address], [item.bytes])
            statuses.append(self._status(code) if code else Status.OK)
        return statuses

    # ---- through the bounce block ----

    def _get_bounced(self, items, limit):
        with self._bounce.slice() as (address, view):
            places = _places(items)
            codes = self._call("batch_get_into", [item.name for item in items], [address + at for at in places], [item.bytes for item in items])
            statuses = [self._got(item, code) for item, code in zip(items, codes)]
            with limit.memory():
                for item, at, status in zip(items, places, statuses):
                    if status == Status.OK:
                        item.fill(view[at:at + item.bytes])
                        self._bounce.count(item.bytes)
        return statuses

    def _put_bounced(self, items, replace, limit):
        with self._bounce.slice() as (address, view):
            places = _places(items)
            with limit.memory():
                for item, at in zip(items, places):
                    _gather(item, view[at:])
                    self._bounce.count(item.bytes)
            codes = self._call("batch_upsert_from" if replace else "batch_put_from", [item.name for item in items],
                               [address + at for at in places], [item.bytes for item in items])
        return [self._status(code) if code else Status.OK for code in codes]

    # ---- calls ----

    def _in_calls(self, items, limit, perform):
        """`perform` for as many items at a time as one call may have bytes. Returns statuses."""
        most = min(CALL_BYTES, self._bounce.slice_bytes) if self._bounce else CALL_BYTES
        statuses, at = [], 0
        while at < len(items):
            if ended := limit.ended():
                return statuses + [ended] * (len(items) - at)
            if items[at].bytes > (self._bounce.slice_bytes if self._bounce else RESULT_MAX):
                statuses.append(Status.TOO_LARGE)
                at += 1
                continue
            end, room, pieces = at + 1, most - items[at].bytes, CALL_PIECES - len(items[at].pieces)
            while end < len(items) and items[end].bytes <= room and len(items[end].pieces) <= pieces:
                room, pieces = room - items[end].bytes, pieces - len(items[end].pieces)
                end += 1
            statuses += perform(items[at:end], limit)
            at = end
        return statuses

    def _call(self, name, *arguments):
        """One call of the library. Raises Down, without calling, while the breaker is open."""
        if why := self._breaker.why():
            raise Down(why)
        codes = getattr(self._store, name)(*arguments)
        if not are_codes(codes, arguments[0]):
            raise StoreError(f"{name} answers something else than a code for each of {len(arguments[0])} names: {codes!r}"[:200])
        if min(codes, default=0) >= 0:
            return codes
        with self._lock:
            self._codes.update(code for code in codes if code < 0)
        # A dummy client's look-ups say -1 whatever is wrong, and names that it would not take do not come so far.
        if any(code in DOWN_CODES for code in codes) or (self._bounce and -1 in codes):
            self._trip(name, min(codes))
            codes = [-900 if code == -1 and self._bounce else code for code in codes]
        return codes

    def _trip(self, name, code):
        self._breaker.trip(f"{self._where()} does not answer ({name}: {code}); asked again every {self._settings.probe_s:g} s")

    def _status(self, code):
        return Status.FAILED if code > 0 else status_of(code)

    def _got(self, item, code):
        """The status of a get. The library says the object's size where the place was larger; where it was smaller, or the pieces
        were, an error that may mean something else, too: then the master is asked for the size."""
        if code >= 0:
            return Status.OK if code == item.bytes else Status.WRONG_SIZE
        if code in (-600, -800) and not self._breaker.why():
            size = self._size_of(item.name)
            if is_size(size) and size != item.bytes:
                return Status.WRONG_SIZE
        return self._status(code)

    def _size_of(self, name):
        """What the library says to that; it only sharpens a status, so that a call that raises costs the batch nothing."""
        try:
            size = self._store.get_size(name)
        except Exception:
            return None
        if size in DOWN_CODES:
            self._trip("get_size", size)
        return size

    def _where(self):
        return where(self._settings)


def _places(items):
    """Where each item begins when they stand in a row."""
    places, at = [], 0
    for item in items:
        places.append(at)
        at += item.bytes
    return places


def _gather(item, into):
    at = 0
    for view in item.views():
        into[at:at + len(view)] = view
        at += len(view)

"""An engine's own host pools as a dummy client of Mooncake: all pools of the group lie in one block of Mooncake's allocator, so that a page
goes between them and the cluster without a copy. This runs in the engine's process, without a node; docs/guide/connectors.md says when.

An object is one component of one page of one pool, for one rank; its bytes stand layer by layer, token by token, whatever the pool's
layout. Pools whose pages have another order, or fall into pieces so small that each costs more than its bytes, go through a staging block.

The library checks nothing and crashes easily (client.py says how): here, too, nothing is called before set-up has answered 0, every
address is compared with its block, no name is in a call twice, each call has an end, and after the first answer that nobody is there a
breaker answers.
"""

import hashlib
import itertools

from calls import Calls
from codes import CALL_BYTES, CALL_PIECES, RESULT_MAX, status_of
from pool_plan import PoolPlan, refuse_other_kind
from set_up import library_store, set_up_store, shared_block
from settings import Settings
from staging import Staging
from tiercel_connector import BadOption, Options, Status, StoreError
from tiercel_connector.library import HostPools

# From pieces this large on an object in several pieces is put and got as it lies; smaller ones are gathered first. Measured by
# tests/connector_pieces.py; the figures are in docs/guide/connectors.md.
DIRECT_PIECE_BYTES = 256 << 10
STAGING_BYTES = 64 << 20
KEY_BYTES_MAX = 32
SHARD_MAX = 65535


class PageSet:
    """Pages that belong together under one key: there whole, or not at all. `pages`: number of the page, by name of the pool."""

    __slots__ = ("key", "pages")

    def __init__(self, key, pages):
        self.key, self.pages = key, pages


class _Object:
    __slots__ = ("name", "pool", "page", "component", "bytes")

    def __init__(self, name, pool, page, component, size):
        self.name, self.pool, self.page, self.component, self.bytes = name, pool, page, component, size

    @property
    def place(self):
        return self.pool, self.page


class _Once:
    """Calls a function the first time only."""

    def __init__(self, function):
        self._functions = [function]

    def __call__(self):
        if self._functions:
            self._functions.pop()()


class OwnedPools:
    """`pools`: the group, sealed; its `segments` and `buffers` are where the engine reads and writes. `owner`: whose memory it is.

    Verbs take lists of PageSet and answer with a Status for each, in order: OK, or what is wrong with its first object that is not. Nothing
    that happens to the store raises: where nobody is there it is DOWN. A call of the library may take `timeout_s` for each begun 64 MiB; then
    its sets are LATE. The caller leaves the pages of a verb alone until it has returned, and where it said LATE until `settled` says so, for
    the call may still read or write them. After a `load` that is not OK the pages of that set hold anything.

    Threads: any, also at once. `close` when no verb is running.
    """

    def __init__(self, plan, config, namespace, shard=0, direct_piece_bytes=DIRECT_PIECE_BYTES, staging_bytes=STAGING_BYTES, timeout_s=1.0,
                 make_store=None):
        """`plan`: a PoolPlan. `config`: the connector's options by name, `client_server_address` among them. `namespace`: what the content is
        (weights, dtype, adapter, tenant), any text; together with the spec it keeps apart what must never be served to others. `shard`: this
        rank. `make_store`: for tests. Raises BadOption, Down or StoreError, with one line that says what to do; the library is called only
        after all that can be refused without it has been."""
        _refuse_no_plan(plan)
        if not isinstance(namespace, str) or not namespace:
            raise BadOption(f"namespace: wanted a text that says what the pages are, got {namespace!r}")
        if not _is_number(shard, SHARD_MAX + 1):
            raise BadOption(f"shard: wanted this rank's number from 0 to {SHARD_MAX}, got {shard!r}")
        self.plan, self._shard = plan, shard
        self._settings = Settings(Options(config))
        if not self._settings.standalone_storage:
            raise BadOption("pools of the engine's own are shared with a mooncake_client on this machine: give 'client_server_address'")
        self._space = hashlib.sha256(f"tiercel.owned_space\0{namespace}\0{plan.identity()}".encode()).hexdigest()[:32]
        self._sizes = [[sum(own) for own in pool] for pool in plan.pieces]
        for pool, sizes in zip(plan.pools, self._sizes):
            if max(sizes, default=0) > RESULT_MAX:
                raise BadOption(f"pool {pool.name}: objects of {max(sizes)} bytes; the library's answers end at {RESULT_MAX}: take smaller pages")
        staged = [pool.number for pool in plan.pools if pool.page_bytes and
                  (not plan.as_stored[pool.number] or _in_small_pieces(plan.pieces[pool.number], direct_piece_bytes))]
        self._staging = Staging(plan, staged, staging_bytes) if staged else None
        self.staged_bytes = 0
        self._open(make_store or library_store, timeout_s)

    def _open(self, make_store, timeout_s):
        settings, plan = self._settings, self.plan
        self.owner = f"the mooncake_client at {settings.client_server_address}"
        store = set_up_store(settings, make_store, plan.required_bytes)
        try:
            self._block = shared_block(store, plan.mapped_bytes, "the pools")
            self.pools = plan.at(self._block)
            if self._staging:
                self._staging.open(shared_block(store, self._staging.plan.mapped_bytes, "pages in small pieces"))
            self._calls = Calls(store, self.owner, timeout_s, settings.probe_s)
        except BaseException:
            store.close()
            raise

    def settled(self, sets=None):
        """Whether no call of the library is still under way that touches pages of the sets; None: any pages."""
        busy = self._calls.busy()
        return not busy if sets is None else not any(self._places(own) & busy for own in self._objects(sets)[0])

    def close(self):
        """The pools' memory goes with the library's client: nobody may touch it any more. Under a call that hangs it stays, with the process."""
        self._calls.close()

    # ---- verbs ----

    def exists(self, sets):
        """One look-up for all objects of all sets. What is there gets a lease (10 s), as by every look-up of Mooncake's."""
        objects, statuses = self._objects(sets)
        return self._answers(objects, statuses, self._there(objects))

    def store(self, sets):
        """One look-up and one put for all objects of all sets (one put for each 64 MiB, and each 1024 pieces); of what is there already nothing is
        sent, and it stays as it is. A key twice is stored once, from the first of its pages."""
        objects, statuses = self._objects(sets)
        self._refuse_busy(objects, statuses)
        known = self._there(objects)
        missing = {}
        for each in (each for own in objects for each in own if known[each.name] == Status.ABSENT):
            missing.setdefault(each.name, each)
        known.update(self._in_parts(list(missing.values()), self._put))
        return self._answers(objects, statuses, known)

    def load(self, sets):
        """Fills the pages. A key twice is fetched for each of its places; a page that was to hold two keys is INVALID the second time."""
        objects, statuses = self._objects(sets)
        self._refuse_busy(objects, statuses)
        self._refuse_shared_places(objects, statuses)
        places = {}  # of each name, each once
        for each in (each for own in objects for each in own):
            places.setdefault(each.name, {}).setdefault(each.place, each)
        known = {}
        turns = [list(own.values()) for own in places.values()]
        for turn in range(max(map(len, turns), default=0)):  # a call may have a name only once
            for name, status in self._in_parts([own[turn] for own in turns if turn < len(own)], self._get).items():
                known[name] = status if known.get(name, Status.OK) == Status.OK else known[name]
        return self._answers(objects, statuses, known)

    def remove(self, sets):
        """All objects of the sets, also those that were looked at in the last ten seconds. ABSENT: not all of them were there."""
        objects, statuses = self._objects(sets)
        names = _names(objects)
        return self._answers(objects, statuses, dict(zip(names, map(status_of, self._calls.batch("batch_remove", names, True)))))

    def stats(self):
        staging, calls = self._staging, self._calls
        return {"owner": self.owner, "memory": self.pools.memory_kind, "required_bytes": self.plan.required_bytes,
                "mapped_bytes": self.plan.mapped_bytes, "staged_pools": [self.plan.pools[number].name for number in staging.numbers] if staging else [],
                "staging_bytes": staging.plan.mapped_bytes if staging else 0, "staged_bytes": self.staged_bytes,
                "calls": dict(calls.counts), "codes": {str(code): count for code, count in sorted(calls.codes.items())},
                "breaker": calls.breaker.why() or "", "last_error": calls.last_error}

    # ---- what is asked for, checked ----

    def name_of(self, key, pool, component):
        """Of an object in the store: namespace and model, key, class and group, component, shard."""
        return f"p1.{self._space}.{key.hex()}.c{pool.class_id}.g{pool.group}.t{component}.s{0 if pool.replicated else self._shard}"

    def _objects(self, sets):
        """The objects of each set, and INVALID or None for it: a set that makes no sense has none, and costs the others nothing."""
        objects = [self._objects_of(one) for one in sets]
        return objects, [None if own else Status.INVALID for own in objects]

    def _refuse_busy(self, objects, statuses):
        """Pages that a late call may still touch are in no new one."""
        if busy := self._calls.busy():
            for at, own in enumerate(objects):
                if self._places(own) & busy:
                    objects[at], statuses[at] = [], Status.LATE

    def _places(self, objects):
        return {(self.plan.root[each.pool], each.page) for each in objects}

    def _objects_of(self, one):
        if not isinstance(one, PageSet) or not isinstance(one.key, bytes) or not 1 <= len(one.key) <= KEY_BYTES_MAX or not isinstance(one.pages, dict):
            return []
        own = []
        for name, page in one.pages.items():
            pool = self.pools.find(name)
            if pool is None or not _is_number(page, pool.pages):
                return []
            own += [_Object(self.name_of(one.key, pool, component), pool.number, page, component, size)
                    for component, size in enumerate(self._sizes[pool.number]) if size]
        return own

    def _refuse_shared_places(self, objects, statuses):
        taken = {}
        for at, own in enumerate(objects):
            places = {(self.plan.root[each.pool], each.page, each.component): each.name for each in own}
            if any(taken.get(place, name) != name for place, name in places.items()):
                objects[at], statuses[at] = [], Status.INVALID
            else:
                taken.update(places)

    @staticmethod
    def _answers(objects, statuses, known):
        return [status if status is not None else next((known[each.name] for each in own if known[each.name] != Status.OK), Status.OK)
                for status, own in zip(statuses, objects)]

    # ---- calls ----

    def _in_parts(self, objects, perform):
        """`perform` for as many pages at a time as a call may have, and as there is room for in the staging block. Returns status by name."""
        known = {}
        for objects in self._parts(objects):
            if not self._staging or not any(each.pool in self._staging.numbers for each in objects):
                known.update(perform(objects, {}, None))
                continue
            while objects:
                if self._calls.breaker.why():  # before the wait for a block that a late call may have
                    known.update((each.name, Status.DOWN) for each in objects)
                    break
                if not self._staging.lock.acquire(timeout=self._calls.limit_s(_bytes(objects))):
                    known.update((each.name, Status.LATE) for each in objects)
                    break
                unlock = _Once(self._staging.lock.release)
                try:
                    some, slots, objects = self._staging.take(objects)
                    known.update(perform(some, slots, unlock))
                except BaseException:
                    unlock()
                    raise
        return known

    def _parts(self, objects):
        """Cut between pages."""
        part, size, pieces = [], 0, 0
        for _, page in itertools.groupby(objects, lambda each: each.place):
            page = list(page)
            own_size, own_pieces = _bytes(page), sum(self._pieces_of(each) for each in page)
            if part and (size + own_size > CALL_BYTES or pieces + own_pieces > CALL_PIECES):
                yield part
                part, size, pieces = [], 0, 0
            part += page
            size, pieces = size + own_size, pieces + own_pieces
        if part:
            yield part

    def _pieces_of(self, each):
        return 1 if self._staging and each.pool in self._staging.numbers else len(self.plan.pieces[each.pool][each.component])

    def _put(self, objects, slots, after):
        """`slots`: of each staged (pool, page) its page in the staging block. `after`: called when the library has its hands off that."""
        if slots:
            self._staging.gather(self.pools, slots)
        codes = self._calls.batch("batch_put_from_multi_buffers", *self._lists(objects, slots), size=_bytes(objects),
                                  places=self._places(objects), after=after)
        return dict(zip((each.name for each in objects), map(status_of, codes)))

    def _get(self, objects, slots, after):
        known = {}

        def take(codes):
            known.update((each.name, self._got(each, code)) for each, code in zip(objects, codes))
            lacking = {each.place for each in objects if known[each.name] != Status.OK}
            if whole := {place: slot for place, slot in slots.items() if place not in lacking}:
                self._staging.scatter(self.pools, whole)
        self._calls.batch("batch_get_into_multi_buffers", *self._lists(objects, slots), size=_bytes(objects), places=self._places(objects),
                          first=take, after=after)
        return known

    def _lists(self, objects, slots):
        """Names, addresses and lengths: one list of pieces for each object."""
        pages, pieces = {}, []
        for each in objects:
            if each.place in slots:
                pieces.append([self._staging.piece(each.pool, slots[each.place], each.component)])
                continue
            if each.place not in pages:
                pages[each.place] = self.pools.segments(*each.place)
            pieces.append(self._inside(each, pages[each.place][each.component]))
        self.staged_bytes += sum(each.bytes for each in objects if each.place in slots)
        return ([each.name for each in objects], [[address for address, _ in own] for own in pieces], [[size for _, size in own] for own in pieces])

    def _inside(self, each, pieces):
        """Raises StoreError when they are not in the block: the library would not notice."""
        end = self._block + self.plan.mapped_bytes
        if sum(size for _, size in pieces) != each.bytes or any(address < self._block or size > end - address for address, size in pieces):
            raise StoreError(f"{each.name}: its pieces are not in the block")
        return pieces

    def _there(self, objects):
        names = _names(objects)
        codes = self._calls.batch("batch_is_exist", names)
        return {name: Status.ABSENT if code == 0 else status_of(code) for name, code in zip(names, codes)}

    def _got(self, each, code):
        if code >= 0:
            return Status.OK if code == each.bytes else Status.WRONG_SIZE
        if code in (-600, -800) and (size := self._calls.size_of(each.name)) >= 0 and size != each.bytes:
            return Status.WRONG_SIZE  # those codes may mean that, too
        return status_of(code)


def _refuse_no_plan(plan):
    if isinstance(plan, HostPools):
        refuse_other_kind(plan)
        raise BadOption("the group is sealed: its memory did not come from the client that is to be set up; give a PoolPlan")
    if not isinstance(plan, PoolPlan):
        raise BadOption(f"there is no group of pools: wanted a PoolPlan, got {plan!r}")


def _in_small_pieces(components, least):
    return any(len(own) > 1 and sum(own) < least * len(own) for own in components)


def _names(objects):
    """Of all objects, each once."""
    return list(dict.fromkeys(each.name for own in objects for each in own))


def _bytes(objects):
    return sum(each.bytes for each in objects)


def _is_number(value, end):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end

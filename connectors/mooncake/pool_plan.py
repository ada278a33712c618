"""What a group of host pools will be before it has memory: bytes required and mapped, each buffer's place in one block, and which pools'
pages are stored as they lie. All of it is what the library says: no size, offset or order is computed from a model here.

Threads: plain values after they are made.
"""

import ctypes
import dataclasses
import os
import re

from tiercel_connector import BadOption
from tiercel_connector.library import AT, NO_GROUP, SAME_AS, Builder, Spec, TiercelError, open_pools

STORED = "page_first_direct"  # the order of the objects: in each component layer by layer, in each layer token by token
BUFFER_ALIGNMENT = 4096  # as the library places buffers of its own, so that direct I/O reaches each
NOWHERE = 1 << 40  # an address for plans: external memory is not touched by planning it


@dataclasses.dataclass
class Pool:
    """One pool of a group, as an engine names it. None: as the group has it, or the spec."""

    group: int = NO_GROUP  # of the spec; NO_GROUP: an anchor of slots without bytes
    name: str = None
    layout: str = None
    slots_of: str = None
    pages: int = 0  # of a pool with slots of its own
    views_of: str = None  # a pool of the same group and layout, added before: the same pages under another name


class PoolPlan:
    """`required_bytes`, `mapped_bytes`: of the block that will be asked for. `pools`: PoolInfo of each, in order.
    Of each: `pieces`, the lengths of every component's pieces; `as_stored`, whether the bytes of its pages, component by component, stand in
    memory in the order in which they are stored; `root`, the number of the pool whose pages they are."""

    def __init__(self, library, spec, layout, pages, pools=None, stage=(0, 0), memory="external", allocator=None, backend=None, extra_config=None):
        """`pages`: of every pool with slots of its own. `pools`: a list of Pool; None: each group of the spec one, sharing slots as
        tiercel_host_pools_open does. `stage`: layers [first, end). The kind of memory as users name it. Raises BadOption."""
        self.library, self.text, self.stage = library, spec, stage
        self._group = {"layout": layout, "first_layer": stage[0], "end_layer": stage[1]}
        self._pages, self._kind = pages, {"memory": memory, "allocator": allocator, "backend": backend, "extra_config": extra_config}
        if isinstance(pages, bool) or not isinstance(pages, int) or pages <= 0:
            raise BadOption(f"pages of each pool: wanted a number above 0, got {pages!r}")
        try:
            self.spec = Spec(library, spec)
            self._refuse_other_kinds()
            self._wanted = self._stack() if pools is None else list(pools)
            if not self._wanted:
                raise BadOption("the group has no pool")
            self._measure()
            with self.at(NOWHERE) as planned:
                self._learn(planned)
        except TiercelError as error:
            raise BadOption(str(error)) from None

    def at(self, address):
        """The group, sealed, with its pools in `mapped_bytes` of the caller's memory from there on."""
        options = {**self._group, **self._kind, "pages": self._pages, "allocations": [(address, self.mapped_bytes)]}
        with Builder(self.library, self.spec, **options) as builder:
            for pool, places in zip(self._wanted, self._places):
                buffers = [place if "pool" in place else {**place, "data": address + place["data"]} for place in places]
                builder.add(buffers, **self._options_of(pool), layout=pool.layout, slots_of=pool.slots_of, pages=pool.pages)
            return builder.seal()

    def identity(self):
        """Text that two plans have in common exactly if their pages hold the same things: the model, its ranks, the layers."""
        return f"{self.spec.json()}\0{self._group['first_layer']}:{self._group['end_layer']}"

    # ---- steps of making one ----

    def _refuse_other_kinds(self):
        """By the library's own rules: a group of nothing but an anchor takes no memory of any kind."""
        with Builder(self.library, self.spec, **self._group, **self._kind, pages=1) as builder:
            builder.add(group=NO_GROUP)
            with builder.seal() as group:
                refuse_other_kind(group)

    def _stack(self):
        with open_pools(self.library, self.spec, **self._group, memory="anonymous", pages=1) as group:
            return [Pool(pool.group, pool.name, slots_of=None if pool.slots_of == pool.number else group.pools[pool.slots_of].name)
                    for pool in group.pools]

    def _one_page(self, layout=None):
        """A page of each pool, in memory of the library's; `layout`: of all of them, instead of their own."""
        with Builder(self.library, self.spec, **self._group, memory="anonymous", pages=1) as builder:
            for pool in self._wanted:
                builder.add(**self._options_of(pool), layout=layout or pool.layout, slots_of=pool.slots_of)
            return builder.seal()

    def _measure(self):
        """The places of all buffers. Each is as many times as long as that of a single page as the pool has pages."""
        with self._one_page() as one, self._one_page(STORED) as stored:
            self.as_stored = [_same_order(one, stored, pool.number) for pool in one.pools]
            names = [pool.name for pool in one.pools]
            self._places, end = [], 0
            for number, pool in enumerate(self._wanted):
                aligned = max(BUFFER_ALIGNMENT, *map(int, re.findall(r"align=(\d+)", one.pools[number].layout)), 0)
                places = []
                for at, (_, size) in enumerate(one.buffers(number)):
                    size *= self._pages_of(number, names)
                    if pool.views_of:
                        places.append({"source": SAME_AS, "pool": pool.views_of, "buffer": at})
                        continue
                    end += -end % aligned
                    places.append({"source": AT, "data": end, "size": size})
                    end += size
                self._places.append(places)
        self.mapped_bytes = end + -end % BUFFER_ALIGNMENT
        if not self.mapped_bytes:
            raise BadOption(f"the group's {len(self._wanted)} pools have no bytes at all: nothing can be shared")

    def _pages_of(self, number, names):
        """Its own, or those of the pool whose slots it uses."""
        for _ in self._wanted:
            if not self._wanted[number].slots_of:
                break
            number = names.index(self._wanted[number].slots_of)
        return self._wanted[number].pages or self._pages

    def _learn(self, planned):
        refuse_other_kind(planned)
        self.required_bytes, self.mapped_bytes, self.fingerprint = planned.required_bytes, planned.mapped_bytes, planned.fingerprint
        self.pools = planned.pools
        self.pieces = [[[size for _, size in own] for own in planned.segments(pool.number, 0)] for pool in planned.pools]  # as of every page
        self.root = []
        for pool, wanted in zip(planned.pools, self._wanted):
            whole = planned.find(wanted.views_of) if wanted.views_of else pool
            if (whole.group, whole.layout) != (pool.group, pool.layout):
                raise BadOption(f"pool {pool.name}: a view of {whole.name} has its group and its layout")
            self.root.append(self.root[whole.number] if wanted.views_of else pool.number)

    @staticmethod
    def _options_of(pool):
        return {"group": pool.group, "name": pool.name}


def refuse_other_kind(group):
    if group.memory_kind != "external":
        raise BadOption(f"the pools' memory is {group.memory_kind}: a dummy client can name only memory that Mooncake's allocator gave it; "
                        "say external, and let the pools be carved from that")


def _same_order(one, stored, pool):
    """Whether page 0 of the two groups has the same bytes in the same order, tried with bytes that are all different."""
    for own in one.segments(pool, 0):
        for address, size in own:
            ctypes.memmove(address, os.urandom(size), size)
    if not one.pools[pool].page_bytes:
        return True
    stored.copy_from(one, [(pool, pool, [0], [0])])
    return all(_joined(ours) == _joined(theirs) for ours, theirs in zip(one.segments(pool, 0), stored.segments(pool, 0)))


def _joined(pieces):
    return b"".join(ctypes.string_at(address, size) for address, size in pieces)

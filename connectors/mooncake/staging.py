"""Pages on their way: a second block of Mooncake's allocator with a few pages of those pools that are not put and got as they lie, in the
order in which they are stored. The library copies between them and the pools, whatever the pools' layout.

Threads: any; who uses pages of it holds `lock`.
"""

import threading

from pool_plan import STORED, Pool, PoolPlan


class Staging:
    """`numbers`: of the pools, in the group, whose pages go through here; `plan`: of the block."""

    def __init__(self, plan, numbers, size):
        """`size`: bytes to share among them; of each at least one page."""
        self.numbers, self.lock = numbers, threading.Lock()
        self._own = {number: at for at, number in enumerate(numbers)}
        share = size // len(numbers)
        pools = [plan.pools[number] for number in numbers]
        self.capacity = {pool.number: max(1, min(pool.pages, share // pool.page_bytes)) for pool in pools}
        self.plan = PoolPlan(plan.library, plan.text, STORED, 1, stage=plan.stage,
                             pools=[Pool(pool.group, pool.name, pages=self.capacity[pool.number]) for pool in pools])
        self._pools = None

    def open(self, block):
        """`block`: of plan.mapped_bytes."""
        self._pools = self.plan.at(block)

    def take(self, objects):
        """As many of the objects as there is room for, all that do not go through here among them: (those, {(pool, page): page here}, the rest)."""
        some, slots, rest, used = [], {}, [], dict.fromkeys(self.numbers, 0)
        for each in objects:
            place = each.pool, each.page
            if each.pool in used and place not in slots:
                if used[each.pool] == self.capacity[each.pool]:
                    rest.append(each)
                    continue
                slots[place] = used[each.pool]
                used[each.pool] += 1
            some.append(each)
        return some, slots, rest

    def piece(self, pool, slot, component):
        """(address, bytes) of one object here."""
        piece, = self._pools.segments(self._own[pool], slot)[component]
        return piece

    def gather(self, pools, slots):
        self._pools.copy_from(pools, self._parts(slots, lambda pool, pages, here: (pool, self._own[pool], pages, here)))

    def scatter(self, pools, slots):
        pools.copy_from(self._pools, self._parts(slots, lambda pool, pages, here: (self._own[pool], pool, here, pages)))

    def _parts(self, slots, part):
        by_pool = {}
        for (pool, page), slot in slots.items():
            by_pool.setdefault(pool, []).append((page, slot))
        return [part(pool, [page for page, _ in pairs], [slot for _, slot in pairs]) for pool, pairs in by_pool.items()]

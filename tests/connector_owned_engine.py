#!/usr/bin/env python3
"""An engine process for connectors_owned.py: it owns host pools, is Mooncake's dummy client itself, and does what it is told, one JSON object
a line on standard input, one answer a line on standard output. Started with the Python that has the wheel.

Contents: each component of each page has bytes that follow from a seed and its place in the model, whatever the layout; what a page must hold
in memory is worked out here a second time, from the shapes, not by the library's copies.
"""

import ctypes
import hashlib
import json
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
sys.path += [str(SOURCE / "connectors"), str(SOURCE / "connectors" / "mooncake")]
from owned_pools import OwnedPools, PageSet  # noqa: E402
from pool_plan import Pool, PoolPlan  # noqa: E402
from tiercel_connector import StoreError  # noqa: E402
from tiercel_connector.library import Library, Spec, open_pools  # noqa: E402


def content(seed, pool, page, component, size):
    """Layer by layer, token by token."""
    return hashlib.shake_128(f"{seed}/{pool}/{page}/{component}".encode()).digest(size)


def token_by_token(data, layers, tokens):
    """The same in the order of page_first: of each token all layers."""
    entry = len(data) // (layers * tokens)
    return b"".join(data[(layer * tokens + token) * entry:(layer * tokens + token + 1) * entry] for token in range(tokens) for layer in range(layers))


class Engine:
    def open(self, spec, layout, pages, config, pools=None, **more):
        library = Library()
        plan = PoolPlan(library, spec, layout, pages, pools=pools and [Pool(**pool) for pool in pools])
        self.owned, self.layout = OwnedPools(plan, config, "connectors owned", **more), layout
        self.pools = self.owned.pools
        self.plain = open_pools(library, Spec(library, spec), layout="page_first_direct", memory="anonymous", pages=pages)
        return {"required_bytes": plan.required_bytes, "staged": self.owned.stats()["staged_pools"], "bytes": [pool.page_bytes for pool in plan.pools],
                "buffers": [[size for _, size in self.pools.buffers(pool.number)] for pool in plan.pools]}

    def fill(self, seed):
        """All pages of all pools."""
        for pool in self.plain.pools:
            for page in range(pool.pages):
                for component, pieces in enumerate(self.plain.segments(pool.number, page)):
                    data, at = content(seed, pool.name, page, component, sum(size for _, size in pieces)), 0
                    for address, size in pieces:
                        ctypes.memmove(address, data[at:at + size], size)
                        at += size
        numbers = [list(range(pool.pages)) for pool in self.plain.pools]
        self.pools.copy_from(self.plain, [(at, at, own, own) for at, own in enumerate(numbers)])

    def erase(self):
        for pool in self.pools.pools:
            for address, size in self.pools.buffers(pool.number):
                ctypes.memset(address, 0xEE, size)

    def wrong(self, seed):
        """How many bytes are compared, and how many are not what they must be, of all pages of all pools."""
        compared = wrong = 0
        for pool in self.pools.pools:
            tokens = pool.page_tokens // pool.tokens_per_entry if pool.page_tokens else 1
            buffers = self.pools.buffers(pool.number)
            for page in range(pool.pages):
                for component, pieces in enumerate(self.pools.segments(pool.number, page)):
                    wanted = content(seed, pool.name, page, component, sum(size for _, size in pieces))
                    if self.layout == "page_first":
                        wanted = token_by_token(wanted, pool.layers, tokens)
                    if self.layout.startswith("layer,component|"):  # k0, v0, k1, v1, …
                        for layer, (address, size) in enumerate(pieces):
                            start, whole = buffers[layer * pool.components + component]
                            wrong += not start <= address <= start + whole - size
                    found = b"".join(ctypes.string_at(address, size) for address, size in pieces)
                    compared += len(wanted)
                    wrong += sum(a != b for a, b in zip(found, wanted)) if found != wanted else 0
        return [compared, wrong]

    def edges(self):
        """The first and the last byte of each buffer of each pool."""
        return [[ctypes.string_at(address, 1).hex() + ctypes.string_at(address + size - 1, 1).hex() for address, size in self.pools.buffers(pool.number)]
                for pool in self.pools.pools]

    def verb(self, name, sets):
        began = time.monotonic()
        statuses = getattr(self.owned, name)([PageSet(bytes.fromhex(key), pages) for key, pages in sets])
        return {"statuses": [int(status) for status in statuses], "seconds": time.monotonic() - began}

    def stats(self):
        return {**self.owned.stats(), "pools": [pool.name for pool in self.pools.pools]}

    def close(self):
        self.owned.close()


if __name__ == "__main__":
    engine = Engine()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = getattr(engine, name)(**arguments)
        except StoreError as error:
            answer = {"error": str(error), "status": int(error.status)}
        print(json.dumps(answer), flush=True)

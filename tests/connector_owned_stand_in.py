#!/usr/bin/env python3
"""An engine's own host pools as a dummy client, with a stand-in for Mooncake's library that keeps objects, writes down each call, and checks
what the real one does not: that every address is in a block that was registered whole, that no name is in a call twice. Run by
connectors_owned.py with the path of libtiercel.so; needs nothing installed."""

import ctypes
import itertools
import json
import sys
import threading
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
sys.path += [str(SOURCE / "connectors"), str(SOURCE / "connectors" / "mooncake")]
from checks import check, ends, wait_for  # noqa: E402
from owned_pools import OwnedPools, PageSet  # noqa: E402
from pool_plan import Pool, PoolPlan  # noqa: E402
from settings import Settings  # noqa: E402
from tiercel_connector import BadOption, Down, Status, StoreError  # noqa: E402
from tiercel_connector.library import NO_GROUP, Builder, Library, Spec, TiercelError, open_pools  # noqa: E402

OK, ABSENT, WRONG_SIZE, NO_ROOM, INVALID, FAILED = Status.OK, Status.ABSENT, Status.WRONG_SIZE, Status.NO_ROOM, Status.INVALID, Status.FAILED
CONFIG = {"client_server_address": "127.0.0.1:50052", "probe_s": 0.05}
SMALL = json.dumps({"tiercel_spec": 1, "model_type": "small", "page_tokens": 4, "topology": {"tp": 1}, "groups": [
    {"kind": "full", "layers": [1], "components": [{"name": "k", "shape": [1, 8], "dtype": "bf16"}, {"name": "v", "shape": [1, 8], "dtype": "bf16"}]},
    {"kind": "state", "layers": [0], "components": [{"name": "temporal", "shape": [1, 4, 4], "dtype": "f32"},
                                                    {"name": "conv", "shape": [4, 4], "dtype": "bf16"}]}]})
# Main pool: one buffer of 128 bytes. Side pool: one of 64 and one of 32.
SMALL_POOLS = [Pool(0, "main"), Pool(1, "side", layout="page_first_kv_split")]
HYBRID = json.dumps({"tiercel_spec": 1, "model_type": "hybrid", "page_tokens": 4, "topology": {"tp": 1}, "groups": [
    {"kind": "full", "layers": [3, 7], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"}, {"name": "v", "shape": [2, 8], "dtype": "bf16"}]},
    {"kind": "window", "window_tokens": 8, "layers": [1, 5], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                                            {"name": "v", "shape": [2, 8], "dtype": "bf16"}]},
    {"kind": "state", "layers": [0, 2, 4, 6], "components": [{"name": "conv", "shape": [6, 3], "dtype": "bf16"},
                                                             {"name": "temporal", "shape": [2, 4, 4], "dtype": "f32"}]}]})
INTERLEAVED = "layer,component|page,token,head,dim"  # buffers k0, v0, k1, v1, …
LIBRARY = None


class StandIn:
    """`calls`: name and arguments of each. `answers`: a code for a name, instead of what would happen."""

    def __init__(self):
        self.calls, self.blocks, self.registered, self.objects, self.answers, self.set_up = [], {}, {}, {}, {}, 0

    def named(self, *names):
        return [call for call in self.calls if call[0] in names]

    def setup(self, *arguments):
        self.calls.append(("setup", *arguments))
        check(False, "setup was called")
        return -1

    def setup_dummy(self, *arguments):
        self.calls.append(("setup_dummy", *arguments))
        return self.set_up

    def alloc_from_mem_pool(self, size):
        self.calls.append(("alloc_from_mem_pool", size))
        if self.answers.get("alloc_from_mem_pool") == len(self.named("alloc_from_mem_pool")):
            return 0
        memory = ctypes.create_string_buffer(size + 4096)
        block = ctypes.addressof(memory) + -ctypes.addressof(memory) % 4096
        ctypes.memset(block, 0xEE, size)
        self.blocks[block] = size, memory
        return block

    def register_buffer(self, block, size):
        self.calls.append(("register_buffer", block, size))
        check(block in self.blocks and self.blocks[block][0] == size and block not in self.registered, "a block is registered once, whole")
        self.registered[block] = size
        return self.answers.get("register_buffer", 0)

    def batch_is_exist(self, names):
        self._note("batch_is_exist", names)
        return [self.answers.get(("exists", name), int(name in self.objects)) for name in names]

    def batch_put_from_multi_buffers(self, names, addresses, sizes):
        self._note("batch_put_from_multi_buffers", names, addresses, sizes)
        codes = []
        for name, own, lengths in zip(names, addresses, sizes, strict=True):
            codes.append(self.answers.get(name, 0))
            if codes[-1] == 0:
                self.objects.setdefault(name, b"".join(map(ctypes.string_at, own, lengths)))
        return codes

    def batch_get_into_multi_buffers(self, names, addresses, sizes):
        self._note("batch_get_into_multi_buffers", names, addresses, sizes)
        codes = []
        for name, own, lengths in zip(names, addresses, sizes, strict=True):
            data, at = self.objects.get(name), 0
            codes.append(self.answers.get(name, -704 if data is None else -600 if sum(lengths) < len(data) else -800 if sum(lengths) > len(data)
                                          else len(data)))
            if codes[-1] >= 0:
                for address, length in zip(own, lengths):
                    ctypes.memmove(address, data[at:at + length], length)
                    at += length
        return codes

    def batch_remove(self, names, force):
        self._note("batch_remove", names, force)
        return [0 if self.objects.pop(name, None) is not None else -704 for name in names]

    def is_exist(self, name):
        self.calls.append(("is_exist", name))
        return self.answers.get("is_exist", 0)

    def get_size(self, name):
        self.calls.append(("get_size", name))
        return len(self.objects[name]) if name in self.objects else -704

    def close(self):
        self.calls.append(("close",))

    def _note(self, call, names, addresses=(), sizes=()):
        self.calls.append((call, names, addresses, sizes))
        check(len(set(names)) == len(names) and names, call, "names twice, or none", names)
        if sizes and addresses:
            check(all(len(own) == len(lengths) > 0 for own, lengths in zip(addresses, sizes, strict=True)), call, "lists that do not fit")
            for address, length in zip(itertools.chain(*addresses), itertools.chain(*sizes)):
                check(any(block <= address and address + length <= block + size for block, size in self.registered.items()) and length > 0,
                      call, "outside of every block:", address, length)


def plan(spec=HYBRID, layout="layer_first", pages=4, **more):
    return PoolPlan(LIBRARY, spec, layout, pages, **more)


def opened(planned, store=None, config=CONFIG, **more):
    store = store or StandIn()
    return OwnedPools(planned, config, more.pop("namespace", "m"), make_store=lambda: store, **more), store


def refused(make, *words, kind=BadOption):
    """That it raises, with the words; returns nothing."""
    try:
        make()
        check(False, "accepted, wanted:", words)
    except kind as error:
        check(all(word in str(error) for word in words) and "\n" not in str(error), error, words)


def fill(pools, seed):
    """Every page of every pool of bytes that say where they are."""
    for pool in pools.pools:
        for page in range(pool.pages):
            for component, pieces in enumerate(pools.segments(pool.number, page)):
                for at, (address, size) in enumerate(pieces):
                    start = seed + 31 * pool.number + 7 * page + 3 * component + 11 * at
                    ctypes.memmove(address, bytes((start + 13 * byte) % 251 for byte in range(size)), size)


def page_of(pools, name, page):
    """The bytes of each component of a page, in the order of memory."""
    return [b"".join(ctypes.string_at(address, size) for address, size in own) for own in pools.segments(pools.find(name).number, page)]


def erase(pools):
    for pool in pools.pools:
        for address, size in pools.buffers(pool.number):
            if size:
                ctypes.memset(address, 0xEE, size)


def key(number):
    return number.to_bytes(16, "big")


# ---- cases ----

def small_case():
    """H01: 128 and 64 and 32 bytes are 224, in one block that is registered once."""
    owned, store = opened(plan(SMALL, "page_first", 1, pools=SMALL_POOLS), config={**CONFIG, "local_buffer_size": 4096})
    check([size for pool in (0, 1) for _, size in owned.pools.buffers(pool)] == [128, 64, 32], "the buffers")
    check(store.calls[0] == ("setup_dummy", 224, 4096, "127.0.0.1:50052"), store.calls)
    check([call[:1] + call[-1:] for call in store.calls[1:]] == [("alloc_from_mem_pool", owned.plan.mapped_bytes),
                                                                 ("register_buffer", owned.plan.mapped_bytes)], store.calls)
    check(not store.named("setup") and len(store.named("setup_dummy")) == 1, "set-up")
    block, size = store.calls[2][1:]
    check(all(block <= at and at + of <= block + size for pool in (0, 1) for at, of in owned.pools.buffers(pool)), "all buffers in the block")
    check(owned.pools.memory_kind == "external" and owned.owner == "the mooncake_client at 127.0.0.1:50052" and
          owned.stats()["owner"] == owned.owner and owned.stats()["memory"] == "external", owned.stats())
    fill(owned.pools, 3)
    whole = PageSet(key(1), {"main": 0, "side": 0})
    was = page_of(owned.pools, "main", 0) + page_of(owned.pools, "side", 0)
    check(owned.store([whole]) == [OK] and owned.exists([whole]) == [OK], "stored")
    check([len(call[1]) for call in store.named("batch_is_exist", "batch_put_from_multi_buffers")] == [4, 4, 4], "one call for all pools")
    erase(owned.pools)
    check(owned.load([whole]) == [OK] and page_of(owned.pools, "main", 0) + page_of(owned.pools, "side", 0) == was, "loaded")
    owned.close()
    check(store.calls[-1] == ("close",), "closed")


def other_groups():
    """No group, no side pool, an anchor without bytes, a buffer that two pools list: an error in words or the right sum."""
    store = StandIn()
    for nothing in (None, [], "group"):
        refused(lambda: opened(nothing, store), "no group of pools")
    refused(lambda: plan(pools=[]), "no pool")
    refused(lambda: plan(pools=[Pool(name="anchor")]), "no bytes at all")
    refused(lambda: plan(pages=0), "pages")
    refused(lambda: plan(spec="{"), "1")
    refused(lambda: plan(pools=[Pool(9)]), "group 9")
    refused(lambda: opened(plan(), store, config={"master_server_address": "m:1"}), "client_server_address")
    refused(lambda: opened(plan(), store, config={**CONFIG, "bounce": 1}), "no option 'bounce'")
    refused(lambda: opened(plan(), store, namespace=""), "namespace")
    for shard in (-1, 1 << 16, True, "0"):
        refused(lambda: opened(plan(), store, shard=shard), "shard")
    check(store.calls == [], "the library is not called before that", store.calls)
    for pools, wanted in (([Pool(0, "main")], 128),
                          ([Pool(NO_GROUP, "anchor"), Pool(0, "main", slots_of="anchor"), Pool(1, "side", layout="page_first_kv_split")], 224),
                          ([*SMALL_POOLS, Pool(0, "again", slots_of="main", views_of="main")], 224)):
        owned, store = opened(plan(SMALL, "page_first", 1, pools=pools))
        check(store.calls[0][1] == wanted and len(store.named("setup_dummy", "register_buffer")) == 2, wanted, store.calls)
        check(owned.store([PageSet(key(1), {pools[-1].name: 0})]) == [OK], "and it works")
        if len(pools) == 3:
            names = {"main": 0, "anchor": 0} if pools[0].name == "anchor" else {"again": 0}
            check(owned.load([PageSet(key(1) if "again" in names else key(2), names)]) == [OK if "again" in names else ABSENT], names)
    check(owned.load([PageSet(key(1), {"main": 0}), PageSet(key(2), {"again": 0})]) == [OK, INVALID], "one place under two names, two keys")
    refused(lambda: plan(SMALL, "page_first", 1, pools=[*SMALL_POOLS, Pool(0, "again", layout="page_head", views_of="main")]), "its layout")


def other_kinds():
    """A group of another kind of memory never reaches setup_dummy."""
    store = StandIn()
    for kind, said in (({"memory": "shared"}, "shared"), ({"memory": "anonymous"}, "anonymous"), ({"memory": "hugepage"}, "hugepage"),
                       ({"memory": None, "allocator": "shm"}, "shared"), ({"memory": None, "extra_config": '{"allocator": "shm"}'}, "shared"),
                       ({"memory": None, "backend": "dynamic", "extra_config": '{"backend": "dynamic", "allocator": "memfd"}'}, "shared")):
        refused(lambda: opened(plan(**kind), store), f"memory is {said}", "external")
    refused(lambda: opened(plan(memory="pinned"), store), "pinned")
    refused(lambda: opened(plan(memory="external", allocator="shm"), store), "allocator")
    refused(lambda: opened(plan(memory=None, backend="external"), store), "memory")
    with Spec(LIBRARY, HYBRID) as spec:
        for memory in ("shared", "anonymous"):
            with open_pools(LIBRARY, spec, layout="layer_first", memory=memory, pages=1) as pools:
                refused(lambda: opened(pools, store), f"memory is {memory}")
        with Builder(LIBRARY, spec, layout="layer_first", memory="external", pages=1) as builder:
            builder.add(group=NO_GROUP)
            with builder.seal() as pools:
                refused(lambda: opened(pools, store), "is sealed")
    check(store.calls == [], "nothing was called", store.calls)
    owned, _ = opened(plan(memory=None, backend="dynamic", extra_config='{"allocator": "external"}'))
    check(owned.pools.memory_kind == "external", "named by the extra configuration")


def set_up_fails():
    store = StandIn()
    store.set_up = -1
    refused(lambda: opened(plan(), store), "answers -1", kind=Down)
    check([call[0] for call in store.calls] == ["setup_dummy"], "nothing is called after a set-up that failed", store.calls)
    for answers, word in (({"alloc_from_mem_pool": 1}, "gives no block"), ({"register_buffer": -1}, "refuses the block"),
                          ({"alloc_from_mem_pool": 2}, "gives no block")):
        store = StandIn()
        store.answers.update(answers)
        refused(lambda: opened(plan(), store), word, kind=Down)
        check(store.calls[-1] == ("close",) and len(store.named("setup_dummy")) == 1, "closed", store.calls)
    refused(lambda: Library("no-such-library.so"), "no-such-library.so", "TIERCEL_LIBRARY", kind=TiercelError)


def several_classes():
    """One existence call and one put call for all classes, in pieces and whole; what is there is not sent again."""
    owned, store = opened(plan(), direct_piece_bytes=0)
    fill(owned.pools, 5)
    sets = [PageSet(key(at), {"full": at, "window8": 3 - at, "state": at}) for at in range(3)]
    check(owned.store(sets) == [OK] * 3, "stored")
    looked, put = store.named("batch_is_exist")[0], store.named("batch_put_from_multi_buffers")[0]
    check(len(store.named("batch_is_exist", "batch_put_from_multi_buffers")) == 2 and len(looked[1]) == len(put[1]) == 3 * 6, store.calls)
    # One buffer for each layer: two of the full group, two of the window's, four of the states'.
    check([len(own) for own in put[2]] == [2, 2, 2, 2, 4, 4] * 3 and not store.named("alloc_from_mem_pool")[1:], [len(own) for own in put[2]])
    names = put[1][:6]
    check([name.split(".", 3)[3] for name in names] == ["c0.g0.t0.s0", "c0.g0.t1.s0", "c1.g1.t0.s0", "c1.g1.t1.s0", "c2.g2.t0.s0", "c2.g2.t1.s0"] and
          all(name.split(".")[0] == "p1" and name.split(".")[2] == key(0).hex() and len(name.split(".")[1]) == 32 for name in names), names)
    gone = names[3]
    del store.objects[gone]
    check(owned.exists(sets) == [ABSENT, OK, OK] and owned.load(sets[:1]) == [ABSENT], "a set with a hole is not there")
    check(owned.store(sets) == [OK] * 3 and store.calls[-1][1] == [gone], "only what is missing is put", store.calls[-1])
    check(owned.store(sets) == [OK] * 3 and store.calls[-1][0] == "batch_is_exist", "nothing is")
    check(owned.remove(sets[:1]) == [OK] and owned.exists(sets) == [ABSENT, OK, OK] and owned.remove(sets[:1]) == [ABSENT], "removed")
    calls = len(store.calls)
    check(owned.store([]) == owned.load([]) == owned.exists([]) == owned.remove([]) == [] and len(store.calls) == calls, "nothing asks nobody")


def names():
    """Namespace, model, stage and shard keep apart; a replicated pool has no shard."""
    def name(namespace="m", shard=0, **more):
        owned, _ = opened(plan(**more), namespace=namespace, shard=shard)
        return owned.name_of(key(1), owned.pools.pools[0], 0)
    different = [name(), name("n"), name(shard=1), name(stage=(3, 7)), name(spec=HYBRID.replace('"tp": 1', '"tp": 2')),
                 name(spec=HYBRID.replace("bf16", "fp16")), name(spec=SMALL)]
    check(len(set(different)) == len(different) and all(len(one) <= 120 for one in different), different)
    check(name() == name(layout="page_first") == name(pages=9), "the layout and the number of pages do not")
    text = HYBRID.replace('"kind": "full",', '"kind": "full", "replicated": true,')
    check(name(spec=text, shard=1) == name(spec=text), "every rank's")


def layouts():
    """What one layout wrote, every other one reads, byte by byte, in pieces as they lie and gathered."""
    stores = {}
    with Spec(LIBRARY, HYBRID) as spec:
        plain = open_pools(LIBRARY, spec, layout="page_first_direct", memory="anonymous", pages=4)
    fill(plain, 17)
    sets = [PageSet(key(page), {"full": page, "window8": page, "state": page}) for page in range(4)]
    for layout in ("layer_first", "page_first", "page_first_direct", "page_head", "page_first_kv_split", "record", "vllm_hnd", "llama",
                   "llama_v_transposed", INTERLEAVED, "layer,component,page,token,head,dim"):
        for least in (0, 1 << 20):
            owned, store = opened(plan(layout=layout), direct_piece_bytes=least)
            numbers = range(4)
            owned.pools.copy_from(plain, [(pool, pool, numbers, numbers) for pool in range(3)])
            was = [page_of(owned.pools, pool.name, page) for pool in owned.pools.pools for page in numbers]
            check(owned.store(sets) == [OK] * 4 and store.named("batch_put_from_multi_buffers")[1:] == [], layout)
            stores[layout, least] = store.objects
            erase(owned.pools)
            check(owned.load(sets) == [OK] * 4, layout)
            check(was == [page_of(owned.pools, pool.name, page) for pool in owned.pools.pools for page in numbers], layout, least, "the bytes")
    first = stores["page_first_direct", 0]
    check(all(objects == first for objects in stores.values()), [which for which, objects in stores.items() if objects != first])
    wanted = {bytes(data) for pool in plain.pools for page in range(4) for data in page_of(plain, pool.name, page)}
    check(set(first.values()) == wanted and len(first) == 24, "objects are what page_first_direct has")


def small_pieces():
    """Below the threshold they are gathered, from it on they go as they lie, one list for both; a small staging block takes several calls."""
    owned, store = opened(plan(), direct_piece_bytes=128)  # pieces: K and V 128 bytes, conv 36, temporal 128
    fill(owned.pools, 23)
    check(owned.stats()["staged_pools"] == ["state"] and [call[1] for call in store.named("alloc_from_mem_pool")] ==
          [owned.plan.mapped_bytes, owned.stats()["staging_bytes"]], owned.stats())
    sets = [PageSet(key(at), {"full": at, "state": at}) for at in range(4)]
    check(owned.store(sets) == [OK] * 4, "stored")
    check([len(own) for own in store.calls[-1][2]] == [2, 2, 1, 1] * 4, "pieces, and gathered ones")
    check(owned.stats()["staged_bytes"] == 4 * owned.pools.find("state").page_bytes, owned.stats())
    was = [page_of(owned.pools, "state", at) for at in range(4)]
    erase(owned.pools)
    check(owned.load(sets) == [OK] * 4 and [page_of(owned.pools, "state", at) for at in range(4)] == was, "and back")
    tight, other = opened(plan(), store=None, direct_piece_bytes=1 << 20, staging_bytes=1)
    other.objects = store.objects
    check(tight.load(sets) == [OK] * 4 and [len(call[1]) for call in other.named("batch_get_into_multi_buffers")] == [4] * 4, "page by page")
    check([page_of(tight.pools, "state", at) for at in range(4)] == was, "the same")
    erase(tight.pools)
    gone = next(name for name in other.objects if ".c2." in name and key(2).hex() in name)
    del other.objects[gone]
    check(tight.load(sets) == [OK, OK, ABSENT, OK] and set(b"".join(page_of(tight.pools, "state", 2))) == {0xEE}, "a staged page is whole or untouched")


def many():
    """No call has more pieces than the library's queues take; pages stay whole."""
    owned, store = opened(plan(pages=600), direct_piece_bytes=0)
    sets = [PageSet(key(at), {"full": at, "state": at}) for at in range(600)]
    check(owned.store(sets) == [OK] * 600 and owned.load(sets) == [OK] * 600, "600 sets")
    for call in store.named("batch_put_from_multi_buffers", "batch_get_into_multi_buffers"):
        check(sum(map(len, call[2])) <= 1024 and len(call[1]) % 2 == 0, call[0], sum(map(len, call[2])))
    check(len(store.named("batch_is_exist")) == 1 and len(store.named("batch_put_from_multi_buffers")) == 8, "one look-up, 7,200 pieces")


def twice():
    """H13: each position has its own status and bytes."""
    for least in (0, 1 << 20):
        owned, store = opened(plan(), direct_piece_bytes=least)
        fill(owned.pools, 29)
        first, second = page_of(owned.pools, "full", 0), page_of(owned.pools, "full", 1)
        check(owned.store([PageSet(key(1), {"full": 0}), PageSet(key(1), {"full": 1}), PageSet(key(2), {"full": 1})]) == [OK] * 3, "stored")
        check(len(store.objects) == 4 and len(store.named("batch_put_from_multi_buffers")) == 1, "as two in a row: the first stays")
        erase(owned.pools)
        sets = [PageSet(key(1), {"full": 0}), PageSet(key(2), {"full": 1}), PageSet(key(1), {"full": 2}), PageSet(key(1), {"full": 0}),
                PageSet(key(9), {"full": 3})]
        check(owned.load(sets) == [OK, OK, OK, OK, ABSENT], "loaded")
        check([page_of(owned.pools, "full", at) for at in range(3)] == [first, second, first], "every place is filled")
        check(owned.load([PageSet(key(1), {"full": 0}), PageSet(key(2), {"full": 0}), PageSet(key(2), {"full": 1})]) == [OK, INVALID, OK], "one place, two keys")
        check(page_of(owned.pools, "full", 0) == first, "the first has it")
        before = set(store.objects)
        check(owned.store([PageSet(key(3), {"full": 3}), PageSet(key(1), {"full": 3}), PageSet(key(3), {"full": 3})]) == [OK] * 3, "new, present, new")
        check(len(set(store.objects) - before) == 2, "the new one")


def nonsense():
    """A set that makes no sense is INVALID, costs the others nothing, and no address of it reaches the library."""
    owned, store = opened(plan(), direct_piece_bytes=0)
    good = PageSet(key(1), {"full": 0})
    bad = [PageSet(key(2), {"full": page}) for page in (-1, 4, 1 << 62, True, None, "0", 1.0)] + \
          [PageSet(one, {"full": 0}) for one in (b"", b"k" * 33, "text", None)] + \
          [PageSet(key(2), {}), PageSet(key(2), None), PageSet(key(2), {"none": 0}), PageSet(key(2), {"full": 0, "state": 9}), None, "set"]
    for verb in (owned.store, owned.exists, owned.load, owned.remove):
        check(verb(bad) == [INVALID] * len(bad), verb.__name__)
    check(store.named("batch_is_exist", "batch_put_from_multi_buffers", "batch_get_into_multi_buffers", "batch_remove") == [], "nobody was asked")
    check(owned.store([*bad, good, *bad])[len(bad)] == OK, "the good one among them")
    owned.pools.segments = lambda pool, page: [[(owned._block + owned.plan.mapped_bytes - 100, 128)] * 2] * 2
    try:
        owned.load([good])
        check(False, "an address past the block")
    except StoreError as error:
        check("not in the block" in str(error), error)


def codes():
    owned, store = opened(plan(), direct_piece_bytes=0)
    fill(owned.pools, 31)
    sets = [PageSet(key(at), {"full": at}) for at in range(3)]
    names = [owned.name_of(key(at), owned.pools.find("full"), 1) for at in range(3)]
    for code, status in ((-200, NO_ROOM), (-600, INVALID), (-800, FAILED), (-12345, FAILED)):
        store.answers = {names[1]: code}
        check(owned.store(sets) == [OK, status, OK], code)
        check(owned.exists(sets) == [OK, ABSENT, OK], "half a set is none")
    store.answers = {("exists", names[2]): -707}
    check(owned.exists(sets) == [OK, ABSENT, FAILED] and owned.store(sets) == [OK, OK, FAILED], "a look-up that failed")
    store.answers = {}
    store.objects[names[0]] += b"x"
    check(owned.load(sets) == [WRONG_SIZE, OK, OK], "longer than a page")
    store.objects[names[0]] = store.objects[names[0]][:9]
    check(owned.load(sets) == [WRONG_SIZE, OK, OK], "shorter")
    for answer in ([0], None, [0, 0, 0, 0, "x", 0]):
        store.batch_get_into_multi_buffers = lambda *_: answer
        check(set(owned.load(sets)) <= {FAILED, WRONG_SIZE}, "an answer that makes no sense", answer)


def nobody_there():
    """The first answer that says so is the last call until a probe is answered."""
    owned, store = opened(plan(), direct_piece_bytes=0)
    sets = [PageSet(key(1), {"full": 0})]
    store.answers = {("exists", owned.name_of(key(1), owned.pools.find("full"), 0)): -1, "is_exist": -1}
    check(owned.exists(sets) == [Status.DOWN], "a dummy client's only word for it")
    calls = len(store.named("batch_is_exist"))
    check(owned.store(sets) == owned.load(sets) == owned.exists(sets) == owned.remove(sets) == [Status.DOWN], "while it is open")
    check(len(store.named("batch_is_exist")) == calls and "does not answer" in owned.stats()["breaker"], owned.stats())
    store.answers = {}
    check(wait_for(lambda: owned.stats()["breaker"] == ""), "closes by itself")
    check(owned.store(sets) == [OK], "again")
    threads = [threading.Thread(target=lambda at=at: check(owned.store([PageSet(key(at), {"full": at % 4})]) == [OK], at)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owned.close()


def late():
    """A call that hangs costs its own sets and no other: its pages are refused until it has returned, then all is as before."""
    for least, held in ((0, "batch_get_into_multi_buffers"), (1 << 20, "batch_get_into_multi_buffers"), (1 << 20, "batch_put_from_multi_buffers")):
        owned, store = opened(plan(), direct_piece_bytes=least, timeout_s=0.2)
        fill(owned.pools, 37)
        first, other = [PageSet(key(1), {"full": 0})], [PageSet(key(2), {"full": 1})]
        was = page_of(owned.pools, "full", 0)
        if "get" in held:
            check(owned.store(first + other) == [OK, OK], "stored")
            erase(owned.pools)
        go_on, perform = threading.Event(), getattr(store, held)
        setattr(store, held, lambda *arguments: (go_on.wait(600), perform(*arguments))[1])
        store.answers["is_exist"] = -1
        verb = owned.load if "get" in held else owned.store
        check(verb(first) == [Status.LATE], held, "late")
        check(not owned.settled() and not owned.settled(first) and owned.settled(other), "its page is not settled, others are")
        check(owned.load(first) == owned.store(first) == [Status.LATE] and set(owned.load(other) + owned.exists(first)) == {Status.DOWN}, "meanwhile")
        check("has not answered within 0.2 s" in owned.stats()["breaker"], owned.stats())
        owned.close()
        check(not store.named("close"), "not closed under it")
        go_on.set()
        check(wait_for(owned.settled) and page_of(owned.pools, "full", 0) == (was if "put" in held or not least else [b"\xEE" * 256] * 2),
              held, least, "what comes late goes where it was to go, or into the staging block")
        setattr(store, held, perform)
        owned, again = opened(plan(), store)
        check(owned.store(first) == [OK] and owned.load(first) == [OK] and page_of(owned.pools, "full", 0) is not None, "and on")


if __name__ == "__main__":
    LIBRARY = Library(sys.argv[1] if len(sys.argv) > 1 else None)
    Settings.refuse_unreachable = lambda settings: None
    for test in (small_case, other_groups, other_kinds, set_up_fails, several_classes, names, layouts, small_pieces, many, twice, nonsense, codes,
                 nobody_there, late):
        test()
    ends("connector owned pools, stand-in")

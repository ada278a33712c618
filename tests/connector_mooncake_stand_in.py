#!/usr/bin/env python3
"""The Mooncake connector's code with a stand-in for the library that writes down each call: configuration, what is called and what is
never called, codes, duplicates, the breaker. Run by connectors_mooncake.py; needs nothing installed."""

import contextlib
import ctypes
import json
import sys
import tempfile
import threading
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "connectors"))
sys.path.insert(0, str(SOURCE / "connectors" / "mooncake"))
from bare import Bare  # noqa: E402
from breaker import Breaker  # noqa: E402
from calls import Calls  # noqa: E402
from checks import check, ends, wait_for  # noqa: E402
from client import Mooncake  # noqa: E402
from connector_node import free_port  # noqa: E402
from settings import Settings  # noqa: E402
from tiercel_connector import BadOption, Down, Item, Options, Status, StoreError  # noqa: E402


class StandIn:
    """Answers what `answers` says for a name, else 0 (puts), the size (gets), 1 (look-ups)."""

    def __init__(self):
        self.calls, self.answers, self.blocks, self.set_up = [], {}, [], 0
        self.fixed = {}  # answers by name of the call

    def __getattr__(self, name):
        def call(*arguments, **named):
            self.calls.append((name, *arguments, *([named] if named else [])))
            return self._answer(name, arguments)
        return call

    def _answer(self, name, arguments):
        if name in self.fixed:
            return self.fixed[name]
        if name in ("setup", "setup_dummy"):
            return self.set_up
        if name == "alloc_from_mem_pool":
            self.blocks.append(ctypes.create_string_buffer(arguments[0]))
            return ctypes.addressof(self.blocks[-1])
        if name in ("is_exist", "get_size"):
            return self.answers.get((name, arguments[0]), self.answers.get(name, 1))
        if not name.startswith("batch"):
            return 0
        sizes = [sum(size) if isinstance(size, list) else size for size in arguments[2]] if len(arguments) > 2 else []
        plain = sizes if "get" in name else [int(name == "batch_is_exist")] * len(arguments[0])
        return [self.answers.get(key, value) for key, value in zip(arguments[0], plain)]

    def named(self, *names):
        return [call for call in self.calls if call[0] in names]


class Memory:
    """A region of plain memory."""

    def __init__(self, size):
        self.block = ctypes.create_string_buffer(size)
        self.address, self.bytes, self.view = ctypes.addressof(self.block), size, memoryview(self.block).cast("B")


class Limit:
    def ended(self):
        return None

    @contextlib.contextmanager
    def memory(self):
        yield


def opened(config, workers=2, answers=None):
    """A back end on a stand-in; nothing is looked for in the network."""
    store = StandIn()
    store.answers.update(answers or {})
    back = Mooncake(lambda: store)
    back.workers, back.regions = workers, [Memory(1 << 20)]
    Settings.refuse_unreachable = lambda settings: None
    back.open(Options(config))
    return back, store


def item(back, name, *pieces):
    return Item(name, [(0, offset, length) for offset, length in pieces], back.regions)


def configuration():
    read = lambda config, environment=None: Settings(Options(config), environment or {})
    plain = read({"url": "mooncake://10.1.2.3"})
    check((plain.master_server_address, plain.protocol, plain.metadata_server, plain.global_segment_size, plain.local_hostname, plain.tenant_id,
           plain.standalone_storage) == ("10.1.2.3:50051", "tcp", "P2PHANDSHAKE", 0, "127.0.0.1", "default", False), vars(plain))
    environment = {"MOONCAKE_MASTER": "m:1", "MOONCAKE_PROTOCOL": "rdma", "MOONCAKE_DEVICE": "mlx5_0", "MOONCAKE_GLOBAL_SEGMENT_SIZE": "4gb",
                   "MOONCAKE_TE_META_DATA_SERVER": "http://h:8080/metadata", "LOCAL_HOSTNAME": "old", "MOONCAKE_LOCAL_HOSTNAME": "new",
                   "SGLANG_MOONCAKE_LOCAL_BUFFER_SIZE": "1048576"}
    known = read({}, environment)
    check((known.master_server_address, known.protocol, known.device_name, known.global_segment_size, known.metadata_server,
           known.local_hostname, known.local_buffer_size) == ("m:1", "rdma", "mlx5_0", 4 << 30, "http://h:8080/metadata", "new", 1 << 20),
          vars(known))
    check(read({"master_server_address": "c:2", "protocol": "tcp"}, environment).master_server_address == "c:2", "the configuration goes first")
    check(read({"standalone_storage": True}, {"MOONCAKE_CLIENT": "d:3"}).client_server_address == "d:3", "MOONCAKE_CLIENT")
    check(read({}, {"MOONCAKE_STANDALONE_STORAGE": "1", "MOONCAKE_CLIENT": "d:3"}).standalone_storage, "MOONCAKE_STANDALONE_STORAGE")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"master_server_address": "f:4", "global_segment_size": "2gb"}, file)
        file.flush()
        named = {**environment, "SGLANG_HICACHE_MOONCAKE_CONFIG_PATH": file.name}
        found = read({}, named)
        check((found.master_server_address, found.global_segment_size, found.protocol) == ("f:4", 2 << 30, "rdma"), "the file, then the environment")
        found = read({"url": "mooncake://c:2"}, named)
        check((found.global_segment_size, found.master_server_address) == (4 << 30, "c:2"), "a configuration with an address goes without the file")
        found = read({"protocol": "tcp", "device_name": "", "url": "", "global_segment_size": "1gb"}, named)
        check((found.master_server_address, found.protocol, found.device_name, found.global_segment_size) == ("f:4", "tcp", "mlx5_0", 1 << 30),
              "a name in several places counts where it comes first, an empty one nowhere", vars(found))
        file.seek(0)
        json.dump({"url": "mooncake://f", "master_server_address": "f:50051", "global_segment_size": "", "standalone_storage": ""}, file)
        file.truncate()
        file.flush()
        found = read({"global_segment_size": "3gb"}, {**named, "MOONCAKE_GLOBAL_SEGMENT_SIZE": "no size"})
        check((found.master_server_address, found.global_segment_size, found.standalone_storage) == ("f:50051", 3 << 30, False), vars(found))
        file.seek(0)
        json.dump({"url": "mooncake://f", "master_server_address": "g:50051"}, file)
        file.truncate()
        file.flush()
        try:
            read({}, named)
            check(False, "two masters in the file")
        except BadOption as error:
            check("the file that SGLANG_HICACHE_MOONCAKE_CONFIG_PATH names" in str(error) and "'f:50051' and 'g:50051'" in str(error), error)
    for config in ({"url": "mooncake://m:1", "master_server_address": "m:1"}, {"url": "", "master_server_address": "m:1"},
                   {"url": "mooncake://m:1", "master_server_address": ""}, {"master_server_address": "m:1", "workers": 2}):
        check(read(config, environment).master_server_address == "m:1", "two names that agree, or one", config)
    check(read({"url": "mooncake://m", "master_server_address": "m"}).master_server_address == "m:50051", "they agree without a port")
    for config, word in (({}, "MOONCAKE_MASTER"), ({"url": "http://x"}, "mooncake://"),
                         ({"url": "mooncake://m:1", "master_server_address": "m:2"}, "of the configuration: wanted one master, got 'm:1' and 'm:2'; leave"),
                         ({"url": "mooncake://x", "protocol": "pigeon"}, "tcp or rdma"),
                         ({"standalone_storage": True}, "MOONCAKE_CLIENT"), ({"url": "mooncake://x", "master": "y"}, "no option 'master'")):
        try:
            read(config)
            check(False, "accepted:", config)
        except BadOption as error:
            check(word in str(error), config, error)
    prepared = {"MC_RPC_TIMEOUT_MS": "77"}
    read({"url": "mooncake://x", "transfer_timeout_s": 5}).prepare_environment(prepared)
    check(prepared["MC_RPC_TIMEOUT_MS"] == "77" and prepared["MC_TCP_STATUS_TIMEOUT_SEC"] == "5" and
          prepared["MC_STORE_CLIENT_SETUP_RETRIES"] == "1" and prepared["MC_TCP_BIND_ADDRESS"] == "127.0.0.1", prepared)
    try:
        read({"client_server_address": f"127.0.0.1:{free_port()}"}).refuse_unreachable()
        check(False, "reachable")
    except Down as error:
        check("no mooncake_client answers" in str(error), error)


def set_up():
    """One call, of the right kind; a set-up that fails is followed by none."""
    back, store = opened({"master_server_address": "m:1", "global_segment_size": "1gb", "tenant_id": "t"})
    check(store.calls == [("setup", "127.0.0.1", "P2PHANDSHAKE", 1 << 30, 16 << 20, "tcp", "", "m:1", {"tenant_id": "t"})], store.calls)
    back.close()
    check(store.calls[-1] == ("close",), "closed")
    back, store = opened({"client_server_address": "c:1", "bounce_bytes": 65536, "local_buffer_size": 4096})
    check(store.calls[:2] == [("setup_dummy", 65536, 4096, "c:1"), ("alloc_from_mem_pool", 65536)], store.calls)
    check(store.calls[2][0] == "register_buffer" and store.calls[2][2] == 65536 and not store.named("setup"), store.calls)
    back, store = opened({"master_server_address": "m:1", "protocol": "rdma"})
    check(store.calls[1:] == [("register_buffer", back.regions[0].address, 1 << 20)], "rdma: the whole memory, once")
    store = StandIn()
    store.set_up = -1
    back = Mooncake(lambda: store)
    back.regions = [Memory(64)]
    try:
        back.open(Options({"master_server_address": "m:1", "protocol": "rdma"}))
        check(False, "a set-up that failed")
    except Down as error:
        check("-1" in str(error) and "m:1" in str(error), error)
    check([call[0] for call in store.calls] == ["setup"], "nothing is called after a set-up that failed", store.calls)


def closed():
    """Once, whatever happened before and how often it is asked; then nothing is called any more."""
    back, store = opened({"master_server_address": "m:1"})
    for _ in range(3):
        back.close()
    check(len(store.named("close")) == 1, store.calls)
    for verb in (lambda: back.exists(["x"], Limit()), lambda: back.remove(["x"], Limit())):
        try:
            verb()
            check(False, "a verb after the end")
        except Down as error:
            check("closed" in str(error), error)
    check(store.calls[-1] == ("close",), "nothing is called after it", store.calls)
    Mooncake(StandIn).close()
    for config, answers, calls in (({"master_server_address": "m:1"}, {"setup": -1}, ["setup"]),
                                   ({"master_server_address": "m:1", "protocol": "rdma"}, {"register_buffer": -1}, ["setup", "register_buffer", "close"]),
                                   ({"client_server_address": "c:1"}, {"alloc_from_mem_pool": 0}, ["setup_dummy", "alloc_from_mem_pool", "close"]),
                                   ({"client_server_address": "c:1", "bounce_bytes": 100}, {}, ["setup_dummy", "close"])):
        store = StandIn()
        store.fixed = answers
        back = Mooncake(lambda store=store: store)
        back.workers, back.regions = 2, [Memory(64)]
        try:
            back.open(Options(config))
            check(False, "opened", config, answers)
        except StoreError as error:
            check("\n" not in str(error), error)
        back.close()
        back.close()
        check([call[0] for call in store.calls] == calls, "an open that failed leaves no client", config, store.calls)


def bare():
    """The bare client is set up as the connector is, from the same configuration."""
    for config in ({"master_server_address": "m:1", "tenant_id": "t", "workers": 3, "global_segment_size": "1gb"},
                   {"client_server_address": "c:1", "workers": 3, "bounce_bytes": 1 << 20}):
        (_, connectors), own = opened(config), StandIn()
        Bare(config, 1 << 20, lambda own=own: own)
        check(own.calls[0] == connectors.calls[0] and own.calls[0][0].startswith("setup"), config, own.calls[0], connectors.calls[0])
        check([call[0] for call in own.calls] == [call[0] for call in connectors.calls], own.calls, connectors.calls)
    try:
        Bare({"master_server_address": "m:1", "worker": 3}, 4096, StandIn)
        check(False, "a name that the connector does not know")
    except BadOption as error:
        check("no option 'worker'" in str(error), error)


def sizes():
    """What the library says to a size never fails more than it is about: of the connector, and of an engine's own pools."""
    back, store = opened({"master_server_address": "m:1"})

    def raises(name):
        raise RuntimeError("no object")
    for get_size in (raises, lambda name: None, lambda name: True, lambda name: "9", lambda name: -704, lambda name: -1):
        store.get_size, store.answers["x"] = get_size, -800
        check(back.get([item(back, "x", (0, 8)), item(back, "y", (8, 8))], Limit()) == [Status.FAILED, Status.OK], "a size that is none")
        calls = Calls(store, "the owner", 1.0, 60.0)
        check(calls.size_of("x") < 0, "a size that is none")
        calls.close()
    check(back.stats()["breaker_trips"] == 0, back.stats())
    store.get_size = lambda name: -900
    check(back.get([item(back, "x", (0, 8))], Limit()) == [Status.FAILED] and back.stats()["breaker_trips"] == 1, "nobody answers", back.stats())

    store = StandIn()
    calls = Calls(store, "the owner", 30.0, 60.0)
    check(calls.size_of("x") == 1, "a size")
    store.get_size = lambda name: -900
    check(calls.size_of("x") == -1 and "the owner does not answer" in calls.breaker.why(), "the breaker knows of it", calls.breaker.why())
    before = len(store.calls)
    check(calls.size_of("x") == -1 and len(store.calls) == before, "nobody is asked while it is open")
    calls.close()
    calls.close()
    check(len(store.named("close")) == 1 and calls.batch("batch_is_exist", ["x"]) == [-900] and store.calls[-1] == ("close",), "closed once", store.calls)
    held = threading.Event()
    store = StandIn()
    store.get_size = lambda name: held.wait()
    calls = Calls(store, "the owner", 0.05, 60.0)
    check(calls.size_of("x") == -1 and "has not answered" in calls.breaker.why() and not calls.busy(), "a size that does not come")
    calls.close()
    check(not store.named("close"), "the client is not closed under a call")
    held.set()


def nonsense():
    """An answer that is not a code for each name is a failed batch, with words."""
    back, store = opened({"master_server_address": "m:1"})
    for answer in (None, [], [1, 1, 1], ["x", 1], 0):
        store.batch_is_exist = lambda names, answer=answer: answer
        try:
            back.exists(["x", "y"], Limit())
            check(False, "accepted:", answer)
        except StoreError as error:
            check(error.status == Status.FAILED and "batch_is_exist answers something else" in str(error), error)
    check(back.stats()["breaker"] == "", back.stats())


def codes():
    back, store = opened({"master_server_address": "m:1"})
    limit = Limit()
    store.answers.update(a=0, b=-704, c=-800, d=-5)
    check(back.exists(["x", "a", "c", "d"], limit) == [(Status.OK, 0), (Status.ABSENT, 0), (Status.FAILED, 0), (Status.FAILED, 0)], "look-ups")
    check(back.remove(["x", "b"], limit)[1] == Status.ABSENT and store.calls[-1] == ("batch_remove", ["x", "b"], True), "removed with force")
    for code, status in ((-200, Status.NO_ROOM), (-600, Status.INVALID), (-706, Status.FAILED), (-707, Status.FAILED), (-800, Status.FAILED)):
        store.answers["x"] = code
        check(back.put([item(back, "x", (0, 8))], False, limit) == [status], code)
    store.answers.update({"x": -800, ("get_size", "x"): 9})
    check(back.get([item(back, "x", (0, 8))], limit) == [Status.WRONG_SIZE], "-800, and the object has another size")
    store.answers[("get_size", "x")] = 8
    check(back.get([item(back, "x", (0, 8))], limit) == [Status.FAILED], "-800, and it has not")
    store.answers.update({"x": -704, "y": 9})
    before = len(store.named("get_size"))
    check(back.get([item(back, "x", (0, 8)), item(back, "y", (8, 8))], limit) == [Status.ABSENT, Status.WRONG_SIZE], "absent; larger place")
    check(len(store.named("get_size")) == before, "no look-up, hence no lease, where the answer is clear")
    store.answers.clear()
    base = back.regions[0].address
    check(back.get([item(back, "p", (0, 8), (16, 8)), item(back, "q", (32, 4))], limit) == [Status.OK, Status.OK], "pieces")
    check(store.calls[-1] == ("batch_get_into_multi_buffers", ["p", "q"], [[base, base + 16], [base + 32]], [[8, 8], [4]]), store.calls[-1])
    back.regions[0].view[0:4] = b"abcd"
    seen = []
    store.batch_upsert_from = lambda names, addresses, sizes: seen.append(ctypes.string_at(addresses[0], sizes[0])) or [0]
    check(back.put([item(back, "r", (0, 2), (1, 2))], True, limit) == [Status.OK] and seen == [b"abbc"], "replace gathers", seen)
    many = [item(back, f"m{at}", (at, 1), (at, 1)) for at in range(1500)]
    del store.calls[:]
    check(back.put(many, False, limit) == [Status.OK] * 1500 and [len(call[1]) for call in store.calls] == [512, 512, 476], "1024 pieces a call")
    large = item(back, "l", (0, 8))
    large.bytes = 1 << 31
    check(back.put([large], False, limit) == [Status.TOO_LARGE], "more than 32 bits can say")


def bounce():
    back, store = opened({"client_server_address": "c:1", "bounce_bytes": 65536})
    limit, region = Limit(), back.regions[0]
    start = store.calls[2][1]
    region.view[:8] = b"abcdefgh"
    check(back.put([item(back, "x", (4, 4), (0, 4))], False, limit) == [Status.OK], "put")
    _, names, addresses, sizes = store.calls[-1]
    check(names == ["x"] and sizes == [8] and start <= addresses[0] <= start + 65536 - 8, store.calls[-1])
    check(ctypes.string_at(addresses[0], 8) == b"efghabcd", "gathered")
    check(back.get([item(back, "x", (100, 3), (200, 5))], limit) == [Status.OK] and bytes(region.view[200:205]) == b"habcd", "get")
    halves = [item(back, "y", (0, 32769)), item(back, "z", (0, 32768))]
    check(back.put(halves, False, limit) == [Status.TOO_LARGE, Status.OK], "a slice is half of it")
    check(back.stats()["bounce_copied_bytes"] == 16 + 32768, back.stats())
    store.answers["x"] = -1
    check(back.exists(["x"], limit) == [(Status.DOWN, 0)] and back.stats()["breaker_trips"] == 1, "-1 is a dummy client's only error")


def breaker():
    back, store = opened({"master_server_address": "m:1", "probe_s": 0.05}, answers={"is_exist": -900})
    limit = Limit()
    store.answers["x"] = -900
    check(back.exists(["x", "y"], limit) == [(Status.DOWN, 0), (Status.OK, 0)], "the call that finds out")
    calls = len(store.named("batch_is_exist"))
    for _ in range(3):
        try:
            back.exists(["y"], limit)
            check(False, "called while it is open")
        except Down as error:
            check("m:1 does not answer" in str(error), error)
    check(len(store.named("batch_is_exist")) == calls, "the library is spared")
    check(wait_for(lambda: len(store.named("is_exist")) > 2) and store.named("is_exist")[0][1] == "tiercel.probe", "it is probed")
    store.answers["is_exist"] = 0
    check(wait_for(lambda: back.stats()["breaker"] == ""), "and closes")
    check(back.exists(["y"], limit) == [(Status.OK, 0)], "again")
    answers = [RuntimeError("the library's own"), TypeError("another one"), OSError("a third"), False, True]

    def probe():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
    raising = Breaker(probe, 0.01)
    raising.trip("x")
    check(wait_for(lambda: raising.why() is None) and raising.probes == 5, "a probe that raises says no, and is made again", raising.probes)
    check("a third" in raising.last_error and raising.end(30), raising.last_error)
    back, store = opened({"master_server_address": "m:1", "probe_s": 0.05})
    store.is_exist = lambda name: None  # no code
    store.answers["x"] = -900
    check(back.exists(["x"], limit) == [(Status.DOWN, 0)] and wait_for(lambda: back.stats()["probes"] > 2) and back.stats()["breaker"], "no code, no health")
    store.is_exist = lambda name: 0
    check(wait_for(lambda: back.stats()["breaker"] == "") and back.exists(["y"], limit) == [(Status.OK, 0)], "then it is well again")
    back.close()
    hung = threading.Event()
    slow = Breaker(hung.wait, 0.01)
    slow.trip("x")
    check(wait_for(lambda: slow.probes == 1) and not slow.end(0.1), "the back end is not closed under a probe")
    hung.set()


if __name__ == "__main__":
    for test in (configuration, set_up, closed, bare, sizes, nonsense, codes, bounce, breaker):
        test()
    ends("connector mooncake, stand-in")

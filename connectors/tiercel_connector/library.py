"""Host pools of libtiercel.so from Python: include/tiercel/host_pools.h by ctypes, as much of it as a process needs that owns pools.

The library is given by path, or by the environment's TIERCEL_LIBRARY; else the system looks for libtiercel.so.1. Nothing else is needed.

Threads: any, as the C calls; a handle is not closed while another thread uses it.
"""

import ctypes
import os
import struct
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_uint8, c_uint32, c_uint64, c_void_p

ABI_VERSION = 1
VARIABLE = "TIERCEL_LIBRARY"
NO_GROUP = 0xFFFFFFFF
FOREVER_NS = (1 << 63) - 1
MEMORY_KINDS = {1: "anonymous", 2: "hugepage", 3: "shared", 4: "pinned", 5: "external"}
OWN, SAME_AS, AT = 0, 1, 2  # where a buffer lies


class TiercelError(Exception):
    """A call that failed; `code` is the tiercel_status, the text the library's one line."""

    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code


class _Error(Structure):
    _fields_ = [("code", c_uint32), ("reserved", c_uint32), ("message", c_char * 504)]


class _Segment(Structure):
    _fields_ = [("data", c_void_p), ("size", c_uint64)]


class _PoolsOptions(Structure):
    _fields_ = [("size", c_uint64), ("layout", c_char_p), ("memory", c_char_p), ("allocator", c_char_p), ("backend", c_char_p),
                ("extra_config", c_char_p), ("numa", c_char_p), ("pages", c_uint64), ("total_bytes", c_uint64),
                ("full_pages_per_resume_point", c_uint64), ("device_ratio", c_double), ("device_pools", c_void_p),
                ("device_pool_count", c_uint64), ("allocations", POINTER(_Segment)), ("allocation_count", c_uint64), ("progress", c_void_p),
                ("progress_context", c_void_p), ("first_layer", c_uint32), ("end_layer", c_uint32), ("shard", c_uint32), ("shards", c_uint32),
                ("touch_threads", c_uint32), ("copy_threads", c_uint32), ("device", c_uint32), ("on_device", c_uint32)]


class _BufferPlace(Structure):
    _fields_ = [("data", c_void_p), ("size", c_uint64), ("pool", c_char_p), ("offset", c_uint64), ("buffer", c_uint32), ("source", c_uint32),
                ("reserved", c_uint64)]


class _PoolOptions(Structure):
    _fields_ = [("size", c_uint64), ("name", c_char_p), ("layout", c_char_p), ("slots_of", c_char_p), ("pages", c_uint64),
                ("device_pages", c_uint64), ("pages_per_resume_point", c_uint64), ("buffers", POINTER(_BufferPlace)), ("buffer_count", c_uint64),
                ("group", c_uint32), ("reserved", c_uint32)]


class _PoolsInfo(Structure):
    _fields_ = [("size", c_uint64), ("pools", c_uint64), ("ranges", c_uint64), ("required_bytes", c_uint64), ("mapped_bytes", c_uint64),
                ("huge_bytes", c_uint64), ("fingerprint", c_uint8 * 32), ("memory_kind", c_uint32), ("page_kind", c_uint32),
                ("layer_end", c_uint32), ("fd", c_int), ("numa_as_asked", c_uint32), ("reserved", c_uint32)]


class _PoolInfo(Structure):
    _fields_ = [("size", c_uint64), ("name", c_char_p), ("layout", c_char_p), ("pages", c_uint64), ("page_bytes", c_uint64),
                ("page_tokens", c_uint64), ("tokens_per_entry", c_uint64), ("buffers", c_uint64), ("layers", c_uint64), ("components", c_uint64),
                ("group", c_uint32), ("class_id", c_uint32), ("slots_of", c_uint32), ("replicated", c_uint32)]


class _CopyPart(Structure):
    _fields_ = [("source", POINTER(c_uint64)), ("target", POINTER(c_uint64)), ("count", c_uint64), ("granule_tokens", c_uint64),
                ("source_pool", c_uint32), ("target_pool", c_uint32), ("reserved", c_uint64 * 2)]


class _CopyOptions(Structure):
    _fields_ = [("size", c_uint64), ("sources", POINTER(c_void_p)), ("source_count", c_uint64), ("target", c_void_p),
                ("parts", POINTER(_CopyPart)), ("part_count", c_uint64), ("whole", c_void_p), ("target_ranks", c_uint32),
                ("target_rank", c_uint32), ("sums", c_uint32), ("reserved", c_uint32)]


_BUFFER = struct.Struct("<QQQIII12x")  # data, size, offset, allocation, pool, buffer
_PIECE = struct.Struct("<QQQIIIIQ")  # data, size, offset, allocation, buffer, component, class_id, reserved

_LIST = [c_void_p, c_uint64, POINTER(c_uint64)]  # what comes out: array, capacity, count
_CALLS = {
    "tiercel_spec_from_json": [c_char_p, c_uint64, c_uint64, POINTER(c_void_p)],
    "tiercel_spec_to_json": [c_void_p, *_LIST],
    "tiercel_host_pools_open": [c_void_p, POINTER(_PoolsOptions), POINTER(c_void_p)],
    "tiercel_host_pools_builder_create": [c_void_p, POINTER(_PoolsOptions), POINTER(c_void_p)],
    "tiercel_host_pools_builder_add": [c_void_p, POINTER(_PoolOptions), c_void_p],
    "tiercel_host_pools_builder_seal": [c_void_p, POINTER(c_void_p)],
    "tiercel_host_pools_describe": [c_void_p, POINTER(_PoolsInfo)],
    "tiercel_host_pools_pool": [c_void_p, c_uint32, POINTER(_PoolInfo)],
    "tiercel_host_pools_buffers": [c_void_p, c_uint32, *_LIST],
    "tiercel_host_pools_segments": [c_void_p, c_uint32, c_uint64, *_LIST],
    "tiercel_copy_start": [POINTER(_CopyOptions), POINTER(c_void_p)],
    "tiercel_copy_wait": [c_void_p, c_uint64],
}
_RELEASES = ("tiercel_spec_release", "tiercel_host_pools_builder_release", "tiercel_host_pools_release", "tiercel_copy_release")


class Library:
    """libtiercel.so, loaded; its calls as `call`, which raises TiercelError with the library's own words."""

    def __init__(self, path=None):
        path = path or os.environ.get(VARIABLE) or "libtiercel.so.1"
        try:
            self._so = ctypes.CDLL(path)
        except OSError as error:
            raise TiercelError(f"libtiercel.so is not found ({error}); give its path, or set {VARIABLE}") from None
        self._so.tiercel_abi_version.restype = c_uint32
        if (version := self._so.tiercel_abi_version()) != ABI_VERSION:
            raise TiercelError(f"{path} has version {version} of the C ABI, wanted {ABI_VERSION}")
        for name, arguments in _CALLS.items():
            function = getattr(self._so, name)
            function.restype, function.argtypes = c_uint32, [*arguments, POINTER(_Error)]
        for name in _RELEASES:
            function = getattr(self._so, name)
            function.restype, function.argtypes = None, [c_void_p]

    def call(self, name, *arguments):
        error = _Error()
        if (code := getattr(self._so, name)(*arguments, byref(error))) != 0:
            raise TiercelError(error.message.decode("utf-8", "replace"), code)

    def make(self, name, *arguments):
        """Of a call whose last output is a handle: the handle."""
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle.value

    def release(self, kind, handle):
        getattr(self._so, f"tiercel_{kind}_release")(handle)

    def list_of(self, name, *arguments, struct_bytes):
        """Of a call that gives a list of structs: their bytes, one behind the other."""
        count, room = c_uint64(), 64
        while True:
            into = (c_char * (room * struct_bytes))()
            self.call(name, *arguments, into, room, byref(count))
            if count.value <= room:
                return memoryview(into).cast("B")[:count.value * struct_bytes]
            room = count.value


class _Handle:
    """What a call has made; given back by `close`, or with the object."""

    KIND, library, handle = "", None, None

    def __init__(self, library, handle):
        self.library, self.handle = library, handle

    def close(self):
        if self.handle:
            handle, self.handle = self.handle, None
            self.library.release(self.KIND, handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


class Spec(_Handle):
    """A model's spec, from its JSON form (docs/guide/specs.md)."""

    KIND = "spec"

    def __init__(self, library, text, page_tokens=0):
        raw = text.encode()
        super().__init__(library, library.make("tiercel_spec_from_json", raw, len(raw), page_tokens))

    def json(self):
        """The one way in which the library writes it: equal text, equal spec."""
        return bytes(self.library.list_of("tiercel_spec_to_json", self.handle, struct_bytes=1)).decode()


class PoolInfo:
    """What tiercel_host_pools_pool says: `number`, and the fields of the struct."""

    def __init__(self, number, info):
        self.number = number
        for name, _ in _PoolInfo._fields_[1:]:
            value = getattr(info, name)
            setattr(self, name, value.decode() if isinstance(value, bytes) else value)


class HostPools(_Handle):
    """A sealed group of host pools."""

    KIND = "host_pools"

    def __init__(self, library, handle):
        super().__init__(library, handle)
        info = _PoolsInfo(size=ctypes.sizeof(_PoolsInfo))
        library.call("tiercel_host_pools_describe", handle, byref(info))
        self.required_bytes, self.mapped_bytes, self.fingerprint = info.required_bytes, info.mapped_bytes, bytes(info.fingerprint)
        self.memory_kind = MEMORY_KINDS.get(info.memory_kind, str(info.memory_kind))
        self.pools = [self._pool(number) for number in range(info.pools)]

    def find(self, name):
        """The pool of that name, or None."""
        return next((pool for pool in self.pools if pool.name == name), None)

    def buffers(self, pool):
        """(address, bytes) of each buffer of a pool; address 0: no bytes."""
        rows = self.library.list_of("tiercel_host_pools_buffers", self.handle, pool, struct_bytes=_BUFFER.size)
        return [(row[0], row[1]) for row in _BUFFER.iter_unpack(rows)]

    def segments(self, pool, page):
        """Where a page lies: for each component, its (address, bytes) in the order of memory."""
        rows = self.library.list_of("tiercel_host_pools_segments", self.handle, pool, page, struct_bytes=_PIECE.size)
        components = [[] for _ in range(self.pools[pool].components)]
        for data, size, _, _, _, component, _, _ in _PIECE.iter_unpack(rows):
            components[component].append((data, size))
        return components

    def copy_from(self, source, parts):
        """Copies whole pages: `parts` are (pool of `source`, pool of this group, its pages, our pages). Returns when all are in place."""
        given, kept = (_CopyPart * len(parts))(), []
        for part, (source_pool, target_pool, source_pages, target_pages) in zip(given, parts):
            if len(source_pages) != len(target_pages):
                raise TiercelError(f"{len(source_pages)} pages to copy into {len(target_pages)}")
            lists = [(c_uint64 * len(pages))(*pages) for pages in (source_pages, target_pages)]
            kept.append(lists)
            part.source, part.target, part.count = lists[0], lists[1], len(source_pages)
            part.source_pool, part.target_pool = source_pool, target_pool
        sources = (c_void_p * 1)(source.handle)
        options = _CopyOptions(size=ctypes.sizeof(_CopyOptions), sources=sources, source_count=1, target=self.handle, parts=given,
                               part_count=len(parts))
        copy = self.library.make("tiercel_copy_start", byref(options))
        try:
            self.library.call("tiercel_copy_wait", copy, FOREVER_NS)
        finally:
            self.library.release("copy", copy)

    def _pool(self, number):
        info = _PoolInfo(size=ctypes.sizeof(_PoolInfo))
        self.library.call("tiercel_host_pools_pool", self.handle, number, byref(info))
        return PoolInfo(number, info)


class Builder(_Handle):
    """A group of host pools, pool by pool. `options`: fields of tiercel_host_pools_options by name, `allocations` as (address, bytes)."""

    KIND = "host_pools_builder"

    def __init__(self, library, spec, **options):
        given = pools_options(**options)
        super().__init__(library, library.make("tiercel_host_pools_builder_create", spec.handle, byref(given)))

    def add(self, buffers=(), **options):
        """`options`: fields of tiercel_host_pool_options by name; `buffers`: BufferPlace fields as dictionaries, `source` one of OWN, SAME_AS, AT."""
        places = (_BufferPlace * len(buffers))(*(_BufferPlace(**_encoded(place)) for place in buffers))
        given = _PoolOptions(size=ctypes.sizeof(_PoolOptions), buffers=places, buffer_count=len(buffers), **_encoded(options))
        self.library.call("tiercel_host_pools_builder_add", self.handle, byref(given), None)

    def seal(self):
        return HostPools(self.library, self.library.make("tiercel_host_pools_builder_seal", self.handle))


def open_pools(library, spec, **options):
    """Each group of the spec one pool, as tiercel_host_pools_open makes them."""
    given = pools_options(**options)
    return HostPools(library, library.make("tiercel_host_pools_open", spec.handle, byref(given)))


def pools_options(allocations=(), **options):
    listed = (_Segment * len(allocations))(*(_Segment(data, size) for data, size in allocations))
    return _PoolsOptions(size=ctypes.sizeof(_PoolsOptions), allocations=listed, allocation_count=len(allocations), **_encoded(options))


def _encoded(options):
    return {name: value.encode() if isinstance(value, str) else value for name, value in options.items() if value is not None}

"""Memory beside the shared one: a scratch copy of an object in several pieces, and the bounce block of a dummy client.

Threads: any.
"""

import contextlib
import ctypes
import mmap
import threading

from set_up import shared_block
from tiercel_connector import Down


@contextlib.contextmanager
def scratch(size, store, register):
    """Anonymous memory for as long as the block lasts: (address, view). `register`: rdma wants it registered."""
    mapping = mmap.mmap(-1, size)
    anchor = ctypes.c_char.from_buffer(mapping)
    address = ctypes.addressof(anchor)
    if register and store.register_buffer(address, size) != 0:
        raise MemoryError(f"{size} bytes of scratch memory cannot be registered")
    view = memoryview(mapping)
    try:
        yield address, view
    finally:
        if register:
            store.unregister_buffer(address)
        view.release()
        del anchor
        mapping.close()


class Bounce:
    """A block that the library allocated and shares with its mooncake_client: the only memory a dummy client may name.

    It is cut into slices, one for each call at a time. `copied`: bytes that went through it, either way.
    """

    def __init__(self, store, size, slices):
        """Raises Down when the block cannot be had."""
        self.slice_bytes = size // slices & ~4095
        what = f"the bounce of {slices} workers (option 'bounce_bytes')"
        if not self.slice_bytes:
            raise Down(f"{size} bytes are too few for {what}")
        block = shared_block(store, size, what)
        self.copied = 0
        self._free = [(block + at * self.slice_bytes, self._view(block + at * self.slice_bytes)) for at in range(slices)]
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def slice(self):
        """One slice: (address, view)."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            taken = self._free.pop()
        try:
            yield taken
        finally:
            with self._changed:
                self._free.append(taken)
                self._changed.notify()

    def count(self, size):
        with self._changed:
            self.copied += size

    def _view(self, address):
        return memoryview((ctypes.c_char * self.slice_bytes).from_address(address)).cast("B")

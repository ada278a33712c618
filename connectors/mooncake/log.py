"""The library's log, bounded: it writes about five lines a failed object to standard error, which is the node's.

Threads: one of its own.
"""

import os
import sys
import threading
import time

LINES_MAX = 10
EVERY_S = 10.0


def bound_standard_error():
    """From now on what native code writes to descriptor 2 arrives there in at most LINES_MAX lines each EVERY_S; the rest is counted.

    The pipe between never blocks its writer: what it cannot hold is lost, for a log must not stop a transfer.
    """
    outside = os.dup(2)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)  # Python's own lines go straight on
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_forward, args=(reading, outside), daemon=True).start()


def _forward(reading, outside):
    left, dropped, since, rest = LINES_MAX, 0, time.monotonic(), b""
    while piece := os.read(reading, 65536):
        *lines, rest = (rest + piece).split(b"\n")
        if time.monotonic() - since >= EVERY_S:
            if dropped:
                os.write(outside, b"connector: mooncake: %d lines of its log left out\n" % dropped)
            left, dropped, since = LINES_MAX, 0, time.monotonic()
        shown, dropped = lines[:left], dropped + len(lines[left:])
        left -= len(shown)
        if shown:
            os.write(outside, b"\n".join(shown) + b"\n")
        rest = rest[-65536:]

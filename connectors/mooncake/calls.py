"""Calls of Mooncake's library that end: each runs on a thread beside its caller, who waits for so long and goes on. What such a call is in
the middle of cannot be taken from it, so the places that it may touch are known until it has returned; and after the first answer that
nobody is there, or none at all, a breaker answers.

Threads: any.
"""

import queue
import threading
from collections import Counter

from breaker import Breaker
from codes import CALL_BYTES, DOWN_CODES, NO_ANSWER, NONSENSE, PROBE, are_codes, is_size


class Calls:
    """`timeout_s`: for a call, and again for each 64 MiB that it moves. `owner`: who is asked, for people."""

    def __init__(self, store, owner, timeout_s, probe_s):
        self._store, self._owner, self._timeout_s, self._probe_s = store, owner, timeout_s, probe_s
        self._idle, self._lock = [], threading.Lock()
        self._late = {}  # calls that have not returned: the places of each
        self._closed = False
        self.codes, self.counts, self.last_error = Counter(), Counter(), ""
        self.breaker = Breaker(lambda: store.is_exist(PROBE) >= 0, probe_s)

    def limit_s(self, size):
        return self._timeout_s * max(1, -(-size // CALL_BYTES))

    def batch(self, name, names, *more, size=0, places=frozenset(), first=None, after=None):
        """One call of the library for all names; its codes. None is made while the breaker is open. `places`: what of its `size` bytes are, for
        busy(). `first` is given the codes; then, or when a late call has returned, `after` is called."""
        late = False
        try:
            if not names:
                codes = []
            elif self.breaker.why():
                codes = [DOWN_CODES[0]] * len(names)
            else:
                codes, late = self._bounded(name, names, more, self.limit_s(size), places, after)
            if first:
                first(codes)
            return codes
        finally:
            if after and not late:
                after()

    def size_of(self, name):
        """In bytes; negative when it is not known: no such object, nobody there, no answer in time, one that is no number. Raises nothing."""
        if self.breaker.why():
            return -1
        call = _Call(self._store.get_size, (name,))
        self._start(call)
        if not call.wait(self._timeout_s) and call.leave(None):
            self._is_late(call, frozenset(), self._timeout_s, "get_size")
            return -1
        if call.error:
            self.last_error = f"get_size: {call.error}"[:200]
        if call.answer in DOWN_CODES:
            self._nobody_answers("get_size", call.answer)
        return call.answer if is_size(call.answer) else -1

    def busy(self):
        """The places of all calls that are late and have not returned."""
        return set().union(*self._under_way())

    def close(self):
        """Closes the client, unless a call is still in it: then it goes with the process. From then on every batch is down. Also twice."""
        if self._closed:
            return
        self._closed = True
        idle = self.breaker.end(1.0)
        self.breaker.trip(f"the client of {self._owner} is closed")  # for good: the library ends the process on calls after its close
        if idle and not self._under_way():
            self._store.close()

    def _under_way(self):
        """The places of each call that is late and has not returned."""
        with self._lock:
            self._late = {call: places for call, places in self._late.items() if not call.done}
            return list(self._late.values())

    def _is_late(self, call, places, limit_s, name):
        with self._lock:
            self._late[call] = places
        self.breaker.trip(f"{self._owner} has not answered within {limit_s:g} s ({name}); asked again every {self._probe_s:g} s")

    def _nobody_answers(self, name, code):
        self.breaker.trip(f"{self._owner} does not answer ({name}: {code}); asked again every {self._probe_s:g} s")

    def _bounded(self, name, names, more, limit_s, places, after):
        """The codes, and whether the call is late: then `after` is its own to call."""
        call = _Call(getattr(self._store, name), (names, *more))
        with self._lock:
            self.counts[name] += 1
        self._start(call)
        if not call.wait(limit_s) and call.leave(after):
            self._is_late(call, places, limit_s, name)
            return [NO_ANSWER] * len(names), True
        return self._checked(name, names, call), False

    def _checked(self, name, names, call):
        codes = call.answer
        if not are_codes(codes, names):
            self.last_error = f"{name}: {call.error or call.answer!r}"[:200]
            return [NONSENSE] * len(names)
        with self._lock:
            self.codes.update(code for code in codes if code < 0)
        if any(code in DOWN_CODES or code == -1 for code in codes):  # a dummy client's look-ups say -1 whatever is wrong
            self._nobody_answers(name, min(codes))
            codes = [DOWN_CODES[0] if code == -1 else code for code in codes]
        return codes

    # ---- threads, as many as there are calls at once, kept for the next ones; none holds up the end of the process ----

    def _start(self, call):
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(inbox,), daemon=True).start()
        inbox.put(call)

    def _run(self, inbox):
        while True:
            inbox.get().run()
            with self._lock:
                self._idle.append(inbox)


class _Call:
    """One call. Either it returns first, or its caller leaves first: `leave` says which, and from then on `after` is the call's to call."""

    def __init__(self, function, arguments):
        self._function, self._arguments, self._after = function, arguments, None
        self._gate, self._returned = threading.Lock(), threading.Event()
        self.answer = self.error = None

    @property
    def done(self):
        return self._returned.is_set()

    def wait(self, seconds):
        return self._returned.wait(seconds)

    def leave(self, after):
        """Whether it has not returned yet."""
        with self._gate:
            if not self.done:
                self._after = after
            return not self.done

    def run(self):
        try:
            self.answer = self._function(*self._arguments)
        except BaseException as error:  # whatever it is, the caller says what it means; the thread is for the next calls, too
            self.error = error
        with self._gate:
            self._returned.set()
        if self._after:
            self._after()

"""The life of a connector: configuration, hello, batches, the end.

Threads. One thread opens the back end; `workers` threads call it, a batch each. Whichever worker is idle is woken by the node itself and
reads the ring, and one that has done with a batch looks there before it sleeps: a batch costs no hand-over between threads. One more takes
only what moves no objects, so that a look-up does not wait for the transfers before it. The main thread looks after stdin, signals and
deadlines and calls no back end; while there is work it looks into the ring, too, every few milliseconds, so that pings, cancels and
look-ups never wait for a worker. It is not woken for the ring: with every batch that would take a lock from the thread that works.
"""

import faulthandler
import json
import os
import select
import signal
import sys
import threading
import time
from collections import Counter, deque

from .back_end import BadOption, Options, StoreError
from .batch import OK, WITH_SEGMENTS, Batch, Together
from .contract import TEXT_BYTES_MAX, Nonsense, Status, Verb
from .exchange import Exchange, clear

CONFIG_BYTES_MAX = 1 << 20
OPEN_S = 8.0  # a node waits ten seconds for the hello, and then knows less than what can be said here
GRACE_S = 5.0  # from the wish to end to the end, whatever a native call does
IDLE_S = 1.0  # of it, for verbs under way; a back end is not closed under a call that is still in it
KNOWN = frozenset(map(int, Status))
NAME_OF = {int(status): status.name.lower() for status in Status}
WORD_OF = {int(verb): verb.name.lower() for verb in Verb}
STUCK_S = 30.0  # a call that nobody waits for any more has returned by then
RETRY_S = 0.002  # between attempts to write to a ring that is full
TICK_S = 0.005  # the main thread looks at the ring and at deadlines so often while there is work
RESTS_S = 0.1  # after so long without any it sleeps until it is woken
ALONE = select.EPOLLIN | select.EPOLLEXCLUSIVE  # of several threads that wait for it, one is woken: the first that really waits


def run(back_end):
    """Serves the node that started this process, until it is gone. `back_end`: an instance. Does not return."""
    try:
        exchange = Exchange(os.environ.get("TIERCEL_CONNECTOR", ""))
    except (Nonsense, OSError, ValueError) as error:
        _say(f"this program is started by a node ({error}); see docs/guide/connectors.md")
        os._exit(2)
    service = Service(back_end, exchange)
    try:
        code = service.serve()
    except Nonsense as error:
        _say(f"the node broke the contract: {error}")
        code = 3
    except BaseException as error:  # our own mistake: the process must not stay, half alive
        _say(f"{type(error).__name__}: {error}")
        code = 4
    # Threads that are stuck in a native call cannot be joined, and libraries' own exits may hang.
    sys.stderr.flush()
    os._exit(code)


class Service:
    """One back end behind one exchange."""

    def __init__(self, back_end, exchange):
        self._back, self._exchange = back_end, exchange
        back_end.regions = exchange.regions
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._more = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # for workers: something waits
        self._asked = os.eventfd(0, os.EFD_CLOEXEC)  # for the one that takes questions
        self._reading = threading.Lock()  # whoever reads the ring; requests are taken in in their order
        self._workers = back_end.workers
        self._opened = None  # None: not yet; (status, text) afterwards
        self._broken = None  # what was wrong with the ring, where a worker met it
        # Guarded by _ready:
        self._ready = threading.Condition()
        self._waiting, self._questions = deque(), deque()  # what moves objects, and what does not
        self._idle = 0  # workers that sleep
        self._running = {}
        self._answering = 0  # threads that send what they have done
        self._counts = Counter()
        self._taken = 0  # batches so far
        self._looks_at_ns = 1 << 63  # when the main thread looks next, if nobody wakes it
        self._ending = False
        # Of the main thread:
        self._signalled = False
        self._seen, self._rests_at_ns = 0, 0  # of _taken; when it sleeps

    # ---- the main thread ----

    def serve(self):
        """Returns the process's exit status. Raises Nonsense when the node's messages cannot be followed."""
        line = _configuration()
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the node gets it, too, and ends us
        threading.Thread(target=self._open, args=(line,), daemon=True).start()
        poll = select.poll()
        for fd in (0, self._wake):
            poll.register(fd, select.POLLIN)
        until = time.monotonic() + OPEN_S
        while self._opened is None and time.monotonic() < until:
            if self._attend(dict(poll.poll(OPEN_S * 1000))):
                return self._end()
        status, text = self._opened or (Status.DOWN, f"the store could not be opened in {OPEN_S:g} s: what stands behind it hangs")
        self._exchange.completions.send(Verb.HELLO, 0, status, text=text)
        if status != Status.OK:
            return self._leave_unready(poll)
        for _ in range(self._workers):
            threading.Thread(target=self._guarded, args=(self._work,), daemon=True).start()
        threading.Thread(target=self._guarded, args=(self._answer,), daemon=True).start()
        while True:
            patience_s = self._patience_s()
            if self._attend(dict(poll.poll(None if patience_s is None else patience_s * 1000))):
                return self._end()
            self._read()
            self._expire()
            self._exchange.completions.flush()

    def _on_signal(self, number, frame):
        self._signalled = True
        os.eventfd_write(self._wake, 1)

    def _attend(self, events):
        """Takes what came on stdin and the wake-up. Returns whether it is time to end."""
        if self._wake in events:
            os.eventfd_read(self._wake)
        if self._broken:
            raise self._broken
        gone = 0 in events and not os.read(0, 4096)
        return gone or self._signalled

    def _patience_s(self):
        """Until the next deadline, the next tick, or a full ring is tried again; None: nothing goes on."""
        if not self._exchange.completions.flush():
            return RETRY_S
        with self._ready:
            now = time.monotonic_ns()
            if self._taken != self._seen or self._running or self._waiting or self._questions:
                self._seen, self._rests_at_ns = self._taken, now + int(RESTS_S * 1e9)
            if now >= self._rests_at_ns:
                self._looks_at_ns = 1 << 63
                return None
            self._looks_at_ns = min([now + int(TICK_S * 1e9), *(batch.deadline_ns for batch in self._leavable())])
        return max(0, self._looks_at_ns - now) / 1e9 + 0.001

    def _leavable(self):
        """Batches that can be ended although no call of theirs returns: what waits, and what touches no memory. Under _ready."""
        return [*self._waiting, *self._questions,
                *(batch for batch in self._running.values() if not batch.left_ns and (self._back.copies or batch.verb not in WITH_SEGMENTS))]

    def _leave(self, condition, status):
        """Ends those of them for which the condition holds."""
        with self._ready:
            found = [batch for batch in self._leavable() if condition(batch) and batch.leave()]
            for batch in found:
                for waiting in (self._waiting, self._questions):
                    if batch in waiting:
                        waiting.remove(batch)
        for batch in found:
            status = int(status)
            self._finish(batch, status, [status if known is None else known for known in batch.statuses])

    # ---- whoever reads the ring ----

    def _read(self):
        """Takes in the requests that there are."""
        with self._reading:
            if not self._ending:
                for message in self._exchange.requests.take():
                    self._receive(message)

    def _receive(self, message):
        batch = Batch(message, self._exchange.regions)
        if batch.verb == Verb.CANCEL and batch.refused is None:
            self._cancel(batch.number)
        elif batch.verb == Verb.PING and batch.refused is None:
            self._send(batch.number, Status.OK)
        elif batch.refused is not None or (batch.verb != Verb.STATS and not batch.untried()):
            self._finish(batch, batch.refused or Status.OK, batch.statuses, batch.why)
        else:
            asks = batch.verb not in WITH_SEGMENTS
            with self._ready:
                others = self._waiting or self._questions or threading.current_thread() is threading.main_thread()
                (self._questions if asks else self._waiting).append(batch)
                self._taken += 1
                idle = self._idle
                near = batch.deadline_ns < self._looks_at_ns
            # Whoever reads takes the first one itself.
            if others and idle:
                os.eventfd_write(self._more, 1)
            elif others and asks:
                os.eventfd_write(self._asked, 1)
            if near:
                os.eventfd_write(self._wake, 1)

    def _cancel(self, number):
        with self._ready:
            if number in self._running:
                self._running[number].cancel()
        self._leave(lambda batch: batch.number == number, Status.CANCELLED)

    def _expire(self):
        """Ends what is past its deadline, although no worker is free to."""
        now = time.monotonic_ns()
        self._leave(lambda batch: batch.deadline_ns <= now, Status.LATE)
        with self._ready:
            stuck = [batch for batch in self._running.values() if batch.left_ns and now - batch.left_ns > STUCK_S * 1e9]
        if stuck:
            # Each such call has a thread; a node ends a process only for calls that hold its memory.
            raise StoreError(f"a call has not returned for {STUCK_S:g} s after its batch had to end; to be started again")

    # ---- the end ----

    def _leave_unready(self, poll):
        """The hello said why; the node has a moment to read it."""
        until = time.monotonic() + 1.0
        while time.monotonic() < until and not (self._exchange.completions.flush() and self._exchange.completions.taken()):
            if self._attend(dict(poll.poll(10))):
                break
        return 1

    def _end(self):
        """The node is gone, or wants us to go: cancels, closes the back end if no verb is in it. Bounded by GRACE_S."""
        # Ends the process from a thread of C: it needs no interpreter, so a call that never gives it back cannot stop it.
        with open(os.devnull, "w", encoding="ascii") as nowhere:
            faulthandler.dump_traceback_later(GRACE_S, exit=True, file=nowhere)
            self._read()  # what was asked before has its answer, too
            with self._reading, self._ready:
                self._ending = True
                for batch in self._running.values():
                    batch.cancel()
            self._leave(lambda batch: True, Status.CANCELLED)
            with self._ready:
                idle = self._ready.wait_for(lambda: not self._running and not self._answering, IDLE_S)
            self._exchange.completions.flush()
            if idle and self._opened and self._opened[0] == Status.OK:
                try:
                    self._back.close()
                except Exception as error:
                    _say(f"close: {type(error).__name__}: {error}")
            faulthandler.cancel_dump_traceback_later()
        return 0

    # ---- other threads ----

    def _open(self, line):
        """Reads the configuration and opens the back end."""
        status, text = Status.OK, ""
        try:
            options = Options(_parsed(line))
            self._back.workers = self._workers = options.count("workers", self._back.workers, 1, 64)
            self._back.open(options)
        except StoreError as error:
            status, text = error.status, str(error)
        except Exception as error:
            status, text = Status.FAILED, f"{type(error).__name__}: {error}"
        self._opened = (status, text)
        os.eventfd_write(self._wake, 1)

    def _guarded(self, loop):
        try:
            loop()
        except Exception as error:  # our own mistake, or the node's; a thread that is gone silently would be worse
            self._broken = error
            os.eventfd_write(self._wake, 1)

    def _work(self):
        """A worker."""
        waiter = select.epoll()
        for fd in (self._exchange.requests.event, self._more):
            waiter.register(fd, ALONE)
        while True:
            batch = self._next()
            if batch is None and self._exchange.requests.waiting():
                self._read()
                batch = self._next()
            while batch is None:
                if batch := self._next(sleeps=True):
                    break
                waiter.poll()
                with self._ready:
                    self._idle -= 1
                clear(self._more)
                self._read()
                batch = self._next()
            self._work_on(batch)

    def _answer(self):
        """The thread that takes questions only."""
        while True:
            os.eventfd_read(self._asked)
            while batch := self._next(transfers=False):
                self._work_on(batch)

    def _next(self, transfers=True, sleeps=False):
        """A batch that waits, if one does: questions first. Where others wait behind it another worker is told. `sleeps`: whoever gets none
        sleeps, and counts as idle from now on."""
        with self._ready:
            if self._ending:  # the back end is about to be closed
                return None
            if self._questions:
                batch = self._questions.popleft()
            elif self._waiting and transfers:
                # A call costs the same for one object as for some: where nobody else is free, what waits goes together.
                alone = self._idle or self._back.copies
                batch = self._waiting.popleft() if alone else Together.take(self._waiting)
            else:
                self._idle += sleeps
                return None
            for each in batch.given_back():
                self._running[each.number] = each
            others = self._idle and (self._waiting or self._questions)
        if others:
            os.eventfd_write(self._more, 1)
        return batch

    def _work_on(self, batch):
        status, text = self._perform(batch)
        batches = batch.given_back()
        with self._ready:
            for each in batches:
                del self._running[each.number]
            batches = [each for each in batches if not each.left_ns]
            self._answering += 1
        # The memory is not touched any more from here on.
        for each in batches:
            self._finish(each, status, each.statuses, text, held=each is not batches[-1])
        with self._ready:
            self._answering -= 1
            if self._ending:
                self._ready.notify_all()

    def _perform(self, batch):
        """Calls the back end. Returns the batch's status and text; its items have theirs afterwards."""
        answered, status, text = False, Status.OK, ""
        try:
            if batch.verb == Verb.STATS:
                return Status.OK, self._stats()
            for positions in _rounds(batch, self._back.distinct_names):
                if ended := batch.ended():
                    status = ended
                    break
                self._call(batch, positions)
                answered = True
        except StoreError as error:
            status, text = error.status, str(error)
        except Exception as error:
            status, text = Status.FAILED, f"{type(error).__name__}: {error}"
        if status != Status.OK:
            batch.end_untried(status)
        # What an earlier round has answered stays: the batch was tried, and its items say the rest.
        return (Status.OK if answered else status), text

    def _call(self, batch, positions):
        """One call of one verb, for these items."""
        names, items = [batch.names[at] for at in positions], [batch.items[at] for at in positions]
        sizes = [0] * len(positions)
        if batch.verb == Verb.EXISTS:
            pairs = self._back.exists(names, batch)
            statuses, sizes = [status for status, _ in pairs], [size for _, size in pairs]
        elif batch.verb == Verb.GET:
            statuses = self._back.get(items, batch)
            sizes = [item.bytes if status == Status.OK else 0 for item, status in zip(items, statuses)]
        elif batch.verb == Verb.REMOVE:
            statuses = self._back.remove(names, batch)
        else:
            statuses = self._back.put(items, batch.verb == Verb.REPLACE, batch)
        if len(statuses) != len(positions):
            raise StoreError(f"the back end answered for {len(statuses)} of {len(positions)} items")
        if not KNOWN.issuperset(statuses) or min(sizes) < 0:
            raise StoreError("the back end answered with a status or a size that is none")
        statuses = list(map(int, statuses))
        if len(positions) == len(batch.statuses):  # nearly always: all at once
            batch.statuses, batch.sizes = statuses, list(sizes)
            return
        for at, status, size in zip(positions, statuses, sizes):
            batch.statuses[at], batch.sizes[at] = status, size

    def _stats(self):
        """The back end's counters and ours, as JSON."""
        with self._ready:
            ours = {"waiting": len(self._waiting) + len(self._questions), "running": len(self._running), "workers": self._workers, **self._counts}
        text = json.dumps({"connector": ours, "store": self._back.stats()}, sort_keys=True)
        if len(text) > TEXT_BYTES_MAX:
            raise StoreError(f"stats of {len(text)} bytes, at most {TEXT_BYTES_MAX}")
        return text

    # ---- any thread ----

    def _finish(self, batch, status, statuses, text="", held=False):
        """Sends a batch's one completion. `statuses`: of its items, all known. `held`: with the next one."""
        verb, sizes = WORD_OF.get(batch.verb, "unknown"), batch.sizes
        if statuses.count(OK) == len(statuses):  # nearly always
            moved, tally = batch.bytes(), {OK: len(statuses)} if statuses else {}
        else:
            moved, tally = sum([item.bytes for known, item in zip(statuses, batch.items) if item and known == OK]), Counter(statuses)
            sizes = [size if known == OK else 0 for known, size in zip(statuses, sizes)]
        with self._ready:
            for known, count in tally.items():
                self._counts[f"{verb}_{NAME_OF[known]}"] += count
            if moved:
                self._counts[f"{verb}_bytes"] += moved
        self._send(batch.number, status, list(zip(statuses, sizes)), text, held)

    def _send(self, number, status, results=(), text="", held=False):
        try:
            if self._exchange.completions.send(Verb.DONE, number, status, results, text, held):
                return
        except Nonsense as error:
            self._broken = error
        os.eventfd_write(self._wake, 1)  # the main thread tries again, or ends


def _rounds(batch, distinct):
    """The items to be tried, in order; with `distinct`, in as many goes as the most frequent name occurs."""
    left = batch.untried()
    while left:
        now, again, seen = left, [], set()
        if distinct and len({batch.names[at] for at in left}) < len(left):
            now = []
            for at in left:
                (again if batch.names[at] in seen else now).append(at)
                seen.add(batch.names[at])
        yield now
        left = again


def _configuration():
    """The first line of stdin."""
    line = b""
    while not line.endswith(b"\n") and len(line) < CONFIG_BYTES_MAX:
        # Byte by byte would be many calls; what follows the line means nothing, so that reading on past it does no harm.
        piece = os.read(0, 65536)
        if not piece:
            break
        line += piece
        if b"\n" in line:
            line = line[:line.index(b"\n") + 1]
    return line


def _parsed(line):
    try:
        return json.loads(line)
    except ValueError:
        raise BadOption("the configuration, the first line of standard input, is no JSON object") from None


def _say(text):
    print(f"connector: {text}", file=sys.stderr, flush=True)

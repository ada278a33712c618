"""A request, checked: what it asks for, of which items, until when. No item that does not hold together reaches a back end.

Threads: a batch is made by the reader, then belongs to one worker; `cancel` may be called by any.
"""

import contextlib
import threading
import time
from bisect import bisect_right
from itertools import accumulate, chain
from operator import add, le

from .back_end import StoreError
from .contract import ITEM, ITEMS_MAX, NAME, NAME_BYTES_MAX, NAMES, REQUEST, SEGMENT, SEGMENTS_MAX, Nonsense, Status, Verb

WITH_SEGMENTS = (Verb.GET, Verb.PUT, Verb.REPLACE)
WITH_ITEMS = (Verb.EXISTS, Verb.REMOVE, *WITH_SEGMENTS)
PLAIN = (Verb.STATS, Verb.PING, Verb.CANCEL)  # without items, and without a deadline
NEVER_NS = (1 << 63) - 1
OK, INVALID = int(Status.OK), int(Status.INVALID)  # an enumerator's hash is many times slower than a number's


class Item:
    """One object of a batch and its memory: `name` (str), `bytes` (of all pieces together), `pieces` ((region, offset, length), ...)."""

    __slots__ = ("name", "bytes", "pieces", "_regions")

    def __init__(self, name, pieces, regions, size=None):
        self.name, self.pieces, self._regions = name, pieces, regions
        self.bytes = sum(length for _, _, length in pieces) if size is None else size

    def addresses(self):
        """Where each piece begins, as an integer for native calls."""
        return [self._regions[region].address + offset for region, offset, _ in self.pieces]

    def lengths(self):
        return [length for _, _, length in self.pieces]

    def views(self):
        """The pieces as memoryviews of the shared memory itself."""
        return [self._regions[region].view[offset:offset + length] for region, offset, length in self.pieces]

    def joined(self):
        """A copy of what the pieces hold."""
        return b"".join(self.views())

    def fill(self, data):
        """Writes `data` (exactly `bytes` long) into the pieces."""
        data, at = memoryview(data), 0
        for view in self.views():
            view[:] = data[at:at + len(view)]
            at += len(view)


class Batch:
    """`verb`, `number`, `names` (of all items), `items` (None where an item has no memory), `statuses` (numbers; None: to be tried),
    `sizes` (bytes of what was found or written), `refused` (None, or why nothing is tried) and `why` (in words)."""

    def __init__(self, message, regions):
        """Raises Nonsense when the message as such is broken; an item that is wrong only makes that item INVALID."""
        size, verb, _, self.number, self.deadline_ns, count, segments = REQUEST.unpack_from(message)
        tables = REQUEST.size + count * ITEM.size + segments * SEGMENT.size
        if count > ITEMS_MAX or segments > SEGMENTS_MAX or tables > size or self.number == 0:
            raise Nonsense(f"batch {self.number} of {count} items and {segments} segments in {size} bytes")
        self.verb = verb
        if verb in PLAIN:
            self.deadline_ns = NEVER_NS
        self.names, self.items, self.statuses = [""] * count, [None] * count, [None] * count
        self.sizes = [0] * count
        self.refused, self.why, self._cancelled = None, "", False
        self.left_ns, self._touched = 0, threading.Lock()  # when it was left; 0: it was not
        if verb not in WITH_ITEMS and (verb not in PLAIN or count or segments):
            self._refuse(f"verb {verb} with {count} items")
            return
        if count and segments in (0, count) and self._read_plain(message, count, segments, regions):
            return
        rows = list(ITEM.iter_unpack(memoryview(message)[REQUEST.size:REQUEST.size + count * ITEM.size]))
        pieces = [(region, offset, length) for region, _, offset, length
                  in SEGMENT.iter_unpack(memoryview(message)[tables - segments * SEGMENT.size:tables])]
        self._read(message, tables, rows, pieces, regions)

    def ended(self):
        """Why the batch need not go on: LATE, CANCELLED, or None."""
        if self._cancelled:
            return Status.CANCELLED
        return Status.LATE if time.monotonic_ns() >= self.deadline_ns else None

    def seconds_left(self):
        """Until the deadline, at least 0."""
        return max(0.0, (self.deadline_ns - time.monotonic_ns()) / 1e9)

    def bytes(self):
        """Of all items together."""
        return sum([item.bytes for item in self.items if item])

    def cancel(self):
        self._cancelled = True

    @contextlib.contextmanager
    def memory(self):
        """For back ends that say `copies`: the items' memory may be touched in here. Raises StoreError when the batch has ended."""
        with self._touched:
            if self.left_ns:
                raise StoreError("the batch has ended", self.ended() or Status.LATE)
            yield

    def leave(self):
        """Ends it although its call has not returned; False while its memory is being touched, which is a matter of moments."""
        if not self._touched.acquire(blocking=False):
            return False
        self.left_ns = time.monotonic_ns()
        self._touched.release()
        return True

    def untried(self):
        """Positions of the items that nothing is known of yet."""
        return [at for at, status in enumerate(self.statuses) if status is None]

    def end_untried(self, status):
        status = int(status)
        self.statuses = [status if known is None else known for known in self.statuses]

    def given_back(self):
        """The batches that this is of, with what became of their items."""
        return [self]

    def _refuse(self, why):
        self.refused, self.why = INVALID, why
        self.statuses = [INVALID] * len(self.statuses)

    def _read_plain(self, message, count, segments, regions):
        """Reads what nearly every request is: names in a row, each with the one piece that its verb wants, all good, of the exchange,
        in ascending order. Whole columns at a time, for this is on the way of every batch. False, with nothing done: it is not such a one."""
        items_end, view = REQUEST.size + count * ITEM.size, memoryview(message)
        tables = items_end + segments * SEGMENT.size
        numbers = view[REQUEST.size:items_end].cast("I").tolist()
        starts, lengths, firsts, owns = numbers[0::4], numbers[1::4], numbers[2::4], numbers[3::4]
        if (segments > 0) != (self.verb in WITH_SEGMENTS) or owns.count(1 if segments else 0) != count:
            return False
        if firsts != (list(range(count)) if segments else [0] * count):
            return False
        begin = starts[0]
        ends = list(accumulate(lengths, initial=begin))
        end = ends.pop()
        if begin < tables or end > len(message) or ends != starts or not 0 < min(lengths) <= max(lengths) <= NAME_BYTES_MAX:
            return False
        raw = message[begin:end]
        if not NAMES.fullmatch(raw):
            return False
        text, stops = raw.decode("ascii"), accumulate(lengths)
        names = [text[stop - length:stop] for stop, length in zip(stops, lengths)]
        if segments:
            words = view[items_end:tables].cast("Q").tolist()
            places, sizes = words[1::3], words[2::3]
            after = list(map(add, places, sizes))
            if words[0::3].count(0) != count or min(sizes) == 0 or max(after) > regions[0].bytes:
                return False
            if self.verb == Verb.GET and not all(map(le, after, places[1:])):
                return False
            self.items = [Item(name, ((0, place, size),), regions, size) for name, place, size in zip(names, places, sizes)]
        self.names = names
        return True

    def _read(self, message, names_from, rows, pieces, regions):
        following = 0
        for _, _, first, own in rows:
            if first != following or first + own > len(pieces):
                break
            following += own
        if following != len(pieces) or sum(own for *_, own in rows) != following:
            self._refuse(f"the items' segments do not fit together: {len(pieces)} segments, in a row up to {following}")
            return
        # Nearly always no two destinations overlap, which is seen at once; only else it matters whose came first.
        taken = _Ranges() if self.verb == Verb.GET and not _disjoint(pieces) else None
        wanted = self.verb in WITH_SEGMENTS
        for at, (offset, length, first, own) in enumerate(rows):
            name = message[offset:offset + length] if names_from <= offset else b""
            mine = pieces[first:first + own]
            if len(name) != length or not NAME.fullmatch(name) or (own > 0) != wanted or not _inside(mine, regions):
                self.statuses[at] = INVALID
            elif taken and not taken.add(mine):
                self.statuses[at] = INVALID  # two items, or two pieces, would write one place
            else:
                self.names[at] = name.decode("ascii")
                if mine:
                    self.items[at] = Item(self.names[at], mine, regions)


class Together:
    """Batches of one verb that go to the back end in one call: as a Batch to whoever carries it out."""

    BYTES, ITEMS, NS = 4 << 20, 64, 100_000_000  # in all, and how far deadlines are apart
    VERBS = (Verb.GET, Verb.PUT)

    def __init__(self, batches):
        self.verb, self.batches = batches[0].verb, batches
        self.names, self.items, self.statuses, self.sizes = ([*chain.from_iterable(parts)] for parts in zip(
            *((batch.names, batch.items, batch.statuses, batch.sizes) for batch in batches)))

    @classmethod
    def take(cls, waiting):
        """The first of those that wait, and what goes with it."""
        batches = [waiting.popleft()]
        first, count = batches[0], len(batches[0].names)
        room = cls.BYTES - first.bytes() if waiting and first.verb in cls.VERBS else 0
        while waiting and room > 0:
            following = waiting[0]
            room, count = room - following.bytes(), count + len(following.names)
            if following.verb != first.verb or room < 0 or count > cls.ITEMS or abs(following.deadline_ns - first.deadline_ns) > cls.NS:
                break
            batches.append(waiting.popleft())
        return first if len(batches) == 1 else cls(batches)

    def ended(self):
        """None, as long as one of them need go on."""
        reasons = [batch.ended() for batch in self.batches]
        return reasons[0] if all(reasons) else None

    def seconds_left(self):
        return max(batch.seconds_left() for batch in self.batches)

    untried = Batch.untried

    def end_untried(self, status):
        """Each for its own reason, where it has one."""
        for batch in self.given_back():
            batch.end_untried(batch.ended() or status)
        self.statuses = [*chain.from_iterable(batch.statuses for batch in self.batches)]

    def given_back(self):
        at = 0
        for batch in self.batches:
            end = at + len(batch.names)
            batch.statuses, batch.sizes, at = self.statuses[at:end], self.sizes[at:end], end
        return self.batches


def _inside(pieces, regions):
    for region, offset, length in pieces:
        if region >= len(regions) or not 0 < length <= regions[region].bytes or offset > regions[region].bytes - length:
            return False
    return True


def _disjoint(pieces):
    ordered = sorted(pieces)
    for (region, offset, length), (following, start, _) in zip(ordered, ordered[1:]):
        if offset + length > start and region == following:
            return False
    return True


class _Ranges:
    """Destinations so far: disjoint ranges, by region, in order."""

    def __init__(self):
        self._starts, self._ends = {}, {}

    def add(self, pieces):
        """Takes all of the pieces in, or none: False when one overlaps another or what is there."""
        added = []
        for region, offset, length in pieces:
            starts, ends = self._starts.setdefault(region, []), self._ends.setdefault(region, [])
            at = bisect_right(starts, offset)
            if (at and ends[at - 1] > offset) or (at < len(starts) and starts[at] < offset + length):
                for place, start in added:
                    gone = bisect_right(self._starts[place], start) - 1
                    del self._starts[place][gone], self._ends[place][gone]
                return False
            starts.insert(at, offset)
            ends.insert(at, offset + length)
            added.append((region, offset))
        return True

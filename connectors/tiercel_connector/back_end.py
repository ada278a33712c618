"""What a new connector writes: a class with the verbs below, and options read from the node's configuration."""

import re

from .contract import Status


class StoreError(Exception):
    """Raised by a back end: the whole batch (or the start) ends with `status`, and the text says why."""

    def __init__(self, text, status=Status.FAILED):
        super().__init__(text)
        self.status = status


class Down(StoreError):
    """The store cannot be reached at all."""

    def __init__(self, text):
        super().__init__(text, Status.DOWN)


class BadOption(StoreError):
    """The configuration makes no sense; the text says which option, what was wanted and what was given."""

    def __init__(self, text):
        super().__init__(text, Status.INVALID)


class BackEnd:
    """A store as a connector's author describes it. Every verb is given a whole batch and answers for each item, in order.

    What arrives is checked: names, pieces inside their region, no two gets into one place. `limit` is the batch's: `limit.ended()`
    is None, or the status (LATE, CANCELLED) for the items that were not begun; `limit.seconds_left()` counts to the deadline.
    A verb that raises StoreError ends its batch with that status, with anything else as FAILED; the process lives on.

    Threads: open and close are called once each, close when no verb is running; verbs by `workers` threads at once, and `exists`, `remove`
    and `stats` by one more.
    """

    distinct_names = False  # True: a batch never has a name twice; the base asks again for those
    copies = False  # True: the items' memory is touched inside `with limit.memory():` only, so that no call can hold up a batch's end
    regions = ()  # the shared memory (address, bytes, view), set before open
    workers = 4  # by default; set to what is configured before open

    def open(self, options):
        """Connects. Raises BadOption or Down with one line that says what to do; nothing else is called then."""

    def exists(self, names, limit):
        """Returns pairs of status (OK, ABSENT, FAILED, ...) and the object's size in bytes, 0 where that is not known."""
        raise NotImplementedError

    def get(self, items, limit):
        """Fills the items' pieces; OK only for an object of exactly item.bytes. Returns statuses."""
        raise NotImplementedError

    def put(self, items, replace, limit):
        """Stores what the pieces hold, visible whole or not at all; what is there stays, unless `replace`. Returns statuses."""
        raise NotImplementedError

    def remove(self, names, limit):
        """Returns statuses; ABSENT for what is not there."""
        raise NotImplementedError

    def stats(self):
        """A dictionary of counters, small enough for 4096 bytes of JSON together with the base's own."""
        return {}

    def close(self):
        """Gives back what the store holds for us; within a second or two."""


_REQUIRED = object()
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*", re.I)
_SCALES = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class Options:
    """The configuration, read by name; a name that nobody asked for is an error, for it is most often a misspelt one."""

    def __init__(self, values, where="the configuration"):
        if not isinstance(values, dict):
            raise BadOption(f"{where} is no JSON object")
        self._values, self._asked, self._where = values, set(), where

    def __contains__(self, name):
        return name in self._values

    def raw(self, name, default=None):
        self._asked.add(name)
        return self._values.get(name, default)

    def text(self, name, default=_REQUIRED):
        return self._get(name, default, "a text", lambda value: value if isinstance(value, str) else None)

    def flag(self, name, default=_REQUIRED):
        words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False, "": False}
        return self._get(name, default, "true or false", lambda value: value if isinstance(value, bool) else words.get(str(value).lower()))

    def count(self, name, default=_REQUIRED, least=0, most=1 << 62):
        def read(value):
            number = int(value) if not isinstance(value, (bool, float)) and str(value).isascii() and str(value).isdigit() else -1
            return number if least <= number <= most else None
        return self._get(name, default, f"a whole number from {least} to {most}", read)

    def seconds(self, name, default=_REQUIRED, least=0.0, most=3600.0):
        def read(value):
            plain = not isinstance(value, bool) and re.fullmatch(r"\d+(\.\d+)?", str(value))  # out of an address it comes as a text
            return float(value) if plain and least <= float(value) <= most else None
        return self._get(name, default, f"seconds from {least} to {most}", read)

    def size(self, name, default=_REQUIRED):
        """A number of bytes, or a text such as "4gb", "256MiB": multiples of 1024 either way, as HiCache's users know them."""
        def read(value):
            if isinstance(value, int) and not isinstance(value, bool):
                return value if value >= 0 else None
            found = _SIZE.fullmatch(str(value))
            return int(float(found[1]) * (1 << _SCALES[found[2].lower()])) if found else None
        return self._get(name, default, 'bytes, such as 1048576 or "4gb"', read)

    def inner(self, name):
        """The options inside an option that is an object; none where it is not there."""
        return Options(self.raw(name, {}), f"option '{name}'")

    def refuse_others(self):
        """To be called when all was asked for."""
        others = sorted(set(self._values) - self._asked)
        if others:
            raise BadOption(f"{self._where} has no option '{others[0]}'; there are: {', '.join(sorted(self._asked))}")

    def _get(self, name, default, wanted, read):
        given = self.raw(name)
        if given is None:
            if default is _REQUIRED:
                raise BadOption(f"option '{name}' is missing: wanted {wanted}")
            return default
        value = read(given)
        if value is None:
            raise BadOption(f"option '{name}': wanted {wanted}, got {str(given)[:80]!r}")
        return value

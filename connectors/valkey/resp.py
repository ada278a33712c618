"""One connection to a server that speaks RESP2 (Valkey, Redis): commands out of memoryviews, values into memoryviews, no copy between.

Why none of the client libraries: they make a bytes object of every value, one or two copies more, and their time limits are those
of a socket call, not of a batch.

Threads: a connection belongs to whoever took it from the pool.
"""

import socket
import ssl
import time

GATHER_BYTES = 16384  # shorter parts are sent together
READ_BYTES = 65536
LINE_BYTES_MAX = 65536
STEP_BYTES = 1 << 20


class ServerError(Exception):
    """The server's answer is an error; the connection is in order. `code`: its first word."""

    @property
    def code(self):
        return str(self).split(" ", 1)[0]


class Broken(Exception):
    """The connection is of no use any more. `answered`: whether anything had come since the last command went out."""

    def __init__(self, text, answered=False):
        super().__init__(text)
        self.answered = answered


class Connection:
    """Connected, over TLS and logged in where that is asked for; after Broken only close() may be called."""

    def __init__(self, address, connect_timeout_s, timeout_s, tls=None, server_name=None, login=(), database=0):
        """`address`: (host, port) or the path of a socket; `tls`: an ssl context; `login`: (password,) or (username, password).

        Raises Broken, or ServerError when the login is refused.
        """
        self._timeout_s, self._until = timeout_s, None
        self._buffer, self._start, self._end = bytearray(READ_BYTES), 0, 0  # received and not yet read: from start to end
        self._answered = False
        self.used = False
        try:
            if isinstance(address, str):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.settimeout(connect_timeout_s)
                self._socket.connect(address)
            else:
                self._socket = socket.create_connection(address, connect_timeout_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                named = server_name or (address[0] if isinstance(address, tuple) else "localhost")
                self._socket = tls.wrap_socket(self._socket, server_hostname=named)
        except (OSError, ValueError) as error:
            raise Broken(f"{type(error).__name__}: {error}") from None
        try:
            if login:
                self.ask("AUTH", *login)
            if database:
                self.ask("SELECT", database)
        except (Broken, ServerError):
            self.close()
            raise

    def close(self):
        self._socket.close()

    def limit(self, seconds):
        """From now on every call together has this long; each one has `timeout_s` in any case."""
        self._until = time.monotonic() + seconds

    def ask(self, *words):
        """One command; returns its simple answer."""
        self.send(command(*words))
        return self.answer()

    def send(self, parts):
        """Sends bytes and memoryviews, in order. Raises Broken."""
        self._answered = False
        gathered = bytearray()
        for part in parts:
            if len(part) < GATHER_BYTES:
                gathered += part
            if len(gathered) >= 4 * GATHER_BYTES or (len(part) >= GATHER_BYTES and gathered):
                self._out(gathered)
                gathered = bytearray()
            if len(part) >= GATHER_BYTES:
                self._out(part)
        if gathered:
            self._out(gathered)

    def answer(self):
        """The next answer: an int, a text, None for nil, or the value's bytes. Raises ServerError, Broken."""
        kind, rest = self._head()
        if kind == "$":
            if rest < 0:
                return None
            value = bytearray(rest)
            self._in(memoryview(value))
            self._skip(2)
            return bytes(value)
        return rest

    def value_into(self, views, size):
        """The next answer, a value, into the views, `size` bytes together: returns the value's true size, or None where there is none.

        A value of another size is read and dropped; the views are then as they were.
        """
        kind, length = self._head()
        if kind != "$":
            raise Broken(f"a value was asked for, the answer is of kind '{kind}'", True)
        if length < 0:
            return None
        if length == size:
            for view in views:
                self._in(view)
        else:
            self._skip(length)
        self._skip(2)
        return length

    # ---- bytes ----

    def _head(self):
        """The first line of an answer: its kind, and the number or text in it."""
        line = self._line()
        self._answered = True
        kind, rest = chr(line[0]), line[1:].decode("utf-8", "replace")
        if kind == "-":
            raise ServerError(rest)
        if kind == "+":
            return kind, rest
        if kind in ":$" and rest.lstrip("-").isdigit():
            return kind, int(rest)
        raise Broken(f"an answer that begins with {line[:40]!r} is none of RESP2", True)

    def _line(self):
        line = bytearray()
        while not line.endswith(b"\r\n"):
            if len(line) > LINE_BYTES_MAX:
                raise Broken("an answer's line does not end", True)
            if self._start == self._end:
                self._more()
            end = self._buffer.find(b"\n", self._start, self._end) + 1 or self._end
            line += self._buffer[self._start:end]
            self._start = end
        if len(line) < 3:
            raise Broken("an answer of an empty line", True)
        return line[:-2]

    def _in(self, view):
        ready = min(len(view), self._end - self._start)
        view[:ready] = memoryview(self._buffer)[self._start:self._start + ready]
        self._start, view = self._start + ready, view[ready:]
        while view:
            view = view[self._receive(view):]

    def _skip(self, count):
        while count:
            if self._start == self._end:
                self._more()
            now = min(count, self._end - self._start)
            self._start, count = self._start + now, count - now

    def _more(self):
        self._start, self._end = 0, self._receive(self._buffer)

    def _receive(self, into):
        try:
            self._wait()
            got = self._socket.recv_into(into)
        except (OSError, ValueError) as error:
            raise Broken(_reason(error), self._answered) from None
        if not got:
            raise Broken("the server closed the connection", self._answered)
        return got

    def _out(self, part):
        part = memoryview(part)
        try:
            # In steps: sendall's limit is for all of its bytes, ours is for no progress.
            for at in range(0, len(part), STEP_BYTES):
                self._wait()
                self._socket.sendall(part[at:at + STEP_BYTES])
        except (OSError, ValueError) as error:
            raise Broken(_reason(error), self._answered) from None

    def _wait(self):
        left = self._timeout_s if self._until is None else min(self._timeout_s, self._until - time.monotonic())
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)


def command(*words):
    """The parts of a command. A word that is a list of memoryviews is one argument."""
    parts, head = [], bytearray(b"*%d\r\n" % len(words))
    for word in words:
        if isinstance(word, list):
            parts += [head + b"$%d\r\n" % sum(len(view) for view in word), *word]
            head = bytearray(b"\r\n")
        else:
            raw = word if isinstance(word, bytes) else str(word).encode()
            head += b"$%d\r\n%s\r\n" % (len(raw), raw)
    parts.append(head)
    return parts


def _reason(error):
    return "timed out" if isinstance(error, (TimeoutError, ssl.SSLWantReadError)) else f"{type(error).__name__}: {error}"

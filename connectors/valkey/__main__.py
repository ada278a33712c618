"""Connector for a Valkey or Redis server: an object is a string value, put by SET NX, replaced by SET, its size known by STRLEN.

docs/guide/connectors.md has the options. The server's own rules hold: a memory limit without eviction ends puts as NO_ROOM, an
eviction policy makes objects ABSENT, an object above 512 MiB is TOO_LARGE. One server; not the cluster protocol.
"""

import os
import ssl
import sys
import threading
import urllib.parse

# Last, so that nothing here hides an installed package of the same name.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from resp import Broken, Connection, ServerError, command  # noqa: E402
from tiercel_connector import BackEnd, BadOption, Down, Status, StoreError, run  # noqa: E402

VALUE_BYTES_MAX = 512 << 20  # of RESP, unless a server was told another proto-max-bulk-len
# Between these many a batch's deadline is looked at; they also bound what the server has to hold for us at once.
WINDOW_COMMANDS, WINDOW_BYTES = 256, 8 << 20
SCHEMES = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}
ERRORS = {"OOM": Status.NO_ROOM, "LOADING": Status.DOWN, "MASTERDOWN": Status.DOWN, "READONLY": Status.DOWN, "CLUSTERDOWN": Status.DOWN,
          "BUSY": Status.DOWN}


def server_options(options):
    """Arguments for Connection, from an URL or from single options; the password may stand in the environment, too."""
    url = urllib.parse.urlsplit(options.text("url", "valkey://127.0.0.1:6379"))
    if url.scheme not in SCHEMES:
        raise BadOption(f"option 'url': wanted valkey://, valkeys://, redis:// or rediss:// (the ones with s: TLS), got '{url.scheme}://'")
    try:
        port = url.port or 6379
    except ValueError:
        raise BadOption("option 'url': the port is no number from 0 to 65535") from None
    path = urllib.parse.unquote(url.path.strip("/"))
    if path and not path.isdigit():
        raise BadOption(f"option 'url': the path is the number of a database, got '{path}'")
    given = lambda name, part: options.text(name, os.environ.get("TIERCEL_VALKEY_" + name.upper()) or urllib.parse.unquote(part or "") or None)
    username, password = given("username", url.username), given("password", url.password)
    if username and not password:
        raise BadOption("option 'username' needs a 'password' (or TIERCEL_VALKEY_PASSWORD in the environment)")
    address = options.text("unix_socket", None) or (options.text("host", url.hostname or "127.0.0.1"), options.count("port", port, 1, 65535))
    return {"address": address, "login": tuple(word for word in (username, password) if word),
            "database": options.count("database", int(path or 0), 0, 1 << 20),
            "connect_timeout_s": options.seconds("connect_timeout_s", 1.0, 0.01), "timeout_s": options.seconds("timeout_s", 1.0, 0.01),
            "tls": tls_context(options, SCHEMES[url.scheme]), "server_name": options.text("tls_server_name", None)}


def tls_context(options, wanted):
    """An ssl context, or None without TLS."""
    wanted = options.flag("tls", wanted)
    authority, verify = options.text("tls_ca_file", None), options.flag("tls_verify", True)
    certificate, key = options.text("tls_cert_file", None), options.text("tls_key_file", None)
    if not wanted:
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise BadOption(f"TLS: {error} (options tls_ca_file, tls_cert_file, tls_key_file)") from None
    return context


class Valkey(BackEnd):
    def open(self, options):
        self._server = server_options(options)
        self._prefix = options.text("key_prefix", "tiercel:")
        self._value_max = options.size("object_bytes_max", VALUE_BYTES_MAX)
        options.refuse_others()
        self._idle, self._lock = [], threading.Lock()
        self._connects = self._breaks = self._retries = 0
        facts = self._facts()
        if facts.get("cluster_enabled") == "1":
            raise BadOption(f"the server at {self._where()} is a node of a cluster, whose protocol is not spoken here; name a single server")
        room = facts.get("maxmemory", "")  # a limit that is no number is as good as not known
        self._room, self._policy = int(room) if room.isascii() and room.isdigit() else 0, facts.get("maxmemory_policy", "")

    def exists(self, names, limit):
        def read(connection, at):
            size = connection.answer()
            return (Status.OK, size) if size else (Status.ABSENT, 0)  # an empty value is nothing of ours
        answers = self._pipeline([command("STRLEN", self._key(name)) for name in names], [0] * len(names), read, limit)
        return [answer if isinstance(answer, tuple) else (answer, 0) for answer in answers]

    def get(self, items, limit):
        def read(connection, at):
            size = connection.value_into(items[at].views(), items[at].bytes)
            return Status.ABSENT if size is None else Status.OK if size == items[at].bytes else Status.WRONG_SIZE
        return self._pipeline([command("GET", self._key(item.name)) for item in items], [item.bytes for item in items], read, limit)

    def put(self, items, replace, limit):
        most = min(self._value_max, self._room or self._value_max)
        fits = [at for at, item in enumerate(items) if item.bytes <= most]
        condition = () if replace else ("NX",)

        def read(connection, at):
            connection.answer()  # OK, or nil: an object is there, and stays
            return Status.OK
        commands = [command("SET", self._key(items[at].name), items[at].views(), *condition) for at in fits]
        statuses = [Status.TOO_LARGE] * len(items)
        for at, status in zip(fits, self._pipeline(commands, [items[at].bytes for at in fits], read, limit)):
            statuses[at] = status
        return statuses

    def remove(self, names, limit):
        # UNLINK: the server frees large values on another thread.
        return self._pipeline([command("UNLINK", self._key(name)) for name in names], [0] * len(names),
                              lambda connection, at: Status.OK if connection.answer() else Status.ABSENT, limit)

    def stats(self):
        return {"server": self._where(), "maxmemory": self._room, "maxmemory_policy": self._policy, "connects": self._connects,
                "broken_connections": self._breaks, "retries": self._retries, "idle_connections": len(self._idle)}

    def close(self):
        for connection in self._idle:
            connection.close()

    # ---- pipelines ----

    def _pipeline(self, commands, sizes, read, limit):
        """Sends commands in windows, reads as many answers with `read(connection, position)`. Returns statuses, or what `read` returned.

        `sizes`: bytes that go or come with each command. A connection that breaks costs its window and what follows: DOWN, or LATE.
        """
        answers, at = [], 0
        while at < len(commands):
            if ended := limit.ended():
                return answers + [ended] * (len(commands) - at)
            end, room = at + 1, WINDOW_BYTES - sizes[at]
            while end < len(commands) and end - at < WINDOW_COMMANDS and sizes[end] <= room:
                room -= sizes[end]
                end += 1
            try:
                self._window(commands[at:end], at, read, limit, answers)
            except Broken as error:
                if not answers:
                    raise StoreError(f"{self._where()}: {error}", limit.ended() or Status.DOWN) from None
                return answers + [limit.ended() or Status.DOWN] * (len(commands) - len(answers))
            at = end
        return answers

    def _window(self, commands, first, read, limit, answers):
        """One window, appended to `answers`. A kept connection may have been closed meanwhile: if nothing was answered, once more."""
        for attempt in (0, 1):
            connection = self._take()
            old = connection.used
            try:
                connection.limit(limit.seconds_left())
                connection.send([part for parts in commands for part in parts])
                for at in range(len(commands)):
                    answers.append(self._read(read, connection, first + at))
            except Broken as error:
                self._drop(connection)
                if attempt or not old or error.answered or str(error) == "timed out":
                    raise
                self._retries += 1
                continue
            connection.used = True
            with self._lock:
                self._idle.append(connection)
            return

    def _read(self, read, connection, at):
        try:
            return read(connection, at)
        except ServerError as error:
            return ERRORS.get(error.code, Status.FAILED)

    def _take(self):
        with self._lock:
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except ServerError as error:
            raise Broken(f"the server refuses: {error}") from None

    def _drop(self, connection):
        """After a break: what else is kept has most likely gone the same way."""
        connection.close()
        with self._lock:
            stale, self._idle = self._idle, []
            self._breaks += 1
        for other in stale:
            other.close()

    def _facts(self):
        """What the server says of itself, by name; nothing where our user may not ask. Keeps the connection."""
        try:
            connection = self._connect()
            try:
                told = connection.ask("INFO")
                text = told.decode("utf-8", "replace") if isinstance(told, bytes) else ""
            except ServerError as error:
                if error.code != "NOPERM":
                    raise
                text = ""
        except Broken as error:
            raise Down(f"no server at {self._where()}: {error}") from None
        except ServerError as error:
            status = Status.INVALID if error.code in ("NOAUTH", "WRONGPASS", "NOPERM", "ERR") else Status.DOWN
            raise StoreError(f"the server at {self._where()} refuses: {error} (options username, password, database)", status) from None
        self._idle.append(connection)
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def _connect(self):
        self._connects += 1
        return Connection(**self._server)

    def _where(self):
        address = self._server["address"]
        return address if isinstance(address, str) else f"{address[0]}:{address[1]}"

    def _key(self, name):
        return self._prefix + name


if __name__ == "__main__":
    run(Valkey())

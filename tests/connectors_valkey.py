#!/usr/bin/env python3
"""The Valkey/Redis connector against a real server from Debian, on a free port of 127.0.0.1, started and stopped here.

Plain, with a memory limit, with a user and a password, over TLS, through a socket file; and the server killed, stopped and started again.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from checks import check, ends, hang, left_out, run_cases, run_program, start_program, stop_program, wait_for
from connector_node import (ABSENT, DOWN, EXISTS, GET, INVALID, LATE, NO_ROOM, OK, PUT, REMOVE, REPLACE, SOURCE, TOO_LARGE, WRONG_SIZE,
                            Connector, free_port, reachable, refused)

PROGRAM = [sys.executable, SOURCE / "connectors" / "valkey"]
PATIENT = {"connect_timeout_s": 30, "timeout_s": 30}  # a busy machine's server is slow, and that is not what is tested


NO_SERVER = "no valkey-server, redis-server or redis-tools is installed (tools/deps.sh test)"


def server_program():
    """(program, its name) of a server. Debian's redis-tools carries one under another name, without a service that starts by itself."""
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return path, name
    path = shutil.which("redis-check-rdb")
    return (path, "redis-server") if path else None


class Server:
    def __init__(self, folder, *arguments, tls=False):
        self.port = free_port()
        self.arguments = ["--bind", "127.0.0.1", "--port", 0 if tls else self.port, "--save", "", "--appendonly", "no", "--dir", folder,
                          *(["--tls-port", self.port] if tls else []), *arguments]
        self.start()

    def start(self):
        path, name = server_program()
        self.process = start_program([name, *self.arguments], executable=path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        check(wait_for(lambda: reachable(self.port)), "the server does not come up")

    def stop(self, number=signal.SIGTERM):
        stop_program(self.process, number)


def connect(server, config=None, **more):
    config = {"url": f"valkey://127.0.0.1:{server.port}", **PATIENT, **(config or {})}
    return Connector(PROGRAM, config, **more)


def objects(folder):
    server = Server(folder)
    a, b = (connect(server, ring_bytes=1 << 20) for _ in range(2))
    check(a.hello.status == OK, a.hello)
    check(a.put(["x", "y", "x"], size=1000).statuses == [OK, OK, OK], "put")
    done = b.get(["x", "y", "z", "x"], size=1000)
    check(done.results == [(OK, 1000), (OK, 1000), (ABSENT, 0), (OK, 1000)], "got by another connector", done)
    check(b.got(0, 1000) == b.got(3, 1000) == b"\1" * 1000 and b.got(1, 1000) == b"\2" * 1000, "bytes")
    check(b.get(["x", "y"], size=999).statuses == [WRONG_SIZE] * 2 and b.get(["x"], size=1001).statuses == [WRONG_SIZE], "sizes")
    check(b.get(["y"], size=1000).statuses == [OK] and b.got(0, 1000) == b"\2" * 1000, "the connection is in order after them")
    check(b.call(EXISTS, ["x", "z"]).results == [(OK, 1000), (ABSENT, 0)], "exists")
    check(a.put(["x", "x"], size=7, fill=5, verb=REPLACE).statuses == [OK, OK] and b.get(["x"], size=7).statuses == [OK], "replace")
    check(b.got(0, 7) == b"\6" * 7, "the second of two stays")
    check(b.call(REMOVE, ["x", "x", "y"]).statuses == [OK, ABSENT, OK] and a.call(EXISTS, ["x"]).statuses == [ABSENT], "remove")
    names = [f"n{at}" for at in range(2000)]
    check(a.put(names, size=100).statuses == [OK] * 2000 and b.get(names, size=100).statuses == [OK] * 2000, "2000 in a batch")
    check(all(b.got(at, 100) == bytes([(1 + at) % 256]) * 100 for at in range(2000)), "their bytes")
    check(a.stats()["store"]["connects"] == 1, "one connection is enough for one batch after the other")
    a.close()
    b.close()

    c = connect(server, {"key_prefix": "other:"}, data_bytes=200 << 20)
    check(c.call(EXISTS, ["n1"]).statuses == [ABSENT], "another prefix, another world")
    large = 60 << 20
    c.data[:large] = os.urandom(1 << 20) * 60
    check(c.call(PUT, [("large", [(0, 0, 1 << 20), (0, 1 << 20, large - (1 << 20))])]).statuses == [OK], "60 MiB in two pieces")
    check(c.call(GET, [("large", [(0, large + 1, 5), (0, large + 6, large - 5)])]).statuses == [OK], "and back in others")
    check(c.data[:large] == c.data[large + 1:2 * large + 1], "bytes")
    c.close()
    server.stop()


def too_large(folder):
    server = Server(folder)
    node = connect(server, {"object_bytes_max": "1MiB"}, data_bytes=2 << 20)
    check(node.call(PUT, [("a", [(0, 0, (1 << 20) + 1)]), ("b", [(0, 0, 1 << 20)])]).statuses == [TOO_LARGE, OK], "object_bytes_max")
    node.close()
    node = connect(server, data_bytes=1 << 20, arena_bytes=(512 << 20) + 1)
    check(node.call(PUT, [("a", [(1, 0, (512 << 20) + 1)])]).statuses == [TOO_LARGE], "a byte more than the protocol can say")
    node.close()
    server.stop()


def memory_limit(folder):
    server = Server(folder, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
    node = connect(server, data_bytes=16 << 20)
    names = [f"n{at}" for at in range(12)]
    statuses = node.put(names, size=1 << 20).statuses
    check(statuses[0] == OK and statuses[-1] == NO_ROOM and set(statuses) == {OK, NO_ROOM}, "a full server", statuses)
    check(node.get(names[:1], size=1 << 20).statuses == [OK], "what is there can be got")
    check(node.call(PUT, [("big", [(0, 0, 9 << 20)])]).statuses == [TOO_LARGE], "more than the server may ever hold")
    check(node.stats()["store"]["maxmemory"] == 8 << 20, node.stats())
    node.close()
    server.stop()
    server = Server(folder, "--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru")
    node = connect(server, data_bytes=16 << 20)
    check(node.put(names, size=1 << 20).statuses == [OK] * 12, "a server that evicts")
    found = node.call(EXISTS, names).statuses
    check(found[-1] == OK and ABSENT in found, "what was evicted is absent", found)
    node.close()
    server.stop()


def passwords(folder):
    server = Server(folder, "--requirepass", "se:c@ret", "--user", *"page on >other ~tiercel:* +get +set +strlen +unlink".split())
    at = f"127.0.0.1:{server.port}"
    for config in ({"url": f"redis://:se%3Ac%40ret@{at}"}, {"url": f"valkey://{at}/3", "password": "se:c@ret"},
                   {"url": f"valkey://page:other@{at}"}, {"host": "127.0.0.1", "port": server.port, "username": "page", "password": "other"}):
        node = Connector(PROGRAM, {**PATIENT, **config})
        check(node.hello.status == OK and node.put(["a"]).statuses == [OK], config, node.hello)
        check(node.get(["a"]).statuses == [OK] and node.call(EXISTS, ["a"]).statuses == [OK], config)
        check(node.put(["a"], verb=REPLACE).statuses == [OK] and node.call(REMOVE, ["a"]).statuses == [OK], config)
        node.put(["a"])
        node.close()
    node = Connector(PROGRAM, {"url": f"valkey://{at}", **PATIENT}, environment={"TIERCEL_VALKEY_PASSWORD": "se:c@ret"})
    check(node.hello.status == OK and node.get(["a"]).statuses == [OK], node.hello)
    node.close()
    refused(PROGRAM, {"url": f"valkey://{at}"}, INVALID, at, "NOAUTH")
    refused(PROGRAM, {"url": f"valkey://:wrong@{at}"}, INVALID, at, "WRONGPASS")
    refused(PROGRAM, {"url": f"valkey://:se%3Ac%40ret@{at}/99"}, INVALID, "out of range")
    server.stop()


def socket_file(folder):
    path = folder / "s"
    server = Server(folder, "--unixsocket", path)
    node = Connector(PROGRAM, {"unix_socket": str(path), **PATIENT})
    check(node.hello.status == OK and node.put(["a"]).statuses == [OK] and node.get(["a"]).statuses == [OK], node.hello)
    node.close()
    server.stop()


def certificate(folder):
    """An authority's file, a certificate and its key for 127.0.0.1, one day long."""
    made = run_program(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                           "-keyout", folder / "key", "-out", folder / "certificate", "-subj", "/CN=test", "-addext",
                           "subjectAltName=IP:127.0.0.1"], capture_output=True, timeout=60)
    check(made.returncode == 0, "openssl", made.stderr)
    return folder / "certificate", folder / "key"


def tls(folder):
    if not shutil.which("openssl"):
        left_out("1 case", "openssl is not installed")
        return
    chain, key = map(str, certificate(folder))
    server = Server(folder, "--tls-cert-file", chain, "--tls-key-file", key, "--tls-ca-cert-file", chain, "--tls-auth-clients", "optional", tls=True)
    url = f"valkeys://127.0.0.1:{server.port}"
    for config in ({"url": url, "tls_ca_file": chain}, {"url": url, "tls_verify": False},
                   {"url": url, "tls_ca_file": chain, "tls_cert_file": chain, "tls_key_file": key}):
        node = Connector(PROGRAM, {**PATIENT, **config}, data_bytes=4 << 20)
        check(node.hello.status == OK, config, node.hello)
        check(node.put(["a", "b"], size=1 << 20).statuses == [OK, OK] and node.get(["a", "b"], size=1 << 20).statuses == [OK, OK], config)
        check(node.got(1, 1 << 20) == b"\2" * (1 << 20), "bytes through TLS")
        node.close()
    refused(PROGRAM, {"url": url}, DOWN, "certificate")
    refused(PROGRAM, {"url": url, "tls_ca_file": chain, "tls_server_name": "elsewhere"}, DOWN, "certificate")
    refused(PROGRAM, {"url": url, "tls_ca_file": str(folder / "no file")}, INVALID, "tls_ca_file")
    refused(PROGRAM, {"url": f"valkey://127.0.0.1:{server.port}"}, DOWN, "127.0.0.1")
    server.stop()


def deaths(folder):
    """Killed, stopped, started again: outcomes within the limits, pings meanwhile, and it heals by itself."""
    server = Server(folder)
    node = connect(server, {"timeout_s": 3})
    node.put(["a"])
    server.stop(signal.SIGKILL)
    done = node.call(EXISTS, ["a"])
    check(done.status == DOWN and done.statuses == [DOWN] and str(server.port) in done.text, "a dead server", done)
    server.start()
    check(node.put(["a", "b"]).statuses == [OK, OK] and node.get(["a"]).statuses == [OK], "it is there again")
    server.stop(signal.SIGKILL)
    server.start()
    check(node.put(["a"]).statuses == [OK], "restarted between two batches: nobody notices")
    check(node.stats()["store"]["retries"] == 2, "once in vain, once not", node.stats())

    hang(server.process)
    hung = [node.ask(GET, [("a", [(0, 64 * at, 64)])]) for at in range(4)]
    short = node.ask(EXISTS, ["a"], deadline_s=0.2)
    check(node.pings(), "a ping while all workers wait for the server")
    for batch in hung:
        done = node.wait(batch)
        check(done and done.statuses == [DOWN] and done.seconds > 2.9, "a stopped server, after the time-out and long before the deadline", done)
    check(node.wait(short).statuses == [LATE], "the deadline goes first", node.wait(short))
    done = node.call(EXISTS, ["a"], deadline_s=0.2)
    check(done.statuses == [LATE], "a deadline below the time-out", done)
    server.process.send_signal(signal.SIGCONT)
    check(node.get(["a"]).statuses == [OK] and node.got(0) == b"\1" * 64, "it goes on")
    server.stop()
    status, said = node.close()
    check(status == 0 and said == "", "the end", status, said)
    refused(PROGRAM, {"url": f"valkey://127.0.0.1:{server.port}"}, DOWN, f"no server at 127.0.0.1:{server.port}")


def strange_answers():
    """A server that says nonsense of itself when it is asked how it is: what is not understood counts as not known, and it serves."""
    for told, room in ((b"$-1\r\n", 0), (b":7\r\n", 0), (b"$15\r\nmaxmemory:a lot\r\n", 0), (b"$19\r\nmaxmemory:123\r\n\xff\xfe:x\r\n", 123), (b"+\r\n", 0)):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            def serve(told=told, listening=listening):
                connection, _ = listening.accept()
                with connection:
                    while asked := connection.recv(4096):
                        connection.sendall(told if b"INFO" in asked else b":64\r\n")
            threading.Thread(target=serve, daemon=True).start()
            node = Connector(PROGRAM, {"host": "127.0.0.1", "port": listening.getsockname()[1], **PATIENT})
            if check(node.hello and node.hello.status == OK, told, node.hello):
                check(node.stats()["store"]["maxmemory"] == room and node.call(EXISTS, ["a"]).results == [(OK, 64)], told, node.stats())
            check(node.close()[0] == 0, told)


def options():
    for config, word in (({"url": "http://x"}, "valkey://"), ({"url": "valkey://x:99999"}, "port"), ({"url": "valkey://x/name"}, "database"),
                         ({"pasword": "x"}, "no option 'pasword'"), ({"username": "x"}, "'password'"), ({"timeout_s": "long"}, "seconds")):
        refused(PROGRAM, config, INVALID, word)


if __name__ == "__main__":
    run_cases((options, strange_answers))
    if server_program() is None:
        left_out("7 cases", NO_SERVER)
    else:
        for test in (objects, too_large, memory_limit, passwords, socket_file, tls, deaths):
            with tempfile.TemporaryDirectory() as name:
                run_cases((test,), Path(name))
    ends("connectors valkey")

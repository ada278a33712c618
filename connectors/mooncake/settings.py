"""How a Mooncake client is set up: the names and environment variables that users of SGLang's HiCache know, and a few of our own.

An option comes from the node's configuration; else, where that names no address, from the JSON file that
SGLANG_HICACHE_MOONCAKE_CONFIG_PATH names; else from the environment; else it has the default below.
"""

import ipaddress
import json
import os
import socket
import sys
import urllib.parse

from memory_socket import memory_socket
from tiercel_connector import BadOption, Down, Options

ENVIRONMENT = {
    "local_hostname": ("MOONCAKE_LOCAL_HOSTNAME", "LOCAL_HOSTNAME"),
    "metadata_server": ("MOONCAKE_TE_META_DATA_SERVER",),
    "global_segment_size": ("MOONCAKE_GLOBAL_SEGMENT_SIZE",),
    "protocol": ("MOONCAKE_PROTOCOL",),
    "device_name": ("MOONCAKE_DEVICE",),
    "master_server_address": ("MOONCAKE_MASTER",),
    "standalone_storage": ("MOONCAKE_STANDALONE_STORAGE",),
    "client_server_address": ("MOONCAKE_CLIENT",),
    "local_buffer_size": ("SGLANG_MOONCAKE_LOCAL_BUFFER_SIZE",),
    "tenant_id": (),
}
FILE = "SGLANG_HICACHE_MOONCAKE_CONFIG_PATH"
MASTER_PORT = 50051  # where an URL names none
# HiCache's, without a meaning here; a file that has them is not wrong.
UNUSED = ("master_metrics_port", "check_server", "enable_ssd_offload", "ssd_offload_path", "extra_backend_tag", "enable_group_semantics",
          "dfs_replica_num")


class Settings:
    """What was asked for, checked: the fields carry HiCache's names, sizes are bytes, times seconds."""

    def __init__(self, options, environment=None):
        environment = os.environ if environment is None else environment
        file = self._file(options, environment)
        read = lambda kind, name, default: self._first(kind, name, default, options, file, environment)
        master = (self._named_master(options, "the configuration") or self._named_master(file, f"the file that {FILE} names") or
                  read("text", "master_server_address", ""))
        self.client_server_address = read("text", "client_server_address", "")
        self.standalone_storage = read("flag", "standalone_storage", bool(self.client_server_address))
        self.master_server_address = master
        self.metadata_server = read("text", "metadata_server", "P2PHANDSHAKE")
        self.protocol = read("text", "protocol", "tcp")
        self.device_name = read("text", "device_name", "")
        # Memory is lent only where that was asked for; HiCache's default is 4gb.
        self.global_segment_size = read("size", "global_segment_size", 0)
        self.local_buffer_size = read("size", "local_buffer_size", 16 << 20)
        hostname = read("text", "local_hostname", "localhost")
        self.local_hostname = "127.0.0.1" if hostname == "localhost" else hostname
        self.tenant_id = read("text", "tenant_id", "default")
        options.count("workers", 4, 1, 64)  # read by whoever runs the connector; known to all who are given its configuration
        self.bounce_bytes = options.size("bounce_bytes", 256 << 20)
        self.rpc_timeout_s = options.seconds("rpc_timeout_s", 1.0, 0.05, 60.0)
        self.transfer_timeout_s = options.count("transfer_timeout_s", 2, 1, 60)
        self.probe_s = options.seconds("probe_s", 2.0, 0.05, 60.0)
        self._note_unused(options, file)
        options.refuse_others()
        file.refuse_others()
        self._check()

    @staticmethod
    def _file(options, environment):
        path = environment.get(FILE)
        if not path or any(options.raw(name) for name in ("master_server_address", "client_server_address", "url")):
            return Options({})
        try:
            with open(path, encoding="utf-8") as file:
                return Options(json.load(file), f"the file that {FILE} names")
        except (OSError, ValueError) as error:
            raise BadOption(f"{FILE}: {error}") from None

    @staticmethod
    def _first(kind, name, default, options, file, environment):
        """The option from the first place that has it; an empty text is as good as none. All places are asked, for what is known in one place is
        known in all of them, also where it does not count."""
        variables = {name: environment[variable] for variable in reversed(ENVIRONMENT[name]) if environment.get(variable)}
        having = [place for place in (options, file, Options(variables)) if place.raw(name) not in (None, "")]
        return getattr(having[0], kind)(name) if having else default

    @classmethod
    def _named_master(cls, place, where):
        """The master that 'url' or 'master_server_address' of one place names, '' where neither does. Both may be there where they agree."""
        url, address = cls._from_url(place.text("url", "")), place.text("master_server_address", "")
        if url and address and url != (address if ":" in address else f"{address}:{MASTER_PORT}"):
            raise BadOption(f"options 'url' and 'master_server_address' of {where}: wanted one master, got '{url}' and '{address}'; "
                            "leave one of the two out")
        return url or address

    @staticmethod
    def _from_url(text):
        url = urllib.parse.urlsplit(text)
        if text and (url.scheme != "mooncake" or not url.netloc or url.path.strip("/")):
            raise BadOption(f"option 'url': wanted mooncake://HOST:PORT of the master, got '{text}'")
        return url.netloc if ":" in url.netloc or not text else f"{url.netloc}:{MASTER_PORT}"

    @staticmethod
    def _note_unused(options, file):
        for place in (options, file):
            unused = [name for name in UNUSED if place.raw(name) is not None]
            if unused:
                print(f"connector: mooncake: not used here: {', '.join(unused)}", file=sys.stderr, flush=True)

    def _check(self):
        if self.standalone_storage:
            if not self.client_server_address:
                raise BadOption("option 'standalone_storage' needs 'client_server_address' (or MOONCAKE_CLIENT): HOST:PORT of the "
                                "mooncake_client on this machine")
        elif not self.master_server_address:
            raise BadOption("option 'master_server_address' is missing (or 'url', or MOONCAKE_MASTER): HOST:PORT of the master")
        if self.protocol not in ("tcp", "rdma"):
            raise BadOption(f"option 'protocol': wanted tcp or rdma, got '{self.protocol}'")

    # ---- what is done with it ----

    def prepare_environment(self, environment=None):
        """To be called before the library is imported: it reads these once. What the user has set stays."""
        environment = os.environ if environment is None else environment
        for name, value in (
                ("MC_TCP_ENABLE_CONNECTION_POOL", "1"),  # else a connection a request
                ("MC_TCP_STATUS_TIMEOUT_SEC", str(self.transfer_timeout_s)),  # 30 by default: a peer that hangs
                ("MC_TCP_PROGRESS_TIMEOUT_SEC", str(self.transfer_timeout_s)),
                ("MC_RPC_TIMEOUT_MS", str(int(self.rpc_timeout_s * 1000))),  # 30 s by default: a master that hangs
                ("MC_STORE_CLIENT_SETUP_RETRIES", "1"),  # 20 by default: a minute and a half without a master
                ("MC_TCP_BIND_ADDRESS", self._numeric_address()),  # what is published where there is a metadata server
                ("MC_LOG_LEVEL", "ERROR")):
            if value:
                environment.setdefault(name, value)

    def refuse_unreachable(self):
        """Raises Down with the address that does not answer: the library would say -1 after four to thirty seconds, in which
        nothing else in this process moves (its set-up keeps the interpreter's lock)."""
        if self.standalone_storage:
            _connect("mooncake_client", self.client_server_address, "client_server_address")
            _connect_beside(self.client_server_address)
            return
        if "://" not in self.master_server_address:  # with etcd:// or redis:// the library looks for the master itself
            _connect("master", self.master_server_address, "master_server_address")
        url = urllib.parse.urlsplit(self.metadata_server)
        if url.scheme == "http":
            _connect("metadata server", f"{url.hostname}:{url.port or 80}", "metadata_server")

    def _numeric_address(self):
        try:
            return str(ipaddress.ip_address(socket.gethostbyname(self.local_hostname.split(":")[0])))
        except (OSError, ValueError):
            return ""


def _connect_beside(address):
    name = memory_socket(address.rpartition(":")[2])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as beside:
        beside.settimeout(2.0)
        try:
            beside.connect(name)
        except OSError as error:
            raise Down(f"what listens at {address} is no mooncake_client of this machine: no socket {name[1:]} ({error})") from None


def _connect(what, address, option):
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadOption(f"option '{option}': wanted HOST:PORT, got '{address}'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 2.0).close()
    except (OSError, OverflowError) as error:
        raise Down(f"no {what} answers at {address} ({error}); option '{option}'") from None

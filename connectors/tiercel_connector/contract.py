"""The numbers of include/tiercel/connector.h, and what its comments say about names: nothing here has a life of its own.

Little-endian throughout; the structs' paddings are spelt out, so that the sizes below are those of the C structs.
"""

import enum
import re
import struct

VERSION = 1
MAGIC = 0x4E4E4F4352454954
ITEMS_MAX = 4096
SEGMENTS_MAX = 65536
TEXT_BYTES_MAX = 4096

NAME_BYTES_MAX = 120
NAME = re.compile(rb"[0-9A-Za-z._-]{1,120}")
NAMES = re.compile(rb"[0-9A-Za-z._-]+")  # one behind the other

# magic, version, header_bytes, total_bytes, then offset and bytes of the request ring, the completion ring and the data.
EXCHANGE = struct.Struct("<QIIQQQQQQQ")
REQUEST_TAIL, REQUEST_HEAD, COMPLETION_TAIL, COMPLETION_HEAD, HEADER_END = 128, 192, 256, 320, 384

MESSAGE = struct.Struct("<IHH")  # how every message begins, also a filler: bytes, verb, reserved
REQUEST = struct.Struct("<IHHQQII")  # bytes, verb, reserved, batch, deadline_ns, items, segments
ITEM = struct.Struct("<IIII")  # name_offset, name_bytes, first_segment, segments
SEGMENT = struct.Struct("<IIQQ")  # region, reserved, offset, length
COMPLETION = struct.Struct("<IHHQiIII")  # bytes, verb, reserved, batch, status, text_bytes, items, reserved
RESULT = struct.Struct("<iIQ")  # status, reserved, bytes


class Verb(enum.IntEnum):
    FILLER = 0
    EXISTS = 1
    GET = 2
    PUT = 3
    REMOVE = 4
    STATS = 5
    PING = 6
    CANCEL = 7
    REPLACE = 8
    HELLO = 16
    DONE = 17


class Status(enum.IntEnum):
    OK = 0
    ABSENT = 1
    WRONG_SIZE = 2
    NO_ROOM = 3
    TOO_LARGE = 4
    INVALID = 5
    FAILED = 6
    DOWN = 7
    LATE = 8
    CANCELLED = 9


class Nonsense(Exception):
    """The other side of the exchange broke the contract: what follows on the ring means nothing, the process ends."""

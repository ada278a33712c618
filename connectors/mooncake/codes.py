"""What Mooncake's library answers with, and what each of its codes means for an object.

Threads: any.
"""

from tiercel_connector import Status

PROBE = "tiercel.probe"  # never stored: asking for what is absent grants no lease
CALL_BYTES = 64 << 20  # between calls a batch's deadline is looked at
CALL_PIECES = 1024  # of several thousand in one call the library's queues to a peer drop those beyond 2048: their objects fail
RESULT_MAX = (1 << 31) - 1  # the multi-buffer calls answer with 32 bits
DOWN_CODES = (-900, -901)  # the master does not answer; does not answer in time
# No codes of the library's: it answered something else than a code for each name; it has not answered.
NONSENSE, NO_ANSWER = -1 << 40, -1 << 41
STATUSES = {
    -1: Status.FAILED,  # a dummy client's word for every error of a look-up
    -200: Status.NO_ROOM, -1700: Status.NO_ROOM, -1701: Status.NO_ROOM, -1702: Status.NO_ROOM,  # the cluster's memory; a tenant's share
    -600: Status.INVALID,
    -703: Status.ABSENT,  # still being written
    -704: Status.ABSENT,
    -706: Status.FAILED, -707: Status.FAILED, -708: Status.FAILED, -714: Status.FAILED,  # leased, its lease is over, being copied, in use
    -800: Status.FAILED,  # the peer that has it, or was to have it: its own affair, and the master's
    -900: Status.DOWN, -901: Status.DOWN,
    NO_ANSWER: Status.LATE,
}


def status_of(code):
    return Status.OK if code >= 0 else STATUSES.get(code, Status.FAILED)


def are_codes(answer, names):
    """Whether it is a code for each name."""
    return isinstance(answer, list) and len(answer) == len(names) and all(isinstance(code, int) for code in answer)


def is_size(answer):
    """Whether it is an object's size: absent ones have a negative one, and what is no number is none."""
    return isinstance(answer, int) and not isinstance(answer, bool) and answer >= 0

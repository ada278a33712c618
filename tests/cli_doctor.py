#!/usr/bin/env python3
"""`tiercel doctor` as a user meets it: the shape of its answers, exit status, that it leaves nothing behind, and what it says in a process
that lacks something: a plain user, a limit, a seccomp filter.

Called with the folder of the built programs. What each lack means is tested in src/os.
"""

import ctypes
import json
import os
import platform
import pty
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import FAILURES, check, check_refused

SOURCE = Path(__file__).resolve().parent.parent
GUIDE = (SOURCE / "docs" / "guide" / "doctor.md").read_text()
NOBODY = 65534
STATES = {"ok", "note", "lack", "missing"}


def doctor(*arguments, **options):
    done = subprocess.run([PROGRAM, "doctor", *map(str, arguments)], capture_output=True, timeout=60, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def checks_of(*arguments, status=0, **options):
    """The checks of a run that must end so; those with which any run must agree are looked at here."""
    code, out, err = doctor("--json", *arguments, **options)
    check(code == status, arguments, "exit status", code, err)
    check(out.count("\n") == 1, "not one line:", out)
    report = json.loads(out)
    check(report["ready"] == (status == 0), "ready:", report["ready"])
    for name, entry in report["checks"].items():
        check(entry["state"] in STATES and entry["text"], name, entry)
        check((entry["remedy"] is not None) == (entry["state"] in ("lack", "missing")), "remedy of", name, entry)
    missing = [name for name, entry in report["checks"].items() if entry["state"] == "missing"]
    check(bool(missing) == (status == 1), "missing:", missing)
    if missing:
        check(err.startswith(f"tiercel doctor: {missing[0]}: ") and err.count("\n") == 1, "stderr:", repr(err))
    else:
        check(err == "", "stderr:", err)
    return report["checks"]


def check_shape(folder):
    checks = checks_of("--path", folder)
    check(os.listdir(folder) == [], "left behind:", os.listdir(folder))
    check(checks["o_direct"]["path"] == os.path.realpath(folder), "path:", checks["o_direct"]["path"])
    check(checks_of(cwd=folder)["o_direct"]["path"] == os.path.realpath(folder), "the current folder is the default")

    code, out, err = doctor("--path", folder)
    check(code == 0 and err == "" and "\x1b" not in out, "text:", code, err)
    lines = out.splitlines()
    named = [line.split()[1] for line in lines[1:-1] if line.split()[0] in STATES]
    check(named == list(checks), "each check has a line, in the same order:", named)
    remedies = [line for line in lines if line.lstrip().startswith("-> ")]
    check(len(remedies) == sum(entry["remedy"] is not None for entry in checks.values()), "remedies:", remedies)
    check(lines[-1].startswith("Everything"), "last line:", lines[-1])
    code, out, err = doctor("--help")
    check(code == 0 and "Examples:" in out and "Exit status:" in out and err == "", "--help:", out)


def check_guide():
    """Every name that programs see stands in the guide, and every check of its table is there."""
    code, out, _ = doctor("--json")
    report = json.loads(out)
    for name in report:
        check(f"`{name}`" in GUIDE, "the guide does not name", name)
    for name, entry in report["checks"].items():
        rows = [line for line in GUIDE.splitlines() if line.startswith(f"| `{name}` |")]
        check(len(rows) == 1, "rows of the guide for", name, rows)
        for field in entry:
            check(field in ("state", "text", "remedy") or any(f"`{field}`" in row for row in rows), "the guide's", name, "lacks", field)
    known = [line.split("`")[1] for line in GUIDE.splitlines() if line.startswith("| `") and not line.startswith("| `--")]
    check([name for name in known if name in report["checks"]] == list(report["checks"]), "order of the guide:", known)


def refused(word, *arguments):
    check_refused(doctor(*arguments), 2, [word], "tiercel doctor: ", arguments)


def check_refusals(folder):
    (folder / "file").write_text("x")
    refused("nowhere", "--path", folder / "nowhere")
    refused("file", "--path", folder / "file")
    refused("--path", "--path")
    refused("--fast", "--fast")
    refused("argument", "argument")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, "doctor"], stdout=full, stderr=subprocess.PIPE, timeout=60)
        check(done.returncode == 1 and b"standard output" in done.stderr, "a full disk:", done.returncode, done.stderr)


def check_colours():
    outer, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen([PROGRAM, "doctor"], stdout=inner, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(inner)
        text = b""
        while True:
            try:
                part = os.read(outer, 65536)
            except OSError:  # the other end is closed
                part = b""
            if not part:
                break
            text += part
    os.close(outer)
    check(process.returncode == 0 and b"\x1b[3" in text, "colours on a terminal:", process.returncode, text)


def check_limits():
    def no_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    # No file may have a byte, a memfd neither: needed, and missing.
    checks = checks_of(status=1, preexec_fn=no_files)
    check(checks["memfd"]["state"] == "missing" and "ulimit -f" in (checks["memfd"]["remedy"] or ""), "memfd:", checks["memfd"])
    check(checks["o_direct"]["state"] == "lack", "o_direct:", checks["o_direct"])
    code, out, err = doctor(preexec_fn=no_files)
    check(code == 1 and "missing  memfd" in out and out.endswith("cannot run here: see what is missing.\n"), "text:", code, out, err)


def check_plain_user(folder):
    """Not root, 64 KiB of locked memory, and a folder that is not its own."""
    if os.geteuid() != 0:
        print("skipped: 1 case, a plain user: needs root to become one")
        return
    def limited():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    options = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/", "preexec_fn": limited}
    try:
        subprocess.run([PROGRAM, "--version"], capture_output=True, timeout=60, check=True, **options)
    except (OSError, subprocess.CalledProcessError) as failure:
        print("skipped: 1 case, a plain user: it cannot run the program:", failure)
        return
    os.chmod(folder.parent, 0o755)
    os.chmod(folder, 0o755)
    checks = checks_of("--path", folder, **options)
    lock, direct = checks["memlock"], checks["o_direct"]
    check(lock["state"] == "lack" and lock["soft_bytes"] == 65536 and lock["passes_limit"] is False, "memlock:", lock)
    check(f"user {NOBODY}" in lock["text"] and "ulimit -l" in (lock["remedy"] or ""), "memlock:", lock)
    check(direct["state"] == "lack" and "may write" in (direct["remedy"] or ""), "o_direct:", direct)
    check(checks["memfd"]["state"] == "ok" and checks["huge_shared"]["by_hugetlb"] is not None, "memfd:", checks["memfd"])


def filtered(numbers):
    """Answers EPERM to the system calls of these numbers, as the seccomp profile of a container does."""
    def block(code, yes, no, value):
        return code.to_bytes(2, "little") + bytes([yes, no]) + value.to_bytes(4, "little")

    program = block(0x20, 0, 0, 0)  # load the number
    for number in numbers:
        program += block(0x15, 0, 1, number) + block(0x06, 0, 0, 0x00050000 | 1)
    program += block(0x06, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    whole = Program(len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)

    def install():
        if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.byref(whole), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no seccomp filter")
    install.keep = code
    return install


def check_seccomp():
    memfd = {"x86_64": 319, "aarch64": 279}.get(platform.machine())
    if memfd is None:
        print("skipped: 2 cases, seccomp: the numbers of system calls are not known for", platform.machine())
        return
    io_uring, pidfd = 425, 434
    try:
        subprocess.run([PROGRAM, "--version"], capture_output=True, timeout=60, check=True, preexec_fn=filtered([io_uring]))
    except subprocess.SubprocessError as failure:
        print("skipped: 2 cases, seccomp: a filter cannot be set:", failure)
        return
    checks = checks_of(preexec_fn=filtered([io_uring, pidfd]))
    check(checks["pidfd"]["state"] == "lack" and "seccomp" in (checks["pidfd"]["remedy"] or ""), "pidfd:", checks["pidfd"])
    ring = checks["io_uring"]
    # The sysctl speaks first, whatever the filter says.
    wanted = "seccomp" if read_number("/proc/sys/kernel/io_uring_disabled") == 0 else ring["refused_by"]
    check(ring["state"] == "lack" and ring["refused_by"] == wanted and ring["works"] is False, "io_uring:", ring)

    checks = checks_of(status=1, preexec_fn=filtered([memfd]))
    check("memfd_create" in checks["memfd"]["text"] and "seccomp" in (checks["memfd"]["remedy"] or ""), "memfd:", checks["memfd"])


def read_number(path):
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0


def main():
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / each for each in ("shape", "refusals", "plain")]
        for folder in folders:
            folder.mkdir()
        check_shape(folders[0])
        check_guide()
        check_refusals(folders[1])
        check_colours()
        check_limits()
        check_plain_user(folders[2])
        check_seccomp()
    print(f"{len(FAILURES)} failures" if FAILURES else "doctor: all as the contract says")
    return 1 if FAILURES else 0


PROGRAM = os.path.abspath(os.path.join(sys.argv[1], "tiercel"))
sys.exit(main())

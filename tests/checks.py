"""What the tests in Python share: checks that are counted, cases, refusals in one line, and programs that are gone when the test is.

Waits are long, for the machine may be busy: only what does not come at all takes PATIENCE_S. What is checked are outcomes and counts, not times.
"""

import atexit
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PATIENCE_S = 60
SKIPPED = 77  # the exit status that ctest knows as "Skipped"
PR_SET_PDEATHSIG = 1
FAILURES = []
STARTED = []
LEFT_OUT = []
LIBC = ctypes.CDLL(None)


def check(condition, *what):
    if not condition:
        FAILURES.append(" ".join(map(str, what)))
        print("FAILED:", *what, flush=True)
    return bool(condition)


def left_out(what, why):
    """Says that something of the test cannot run here: it then ends as skipped, unless a check fails."""
    LEFT_OUT.append(what)
    print(f"skipped: {what}, {why}", flush=True)


def ends(name):
    """The last line of a test, and its exit status."""
    if FAILURES:
        sys.exit(f"{len(FAILURES)} checks failed")
    if LEFT_OUT:
        print(f"{name}: all checks of the rest passed; left out: {'; '.join(LEFT_OUT)}", flush=True)
        sys.exit(SKIPPED)
    print(f"{name}: all checks passed")


def run_cases(cases, *arguments, suffix=""):
    """Each case with the arguments; how long it took is printed, for people."""
    for case in cases:
        began = time.monotonic()
        case(*arguments)
        print(f"{case.__name__}{suffix}: {time.monotonic() - began:.1f} s", flush=True)


def ends_with(parent, more=None):
    """For a child, before its program begins: it is killed when this test is, even by SIGKILL, and even while it is stopped. `more`: to be
    called there, too."""
    def prepare():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # gone already
            os._exit(1)
        if more:
            more()
    return prepare


def start_program(arguments, preexec_fn=None, **more):
    """A process that is gone when the test is, however it ends."""
    child = subprocess.Popen(list(map(str, arguments)), preexec_fn=ends_with(os.getpid(), preexec_fn), **more)
    STARTED.append(child)
    return child


def run_program(arguments, **more):
    """subprocess.run of a program that is gone when the test is, however it ends."""
    return subprocess.run(list(map(str, arguments)), preexec_fn=ends_with(os.getpid()), **more)


def read_line(child, what, patience_s=PATIENCE_S):
    """The next line that the child writes to its standard output, a pipe that nothing else reads. Ends the test when none comes."""
    line, fd, until = b"", child.stdout.fileno(), time.monotonic() + patience_s
    while not line.endswith(b"\n"):
        if not select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
            raise SystemExit(f"{what}: no answer within {patience_s} s")
        byte = os.read(fd, 1)  # one by one: what comes behind the line is the next one's
        if not byte:
            raise SystemExit(f"{what}: it ended with {child.wait()} instead of an answer")
        line += byte
    return line.decode()


def stop_program(child, number=signal.SIGTERM, patience_s=PATIENCE_S):
    """Ends a process that start_program has started; returns its exit status."""
    if child.poll() is None:
        child.send_signal(signal.SIGCONT)
        child.send_signal(number)
        try:
            child.wait(patience_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return child.returncode


def hang(child):
    """Stops a process that start_program has started; all of its threads stand when this returns. SIGCONT lets it go on."""
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


@atexit.register
def _stop_all():
    for child in STARTED:
        if child.poll() is None:
            child.kill()
            child.wait()


def wait_for(condition, patience_s=PATIENCE_S):
    """Whether the condition came true in time."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return False


def check_refused(result, status, words, begins, what):
    """A command that says in one line on standard error why it does not do it, with these words, and nothing on standard output. `result`: its
    exit status, output and error. Returns the line."""
    code, out, err = result
    check(code == status, what, "exit status", code, err)
    check(out == "", what, "left on stdout:", out)
    check(err.count("\n") == 1 and err.endswith("\n") and err.startswith(begins), what, "stderr is not one line:", repr(err))
    for word in words:
        check(word in err, what, "is not named:", word, "in", repr(err))
    return err

#!/usr/bin/env python3
"""`tiercel replay` as a user meets it: options, exit status, what is on stdout, and the sums of contract section 9.

Called with the folder of the built programs. The numbers themselves are tested in src/trace; this is the contract around it.
"""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from checks import check, check_refused, ends, start_program

SOURCE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tools"))
import compare_replays
HYBRID = SOURCE / "examples" / "specs" / "hybrid.json"


def replay(*arguments, stdin=b""):
    done = subprocess.run([PROGRAM, "replay", *map(str, arguments)], input=stdin, capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(status, word, *arguments, stdin=b""):
    check_refused(replay(*arguments, stdin=stdin), status, [word], "tiercel replay: ", arguments)


def good(*arguments, stdin=b""):
    """The JSON of a replay that must succeed, its sums checked."""
    code, out, err = replay("--json", "--page-bytes", "64", *arguments, stdin=stdin)
    check(code == 0 and err == "" and out.count("\n") == 1, arguments, "exit status", code, err)
    got = json.loads(out) if code == 0 else {}
    if got:
        check(got["hit_pages"] + sum(got["missed"].values()) == got["pages"], arguments, "misses do not add up", got)
        check(got["stored_pages"] - got["evicted_pages"] == got["resident_pages"], arguments, "pages do not add up", got)
        check(got["verified_pages"] == got["hit_pages"] and got["corrupt_pages"] == 0, arguments, "not all verified", got)
        check("unknown_past" not in got["missed"], arguments, "the history forgot", got)
    return got


def line(time, tokens, ids):
    return json.dumps({"timestamp": time, "input_length": tokens, "output_length": 1, "hash_ids": ids}).encode() + b"\n"


def usage():
    for word, *arguments in (
            ("--policy", "--policy", "fifo"),
            ("--snapshots", "--spec", HYBRID, "--snapshots", "sometimes"),
            ("--snapshots", "--snapshots", "end"),
            ("--snapshot-every", "--snapshot-every", "4"),
            ("--snapshot-budget", "--spec", HYBRID, "--snapshot-budget", "4"),
            ("branch", "--spec", SOURCE / "examples/specs/state.json", "--snapshots", "branch"),
            ("--config", "--spec", HYBRID, "--config", HYBRID),
            ("--config", "--tp", "2"),
            ("--generate", "--generate", "conversation", "--trace", "x"),
            ("--generate", "--generate", "chat"),
            ("--capacity-pages: wanted", "--capacity-pages", "0"),
            ("--host-bytes must be at least 1", "--host-bytes", "0"),
            ("--host-bytes must be at least 1", "--host-bytes", "0GiB"),
            ("--tp: wanted an integer from 1 to 65535", "--config", "no-such-file", "--tp", "0"),
            ("--dtype: wanted bf16", "--config", "no-such-file", "--dtype", "int4"),
            ("--state-dtype: wanted bf16", "--config", "no-such-file", "--state-dtype", "int4"),
            ("--tp: this file is a spec", "--spec", HYBRID, "--tp", "2"),
            ("--host-bytes", "--host-bytes", "many"),
            ("--host-bytes", "--host-bytes", "1GiB", "--capacity-pages", "4"),
            ("--page-bytes", "--page-bytes", "0"),
            ("--no-such-option", "--no-such-option")):
        refused(2, word, *arguments)


def traces():
    two = line(0, 1000, [0, 1]) + line(5, 1536, [0, 1, 2])
    got = good("--trace", "-", stdin=two)
    check((got["requests"], got["pages"], got["hit_pages"]) == (2, 5, 2), got)
    check(got["missed"] == {"never_stored": 3}, got)
    check(got["tokens"] == 2536 and got["hit_tokens"] == 1024, got)
    whole = good("--trace", "-", stdin=line(0, 1000, [0, 1]) * 2)
    check(whole["hit_tokens"] == 1000, "a request's last block counts its remainder", whole)
    check(good("--trace", "-", stdin=line(0, 0, []))["pages"] == 0, "a request without a page is one")

    refused(1, "trace standard input: wanted at least one request", "--trace", "-")
    refused(1, "it is empty", "--trace", "/dev/null", "--json")
    refused(1, "it is empty", "--trace", "-", "--skip-bad", stdin=b"\n \r\n")
    refused(1, "all of its 2 lines are damaged", "--trace", "-", "--skip-bad", stdin=b"nonsense\n{}\n")
    refused(1, "line 1", "--trace", "-", stdin=b"nonsense\n{}\n")
    refused(1, "line 3", "--trace", "-", stdin=two + b"nonsense\n" + two)
    refused(1, "line 1", "--trace", "-", "--json", stdin=line(0, 1000, [0]))
    skipped = good("--trace", "-", "--skip-bad", stdin=two + b"nonsense\n\x00\n" + line(9, 10, [-1]) + line(9, 512, [0]))
    check((skipped["skipped_lines"], skipped["requests"], skipped["hit_pages"]) == (3, 3, 3), skipped)
    refused(1, "no-such-file", "--trace", "no-such-file")
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(two.replace(b"\n", b"\r\n"))
        file.flush()
        check(good("--trace", file.name)["hit_pages"] == 2, "a trace with CRLF in a file")


def models():
    unlimited = good("--generate", "conversation:300")
    for model in ("full", "full_window", "window", "state", "full_state", "every_kind", "opaque", "hybrid"):
        got = good("--generate", "conversation:300", "--spec", SOURCE / f"examples/specs/{model}.json")
        check(0 < got["hit_pages"] <= unlimited["hit_pages"], model, got)
    check(good("--generate", "conversation:300", "--spec", SOURCE / "examples/specs/full_window.json")["hit_pages"] ==
          unlimited["hit_pages"], "with windows every page keeps them")
    hybrid = good("--generate", "conversation:300", "--spec", HYBRID, "--snapshots", "branch", "--snapshot-every", "16",
                  "--host-bytes", "2GiB", "--policy", "value", "--bound")
    check(hybrid["peak_bytes"] <= 2 << 30, hybrid)
    check(hybrid["hit_pages"] <= hybrid["bound_hit_pages"] <= unlimited["hit_pages"], hybrid)
    few = good("--generate", "synthetic:100:4", "--capacity-pages", "10")
    check(few["resident_pages"] <= 10 and few["missed"].get("not_admitted(no_room)", 0) > 0, few)


def huge():
    """A model that no memory holds is refused before anything is done for it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        def model(layers, size):
            file.seek(0)
            file.truncate()
            components = [{"name": "record", "opaque_bytes": size}]
            json.dump({"tiercel_spec": 1, "model_type": "huge", "page_tokens": 512, "groups": [
                {"kind": "full", "layers": [[0, layers - 1]], "components": components}]}, file)
            file.flush()
            return "--spec", file.name
        two = line(0, 1024, [0, 1])
        for layers, size in ((1, 300 << 40), (10_000, 30 << 30), (1, 1 << 62)):
            refused(1, "model huge, class full: a record has", "--trace", "-", *model(layers, size), stdin=two)
        refused(1, "a replay takes at most 268435456", "--generate", "synthetic:2000", *model(1, 30 << 30))
        got = good("--trace", "-", *model(1, 30 << 30), stdin=two * 2)
        check((got["hit_pages"], got["peak_bytes"]) == (2, 60 << 30), "30 GiB a page", got)


def full_disk():
    """What cannot be printed is no success."""
    for arguments in (["--help"], ["--version"], ["replay", "--help"], ["inspect", "--help"], ["inspect", HYBRID],
                      ["replay", "--generate", "synthetic:20"], ["replay", "--generate", "synthetic:20", "--json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, timeout=120)
        err = done.stderr.decode()
        check(done.returncode == 1 and err.count("\n") == 1 and "standard output cannot be written: No space" in err,
              arguments, "> /dev/full:", done.returncode, err)
    help_text = subprocess.run([PROGRAM, "replay", "--help"], capture_output=True, text=True)
    check(help_text.returncode == 0 and "--page-bytes" in help_text.stdout and "at most the record's own" in help_text.stdout,
          "--help:", help_text)


def little_memory():
    """One line, whatever is asked of too little memory."""
    def limited(*arguments):
        limit = 100 << 20
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    if limited("--version").returncode != 0:
        print("skipped: 1 case, this build (a sanitized one) does not start in 100 MiB of addresses")
        return
    done = limited("replay", "--generate", "conversation:3000", "--page-bytes", "64KiB")
    check(done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and
          done.stderr.startswith("tiercel replay: out of memory: "), "in 100 MiB:", done)


def interrupted():
    """Ctrl-C in the middle of a replay: as soon as the bar is seen on the terminal."""
    master, terminal = pty.openpty()
    run = start_program([PROGRAM, "replay", "--generate", "conversation:40000"], stdout=subprocess.PIPE, stderr=terminal,
                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    os.close(terminal)
    seen = b""
    while b"requests" not in seen:
        seen += os.read(master, 4096)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=120)
    try:
        while more := os.read(master, 4096):
            seen += more
    except OSError:  # the last writer has closed it
        pass
    os.close(master)
    last = seen.decode().replace("\r\n", "\n").split("\033[K")[-1]
    check(run.returncode == 130 and out == b"" and last == "tiercel replay: interrupted, so there is no result\n",
          "interrupted:", run.returncode, out, repr(last))


def text():
    code, out, err = replay("--generate", "synthetic:50", "--spec", HYBRID)
    check(code == 0 and err == "", "a quiet terminal-less run", err)
    for word in ("hit ratio", "never_stored", "snapshots", "verified"):
        check(word in out, word, "is not in", out)
    check("\033" not in out and "\r" not in out, "no colours and no bar in a pipe")


def pictures():
    """What `make run` runs after its first replay, on a small trace; and the pictures from its results."""
    with tempfile.TemporaryDirectory() as out:
        run = subprocess.run([sys.executable, SOURCE / "tools/compare_replays.py", "--program", PROGRAM, "--spec", HYBRID,
                              "--generate", "conversation:150", "--sizes", "20", "--beside", "none", "--out", out],
                             capture_output=True, text=True, timeout=600)
        check(run.returncode == 0, "compare_replays:", run.stderr)
        for word in ("full-attention bound", "advice, at most", "branch+64", " 0 corrupt"):
            check(word in run.stdout, word, "is not in what compare_replays printed")
        run = subprocess.run([sys.executable, SOURCE / "tools/plot_replay.py", Path(out) / "results.json", out],
                             capture_output=True, text=True, timeout=60)
        check(run.returncode == 0, "plot_replay:", run.stderr)
        for name in ("hit_ratio_by_bytes", "hit_ratio_by_snapshots"):
            picture = xml.etree.ElementTree.parse(Path(out) / f"{name}.svg").getroot()
            svg = "{http://www.w3.org/2000/svg}"
            check(len(list(picture.iter(svg + "polyline"))) >= 1, name, "has no curve")
            check([page.get("class") for page in picture.iter(svg + "rect")] == ["page"], name, "has no background")
            check(any("trace generated conversation:150: 150 requests" in (text.text or "") for text in picture.iter(svg + "text")),
                  name, "does not name its trace")
    results = [{"snapshots_made": made, "hit_pages": hits} for made, hits in ((5, 9), (8, 9), (8, 9), (8, 9))]
    rows = [name for name, _ in compare_replays.advice_rows([5, 10, 20, 40], results)]
    check(rows == ["advice, at most 5", "advice, at most 10 or more"], "budgets that do not bind have one row:", rows)


if __name__ == "__main__":
    PROGRAM = str(Path(sys.argv[1]) / "tiercel")
    for part in (usage, traces, models, huge, full_disk, little_memory, interrupted, text, pictures):
        part()
    ends("replay")

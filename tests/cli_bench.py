#!/usr/bin/env python3
"""`tiercel bench` as a user meets it: names, exit status, and the shape of its lines. Never a time: --quick measures nothing.

Called with the folder of the built programs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import FAILURES, check, check_refused


def bench(*arguments):
    done = subprocess.run([PROGRAM, "bench", *arguments], capture_output=True, timeout=500)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(word, *arguments):
    check_refused(bench(*arguments), 2, [word], "tiercel bench: ", arguments)


def names():
    code, out, err = bench("--list")
    check(code == 0 and err == "", "--list:", code, err)
    listed = [line.split()[0] for line in out.splitlines()]
    check(listed and len(listed) == len(set(listed)), "--list:", out)
    refused('there is no bench "nothing"; there are ' + ", ".join(listed), "nothing")
    refused("no bench", listed[0], "nothing")
    refused("--fast", "--fast")
    return listed


def lines(listed):
    code, out, err = bench("--quick", "--json")
    check(code == 0 and err == "" and out.count("\n") == 1, "--quick --json:", code, err)
    got = json.loads(out)
    check(set(got) == {"processor", "cores", "quick", "lines"} and got["quick"] is True, "keys:", list(got))
    check(list(dict.fromkeys(line["bench"] for line in got["lines"])) == listed, "not every bench has a line")
    for line in got["lines"]:
        check({"bench", "name", "unit", "ours", "operations", "bytes"} <= set(line), "a key is missing:", line)
        check(line["ours"] > 0 and ("limit" in line) == ("ratio" in line) == ("limit_name" in line), "limit:", line)
        check(("peer" in line) == ("ratio_to_peer" in line) == ("peer_name" in line), "peer:", line)


def table(listed):
    name = listed[-1]
    code, out, err = bench("--quick", name, name)
    check(code == 0 and err == "", name, code, err)
    check(sum(line.split()[:1] == [name] and "ours" in line for line in out.splitlines()) == 1, "headings:", out)
    check("\033" not in out, "colours in a pipe")
    code, out, err = bench("--help")
    check(code == 0 and "tiercel bench hash get" in out, "--help:", out)


def models():
    tensors = [{"name": name, "shape": [2, 4], "dtype": "bf16"} for name in "kv"]
    spec = {"tiercel_spec": 1, "model_type": "m", "page_tokens": 64,
            "groups": [{"kind": "full", "layers": [0, 3], "components": tensors}]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small.json").write_text(json.dumps(spec))
        (Path(folder) / "other.json").write_text("[]")
        for option, where in ("--model", f"{folder}/small.json"), ("--models", folder):
            code, out, err = bench("--quick", "--json", "copy", option, where)
            passed_over = option == "--models"
            check(code == 0 and err.count("\n") == passed_over and ("other.json" in err) == passed_over, option, code, err)
            got = [line["name"] for line in json.loads(out)["lines"]] if code == 0 else []
            check("small: page_first to layer_first" in got and all(name.startswith("small: ") for name in got), option, got)
        refused("other.json", "--quick", "copy", "--model", f"{folder}/other.json")
        refused("nowhere", "--quick", "copy", "--models", f"{folder}/nowhere")
        (Path(folder) / "small.json").unlink()
        code, out, err = bench("--quick", "copy", "--models", folder)
        check(code == 2 and out == "" and "describes a model" in err, "a folder without models:", code, err)


def remote():
    """A folder as the store: every line, and nothing of ours left in it but folders."""
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = bench("--quick", "--json", "remote", "--remote", f"posix:{folder}/store", "--path", folder)
        got = {line["name"]: line for line in json.loads(out)["lines"]} if code == 0 else {}
        check(code == 0 and err == "", "remote:", code, err)
        for name in "posix get 1 x 4 KiB", "posix put 16 x 64 KiB", "posix exists 128 names", "posix look up 128 pages, through the tier":
            check(got.get(name, {}).get("limit_name", "").startswith("plain files"), "remote:", name, got.get(name))
        left = [path for path in Path(folder).rglob("*") if path.is_file()]
        check(not [path for path in left if path.name.startswith("o-")] and not list(Path(folder).glob("tiercel_bench_*")), "left behind:", len(left), left[:5])
    for url, word in ("nonsense", "wanted posix:FOLDER"), ("mooncake://127.0.0.1:1", "remote: "):
        code, out, err = bench("--quick", "remote", "--remote", url)
        check(code == 1 and out == "" and err.count("\n") == 1 and word in err, url, code, err)


def main():
    listed = names()
    lines(listed)
    table(listed)
    models()
    remote()
    print(f"{len(FAILURES)} failures")
    return 1 if FAILURES else 0


PROGRAM = str(Path(sys.argv[1]) / "tiercel")
sys.exit(main())

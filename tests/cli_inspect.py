#!/usr/bin/env python3
"""`tiercel inspect` as a user meets it: what is on stdout, what on stderr, which exit status.

Called with the folder of the built programs. The geometry itself is tested in src/model; this is the contract around it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import FAILURES, check, check_refused

SOURCE = Path(__file__).resolve().parent.parent
MODELS = SOURCE.parent / "shared" / "models"


def inspect(*arguments, stdin=""):
    done = subprocess.run([PROGRAM, "inspect", *map(str, arguments)], input=stdin.encode(), capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(words, *arguments, status=1, stdin=""):
    check_refused(inspect(*arguments, stdin=stdin), status, words, "", arguments)


def options_of(case):
    options = ["--dtype", case["dtype"], "--tp", case["tp"], "--page-tokens", case["page_tokens"]]
    return options + (["--state-dtype", case["state_dtype"]] if "state_dtype" in case else [])


def written(folder, name, value):
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def check_outputs(folder):
    llama = written(folder, "llama.json", {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64})
    mamba = written(folder, "mamba.json", {"model_type": "mamba", "num_hidden_layers": 1, "intermediate_size": 8,
                                           "state_size": 2, "conv_kernel": 4})
    bad = written(folder, "bad.json", {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": "4"})
    for arguments in (["--json", llama, mamba], [llama, mamba, "--json"]):
        code, out, err = inspect(*arguments)
        check(code == 0 and err == "", "two files:", code, err)
        lines = out.splitlines()
        check([json.loads(line)["model_type"] for line in lines] == ["llama", "mamba"], "one object a line, in order:", out)
    check(json.loads(inspect("--json", llama)[1])["page_tokens"] == 64, "64 tokens a page by default")

    code, out, err = inspect(llama, mamba)
    check(code == 0 and "llama: pages of 64 tokens, tp 1" in out and "mamba" in out, "text:", out, err)
    check("\x1b" not in out, "colours without a terminal")
    code, out, _ = inspect("--json", "-", stdin=llama.read_text())
    check(code == 0 and json.loads(out)["model_type"] == "llama", "standard input:", out)
    temporal = json.loads(inspect("--json", "--state-dtype", "bf16", mamba)[1])["groups"][0]["components"][1]
    check(temporal["dtype"] == "bf16", "--state-dtype:", temporal)
    drafted = json.loads(inspect("--json", "--draft-config", llama, llama)[1])
    check(drafted["groups"][1]["optional"] is True and drafted["draft_layers"] == [2, 3], "--draft-config:", drafted)
    code, out, _ = inspect("--help")
    check(code == 0 and "Examples:" in out, "--help:", out)

    spec = SOURCE / "examples" / "specs" / "hybrid.json"
    check(json.loads(inspect("--json", spec)[1])["page_tokens"] == 512, "a spec says its page size")
    check(json.loads(inspect("--json", "--page-tokens", 64, spec)[1])["page_tokens"] == 64, "--page-tokens of a spec")
    for option in (["--tp", 2], ["--dtype", "bf16"], ["--state-dtype", "f32"], ["--draft-config", llama]):
        refused([option[0], "hybrid.json"], *option, spec, status=2)
    check_refusals(folder, llama, mamba, bad)


def check_refusals(folder, llama, mamba, bad):
    refused(["bad.json", "num_attention_heads"], "--json", llama, bad, mamba)
    refused(["bad.json", "num_attention_heads"], llama, bad)
    refused(["missing.json"], folder / "missing.json")
    refused([folder.name], folder)
    refused(["/dev/zero"], "/dev/zero")
    refused(["--draft-config", "mamba.json"], "--draft-config", mamba, llama)
    refused(["nowhere.json"], "--draft-config", folder / "nowhere.json", llama)
    for option in ("--tp", "--page-tokens"):
        for value in ("0", "-1", "1.5", "", "x", "1x", "99999999999999999999"):
            refused([f"inspect: {option}: wanted"], f"{option}={value}" if value else option, *([] if value else [""]), llama,
                    status=2)
    refused(["inspect: --tp: wanted an integer from 1 to 65535", "65536"], "--tp", 65536, llama, status=2)
    for option in ("--dtype", "--state-dtype"):
        refused([f"inspect: {option}: wanted bf16", "int4"], option, "int4", folder / "missing.json", status=2)
    for bare in ("NaN", "Infinity", "-Infinity"):
        refused(["bare.json", f"num_attention_heads: wanted a positive integer, is {bare}\n"], written(
            folder, "bare.json", f'{{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": {bare}}}'))
    refused(["--dtypes"], "--dtypes", "bf16", llama, status=2)
    refused(["CONFIG.json"], status=2)
    refused(["--tp"], llama, "--tp", status=2)
    refused(["line\\x0abreak"], written(folder, "name.json", {"model_type": "line\nbreak"}))
    refused(["new\\x0aline.json"], written(folder, "new\nline.json", "{"))


# An error takes no noticeable time or memory.
def check_cost(folder):
    costly = {
        "trillion.json": {"model_type": "llama", "num_hidden_layers": 10**12, "num_attention_heads": 1, "head_dim": 1},
        "drafts.json": {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 1,
                        "num_nextn_predict_layers": 10**12},
        "deep.json": "[" * 4_000_000,
        "long.json": '{"x": [' + "0," * 4_000_000 + "0]}",
    }
    for name, value in costly.items():
        begin = time.monotonic()
        refused([name], written(folder, name, value))
        check(time.monotonic() - begin < 20, name, "took", time.monotonic() - begin, "seconds")


def check_shared():
    if not (MODELS / "expected.json").exists():
        print("skipped: 48 cases of models/expected.json and models/bad, ../shared is not present")
        return
    cases = json.loads((MODELS / "expected.json").read_text())
    for case in cases:
        code, out, err = inspect("--json", *options_of(case), MODELS / case["config"])
        check(code == 0 and json.loads(out) == case["expected"], case["config"], case["tp"], err)
    bad = json.loads((MODELS / "bad" / "expected.json").read_text())
    for case in bad:
        code, out, err = inspect("--json", *options_of(case), MODELS / "bad" / case["config"])
        named = any(word.lower() in err.lower() for word in case["expected_error"])
        check(code == 1 and out == "" and err.count("\n") == 1 and named, case["config"], code, out, err)
    print(f"{len(cases)} published cases and {len(bad)} bad ones compared")


LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head", "page_first_kv_split", "record", "vllm_nhd", "vllm_hnd",
           "vllm_block_nhd", "vllm_block_hnd", "llama", "llama_v_transposed")


def check_pools_of(model, layout):
    """What is printed of one page of each pool holds together: whole, inside of its buffer, apart from every other."""
    code, out, err = inspect("--host-pools", "--json", "--layout", layout, "--pages", 3, "--page", 2, "--page-tokens", 128, model)
    if not check_code(code, out, err, model, layout):
        return
    plan = json.loads(out)["host_pools"]
    ranges = []
    for pool in plan["pools"]:
        size = pool.get("page_bytes", pool.get("snapshot_bytes"))
        segments = [segment for each in pool["objects"] for segment in each["segments"]]
        check(sum(segment["length"] for segment in segments) == size, model, layout, pool["name"], "is not whole")
        counts = [each["segments_per_page"] for each in pool["components"]]
        check(counts == [len(each["segments"]) for each in pool["objects"]], model, layout, "segments are", counts)
        for segment in segments:
            buffer = pool["buffers"][segment["buffer"]]
            check(segment["buffer_offset"] + segment["length"] <= buffer["bytes"], model, layout, "beyond its buffer:", segment)
            check(segment["offset"] == buffer["offset"] + segment["buffer_offset"], model, layout, "offsets differ:", segment)
            ranges.append((segment["allocation"], segment["offset"], segment["offset"] + segment["length"]))
    ranges.sort()
    check(all(a[0] != b[0] or a[2] <= b[1] for a, b in zip(ranges, ranges[1:])), model, layout, "two pools name the same bytes")
    check(plan["required_bytes"] <= plan["mapped_bytes"], model, layout, "maps less than it needs")


def check_code(code, out, err, *what):
    check(code == 0 and err == "" and out.count("\n") == 1, *what, "exit status", code, err)
    return code == 0


def check_host_pools(folder):
    spec = SOURCE / "examples" / "specs" / "every_kind.json"
    models = sorted(path for path in MODELS.glob("*.json") if path.name != "expected.json")
    if not models:
        print("skipped: 18 models, ../shared is not present")
    for model in [spec, *models]:
        for layout in LAYOUTS:
            check_pools_of(model, layout)

    code, out, _ = inspect("--host-pools", "--capacity", "256MiB", "--memory", "shared", "--page", 0, spec)
    check(code == 0 and "Host pools: shared memory" in out and "page 0 of" in out, "text:", out[-400:])
    code, out, _ = inspect("--host-pools", "--json", "--capacity", "256MiB", spec)
    check(json.loads(out)["host_pools"]["mapped_bytes"] <= 256 << 20, "more than the capacity:", out)

    hybrid = SOURCE / "examples" / "specs" / "hybrid.json"
    for each in (1, 15):
        code, out, _ = inspect("--host-pools", "--json", "--capacity", "8GiB", "--full-pages-per-resume-point", each, hybrid)
        pools = {pool["name"]: pool for pool in json.loads(out)["host_pools"]["pools"]}
        full, state = pools["full"]["pages"], pools["state"]["snapshots"]
        check(each <= full / state < each + 2, "pages for each snapshot:", full, state)

    config = written(folder, "extra.json", {"allocator": "shm"})
    for options in (["--backend", "dynamic", "--allocator", "shm"], ["--extra-config", f"@{config}"],
                    ["--backend", "mooncake", "--extra-config", '{"allocator": "shm"}']):
        code, out, err = inspect("--host-pools", "--json", *options, spec)
        check(code == 0 and json.loads(out)["host_pools"]["memory"] == "shared", options, out, err)
    refused(["allocator"], "--host-pools", "--allocator", "mooncake", spec, status=2)
    refused(["memory", "allocator"], "--host-pools", "--memory", "hugepage", "--allocator", "shm", spec, status=2)
    refused(["extra_config"], "--host-pools", "--extra-config", "{", spec, status=2)
    longer = folder / "longer.toml"  # its end contradicts its beginning
    longer.write_text('memory = "shared"\n' + "#\n" * (1 << 19) + 'allocator = "pinned"\n')
    refused(["longer.toml", "more than"], "--host-pools", "--extra-config", f"@{longer}", spec, status=2)
    pipe = folder / "pipe.toml"  # nobody writes into it
    os.mkfifo(pipe)
    refused(["pipe.toml", "regular file"], "--host-pools", "--extra-config", f"@{pipe}", spec, status=2)
    refused(["--memory external"], "--host-pools", "--memory", "external", spec, status=2)
    refused(["--layout", "page_first"], "--host-pools", "--layout", "pages", spec, status=2)
    refused(["--capacity", "--pages"], "--host-pools", "--capacity", "1GiB", "--pages", 3, spec, status=2)
    refused(["--capacity"], "--host-pools", "--capacity", "lots", spec, status=2)
    refused(["--pages"], "--host-pools", "--pages", "0", spec, status=2)
    refused(["--stage"], "--host-pools", "--stage", "7:3", spec, status=2)
    refused(["--page", "--host-pools"], "--page", 3, spec, status=2)
    refused(["every_kind.json", "wanted at least", "raise the total"], "--host-pools", "--capacity", "1KiB", spec)
    refused(["every_kind.json", "--page 3"], "--host-pools", "--pages", 3, "--page", 3, spec)


def main():
    with tempfile.TemporaryDirectory() as name:
        check_outputs(Path(name))
        check_host_pools(Path(name))
        check_cost(Path(name))
    check_shared()
    print(f"{len(FAILURES)} failures" if FAILURES else "inspect: all as the contract says")
    return 1 if FAILURES else 0


PROGRAM = os.path.join(sys.argv[1], "tiercel")
sys.exit(main())

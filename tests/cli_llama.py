#!/usr/bin/env python3
"""`tiercel llama` as a user meets it: answers of plain llama.cpp and restored ones in other processes, the demonstration, the comparison
for every kind of memory, LoRA adapters, a chat through a pipe, refusals, caches that are too small or somebody else's, two processes at
one cache, and kills in the middle.

Called with the folder of the built programs. Models: tiny ones with random weights, written here; the real one, too, where
tools/llama_model.sh has put it or the environment's TIERCEL_REAL_MODEL names it. What is restored when is tested in
integrations/llamacpp; this is the command line.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import FAILURES, check, check_refused, start_program

SOURCE = Path(__file__).resolve().parent.parent
MODELS = ("llama", "llama_swa", "mamba", "lfm2", "lfm2_swa", "granite_hybrid", "mla")
SMALL = ("--cache-bytes", "64MiB", "--host-bytes", "32MiB")
LARGER = ("--cache-bytes", "256MiB", "--host-bytes", "128MiB")
ASKED = {"mode", "pid", "threads", "text", "tokens", "ended", "logits_sha256", "prompt_tokens", "restored_tokens", "computed_tokens",
         "limit_tokens", "host_tokens", "disk_tokens", "remote_tokens", "bytes", "pieces", "snapshots", "missed", "kept_tokens", "saved", "too_small", "ttft_ms", "load_ms", "open_ms",
         "memory", "namespace", "notes"}
PLAIN_SAVED = {"tokens": 0, "class_sets": 0, "bytes": 0}
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
COMMANDS = ("chat", "ask", "demo", "compare", "measure")


def start(*arguments, **more):
    return start_program([PROGRAM, "llama", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **{"stdin": subprocess.DEVNULL, **more})


def run(*arguments, text=None, **more):
    child = start(*arguments, stdin=subprocess.DEVNULL if text is None else subprocess.PIPE, **more)
    out, err = child.communicate(None if text is None else text.encode(), timeout=300)
    return child.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def refused(status, word, *arguments, text=None, **more):
    return check_refused(run(*arguments, text=text, **more), status, [word], "tiercel llama: ", arguments)


def good_json(*arguments):
    code, out, err = run(*arguments, "--json")
    check(code == 0, arguments, "exit status", code, err)
    check(out.count("\n") <= 1, "not one line:", out)
    return json.loads(out) if out else {}


def random_prompt(tokens, question=0, question_seed=2, seed=1):
    words = ["--prompt-tokens", tokens, "--seed", seed]
    return words + (["--question-tokens", question, "--question-seed", question_seed] if question else [])


def ask(model, folder, prompt, *more, size=SMALL):
    """An answer whose sums are right."""
    where = ("--no-cache",) if folder is None else ("--cache", folder, *size)
    got = good_json("ask", "-m", model, "-t", 1, *where, *prompt, *more)
    if got:
        sums(got)
    return got


def sums(got):
    check(set(got) == ASKED, "keys:", sorted(set(got) ^ ASKED))
    check(got["restored_tokens"] + got["computed_tokens"] == got["prompt_tokens"], "restored and computed:", got)
    check(sum(got["pieces"]) == got["computed_tokens"], "pieces:", got["pieces"], got["computed_tokens"])
    check(got["restored_tokens"] <= got["limit_tokens"] or got["mode"] == "plain", "limit:", got)
    check(got["host_tokens"] + got["disk_tokens"] in (0, got["restored_tokens"]), "where from:", got)
    check(len(got["logits_sha256"]) == 64 and got["ended"] in ("end", "length"), got)
    check(set(got["saved"]) == set(PLAIN_SAVED) and got["restored_tokens"] + got["saved"]["tokens"] <= got["kept_tokens"], "saved:", got)
    check((got["saved"]["tokens"] > 0) == (got["saved"]["bytes"] > 0) == (got["saved"]["class_sets"] > 0), "saved:", got["saved"])
    if got["mode"] != "plain" and not got["notes"]:
        check(sum(got["missed"].values()) == got["computed_tokens"], "every token that is missed has a reason:", got["missed"], got)


def same(got, plain, *what, bits=True):
    check(got.get("tokens") == plain.get("tokens"), *what, "another answer:", got.get("tokens"), plain.get("tokens"))
    check(not bits or got.get("logits_sha256") == plain.get("logits_sha256"), *what, "other logits")


def answers(folder, model, short, long, size=SMALL):
    """`short` and `long`: prompts that begin alike, and a third one, as options."""
    cache = folder / "answers"
    plain = ask(model, None, short)
    check(plain["mode"] == "plain" and plain["restored_tokens"] == 0 and plain["missed"] == {} and plain["memory"] == "", plain)
    cold = ask(model, cache, short, "--exact", size=size)
    same(cold, plain, "the first time with a cache")
    check(cold["restored_tokens"] == 0 and set(cold["missed"]) == {"never_stored"} or "limit" in cold["missed"], "missed:", cold["missed"])
    again = ask(model, cache, short, "--exact", size=size)
    same(again, plain, "restored in another process")
    check(again["pid"] != cold["pid"] and again["restored_tokens"] == again["limit_tokens"] > 0, again)
    check(again["restored_tokens"] % 64 == 0 and again["disk_tokens"] == again["restored_tokens"] and again["bytes"] > 0, again)
    check(plain["saved"] == PLAIN_SAVED and plain["kept_tokens"] == 0, "no cache saves nothing", plain["saved"])
    check(cold["saved"]["tokens"] == cold["kept_tokens"] >= cold["limit_tokens"], "the prompt is saved", cold)
    check(again["saved"] == PLAIN_SAVED and again["kept_tokens"] == cold["kept_tokens"], "exact mode saves no answers", again)
    other = ask(model, cache, long, "--exact", size=size)
    same(other, ask(model, None, long), "another question over the same beginning")
    check(0 < other["restored_tokens"] <= other["limit_tokens"], other)

    first = ask(model, cache, short, "--fast", size=size)
    check(first["restored_tokens"] == 0, "modes share nothing", first)
    check(first["saved"]["tokens"] == first["kept_tokens"] >= first["prompt_tokens"] // 16 * 16, "fast mode saves prompt and answer", first)
    fast = ask(model, cache, short, "--fast", size=size)
    check(fast["restored_tokens"] == fast["limit_tokens"] >= again["restored_tokens"], fast)
    check(ask(model, cache, short, size=size)["mode"] == "fast", "fast is the default")
    check(ask(model, cache, short, "--fast", "--tenant", "b", size=size)["restored_tokens"] == 0, "tenants share nothing")
    refused(1, "got a file of", "ask", "-m", model, "--cache", cache, *short, "--cache-bytes", "48MiB")
    check(os.stat(cache).st_mode & 0o777 == 0o700, "the folder is nobody else's")
    code, out, err = run("ask", "-m", model, "-t", 1, "--cache", cache, *short, "--fast")
    check(code == 0 and "restored" in err and "computed" in err and "\033" not in err + out, "text:", code, err)
    return cache


def kinds(folder, models):
    """Every kind of memory: exact mode is bitwise; what is restored, is so from memory and from disk."""
    for name in MODELS:
        report = good_json("compare", "-m", models / f"{name}.gguf", "-t", 1, "-n", 8, *SMALL, *random_prompt(700, 40))
        check(report.get("exact_is_bitwise") is True and report["exact_restored"] is True and report["prompt_tokens"] == 740, name, report)
        check([r["mode"] for r in report["runs"]] == ["plain", "exact", "exact", "exact", "fast", "fast"], name, report["runs"])
        plain, cold, memory, disk, _, fast = report["runs"]
        check(cold["restored_tokens"] == 0 < memory["restored_tokens"], name, "restored:", memory)
        check(disk["restored_tokens"] == memory["restored_tokens"] and disk["disk_tokens"] > 0, name, "from disk:", disk)
        for row in (cold, memory, disk):
            check(row["bitwise"] and row["max_difference"] == 0 and row["first_differing_token"] is None, name, row)
            check(row["tokens"] == plain["tokens"] and sum(row["pieces"]) == row["computed_tokens"], name, row)
        check(0 < fast["restored_tokens"] < 740, name, "fast:", fast)
    code, out, err = run("compare", "-m", models / "llama.gguf", "-t", 1, "-n", 4, *SMALL, *random_prompt(300))
    check(code == 0 and out.endswith("exact mode is bitwise equal to plain llama.cpp here\n") and err == "", code, out, err)


def demo(folder, model, tokens):
    report = good_json("demo", "-m", model, "-t", 1, "-n", 8, "--tokens", tokens, *LARGER)
    if not report:
        return
    check(report["good"] and report["exact_restored"] and len(report["runs"]) == 7, report)
    check(len({row["pid"] for row in report["runs"]}) == 7, "each row is a process of its own")
    plain, cold, again, other, _, _, fast = report["runs"]
    check([row["restored_tokens"] for row in (plain, cold)] == [0, 0], "cold:", report["runs"])
    check(0 < other["restored_tokens"] <= again["restored_tokens"] <= fast["restored_tokens"], "restored:", report["runs"])
    check(again["disk_tokens"] == again["restored_tokens"] and again["computed_tokens"] < tokens / 3, "from disk:", again)
    for row in report["runs"][:5]:
        check(row["same_answer"] and row["same_logits"], "exact:", row)
    check(other["question"] == "B" and other["tokens"] != again["tokens"], "another question has another answer")
    code, out, err = run("demo", "-m", model, "-t", 1, "-n", 2, "--tokens", tokens, "--cache", folder / "demo", "--cache-bytes", "256MiB")
    check(code == 0 and err == "" and out.count("same bits") >= 3 and "OTHER" not in out, code, out, err)
    child = start("demo", "-m", model, "-t", 1, "-n", 2, "--tokens", 100, *LARGER)
    head = [child.stdout.readline() for _ in range(4)]
    check(child.poll() is None and b"A  plain llama.cpp" in head[3], "a row is printed when it is there", head)
    out, err = child.communicate(timeout=300)
    check(child.returncode == 0 and b"exact mode restored nothing, so this shows nothing" in out and out.count(b"fast mode") == 2, out, err)
    short = good_json("demo", "-m", model, "-t", 1, "-n", 2, "--tokens", 100, *LARGER)
    check(not short["good"] and not short["exact_restored"], "nothing to restore is not good", short)
    check((folder / "demo").is_dir() and os.listdir(os.environ["TMPDIR"]) == [], "only what was asked for is left")


def lora(folder, models):
    """What was computed with an adapter, or with it at another scale, is never taken for anything else."""
    model, cache, prompt = models / "llama.gguf", folder / "lora", random_prompt(300)
    a, b = models / "lora" / "a.gguf", models / "lora" / "b.gguf"
    ways = [(), ("--lora", a), ("--lora", f"{a}:0.5"), ("--lora", b), ("--lora", f"{a}:-2e-1", "--lora", b)]
    for way in ways:
        plain = ask(model, None, prompt, *way)
        cold = ask(model, cache, prompt, "--exact", *way)
        again = ask(model, cache, prompt, "--exact", *way)
        check(cold["restored_tokens"] == 0 < again["restored_tokens"], way, "restored:", cold["restored_tokens"], again["restored_tokens"])
        same(cold, plain, "the first time with", way)
        same(again, plain, "restored with", way)
    check(ask(model, cache, prompt, "--exact", "--lora", f"{a}:1")["restored_tokens"] > 0, "the scale is 1 when it is not said")
    answered = {ask(model, cache, prompt, "--exact", *way)["logits_sha256"] for way in ways}
    check(len(answered) == len(ways), "adapters and scales change what is computed", answered)
    report = good_json("compare", "-m", model, "-t", 1, "-n", 4, *SMALL, *random_prompt(300), "--lora", f"{a}:0.5", "--lora", b)
    check(report["exact_is_bitwise"] and report["exact_restored"], report)
    for command in ("ask", "chat", "compare"):
        where = () if command == "compare" else ("--no-cache",)
        what = () if command == "chat" else prompt
        refused(1, "--lora: no_such.gguf: No such file", command, "-m", model, *where, *what, "--lora", "no_such.gguf")
        for bad in (f"{a}:", f"{a}:much", f"{a}:inf", f"{a}:1x"):
            refused(2, "--lora: wanted a number", command, "-m", model, *where, *what, "--lora", bad)
    refused(2, "--lora", "ask", "-m", model, "--no-cache", *prompt, "--lora", ":2")
    refused(1, "a.gguf: llama.cpp cannot load", "ask", "-m", models / "mamba.gguf", "--no-cache", *prompt, "--lora", a)
    refused(1, "is a folder", "ask", "-m", model, "--no-cache", *prompt, "--lora", models)


def too_small(folder, model):
    """A cache that cannot keep a prompt says so, and what would do."""
    cache, prompt = folder / "too_small", random_prompt(600)
    got = ask(model, cache, prompt, size=("--cache-bytes", "1MiB", "--host-bytes", "32MiB"))
    lack = got["too_small"]
    check(lack and lack["wanted_bytes"] > lack["room_bytes"] and got["notes"] and "too small" in got["notes"][0], got)
    check(ask(model, cache, prompt, size=())["restored_tokens"] == 0, "it says so for a reason")
    code, out, err = run("ask", "-m", model, "-t", 1, "--cache", cache, *prompt)
    check(code == 0 and err.count("too small") == 1 and f"--cache-bytes {lack['enough_bytes'] >> 20}MiB" in err, code, err)
    enough = ("--cache-bytes", lack["enough_bytes"], "--host-bytes", "32MiB")
    first = ask(model, folder / "enough", prompt, size=enough)
    again = ask(model, folder / "enough", prompt, size=enough)
    check(first["too_small"] is None and first["notes"] == [], "what it named is enough", first)
    check(again["restored_tokens"] == again["limit_tokens"], "what it named is enough", again)


def not_ours(folder, model):
    """A folder that this user may not use: the same words from every program, before a model is loaded."""
    theirs = folder / "theirs"
    theirs.mkdir(mode=0o700)
    (theirs / "cache.tiercel").write_bytes(b"")
    (folder / "closed").mkdir(mode=0o755)
    who = {}
    if os.geteuid() == 0:
        who = NOBODY
        folder.chmod(0o711)
        try:
            subprocess.run([PROGRAM, "--help"], stdout=subprocess.DEVNULL, check=True, **who)
        except (OSError, subprocess.CalledProcessError):
            return "another user cannot run the program, so folders of others were left out"
    else:
        theirs.chmod(0)
        (folder / "closed").chmod(0o500)
    asked = {"ask": random_prompt(100), "compare": random_prompt(100)}
    for cache, where in ((theirs, theirs), (theirs / "below" / "it", theirs), (folder / "closed" / "new", folder / "closed")):
        for command in ("ask", "chat", "compare", "demo"):
            said = refused(1, f"tiercel llama: --cache {cache}: {where}: Permission denied", command, "-m", folder / "no_such.gguf", "--cache", cache,
                           *asked.get(command, ()), **who)
            check("give a folder of your own" in said, command, "what to do:", said)
    for path in (theirs, theirs / "cache.tiercel"):
        for command in (("ls",), ("check",), ("status",), ("drop", "--namespace", "1")):
            done = subprocess.run([PROGRAM, "disk", command[0], str(path), *command[1:]], capture_output=True, timeout=120, **who)
            said = done.stderr.decode()
            check(done.returncode == 1 and done.stdout == b"" and "Permission denied" in said and said.count("\n") == 1, command, path, said)
    theirs.chmod(0o700)
    (folder / "closed").chmod(0o755)
    return ""


def logs(folder, model):
    """--log: the cache's lines; --log all: llama.cpp's, too."""
    words = ("ask", "-m", model, "-t", 1, "--cache", folder / "logs", *SMALL, *random_prompt(40))
    code, out, err = run(*words, "--log")
    lines = err.splitlines()
    check(code == 0 and any("bytes a token" in line for line in lines), "--log:", code, err)
    check(all(line.startswith(("cache: ", "[")) for line in lines), "--log has lines of others:", err)
    code, out, err = run(*words, "--log", "all")
    check(code == 0 and "bytes a token" in err and "llama_model_loader" in err and len(err.splitlines()) > 50, "--log all:", code, len(err))
    code, out, err = run(*words)
    check(code == 0 and "cache:" not in err, "without --log:", err)
    refused(2, "--log", *words, "--log", "some")


def disk(folder, model):
    """`tiercel disk` takes the folder, and shows namespaces so that they differ."""
    cache = folder / "disk"
    for way in (("--exact",), ("--fast",), ("--fast", "--tenant", "b"), ("--exact", "--ubatch", 128)):
        ask(model, cache, random_prompt(200), *way)
    def looks(*arguments):
        done = subprocess.run([PROGRAM, "disk", *map(str, arguments)], capture_output=True, timeout=120)
        check(done.returncode == 0 and done.stderr == b"", arguments, done)
        return done.stdout.decode()
    for command in ("ls", "status"):
        check(looks(command, cache) == looks(command, cache / "cache.tiercel"), "disk", command, "of the folder is that of its file")
    check("in order" in looks("check", cache), "disk check of a folder")
    for report in (looks("ls", cache), looks("check", cache).split("namespace\n")[1]):
        rows = [line.split(None, 4)[4] for line in report.splitlines() if "tiercel_identity" in line]
        check(len(rows) == 4 == len(set(rows)), "namespaces that differ look different", rows)
    check(looks("drop", cache, "--namespace", 1).startswith("dropped: namespace 1"), "disk drop of a folder")


def measure(model):
    report = good_json("measure", "-m", model, "--tokens", "200,300", "--threads", "1", "--runs", 2, "--host-bytes", "32MiB",
                       "--cache-bytes", "128MiB")
    check([row["tokens"] for row in report["rows"]] == [200, 300] and report["token_bytes"] > 0, report)
    for row in report["rows"]:
        for name in ("plain", "cold", "host_exact", "host_fast", "disk_exact", "disk_fast", "file_save", "file_load"):
            check(len(row[name]["ms"]) == 2, name, row[name])
        check(row["host_fast"]["restored_tokens"] == row["disk_fast"]["restored_tokens"] > 0, row)
        check(row["disk_exact"]["restored_tokens"] == row["host_exact"]["restored_tokens"] > 0 and row["file_bytes"] > 0, row)


def refusals(folder, models):
    llama = models / "llama.gguf"
    prompt = random_prompt(100)
    file = folder / "a_file"
    file.write_text("not a model")
    for command in COMMANDS:
        refused(2, "--model", command)
        check("Examples" in run(command, "--help")[1], command, "--help")
    refused(2, "subcommand")
    for arguments in (("ask", "--no-cache", *prompt), ("compare", *prompt), ("demo",), ("measure",), ("chat", "--cache", folder / "x")):
        refused(1, "no_such.gguf", *arguments, "-m", folder / "no_such.gguf")
        refused(1, "a_file", *arguments, "-m", file)
    refused(1, "folder", "ask", "-m", folder, "--no-cache", *prompt)
    refused(2, "--cache", "ask", "-m", llama, *prompt)
    refused(2, "--cache", "chat", "-m", llama)
    refused(2, str(file), "ask", "-m", llama, "--cache", file, *prompt)
    refused(2, "--cache and --no-cache are both given", "ask", "-m", llama, "--cache", folder / "x", "--no-cache", *prompt)
    refused(2, "--cache and --no-cache are both given", "chat", "-m", llama, "--cache", folder / "x", "--no-cache")
    # Before the model is looked at, in the words of the command line, once.
    nothing = folder / "no_such.gguf"
    for arguments in (("compare", "--ubatch", 100), ("demo", "--ubatch", 100), ("measure", "--ubatch", 64), ("compare", "--batch", 100)):
        said = refused(2, arguments[1] + ": exact mode wants a multiple of 64, 128 at least, got", *arguments, "-m", nothing)
        check("fast" not in said, "there is no other mode to choose:", said)
    said = refused(2, "--ubatch: exact mode", "ask", "-m", nothing, "--cache", folder / "x", *prompt, "--exact", "--ubatch", 100)
    check(said.count("fast") == 1, "the other mode is named once:", said)
    refused(2, "--batch: exact mode", "ask", "-m", nothing, "--cache", folder / "x", *prompt, "--exact", "--ubatch", 128, "--batch", 200)
    refused(2, "--exact and --fast", "ask", "-m", llama, "--no-cache", *prompt, "--exact", "--fast")
    refused(2, "-p PROMPT", "ask", "-m", llama, "--no-cache")
    refused(2, "--prompt-tokens N", "ask", "-m", llama, "--no-cache", "-p", "text")
    refused(2, "--prompt-tokens", "ask", "-m", llama, "--no-cache", "-p", "text", *prompt)
    refused(2, "--seed", "ask", "-m", llama, "--no-cache", "-p", "text", "--seed", 3)
    refused(1, "no_text", "ask", "-m", llama, "--no-cache", "-f", folder / "no_text")
    refused(2, "--ctx", "ask", "-m", llama, "--no-cache", *prompt, "--ctx", "many")
    refused(1, "--ctx", "ask", "-m", llama, "--no-cache", *random_prompt(300), "--ctx", 256)
    refused(2, "--page-tokens", "ask", "-m", llama, "--no-cache", *prompt, "--page-tokens", 17)
    refused(2, "--type-k", "ask", "-m", llama, "--no-cache", *prompt, "--type-k", "f17")
    refused(2, "--flash-attn", "ask", "-m", llama, "--no-cache", *prompt, "--flash-attn", "maybe")
    refused(2, "--cache-bytes", "ask", "-m", llama, "--cache", folder / "x", *prompt, "--cache-bytes", "much")
    refused(2, "--tokens", "measure", "-m", llama, "--tokens", "512,")
    refused(2, "mode", "ask", "-m", llama, "--no-cache", *prompt, "--mode", "quick")
    refused(2, "--prompt-tokens", "chat", "-m", llama, "--cache", folder / "x", text="hello\n")
    check(not (folder / "x").exists(), "what was refused makes no folder")


def together(folder, model):
    """Two at one time: each has the right answer, whoever had to wait or go without."""
    cache = folder / "together"
    prompts = [random_prompt(900, 30, seed) for seed in (5, 6)]
    plain = [ask(model, None, prompt) for prompt in prompts]
    for _ in range(3):
        both = [start("ask", "--json", "-m", model, "-t", 1, "--cache", cache, *SMALL, "--exact", *prompt) for prompt in prompts]
        for child, right in zip(both, plain):
            out, err = child.communicate(timeout=300)
            check(child.returncode == 0, "two at one time:", child.returncode, err)
            if child.returncode == 0:
                got = json.loads(out)
                sums(got)
                same(got, right, "two at one time")
    check(ask(model, cache, prompts[0], "--exact")["restored_tokens"] > 0, "both have saved")


def held(folder, model):
    """A cache that another process keeps for long: the answer is computed without it, and says who has it."""
    cache = folder / "held"
    prompt = random_prompt(200)
    right = ask(model, cache, prompt, "--exact")
    keeper = start("ask", "-m", model, "-t", 1, "--cache", cache, *SMALL, "-n", 200000, *random_prompt(100, seed=3))
    end = time.monotonic() + 60
    with open(cache / "cache.turn", "rb") as turn:
        while time.monotonic() < end and keeper.poll() is None:
            try:
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                break
            fcntl.flock(turn, fcntl.LOCK_UN)
            time.sleep(0.01)
    got = ask(model, cache, prompt, "--exact")
    same(got, right, "without the cache that another has")
    check(keeper.poll() is None, "the keeper has ended too early", keeper.returncode)
    check(got["restored_tokens"] == 0 and len(got["notes"]) == 1 and str(keeper.pid) in got["notes"][0], "who has it:", got["notes"])
    keeper.send_signal(signal.SIGINT)
    keeper.communicate(timeout=60)
    check(keeper.returncode == 130, "Ctrl-C ends an answer", keeper.returncode)
    check(ask(model, cache, prompt, "--exact")["restored_tokens"] > 0, "and then the cache is there again")


def killed(folder, model):
    """kill -9 at many moments; what the next process finds is right, and in the end everything is there."""
    cache = folder / "killed"
    rights = {}
    for number in range(14):
        prompt = random_prompt(1500, 20, number % 3 + 2, seed=number // 3 + 1)
        child = start("ask", "--json", "-m", model, "-t", 1, "--cache", cache, *SMALL, "--exact", *prompt)
        time.sleep(0.015 * number)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
        key = str(prompt)
        rights[key] = rights.get(key) or ask(model, None, prompt)
        if number % 2:
            same(ask(model, cache, prompt, "--exact"), rights[key], "after a kill")
    last = ask(model, cache, prompt, "--exact")
    again = ask(model, cache, prompt, "--exact")
    same(again, last, "restored after all kills")
    check(again["restored_tokens"] == again["limit_tokens"] > 0, again)
    log = next(cache.glob("*.tiercel"))
    done = subprocess.run([PROGRAM, "disk", "check", str(log)], capture_output=True, timeout=120)
    check(done.returncode == 0, "the cache is in order after all kills", done.stdout.decode())


def chat(folder, model):
    """With the real model; the tiny ones have no words."""
    cache = folder / "chat"
    manual = folder / "manual.txt"
    manual.write_text("You are a terse assistant for a garden. " + " ".join(
        f"Bed {n} has {('roses', 'beans', 'leeks', 'mint')[n % 4]} and is watered every {n % 5 + 1} days." for n in range(60)))
    talk = ("chat", "-m", model, "-t", 1, "--cache", cache, *LARGER, "--system-file", manual)
    options = (*talk, "-n", 12)
    questions = "What grows in bed 7?\n\nAnd in bed 8?"
    code, out, err = run(*options, "--exact", text=questions)
    lines = [line for line in err.splitlines() if "computed" in line]
    check(code == 0 and len(lines) == 2 and out.strip() and "\033" not in err, "a chat through a pipe", code, repr(out), err)
    check("restored 0 of" in lines[0] and "restored 0 of" not in lines[1], "the second turn restores the first one's prompt", lines)
    code, again, err = run(*options, "--exact", text=questions)
    lines = [line for line in err.splitlines() if "computed" in line]
    check(code == 0 and again == out and all("restored 0 of" not in line and "disk" in line for line in lines),
          "the same chat again, in another process", code, repr(out), repr(again), err)
    check(run(*options, text="")[0] == 0 and run(*options, text="")[1] == "", "an empty chat")
    bare = ("chat", "-m", model, "-t", 1, "--system-file", manual, "-n", 12)
    code, plain, err = run(*bare, "--no-cache", text=questions)
    check(code == 0 and plain == out and err.count("restored 0 of") == 2, "a chat without a cache says the same", code, repr(plain), err)
    code, text, err = run(*bare, "--cache", folder / "small", "--cache-bytes", "1MiB", text=questions)
    check(code == 0 and err.count("too small") == 1, "a cache that is too small is told once", code, err)
    code, out, err = run(*options, "--ctx", 256, text="hello\n")
    check(code == 0 and out == "" and "--ctx" in err, "a conversation that is too long is told", code, out, err)

    first = start(*options, "--fast", stdin=subprocess.PIPE)
    first.stdin.write(b"What grows in bed 9?\n")
    first.stdin.flush()
    while b"computed" not in first.stderr.readline():  # the turn is over; the program waits for the next one
        check(first.poll() is None, "the chat has ended")
        if first.poll() is not None:
            return
    got = ask(model, cache, ["--system-file", manual, "-p", "What grows in bed 9?"], "--fast", "-n", 4, size=LARGER)
    check(got["restored_tokens"] == got["limit_tokens"] and got["notes"] == [], "between turns others have the cache", got)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    check(first.returncode == 130, "Ctrl-C while it waits ends it", first.returncode, err)

    long = start(*talk, "--fast", "-n", 5000, stdin=subprocess.PIPE)
    long.stdin.write(b"Tell me about all the beds, one after the other.\n")
    long.stdin.flush()
    long.stdout.read(1)
    long.send_signal(signal.SIGINT)
    out, err = long.communicate(b"Go on with the rest of it.", timeout=300)
    long_lines = [line for line in err.decode().splitlines() if "computed" in line]
    check(long.returncode in (0, 130) and long_lines, "Ctrl-C in an answer ends the answer alone", long.returncode, err)


def words(model):
    """Templates, and text before the question."""
    system = ("--system", "Answer in one word.")
    got = ask(model, None, ["-p", "What is the capital of France?", *system], "-n", 8)
    check(got["text"] and got["prompt_tokens"] > 10, got)
    bare = ask(model, None, ["-p", "What is the capital of France?", *system, "--template", "none"], "-n", 8)
    check(bare["prompt_tokens"] < got["prompt_tokens"], "without a template there are fewer tokens")
    refused(2, "chatml", "ask", "-m", model, "--no-cache", "-p", "text", "--template", "no such one")
    code, out, err = run("ask", "-m", model, "-t", 1, "--no-cache", "-p", "What is the capital of France?", *system, "-n", 8)
    check(code == 0 and out == got["text"] + "\n", "text and JSON agree", repr(out), got["text"])


def example(folder, model):
    """examples/llamacpp, where it is built: twice the same answer, the second time restored."""
    program = Path(PROGRAM).parent / "llamacpp_example"
    if not program.exists():
        return
    words = "It was a dark night, and the rain fell on the roofs of the town. " * 12
    runs = [subprocess.run([str(program), str(model), str(folder / "example"), words, "4"], capture_output=True, timeout=300)
            for _ in range(2)]
    check([r.returncode for r in runs] == [0, 0] and runs[0].stdout.strip(), "the example:", [r.stderr for r in runs])
    check(b"[0 tokens" in runs[0].stderr and b"[0 tokens" not in runs[1].stderr, "restored by the example:", [r.stderr for r in runs])


def without_llama():
    for command in COMMANDS:
        where = ("--cache", "x") if command in ("chat", "ask") else ()
        prompt = random_prompt(10) if command in ("ask", "compare") else ()
        refused(1, "TIERCEL_WITH_LLAMA=ON", command, "-m", "x.gguf", *where, *prompt)
        check("Examples" in run(command, "--help")[1], command, "--help")
    check(not Path("x").exists(), "nothing was made")


def libraries_of_a_server():
    """tools/compare_llama_server.py starts a llama-server with the libraries beside it before those that the user has named."""
    sys.path.append(str(SOURCE / "tools"))
    from compare_llama_server import beside
    kept = os.environ.pop("LD_LIBRARY_PATH", None)
    for named, wanted in ((None, "/opt/llama/bin"), ("", "/opt/llama/bin"), ("/own:/other", "/opt/llama/bin:/own:/other")):
        if named is not None:
            os.environ["LD_LIBRARY_PATH"] = named
        got = beside("/opt/llama/bin/llama-server")
        check(got["LD_LIBRARY_PATH"] == wanted and got["PATH"] == os.environ["PATH"], "libraries of a server:", named, got["LD_LIBRARY_PATH"])
    os.environ.pop("LD_LIBRARY_PATH")
    if kept is not None:
        os.environ["LD_LIBRARY_PATH"] = kept


def real_model():
    named = os.environ.get("TIERCEL_REAL_MODEL")
    if named is None:
        named = subprocess.run([str(SOURCE / "tools" / "llama_model.sh"), "--where"], capture_output=True, text=True).stdout.strip()
    return Path(named) if named and Path(named).is_file() else None


def main(folder):
    libraries_of_a_server()
    code, _, err = run("ask", "-m", "x.gguf", "--no-cache", *random_prompt(10))
    if "built without llama.cpp" in err:
        without_llama()
        return "built without llama.cpp: only its refusals were tested"
    os.environ["TMPDIR"] = str(folder / "temporary")  # of the programs, to see what they leave there
    os.mkdir(os.environ["TMPDIR"])
    models = folder / "models"
    subprocess.run([sys.executable, str(SOURCE / "integrations" / "llamacpp" / "tests" / "tiny_models.py"), str(models)], check=True,
                   stdout=subprocess.DEVNULL)
    llama = models / "llama.gguf"
    refusals(folder, models)
    for name in ("llama", "granite_hybrid"):
        within = folder / name
        within.mkdir()
        answers(within, models / f"{name}.gguf", random_prompt(600, 24, 2), random_prompt(600, 40, 3))
    kinds(folder, models)
    demo(folder, llama, 900)
    measure(llama)
    lora(folder, models)
    too_small(folder, llama)
    logs(folder, llama)
    disk(folder, llama)
    together(folder, llama)
    held(folder, llama)
    killed(folder, llama)
    others = not_ours(folder, llama)
    real = real_model()
    if real is None:
        left_out = "no real model, see tools/llama_model.sh: chat, templates, text and the example were left out (5 functions)"
        return "; ".join(filter(None, (others, left_out)))
    words(real)
    example(folder, real)
    chat(folder, real)
    within = folder / "real"
    within.mkdir()
    text = folder / "text.txt"
    text.write_text(" ".join(f"The {n}th door is {('red', 'green', 'blue')[n % 3]}." for n in range(60)))
    answers(within, real, ["-f", text, "-p", "Which door is red?", "-n", 6], ["-f", text, "-p", "And which one is blue, tell me?", "-n", 6],
            LARGER)
    demo(within, real, 500)
    return others


if __name__ == "__main__":
    PROGRAM = str(Path(sys.argv[1]) / "tiercel")
    with tempfile.TemporaryDirectory() as name:
        left_out = main(Path(name))
    if FAILURES:
        sys.exit(f"{len(FAILURES)} checks failed")
    print("llama: all checks passed" + (f" ({left_out})" if left_out else ""))

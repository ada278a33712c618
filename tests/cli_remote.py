#!/usr/bin/env python3
"""`--remote` of `tiercel replay`, `llama` and `doctor` as a user meets it: two folders that share nothing but a store, a store that is
full, silent or not there, and what is said of it.

Called with the folder of the built programs. Stores: a folder, the connector in memory, a Valkey server where there is one; Mooncake's
cluster is the example's (examples/cluster) and the kill tests'. Models are tiny ones with random weights; the real one, too, for a chat.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import check, check_refused, ends, hang, left_out, run_cases, run_program
from connector_node import SOURCE, free_port
from connectors_valkey import NO_SERVER, Server, server_program

KINDS = ("llama", "llama_swa", "lfm2_swa", "mamba", "granite_hybrid", "mla")
SMALL = ("--cache-bytes", "64MiB", "--host-bytes", "32MiB")
PASSWORD = "hunter2"  # of every address that has one
NOT_HERE = []  # what this machine has not, for a line at the end


def run(*arguments, environment=None, **more):
    """Exit status, standard output and error of the program, none of which ever shows the password."""
    done = run_program([PROGRAM, *arguments], capture_output=True, timeout=300, env={**os.environ, **(environment or {})}, **more)
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    check(PASSWORD not in out and PASSWORD not in err, arguments[:2], "shows the password:", out, err)
    return done.returncode, out, err


def refused(status, word, *arguments):
    check_refused(run(*arguments), status, [word], f"tiercel {arguments[0]}: ", arguments)


# ---- replay ----

def replay(url, *arguments, requests=200, page_bytes=256):
    code, out, err = run("replay", "--json", "--generate", f"conversation:{requests}", "--page-bytes", page_bytes, "--remote", url, *arguments)
    check(code == 0, url, arguments, code, err)
    got = json.loads(out) if code == 0 else {"remote": {}}
    if code == 0:
        check(got["hit_pages"] + sum(got["missed"].values()) == got["pages"] and got["wrong"] == [], "the sums", got)
        check(got["verified_pages"] == got["hit_pages"] and got["corrupt_pages"] == 0, "every hit page is compared", got)
        check(0 <= got["remote"]["hit_pages"] <= got["hit_pages"] and got["remote"]["hit_pages"] <= got["remote"]["brought_pages"], got["remote"])
        check((got["remote"]["objects_read"] > 0) == (got["remote"]["read_bytes"] > 0) == (got["remote"]["hit_pages"] > 0), got["remote"])
    return got


def replays(url, forgets=False):
    """What memory of any size hits, a small one hits with a store below it; also with another node in mid-trace."""
    everything = json.loads(run("replay", "--json", "--generate", "conversation:200", "--page-bytes", 256)[1])
    small = replay(url, "--capacity-pages", 300)
    check(small["hit_pages"] == everything["hit_pages"] and small["remote"]["hit_pages"] > 0, "a small memory", small)
    check(small["remote"]["stored_class_sets"] > 0 and "restart" not in small["remote"] and "disk" not in small, small["remote"])
    check(replay(url, "--capacity-pages", 300)["hit_pages"] == small["hit_pages"], "what another replay left is cleared first")
    again = replay(url, "--restart-at", 100)
    restart = again["remote"]["restart"]
    check(restart["after_requests"] == 100 and restart["resident_pages"] > 0 and restart["pages"] > 0, restart)
    if not forgets:
        check(again["hit_pages"] == everything["hit_pages"] and restart["hit_pages"] > 0 and again["remote"]["hit_pages"] > 0,
              "a fresh node finds it in the store", again)
        warm = replay(url, "--remote-warm")
        check(warm["hit_pages"] == warm["pages"] and warm["remote"]["stored_class_sets"] == 0, "after it another one has all of it", warm)
    late = replay(url, "--restart-at", 100000, requests=20)
    check(late["remote"]["restart_not_reached"] == 100000, late["remote"])


def models_of_replay(url):
    for model in ("hybrid", "full_window", "every_kind", "state"):
        spec = ("--spec", SOURCE / "examples" / "specs" / f"{model}.json")
        got = replay(url, *spec, "--restart-at", 60, requests=120)
        check(got["remote"]["restart"]["hit_pages"] > 0 and got["remote"]["hit_pages"] > 0, model, got)


def both_tiers(folder):
    """A disk and a store: what the disk has is not asked for."""
    got = replay(f"posix:{folder}/both", "--capacity-pages", 200, "--disk", folder / "disk", "--disk-bytes", "64MiB", "--disk-admission", "all",
                 "--restart-at", 100)
    check(got["disk"]["hit_pages"] > 0 and got["remote"]["hit_pages"] == 0 and "restart" in got["disk"], "the disk is nearer", got)


def usage_of_replay(folder):
    refused(2, "--remote-warm needs --remote", "replay", "--remote-warm")
    refused(2, "--restart-at needs --disk or --remote", "replay", "--restart-at", 5)
    refused(2, "--remote: wanted an address", "replay", "--remote", "")
    refused(2, "mooncake://HOST:PORT", "replay", "--remote", "somewhere")
    refused(2, "mooncake://HOST:PORT", "replay", "--remote", "somewhere", "--trace", folder / "no-trace")
    refused(2, "NAME=VALUE", "replay", "--remote", "memory:?workers")
    other = folder / "something-else"
    other.mkdir()
    (other / "tiercel-posix-store").write_text("of a later version")
    refused(1, "another version", "replay", "--remote", f"posix:{other}")
    refused(2, "--remote-warm goes with no --disk", "replay", "--remote", f"posix:{folder}/s", "--remote-warm", "--disk", folder / "d",
            "--disk-bytes", "64MiB")
    refused(1, "no server at", "replay", "--remote", f"valkey://127.0.0.1:{free_port()}")
    code, out, _ = run("replay", "--generate", "conversation:100", "--capacity-pages", 100, "--page-bytes", 64, "--remote",
                       f"posix:{folder}/text", "--restart-at", 50, "--status")
    for word in ("remote hits", "objects written", "restart  ", "remote asked"):
        check(code == 0 and word in out, word, "is not in", out)


# ---- doctor ----

def doctor(url, state, *words, remedy=(), environment=None):
    code, out, err = run("doctor", "--json", "--remote", url, environment=environment)
    report = json.loads(out)
    entry = report["checks"]["remote"]
    check(entry["state"] == state and code == (state == "missing") and report["ready"] == (state == "ok"), url, code, entry, err)
    for word in words:
        check(word in entry["text"], url, "is not said:", word, "in", entry["text"])
    for word in remedy:
        check(word in (entry["remedy"] or ""), url, "is not advised:", word, "in", entry["remedy"])
    check("\n" not in entry["text"], "one line", entry)
    return entry


def doctors(folder):
    entry = doctor(f"posix:{folder}/doctor", "ok", "64 KiB", "removed")
    check(entry["put_us"] > 0 and entry["address"] == f"posix:{folder}/doctor", entry)
    names = [each for each in (folder / "doctor").rglob("*") if each.is_file() and "tiercel.doctor" in each.name]
    check(names == [], "the object is gone", names)
    roomy = doctor("memory:?capacity_bytes=3MiB", "ok", "ready after", "; 0 B of 3 MiB used")
    check(roomy["used_bytes"] == 0 and roomy["capacity_bytes"] == 3 << 20, roomy)
    removes_what_failed(folder)
    doctor(f"posix:{folder}/none/above", "missing", "No such file", remedy=["may write to"])
    doctor("memory:?capacity_bytes=1000", "missing", "no room", remedy=["room"])
    doctor("memory:?size=1", "missing", "no option 'size'", remedy=["behind the ?"])
    nowhere = free_port()
    doctor(f"valkey://somebody:{PASSWORD}@127.0.0.1:{nowhere}", "missing", f"no server at 127.0.0.1:{nowhere}", remedy=["valkey-server"])
    doctor("memory:", "missing", "No such file", remedy=["Python", "TIERCEL_CONNECTOR_PYTHON"],
           environment={"TIERCEL_CONNECTOR_PYTHON": str(folder / "no-python")})
    doctor("memory:", "missing", "no connector at", remedy=["TIERCEL_CONNECTORS"], environment={"TIERCEL_CONNECTORS": str(folder)})
    doctor(f"program:{folder}/none", "missing", "No such file", remedy=["program"])
    doctor("program:/bin/false", "missing", "exited with 1")
    doctor("mooncake://127.0.0.1:1", "missing", "library is missing", remedy=["tools/connectors.sh"],
           environment={"TIERCEL_CONNECTOR_PYTHON": without_library(folder)})
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    if os.geteuid() == 0:
        NOT_HERE.append("1 case, this user may write everywhere")
    else:
        doctor(f"posix:{closed}/store", "missing", "Permission denied", remedy=["may write to"])
    refused(2, "mooncake://HOST:PORT", "doctor", "--remote", "somewhere")
    with_password = f"valkey://somebody:{PASSWORD}@127.0.0.1:{nowhere}"
    refused(1, "no server at", "replay", "--generate", "conversation:5", "--remote", with_password)
    refused(2, "--remote", "llama", "measure", "-m", "x.gguf", "--remote", with_password)
    run("doctor", "--remote", f"valkey://somebody:{PASSWORD}@127.0.0.1:99999")
    run("doctor", "--remote", f"valkey://somebody:{PASSWORD}@127.0.0.1:{nowhere}/name?pasword={PASSWORD}")
    code, out, err = run("doctor", "--remote", with_password)
    check(code == 1 and "missing  remote" in out and "  -> start it" in out and "not with this remote store" in out, out)
    check(err.startswith("tiercel doctor: remote: ") and err.count("\n") == 1, repr(err))


def removes_what_failed(folder):
    """A put that fails may have left its object."""
    program, said = folder / "failing", folder / "failing.said"
    program.write_text(f"""#!{sys.executable}
import sys
sys.path.append({str(SOURCE / "connectors")!r})
from tiercel_connector import BackEnd, Status, run

class Failing(BackEnd):
    def open(self, options):
        pass

    def put(self, items, replace, limit):
        return self._say("put", [item.name for item in items], Status.FAILED)

    def remove(self, names, limit):
        return self._say("remove", names, Status.OK)

    def _say(self, verb, names, status):
        with open({str(said)!r}, "a") as file:
            file.writelines(f"{{verb}} {{name}}\\n" for name in names)
        return [status] * len(names)

run(Failing())
""")
    program.chmod(0o755)
    doctor(f"program:{program}", "missing", "storing an object: failed")
    words = said.read_text().split()
    check(words[0::2] == ["put", "remove"] and words[1] == words[3], "what was put is removed", words)


def without_library(folder):
    """A Python that has nothing but its own library."""
    python = folder / "bare-python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
    python.chmod(0o755)
    return str(python)


def with_valkey(folder):
    if server_program() is None:
        left_out("2 functions", NO_SERVER)
        return
    server = Server(folder, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
    url = f"valkey://127.0.0.1:{server.port}"
    doctor(url, "ok", "removed")
    replays(url)
    server.stop()
    server = Server(folder, "--requirepass", PASSWORD, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    url = f"127.0.0.1:{server.port}"
    doctor(f"valkey://{url}", "missing", "refuses", remedy=["password"])
    doctor(f"valkey://default:{PASSWORD}@{url}", "ok", "removed")
    full = replay(f"valkey://default:{PASSWORD}@{url}", "--capacity-pages", 300, page_bytes="4KiB")
    check(full["remote"]["failed_class_sets"] > 0, "a full server takes no more, and nothing else happens", full["remote"])
    doctor(f"valkey://default:{PASSWORD}@{url}", "missing", "no room", remedy=["maxmemory"])
    server.stop()


# ---- llama ----

def prompt(question_seed):
    return "--prompt-tokens", 600, "--question-tokens", 24, "--question-seed", question_seed


def ask(model, cache, *more, **options):
    where = ("--no-cache",) if cache is None else ("--cache", cache, *SMALL)
    code, out, err = run("llama", "ask", "--json", "-m", model, "-t", 1, "-n", 4, *where, *more, **options)
    check(code == 0, model, more, code, err)
    got = json.loads(out) if code == 0 else {}
    if got:
        check(got["host_tokens"] + got["disk_tokens"] + got["remote_tokens"] == got["restored_tokens"], "where from:", got)
    return got


def kinds(folder, models):
    """Two folders, one store: the second machine restores what the first one computed, bit for bit."""
    url = f"posix:{folder}/store"
    for name in KINDS:
        model = models / f"{name}.gguf"
        first = ask(model, folder / f"{name}-1", "--exact", "--remote", url, *prompt(2))
        check(first["restored_tokens"] == 0 and first["notes"] == [], name, first)
        other = ask(model, folder / f"{name}-2", "--exact", "--remote", url, *prompt(3))
        plain = ask(model, None, *prompt(3))
        check(other["remote_tokens"] == other["restored_tokens"] > 0 and other["disk_tokens"] == 0, name, "another folder:", other)
        check(other["tokens"] == plain["tokens"] and other["logits_sha256"] == plain["logits_sha256"], name, "bit for bit", other, plain)
        again = ask(model, folder / f"{name}-2", "--exact", "--remote", url, *prompt(3))
        check(again["disk_tokens"] == again["restored_tokens"] and again["remote_tokens"] == 0, name, "now it is on this disk", again)
    by_name = ask(models / "llama.gguf", folder / "by-name", "--exact", *prompt(2), environment={"TIERCEL_REMOTE": url})
    check(by_name["remote_tokens"] > 0, "the environment's address", by_name)
    another = ask(models / "llama.gguf", folder / "tenant", "--exact", "--remote", url, "--tenant", "somebody else", *prompt(2))
    check(another["restored_tokens"] == 0, "another tenant finds nothing", another)
    said = run("llama", "ask", "-m", models / "llama.gguf", "-t", 1, "-n", 2, "--cache", folder / "said", *SMALL, "--exact", "--remote", url, *prompt(2))
    check("(remote " in said[2], "the words", said)


def broken_stores(folder, models):
    model = models / "llama.gguf"
    plain = ask(model, None, *prompt(2))
    for name, url in (("nobody", f"valkey://127.0.0.1:{free_port()}"), ("false", "program:/bin/false")):
        got = ask(model, folder / name, "--exact", "--remote", url, *prompt(2))
        check(got["logits_sha256"] == plain["logits_sha256"] and len(got["notes"]) == 1 and "remote store is not ready" in got["notes"][0], got)
    full = ask(model, folder / "full", "--exact", "--remote", "memory:?capacity_bytes=1000", *prompt(2))
    check(full["logits_sha256"] == plain["logits_sha256"], "a store without room", full)
    if server_program() is None:
        left_out("1 case", NO_SERVER)
        return
    server = Server(folder)
    url = f"valkey://127.0.0.1:{server.port}"
    ask(model, folder / "valkey-1", "--exact", "--remote", url, *prompt(2))
    got = ask(model, folder / "valkey-2", "--exact", "--remote", url, *prompt(2))
    check(got["remote_tokens"] > 0 and got["logits_sha256"] == plain["logits_sha256"], "through a server", got)
    hang(server.process)
    got = ask(model, folder / "valkey-3", "--exact", "--remote", url, *prompt(2))
    check(got["restored_tokens"] == 0 and got["logits_sha256"] == plain["logits_sha256"] and got["notes"], "a server that hangs", got)
    server.stop()


def demo(folder, models):
    code, out, err = run("llama", "demo", "--json", "-m", models / "llama.gguf", "-t", 1, "-n", 4, "--tokens", 500, *SMALL, "--remote",
                         f"posix:{folder}/demo")
    check(code == 0, "demo", code, err)
    report = json.loads(out) if code == 0 else {"runs": []}
    runs = report["runs"]
    check(report.get("good"), "pages from a store are as good as from a disk", report)
    check(runs and runs[-1]["run"] == "remote" and runs[-1]["remote_tokens"] == runs[-1]["restored_tokens"] > 0 and runs[-1]["same_logits"], runs[-1:])
    check(runs and runs[1]["restored_tokens"] == 0, "the first time is one", runs[1:2])


def chat(folder, model):
    manual = folder / "manual.txt"
    manual.write_text("You are a terse assistant for a garden. " + " ".join(f"Bed {n} has {('roses', 'beans')[n % 2]}." for n in range(60)))
    lines = []
    for machine in "ab":
        talk = ["llama", "chat", "-m", model, "-t", 1, "--cache", folder / f"chat-{machine}", "--cache-bytes", "256MiB", "--host-bytes", "128MiB",
                "--remote", f"posix:{folder}/chat", "--system-file", manual, "--exact", "-n", 6]
        code, out, err = run(*talk, input=b"What grows in bed 7?\n")
        check(code == 0 and out.strip(), "chat", code, err)
        lines.append([line for line in err.splitlines() if "computed" in line])
    check("restored 0 of" in lines[0][0] and "(remote " in lines[1][0], "the second machine restores the first one's system prompt", lines)


def llamas(folder):
    if "built without llama.cpp" in run("llama", "ask", "-m", "x.gguf", "--no-cache", "--prompt-tokens", 10)[2]:
        NOT_HERE.append("llama: built without llama.cpp")
        return
    models = folder / "models"
    subprocess.run([sys.executable, SOURCE / "integrations" / "llamacpp" / "tests" / "tiny_models.py", models], check=True, stdout=subprocess.DEVNULL)
    refused(2, "--remote needs --cache", "llama", "ask", "-m", models / "llama.gguf", "--no-cache", "--remote", "memory:", *prompt(2))
    refused(2, "--remote", "llama", "measure", "-m", models / "llama.gguf", "--remote", "memory:")
    refused(2, "mooncake://HOST:PORT", "llama", "ask", "-m", models / "llama.gguf", "--cache", folder / "x", "--remote", "somewhere", *prompt(2))
    kinds(folder, models)
    broken_stores(folder, models)
    demo(folder, models)
    named = os.environ.get("TIERCEL_REAL_MODEL") or subprocess.run([SOURCE / "tools" / "llama_model.sh", "--where"], capture_output=True,
                                                                   text=True).stdout.strip()
    if not named or not Path(named).is_file():
        NOT_HERE.append("the chat, there is no real model (tools/llama_model.sh)")
        return
    chat(folder, named)


def main(folder):
    for part in ((usage_of_replay, folder), (replays, f"posix:{folder}/replays"), (replays, "memory:", True),
                 (models_of_replay, f"posix:{folder}/models-of-replay"), (both_tiers, folder), (doctors, folder), (with_valkey, folder),
                 (llamas, folder)):
        run_cases(part[:1], *part[1:])


if __name__ == "__main__":
    PROGRAM = str(Path(sys.argv[1]) / "tiercel")
    os.environ.pop("TIERCEL_REMOTE", None)
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
    for line in NOT_HERE:
        print("skipped:", line)
    ends("remote")

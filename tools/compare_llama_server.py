#!/usr/bin/env python3
"""Counts the tokens that llama.cpp's own llama-server and `tiercel llama` compute of the same prompts: a question over a long system
prompt, the same one after a restart, another one after a restart; and the bytes that each keeps on disk for that.

  compare_llama_server.py --tiercel build/release/bin/tiercel -m MODEL.gguf --server FOLDER/llama-server
  compare_llama_server.py --tiercel build/release/bin/tiercel --models FOLDER

The first prints one row for each way: llama-server as it starts, its prompt cache in memory, its slot files, Tiercel in exact and in fast
mode. The second needs no server: every model of a folder (integrations/llamacpp/tests/tiny_models.py writes some), random tokens, both
modes. Tokens and bytes are counted, not times, so other load on the machine changes nothing. All files are temporary (TMPDIR says where)
and removed; only programs started here are ended.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

FIRST, OTHER = "What does the intake filter do?", "What does the drain pump do?"  # those of `tiercel llama demo`
BETWEEN = "Name three birds that live near rivers, and say in one sentence each how they find their food."
TRIES, LOOK_AGAIN_S, END_S = 3, 0.1, 20
MODES = ("exact", "fast")
QUESTIONS = (16, 200)  # tokens, with --models: a short one and a long one


class Problem(Exception):
    """What went wrong, for the user, in one line."""


def show(step):
    if sys.stderr.isatty():
        print(f"\r\033[K{step}", end="", file=sys.stderr, flush=True)


def last_line(text, otherwise):
    lines = text.strip().splitlines()
    return lines[-1] if lines else otherwise


def end(child):
    """Asks it to end, then ends it."""
    for ask in (child.terminate, child.kill):
        if child.poll() is None:
            ask()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)


class Tiercel:
    def __init__(self, program, threads, answer_tokens, cache_bytes, timeout):
        self.program, self.threads, self.timeout = program, threads, timeout
        self.answer_tokens, self.cache_bytes = answer_tokens, cache_bytes

    def json(self, *arguments):
        command = [self.program, *map(str, arguments), "--json"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                 timeout=self.timeout)
            if run.returncode != 0:
                raise Problem(last_line(run.stderr, f"{shlex.join(command)} ended with status {run.returncode}"))
            return json.loads(run.stdout)
        except OSError as failure:
            raise Problem(f"{self.program} cannot be started: {failure.strerror}") from None
        except subprocess.TimeoutExpired:
            raise Problem(f"{shlex.join(command)} took longer than {self.timeout} s; --timeout allows more") from None
        except ValueError:
            raise Problem(f"{shlex.join(command)} did not answer in JSON") from None

    def ask(self, model, prompt, *mode):
        got = self.json("llama", "ask", "-m", model, "-t", self.threads, "-n", self.answer_tokens, *prompt, *mode)
        return {"prompt": got["prompt_tokens"], "computed": got["computed_tokens"], "text": got["text"].strip(),
                "logits_sha256": got["logits_sha256"], "memory": got["memory"], "notes": got["notes"]}

    def cached(self, model, prompts, mode, folder):
        """Each prompt in a process of its own, all with one cache. Bytes after each: what is stored; the file is claimed at once."""
        where, file = (f"--{mode}", "--cache", folder, "--cache-bytes", self.cache_bytes), os.path.join(folder, "cache.tiercel")
        runs, stored = [], []
        for prompt in prompts:
            runs.append(self.ask(model, prompt, *where))
            stored.append(sum(space["bytes"] for space in self.json("disk", "ls", file)))
        return runs, stored, os.path.getsize(file)

    def demo_manual(self, model, tokens, folder):
        """The system prompt of `tiercel llama demo`: it writes that beside its cache before its first step; the rest is not waited for."""
        command = [self.program, "llama", "demo", "-m", model, "-t", str(self.threads), "-n", "1", "--tokens", str(tokens), "--json"]
        read, until = "", time.monotonic() + self.timeout
        with open(os.path.join(folder, "demo.err"), "w+", encoding="utf-8", errors="replace") as err:
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                         env={**os.environ, "TMPDIR": folder})
            except OSError as failure:
                raise Problem(f"{self.program} cannot be started: {failure.strerror}") from None
            try:
                while time.monotonic() < until:
                    ended = child.poll() is not None
                    texts = [path.read_text(encoding="utf-8") for path in pathlib.Path(folder).glob("*/manual.txt")]
                    if texts and texts[0] and texts[0] == read:  # twice the same: it is whole
                        return read
                    read = texts[0] if texts else ""
                    if ended:
                        break
                    time.sleep(LOOK_AGAIN_S)
            finally:
                end(child)
            err.seek(0)
            raise Problem(last_line(err.read(), "`tiercel llama demo` wrote no system prompt; give one by --system-file"))


def beside(program):
    """The environment for a llama-server: a packaged one has its libraries beside it; those that the user has named are searched behind."""
    folder = os.path.dirname(os.path.abspath(program))
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH"))))}


class Server:
    """One llama-server on a free port of this machine, from `with` on until its end."""

    def __init__(self, arguments, folder, *more):
        self.arguments, self.folder, self.more = arguments, folder, more
        self.child = self.port = None

    def __enter__(self):
        for _ in range(TRIES):  # another program may take the port meanwhile
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            try:
                if self.starts():
                    return self
            except BaseException:
                self.__exit__()
                raise
        with open(self.log(), encoding="utf-8", errors="replace") as log:
            raise Problem(f"{self.arguments.server} ended at once: {last_line(log.read(), 'without a word')}")

    def __exit__(self, *_):
        if self.child is not None:
            end(self.child)

    def log(self):
        return os.path.join(self.folder, "server.log")

    def starts(self):
        given = self.arguments
        command = [given.server, "-m", given.model, "-t", str(given.threads), "-c", str(given.ctx), "-np", "1", "-ngl", "0",
                   "--host", "127.0.0.1", "--port", str(self.port), *self.more, *shlex.split(given.server_options)]
        with open(self.log(), "w", encoding="utf-8") as log:
            try:
                self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                              env=beside(given.server))
            except OSError as failure:
                raise Problem(f"{given.server} cannot be started: {failure.strerror}") from None
        until = time.monotonic() + given.timeout
        while time.monotonic() < until:
            if self.child.poll() is not None:
                return False
            with contextlib.suppress(OSError):  # not listening yet, or loading the model
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return True
            time.sleep(LOOK_AGAIN_S)
        raise Problem(f"{given.server} was not ready after {given.timeout} s; --timeout allows more")

    def post(self, path, body):
        where, head = f"http://127.0.0.1:{self.port}{path}", {"Content-Type": "application/json"}
        request = urllib.request.Request(where, json.dumps(body).encode(), head)
        try:
            with urllib.request.urlopen(request, timeout=self.arguments.timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            raise Problem(f"llama-server refused {path}: {refusal.read().decode(errors='replace')[:200]}") from None
        except (OSError, ValueError) as failure:
            raise Problem(f"llama-server did not answer {path}: {failure}") from None

    def ask(self, question, system=None):
        messages = [{"role": "system", "content": system}] if system else []
        got = self.post("/v1/chat/completions", {
            "messages": messages + [{"role": "user", "content": question}], "max_tokens": self.arguments.answer_tokens, "temperature": 0,
            "cache_prompt": True, "id_slot": 0})
        try:
            return {"prompt": got["usage"]["prompt_tokens"], "computed": got["timings"]["prompt_n"],
                    "text": (got["choices"][0]["message"]["content"] or "").strip()}
        except (KeyError, IndexError, TypeError):
            raise Problem("this llama-server does not say how many tokens it computed; take a newer one") from None

    def slot(self, action, name):
        return self.post(f"/slots/0?action={action}", {"filename": name})


def way(name, runs, *, disk, by_hand, restarts=True):
    """`disk`: bytes after the first run and after the last."""
    return {"way": name, "runs": dict(zip(("first", "again", "other"), runs)), "disk_bytes": {"first": disk[0], "other": disk[-1]},
            "by_hand": by_hand, "restarts": restarts, "same_answer": runs[1]["text"] == runs[0]["text"]}


def server_ways(arguments, system, folder):
    def alone(question):
        with Server(arguments, folder) as server:
            return server.ask(question, system)

    show("llama-server, restarted …")
    yield way("llama-server, restarted", [alone(question) for question in (FIRST, FIRST, OTHER)], disk=[0], by_hand="nothing")

    show("llama-server, prompt cache in memory …")
    with Server(arguments, folder, "--cache-ram", "8192") as server:
        runs = []
        for question in (FIRST, FIRST, OTHER):
            if runs:
                server.ask(BETWEEN)  # another conversation in the slot, as in daily use
            runs.append(server.ask(question, system))
    yield way("llama-server, `--cache-ram`, not restarted", runs, disk=[0], by_hand="nothing", restarts=False)

    show("llama-server, slot files …")
    slots, files, runs = os.path.join(folder, "slots"), ("first.bin", "other.bin"), []
    os.mkdir(slots)
    for restore, question, save in ((None, FIRST, files[0]), (files[0], FIRST, None), (files[0], OTHER, files[1])):
        with Server(arguments, folder, "--slot-save-path", slots + os.sep) as server:
            if restore:
                server.slot("restore", restore)
            runs.append(server.ask(question, system))
            if save:
                server.slot("save", save)
    sizes = [os.path.getsize(os.path.join(slots, file)) for file in files]
    yield way("llama-server, slot files", runs, disk=[sizes[0], sum(sizes)],
              by_hand="a save, and a restore of the right file")


def beside_server(arguments, tiercel, folder):
    if arguments.system_file:
        try:
            system = pathlib.Path(arguments.system_file).read_text(encoding="utf-8")
        except (OSError, ValueError) as failure:
            raise Problem(f"{arguments.system_file} cannot be read: {failure}") from None
    else:
        show("the system prompt …")
        system = tiercel.demo_manual(arguments.model, arguments.tokens, folder)
    path = os.path.join(folder, "system.txt")
    pathlib.Path(path).write_text(system, encoding="utf-8")
    ways = list(server_ways(arguments, system, folder))
    for mode in MODES:
        show(f"tiercel, {mode} …")
        prompts = [("--system-file", path, "-p", question) for question in (FIRST, FIRST, OTHER)]
        runs, stored, size = tiercel.cached(arguments.model, prompts, mode, os.path.join(folder, mode))
        ways.append({**way(f"Tiercel, {mode}", runs, disk=stored, by_hand="nothing"), "file_bytes": size})
    show("")
    lengths = {tuple(run["prompt"] for run in each["runs"].values()) for each in ways}
    return {"model": os.path.basename(arguments.model), "threads": arguments.threads, "server_version": server_version(arguments.server),
            "same_prompt_everywhere": len(lengths) == 1, "ways": ways}


def server_version(program):
    run = subprocess.run([program, "--version"], capture_output=True, text=True, errors="replace", timeout=60, env=beside(program))
    lines = (run.stderr + run.stdout).splitlines()
    return next((line.removeprefix("version:").strip() for line in lines if line.startswith("version:")), "")


def of_model(arguments, tiercel, path, mode, folder):
    row = {}
    for length in QUESTIONS:  # behind one beginning
        prompts = [("--prompt-tokens", arguments.tokens - length, "--question-tokens", length, "--question-seed", seed)
                   for seed in (2, 2, 3)]
        runs, _, _ = tiercel.cached(str(path), prompts, mode, os.path.join(folder, f"{path.stem}-{mode}-{length}"))
        row["memory"] = runs[0]["memory"]
        row[f"question_{length}"] = dict(zip(("first", "again", "other"), (run["computed"] for run in runs)))
        if mode == "exact":
            plain = [tiercel.ask(str(path), prompt, "--no-cache") for prompt in prompts[1:]]
            same = [run["logits_sha256"] for run in runs[1:]] == [run["logits_sha256"] for run in plain]
            row["same_bits"] = row.get("same_bits", True) and same
    return row


def of_models(arguments, tiercel, folder):
    paths = sorted(pathlib.Path(arguments.models).glob("*.gguf"))
    if not paths:
        raise Problem(f"no .gguf file in {arguments.models}")
    models = []
    for path in paths:
        for mode in MODES:
            show(f"{path.stem}, {mode} …")
            row = {"model": path.stem, "mode": mode}
            try:
                row.update(of_model(arguments, tiercel, path, mode, folder))
            except Problem as problem:
                row["refused"] = str(problem)
            models.append(row)
    if all("refused" in row for row in models):
        raise Problem(models[0]["refused"])
    show("")
    return {"prompt_tokens": arguments.tokens, "threads": arguments.threads, "models": models}


# ---- text ----

def megabytes(count):
    return f"{count / 1e6:.1f} MB" if count else "none"


def table(head, rows):
    """For Markdown, and to be read as it is."""
    rows = [head, *([str(cell) for cell in row] for row in rows)]
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def server_text(result):
    rows = [[each["way"], *(f"{each['runs'][run]['computed']:,}" for run in ("first", "again", "other")),
             "same" if each["same_answer"] else "other words",
             ", ".join(dict.fromkeys(map(megabytes, each["disk_bytes"].values()))) if each["restarts"] else "none; gone with the process",
             each["by_hand"]] for each in result["ways"]]
    text = table(["", "first time", "again", "another question", "answer again", "on disk after one, after both", "by hand"], rows)
    first = result["ways"][0]["runs"]["first"]["prompt"]
    text += (f"\n\nTokens computed of {first:,}; {result['model']}, {result['threads']} thread{'s' * (result['threads'] != 1)}; "
             f"llama-server {result['server_version'] or 'of an unknown version'}.")
    return text + ("" if result["same_prompt_everywhere"] else "\nnote: the prompts differ in length, so the chat templates differ")


def models_text(result):
    rows = []
    for row in result["models"]:
        if "refused" in row:
            rows.append([row["model"], "", row["mode"], "refused", "", "", "", ""])
            continue
        short, long = (row[f"question_{length}"] for length in QUESTIONS)
        bits = {True: "yes", False: "NO", None: "-"}[row.get("same_bits")]
        rows.append([row["model"], row["memory"], row["mode"], *(f"{short[run]:,}" for run in ("first", "again", "other")),
                     f"{long['other']:,}", bits])
    another = (f"another of {length}" for length in QUESTIONS)
    head = ["model", "kept as", "mode", "first time", "again", *another, "bits of plain llama.cpp"]
    text = table(head, rows) + (f"\n\nTokens computed of {result['prompt_tokens']:,}; a question of {' or '.join(map(str, QUESTIONS))} tokens "
                                "behind one beginning; each run a process of its own.")
    refusals = (f"\nrefused: {row['model']}, {row['mode']}: {row['refused']}" for row in result["models"] if "refused" in row)
    return text + "".join(refusals)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiercel", required=True, metavar="PROGRAM", help="the built `tiercel`")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-m", "--model", metavar="MODEL.gguf", help="beside llama-server, with this model; it needs a chat template")
    what.add_argument("--models", metavar="FOLDER", help="Tiercel alone, with each model of this folder")
    parser.add_argument("--server", metavar="PROGRAM", help="llama-server; -m needs it")
    parser.add_argument("--server-options", default="", metavar="WORDS", help="more for llama-server, as one word: '--swa-full -fa on'")
    parser.add_argument("--system-file", metavar="FILE", help="the system prompt (default: that of `tiercel llama demo`)")
    parser.add_argument("--tokens", type=int, default=1500, help="length of a prompt (default %(default)s)")
    parser.add_argument("-t", "--threads", type=int, default=1, help="(default %(default)s)")
    parser.add_argument("-n", "--answer-tokens", type=int, default=32, help="most tokens of an answer (default %(default)s)")
    parser.add_argument("-c", "--ctx", type=int, default=4096, help="tokens of llama-server's context (default %(default)s)")
    parser.add_argument("--cache-bytes", help="of each cache of Tiercel's (default 1GiB; --models: 128MiB)")
    parser.add_argument("--timeout", type=int, default=600, help="seconds that one step may take (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    arguments = parser.parse_args()
    if arguments.model and not arguments.server:
        parser.error("-m needs --server; docs/guide/llamacpp.md says where one comes from")
    if arguments.tokens < 512:
        parser.error("--tokens: at least 512")
    return arguments


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended
    tiercel = Tiercel(arguments.tiercel, arguments.threads, arguments.answer_tokens,
                      arguments.cache_bytes or ("1GiB" if arguments.model else "128MiB"), arguments.timeout)
    try:
        with tempfile.TemporaryDirectory(prefix="compare-llama-", ignore_cleanup_errors=True) as folder:
            result = (beside_server if arguments.model else of_models)(arguments, tiercel, folder)
    except Problem as problem:
        show("")
        sys.exit(f"compare_llama_server: {problem}")
    except KeyboardInterrupt:
        show("")
        sys.exit(128 + signal.SIGINT)
    print(json.dumps(result) if arguments.json else server_text(result) if arguments.model else models_text(result))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""clang-tidy-16 on the files that changed since the last commit on `main`, or on every file.

  tools/run_tidy.py --build build/clang [--jobs N] [--all]

Changed is: what is not committed, and what the branch has over `main`; on `main` itself, what its newest commit changed.
A changed header is examined through the source of the same name, or else through one that includes it.
A source whose preprocessed text, command and rules are as they were when it passed is not examined again (BUILD/tidy-passed).
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

import sources

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def git(top, *arguments):
    result = subprocess.run(["git", "-C", top, *arguments], capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def changed_since(top):
    """The commit to compare with: where the branch left `main`, or the commit before the newest one of `main`."""
    head = git(top, "rev-parse", "HEAD")
    for main in ("main", "origin/main"):
        base = git(top, "merge-base", "HEAD", main)
        if base and base != head:
            return base
    return git(top, "rev-parse", "HEAD~1") or EMPTY_TREE


def changed_files(top):
    tracked = git(top, "diff", "--name-only", changed_since(top)) or ""
    untracked = git(top, "ls-files", "--others", "--exclude-standard") or ""
    return set(tracked.split("\n") + untracked.split("\n")) - {""}


def units_to_examine(top, changed, units):
    """Sources of `units` (relative names) that stand for the changed files."""
    chosen = changed & units
    for header in (name for name in changed if name.endswith((".h", ".hpp"))):
        beside = header[:header.rindex(".")] + ".cc"
        include = re.compile('["<]' + re.escape(re.sub(r"^(src|(.*/)?include|integrations/[^/]+)/", "", header)) + '[">]')
        if beside in units:
            chosen.add(beside)
        else:
            chosen.update([name for name in sorted(units) if include.search(sources.read(top, name))][:1])
    return chosen


def fingerprint(top, entry):
    """What the verdict depends on, or nothing when the source does not even preprocess."""
    command = re.sub(r"\s-o\s+\S+", "", entry["command"])
    command = re.sub(r"^.*?(\S*clang\+\+\S*)", r"\1", command)
    text = subprocess.run(command.replace(" -c ", " -E -C "), shell=True, cwd=entry["directory"], capture_output=True)
    if text.returncode != 0:
        return None
    rules = sources.read(top, ".clang-tidy")
    return hashlib.sha256(b"\0".join([command.encode(), rules.encode(), text.stdout])).hexdigest()


def examine(top, build, entry):
    """(passed, examined, output) of one source."""
    mark = fingerprint(top, entry)
    passed = mark and os.path.join(build, "tidy-passed", mark)
    if passed and os.path.exists(passed):
        return True, False, ""
    tidy = subprocess.run(["clang-tidy-16", "-p", build, "--quiet", entry["file"]], capture_output=True, text=True)
    if tidy.returncode == 0 and passed:
        os.makedirs(os.path.dirname(passed), exist_ok=True)
        open(passed, "w").close()
    return tidy.returncode == 0, True, tidy.stdout + ("" if tidy.returncode == 0 else tidy.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--tree", default=sources.HERE)
    args = parser.parse_args()
    top = os.path.abspath(args.tree)
    with open(os.path.join(args.build, "compile_commands.json"), encoding="utf-8") as file:
        # A source that is compiled twice (with and without fault points) is examined as it ships: the first entry.
        entries = {}
        for entry in json.load(file):
            name = os.path.relpath(entry["file"], top)
            if not name.startswith(("..", "build/")):
                entries.setdefault(name, entry)
    if not args.all and git(top, "rev-parse", "HEAD") is None:
        sys.exit("tidy: not a git checkout, so what changed is unknown; use --all")
    chosen = set(entries) if args.all else units_to_examine(top, changed_files(top), set(entries))
    failed = examined = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for passed, fresh, output in pool.map(lambda name: examine(top, args.build, entries[name]), sorted(chosen)):
            failed += not passed
            examined += fresh
            if not passed:
                print(output)
    print(f"tidy: {len(chosen)} of {len(entries)} sources, {examined} examined, {len(chosen) - examined} known to pass, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

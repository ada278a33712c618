#!/usr/bin/env python3
"""Lower never includes higher: every `#include "module/..."` is checked against the order in tools/layers.txt.

Tests beside the code obey the same order, but may also include a `tests-only` module (the simulated world).
What stands under tests/ may include everything. Slow headers (JSON, command line) may not be included from a header.

What stands under integrations/NAME/ is written like a program of somebody else: it may include the public headers <tiercel/...>, its engine's,
the standard library's and the system's, OpenSSL, fmt, and its own files.
"""
import os
import re
import sources

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
ONLY_IN_CC = ("nlohmann/json.hpp", "CLI/")
TEST = re.compile(r"_(test|fuzz)\.(cc|h)$")
OUTSIDE = re.compile(r"(tiercel|openssl|fmt)/|[a-z0-9_]+$|(sys|linux)/\w+\.h$|(unistd|fcntl|signal|dirent|poll|pthread|sched|spawn|termios)\.h$")
ENGINE = {"llamacpp": re.compile(r"(llama|llama-cpp|gguf|ggml(-[a-z]+)?)\.h$")}
FOR_TESTS = re.compile(r"(gtest|gmock|rapidcheck)/|rapidcheck\.h$")


def read_layers(text):
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [words[0] for words in lines], {words[0] for words in lines if "tests-only" in words}


def module_of(name):
    parts = name.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in ("apps", "integrations") else None


def check_integration(name, text, names):
    folder = "/".join(name.split("/")[:2])
    engine = ENGINE.get(name.split("/")[1], FOR_TESTS)
    for found in INCLUDE.finditer(text):
        quote, path = found.groups()
        where = f"{name}:{text.count(chr(10), 0, found.start(2)) + 1}"
        if quote == '"':
            beside = os.path.normpath(os.path.join(os.path.dirname(name), path))
            if not beside.startswith(folder + "/") or beside not in names:
                yield f"{where}: '{path}' is no file of {folder}, which may include <tiercel/...> and its own files only"
        elif not OUTSIDE.match(path) and not engine.match(path) and not (TEST.search(name) and FOR_TESTS.match(path)):
            yield f"{where}: <{path}>: {folder} may include <tiercel/...>, its engine, the system, OpenSSL and fmt only"


def check_file(name, text, order, tests_only, names):
    module = module_of(name)
    if module is None:
        return
    if module == "integrations":
        yield from check_integration(name, text, names)
        return
    if module not in order:
        yield f"{name}: module '{module}' is not in tools/layers.txt; add it at its place"
        return
    for found in INCLUDE.finditer(text):
        quote, path = found.groups()
        where = f"{name}:{text.count(chr(10), 0, found.start(2)) + 1}"
        if name.endswith((".h", ".hpp")) and path.startswith(ONLY_IN_CC):
            yield f"{where}: <{path}> belongs in a .cc file only (it is slow to compile)"
        target = path.split("/")[0]
        if quote != '"' or target not in order:
            continue
        if target in tests_only and module not in tests_only:
            if not TEST.search(name):
                yield f"{where}: '{path}': {target} is for tests only"
        elif order.index(target) > order.index(module):
            yield f"{where}: '{path}': {module} may not include {target}, which stands above it"


def main():
    top = sources.root()
    order, tests_only = read_layers(sources.read(top, "tools/layers.txt"))
    names = sources.files(top, sources.CODE)
    known = set(names)
    findings = [finding for name in names for finding in check_file(name, sources.read(top, name), order, tests_only, known)]
    sources.report("layers", findings, f"{len(names)} files")


if __name__ == "__main__":
    main()

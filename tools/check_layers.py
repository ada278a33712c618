#!/usr/bin/env python3
"""Lower never includes higher: every `#include "module/..."` is checked against the order in tools/layers.txt.

Tests beside the code obey the same order, but may also include a `tests-only` module (the simulated world).
What stands under tests/ may include everything. Slow headers (JSON, command line) may not be included from a header.
"""
import re
import sources

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
ONLY_IN_CC = ("nlohmann/json.hpp", "CLI/")
TEST = re.compile(r"_(test|fuzz)\.(cc|h)$")


def read_layers(text):
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [words[0] for words in lines], {words[0] for words in lines if "tests-only" in words}


def module_of(name):
    parts = name.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return "apps" if parts[0] == "apps" else None


def check_file(name, text, order, tests_only):
    module = module_of(name)
    if module is None:
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
    findings = [finding for name in names for finding in check_file(name, sources.read(top, name), order, tests_only)]
    sources.report("layers", findings, f"{len(names)} files")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What may not stand in a tracked file: paths of somebody's machine, names of package registries, unfinished marks,
tests that are switched off or sleep, and stream input/output.

Patterns are written in pieces, so that this file does not find itself.
"""
import re
import sources

CODE, ALL = sources.CODE, None
TESTS = ("_test.cc",)
# (what files, what may not be there, what to do instead)
RULES = [
    (ALL, r"(?<![\w.~$})>-])/(?:wor" r"k|ro" r"ot|ho" r"me|Us" r"ers|mn" r"t|me" r"dia)/[\w.-]",
     "a path of one machine; use a relative one"),
    (ALL, r"(?<![\w.$}])/(?:var/)?tm" r"p/[\w.-]", "a fixed temporary path; let the program or the test make its own"),
    (ALL, r"[A-Za-z]:\\\\?[A-Z]" r"[a-z]+\\", "a path of one machine; use a relative one"),
    (ALL, r"\b(?:py" r"pi\.org|pythonho" r"sted\.org|registry\.np" r"mjs|crat" r"es\.io|deb\.deb" r"ian\.org|proxy\.gol" r"ang|"
          r"conda\.ana" r"conda|hub\.doc" r"ker|gh" r"cr\.io|quay\.i" r"o)\b", "the host of a package registry"),
    (ALL, r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", "an unfinished mark; do it, or write down that it is missing"),
    (CODE, r"\bDISAB" r"LED_|\bSUCC" r"EED\(\)|EXPECT_TRUE\(tr" r"ue\)|GTEST_S" r"KIP\(\)\s*;",
     "a test that cannot fail, or skips without saying why"),
    (TESTS, r"\b(?:sleep_f" r"or|sleep_un" r"til|usle" r"ep|nanosle" r"ep)\b", "a test that sleeps; wait for the event itself"),
    (CODE, r"#\s*include\s*<(?:iostr" r"eam|fstr" r"eam|sstr" r"eam)>", "streams; use fmt or stdio"),
]
RULES = [(suffixes, re.compile(pattern), advice) for suffixes, pattern, advice in RULES]
BINARY = (".png", ".gz", ".bin", ".ico")


def allowed(name):
    """Fuzz inputs are what a fuzzer found, and the licence is not ours to edit."""
    return name.startswith("tests/fuzz_corpus/") or name == "LICENSE" or name.endswith(BINARY)


def check_file(name, text):
    for suffixes, pattern, advice in RULES:
        if suffixes and not name.endswith(tuple(suffixes)):
            continue
        for found in pattern.finditer(text):
            yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: '{found.group()}': {advice}"


def main():
    top = sources.root()
    names = [name for name in sources.files(top) if not allowed(name)]
    findings = [finding for name in names for finding in check_file(name, sources.read(top, name))]
    sources.report("text", findings, f"{len(names)} files")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""docs/glossary.md and the code agree: each word of tools/vocabulary.txt has a row `| word | header | symbol | meaning |`,
and each symbol of a row is declared in that row's header.

A symbol is a type, function, constant, or `Type::member`. A row whose header column says `not built yet` has no symbol and is counted.
"""
import os
import re
import sources

TYPE = r"\b(?:class|struct|enum(?:\s+class)?|union|concept)\s+(?:\[\[[^\]]*\]\]\s*)?{0}\b(?=\s*(?:final\s*)?[:{{=]|\s*$)"
ALIAS = r"\busing\s+{0}\s*="
FUNCTION = r"[\w>&*]\s+[&*]*{0}\s*\("
VALUE = r"[\w>&*]\s+[&*]*{0}\s*(?:[;={{,\[]|$)|^\s*{0}\s*(?:=[^;]*)?,?\s*$"
ENUMERATOR = r"[{{,]\s*{0}\s*(?:=[^,}}]*)?[,}}]"
NOT_BUILT = "not built yet"


def rows(text):
    """(line number, word, header, symbols) of each row of the table."""
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 3 or cells[0] == "word" or set(cells[0]) <= {"-", ":"}:
            continue
        symbols = re.findall(r"`([^`]+)`", cells[2])
        yield number, cells[0].strip("*"), cells[1].strip("`"), symbols


def declares(code, symbol):
    """Whether `code` (C++ without comments) declares `symbol`; of `Type::member` both must be there."""
    names = symbol.split("::")
    code = re.sub(r"\breturn\b[^;]*;", "", code)
    patterns = lambda name: (TYPE, ALIAS, FUNCTION, VALUE) + ((ENUMERATOR,) if name.startswith("k") else ())
    return all(any(re.search(pattern.format(re.escape(name)), code, re.M) for pattern in patterns(name)) for name in names)


def check(top, text, words):
    found, unbuilt = set(), 0
    findings = []
    for number, word, header, symbols in rows(text):
        found.add(word)
        where = f"docs/glossary.md:{number}"
        path = next((p for p in (f"src/{header}", header) if os.path.isfile(os.path.join(top, p))), None)
        if header == NOT_BUILT and not symbols:
            unbuilt += 1
        elif path is None:
            findings.append(f"{where}: '{word}': there is no header {header}")
        elif not symbols:
            findings.append(f"{where}: '{word}': names no symbol of {header}")
        else:
            code = sources.code_only(sources.read(top, path))
            findings += [f"{where}: '{word}': {path} does not declare '{symbol}'"
                         for symbol in symbols if not declares(code, symbol)]
    findings += [f"docs/glossary.md: the word '{word}' has no row" for word in words if word not in found]
    return findings, len(found), unbuilt


def main():
    top = sources.root()
    words = [line for line in sources.read(top, "tools/vocabulary.txt").splitlines() if line and not line.startswith("#")]
    findings, count, unbuilt = check(top, sources.read(top, "docs/glossary.md"), words)
    sources.report("glossary", findings, f"{count} words ({unbuilt} not built yet)")


if __name__ == "__main__":
    main()

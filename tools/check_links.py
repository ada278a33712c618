#!/usr/bin/env python3
"""Every relative link in a Markdown file leads to a file of this tree, and every #anchor to a heading."""
import os
import re
import sources

LINK = re.compile(r"(?<!\\)!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+(\S+)", re.M)
IMAGE = re.compile(r'<(?:img|source|a)\b[^>]*\b(?:src|href|srcset)="([^"]+)"')
OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.I)


def without_code(text):
    """Blanks fenced blocks and code spans; line numbers stay."""
    blank = lambda found: re.sub(r"[^\n]", " ", found.group())
    text = re.sub(r"^(\s*)(```+|~~~+).*?^\s*\2\s*$", blank, text, flags=re.S | re.M)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", blank, text)


def anchors(text):
    """Names that a heading gets on the usual Git hosts: lower case, punctuation dropped, spaces to dashes."""
    names, seen = set(), {}
    fenceless = re.sub(r"^(\s*)(```+|~~~+).*?^\s*\2\s*$", "", text, flags=re.S | re.M)
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*\s*$", fenceless, flags=re.M):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        names.add(name if count == 0 else f"{name}-{count}")
    return names | set(re.findall(r'<a\s+(?:name|id)="([^"]+)"', text))


def check_file(top, name):
    text = without_code(sources.read(top, name))
    for pattern in (LINK, DEFINITION, IMAGE):
        for found in pattern.finditer(text):
            target = found.group(1)
            if OUTSIDE.match(target):
                continue
            where = f"{name}:{text.count(chr(10), 0, found.start(1)) + 1}"
            path, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if path.startswith("/") or file.startswith(".."):
                yield f"{where}: '{target}' leads outside this tree; use a relative path"
            elif not os.path.exists(os.path.join(top, file)):
                yield f"{where}: '{target}': there is no {file}"
            elif anchor and file.endswith(".md") and anchor not in anchors(sources.read(top, file)):
                yield f"{where}: '{target}': {file} has no heading '#{anchor}'"


def main():
    top = sources.root()
    names = sources.files(top, [".md"])
    findings = [finding for name in names for finding in check_file(top, name)]
    sources.report("links", findings, f"{len(names)} Markdown files")


if __name__ == "__main__":
    main()

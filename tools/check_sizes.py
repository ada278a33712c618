#!/usr/bin/env python3
"""A source file has at most 700 lines. (A function has at most 70: clang-tidy counts those.)"""
import sources

LINES_MAX = 700


def main():
    top = sources.root()
    names = sources.files(top, sources.CODE + (".py", ".cmake", ".sh"))
    lengths = {name: sources.read(top, name).count("\n") for name in names}
    findings = [f"{name}: {lines} lines, at most {LINES_MAX}; is it one thing?"
                for name, lines in lengths.items() if lines > LINES_MAX]
    sources.report("sizes", findings, f"{len(names)} files")


if __name__ == "__main__":
    main()

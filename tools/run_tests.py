#!/usr/bin/env python3
"""Runs ctest in a build folder; just before ctest's own summary, which stays last, it prints the slowest tests and again the last lines of
those that failed: a log that is cut in its middle still says why.

  tools/run_tests.py --build build/dev [--jobs N] [--long] [--slowest 10] [-- more arguments for ctest]

`--long` adds the tests with the label `long`. The exit status is ctest's.
"""
import argparse
import collections
import re
import subprocess
import sys

RESULT = re.compile(r"^\s*\d+/\d+ Test\s+#\d+: (\S+) \.*(.*?)\s([\d.]+) sec")
START = re.compile(r"^\s*Start\s+\d+: ")
SUMMARY = re.compile(r"^\d+% tests passed, ")


def slowest_lines(times, count):
    worst = sorted(times, key=lambda entry: -entry[1])[:count]
    if not worst:
        return []
    return ["", f"slowest {len(worst)} of {len(times)}:"] + [f"  {seconds:8.2f} s  {name}" for name, seconds in worst]


class Failures:
    """What failed tests printed: ctest writes it behind a test's line, up to the next test."""

    LINES = 25

    def __init__(self):
        self._outputs, self._open = {}, None

    def see(self, line, result):
        if result:
            self._open = None if result.group(2).strip().startswith("Passed") else result.group(1)
            self._outputs[self._open] = collections.deque(maxlen=self.LINES)
        elif START.match(line):
            self._open = None
        elif self._open and line.strip():
            self._outputs[self._open].append(line.rstrip("\n"))

    def lines(self):
        for name, output in self._outputs.items():
            if name and output:
                yield from ["", f"the last lines of {name}:", *(f"  {line}" for line in output)]


def relay(lines, out, slowest):
    """Copies ctest's lines to `out`, with what is worth knowing before the summary."""
    times, failures = [], Failures()
    for line in lines:
        result = RESULT.match(line)
        if result:
            times.append((result.group(1), float(result.group(3))))
        if SUMMARY.match(line):
            out.write("\n".join([*slowest_lines(times, slowest), *failures.lines()]) + "\n\n")
        failures.see(line, result)
        out.write(line)
        out.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--slowest", type=int, default=10)
    parser.add_argument("ctest", nargs="*")
    args = parser.parse_args()
    command = ["ctest", "--test-dir", args.build, "--output-on-failure", "--no-tests=error", "--no-label-summary", "-j", str(args.jobs)]
    command += [] if args.long else ["--label-exclude", "^long$"]
    ctest = subprocess.Popen(command + args.ctest, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace")
    relay(ctest.stdout, sys.stdout, args.slowest)
    sys.exit(ctest.wait())


if __name__ == "__main__":
    main()

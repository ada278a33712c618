#!/usr/bin/env python3
"""A program with a cache inside is killed, again and again, on one file: the next process finds everything that the library had
called durable, byte for byte, and nothing that was removed.

Usage: capi_kills.py FOLDER_OF_PROGRAMS [--kills N] [--seed N]
"""
import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import start_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = str(Path(arguments.programs) / "capi_survivor")
    choose = random.Random(arguments.seed)
    promised, killed_early = "", 0
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "cache")
        for kill in range(arguments.kills):
            lines = Path(folder) / "lines"
            with open(lines, "w", encoding="ascii") as out:
                writer = start_program([program, "write", file, str(kill + 1)], stdout=out, stderr=subprocess.PIPE, text=True)
            # Sometimes while it opens, mostly while it writes: from its first word on.
            if choose.random() < 0.2:
                time.sleep(choose.uniform(0, 0.1))
                killed_early += 1
            else:
                while lines.stat().st_size == 0 and writer.poll() is None:
                    time.sleep(0.002)
                time.sleep(choose.uniform(0, 0.25))
            writer.kill()
            _, complaint = writer.communicate()
            if complaint:
                sys.exit(f"kill {kill}: the writer said: {complaint}")
            said = lines.read_text(encoding="ascii")
            promised += said[:said.rfind("\n") + 1]
            audit = subprocess.run([program, "audit", file], input=promised, capture_output=True, text=True, timeout=300)
            if audit.returncode != 0:
                print(audit.stdout[-4000:], audit.stderr)
                sys.exit(f"kill {kill} of seed {arguments.seed}: exit status {audit.returncode}")
            if promised.count("\n") > 4000:  # a full audit of all would take longer than the kills
                promised, file = "", file + "'"
    print(f"{arguments.kills} kills, {killed_early} of them while it opened: {audit.stdout.splitlines()[-1]} at the last")


if __name__ == "__main__":
    main()

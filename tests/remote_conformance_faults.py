#!/usr/bin/env python3
"""The contract of a remote store notices stores that break it: each deliberate fault of `remote_conformance --twin` must fail, and the
store without a fault must pass.

  remote_conformance_faults.py PROGRAM
"""

import sys

from checks import run_program


def run(program, *options):
    done = run_program([program, "--twin", *options], timeout=300, capture_output=True, text=True, errors="replace")
    return done.returncode, done.stdout + done.stderr


def main():
    program = sys.argv[1]
    listed = run_program([program, "--list-faults"], timeout=60, capture_output=True, text=True, check=True).stdout
    faults = [line.split()[0] for line in listed.splitlines()]
    wrong = []
    code, said = run(program)
    if code != 0:
        wrong.append(f"without a fault: exit status {code}\n{said[-4000:]}")
    for fault in faults:
        # Short of patience only here, where a batch that does not end is what is looked for: it makes nothing fail that must not.
        code, said = run(program, "--patience", "2", "--fault", fault, "--gtest_fail_fast")
        failed = [line.split("/")[1].split(".")[-1].split(",")[0] for line in said.splitlines() if line.startswith("[  FAILED  ] Store/")]
        print(f"{fault:<20} {failed[0] if failed else 'NOT NOTICED'}", flush=True)
        if code != 1 or not failed:
            wrong.append(f"{fault}: exit status {code}, wanted 1 and a case that failed")
    print("\n".join(wrong))
    print(f"{len(faults)} faults, {len(wrong)} found")
    return 1 if wrong or not faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Replays one trace many times and prints what came of it: policies at equal bytes, snapshot rules at limited and at
unlimited bytes. The results go to OUT/results.json, from which tools/plot_replay.py draws pictures.

Sizes are shares of the trace's total full-attention bytes (unique pages x bytes of a page's full-attention records).
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

POLICIES = ("lru", "s3fifo", "tinylfu", "value")
RULES = ("end", "branch", "branch+4", "branch+16", "branch+64", "all", "advice")
BUDGETS = (0.125, 0.25, 0.5, 1, 2)  # of the snapshots that `branch+64` makes
COMMON_RULE = "branch"              # with which the policies are compared


class Replays:
    """Runs replays, a few at a time, and keeps what each printed."""

    def __init__(self, arguments, name, model, trace):
        self.arguments, self.name, self.model, self.trace = arguments, name, model, trace
        self.trace_name = pathlib.Path(arguments.trace).name if arguments.trace else f"generated {arguments.generate}"
        self.results, self.lock = {}, threading.Lock()  # by command line

    def command(self, job):
        rule, _, every = job.get("rule", "end").partition("+")
        command = [self.arguments.program, "replay", "--json", *self.trace, *self.model,
                   "--page-bytes", self.arguments.page_bytes, "--policy", job.get("policy", "lru"), "--snapshots", rule]
        if every:
            command += ["--snapshot-every", every]
        for option in ("host_bytes", "snapshot_budget"):
            if job.get(option) is not None:
                command += ["--" + option.replace("_", "-"), str(job[option])]
        return command + (["--bound"] if job.get("bound") else [])

    def one(self, job):
        command = self.command(job)
        key = " ".join(command)
        with self.lock:
            if key in self.results:
                return self.results[key]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"{key}\n{run.stderr.strip()}")
        result = json.loads(run.stdout)
        result.update(job=job, model=self.name, trace=self.trace_name)
        with self.lock:
            self.results[key] = result
            if sys.stderr.isatty():
                print(f"\r  {self.name}: {len(self.results)} replays ", end="", file=sys.stderr, flush=True)
        return result

    def all(self, jobs):
        """In the order of `jobs`; the first failure ends the program with its command."""
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            try:
                return list(pool.map(self.one, jobs))
            except RuntimeError as failure:
                pool.shutdown(cancel_futures=True)
                sys.exit(f"a replay failed: {failure}")


def gibibytes(count):
    return f"{count / 2**30:,.1f} GiB"


def table(title, head, rows, note=""):
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    print(f"\n{title}")
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  " + "  ".join(cells).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    if note:
        print(f"  {note}")
    sys.stdout.flush()


def ratio(result):
    return f"{result['hit_ratio']:.4f}"


def sizes_of(shares, unlimited):
    total = unlimited["stored_pages"] * unlimited["page_bytes"]
    return [(share, int(total * share / 100)) for share in shares]


def compare_policies(replays, sizes, unlimited, policies):
    jobs = [{"policy": policy, "rule": COMMON_RULE, "host_bytes": size, "bound": policy == "lru"}
            for _, size in sizes for policy in policies]
    results = iter(replays.all(jobs))
    rows = []
    for share, size in sizes:
        row = [next(results) for _ in policies]
        bound = row[0]["bound_hit_pages"] / row[0]["pages"]
        rows.append([f"{share:g} %", gibibytes(size), *map(ratio, row), f"{bound:.4f}", ratio(unlimited)])
    table(f"{replays.name}: hit ratio by policy at equal bytes (resume points: {COMMON_RULE})",
          ["size", "bytes", *policies, "full-attention bound", "unlimited"], rows,
          "the bound knows the future and needs no snapshot; unlimited is this rule without a limit")


def compare_rules(replays, sizes, rules):
    jobs = [{"policy": "value", "rule": rule, "host_bytes": size} for _, size in sizes for rule in rules]
    results = iter(replays.all(jobs))
    rows = [[f"{share:g} %", gibibytes(size), *(ratio(next(results)) for _ in rules)] for share, size in sizes]
    table(f"{replays.name}: hit ratio by snapshot rule at equal bytes (policy: value)", ["size", "bytes", *rules], rows)


def advice_rows(budgets, advised):
    """One row for all budgets that no longer bind, which have one result."""
    rows = []
    for budget, result in zip(budgets, advised):
        if rows and all(rows[-1][1][field] == result[field] for field in ("snapshots_made", "hit_pages")):
            name, same = rows[-1]
            rows[-1] = (name.removesuffix(" or more") + " or more", same)
        else:
            rows.append((f"advice, at most {budget:,}", result))
    return rows


def compare_unlimited(replays, known):
    """`known`: results by rule that are there already."""
    fixed = [rule for rule in RULES if rule not in known and rule != "advice"]
    known = dict(known, **dict(zip(fixed, replays.all([{"rule": rule} for rule in fixed]))))
    budgets = [max(1, round(known["branch+64"]["snapshots_made"] * share)) for share in BUDGETS]
    budgets = list(dict.fromkeys(budgets))  # ascending; equal ones of a small trace once
    advised = replays.all([{"rule": "advice", "snapshot_budget": budget} for budget in budgets])
    rows = [(rule, known[rule]) for rule in RULES if rule != "advice"] + advice_rows(budgets, advised)
    rows.sort(key=lambda row: row[1]["snapshots_made"])
    full = 1 - known["end"]["missed"].get("never_stored", 0) / max(1, known["end"]["pages"])
    table(f"{replays.name}: hit ratio by snapshots made, unlimited bytes",
          ["rule", "snapshots", "snapshot bytes", "hit ratio"],
          [[name, f"{r['snapshots_made']:,}", gibibytes(r["snapshots_made"] * r["snapshot_bytes"]), ratio(r)]
           for name, r in rows], f"full attention alone: {full:.4f}")


def run_model(arguments, name, model, trace, brief):
    replays = Replays(arguments, name, model, trace)
    known = (COMMON_RULE,) if brief else (COMMON_RULE, "branch+64")
    known = dict(zip(known, replays.all([{"rule": rule} for rule in known])))
    unlimited = known[COMMON_RULE]
    compare_policies(replays, sizes_of(arguments.sizes, unlimited), unlimited, ("lru", "value") if brief else POLICIES)
    if not brief:
        compare_unlimited(replays, known)
    compare_rules(replays, sizes_of(arguments.rule_sizes or arguments.sizes, unlimited), (COMMON_RULE, "advice") if brief else RULES)
    return list(replays.results.values())


def percents(text):
    return [float(size) for size in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the built `tiercel`")
    parser.add_argument("--spec", required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace")
    source.add_argument("--generate")
    parser.add_argument("--beside", default="../shared/models/qwen3-next-80b-a3b.json",
                        help="a published model to show beside it, briefly, where the file is there; none")
    parser.add_argument("--sizes", type=percents, default=[3, 10, 30],
                        help="percent of the trace's full-attention bytes, as 3,10,30")
    parser.add_argument("--rule-sizes", type=percents, help="those at which snapshot rules are compared (default: all)")
    parser.add_argument("--page-bytes", default="256", help="bytes of each record that really move")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="replays at a time")
    parser.add_argument("--out", type=pathlib.Path, help="folder for results.json")
    arguments = parser.parse_args()

    begin = time.monotonic()
    trace = ["--trace", arguments.trace] if arguments.trace else ["--generate", arguments.generate]
    print(f"\n== {arguments.trace or 'generated ' + arguments.generate}: policies, sizes and snapshot rules compared "
          f"({arguments.jobs} replays at a time, {arguments.page_bytes} bytes of each record)")
    name = pathlib.Path(arguments.spec).stem
    results = run_model(arguments, name, ["--spec", arguments.spec], trace, brief=False)
    beside = pathlib.Path(arguments.beside)
    if beside.is_file():
        results += run_model(arguments, beside.stem, ["--config", str(beside)], trace, brief=True)
    elif arguments.beside != "none":
        print(f"\n({beside.name} is not there; no published model is shown beside the composite one)")
    pages = sum(result["verified_pages"] for result in results)
    print(f"\n{len(results)} replays in {time.monotonic() - begin:.0f} s; {pages:,} hit pages loaded and compared, "
          f"{sum(result['corrupt_pages'] for result in results)} corrupt")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"results: {arguments.out / 'results.json'} (tools/plot_replay.py draws them)")


if __name__ == "__main__":
    main()

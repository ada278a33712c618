#!/usr/bin/env python3
"""What is promised of tiercel-sim besides clean seeds.

  faults BIN         every deliberate fault is caught by its checker, and its run without the fault is clean
  repeats BIN        the same arguments print the same bytes, clean or caught
  usage BIN          exit statuses
  names BIN LIBS     no fault's name is in the library's archives or in the command line program
  pick BIN [NAME..]  lines for the table in src/sim/faults.cc: an early catch of each fault (after a change)
"""
import pathlib
import re
import subprocess
import sys

CAUGHT = re.compile(r"caught checker=(\w+) step=(\d+)$")


def sim(folder, *arguments, program="tiercel-sim", timeout=300):
    done = subprocess.run([str(folder / program), *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def last_line(text):
    lines = text.splitlines()
    return lines[-1] if lines else ""


def faults(folder):
    """Rows of --list-faults: name, checker, seed, steps, spec."""
    return [line.split("\t") for line in sim(folder, "--list-faults")[1].splitlines()]


def expect(wrong, condition, text):
    if not condition:
        wrong.append(text)


def check_faults(folder):
    wrong = []
    rows = faults(folder)
    expect(wrong, len(rows) >= 15, f"{len(rows)} faults, at least 15 are promised")
    for name, checker, seed, steps, spec in rows:
        run = ("--seed", seed, "--steps", steps, "--spec", spec)
        status, out, _ = sim(folder, *run, "--fault", name)
        caught = CAUGHT.match(last_line(out))
        found = caught.group(1) if caught else f"nobody (exit status {status})"
        expect(wrong, status == 3 and found == checker, f"{name}: caught by {found}, wanted {checker}")
        status, out, _ = sim(folder, *run)
        expect(wrong, status == 0, f"{name}: its run without it is not clean: {last_line(out)}")
    print(f"{len(rows)} faults")
    return wrong


def check_repeats(folder):
    wrong = []
    name, _, seed, steps, spec = faults(folder)[0]
    runs = [("--seed", 7), ("--seed", 8, "--steps", 3000), ("--seeds", "1:5"), ("--seed", 3, "--trace"),
            ("--seed", seed, "--steps", steps, "--spec", spec, "--fault", name)]
    for run in runs:
        expect(wrong, sim(folder, *run) == sim(folder, *run), f"{' '.join(map(str, run))}: printed something else")
    out = sim(folder, *runs[-1])[1]
    repeat = [line for line in out.splitlines() if line.startswith("repeat: tiercel-sim ")]
    expect(wrong, len(repeat) == 1, "a caught run does not say how to repeat it")
    if repeat:
        again = sim(folder, *repeat[0].split()[2:])
        expect(wrong, again[1] == out and again[0] == 3, "the command that repeats a run does not")
    return wrong


def check_usage(folder):
    wrong = []
    wanted = [
        (0, ("--seed", 1, "--steps", 50)), (0, ("--list-faults",)), (0, ("--list-specs",)), (0, ("--help",)),
        (2, ("--seed",)), (2, ("--seed", "x")), (2, ("--spec", "none")), (2, ("--fault", "none")),
        (2, ("--seeds", "5")), (2, ("--seeds", "5:1")), (2, ("--nonsense",)),
        (4, ("--seed", 1, "--steps", 0, "--fault", faults(folder)[0][0])),
    ]
    for status, arguments in wanted:
        got = sim(folder, *arguments)[0]
        expect(wrong, got == status, f"{' '.join(map(str, arguments))}: exit status {got}, wanted {status}")
    got = sim(folder, "--fault", faults(folder)[0][0], program="tiercel-sim-clean")[0]
    expect(wrong, got == 2, f"tiercel-sim-clean takes a fault: exit status {got}, wanted 2")
    return wrong


def check_names(folder, libraries):
    wrong = []
    archives = [path for path in sorted(libraries.rglob("libtiercel_*.a"))
                if not path.stem.endswith("_faulty") and path.stem != "libtiercel_sim"]
    programs = [folder / "tiercel"] if (folder / "tiercel").exists() else []
    expect(wrong, len(archives) >= 8, f"only {len(archives)} archives in {libraries.name}")
    for path in archives + programs:
        content = path.read_bytes()
        for name, *_ in faults(folder):
            expect(wrong, name.encode() not in content, f"{path.name} contains the name of the fault {name}")
        expect(wrong, b"fault_active" not in content, f"{path.name} asks for faults")
    print(f"{len(archives)} archives, {len(programs)} programs")
    return wrong


def catch(folder, name, checker, seed, spec):
    """The step at which the right checker catches it in a run of 2,000 steps; 0: another one does; None: nobody."""
    try:
        status, out, _ = sim(folder, "--seed", seed, "--steps", 2000, "--spec", spec, "--fault", name, timeout=20)
    except subprocess.TimeoutExpired:  # some mistakes never end
        return None
    caught = CAUGHT.match(last_line(out))
    if status != 3 or not caught:
        return None
    return int(caught.group(2)) if caught.group(1) == checker else 0


def pick(folder, only):
    """The spec in which the right checker catches a fault most often, and there the seed in which it does so first. More steps than that
    are allowed: a small change of the node changes every run, and then there is still time to catch it."""
    specs = [line.split("\t")[0] for line in sim(folder, "--list-specs")[1].splitlines()]
    for name, checker, *_ in faults(folder):
        if only and name not in only:
            continue
        best = None
        for spec in specs:
            steps = {seed: catch(folder, name, checker, seed, spec) for seed in range(1, 13)}
            right = [(step, seed) for seed, step in steps.items() if step]
            wrong = sum(step == 0 for step in steps.values())
            if right and (best is None or (len(right) - wrong, -min(right)[0]) > best[0]):
                best = ((len(right) - wrong, -min(right)[0]), min(right)[1], spec)
        if best:
            print(f'    {{"{name}", "{checker}", {best[1]}, 5000, "{best[2]}"}},  // {best[0][0]} of 12', flush=True)
        else:
            print(f"    // {name}: not caught by {checker}", flush=True)
    return []


def main():
    what, folder, *rest = sys.argv[1:]
    folder = pathlib.Path(folder)
    checks = {"faults": lambda: check_faults(folder), "repeats": lambda: check_repeats(folder),
              "usage": lambda: check_usage(folder), "names": lambda: check_names(folder, pathlib.Path(rest[0])),
              "pick": lambda: pick(folder, rest)}
    wrong = checks[what]()
    print("\n".join(wrong) if wrong else f"{what}: ok")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

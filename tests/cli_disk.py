#!/usr/bin/env python3
"""`tiercel disk` and `tiercel replay --disk` as a user meets them: a cache that survives its process, looked into, damaged, dropped.

Called with the folder of the built programs. What a log survives is tested in src/disk and by the simulator; this is the command line.
"""

import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checks import check, check_refused, ends, start_program


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(status, word, *arguments):
    check_refused(run(*arguments), status, [word], f"tiercel {arguments[0]}: ", arguments)


def good(*arguments):
    code, out, err = run(*arguments)
    check(code == 0 and err == "", arguments, "exit status", code, err)
    return out


def replay(path, *arguments):
    return json.loads(good("replay", "--json", "--generate", "conversation:300", "--page-bytes", "512", "--disk", path, *arguments) or "{}")


def sums(got):
    check(got["hit_pages"] + sum(got["missed"].values()) == got["pages"], "misses do not add up", got)
    check(got["verified_pages"] == got["hit_pages"] and got["corrupt_pages"] == 0 and got["wrong"] == [], "not all verified", got)
    check(0 <= got["disk"]["hit_pages"] <= got["hit_pages"], got)


def replays(folder):
    path = folder / "replay"
    unlimited = json.loads(good("replay", "--json", "--generate", "conversation:300", "--page-bytes", "512"))
    small = json.loads(good("replay", "--json", "--generate", "conversation:300", "--page-bytes", "512", "--capacity-pages", "400"))
    check("disk" not in small and "status" not in small, "fields of a disk that is not there", small)
    with_disk = replay(path, "--disk-bytes", "64MiB", "--disk-admission", "all", "--capacity-pages", "400")
    sums(with_disk)
    check(small["hit_pages"] < with_disk["hit_pages"] == unlimited["hit_pages"], "a large disk hits what unlimited memory hits",
          small["hit_pages"], with_disk["hit_pages"], unlimited["hit_pages"])
    check(with_disk["disk"]["hit_pages"] > 0, with_disk)
    closed = json.loads(good("disk", "check", "--json", path))
    check(closed["closed"] and closed["class_sets"] == with_disk["disk"]["class_sets"], "a replay ends with a close in order, and says what is there",
          closed["closed"], closed["class_sets"], with_disk["disk"])
    again = replay(path, "--disk-admission", "all", "--capacity-pages", "400")
    check(again["hit_pages"] == with_disk["hit_pages"], "what an earlier replay left is not hit", again["hit_pages"])

    warm = replay(path, "--disk-admission", "all", "--capacity-pages", "400", "--restart-at", "150")
    sums(warm)
    restart = warm["disk"]["restart"]
    check(warm["hit_pages"] == unlimited["hit_pages"], "a restart loses nothing that was written down", warm["hit_pages"], unlimited["hit_pages"])
    check(restart["after_requests"] == 150 and restart["left_class_sets"] == 0 and restart["recovered_class_sets"] > 400, restart)
    for policy in ("write_through_selective", "write_back"):
        sums(replay(path, "--disk-admission", "all", "--disk-writes", policy, "--capacity-pages", "400", "--restart-at", "150"))

    for after in (300, 1000):
        late = replay(path, "--disk-admission", "all", "--capacity-pages", "400", "--restart-at", after)
        check("restart" not in late["disk"] and late["disk"]["restart_not_reached"] == after, "a restart that does not come is told", late["disk"])
    out = good("replay", "--generate", "conversation:100", "--disk", path, "--restart-at", "100")
    check("there were only 100" in out, "a restart that does not come is told", out)

    out = good("replay", "--generate", "conversation:100", "--disk", path, "--status", "--restart-at", "50")
    for word in ("disk hits", "restart", "oldest page", "budget", "host "):
        check(word in out, word, "is not in", out)

    refused(2, "--disk", "replay", "--disk-bytes", "1GiB")
    refused(2, "--disk", "replay", "--restart-at", "3")
    refused(2, "--restart-at", "replay", "--disk", folder / "x", "--disk-bytes", "64MiB", "--restart-at", "0")
    refused(2, "--disk-admission", "replay", "--disk", folder / "x", "--disk-bytes", "64MiB", "--disk-admission", "some")
    refused(2, "--disk-writes", "replay", "--disk", folder / "x", "--disk-bytes", "64MiB", "--disk-writes", "some")
    refused(1, "no/such", "replay", "--disk", "/no/such/folder/file", "--disk-bytes", "64MiB")
    refused(1, "x", "replay", "--disk", folder / "x", "--disk-bytes", "16KiB")
    refused(1, "replay", "replay", "--disk", path, "--disk-bytes", "32MiB")  # another size than it has
    check(not (folder / "x").exists(), "what did not open leaves no file")
    return path


def looks(path):
    before = path.read_bytes()
    report = json.loads(good("disk", "check", "--json", path))
    check(report["in_order"] and report["closed"] and report["damaged"] == 0 and report["records_read"], report)
    check(report["class_sets"] > 0 and report["verified"] >= report["class_sets"] and len(report["namespaces"]) == 1, report)
    out = good("disk", "check", path)
    check(out.endswith("\nin order\n") and "superblocks" in out and "\033" not in out and "DAMAGED" not in out, out)
    for note in report["notes"]:
        check("still being written (the newest)" in note, "nothing is amiss:", note)
    quick = json.loads(good("disk", "check", "--quick", "--json", path))
    check(quick["class_sets"] == report["class_sets"] and quick["verified"] == 0 and not quick["records_read"], quick)
    out = good("disk", "check", "--quick", path)
    check("no record was read" in out and "no record was" in out.splitlines()[-1], "a quick look says that it was one", out)
    spaces = json.loads(good("disk", "ls", "--json", path))
    check(len(spaces) == 1 and spaces[0]["class_sets"] == report["class_sets"] and "replay" in spaces[0]["text"], spaces)
    check("replay" in good("disk", "ls", path), "ls names the namespace")
    status = json.loads(good("disk", "status", "--json", path))
    check(status["class_sets"] == report["class_sets"], status)
    out = good("disk", "status", path)
    check("regions" in out and f"image {status['recovered_from_image']}, newer footers" in out, "status", out)
    for word in ("oldest", "budget", "written"):
        check(word not in out, "a file does not know:", word, out)
    check(path.read_bytes() == before, "nothing was changed")
    folder = path.parent / "folder"
    folder.mkdir()
    refused(1, f"{folder}/cache.tiercel: it does not exist", "disk", "ls", folder)
    (folder / "cache.tiercel").hardlink_to(path)
    for command in ("check", "ls", "status"):
        check(good("disk", command, "--json", folder) == good("disk", command, "--json", path), "disk", command, "takes the folder of a cache.tiercel")
    for command in ("check", "ls", "status"):
        refused(1, "nowhere", "disk", command, "nowhere")
        refused(2, "PATH", "disk", command)
    refused(2, "subcommand", "disk")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"something else" * 100_000)
        file.flush()
        was = Path(file.name).read_bytes()
        for command in ("check", "ls", "status"):
            refused(1, f"tiercel disk: {file.name}: ", "disk", command, file.name)
        check(Path(file.name).read_bytes() == was, "what is no cache is left as it is")
    for arguments in (("disk", "--help"), ("disk", "check", "--help"), ("disk", "drop", "--help")):
        check("Examples" in good(*arguments), arguments)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def damage(path):
    """One bit of a record that a cache would find."""
    whole = path.read_bytes()
    report = json.loads(good("disk", "check", "--json", path))
    records = [at for at in range(0, len(whole), 4096) if whole[at:at + 8] == b"TIERCREC"]
    check(len(records) >= report["class_sets"], "records on the drive:", len(records))
    found = None
    for at in records[::max(1, len(records) // 200)]:  # of all ages: many of them would be found
        flip(path, at + 300)
        code, out, err = run("disk", "check", "--json", path)
        check(code in (0, 3) and err == "", "a bit is damage or nothing, never an error:", code, err)
        if code == 3:
            found = json.loads(out)
            break
        flip(path, at + 300)
    check(found is not None, "no bit was found that matters")
    if found:
        check(not found["in_order"] and found["damaged_found"] == 1 and len(found["damages"]) >= 1, found)
        code, out, err = run("disk", "check", path)
        check(code == 3 and "DAMAGED" in out and err == "", code, out, err)
        flip(path, at + 300)
    check(path.read_bytes() == whole, "as it was")


def superblocks(path):
    """One of the two may be torn, as a power failure leaves it; both may not."""
    whole = path.read_bytes()
    for slot in (0, 1):
        flip(path, slot * 4096 + 100)
        code, out, err = run("disk", "check", path)
        check(code == 0 and "the other one holds" in out and out.endswith("\nin order\n") and err == "", "one superblock:", code, out, err)
        report = json.loads(good("disk", "check", "--json", path))
        check(report["in_order"] and report["superblocks"][slot]["damage"] and not report["superblocks"][1 - slot]["damage"], report["superblocks"])
        flip(path, slot * 4096 + 100)
    flip(path, 100)
    flip(path, 4096 + 100)
    refused(1, f"{path}: ", "disk", "check", path)
    flip(path, 100)
    flip(path, 4096 + 100)
    check(path.read_bytes() == whole, "as it was")


def drop(path):
    """Nothing is written, or made, before it is known what is to go."""
    def untouched(file, status, word, *arguments):
        before = hashlib.sha256(file.read_bytes()).digest()
        refused(status, word, "disk", "drop", file, *arguments)
        check(hashlib.sha256(file.read_bytes()).digest() == before, "a drop that is refused changes nothing", file, arguments)

    blank = path.parent / "blank"
    blank.write_bytes(bytes(64 << 20))
    untouched(blank, 1, f"{blank}: there is no log: nothing but zeros", "--namespace", "1")
    for command in ("check", "ls", "status"):
        refused(1, f"{blank}: there is no log: nothing but zeros", "disk", command, blank)
    refused(1, "no-file", "disk", "drop", path.parent / "no-file", "--namespace", "1")
    check(not (path.parent / "no-file").exists(), "no file is made")

    space = json.loads(good("disk", "ls", "--json", path))[0]
    number = space["number"]
    untouched(path, 2, "--namespace")
    untouched(path, 2, "--namespace: wanted", "--namespace", "")
    untouched(path, 2, "none has", "--namespace", "no such text")
    # Digits are a number and never a part of a text, although the text has them.
    other = next(n for n in range(10) if n != number and str(n) in space["text"])
    untouched(path, 2, f"none has the number {other};", "--namespace", other)
    untouched(path, 2, "none has the number", "--namespace", "99999999999999999999999")
    out = good("disk", "drop", path, "--namespace", number)
    check(out.startswith(f"dropped: namespace {number}"), out)
    check(json.loads(good("disk", "ls", "--json", path))[0]["class_sets"] == 0, "nothing of it is left")
    good("disk", "check", path)
    good("disk", "drop", path, "--namespace", "weights=replay")
    check(json.loads(good("disk", "check", "--json", path))["closed"], "closed in order afterwards")


def in_use(folder):
    """A second process is told who has the file; SIGTERM closes the cache in order."""
    path = folder / "busy"
    first = start_program([PROGRAM, "replay", "--generate", "conversation:40000", "--capacity-pages", "2000", "--disk", path,
                           "--disk-bytes", "64MiB"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    said = ""
    while str(first.pid) not in said and time.monotonic() < end and first.poll() is None:
        code, out, said = run("disk", "ls", path)
        time.sleep(0.02)
    check(code == 1 and out == "" and str(first.pid) in said, "the second process is told the first's number:", code, said)
    time.sleep(0.3)
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=60)
    check(first.returncode == 143 and out == b"" and err.count(b"\n") == 1 and b"written down" in err, "SIGTERM:", first.returncode, out, err)
    report = json.loads(good("disk", "check", "--json", path))
    check(report["in_order"] and report["closed"] and report["class_sets"] > 0, report)


if __name__ == "__main__":
    PROGRAM = str(Path(sys.argv[1]) / "tiercel")
    with tempfile.TemporaryDirectory() as name:
        cache = replays(Path(name))
        looks(cache)
        superblocks(cache)
        damage(cache)
        drop(cache)
        in_use(Path(name))
    ends("disk")

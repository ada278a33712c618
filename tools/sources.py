"""What the checking tools share: the tracked files of this tree, and C++ text without its comments.

`root()` is the source tree, or the folder given as the first argument, so that each tool can be run on a planted tree.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE = (".h", ".hpp", ".cc")


def root():
    """The tree to check: a folder given on the command line, else this repository."""
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    return os.path.abspath(folders[0]) if folders else HERE


def files(top, suffixes=None):
    """Files that are tracked or would be (not ignored), relative to `top`; without git, every file outside build/."""
    git = subprocess.run(["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."],
                         capture_output=True)
    if git.returncode == 0:
        names = git.stdout.decode().split("\0")[:-1]
    else:
        names = [os.path.relpath(os.path.join(folder, name), top) for folder, _, found in os.walk(top) for name in found]
        names = [name for name in names if not name.startswith(("build/", ".git/"))]
    kept = [name for name in names if suffixes is None or name.endswith(tuple(suffixes))]
    return sorted(name for name in set(kept) if os.path.isfile(os.path.join(top, name)))


def read(top, name):
    with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def code_only(text):
    """C++ without comments and literals; line numbers stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def report(tool, findings, checked):
    """Prints every finding and ends the program: status 1 when there is one. Nothing checked is a failure too."""
    for finding in findings:
        print(finding)
    print(f"{tool}: {checked}, {len(findings)} found")
    sys.exit(1 if findings or checked.startswith("0 ") else 0)

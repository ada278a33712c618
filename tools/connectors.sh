#!/usr/bin/env bash
# A Python environment with what the connectors need (connectors/*/requirements.txt, pinned), made once; prints the path of its
# python as the only line of standard output, the rest goes to standard error. Takes no time when nothing has changed.
#
#   tools/connectors.sh [FOLDER]     default: build/connectors/venv
#
# Packages come from wherever pip is configured to look; libraries of the system are installed by tools/deps.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$top/build/connectors/venv}

give_up() {
  echo "connectors: $1" >&2
  exit 1
}

"$top/tools/deps.sh" connectors >&2 || give_up "a library of the system is missing (see above)"
shopt -s nullglob
requirements=("$top"/connectors/*/requirements.txt)
[ ${#requirements[@]} -gt 0 ] || give_up "there is no requirements.txt in $top/connectors"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
exec 9>"$folder.lock"
flock 9  # two tests may want it at the same moment
wanted=$({ python3 --version && echo "$folder" && cat "${requirements[@]}"; } | sha256sum)
stamp=$folder/made-of
if [ ! -x "$folder/bin/python" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  said=$folder.log
  echo "connectors: making $folder (some 50 MB of packages)" >&2
  python3 -m venv --clear "$folder" >"$said" 2>&1 || give_up "'python3 -m venv' failed (see $said); it comes with python3-venv: tools/deps.sh build"
  files=()
  for file in "${requirements[@]}"; do files+=(-r "$file"); done
  if ! "$folder/bin/python" -m pip install --no-deps --only-binary :all: --disable-pip-version-check --no-input "${files[@]}" >"$said" 2>&1; then
    reason=$(grep -m1 -iE 'NewConnectionError|ConnectTimeout|ProxyError|SSLError' "$said" || grep -m1 '^ERROR' "$said" || tail -n1 "$said")
    give_up "pip could not install the packages: $(sed -e 's/.*object at [0-9a-fx]*>: //' -e 's/.*broken by //' <<<"$reason" | cut -c1-300)"
  fi
  echo "$wanted" >"$stamp"
fi
echo "$folder/bin/python"

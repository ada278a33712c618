#!/usr/bin/env bash
# Every C++ file of this tree is in the format of .clang-format. `--fix` rewrites them instead.
set -euo pipefail
cd "${TIERCEL_TREE:-$(dirname "$0")/..}"

mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.cc' '*.c' |
  while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done)
[ ${#files[@]} -gt 0 ] || { echo "format: no C++ files found; is this a git checkout?" >&2; exit 1; }
each() { printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 16 clang-format-16 "$@"; }

if [ "${1:-}" = --fix ]; then
  each -i
  echo "format: ${#files[@]} files rewritten"
elif complaints=$(each --dry-run -Werror 2>&1); then
  echo "format: ${#files[@]} files, 0 found"
else
  # One line for each file: where its first difference is.
  places=$(grep -E '^[^ ].*: error: ' <<<"$complaints" | sort -t: -k1,1 -u | sed 's/:[0-9]*: error:.*/: not in the format of .clang-format/' || true)
  printf '%s\n' "${places:-$complaints}"
  echo "format: ${#files[@]} files; to mend them: make format"
  exit 1
fi

#!/usr/bin/env bash
# Every C++ file of this tree is in the format of .clang-format. `--fix` rewrites them instead.
set -euo pipefail
cd "${TIERCEL_TREE:-$(dirname "$0")/..}"

mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.cc' '*.c' |
  while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done)
[ ${#files[@]} -gt 0 ] || { echo "format: no C++ files found; is this a git checkout?" >&2; exit 1; }
# One process a file, its complaint written at once, so that two never mix.
each() {
  printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 1 sh -c 'said=$(clang-format-16 "$@" 2>&1) || { printf "%s\n" "$said"; exit 1; }' sh "$@"
}

if [ "${1:-}" = --fix ]; then
  each -i
  echo "format: ${#files[@]} files rewritten"
elif complaints=$(each --dry-run -Werror --ferror-limit=1); then
  echo "format: ${#files[@]} files, 0 found"
else
  places=$(sed -n 's/^\([^ ]*:[0-9]*\):[0-9]*: error: .*/\1: not in the format of .clang-format/p' <<<"$complaints" | sort)
  printf '%s\n' "${places:-$complaints}"
  echo "format: ${#files[@]} files; to mend them: make format"
  exit 1
fi

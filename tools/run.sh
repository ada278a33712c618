#!/usr/bin/env bash
# What `make run` shows after the build: a language model whose cache outlives its process (the model is fetched once, and checked);
# one replay with a progress bar, one with a disk tier below (a file that is removed at the end); then policies, sizes and
# snapshot rules compared.
# The real trace is used where ../shared/traces has it, else a generated one. Arguments go to tools/compare_replays.py.
set -euo pipefail
cd "$(dirname "$0")/.."

program=build/release/bin/tiercel

# Not a reason to show nothing: a build without llama.cpp, no network for the model.
if [ "${TIERCEL_WITH_LLAMA:-}" = OFF ]; then
  echo "== Without llama.cpp (TIERCEL_WITH_LLAMA=OFF): its demonstration is left out"
elif model=$(tools/llama_model.sh); then
  echo "== llama.cpp with a cache that outlives the process: two questions over one long system prompt, each in a process of its own"
  "$program" llama demo -m "$model"
else
  echo "== Without the model (the reason stands above): the demonstration of llama.cpp is left out"
fi

spec=examples/specs/hybrid.json
real=../shared/traces/conversation_trace.jsonl
if [ -r "$real" ]; then trace=(--trace "$real"); else trace=(--generate conversation); fi

echo "== One replay: a composite hybrid model (36 gated-delta-net, 8 window and 4 full layers), 64 GiB"
"$program" replay "${trace[@]}" --spec "$spec" --policy value --snapshots advice \
  --host-bytes 64GiB --bound

echo "== The same with a quarter of the memory and a disk below it, closed and opened again in mid-trace"
disk=build/replay.disk
trap 'rm -f "$disk"' EXIT
rm -f "$disk"  # of a run that was killed: on a used file a replay admits less
"$program" replay "${trace[@]}" --spec "$spec" --policy value --snapshots advice \
  --host-bytes 16GiB --disk "$disk" --disk-bytes 2GiB --restart-at 6000 --status
"$program" disk check "$disk"

python3 tools/compare_replays.py --program "$program" --spec "$spec" "${trace[@]}" --rule-sizes 10 \
  --out build/replays "$@"

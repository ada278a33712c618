#!/usr/bin/env bash
# libllama (static, CPU) for builds with TIERCEL_WITH_LLAMA: builds it where it is not there yet, once a machine and some
# minutes, and prints the folder it is in as the only line of standard output. The rest goes to standard error.
#
#   tools/llama.sh            builds if need be, prints the folder
#   tools/llama.sh --where    prints the folder, builds nothing
#
#   TIERCEL_LLAMA_PREFIX      the folder; also one with a llama.cpp of your own (include/llama.h, lib/libllama.a, lib/libggml*.a)
#   TIERCEL_LLAMA_SDIST       the source archive, where it is at hand; its hash is checked all the same
#   JOBS                      compilers at once; else one a core
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)

# What is built; nowhere else. The package carries llama.cpp whole: 0.5.0-dev, this commit.
package=llama-cpp-python version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
commit=0c1e57098
flags=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON  # the same bits on every machine that has these
  -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF)
c=gcc-12 cxx=g++-12

say() { echo "llama: $1" >&2; }
give_up() {
  say "$1"
  exit 1
}
is_whole() {
  local file
  for file in include/llama.h lib/libllama.a lib/libggml.a lib/libggml-cpu.a lib/libggml-base.a; do
    [ -f "$1/$file" ] || return 1
  done
}

# A build in progress is not to change when this file does: bash reads a function whole before it runs.
prepare() {
  local tool
  for tool in "$c" "$cxx" cmake ninja flock; do
    command -v "$tool" >/dev/null || give_up "$tool is needed to build llama.cpp; tools/deps.sh build installs it"
  done
  if [ "$(uname -m)" = x86_64 ] && [ -r /proc/cpuinfo ] && ! grep -qw avx2 /proc/cpuinfo; then
    give_up "this processor has no AVX2, which this build of llama.cpp uses; set TIERCEL_LLAMA_PREFIX to one of your own"
  fi
  local writable="set TIERCEL_LLAMA_PREFIX to a folder that can be written"
  mkdir -p "$(dirname "$prefix")" 2>/dev/null || give_up "cannot make $(dirname "$prefix"); $writable"
  { exec 9>"$prefix.lock"; } 2>/dev/null || give_up "cannot write $prefix.lock; $writable"
  if ! flock -n 9; then
    say "another process builds llama.cpp; waiting for it"
    flock 9
  fi
  is_whole "$prefix" && return
  rmdir "$prefix" 2>/dev/null || true
  [ ! -e "$prefix" ] || give_up "$prefix is not a whole llama.cpp; remove it, or set TIERCEL_LLAMA_PREFIX to another folder"
  rm -rf "$prefix".building.*  # of a run that was killed: who holds the lock is the only one that builds
  work=$(mktemp -d "$prefix.building.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM HUP
}

unpack() {
  say "fetching the source, 77 MB"
  local archive
  archive=$("$tools/fetch_package.sh" sdist "$package" "$version" "$sha256" "$work/fetched" "${TIERCEL_LLAMA_SDIST:-}") ||
    give_up "no source: a network is needed once, or the archive in TIERCEL_LLAMA_SDIST"
  mkdir "$work/source"
  tar -xzf "$archive" -C "$work/source" --strip-components=3 --wildcards '*/vendor/llama.cpp/*' \
    --exclude='*/vendor/llama.cpp/models' --exclude='*/vendor/llama.cpp/tools' || give_up "cannot unpack $archive into $work"
  # The history stays in the archive. This answers for it; else a checkout around the cache folder would.
  printf '#!/bin/sh\n[ "$1" = rev-parse ] && echo %s\nexit 0\n' "$commit" >"$work/git"
  chmod +x "$work/git"
}

stopped() { give_up "$1 failed: $(grep -m1 -E 'rror:|rror at|FAILED' "$log" || tail -n1 "$log") (all of it: $log)"; }

compile() {
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
  fi
  local map=-ffile-prefix-map=$work/source/=llama.cpp/  # the library does not depend on where it was built
  cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_INSTALL_PREFIX="$prefix" "${flags[@]}" "${launcher[@]}" \
    -DCMAKE_C_COMPILER="$c" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_FLAGS="$map" -DCMAKE_CXX_FLAGS="$map" -DGIT_EXECUTABLE="$work/git" -DGIT_EXE="$work/git" \
    >"$log" 2>&1 || stopped "configuring llama.cpp"
  if [ -t 2 ]; then
    NINJA_STATUS='llama: [%f/%t] ' ninja -C "$work/build" ${JOBS:+-j "$JOBS"} >&2 || give_up "building llama.cpp failed; the reason stands above"
  else
    ninja -C "$work/build" ${JOBS:+-j "$JOBS"} 2>&1 | tee -a "$log" | awk -F '[][/]' \
      '/^\[[0-9]+\/[0-9]+\]/ && int(5 * $2 / $3) > told { told = int(5 * $2 / $3); print "llama: compiled " $2 " of " $3; fflush() }' >&2 ||
      stopped "building llama.cpp"
  fi
}

put_in_place() {
  DESTDIR=$work/installed cmake --install "$work/build" >>"$log" 2>&1 || stopped "installing llama.cpp"
  local made=$work/installed$prefix
  mkdir -p "$made/share/licenses/llama.cpp"
  cp "$work/source/LICENSE" "$work/source/AUTHORS" "$made/share/licenses/llama.cpp/"
  echo "llama.cpp $commit from $package $version (sha256 $sha256), built by tools/llama.sh of Tiercel" >"$made/share/about.txt"
  is_whole "$made" || give_up "llama.cpp was built, but a file is missing (see $log)"
  mv -T "$made" "$prefix"
  rm -f "$log"
}

prefix=${TIERCEL_LLAMA_PREFIX:-}
if [ -z "$prefix" ]; then
  key=$({ echo "${flags[*]} $(uname -m)"; "$cxx" -dumpfullversion || true; } 2>/dev/null | sha256sum)
  prefix=${XDG_CACHE_HOME:-$HOME/.cache}/tiercel/llama-$version-${sha256:0:8}-${key:0:8}
fi
[ "${prefix:0:1}" = / ] || give_up "TIERCEL_LLAMA_PREFIX is '$prefix'; it must begin with /, for builds run in several folders"
log=$prefix.log
case "${1:-}" in
  --where) echo "$prefix"; exit 0 ;;
  "") ;;
  *) give_up "'$1' is no option; there is only --where" ;;
esac
if ! is_whole "$prefix"; then
  prepare
  if ! is_whole "$prefix"; then  # nobody else has built it meanwhile
    say "building llama.cpp, once for this machine and some minutes, into $prefix"
    unpack
    compile
    put_in_place
    say "done in $SECONDS s"
  fi
fi
echo "$prefix"
exit 0

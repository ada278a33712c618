#!/usr/bin/env bash
# Installs the Debian packages that are missing, and nothing else. Usage: tools/deps.sh build | connectors | test
# `build` is what compiling and running needs; `connectors` is what the libraries of connectors/ need (tools/connectors.sh);
# `test` is both, the second compiler, sanitizers and lint, and servers that tests start.
# Says nothing and takes no time when nothing is missing. Works as root or through sudo.
set -euo pipefail

build=(g++-12 cmake ninja-build pkg-config libfmt-dev libcli11-dev nlohmann-json3-dev libexpected-dev libxxhash-dev liburing-dev
  libssl-dev libgtest-dev libgmock-dev librapidcheck-dev ccache python3 python3-venv)
connectors=(python3 python3-venv libibverbs1 libnuma1 libcurl4)
# redis-tools has the server in it (tests/connectors_valkey.py) and, unlike the package of that name, starts no service.
test=(clang-16 clang-tidy-16 clang-format-16 libclang-rt-16-dev llvm-16 git redis-tools openssl)

case "${1:-build}" in
  build) wanted=("${build[@]}") ;;
  connectors) wanted=("${connectors[@]}") ;;
  test) wanted=("${build[@]}" "${connectors[@]}" "${test[@]}") ;;
  *) echo "deps: '$1' is not a set of packages; use build, connectors or test" >&2; exit 2 ;;
esac

give_up() {
  echo "deps: $1" >&2
  echo "deps: needed: ${missing[*]}" >&2
  echo "deps: install them (or what your system calls them), then run again with TIERCEL_SKIP_DEPS=1" >&2
  exit 1
}

[ "${TIERCEL_SKIP_DEPS:-0}" = 1 ] && exit 0
missing=("${wanted[@]}")
command -v dpkg-query >/dev/null || give_up "this system has no dpkg, so its packages cannot be looked up"
# One query for all; a package that is not installed prints nothing that starts with "ii".
installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^ii *//p' || true)
missing=()
for package in "${wanted[@]}"; do grep -qxF "$package" <<<"$installed" || missing+=("$package"); done
[ ${#missing[@]} -eq 0 ] && exit 0

command -v apt-get >/dev/null || give_up "this system has no apt-get"
root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || give_up "installing packages needs root, and there is no sudo"
  root=(sudo "${root[@]}")
fi
install() { "${root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"; }
echo "deps: installing ${missing[*]}"
# Package lists may be absent or old: fetch them once more when the first try fails.
install >/dev/null 2>&1 || { "${root[@]}" apt-get update -q && install; } || give_up "apt-get could not install the packages (its own message stands above)"

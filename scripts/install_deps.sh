#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that mpretrain needs and that are missing.
#
#   scripts/install_deps.sh            for the program and the quickstart
#   scripts/install_deps.sh --mpi      also for ranks on CPUs that mpirun starts; install before building
#   scripts/install_deps.sh --package  also for building packages, MPI included
#   scripts/install_deps.sh --dev      also for the tests and benchmarks, MPI and ccache included
#   scripts/install_deps.sh --fuzz     also for the fuzz targets (scripts/fuzz.sh): clang, its sanitizers and OpenMP
#   scripts/install_deps.sh --tools    also the formatter, linters and the site generator of docs/, for development
#   scripts/install_deps.sh --check    only report; exit code 1 if something is missing
#
# Touches neither the network nor sudo when nothing is missing.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=(cmake ninja-build g++ libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libsentencepiece-dev
       libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libsnappy-dev libxxhash-dev libgloo-dev)
run=(python3 python3-matplotlib)
mpi=(libopenmpi-dev openmpi-bin)
package=("${mpi[@]}" dpkg-dev file)
# OpenBLAS for a benchmark, which compares our GEMMs with its own. ccache: what one build tree has compiled, another takes.
dev=(libgtest-dev libbenchmark-dev libboost-context-dev libopenblas-openmp-dev ccache "${mpi[@]}")
# An independent implementation of the small formats for the tests to compare with, where the distribution has it.
oracles=(llvm-19-dev)
fuzz=(clang libomp-dev)
# The sanitizers, where they are not part of clang's own packages.
sanitizers=(libclang-rt-dev)
tools=(clang-format clang-tidy shellcheck mkdocs mkdocs-material)

wanted=("${build[@]}" "${run[@]}")
optional=()
needed_where_known=() # of the distributions that have them
check_only=no
for argument in "$@"; do
  case $argument in
    --mpi) wanted+=("${mpi[@]}") ;;
    --package) wanted+=("${package[@]}") ;;
    --dev) wanted+=("${dev[@]}") optional+=("${oracles[@]}") ;;
    --fuzz) wanted+=("${fuzz[@]}") needed_where_known+=("${sanitizers[@]}") ;;
    --tools) wanted+=("${tools[@]}") ;;
    --check) check_only=yes ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $argument; expected --mpi, --package, --dev, --fuzz, --tools, --check or --help" ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  die "no apt on this system; install the equivalents of these packages by hand: ${wanted[*]}"
fi

installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]; }
# Not by a pipe: grep -q ends at its match, and apt-cache, when that is before it has written all, fails by it.
has_candidate() { [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null) == *"Candidate: "[!\(]* ]]; }

missing_packages() {
  local package
  for package in "${wanted[@]}"; do installed "$package" || say "$package"; done
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "installing needs root, and there is no sudo; run as root: $*"
  fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

for package in "${needed_where_known[@]}"; do
  if has_candidate "$package"; then wanted+=("$package"); fi
done
mapfile -t missing < <(missing_packages)

if [ ${#missing[@]} -eq 0 ]; then
  say "dependencies: all ${#wanted[@]} packages are installed"
  exit 0
fi
if [ $check_only = yes ]; then
  say "dependencies: missing ${missing[*]}"
  exit 1
fi

apt update -q || die "apt-get update failed; are the package sources of this machine reachable?"
for package in "${optional[@]}" "${needed_where_known[@]}"; do
  if has_candidate "$package" && ! installed "$package"; then missing+=("$package"); fi
done
say "dependencies: installing ${missing[*]}"
apt install -q -y --no-install-recommends "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
say "dependencies: installed ${#missing[@]} packages"

#!/usr/bin/env bash
# Fetches the headers of cudnn-frontend, with which attention by cuDNN is compiled and which neither the CUDA toolkit nor
# the distribution has: a wheel of NVIDIA's, from where pip takes its packages.
#
#   scripts/cudnn_frontend.sh         into build/cudnn_frontend, where CMake looks for them
#   scripts/cudnn_frontend.sh DIR     elsewhere; CMake takes -DCudnnFrontend_INCLUDE_DIR=DIR/include
#
# Only where nvcc and cuDNN are installed and the headers are not; else it says why there is nothing to do. Exit code 1 if
# they could not be fetched: a build then has the slower attention by GEMMs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

wheel=nvidia-cudnn-frontend==1.32.0  # with which the tests run
case ${1:-} in
  -h | --help) usage; exit 0 ;;
  -*) die "unknown argument $1; expected a directory or --help" ;;
esac
target=${1:-$root/build/cudnn_frontend}

done_with() { say "cudnn-frontend: $*"; exit 0; }
give_up() { die "attention will be by GEMMs, which is slower: cuDNN is installed, but $*"; }

# Where the Python on PATH keeps its packages: CMake takes NVIDIA's libraries from there as well.
packages_of_python() {
  python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null || say /nonexistent
}

# Whether nvcc finds a header.
finds() { nvcc -E -x cu -I"$packages/nvidia/cudnn/include" -I"$packages/include" -include "$1" /dev/null &>/dev/null; }

# The first Python that has pip.
python_with_pip() {
  local python
  for python in "$(python_path)" python3; do
    if "$python" -m pip --version &>/dev/null; then say "$python"; return; fi
  done
  return 1
}

if [ -e "$target/include/cudnn_frontend.h" ] && [ "$(cat "$target/wheel" 2>/dev/null)" = "$wheel" ]; then done_with "in $target"; fi
command -v nvcc >/dev/null || done_with "not needed without nvcc"
packages=$(packages_of_python)
finds cudnn_version.h || done_with "not needed without cuDNN"
if finds cudnn_frontend_version.h; then done_with "installed"; fi

python=$(python_with_pip) || give_up "there is no pip to fetch the headers of cudnn-frontend with (python3-pip)"
say "cudnn-frontend: fetching $wheel"
mkdir -p "$(dirname "$target")"
fetched=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$fetched"' EXIT
# The headers are the same for every Python, so nothing is built and nothing else is installed.
PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
  --no-deps --only-binary :all: --no-compile --target "$fetched" "$wheel" ||
  give_up "the headers of cudnn-frontend could not be fetched"
[ -e "$fetched/include/cudnn_frontend.h" ] || give_up "$wheel holds no include/cudnn_frontend.h"
say "$wheel" >"$fetched/wheel"
rm -rf "$target"
mv "$fetched" "$target"
chmod 755 "$target"
say "cudnn-frontend: in $target"

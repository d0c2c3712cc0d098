#!/usr/bin/env bash
# Prints the packages of this Debian or Ubuntu that hold the shared libraries of programs, one a line.
#
#   scripts/runtime_packages.sh build/program/mpretrain
#
# Another machine of the same release that has these packages runs the programs; Containerfile.cuda uses it so. A library
# that is missing, or that no package holds, is an error that names it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  "" | -*) die "'${1:-}': expected programs; see --help" ;;
esac

# Where the libraries of the programs, and theirs, are.
libraries=$(ldd "$@" | awk '$2 == "=>" { print $3 == "not" ? "not found: " $1 : $3 }' | sort -u)
if missing=$(grep '^not found: ' <<<"$libraries"); then die "$missing"; fi

# The linker may call /lib what the package calls /usr/lib or the other way round, or go through a link to a directory.
package_of() {
  local path=$1 linked owner
  linked=$(readlink -f "$(dirname "$path")")/$(basename "$path")
  for path in "$path" "/usr$path" "$linked" "${linked#/usr}"; do
    if owner=$(dpkg-query -S "$path" 2>/dev/null); then say "${owner%%[:,]*}"; return; fi
  done
  die "no package holds $1"
}

packages=$(while read -r path; do package_of "$path"; done <<<"$libraries")
sort -u <<<"$packages"

#!/usr/bin/env bash
# Makes a corpus of English text from Debian documentation packages, without installing them.
#
#   scripts/fetch_corpus.sh DIRECTORY            about 50 MB in five files
#   scripts/fetch_corpus.sh --small DIRECTORY    about 11 MB in one file
#
# Writes DIRECTORY/<package>.txt: one paragraph per line, an empty line between documents. Needs no root. Existing
# files are kept; packages that this distribution lacks are skipped with a message, as long as enough text remains.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

min_bytes=20000000
sources=(anarchism:html dict-gcide:dictionary wordnet-base:glosses perl-doc:pod python3-doc:html)
spare_sources=()  # asked for only if the first gave too little
directory=
for argument in "$@"; do
  case $argument in
    --small) min_bytes=2000000 sources=(anarchism:html) spare_sources=(perl-doc:pod wordnet-base:glosses) ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown argument $argument; expected --small, --help or a directory" ;;
    *) [ -z "$directory" ] || die "two directories: $directory and $argument"
       directory=$argument ;;
  esac
done
[ -n "$directory" ] || die "expected: fetch_corpus.sh [--small] DIRECTORY"
command -v apt-get >/dev/null || die "no apt on this system; put text files (*.txt) into $directory by hand"
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)

# Package lists of our own, for when those of the system are missing or out of date and we are not root.
apt_state=$directory/.apt
own_lists=(-o "Dir::State::Lists=$apt_state/lists" -o "Dir::Cache=$apt_state/cache")
apt_options=()

refresh_lists() {
  say "corpus: the package lists are missing or out of date, fetching them"
  mkdir -p "$apt_state/lists/partial" "$apt_state/cache/archives/partial"
  apt-get -qq "${own_lists[@]}" update >&2 && apt_options=("${own_lists[@]}")
}

lists_fresh=no
download() {  # PACKAGE: leaves one .deb in the download directory
  rm -rf "$apt_state/debs"
  mkdir -p "$apt_state/debs"
  if (cd "$apt_state/debs" && apt-get -qq "${apt_options[@]}" download "$1") 2>/dev/null >&2; then return 0; fi
  if [ $lists_fresh = yes ]; then return 1; fi
  lists_fresh=yes
  refresh_lists || return 1
  (cd "$apt_state/debs" && apt-get -qq "${apt_options[@]}" download "$1") >&2
}

# python3-doc names the documentation of the distribution's Python: python3.11-doc, say.
real_name() {
  local name=""
  if [ "$1" = python3-doc ]; then
    name=$(apt-cache "${apt_options[@]}" depends "$1" 2>/dev/null | awk '$NF ~ /^python3\.[0-9]+-doc$/ { print $NF; exit }')
  fi
  say "${name:-$1}"
}

extract() {  # PACKAGE KIND
  local text=$directory/$1.txt
  if dpkg-deb --fsys-tarfile "$apt_state"/debs/*.deb | run_python -B -m mpretrain_tools.corpus.extract_text "$2" >"$text.part" &&
    [ -s "$text.part" ]; then
    mv "$text.part" "$text"
  else
    rm -f "$text.part"
    return 1
  fi
}

fetch() {  # PACKAGE:KIND
  local package=${1%%:*} kind=${1#*:}
  if [ -s "$directory/$package.txt" ]; then return; fi
  if download "$(real_name "$package")" && extract "$package" "$kind"; then
    say "corpus: $package.txt, $(($(stat -c %s "$directory/$package.txt") / 1000)) kB"
  else
    say "corpus: no text from package $package here, continuing without it"
  fi
}

text_bytes() { cat "$directory"/*.txt 2>/dev/null | wc -c; }

for source in "${sources[@]}"; do fetch "$source"; done
for source in "${spare_sources[@]}"; do
  if [ "$(text_bytes)" -lt $min_bytes ]; then fetch "$source"; fi
done
rm -rf "$apt_state"
if [ "$(text_bytes)" -lt $min_bytes ]; then
  die "only $(text_bytes) bytes of text in $directory, need $min_bytes; add any English *.txt to it and run this again"
fi
say "corpus: $(text_bytes) bytes of text in $directory"

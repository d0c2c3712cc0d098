#!/usr/bin/env bash
# Proves that the two commands of README.md work on a fresh machine: in bare roots made by debootstrap from this machine's
# package sources, with a clean clone of the last commit, in both orders and repeated.
#
#   scripts/check_fresh.sh                            the cases root, user and gtest; about two hours on two idle cores
#   scripts/check_fresh.sh --case root --case nvcc    these; results of other cases stay in the table
#
#   --case NAME      root     quickstart, tests, and both again, as root
#                    user     tests, quickstart, and both again, as an ordinary user with sudo
#                    gtest    quickstart, then tests, where GoogleTest is installed and nothing else
#                    nvcc     tests, with the CUDA toolkit of this machine (CUDA_HOME or /usr/local/cuda)
#                    package  builds the packages, and uses each where there is no repository
#   --suite NAME     suite of the distribution (default: bookworm)
#   --mirror URL     package mirror (default: this machine's source of that suite)
#   --work DIR       directory of bare roots, logs and results (default: build/fresh)
#   --cache DIR      compile through ccache, installed beforehand: the same proof, but the times mean less
#   --output FILE    also write the table as Markdown
#   --keep           keep the roots of the cases for inspection
#
# Exit code 0: every command of every case exited with 0. 77: not run, because root or debootstrap is missing. Else 1.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

suite=bookworm
mirror=
work=$root/build/fresh
cache=
output=
keep=no
cases=()
value_of() { [ $# -ge 2 ] || die "$1 needs a value"; say "$2"; }
while [ $# -gt 0 ]; do
  case $1 in
    --case) cases+=("$(value_of "$@")"); shift 2 ;;
    --suite) suite=$(value_of "$@"); shift 2 ;;
    --mirror) mirror=$(value_of "$@"); shift 2 ;;
    --work) work=$(value_of "$@"); shift 2 ;;
    --cache) cache=$(value_of "$@"); shift 2 ;;
    --output) output=$(value_of "$@"); shift 2 ;;
    --keep) keep=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see --help" ;;
  esac
done
if [ ${#cases[@]} -eq 0 ]; then cases=(root user gtest); fi

not_run() { say "check_fresh: not run: $*"; exit 77; }

# --- what is tried: the commands as README has them, the last commit ------------------------------------------------

# The commands of the first shell block under "Two commands", without their comments.
readme_commands() {
  awk '/^## / { wanted = ($0 == "## Two commands") }
       wanted && /^```/ { if (inside) exit; inside = 1; next }
       wanted && inside { sub(/ *#.*/, ""); if ($0 != "") print }' "$root/README.md"
}

# What is tried of the packages. The first command runs in a root of its own; the others have what it made, and no clone.
# The archive is tried when the .deb is gone and its libraries are still there.
use_package() {  # SCRIPTS NAME: a line of commands for the run NAME
  say "mpretrain --config nano_bf16.json --set train.steps=20 --set name=$2 &&" \
    "mpretrain eval --checkpoint runs/$2/checkpoints/step_00000020 --data 'data/val_*.bin' &&" \
    "mpretrain generate --checkpoint runs/$2/checkpoints/step_00000020 --prompt The --max-tokens 8 &&" \
    "mpretrain export --checkpoint runs/$2/checkpoints/step_00000020 --output exported_$2 &&" \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $1/launch/mpirun.sh 2 --config nano_bf16.json --set train.steps=4 --set name=ranks_$2 &&" \
    "mpretrain launch --ranks 2 -- --config nano_bf16.json --set train.steps=4 --set name=launched_$2 &&" \
    "$1/plot_curves.py --help"
}
package_commands() {
  local scripts=/usr/share/mpretrain/scripts
  say "scripts/install_deps.sh --package && cmake --preset package && cmake --build --preset package --target package"
  say "apt-get -q update && apt-get -q -y install ./mpretrain_*.deb && mpretrain --version"
  say "$scripts/fetch_corpus.sh --small corpus && mpretrain tokenizer --input 'corpus/*.txt' --vocab-size 4096" \
    "--output tokenizer.model && mpretrain tokenize --input 'corpus/*.txt' --tokenizer tokenizer.model --output data" \
    "--validation-fraction 0.01"
  use_package $scripts deb
  say "apt-get -q -y remove mpretrain && test ! -e $scripts && mkdir '/opt/any where' &&" \
    "tar -xzf mpretrain-*.tar.gz -C '/opt/any where' --strip-components=1 && '/opt/any where/bin/mpretrain' --version"
  say "PATH='/opt/any where/bin':\$PATH && $(use_package "'/opt/any where'/share/mpretrain/scripts" archive)"
}

# --- a bare root ----------------------------------------------------------------------------------------------------

# Lines of sources.list: this machine's sources of the suite, its updates and its security updates.
package_sources() {
  if [ -n "$mirror" ]; then say "deb $mirror $suite main"; return; fi
  # shellcheck disable=SC2016  # apt's own placeholders
  apt-get indextargets --format 'deb $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
    awk -v suite="$suite" '$3 == suite || index($3, suite "-") == 1' | sort -u
}

make_bare_root() {  # DIRECTORY
  local sources
  sources=$(package_sources)
  [ -n "$sources" ] || die "this machine has no package source of $suite; name one with --mirror"
  say "check_fresh: making a bare $suite in $1"
  rm -rf "$1.part"
  debootstrap --variant=minbase "$suite" "$1.part" "$(awk -v suite="$suite" '$3 == suite { print $2; exit }' <<<"$sources")" \
    >"$work/logs/debootstrap.log" 2>&1 || die "debootstrap failed; see $work/logs/debootstrap.log"
  printf '%s\n' "$sources" >"$1.part/etc/apt/sources.list"
  apt-config dump | grep -i '^Acquire::.*Proxy' >"$1.part/etc/apt/apt.conf.d/90proxy" || true
  # What an installer or a container runtime adds to every machine, and without which MPI waits for name servers.
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$1.part/etc/hosts"
  mv "$1.part" "$1"
}

# in_root DIRECTORY COMMAND...: with /proc and /dev of its own and the network of this machine. PATH is a login's.
in_root() {
  local directory=$1
  shift
  cp /etc/resolv.conf "$directory/etc/resolv.conf"
  # shellcheck disable=SC2016  # for the inner shell
  unshare --mount --pid --fork --kill-child bash -c '
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" || exit 125
    if [ -n "$2" ]; then mkdir -p "$1/usr/local/cuda" && mount --rbind "$2" "$1/usr/local/cuda" || exit 125; fi
    if [ -n "$3" ]; then mkdir -p "$1/var/cache/ccache" && mount --bind "$3" "$1/var/cache/ccache" || exit 125; fi
    directory=$1
    shift 3
    exec chroot "$directory" /usr/bin/env -i HOME=/root TERM=dumb \
      PATH=/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' \
    in_root "$directory" "$cuda" "$cache" "$@" </dev/null
}

preinstall() {  # DIRECTORY PACKAGE...
  local directory=$1
  shift
  if [ $# -eq 0 ]; then return; fi
  in_root "$directory" sh -c "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
    --no-install-recommends install $*" >"$work/logs/$name-preinstall.log" 2>&1 ||
    die "$* could not be installed; see $work/logs/$name-preinstall.log"
}

# --- a case ---------------------------------------------------------------------------------------------------------

results=$work/results.tsv  # case, who, preinstalled, number, command, exit code, seconds, load before, commit, date

run_command() {  # NUMBER COMMAND
  local log=$work/logs/$name-$1.log start=$SECONDS code=0 load
  load=$(cut -d ' ' -f 1 /proc/loadavg)
  say "check_fresh: $name, $1 of ${#sequence[@]}: $2"
  if [ "$who" = root ]; then
    in_root "$directory" sh -c "cd '$home/mpretrain' && $2" >"$log" 2>&1 || code=$?
  else
    in_root "$directory" su - "$who" -c "PATH=$PATH_OF_USERS; cd ~/mpretrain && $2" >"$log" 2>&1 || code=$?
  fi
  if [ $code -ne 0 ]; then failures=$((failures + 1)) && tail -n 30 "$log"; fi
  say "check_fresh: $name, $1 of ${#sequence[@]}: exit code $code after $((SECONDS - start)) s, log: $log"
  printf '%s\t' "$name" "$who" "${installed:-nothing}${cuda:+ (CUDA toolkit)}" "$1" "$2" "$code" $((SECONDS - start)) "$load" "$commit" >>"$results"
  date -u +%Y-%m-%d >>"$results"
}
PATH_OF_USERS=/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin

# The packages that were built move to a bare root, at the place where the clone was.
move_packages() {
  local packages=$work/packages
  rm -rf "$packages" && mkdir -p "$packages"
  cp "$directory$home"/mpretrain/build/package/mpretrain[-_]*.{deb,tar.gz} "$packages"
  rm -rf "$directory"
  cp -a "$work/bare-$suite" "$directory"
  mkdir "$directory$home/mpretrain"
  cp "$packages"/* "$directory$home/mpretrain"
}

run_case() {
  name=$1 who=root home=/root cuda='' installed=''
  case $name in
    root) sequence=("$quickstart" "$tests" "$quickstart" "$tests") ;;
    user) sequence=("$tests" "$quickstart" "$tests" "$quickstart") who=user home=/home/user installed=sudo ;;
    gtest) sequence=("$quickstart" "$tests") installed=libgtest-dev ;;
    package) mapfile -t sequence < <(package_commands) ;;
    nvcc)
      sequence=("$tests") cuda=${CUDA_HOME:-/usr/local/cuda}
      if [ ! -x "$cuda/bin/nvcc" ]; then
        say "check_fresh: nvcc: not run: no CUDA toolkit in $cuda"
        return
      fi ;;
  esac
  directory=$work/roots/$name
  rm -rf "$directory"
  mkdir -p "$work/roots"
  cp -a "$work/bare-$suite" "$directory"
  if [ -n "$cache" ]; then installed="${installed:+$installed }ccache"; fi
  # shellcheck disable=SC2086  # a list of packages
  preinstall "$directory" $installed
  if [ -n "$cache" ]; then  # the same for all cases, wherever the clone lies
    say "cache_dir = /var/cache/ccache
umask = 000
base_dir = $home/mpretrain
hash_dir = false" >"$directory/etc/ccache.conf"
  fi
  if [ $who != root ]; then
    in_root "$directory" useradd --create-home --shell /bin/bash $who
    say "$who ALL=(ALL) NOPASSWD: ALL" >"$directory/etc/sudoers.d/$who"
  fi
  git clone -q --no-local "$root" "$directory$home/mpretrain"
  if [ $who != root ]; then in_root "$directory" chown -R $who: "$home/mpretrain"; fi
  awk -F '\t' -v name="$name" '$1 != name' "$results" >"$results.part" && mv "$results.part" "$results"
  local number=0 command before=$failures
  for command in "${sequence[@]}"; do
    number=$((number + 1))
    run_command $number "$command"
    if [ "$name" = package ] && [ $number -eq 1 ]; then
      if [ $failures -gt "$before" ]; then return; fi
      move_packages
    fi
  done
  if [ $keep = no ]; then rm -rf "$directory"; fi
}

# --- the table ------------------------------------------------------------------------------------------------------

table() {
  say "| case | as | installed before | command | exit code | minutes | load before | commit | date |"
  say "|---|---|---|---|---|---|---|---|---|"
  awk -F '\t' '{ sub(/^\.\//, "", $5)
                 printf "| %s, %d | %s | %s | `%s` | %d | %.1f | %s | %s | %s |\n", $1, $4, $2, $3, $5, $6, $7 / 60, $8, $9, $10 }' \
    "$results"
}

page() {
  say "# Fresh machines"
  say
  say "What README's two commands do on a machine that has nothing: \`scripts/check_fresh.sh\` makes a bare $suite (debootstrap,"
  say "minbase), puts a clean clone there and runs the commands as README shows them, in both orders and each of them twice."
  say "The case package builds the packages and uses each where there is no repository."
  say "Minutes include fetching and installing packages and building; the load before each is that of what else ran on the machine."
  say
  say "$(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
  say
  table
}

mapfile -t commands < <(readme_commands)
[ ${#commands[@]} -eq 2 ] || die "README.md, \"Two commands\": expected a block of two commands, found ${#commands[@]}: ${commands[*]}"
quickstart=${commands[0]} tests=${commands[1]}
for name in "${cases[@]}"; do
  case $name in root | user | gtest | nvcc | package) ;; *) die "--case $name: expected root, user, gtest, nvcc or package" ;; esac
done
[ "$(id -u)" -eq 0 ] || not_run "chroot and mounts need root"
command -v debootstrap >/dev/null || not_run "debootstrap is not installed"
command -v git >/dev/null || not_run "a clean clone needs git"
unshare --mount true 2>/dev/null || not_run "this machine allows no mount namespaces"

mkdir -p "$work/logs"
work=$(cd "$work" && pwd)
if [ -n "$cache" ]; then mkdir -p "$cache" && chmod 777 "$cache" && cache=$(cd "$cache" && pwd); fi
results=$work/results.tsv
touch "$results"
cuda=
failures=0
commit=$(git -C "$root" rev-parse --short HEAD)
if [ -n "$(git -C "$root" status --porcelain)" ]; then say "check_fresh: uncommitted changes are not tested"; fi
if [ ! -d "$work/bare-$suite" ]; then make_bare_root "$work/bare-$suite"; fi
for name in "${cases[@]}"; do run_case "$name"; done
say
table
if [ -n "$output" ]; then page >"$output"; fi
if [ $failures -ne 0 ]; then die "$failures commands failed"; fi

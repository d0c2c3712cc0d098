#!/usr/bin/env bash
# Checks and measures the CUDA backend on a machine with a GPU; writes a Markdown and a JSON report.
#
#   scripts/gpu_check.sh                                     build here, then every stage
#   scripts/gpu_check.sh --bundle gpu_bundle                 build here for another machine, and bundle what it needs
#   scripts/gpu_check.sh --use gpu_bundle                    run the bundle; needs a driver, cuBLAS, Python
#   scripts/gpu_check.sh --use gpu_bundle --budget 9m --output out    what fits into 9 minutes, the most worthy first
#   scripts/gpu_check.sh --stages tests,machine --output out some stages
#   scripts/gpu_check.sh --dry-run-on-cpu --output /tmp/out  the same steps with tiny shapes on a CPU: no GPU figures
#
# Stages, and the order in which they are measured:
#   build       configure and compile
#   tests       the GPU tests
#   machine     copy bandwidth and GEMM rates
#   steps       whole training steps, BF16 and FP8; 350m first, other sizes after optimizer
#   pairs       formats and optimizers in turn (A B A B ...), ratios; 350m first, other sizes last
#   optimizer   the update alone, every format
#   sanitizer   compute-sanitizer (memcheck, racecheck, initcheck, synccheck) over the small tests
#   peer        the same steps in PyTorch, before and after our own
#
# Options:
#   --budget TIME         such as 9m or 540s: what would not fit is not started, and named; default no end
#   --output DIR          results.tar.gz, report.md and report.json; default docs/benchmarks/gpu. What is measured in
#                         that archive, by the same commit on such a GPU, is not measured again
#   --from ARCHIVE        results.tar.gz of an earlier call, where DIR has none
#   --again WHICH         failed: what failed is run once more; all: everything is
#   --stages LIST         stages to run, separated by commas; default all (build only without --use)
#   --sizes LIST          any of 60m, 130m, 350m, 1b, for steps, pairs and peer; default all
#   --architectures LIST  as CMake takes them, for --bundle and build; default 90a-real
#   --python PROGRAM      interpreter with torch, for the peer; default python3
#
# What fails or hangs does not stop the rest. Exit status: 0 all was measured, 1 something failed, 3 the budget was used
# up, and the next call goes on.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all_stages=(build tests machine steps pairs optimizer sanitizer peer)
stages=()
measuring=()  # options that are handed on to what measures
output=$root/docs/benchmarks/gpu
architectures=90a-real
bundle=
use=
device=cuda
python=${MPT_PYTHON:-python3}
tiny=no

# one_of WHAT VALUE ACCEPTED...
one_of() {
  local what=$1 value=$2 accepted
  shift 2
  for accepted in "$@"; do if [ "$value" = "$accepted" ]; then return; fi; done
  die "$what '$value' is not one of: $*"
}

invocation="scripts/gpu_check.sh $*"
while [ $# -gt 0 ]; do
  case $1 in
    --stages | --sizes | --budget | --from | --again | --output | --architectures | --python | --bundle | --use)
      [ $# -ge 2 ] || die "$1 needs a value" ;;&
    --stages) IFS=, read -ra stages <<<"$2"; shift 2 ;;
    --sizes | --budget | --again) measuring+=("$1" "$2"); shift 2 ;;
    --from) measuring+=(--from "$(realpath -- "$2")"); shift 2 ;;
    --output) output=$2; shift 2 ;;
    --architectures) architectures=$2; shift 2 ;;
    --python) python=$2; shift 2 ;;
    --bundle) bundle=$2; shift 2 ;;
    --use) use=$2; shift 2 ;;
    --dry-run-on-cpu) device=cpu tiny=yes measuring+=(--tiny); shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see --help" ;;
  esac
done
for stage in "${stages[@]}"; do one_of stage "$stage" "${all_stages[@]}"; done
[ -z "$bundle" ] || [ -z "$use" ] || die "--bundle gathers on one machine, --use runs on another: give one of them"
if [ ${#stages[@]} -eq 0 ]; then
  stages=("${all_stages[@]}")
  if [ -n "$use" ]; then stages=("${all_stages[@]:1}"); fi
fi

# --- building, and gathering what another machine lacks ---------------------------------------------------------

preset=cuda
if [ $tiny = yes ]; then preset=cpu; fi
build=${MPT_BUILD_DIR:-$root/build/gpu_check-$preset}

# build_programs [CMAKE ARGUMENTS]
build_programs() {
  local targets=(mpretrain gpu_report)
  if [ $preset = cuda ]; then
    "$root/scripts/cudnn_frontend.sh" || say "going on without it"
    set -- "-DCMAKE_CUDA_ARCHITECTURES=$architectures" "$@"
    targets+=(mpt_cuda_tests)
  fi
  configure "$preset" -B "$build" "$@" && cmake --build "$build" --target "${targets[@]}"
}

# Libraries of CUDA, of the C library and of the compiler, which every machine of this kind has.
comes_with_the_machine() {
  case $(basename "$1") in
    libcuda* | libcublas* | libcudnn* | libnv* | libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | \
      ld-linux* | linux-vdso* | libstdc++* | libgcc_s* | libgomp*) return 0 ;;
  esac
  return 1
}

# libraries_of PROGRAM...: the paths of those that another machine may lack.
libraries_of() {
  local library
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | while read -r library; do
    comes_with_the_machine "$library" || say "$library"
  done
}

# install_stripped DIRECTORY FILE...
install_stripped() {
  local directory=$1 file
  shift
  mkdir -p "$directory" || return
  for file in "$@"; do
    cp -L "$file" "$directory/" && strip --strip-unneeded "$directory/$(basename "$file")" || return
  done
}

# A borrowed machine may take 64 MiB. Most of a program is code for the GPU, the same in all three: a dictionary that
# reaches back to the program before stores it once.
pack_programs() {
  tar -C "$1" -c bin lib | xz --lzma2=preset=6,dict=192MiB >"$1/programs.tar.xz" && rm -r "${1:?}/bin" "${1:?}/lib"
}

gather() {
  local directory=$1 programs=("$build/mpretrain" "$build/bench/gpu_report") libraries
  if [ $preset = cuda ]; then programs+=("$build/tests/mpt_cuda_tests"); fi
  mapfile -t libraries < <(libraries_of "${programs[@]}")
  install_stripped "$directory/bin" "${programs[@]}" && install_stripped "$directory/lib" "${libraries[@]}" &&
    pack_programs "$directory" && mkdir -p "$directory/scripts" &&
    cp -r "$root/configs" "$directory/" &&
    cp "$root"/scripts/{common.sh,gpu_check.sh,bench.py} "$directory/scripts/" &&
    tar -C "$root/scripts" --exclude=__pycache__ -c mpretrain_tools | tar -C "$directory/scripts" -x &&
    describe_commit >"$directory/commit" && say "architectures: $architectures" >"$directory/built"
}

# Code of the host for any x86 with AVX2 and FMA rather than for this one; MPT_NATIVE=ON for this one. For one rank:
# NCCL and MPI are large, and the other machine may lack them. Without cuDNN's attention nothing worth measuring is in it.
make_bundle() {
  local host=(-DMPT_NATIVE=OFF)
  if [ "$(uname -m)" = x86_64 ]; then host+=(-DCMAKE_CXX_FLAGS=-march=x86-64-v3); fi
  if [ "${MPT_NATIVE:-OFF}" = ON ]; then host=(-DMPT_NATIVE=ON); fi
  build_programs "${host[@]}" -DMPT_CUDNN=ON -DMPT_NCCL=OFF -DMPT_MPI=OFF || die "the build failed"
  gather "$1" || die "$1 could not be filled"
  say "$1: $(du -sh "$1" | cut -f1) in $(find "$1" -type f | wc -l) files. On the other machine:"
  say "  $(basename "$1")/scripts/gpu_check.sh --use $(basename "$1") --output report"
}

describe_commit() {
  if [ -f "$root/commit" ]; then
    cat "$root/commit"
  else
    git -C "$root" describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || say unknown
  fi
}

if [ -n "$bundle" ]; then
  make_bundle "$bundle"
  exit 0
fi

# --- where programs and libraries are ----------------------------------------------------------------------------

# CUDA's libraries, for a program that was built elsewhere: the toolkit's, else those of Python's packages.
cuda_library_paths() {
  local toolkit
  for toolkit in "${CUDA_HOME:-}" /usr/local/cuda; do
    if [ -n "$toolkit" ] && [ -d "$toolkit/lib64" ]; then say "$toolkit/lib64"; fi
  done
  "$python" - <<'PATHS' 2>/dev/null
import glob, site, sysconfig
for base in {sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()}:
    print("\n".join(sorted(glob.glob(base + "/nvidia/*/lib"))))
PATHS
}

# For our own programs only: another one, such as Python, brings its own libraries.
paths=
if [ -n "$use" ]; then
  [ -f "$use/programs.tar.xz" ] || die "$use holds no programs.tar.xz; make it with --bundle"
  use=$(cd "$use" && pwd)
  root=$use
  unpacked=$(mktemp -d) || die "no place to unpack $use/programs.tar.xz"
  trap 'rm -rf "$unpacked"' EXIT
  "$python" -m tarfile -e "$use/programs.tar.xz" "$unpacked" || die "$use/programs.tar.xz cannot be unpacked"
  report=$unpacked/bin/gpu_report tests=$unpacked/bin/mpt_cuda_tests
  paths=$(cuda_library_paths | awk 'NF && !seen[$0]++' | paste -sd:)
  paths=$unpacked/lib${paths:+:$paths}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export MPT_SOURCE_DIR=$use
else
  report=$build/bench/gpu_report tests=$build/tests/mpt_cuda_tests
fi
if [ $device = cuda ] && [ "${stages[*]}" != build ] && ! nvidia-smi -L >/dev/null 2>&1; then
  die "no NVIDIA GPU here (nvidia-smi -L finds none); --dry-run-on-cpu runs the same steps without one"
fi
mkdir -p "$output" || die "$output cannot be written"
output=$(cd "$output" && pwd)
commit=$(describe_commit)
cd "$root" || die "$root cannot be entered"

# --- running -----------------------------------------------------------------------------------------------------

measured=()
for stage in "${stages[@]}"; do
  if [ "$stage" != build ]; then measured+=("$stage"); continue; fi
  build_programs >"$output/build.log" 2>&1 || die "the build failed; $output/build.log says how"
done
if [ ${#measured[@]} -eq 0 ]; then exit 0; fi
"$python" scripts/bench.py gpu_check "${measuring[@]}" --output "$output" --stages "$(IFS=,; say "${measured[*]}")" \
  --device "$device" --report-program "$report" --tests-program "$tests" --library-path "$paths" --python "$python" \
  --commit "$commit" --invocation "$invocation" --spent "$SECONDS"

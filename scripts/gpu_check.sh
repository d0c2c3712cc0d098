#!/usr/bin/env bash
# Checks and measures the CUDA backend on a machine with a GPU; writes a Markdown and a JSON report.
#
#   scripts/gpu_check.sh                                     build here, then every stage
#   scripts/gpu_check.sh --bundle gpu_bundle                 build here for another machine, and bundle what it needs
#   scripts/gpu_check.sh --use gpu_bundle                    run the bundle; needs a driver, cuBLAS, Python
#   scripts/gpu_check.sh --stages tests,machine --output out some stages; results of other stages are kept
#   scripts/gpu_check.sh --dry-run-on-cpu --output /tmp/out  the same steps with tiny shapes on a CPU: no GPU figures
#
# Stages:
#   build       configure and compile
#   tests       the GPU tests
#   sanitizer   compute-sanitizer (memcheck, racecheck, initcheck, synccheck) over the small ones
#   machine     copy bandwidth and GEMM rates
#   steps       whole training steps, BF16 and FP8, every size
#   pairs       formats and optimizers in turn (A B A B ...), ratios
#   optimizer   the update alone, every format
#   peer        the same steps in PyTorch, before and after our own
#
# Options:
#   --stages LIST         stages to run, separated by commas; default all (build only without --use)
#   --sizes LIST          any of 60m, 130m, 350m, 1b, for steps, pairs and peer; default all
#   --output DIR          directory of the reports; default docs/benchmarks/gpu
#   --architectures LIST  as CMake takes them, for --bundle and build; default 90a-real
#   --python PROGRAM      interpreter with torch, for the peer; default python3
#
# A stage has 9 minutes. A stage that fails or runs out of time does not stop the others, but the exit status is then 1.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all_stages=(build tests sanitizer machine steps pairs optimizer peer)
all_sizes=(60m 130m 350m 1b)
stage_seconds=530  # what is left of 9 minutes is for starting and writing
stages=()
sizes=("${all_sizes[@]}")
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
    --stages | --sizes | --output | --architectures | --python | --bundle | --use)
      [ $# -ge 2 ] || die "$1 needs a value" ;;&
    --stages) IFS=, read -ra stages <<<"$2"; shift 2 ;;
    --sizes) IFS=, read -ra sizes <<<"$2"; shift 2 ;;
    --output) output=$2; shift 2 ;;
    --architectures) architectures=$2; shift 2 ;;
    --python) python=$2; shift 2 ;;
    --bundle) bundle=$2; shift 2 ;;
    --use) use=$2; shift 2 ;;
    --dry-run-on-cpu) device=cpu tiny=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument $1; see --help" ;;
  esac
done
for stage in "${stages[@]}"; do one_of stage "$stage" "${all_stages[@]}"; done
for size in "${sizes[@]}"; do one_of size "$size" "${all_sizes[@]}"; done
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

gather() {
  local directory=$1 programs=("$build/mpretrain" "$build/bench/gpu_report") libraries
  if [ $preset = cuda ]; then programs+=("$build/tests/mpt_cuda_tests"); fi
  mapfile -t libraries < <(libraries_of "${programs[@]}")
  install_stripped "$directory/bin" "${programs[@]}" && install_stripped "$directory/lib" "${libraries[@]}" &&
    mkdir -p "$directory/scripts" &&
    cp -r "$root/configs" "$directory/" &&
    cp "$root"/scripts/{common.sh,gpu_check.sh,bench.py} "$directory/scripts/" &&
    tar -C "$root/scripts" --exclude=__pycache__ -c mpretrain_tools | tar -C "$directory/scripts" -x &&
    describe_commit >"$directory/commit" && say "architectures: $architectures" >"$directory/built"
}

# Code of the host for any x86 with AVX2 and FMA rather than for this one; MPT_NATIVE=ON for this one. For one rank:
# NCCL and MPI are large, and the other machine may lack them.
make_bundle() {
  local host=(-DMPT_NATIVE=OFF)
  if [ "$(uname -m)" = x86_64 ]; then host+=(-DCMAKE_CXX_FLAGS=-march=x86-64-v3); fi
  if [ "${MPT_NATIVE:-OFF}" = ON ]; then host=(-DMPT_NATIVE=ON); fi
  build_programs "${host[@]}" -DMPT_NCCL=OFF -DMPT_MPI=OFF || die "the build failed"
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

# `within` is put before our own programs only: another one, such as Python, brings its own libraries.
if [ -n "$use" ]; then
  [ -x "$use/bin/gpu_report" ] || die "$use holds no bin/gpu_report; make it with --bundle"
  use=$(cd "$use" && pwd)
  root=$use
  report=$use/bin/gpu_report tests=$use/bin/mpt_cuda_tests
  paths=$(cuda_library_paths | awk 'NF && !seen[$0]++' | paste -sd:)
  within=(env "LD_LIBRARY_PATH=$use/lib${paths:+:$paths}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
else
  within=()
  report=$build/bench/gpu_report tests=$build/tests/mpt_cuda_tests
fi
if [ $device = cuda ] && [ "${stages[*]}" != build ] && ! nvidia-smi -L >/dev/null 2>&1; then
  die "no NVIDIA GPU here (nvidia-smi -L finds none); --dry-run-on-cpu runs the same steps without one"
fi
mkdir -p "$output/raw" || die "$output cannot be written"
output=$(cd "$output" && pwd)
raw=$output/raw
commit=$(describe_commit)
cd "$root" || die "$root cannot be entered"

# --- running -----------------------------------------------------------------------------------------------------

# Seconds that the current stage has left; it is started by run_stage.
left() { echo $((stage_end - SECONDS)); }

# record NAME COMMAND...: runs it within the stage's time. Standard output goes to raw/NAME.json, what it says and
# what it was to raw/NAME.log.
record() {
  local name=$1 status seconds
  shift
  seconds=$(left)
  if [ "$seconds" -gt "${most_seconds:-$seconds}" ]; then seconds=$most_seconds; fi
  if [ "$seconds" -lt 5 ]; then
    say "$name: not run, the stage is out of time"
    return 1
  fi
  {
    printf 'command:'
    printf ' %q' "${@//"$root/"/}"
    printf '\ncommit: %s\ndate: %s\n' "$commit" "$(date -u +%Y-%m-%dT%H:%MZ)"
  } >"$raw/$name.log"
  timeout --kill-after=10 "$seconds" "$@" >"$raw/$name.tmp" 2>>"$raw/$name.log"
  status=$?
  if [ $status -eq 0 ]; then
    mv "$raw/$name.tmp" "$raw/$name.json"
    say "$name: done"
  else
    rm -f "$raw/$name.json"
    cat "$raw/$name.tmp" >>"$raw/$name.log" && rm -f "$raw/$name.tmp"
    say "$name: exit status $status$([ $status -eq 124 ] && say ' (out of time)'); $raw/$name.log ends with:"
    tail -n 5 "$raw/$name.log"
  fi
  say "exit status: $status" >>"$raw/$name.log"
  return $status
}

# Runs every command of a list given as functions with arguments, and tells whether all went well.
failures=0
attempt() { "$@" || failures=$((failures + 1)); }

# measure NAME ARGUMENTS...: of gpu_report.
measure() { attempt record "$1" "${within[@]}" "$report" --device "$device" "${@:2}"; }

# Steps that take a few seconds to half a minute on an H200 at the goal.
steps_of() {
  if [ $tiny = yes ]; then say 2; return; fi
  case $1 in 60m) say 100 ;; 130m) say 60 ;; 350m) say 30 ;; 1b) say 15 ;; esac
}

# Words, none of which has a blank: sizes for a CPU.
gemm_option() { if [ $tiny = yes ]; then say --gemm-size 128; fi; }
machine_options() { if [ $tiny = yes ]; then say --gemm-size 128 --copy-bytes 1048576; fi; }

# The options that all runs of whole steps share, for a size: a word each in the array `step_options`.
set_step_options() {
  step_options=(--tokens-per-step 131072 --seq-len 1024 --steps "$(steps_of "$1")" --rounds 5
                --set train.activation_recompute=none)
  if [ $tiny = yes ]; then
    step_options=(--tokens-per-step 256 --seq-len 64 --micro-batch-rows 2 --steps 2 --rounds 2 --warm-up 3)
  fi
}
config_of() { if [ $tiny = yes ]; then say "configs/nano_$2.json"; else say "configs/$1_$2.json"; fi; }

stage_build() {
  export -f build_programs configure say
  export root preset build architectures
  attempt timeout "$stage_seconds" bash -c build_programs >"$raw/build.log" 2>&1
}

stage_tests() {
  if [ $tiny = yes ]; then say "tests: skipped, they need a GPU"; return; fi
  attempt record tests "${within[@]}" "$tests" "--gtest_output=json:$raw/tests_cases.json" --gtest_brief=1
}

# The small tests, and of what they launch our own kernels: compute-sanitizer makes them tens of times slower. Errors
# that tests provoke on purpose are not findings.
stage_sanitizer() {
  local tool most_seconds=$((stage_seconds / 4))
  local too_long='*Training*:*CudaRun*:*Tuning*:*LargeEnough*:*Scratch*:*OutOfMemory*:*CannotRecord*:*MayGo*'
  if [ $tiny = yes ]; then say "sanitizer: skipped, it needs a GPU"; return; fi
  if ! command -v compute-sanitizer >/dev/null; then
    say "sanitizer: compute-sanitizer is not on PATH"
    failures=$((failures + 1))
    return
  fi
  for tool in memcheck racecheck initcheck synccheck; do
    attempt record "sanitizer_$tool" "${within[@]}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      --report-api-errors no --kernel-name kns=mpt "$tests" "--gtest_filter=${MPT_SANITIZER_FILTER:--$too_long}" \
      --gtest_brief=1
  done
}

stage_machine() {
  # shellcheck disable=SC2046
  measure machine machine $(machine_options)
}

stage_steps() {
  local size
  for size in "${sizes[@]}"; do
    set_step_options "$size"
    # shellcheck disable=SC2046
    measure "steps_$size" step "${step_options[@]}" $(gemm_option) \
      --config "$(config_of "$size" bf16)" --config "$(config_of "$size" fp8)"
  done
}

# pair SIZE NAME CONFIG...: in turn; the first is what the others are compared with.
pair() {
  local size=$1 name=$2 configs=() config
  shift 2
  for config in "$@"; do configs+=(--config "$(config_of "$size" "$config")"); done
  set_step_options "$size"
  measure "pair_${size}_$name" pair "${step_options[@]}" "${configs[@]}"
}

stage_pairs() {
  local size
  for size in "${sizes[@]}"; do
    pair "$size" fp8 bf16 fp8
    pair "$size" nvfp4 fp8 nvfp4
    pair "$size" m_plus_adam bf16_adamw bf16
    pair "$size" sr bf16_adamw bf16_adamw_sr
    pair "$size" kahan bf16_adamw bf16_adamw_kahan
  done
}

stage_optimizer() {
  local format rule elements=268435456
  if [ $tiny = yes ]; then elements=65536; fi
  for format in fp32 bf16 block_fp8 nvfp4; do
    for rule in adamw m_plus_adam; do
      # shellcheck disable=SC2046
      measure "optimizer_${format}_$rule" optimizer --format $format --rule $rule \
        --elements $elements $(machine_options)
    done
  done
  for rule in stochastic kahan; do
    # shellcheck disable=SC2046
    measure "optimizer_bf16_adamw_$rule" optimizer --format bf16 --rule adamw \
      --writeback $rule --elements $elements $(machine_options)
  done
}

# Ours, the peer, ours again: the same card at the same temperature.
stage_peer() {
  local size peer_size rows
  if ! "$python" -c 'import torch' 2>/dev/null; then
    say "peer: $python has no torch"
    failures=$((failures + 1))
    return
  fi
  for size in "${sizes[@]}"; do
    set_step_options "$size"
    peer_size=$size
    if [ $tiny = yes ]; then peer_size=nano; fi
    # shellcheck disable=SC2046
    measure "peer_${size}_ours_before" step "${step_options[@]}" $(gemm_option) \
      --config "$(config_of "$size" bf16_adamw)"
    rows=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["micro_batch_rows"])' \
      "$raw/peer_${size}_ours_before.json" 2>/dev/null) || rows=16
    attempt record "peer_${size}_torch" "$python" scripts/bench.py torch_gpu_step --size "$peer_size" \
      --device $device --micro-batch-rows "$rows" "${step_options[@]:0:4}" --steps "$(steps_of "$size")"
    # shellcheck disable=SC2046
    measure "peer_${size}_ours_after" step "${step_options[@]}" $(gemm_option) \
      --config "$(config_of "$size" bf16_adamw)"
  done
}

run_stage() {
  local before=$failures
  stage_end=$((SECONDS + stage_seconds))
  say "--- $1"
  "stage_$1"
  if [ "$failures" -eq "$before" ]; then say "$1: complete"; else say "$1: $((failures - before)) failed"; fi
}

describe_machine() {
  say "commit: $commit"
  say "command: $invocation"
  say "date: $(date -u +%Y-%m-%dT%H:%MZ)"
  say "backend: $device$([ $tiny = yes ] && say ' (dry run: tiny shapes, no GPU figures)')"
  say "kernel: $(uname -sr)"
  nvidia-smi --query-gpu=name,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,clocks.max.memory \
    --format=csv,noheader 2>/dev/null | sed 's/^/gpu: /'
  nvcc --version 2>/dev/null | sed -n 's/^Build/nvcc: &/p'
}

describe_machine >"$raw/machine.txt"
for stage in "${stages[@]}"; do run_stage "$stage"; done
"$python" scripts/bench.py gpu_check_report --output "$output" || failures=$((failures + 1))
if [ "$failures" -gt 0 ]; then die "$failures failed; see $raw"; fi

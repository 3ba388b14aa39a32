#!/usr/bin/env bash
# Build zerod and run its tests; the last line is "N passed, N failed, N skipped", above it what was tried again.
#   deploy/test.sh           everything that a change must pass: under twenty-two minutes on two cores
#   deploy/test.sh --long    the suite `long` too, whole jobs under the address sanitizer, CUDA's stand-ins under the thread sanitizer
# With CI set, the packages of the group `ci` are installed too.
# Three builds: as it is used; with the address and undefined-behavior sanitizers, for the unit tests; and with
# the thread sanitizer, for the suite tsan: plain programs whose ranks are threads, kernels on one thread (Criterion's
# workers and OpenMP's barriers give it false alarms). Tests of several ranks are in the suites ranks (threads) and mpi.
# These three are without CUDA. Where its toolkit is, CUDA is built twice: by nvcc, which must compile and link (--long: for
# every architecture), and for the CPU with stand-ins for driver and libraries (tests/cuda), which runs the suite cuda.
# With the thread sanitizer the stand-ins are a build more, of more than three minutes of CPU: only with --long.
#
# What keeps it short without a compiler's cache:
# - Tests of the suites mpi and cuda wait more than they compute. So all other builds and suites run behind these two, by
#   processes that take what they leave (nice). The seconds that a part took say so little; those of CPU are told too.
# - Unit tests run under the address sanitizer alone, but for the suite `native` (tests/meson.build).
# - The builds for tests have as much debug information as reports show (-g1), a sanitizer's only what its suites need, at -O1.
#   nvcc's build, of which few tests are run, has -O0 on the host.
# - CPU kernels are compiled for all instructions where the suite `native` compares them, for AVX2 under the address sanitizer
#   (vectors of 32 and 64 bytes have one source; --long: for all), and for the base instructions alone in the other builds.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 70
select_long=(--no-suite long)
case ${1:-} in
    --long) select_long=() ;;
    '') ;;
    *) sed -n '2,4s/^# //p' "$0" >&2; exit 64 ;;
esac
export CI="${CI:-}" LC_ALL=C.UTF-8
# A leak or an error must end a test: Criterion forgives an exit code of a child that has reported its result.
export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1 UBSAN_OPTIONS=abort_on_error=1:halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

./deploy/install.sh build run test ${CI:+ci} || exit

has_cuda=no
cudnn=disabled
if ! ./deploy/cuda/find.sh >/dev/null 2>&1; then
    echo "== CUDA: skipped, there is no toolkit here (deploy/cuda/find.sh says where it looks)" >&2
else
    has_cuda=yes
    # Attention by cuDNN is compiled where its headers can be had; the build goes on without them.
    if ! ./deploy/install.sh cudnn; then
        echo "== cuDNN's attention: skipped, the headers of cudnn-frontend are not here" >&2
    elif ! ./deploy/cuda/find.sh | grep '^cudnn=' >/dev/null; then
        echo "== cuDNN's attention: skipped, cudnn.h is not here" >&2
    else
        cudnn=enabled
    fi
fi

logs=()
bad=0
TIMEFORMAT='   %0R s; of CPU %0U s, and %0S s in the kernel'
build() {
    echo "== building $1" >&2
    time ./deploy/build.sh "$@"
}
# suite FOLDER NAME WHAT [meson test argument]...: FOLDER/NAME.json is its log
suite() {
    local folder=$1 name=$2 what=$3 code=0
    shift 3
    echo "== $what" >&2
    rm -f "$folder/meson-logs/$name"*.json # with a wrapper, its name is in the file's
    time meson test -C "$folder" --logbase "$name" --no-rebuild --print-errorlogs --timeout-multiplier 8 "$@" \
        >"$folder/$name.out" 2>&1 || code=$?
    if [[ $code -ne 0 ]]; then
        tail -n 200 "$folder/$name.out" >&2
        python3 deploy/count_tests.py --failures "$folder/meson-logs/$name"*.json >&2
    fi
    cat "$folder/meson-logs/$name"*.json >"$folder/$name.json" 2>/dev/null
    return "$code"
}
# told NAME RESULT: a test of this script's own, as meson would log it
told() {
    printf '{"name": "%s", "result": "%s", "stdout": ""}\n' "$1" "$2" >>"$work/told.json"
    [[ $2 != FAIL ]] || { bad=1; echo "-- $1: failed" >&2; }
}
finish() {
    local passed=0 failed=0 skipped=0 retries
    wait
    read -r passed failed skipped < <(python3 deploy/count_tests.py "${logs[@]}" "$work/told.json")
    if [[ $bad -ne 0 && $failed -eq 0 ]]; then failed=1; fi
    retries=$(python3 deploy/count_tests.py --retries "${logs[@]}" "$work/told.json")
    echo "$(grep -c . <<<"$retries") tried again${retries:+:}"
    [[ -z $retries ]] || sed 's/^/    /' <<<"$retries"
    echo "$passed passed, $failed failed, $skipped skipped"
    [[ $failed -eq 0 ]]
    exit
}

# part NAME COMMAND...: behind the suites in front; what it says is for when it is waited for, and its end goes into the queue.
part() {
    local code=0
    "${@:2}" >"$work/$1.log" 2>&1 || code=$?
    echo "$1 $code"
    return "$code"
}
# The parts, in the order in which they are waited for.
behind() {
    # cuDNN itself has no stand-in, only its headers: the door is compiled with the true ones below
    [[ $has_cuda == no ]] || part build-standin build build-standin "${cuda[@]}" "${races[@]}" -Dcuda=enabled -Dgpu_stand_in=true \
        -Dcudnn=disabled -Dcpu_isa=base "${checked[@]}" -Doptimization=2
    part build-asan build build-asan "${asan_suites[@]}" -Dcuda=disabled -Db_sanitize=address,undefined -Db_lundef=false \
        -Dcpu_isa=$asan_isa "${checked[@]}" &&
        part asan suite build-asan asan "unit tests and requests under address and undefined-behavior sanitizers" "${asan_suites[@]}" "${select_long[@]}"
    part build-tsan build build-tsan --suite tsan -Dcuda=disabled "${thread_checked[@]}" &&
        OMP_NUM_THREADS=1 part tsan suite build-tsan tsan "ranks as threads under the thread sanitizer" "${fixed[@]}" "${select_long[@]}" --suite tsan
    [[ ${#behind_suites[@]} -eq 0 ]] || part tests suite build tests "tests behind" "${behind_suites[@]}" "${select_long[@]}"
    [[ $has_cuda == yes ]] || return 0
    part build-cuda build build-cuda "${cuda[@]}" -Dcuda=enabled -Dgpu_archs=$archs -Dcudnn=$cudnn -Dcpu_isa=base "${light[@]}" \
        "${unoptimized[@]}" &&
        part no-driver suite build-cuda no-driver "the program with CUDA where there is no driver" --suite no-driver
    [[ ${#select_long[@]} -eq 0 ]] || return 0
    part build-standin-tsan build build-standin-tsan "${cuda[@]}" -Dcuda=enabled -Dgpu_stand_in=true -Dcudnn=disabled "${thread_checked[@]}" &&
        OMP_NUM_THREADS=1 part races suite build-standin-tsan races "streams of GPUs under the thread sanitizer" "${fixed[@]}" \
            "zero cuda" "zero schedule_cuda" train_gpu_races "comm gpu races nccl" "comm gpu races ordered" "comm gpu races staged" "stand-in order"
}
light=(-Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1)
checked=(-Doptimization=1 "${light[@]}")
thread_checked=(-Db_sanitize=thread -Db_lundef=false -Dcpu_isa=base "${checked[@]}")
# At -O0 gcc knows no ranges of values, and warns of texts that cannot be cut. The other builds keep that warning.
unoptimized=(-Doptimization=0 "-Dc_args=-g1 -Wno-format-truncation")
cuda=(--target daemon/zerod --target cuda-programs)
asan_suites=(--suite unit --suite fuzz)
[[ ${#select_long[@]} -gt 0 ]] || asan_suites+=(--suite asan) # whole jobs too
races=() # of the kernels that tell of their accesses
[[ ${#select_long[@]} -gt 0 ]] || races=(--target cuda-races)
archs=90 asan_isa=avx2
[[ ${#select_long[@]} -gt 0 ]] || archs=all asan_isa=avx512
# gcc's thread sanitizer cannot lay out its memory where the kernel randomises addresses widely.
fixed=()
if setarch -R true 2>/dev/null; then fixed=(--wrapper "setarch -R"); fi
# await PART: what it said; false if it failed
await() {
    local name code
    read -r name code <&"$queue" && [[ $name == "$1" ]] || return 70
    cat "$work/$1.log" >&2
    return "$code"
}
# tested FOLDER PART: a suite behind those in front
tested() {
    await "$2" || bad=1
    logs+=("$1/$2.json")
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/told.json"
front_suites=() behind_suites=()
[[ ${#select_long[@]} -eq 0 ]] || front_suites=(--suite mpi) behind_suites=(--suite native --suite ranks --suite cli --suite docs)
if ! build build "${front_suites[@]}" "${behind_suites[@]}" "${light[@]}" -Dcuda=disabled; then
    bad=1
    finish
fi
set -m # a group of its own, so that it can be ended whole
mkfifo "$work/queue"
(renice -n 7 $BASHPID >/dev/null && behind) >"$work/queue" &
behind=$!
set +m
trap 'kill %1 2>/dev/null; rm -rf "$work"' EXIT # until it has ended: then its number may be another's
exec {queue}<"$work/queue"

suite build mpi "tests in front" "${front_suites[@]}" "${select_long[@]}" || bad=1
logs+=(build/mpi.json)

if [[ $has_cuda == no ]]; then
    for name in "CUDA by nvcc" "cuDNN's attention" "CUDA on the CPU"; do told "$name" SKIP; done
elif await build-standin; then
    suite build-standin cuda "CUDA on the CPU" --suite cuda "${select_long[@]}" || bad=1
    logs+=(build-standin/cuda.json)
else
    told "CUDA on the CPU" FAIL
fi
renice -n 0 -g "$behind" >/dev/null 2>&1 # where it cannot be taken back, it stays
if await build-asan; then tested build-asan asan; else bad=1; fi
if await build-tsan; then tested build-tsan tsan; else bad=1; fi
[[ ${#behind_suites[@]} -eq 0 ]] || tested build tests
[[ $has_cuda == yes ]] || finish
if [[ $cudnn == disabled ]]; then
    told "cuDNN's attention" SKIP
fi
if await build-cuda; then
    told "CUDA by nvcc" OK
    if grep -qE 'warning( #[0-9]+(-D)?)?:' build-cuda/build.log; then told "CUDA by nvcc, without warnings" FAIL
    else told "CUDA by nvcc, without warnings" OK; fi
    tested build-cuda no-driver
else
    told "CUDA by nvcc" FAIL
fi
if [[ ${#select_long[@]} -eq 0 ]]; then
    if await build-standin-tsan; then tested build-standin-tsan races; else told "streams of GPUs under the thread sanitizer" FAIL; fi
fi
finish

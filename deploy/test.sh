#!/usr/bin/env bash
# Build zerod and run its tests; the last line is "N passed, N failed, N skipped".
#   deploy/test.sh           everything that a change must pass: under twenty-five minutes on two cores
#   deploy/test.sh --long    the suite `long` too, and CUDA's stand-ins under the thread sanitizer
# With CI set, the packages of the group `ci` are installed too.
# Three builds: as it is used; with the address and undefined-behaviour sanitizers, for the unit tests; and with
# the thread sanitizer, for the suite tsan: plain programs whose ranks are threads, kernels on one thread (Criterion's
# workers and OpenMP's barriers give it false alarms). Tests of several ranks are in the suites ranks (threads) and mpi.
# These three are without CUDA. Where its toolkit is, CUDA is built twice: by nvcc, which must compile and link (--long: for
# every architecture), and for the CPU with stand-ins for driver and libraries (tests/cuda), which runs the suite cuda.
# CPU kernels are compiled there for the base instructions alone: half of a build's time.
# With the thread sanitizer the stand-ins are a build more, of more than three minutes of CPU: only with --long.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 70
select_long=(--no-suite long)
case ${1:-} in
    --long) select_long=() ;;
    '') ;;
    *) sed -n '2,4s/^# //p' "$0" >&2; exit 64 ;;
esac
export CI="${CI:-}" LC_ALL=C.UTF-8

./deploy/install.sh build run test ${CI:+ci} || exit

logs=()
bad=0
# run_suite FOLDER WHAT [meson test argument]...
run_suite() {
    local folder=$1 what=$2 begin=$SECONDS
    shift 2
    echo "== $what" >&2
    rm -f "$folder"/meson-logs/testlog*.json # with a wrapper, its name is in the file's
    if ! meson test -C "$folder" --no-rebuild --print-errorlogs --timeout-multiplier 4 "$@" \
            >"$folder/test.out" 2>&1; then
        bad=1
        tail -n 200 "$folder/test.out" >&2
        python3 deploy/count_tests.py --failures "$folder"/meson-logs/testlog*.json >&2
    fi
    cat "$folder"/meson-logs/testlog*.json >"$folder/test.json" 2>/dev/null
    logs+=("$folder/test.json")
    echo "   $((SECONDS - begin)) s" >&2
}
build() {
    local begin=$SECONDS
    echo "== building $1" >&2
    ./deploy/build.sh "$@" || return
    echo "   $((SECONDS - begin)) s" >&2
}
finish() {
    local passed=0 failed=0 skipped=0
    if [[ ${#logs[@]} -gt 0 ]]; then
        read -r passed failed skipped < <(python3 deploy/count_tests.py "${logs[@]}")
    fi
    if [[ $bad -ne 0 && $failed -eq 0 ]]; then failed=1; fi
    echo "$passed passed, $failed failed, $skipped skipped"
    [[ $failed -eq 0 ]]
    exit
}

if build build -Dcuda=disabled; then
    run_suite build "tests" "${select_long[@]}"
else
    bad=1
    finish
fi

# A leak or an error must end a test: Criterion forgives an exit code of a child that has reported its result.
export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1 UBSAN_OPTIONS=abort_on_error=1:halt_on_error=1:print_stacktrace=1
if build build-asan -Dcuda=disabled -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1; then
    run_suite build-asan "unit tests and requests under address and undefined-behaviour sanitizers" --suite unit --suite fuzz
else
    bad=1
fi

# gcc's thread sanitizer cannot lay out its memory where the kernel randomises addresses widely.
fixed=()
if setarch -R true 2>/dev/null; then fixed=(--wrapper "setarch -R"); fi
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 OMP_NUM_THREADS=1
if build build-tsan -Dcuda=disabled -Db_sanitize=thread -Db_lundef=false -Doptimization=1; then
    run_suite build-tsan "ranks as threads under the thread sanitizer" "${fixed[@]}" --suite tsan
else
    bad=1
fi
unset OMP_NUM_THREADS

# told NAME RESULT: a test of this script's own, as meson would log it
told() {
    printf '{"name": "%s", "result": "%s", "stdout": ""}\n' "$1" "$2" >>build/told.json
    [[ $2 != FAIL ]] || bad=1
}
mkdir -p build && : >build/told.json
logs+=(build/told.json)
archs=90
[[ ${#select_long[@]} -gt 0 ]] || archs=all
if ! ./deploy/cuda/find.sh >/dev/null 2>&1; then
    echo "== CUDA: skipped, there is no toolkit here (deploy/cuda/find.sh says where it looks)" >&2
    for part in "CUDA by nvcc" "cuDNN's attention" "CUDA on the CPU"; do told "$part" SKIP; done
else
    # Attention by cuDNN is compiled where its headers can be had; the build goes on without them.
    cudnn=disabled
    if ! ./deploy/install.sh cudnn; then
        echo "== cuDNN's attention: skipped, the headers of cudnn-frontend are not here" >&2
    elif ! ./deploy/cuda/find.sh | grep '^cudnn=' >/dev/null; then
        echo "== cuDNN's attention: skipped, cudnn.h is not here" >&2
    else
        cudnn=enabled
    fi
    if [[ $cudnn == disabled ]]; then
        told "cuDNN's attention" SKIP
    fi
    if build build-cuda --target daemon/zerod --target cuda-programs -Dcuda=enabled -Dgpu_archs=$archs -Dcudnn=$cudnn \
            -Dcpu_isa=base; then
        told "CUDA by nvcc" OK
        if grep -qE 'warning( #[0-9]+(-D)?)?:' build-cuda/build.log; then told "CUDA by nvcc, without warnings" FAIL
        else told "CUDA by nvcc, without warnings" OK; fi
        run_suite build-cuda "the program with CUDA where there is no driver" --suite no-driver
    else
        told "CUDA by nvcc" FAIL
    fi
    # cuDNN itself has no stand-in, only its headers: the door is compiled with the true ones above
    if build build-standin --target daemon/zerod --target cuda-programs -Dcuda=enabled -Dgpu_stand_in=true -Dcudnn=disabled \
            -Doptimization=2 -Dcpu_isa=base; then
        run_suite build-standin "CUDA on the CPU" --suite cuda "${select_long[@]}"
    else
        told "CUDA on the CPU" FAIL
    fi
    if [[ ${#select_long[@]} -eq 0 ]]; then
        export OMP_NUM_THREADS=1
        if build build-standin-tsan --target daemon/zerod --target cuda-programs -Dcuda=enabled -Dgpu_stand_in=true \
                -Dcudnn=disabled -Db_sanitize=thread -Db_lundef=false -Doptimization=1 -Dcpu_isa=base; then
            run_suite build-standin-tsan "streams of GPUs under the thread sanitizer" "${fixed[@]}" \
                "zero cuda" train_gpu_races "comm gpu races nccl" "comm gpu races ordered" "comm gpu races staged" "stand-in order"
        else
            told "streams of GPUs under the thread sanitizer" FAIL
        fi
        unset OMP_NUM_THREADS
    fi
fi
finish

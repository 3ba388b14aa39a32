#!/usr/bin/env bash
# Gather what a GPU machine needs to run zerod, its tests and its benchmarks, though it has neither Open MPI nor libuv.
#   deploy/bundle.sh BUILD_FOLDER OUT_FOLDER
# Makes OUT_FOLDER/payload.tar.xz: programs (stripped), the shared libraries they load and Open MPI's run time (plug-ins,
# help texts, mpirun), the tests' fixtures and scripts. glibc, the driver, cuBLAS, cuDNN and NCCL are the machine's.
# There: source deploy/bundle-env.sh OUT_FOLDER, or tests/gpu.sh OUT_FOLDER and bench/gpu.sh OUT_FOLDER ROW.
# BUILD_FOLDER: set up with -Dcuda=enabled and CUDA architectures that fit the machine; what is not built yet is built. For
# attention by cuDNN run deploy/install.sh cudnn before that.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=deploy/gpu-folder.sh
source "$root/deploy/gpu-folder.sh"
tell_usage "$@"
[[ $# -eq 2 ]] || { usage >&2; exit 64; }
[[ -f $1/build.ninja ]] || refuse 66 "$1 is no build folder"
build=$(readlink -f "$1") out=$2
config() { grep -q "^#define $1 1" "$build/zd_config.h"; }
config ZD_HAVE_CUDA || refuse 66 "$build was set up without -Dcuda=enabled"
mkdir -p "$out"
out=$(readlink -f "$out")
benches=(bench/bench_optim_cuda bench/bench_kernels_cuda bench/bench_comm)
ninja -C "$build" daemon/zerod daemon/ctl/zerodctl cuda-programs tests/mpi/local_run "${benches[@]}" >&2
tree=$(mktemp -d)
trap 'rm -rf "$tree" "$out/payload.tar.xz.new"' EXIT
mkdir -p "$tree"/{bin,lib,programs,openmpi/{lib,share,etc},pmix}

# --- programs: zerod, zerodctl, the tests of the suite cuda, the benchmarks
# tests.list: a line for each test: its name, its program, its arguments, separated by tabs.
meson introspect --tests "$build" | python3 -I -c '
import json, sys
for test in json.load(sys.stdin):
    if any(suite.split(":")[-1] == "cuda" for suite in test["suite"]):
        print("\t".join([test["name"], *test["cmd"]]))
' >"$tree/tests.all"
cp "$build/daemon/zerod" "$build/daemon/ctl/zerodctl" "$tree/bin"
: >"$tree/tests.list"
while IFS=$'\t' read -r name program arguments; do
    # scripts start programs of the build folder: they stay at home
    if [[ $program == "$build"/* ]]; then
        cp "$program" "$tree/programs"
        printf '%s\t%s\t%s\n' "$name" "$(basename "$program")" "$arguments" >>"$tree/tests.list"
    fi
done <"$tree/tests.all"
rm "$tree/tests.all"
for program in "${benches[@]}" tests/mpi/local_run tests/comm/test_comm_gpu_mpi; do cp "$build/$program" "$tree/programs"; done

# --- Open MPI's run time
launcher=$(readlink -f "$(command -v mpirun)")
cp "$launcher" "$tree/bin/mpirun"
cp "$launcher" "$tree/bin/orterun"
for daemon in orted prted prterun; do
    if command -v "$daemon" >/dev/null; then cp -L "$(command -v "$daemon")" "$tree/bin"; fi
done
where() { ompi_info --parsable --path "$1" | sed -n "s/^path:$1://p"; }
pkglib=$(where pkglibdir)
# transports of one machine alone: no fabric's library has to be there
for part in "$pkglib"/mca_*.so; do
    case $(basename "$part") in
        *_ofi.so | *_ucx.so | *_usnic.so | *_openib.so | *_psm*.so | *_portals*.so | *_monitoring.so | mca_io_* | mca_fs_* | \
            mca_fbtl_* | mca_fcoll_* | mca_sharedfp_* | mca_memchecker_* | mca_crs_* | mca_ras_slurm* | mca_plm_slurm* | mca_*_gridengine*) ;;
        *) cp -L "$part" "$tree/openmpi/lib" ;;
    esac
done
cp -L "$(where pkgdatadir)"/help-*.txt "$tree/openmpi/share" 2>/dev/null || true
: >"$tree/openmpi/etc/openmpi-mca-params.conf"
: >"$tree/openmpi/etc/openmpi-default-hostfile"
pmix=$(ldd "$pkglib"/mca_pmix_ext*.so 2>/dev/null | awk '/libpmix/ && !seen++ { print $3 }')
if [[ -n $pmix ]]; then
    plugins=$(find "$(dirname "$(readlink -f "$pmix")")" "$(dirname "$pmix")" /usr/lib -maxdepth 6 -name 'mca_bfrops_v*.so' 2>/dev/null | sed -n 1p)
    if [[ -n $plugins ]]; then cp -L "$(dirname "$plugins")"/*.so "$tree/pmix"; fi
fi

# --- libraries that these load, all the way down
not_ours='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libcuda|libnvidia-ml|libcublas|libcublasLt|libcudnn[a-z_]*|libnccl)\.so'
find "$tree" -type f \( -perm -u+x -o -name '*.so*' \) -print0 | xargs -0 -n 1 ldd 2>/dev/null |
    awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
    while read -r name path; do
        if [[ ! $name =~ $not_ours ]]; then cp -L "$path" "$tree/lib/$name"; fi
    done
find "$tree" -type f \( -perm -u+x -o -name '*.so*' \) -print0 | xargs -0 -n 1 strip --strip-unneeded 2>/dev/null || true

# --- what the tests read
mkdir -p "$tree/source"
(cd "$root" && git ls-files tests bench deploy | tar -cf - -T -) | tar -xf - -C "$tree/source"
git -C "$root" rev-parse --short HEAD >"$tree/commit"
# Every program holds the same kernels: a dictionary that reaches back over several of them packs those once (with gzip
# the payload is three times as large). xz travels along, for machines that have none.
echo "bundle.sh: packing, some minutes" >&2
cp -L "$(command -v xz)" "$out/xz"
cp -L "$(ldd "$out/xz" | awk '$1 ~ /^liblzma/ { print $3 }')" "$out/liblzma.so.5"
# under its own name only when it is whole
tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner -cf - . | xz -T1 --lzma2=preset=2,dict=96MiB >"$out/payload.tar.xz.new"
mv "$out/payload.tar.xz.new" "$out/payload.tar.xz"
bytes=$(stat -c %s "$out/payload.tar.xz")
archs=$(meson introspect --buildoptions "$build" | python3 -I -c '
import json, sys
print(next(option["value"] for option in json.load(sys.stdin) if option["name"] == "gpu_archs"))')
printf '%s: %d.%d MiB, %d tests, CUDA architectures %s, %s cuDNN, %s NCCL\n' "$out/payload.tar.xz" $((bytes >> 20)) \
    $(((bytes >> 10) % 1024 * 10 / 1024)) "$(wc -l <"$tree/tests.list")" "$archs" \
    "$(config ZD_HAVE_CUDNN && echo with || echo without)" "$(config ZD_HAVE_NCCL && echo with || echo without)" >&2
if [[ $bytes -gt $((48 << 20)) ]]; then
    echo "bundle.sh: more than 48 MiB: build for fewer architectures (-Dgpu_archs=90)" >&2
    exit 69
fi

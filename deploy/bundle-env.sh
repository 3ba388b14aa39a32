# shellcheck shell=bash
# Source this with the folder that deploy/bundle.sh made: unpacks it once and sets what its programs need.
#   source deploy/bundle-env.sh FOLDER || exit
# Afterwards: $BUNDLE is the unpacked folder, zerod, zerodctl and mpirun are on the PATH. Without them (the payload is cut, the disk full) it returns 66.
_payload=$(readlink -f "${1:?the folder that deploy/bundle.sh made}")/payload.tar.xz
if [[ ! -s $_payload ]]; then
    echo "bundle-env.sh: there is no $_payload" >&2
    return 66
fi
BUNDLE=${ZEROD_BUNDLE_DIR:-${TMPDIR:-/tmp}/zerod-bundle-$(stat -c '%Y-%s' "$_payload")}
_unpack() {
    if command -v xz >/dev/null; then xz -dc "$_payload"; else LD_LIBRARY_PATH=$(dirname "$_payload") "$(dirname "$_payload")/xz" -dc "$_payload"; fi
}
if [[ ! -e $BUNDLE/commit ]]; then
    rm -rf "$BUNDLE.new"
    if ! mkdir -p "$BUNDLE.new" || ! (set -o pipefail && _unpack | tar -xf - -C "$BUNDLE.new") || ! mv -T "$BUNDLE.new" "$BUNDLE"; then
        echo "bundle-env.sh: $_payload cannot be unpacked to $BUNDLE: is it whole, and is there room?" >&2
        rm -rf "$BUNDLE.new"
        return 66
    fi
fi
unset -f _unpack
unset _payload
export BUNDLE PATH=$BUNDLE/bin:$PATH
# The machine's own CUDA libraries, where a Python environment has them: behind those of the bundle. Programs of the machine
# (Python above all) are best run with the library path as it was: ZEROD_OUTER_LIBRARY_PATH.
_nvidia=$(python3 -c 'import glob, nvidia
print(":".join(folder for root in nvidia.__path__ for folder in sorted(glob.glob(root + "/*/lib"))))' 2>/dev/null)
if [[ -z $_nvidia ]]; then
    _nvidia=$(find /usr/local/lib /usr/lib /opt -maxdepth 9 -path '*/site-packages/nvidia/*/lib' -type d -prune 2>/dev/null | paste -sd:)
fi
export ZEROD_OUTER_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH=$BUNDLE/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${_nvidia:+$_nvidia:}/usr/local/cuda/lib64
unset _nvidia
export OPAL_PREFIX=$BUNDLE OPAL_BINDIR=$BUNDLE/bin OPAL_LIBDIR=$BUNDLE/lib OPAL_PKGLIBDIR=$BUNDLE/openmpi/lib
export OPAL_PKGDATADIR=$BUNDLE/openmpi/share OPAL_SYSCONFDIR=$BUNDLE/openmpi/etc
export PMIX_MCA_mca_base_component_path=$BUNDLE/pmix PMIX_MCA_pcompress_base_silence_warning=1
export OMPI_MCA_btl=self,vader OMPI_MCA_plm=isolated OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

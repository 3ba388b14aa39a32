# shellcheck shell=bash
# Source this with the folder that deploy/bundle.sh made: unpacks it once and sets what its programs need.
#   source deploy/bundle-env.sh FOLDER
# Afterwards: $BUNDLE is the unpacked folder, zerod, zerodctl and mpirun are on the PATH.
_payload=$(readlink -f "${1:?the folder that deploy/bundle.sh made}")/payload.tar.xz
BUNDLE=${ZEROD_BUNDLE_DIR:-${TMPDIR:-/tmp}/zerod-bundle-$(stat -c '%Y-%s' "$_payload")}
if [[ ! -e $BUNDLE/commit ]]; then
    rm -rf "$BUNDLE.new"
    mkdir -p "$BUNDLE.new"
    if command -v xz >/dev/null; then xz -dc "$_payload"; else LD_LIBRARY_PATH=$(dirname "$_payload") "$(dirname "$_payload")/xz" -dc "$_payload"; fi |
        tar -xf - -C "$BUNDLE.new" && mv -T "$BUNDLE.new" "$BUNDLE"
fi
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

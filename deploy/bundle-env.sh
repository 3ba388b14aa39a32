# shellcheck shell=bash
# Source this with the folder that deploy/bundle.sh made: unpacks it once and sets what its programs need.
#   source deploy/bundle-env.sh FOLDER || exit
# Afterwards: $BUNDLE is the unpacked folder, zerod, zerodctl and mpirun are on the PATH. It lies below the user's cache folder
# (ZEROD_BUNDLE_DIR: elsewhere), or without one in a new folder below /tmp. Returns 66 when it cannot be unpacked (the payload is
# cut, the disk full), 77 when it lies in a folder that others own or may write: what is in there would be run.
_payload=$(readlink -f "${1:?the folder that deploy/bundle.sh made}")/payload.tar.xz
if [[ ! -s $_payload ]]; then
    echo "bundle-env.sh: there is no $_payload" >&2
    return 66
fi
_unpack() {
    if command -v xz >/dev/null; then xz -dc "$_payload"; else LD_LIBRARY_PATH=$(dirname "$_payload") "$(dirname "$_payload")/xz" -dc "$_payload"; fi
}
# Folders, and links to them, are this user's, and nobody else writes there.
_are_ours() {
    local path
    for path; do
        if [[ $(stat -c %u "$path") != "$EUID" || $(stat -L -c %u "$path") != "$EUID" || $((0$(stat -L -c %a "$path") & 022)) != 0 ]]; then
            echo "bundle-env.sh: $path is not this user's alone: set ZEROD_BUNDLE_DIR to a folder that is" >&2
            return 1
        fi
    done
}
# Sets BUNDLE.
_bundle() {
    local cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} new
    BUNDLE=${ZEROD_BUNDLE_DIR:-}
    if [[ -z $BUNDLE ]]; then
        if [[ $cache == /* ]] && (umask 077 && mkdir -p "$cache/zerod") 2>/dev/null && [[ -w $cache/zerod ]]; then
            cache+=/zerod
        else
            cache=$(mktemp -d /tmp/zerod-bundle.XXXXXX) || return 66
        fi
        _are_ours "$cache" || return 77
        BUNDLE=$cache/bundle-$(stat -c '%Y-%s' "$_payload")
    fi
    if [[ -e $BUNDLE || -L $BUNDLE ]]; then _are_ours "$BUNDLE" || return 77; fi
    if [[ -e $BUNDLE/commit ]]; then return 0; fi
    mkdir -p "$(dirname "$BUNDLE")" && new=$(mktemp -d "$BUNDLE.XXXXXX") || return 66
    # the second of two that unpack at once finds the first one's, whole
    if ! (set -o pipefail && _unpack | tar -xf - --no-same-owner --no-same-permissions -C "$new" && chmod 0700 "$new") ||
        { ! mv -T "$new" "$BUNDLE" 2>/dev/null && [[ ! -e $BUNDLE/commit ]]; }; then
        echo "bundle-env.sh: $_payload cannot be unpacked to $BUNDLE: is it whole, and is there room?" >&2
        rm -rf "$new"
        return 66
    fi
    rm -rf "$new"
    _are_ours "$BUNDLE" || return 77
}
_code=0
_bundle || _code=$?
unset -f _unpack _are_ours _bundle
unset _payload
if [[ $_code != 0 ]]; then return "$_code"; fi
unset _code
export BUNDLE PATH=$BUNDLE/bin:$PATH
# The machine's own CUDA libraries, where a Python environment has them: behind those of the bundle. Programs of the machine
# (Python above all) are best run with the library path as it was: ZEROD_OUTER_LIBRARY_PATH.
_nvidia=$(python3 -I -c 'import glob, site, sys
print(":".join(found for folder in sys.path + [site.getusersitepackages()] for found in sorted(glob.glob(folder + "/nvidia/*/lib"))))' 2>/dev/null)
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

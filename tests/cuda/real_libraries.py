#!/usr/bin/env python3
"""What zerod looks up in NVIDIA's libraries is in the real ones, whose versions are those of the headers, and they make
the descriptors that need no device. For a machine that has them, with a GPU or without; no part of continuous integration.

    pip install nvidia-cublas nvidia-nccl-cu13 nvidia-cudnn-cu13 nvidia-cuda-nvrtc
    tests/cuda/real_libraries.py [FOLDER]...        folders of libraries; default: those packages, and /usr/local/cuda

Prints TAP; a library that is not found is skipped.
"""
import ctypes
import glob
import os
import re
import site
import sys
import sysconfig

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
count = failures = 0


def ok(good, name, why=""):
    global count, failures
    count += 1
    failures += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}")
    if not good and why:
        print(f"# {why}")


def skip(name, why):
    global count
    count += 1
    print(f"ok {count} - {name} # SKIP {why}")


def source(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def packages():
    """Folders below which NVIDIA's packages and toolkits lie."""
    bases = site.getsitepackages() + [site.getusersitepackages(), sysconfig.get_paths()["purelib"]]
    return [os.path.join(base, "nvidia", "*") for base in bases] + ["/usr/local/cuda"]


def find(name, folders):
    for folder in folders or [os.path.join(p, below) for p in packages() for below in ("lib", "lib64")]:
        for path in sorted(glob.glob(os.path.join(folder, name))):
            return path
    return None


def header(path, name):
    """`name` beside a library, or in the toolkit."""
    for folder in (os.path.join(os.path.dirname(path), "..", "include"), "/usr/local/cuda/include", "/usr/include"):
        file = os.path.join(folder, name)
        if os.path.exists(file):
            with open(file, encoding="utf-8", errors="replace") as text:
                return text.read()
    return ""


def check(name, folders, wanted, header_name, macros, version_of, descriptor=None):
    """What is looked up in a library is in it, its version is its header's, and it makes a descriptor without a device."""
    path = find(name, folders)
    if not wanted or not path:
        skip(f"{name}: {len(wanted)} symbols", "not found" if wanted else "no headers of cudnn-frontend (deploy/install.sh cudnn)")
        return
    library = ctypes.CDLL(path)
    missing = [symbol for symbol in wanted if not hasattr(library, symbol)]
    ok(not missing, f"{name}: {len(wanted)} symbols", "missing: " + " ".join(missing))
    version = version_of(library)
    told = [version // 10000, version // 100 % 100, version % 100]
    found = [re.search(rf"#define\s+{macro}\s+(\d+)", header(path, header_name)) for macro in macros]
    if all(found):
        made = [int(one.group(1)) for one in found]
        ok(told == made, f"{name}: library and headers are {'.'.join(map(str, told))}", f"headers are {made}")
    else:
        skip(f"{name}: version", "no header")
    if descriptor:
        status = descriptor(library, ctypes.c_void_p())
        ok(status == 0, f"{name}: descriptors without a device", f"status {status}")


def size_told_by(function):
    def version(library):
        getattr(library, function).restype = ctypes.c_size_t
        return getattr(library, function)()
    return version


def nccl_version(library):
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    return version.value


def matmul_descriptors(library, one):
    compute_32f, real_32f, real_16bf = 68, 0, 14
    size = ctypes.c_uint64(64)
    return (library.cublasLtMatmulDescCreate(ctypes.byref(one), compute_32f, real_32f)
            | library.cublasLtMatrixLayoutCreate(ctypes.byref(one), real_16bf, size, size, ctypes.c_int64(64))
            | library.cublasLtMatmulPreferenceCreate(ctypes.byref(one)))


def graph_descriptor(library, one):
    operation_graph = 15
    return library.cudnnBackendCreateDescriptor(operation_graph, ctypes.byref(one))


def cudnn_symbols():
    """Of graphs alone: other operations of the headers are newer than libraries that do."""
    shim = ".cache/cudnn-frontend/include/cudnn_frontend_shim.h"
    called = re.findall(r"NV_FE_CALL_TO_BACKEND\(\s*\w+,\s*(cudnn\w+)", source(shim)) if os.path.exists(os.path.join(ROOT, shim)) else []
    ours = re.compile(r"cudnn(Backend|Create$|Destroy$|SetStream|GetStream|GetVersion|GetErrorString)")
    return sorted(filter(ours.match, set(called)))


def nvrtc(folders):
    path = find("libnvrtc.so.13", folders)
    if path:
        ok(bool(glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so.13.*"))),
           "libnvrtc.so.13: its builtins are beside it")
    else:
        skip("libnvrtc.so.13", "not found")


def main():
    folders = sys.argv[1:]
    check("libcublasLt.so.13", folders, re.findall(r'\{"(cublasLt\w+)"', source("kernels/matmul/cublaslt.c")), "cublas_api.h",
          ("CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH"), size_told_by("cublasLtGetVersion"), matmul_descriptors)
    check("libnccl.so.2", folders, ["nccl" + name for name in re.findall(r"^    F\((\w+)\)", source("comm/nccl/door.h"), re.M)], "nccl.h",
          ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"), nccl_version)
    check("libcudnn.so.9", folders, cudnn_symbols(), "cudnn_version.h", ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"),
          size_told_by("cudnnGetVersion"), graph_descriptor)
    nvrtc(folders)
    print(f"1..{count}")
    sys.exit(failures > 0)


main()

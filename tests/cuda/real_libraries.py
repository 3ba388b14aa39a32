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


def numbers(text, *names):
    found = [re.search(rf"#define\s+{name}\s+(\d+)", text) for name in names]
    return tuple(int(one.group(1)) for one in found) if all(found) else None


def door(name, folders, wanted):
    """The library, when all of what is looked up is in it."""
    path = find(name, folders)
    if not path:
        skip(f"{name}: {len(wanted)} symbols", "not found")
        return None, None
    library = ctypes.CDLL(path)
    missing = [symbol for symbol in wanted if not hasattr(library, symbol)]
    ok(wanted and not missing, f"{name}: {len(wanted)} symbols", "missing: " + " ".join(missing))
    return library, path


def check_version(name, told, made):
    if made is None:
        skip(f"{name}: version", "no header")
        return
    ok(told == made, f"{name}: library and headers are {'.'.join(map(str, told))}", f"headers are {made}")


def cublaslt(folders):
    wanted = re.findall(r'\{"(cublasLt\w+)"', source("kernels/matmul/cublaslt.c"))
    library, path = door("libcublasLt.so.13", folders, wanted)
    if not library:
        return
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    version = library.cublasLtGetVersion()
    check_version("libcublasLt.so.13", (version // 10000, version // 100 % 100, version % 100),
                  numbers(header(path, "cublas_api.h"), "CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH"))
    one = ctypes.c_void_p()
    compute_32f, real_32f, real_16bf = 68, 0, 14
    made = library.cublasLtMatmulDescCreate(ctypes.byref(one), compute_32f, real_32f)
    made |= library.cublasLtMatrixLayoutCreate(
        ctypes.byref(one), real_16bf, ctypes.c_uint64(64), ctypes.c_uint64(64), ctypes.c_int64(64))
    made |= library.cublasLtMatmulPreferenceCreate(ctypes.byref(one))
    ok(made == 0, "libcublasLt.so.13: descriptors without a device", f"status {made}")


def nccl(folders):
    wanted = ["nccl" + name for name in re.findall(r"^    F\((\w+)\)", source("comm/nccl/door.h"), re.M)]
    library, path = door("libnccl.so.2", folders, wanted)
    if not library:
        return
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    told = version.value
    check_version("libnccl.so.2", (told // 10000, told // 100 % 100, told % 100),
                  numbers(header(path, "nccl.h"), "NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"))


def cudnn(folders):
    shim = glob.glob(os.path.join(ROOT, ".cache", "cudnn-frontend", "include", "cudnn_frontend_shim.h"))
    wanted = []
    if shim:
        with open(shim[0], encoding="utf-8") as file:
            wanted = sorted(set(re.findall(r"NV_FE_CALL_TO_BACKEND\(\s*\w+,\s*(cudnn\w+)", file.read())))
        # graphs alone: other operations of the headers are newer than libraries that do
        wanted = [name for name in wanted if re.match(r"cudnn(Backend|Create$|Destroy$|SetStream|GetStream|GetVersion|GetErrorString)", name)]
    if not wanted:
        skip("libcudnn.so.9", "no headers of cudnn-frontend (deploy/install.sh cudnn)")
        return
    library, path = door("libcudnn.so.9", folders, wanted)
    if not library:
        return
    library.cudnnGetVersion.restype = ctypes.c_size_t
    told = library.cudnnGetVersion()
    check_version("libcudnn.so.9", (told // 10000, told // 100 % 100, told % 100),
                  numbers(header(path, "cudnn_version.h"), "CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"))
    made = ctypes.c_void_p()
    operation_graph = 15
    status = library.cudnnBackendCreateDescriptor(operation_graph, ctypes.byref(made))
    ok(status == 0, "libcudnn.so.9: a descriptor without a device", f"status {status}")


def nvrtc(folders):
    path = find("libnvrtc.so.13", folders)
    if path:
        ok(bool(glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so.13.*"))),
           "libnvrtc.so.13: its builtins are beside it")
    else:
        skip("libnvrtc.so.13", "not found")


def main():
    folders = sys.argv[1:]
    for check in (cublaslt, nccl, cudnn, nvrtc):
        check(folders)
    print(f"1..{count}")
    sys.exit(failures > 0)


main()

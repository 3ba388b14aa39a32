#!/usr/bin/env bash
# The program with CUDA on a machine without a driver: it is the CPU program, and says why there is no GPU.
# usage: test_no_driver.sh ZEROD SOURCE
fixtures=$2/tests/fixtures
if [ -e /dev/nvidiactl ] || ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
    echo '1..0 # SKIP there is a driver here'
    exit 0
fi
. "$2/tests/cli/lib.sh"
. "$2/tests/support/small_job.sh"

small_job "$fixtures"

ok 'it starts' call 0 --version
ok 'no library of CUDA is needed to start it' eval '! ldd "$zerod" | grep -qE "cuda|cublas|cudnn|nccl|libnvidia"'
ok 'a job of the CPU' call 0 --job job.toml --set device.backend=cpu
ok 'a GPU that is asked for is refused' call 69 --job job.toml --set device.backend=cuda --set job.output_dir=other
ok '  with the reason' has '^error.E1201.*no NVIDIA driver' err
ok '  and a fix' has 'help: .*device.backend = "cpu"' err
ok 'automatic is the CPU' call 0 --job job.toml --set job.output_dir=automatic
ok '  and says why' eval 'cat out err | grep -q "no NVIDIA driver"'
tests_end

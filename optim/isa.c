#include "optim/isa.h"

bool isa_runs(enum isa isa)
{
    switch (isa) {
    case ISA_BASELINE:
        return true;
#if defined(__x86_64__)
    case ISA_AVX2:
        return __builtin_cpu_supports("avx2");
    case ISA_AVX512:
        return isa_runs(ISA_AVX2) && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
#endif
    default:
        return false;
    }
}

enum isa isa_best(void)
{
    if (isa_runs(ISA_AVX512))
        return ISA_AVX512;
    return isa_runs(ISA_AVX2) ? ISA_AVX2 : ISA_BASELINE;
}

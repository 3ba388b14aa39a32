#include "optim/isa.h"

bool isa_runs(enum isa isa)
{
    switch (isa) {
    case ISA_BASELINE:
        return true;
#if defined(__x86_64__)
    case ISA_AVX2:
        return __builtin_cpu_supports("avx2") &&
               __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
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
    enum isa best = ISA_BASELINE;
    for (int isa = ISA_BASELINE; isa < ISA_COUNT; isa++)
        if (isa_runs((enum isa)isa))
            best = (enum isa)isa;
    return best;
}

const char *isa_name(enum isa isa)
{
    static const char *const names[] = {"baseline", "AVX2", "AVX-512"};
    return names[isa];
}

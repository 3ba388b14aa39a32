/* test_amx - attention by AMX tiles in software, where the processor has
 * AVX512_BF16, against the plain definitions and at another number of threads;
 * and by AMX itself where it has that, to the same bits. Prints TAP. */
#include "kernels/backend.h"
#include "tests/kernels/cases.h"
#include "tests/support/tap.h"

#include <string.h>

extern const struct cpu_backend backend_cpu_bf16_amx_software;

static struct runner runner_of(const struct cpu_backend *backend, int threads)
{
    return (struct runner){
            .ops = &backend->ops,
            .threads = threads,
            .attention_floats = backend->attention_floats};
}

static void agrees(
        const struct op_case *c, const char *what, double tolerance,
        struct runner a, struct runner b)
{
    double error = case_run(c->run, a, b);
    tap_ok(error <= tolerance, "%s: %s: differs by %g", c->name, what, error);
}

int main(void)
{
    const struct cpu_backend *amx = kernels_backend("amx", DTYPE_BF16);
    struct runner plain = {.threads = 1};
    struct runner soft = runner_of(&backend_cpu_bf16_amx_software, 1);
    struct runner two = runner_of(&backend_cpu_bf16_amx_software, 2);
    if (!kernels_backend("avx512bf16", DTYPE_BF16)) {
        tap_ok(true, "amx # SKIP no AVX512_BF16 here");
        return tap_done();
    }
    if (kernels_plain(DTYPE_BF16, &plain.ops) != ZD_OK)
        return 1;
    for (int i = 0; i < op_case_count; i++) {
        const struct op_case *c = &op_cases[i];
        double tolerance = c->tolerance[DTYPE_BF16];
        if (strncmp(c->name, "attention", 9) != 0 || strchr(c->name, '_'))
            continue;
        agrees(c, "in software, plain", tolerance, soft, plain);
        agrees(c, "in software, on two threads", 0, two, soft);
        if (amx)
            agrees(c, "by AMX, in software", 0, runner_of(amx, 2), soft);
        else
            tap_ok(true, "%s: by AMX # SKIP no AMX here", c->name);
    }
    return tap_done();
}

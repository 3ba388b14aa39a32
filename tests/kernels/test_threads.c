/* test_threads [all]: calls the fast kernels from several threads at once, with
 * one OpenMP thread each, like ranks that are threads; for the thread
 * sanitizer. Prints TAP. Types differ only in arithmetic, not in shared data,
 * so without `all` each operation runs with one type. */
#include "cases.h"

#include "tests/support/tap.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { CALLERS = 2 };

struct caller {
    pthread_t thread;
    struct runner runner;
    int op;
    double error;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    c->error = case_run(op_cases[c->op].run, c->runner, c->runner);
    return NULL;
}

/* Every caller's two runs must have the same bits, independent of the others.
 */
static bool is_alone(const struct kernels *ops, int op)
{
    struct caller callers[CALLERS];
    bool ok = true;
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){
                .runner = {ops, 0}, .op = op, .error = INFINITY};
        if (pthread_create(&callers[i].thread, NULL, call, &callers[i]) != 0)
            return false;
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        ok = ok && callers[i].error == 0.0;
    }
    return ok;
}

int main(int argc, char **argv)
{
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    kernels_set_threads(1);
    for (enum dtype d = DTYPE_FP32; d <= DTYPE_FP16; d++) {
        const struct kernels *ops;
        if (kernels_cpu(d, &ops) != ZD_OK)
            return 1;
        for (int op = 0; op < op_case_count; op++) {
            if (!all && op % 3 != (int)d)
                continue;
            tap_ok(is_alone(ops, op), "%s in %s by %d threads at once",
                   op_cases[op].name, dtype_name(d), CALLERS);
        }
    }
    return tap_done();
}

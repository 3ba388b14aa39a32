/* test_rss.c - what the process takes is what the plan says: resident memory
 * stays below planned + 150 MB, and a step touches 95 % of the arenas; also
 * where a base is quantized as it is loaded.
 *
 *   test_rss ZEROD         the binary, run as a child in one process */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALLOWED = 150 * 1000 * 1000 };

static int run_zerod(
        const char *zerod, const char *stage, const char *base, const char *dir,
        long *rss_out)
{
    const char *lora = base ? "lora.enabled=true" : "lora.enabled=false";
    char out[PATH_MAX], cache[PATH_MAX];
    struct rusage usage;
    int status;
    snprintf(out, sizeof out, "job.output_dir=%s/out", dir);
    snprintf(cache, sizeof cache, "data.cache_dir=%s/cache", dir);
    pid_t child = fork();
    if (child == 0) {
        /* in /tmp its socket would be found by tests that look for jobs */
        setenv("XDG_RUNTIME_DIR", dir, 1);
        if (!freopen("/dev/null", "w", stderr))
            _exit(126);
        execl(zerod, zerod, "--job", "tests/train/middle.toml", "--set", out,
              "--set", cache, "--set", stage, "--set", "checkpoint.export=none",
              "--set", "checkpoint.save_steps=1", "--set", lora, "--set",
              base ? base : lora, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child)
        return -1;
    *rss_out = usage.ru_maxrss * 1024;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static long planned_bytes(const char *dir)
{
    size_t i;
    long bytes = 0;
    char path[PATH_MAX];
    json_t *plan, *arena;
    snprintf(path, sizeof path, "%s/out/plan.json", dir);
    if (json_parse_file(path, 1 << 24, &plan) != ZD_OK)
        return 0;
    const json_t *rank = json_array_get(json_object_get(plan, "ranks"), 0);
    json_array_foreach(json_object_get(rank, "arenas"), i, arena) bytes +=
            json_integer_value(json_object_get(arena, "planned_bytes"));
    json_decref(plan);
    return bytes;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *stage, *base;
    } cases[] = {
            {"zero.stage=0", NULL},
            {"zero.stage=3", NULL},
            {"zero.stage=0", "lora.quantize_base=nf4"},
            {"zero.stage=0", "lora.quantize_base=fp8"}};
    if (argc != 2)
        return 64;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        long rss = 0;
        const char *dir = job_threads_dir();
        const char *name = cases[i].base ? cases[i].base : cases[i].stage;
        int code = run_zerod(argv[1], cases[i].stage, cases[i].base, dir, &rss);
        long planned = planned_bytes(dir);
        tap_ok(code == 0 && planned > 0, "%s runs (exit %d)", name, code);
        tap_ok(rss <= planned + ALLOWED,
               "%s: resident %ld MB, planned %ld MB and 150 for the rest", name,
               rss / 1000000, planned / 1000000);
        tap_ok(rss >= planned * 95 / 100, "%s: the arenas are used", name);
        fs_remove_tree(dir);
    }
    return tap_done();
}

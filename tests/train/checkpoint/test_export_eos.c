/* test_export_eos.c - a model made here says in its config.json where its texts
 * end: without that, transformers would not stop where zerod does. */
#include "tests/support/job_threads.h"

#include <limits.h>

static json_int_t exported_eos(const char *dir)
{
    char path[PATH_MAX];
    json_t *config;
    snprintf(path, sizeof path, "%s/out/hf/config.json", dir);
    if (json_parse_file(path, 1 << 20, &config) != ZD_OK)
        return -2;
    const json_t *eos = json_object_get(config, "eos_token_id");
    json_int_t id = json_is_integer(eos) ? json_integer_value(eos) : -1;
    json_decref(config);
    return id;
}

int main(void)
{
    const char *dir = job_threads_dir();
    const char *none[] = {NULL};
    bool ran = job_threads_run("tests/train/bytes.toml", none, 1, dir) == ZD_OK;
    tap_ok(ran && exported_eos(dir) == 256,
           "a byte model ends at 256 (config.json has %lld)",
           (long long)exported_eos(dir));

    dir = job_threads_dir();
    const char *given[] = {"model.config.eos_token_id=7", NULL};
    ran = job_threads_run("tests/train/bytes.toml", given, 1, dir) == ZD_OK;
    tap_ok(ran && exported_eos(dir) == 7, "what the job gives stays (%lld)",
           (long long)exported_eos(dir));
    return tap_done();
}

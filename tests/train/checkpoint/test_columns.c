/* test_columns.c - a checkpoint of tensor parallelism that says of columns what
 * cannot be is refused. What it gives to other meshes: test_one_training.c. */
#include "base/file/fs.h"
#include "base/must.h"
#include "tests/support/job_threads.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What the manifest says of columns 80 to 159 of a weight, by another hand. */
static const char *const hostile[] = {
        "[79:159]@0+",         /* overlaps */
        "[0:80]@0+",           /* twice */
        "@0+",                 /* all beside some */
        "[120:160,80:120]@0+", /* falls */
        "[80:161]@0+",         /* past the end */
        "[80:80]@0+",
        "[-1:80]@0+",
        "[80:9223372036854775808]@0+",
        "[80:81,82:83,84:85,86:160]@0+",
        "[80:160@0+",
        "[80:160]]@0+",
        "[80-160]@0+",
        "[]@0+",
        "[80:160]@1+",   /* no multiple of 256 */
        "[80:160]@256+", /* past the end */
        "[80:160]@9223372036854775552+",
        "[80:160]@18446744073709551360+",
};

static bool is_refused(const char *path, const char *text, const char *now)
{
    static const char was[] = "down_proj.weight[80:160]@0+";
    char file[PATH_MAX];
    struct checkpoint *open = NULL;
    const char *at = strstr(text, was);
    if (!at)
        return false;
    size_t bytes = strlen(text) + strlen(now) + 1;
    ZD_FREED char *changed = malloc(bytes);
    snprintf(
            changed, bytes, "%.*sdown_proj.weight%s%s", (int)(at - text), text,
            now, at + strlen(was));
    json_auto_t *manifest = json_loads(changed, 0, NULL);
    json_object_del(manifest, "manifest_xxh3_128");
    manifest_seal(manifest);
    fs_join(file, sizeof file, path, CHECKPOINT_MANIFEST);
    bool ok = json_write_file(file, manifest) == ZD_OK &&
              checkpoint_open(path, CHECKPOINT_TRUSTED, &open) == ZD_ERR_DATA &&
              strcmp(zd_error_get()->code, "E0802") == 0 &&
              strstr(zd_error_get()->what, "down_proj");
    if (open)
        checkpoint_close(open);
    zd_error_clear();
    return ok;
}

int main(void)
{
    char path[PATH_MAX], file[PATH_MAX], *text;
    const char *dir = job_threads_dir();
    size_t bytes;
    bool ran = job_runs(
            "tests/train/states.toml", dir, 2,
            "model.config.vocab_size=515 parallel.tp_size=2 zero.stage=0 "
            "checkpoint.export=none run.stop_after=3");
    ZD_PRINT(path, "%s/out/checkpoint-000003", dir);
    fs_join(file, sizeof file, path, CHECKPOINT_MANIFEST);
    ran = ran && fs_read_file(file, 1 << 28, &text, &bytes) == ZD_OK;
    tap_ok(ran, "a checkpoint of two places");
    for (size_t i = 0; ran && i < sizeof hostile / sizeof *hostile; i++)
        tap_ok(is_refused(path, text, hostile[i]), "refused: %s", hostile[i]);
    if (ran)
        free(text);
    return tap_done();
}

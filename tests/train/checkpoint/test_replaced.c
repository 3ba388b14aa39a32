/* test_replaced.c - a run finds a checkpoint in the place of the one that it is
 * about to save: another's, sound, that came while it ran. It stays. */
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct visitor {
    char from[PATH_MAX], to[PATH_MAX];
    bool has_been;
};

/* A checkpoint of step 2 under the name of step 4. */
static void visit(void *ctx, const struct train_event *event)
{
    char command[3 * PATH_MAX];
    struct visitor *visitor = ctx;
    if (strcmp(event->kind, "checkpoint") != 0 || event->step != 2)
        return;
    snprintf(
            command, sizeof command, "cp -r %s %s", visitor->from, visitor->to);
    visitor->has_been = system(command) == 0;
}

int main(void)
{
    const char *dir = job_threads_dir();
    struct visitor visitor = {0};
    snprintf(
            visitor.from, sizeof visitor.from, "%s/out/checkpoint-000002", dir);
    snprintf(visitor.to, sizeof visitor.to, "%s/out/checkpoint-000004", dir);
    struct train_observer observer = {.ctx = &visitor, .event = visit};
    bool ran = job_runs_observed(
            "tests/train/bytes.toml", dir, 2, &observer,
            "train.max_steps=4 checkpoint.save_strategy=steps "
            "checkpoint.save_steps=2 checkpoint.export=none");
    const struct zd_error *error = zd_error_get();
    tap_ok(visitor.has_been, "another's checkpoint comes in between");
    tap_ok(!ran && error->status == ZD_ERR_IO &&
                   strcmp(error->code, "E0814") == 0,
           "the save is refused (status %d, %s)", error->status, error->code);
    tap_ok(strstr(error->what, "checkpoint-000004") != NULL, "and names it: %s",
           error->what);
    json_t *manifest = job_manifest(dir, 4);
    tap_ok(json_integer_at(manifest, "step") == 2, "what was there is there");
    json_decref(manifest);
    return tap_done();
}

/* test_profile.c - the trace of some steps: it is JSON that a viewer reads, has
 * all ranks, phases and units, lies properly nested, and changes no bit. */
#include "base/file/fs.h"
#include "base/spans.h"
#include "tests/support/commander.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, LAYERS = 6, MICROS = 2, DEPTH_MOST = 32 };

static bool run(
        const char *dir, int world, const char *sets,
        struct commander *commander)
{
    return job_runs_observed(
            "tests/fixtures/deep.toml", dir, world,
            commander ? &commander->observer : NULL,
            "checkpoint.export=none zero.stage=3 %s", sets);
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_at(event, key);
    return text ? text : "";
}

static double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

/* Spans of that name, of that rank (and thread; -1: any). */
static int count(const json_t *trace, int rank, int lane, const char *name)
{
    int found = 0;
    JSON_EACH(event, json_object_get(trace, "traceEvents"))
        found += text_of(event, "ph")[0] == 'X' &&
                 number_of(event, "pid") == rank &&
                 (lane < 0 || number_of(event, "tid") == lane) &&
                 strcmp(text_of(event, "name"), name) == 0;
    return found;
}

static bool has_process(const json_t *trace, int rank)
{
    char name[32];
    ZD_PRINT(name, "rank %d (", rank);
    JSON_EACH(event, json_object_get(trace, "traceEvents"))
        if (text_of(event, "ph")[0] == 'M' &&
            strcmp(text_of(event, "name"), "process_name") == 0 &&
            number_of(event, "pid") == rank &&
            strncmp(text_of(json_object_get(event, "args"), "name"), name,
                    strlen(name)) == 0)
            return true;
    return false;
}

struct part {
    double begin, end;
};

/* Longer ones first where two begin together. */
static int by_begin(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end > y->end ? -1 : x->end < y->end;
}

/* Of the trainer's thread: two spans lie apart or one in the other (to the
 * nanoseconds that the text has). */
static bool is_nested(const json_t *trace, int rank)
{
    static struct part parts[1 << 16];
    struct part open[DEPTH_MOST];
    int parts_count = 0, depth = 0;
    JSON_EACH(event, json_object_get(trace, "traceEvents")) {
        double begin = number_of(event, "ts"), length = number_of(event, "dur");
        if (text_of(event, "ph")[0] != 'X' || number_of(event, "pid") != rank ||
            number_of(event, "tid") != LANE_TRAINER)
            continue;
        if (begin < 0 || length < 0 || parts_count == 1 << 16)
            return false;
        parts[parts_count++] = (struct part){begin, begin + length};
    }
    qsort(parts, (size_t)parts_count, sizeof *parts, by_begin);
    for (int p = 0; p < parts_count; p++) {
        while (depth > 0 && open[depth - 1].end <= parts[p].begin + 0.005)
            depth--;
        if (depth == DEPTH_MOST ||
            (depth > 0 && parts[p].end > open[depth - 1].end + 0.005))
            return false;
        open[depth++] = parts[p];
    }
    return parts_count > 0;
}

static json_t *open_trace(const struct commander_entry *entry)
{
    json_t *trace = NULL;
    const char *path = json_string_at(entry->result, "path");
    if (!path || json_parse_file(path, 1 << 26, &trace) != ZD_OK)
        return NULL;
    return trace;
}

/* Two steps, of which the last evaluates. */
static bool has_phases(const json_t *trace, int rank)
{
    bool all = count(trace, rank, 0, "step") == 2 &&
               count(trace, rank, 0, "data") == 2 &&
               count(trace, rank, 0, "forward") == 2 * MICROS &&
               count(trace, rank, 0, "backward") == 2 * MICROS &&
               count(trace, rank, 0, "reduce") == 2 &&
               count(trace, rank, 0, "update") == 2 &&
               count(trace, rank, 0, "gather all") == 2 &&
               count(trace, rank, 0, "eval") == 1 &&
               count(trace, rank, 0, "embedding") >= 2 * MICROS &&
               count(trace, rank, 0, "head") >= 2 * MICROS &&
               count(trace, rank, 0, "gather") > 0 &&
               count(trace, rank, 0, "reduce-scatter") ==
                       2 * MICROS * (LAYERS + 2);
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[32];
        ZD_PRINT(name, "layer %d", layer);
        all = all && count(trace, rank, 0, name) == 2 * 2 * MICROS;
    }
    return all;
}

/* The folder may be a group's, and a link in it another member's. */
static bool link_kept(const char *dir, bool is_made)
{
    char out[PATH_MAX], kept[PATH_MAX], link[PATH_MAX], *text = NULL;
    fs_join(out, sizeof out, dir, "out");
    fs_join(kept, sizeof kept, dir, "kept");
    fs_join(link, sizeof link, out, "profile-000003.json.tmp");
    if (!is_made)
        return fs_make_dirs(out) == ZD_OK &&
               fs_write_file(kept, "kept", 4) == ZD_OK &&
               symlink(kept, link) == 0;
    bool is_kept = fs_read_file(kept, 1 << 20, &text, NULL) == ZD_OK &&
                   strcmp(text, "kept") == 0;
    free(text);
    return is_kept;
}

static void traced(int world)
{
    struct commander commander;
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, world, "", NULL) && link_kept(dir, false);
    commander_ask(&commander, "2 profile 2, 3 profile 1");
    ran = ran && run(dir, world, "", &commander);
    const struct commander_entry *entries = commander.entries;
    json_auto_t *trace = ran ? open_trace(&entries[0]) : NULL;
    tap_ok(trace && entries[0].done_count == 1 && entries[0].done_step == 4 &&
                   strstr(text_of(entries[0].result, "path"),
                          "/profile-000003.json"),
           "world %d: two steps leave a trace that is JSON", world);
    tap_ok(strcmp(entries[1].error.code, "E1031") == 0,
           "world %d: one at a time", world);
    bool phases = trace, nested = trace;
    for (int r = 0; trace && r < world; r++) {
        phases = phases && has_process(trace, r) && has_phases(trace, r);
        nested = nested && is_nested(trace, r);
    }
    tap_ok(phases && !has_process(trace, world) &&
                   number_of(trace, "droppedSpans") == 0,
           "world %d: all ranks, phases and units are in it", world);
    tap_ok(nested, "world %d: spans of a thread are nested", world);
    tap_ok(ran && same_training(plain, dir, STEPS),
           "world %d: no bit is another", world);
    tap_ok(link_kept(dir, true), "world %d: nor is it written through a link",
           world);
    commander_fini(&commander);
}

/* The streams and workers have lanes of their own. The run ends before as many
 * steps were made as were asked for. */
static void offloaded(void)
{
    struct commander commander;
    const char *dir = job_threads_dir();
    commander_ask(&commander, "1 profile 100");
    bool ran =
            run(dir, 2,
                "offload.optimizer=cpu offload.params=cpu "
                "offload.chunk_bytes=4096 offload.threads=2 "
                "device.streams=threads",
                &commander);
    json_auto_t *trace = ran ? open_trace(&commander.entries[0]) : NULL;
    bool all = trace && commander_all_done(&commander);
    for (int r = 0; all && r < 2; r++)
        all = count(trace, r, LANE_TRAINER, "step") == STEPS - 1 &&
              count(trace, r, LANE_DOWN, "copy") > 0 &&
              count(trace, r, LANE_UP, "copy") > 0 &&
              count(trace, r, LANE_WORKERS, "update") +
                              count(trace, r, LANE_WORKERS + 1, "update") >
                      0;
    tap_ok(all, "offloaded: copies and the host's updates are in it too");
    commander_fini(&commander);
}

int main(void)
{
    traced(1);
    traced(3);
    offloaded();
    return tap_done();
}

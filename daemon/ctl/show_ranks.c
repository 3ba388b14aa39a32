#include "daemon/ctl/ctl.h"
#include "daemon/ctl/grid.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <string.h>

static double sum_of(const json_t *object, const char *const *keys, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        double value = json_real_of(object, keys[i]);
        sum += isfinite(value) ? value : 0;
    }
    return sum;
}

/* A number without a fraction, or `missing`. */
static void add_whole(
        struct grid *grid, const struct look *look, const json_t *object,
        const char *key, double missing)
{
    double number = json_real_of(object, key);
    grid_add(grid, look, "%.0f", isfinite(number) ? number : missing);
}

/* What its GPU has of this rank, and all of it that is in use. */
static void add_gpu(
        struct grid *grid, const struct look *look, const json_t *rank)
{
    static const char *const keys[] = {"held", "planned", "used"};
    const json_t *gpu = json_object_get(rank, "gpu");
    char text[TEXT_SHORT];
    grid_add(grid, look, "%s", json_text_of(gpu, "name", "-"));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        grid_add(
                grid, look, "%s", text_bytes(json_real_of(gpu, keys[i]), text));
}

static void add_rank(
        struct grid *grid, const struct look *look, const json_t *rank,
        double last_step)
{
    static const char *const sent[] = {
            "reduce_scatter_bytes", "all_gather_bytes", "all_reduce_bytes"};
    static const char *const moved[] = {
            "down_bytes", "up_bytes", "disk_read_bytes", "disk_written_bytes"};
    char text[TEXT_SHORT];
    double step = json_real_of(rank, "step");
    double seen = json_real_of(rank, "heartbeat");
    add_whole(grid, look, rank, "rank", -1);
    grid_add(grid, look, "%s", json_text_of(rank, "host", "-"));
    grid_add(grid, look, "%s", json_text_of(rank, "device", "-"));
    add_whole(grid, look, rank, "step", 0);
    grid_add(grid, look, "%.0f", isfinite(step) ? last_step - step : 0);
    grid_style(grid, last_step > step ? LOOK_WARN : LOOK_PLAIN);
    grid_add(
            grid, look, "%s",
            text_duration(json_real_of(rank, "step_seconds"), text));
    grid_add(grid, look, "%s", text_bytes(rank_memory(rank, "taken"), text));
    grid_add(grid, look, "%s", text_bytes(rank_memory(rank, "planned"), text));
    grid_add(
            grid, look, "%s", text_bytes(json_real_of(rank, "resident"), text));
    grid_add(
            grid, look, "%s",
            text_bytes(json_real_of(rank, "resident_peak"), text));
    grid_add(grid, look, "%s", text_bytes(sum_of(rank, sent, 3), text));
    grid_add(grid, look, "%s", text_bytes(sum_of(rank, moved, 4), text));
    grid_add(grid, look, "%s", text_duration(look->now - seen, text));
    grid_style(grid, look->now - seen > 60 ? LOOK_BAD : LOOK_PLAIN);
    grid_add(grid, look, "%s", text_count(json_real_of(rank, "threads"), text));
    grid_add(grid, look, "%s", json_text_of(rank, "cpus", "-"));
    add_whole(grid, look, rank, "pid", 0);
}

static bool has_gpu(const json_t *answer)
{
    json_t *rank;
    size_t i;
    json_array_foreach(json_object_get(answer, "ranks"), i, rank)
    {
        if (json_is_object(json_object_get(rank, "gpu")))
            return true;
    }
    return false;
}

void show_ranks(const struct look *look, const json_t *answer, FILE *out)
{
    static const struct grid_column columns[] = {
            {"RANK", true, 99},     {"HOST", false, 60},
            {"DEVICE", false, 40},  {"STEP", true, 95},
            {"LAG", true, 92},      {"STEP TIME", true, 70},
            {"MEMORY", true, 90},   {"PLANNED", true, 65},
            {"RESIDENT", true, 80}, {"PEAK", true, 50},
            {"SENT", true, 45},     {"OFFLOADED", true, 35},
            {"SEEN", true, 85},     {"THREADS", true, 30},
            {"CPUS", false, 20},    {"PID", true, 25},
            {"GPU", false, 55},     {"GPU HELD", true, 89},
            {"GPU PLAN", true, 88}, {"GPU USED", true, 41}};
    enum { OF_GPUS = 4 }; /* the last ones */
    int count = sizeof columns / sizeof columns[0];
    bool has_gpus = has_gpu(answer);
    struct grid *grid =
            grid_create(columns, has_gpus ? count : count - OF_GPUS);
    json_t *ranks = json_object_get(answer, "ranks"), *rank;
    double last_step = 0;
    size_t i;
    json_array_foreach(ranks, i, rank) last_step =
            fmax(last_step, json_real_of(rank, "step"));
    json_array_foreach(ranks, i, rank)
    {
        add_rank(grid, look, rank, last_step);
        if (has_gpus)
            add_gpu(grid, look, rank);
    }
    grid_print(grid, look, out);
    grid_destroy(grid);
}

/* --- memory --- */

static void add_bytes(
        struct grid *grid, const struct look *look, const json_t *object,
        const char *key)
{
    char text[TEXT_SHORT];
    double bytes = json_real_of(object, key);
    grid_add(grid, look, "%s", bytes == 0 ? "-" : text_bytes(bytes, text));
}

/* What `part` is of `whole`; "-" where either is not known. */
static void add_percent(
        struct grid *grid, const struct look *look, double part, double whole)
{
    if (whole > 0 && isfinite(part))
        grid_add(grid, look, "%.0f", 100 * part / whole);
    else
        grid_add(grid, look, "-");
}

enum { SPANS = 5 }; /* kinds of them */

static void add_memory(
        struct grid *grid, const struct look *look, const json_t *rank,
        const json_t *memory)
{
    static const char *const kinds[] = {
            "params", "grads", "optimizer", "activations", "buffers"};
    const json_t *of_kinds = json_object_get(memory, "kinds");
    double taken = json_real_of(memory, "taken"),
           planned = json_real_of(memory, "planned"),
           limit = json_real_of(memory, "limit");
    double of = limit > 0 ? limit : planned;
    add_whole(grid, look, rank, "rank", -1);
    grid_add(grid, look, "%s", json_text_of(memory, "where", "-"));
    add_bytes(grid, look, memory, "planned");
    add_bytes(grid, look, memory, "taken");
    add_bytes(grid, look, memory, "limit");
    add_percent(grid, look, taken, of);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        add_bytes(grid, look, of_kinds, kinds[i]);
}

static void add_resident(
        struct grid *grid, const struct look *look, const json_t *rank)
{
    add_whole(grid, look, rank, "rank", -1);
    grid_add(grid, look, "process");
    grid_add(grid, look, "-");
    add_bytes(grid, look, rank, "resident");
    add_bytes(grid, look, rank, "resident_peak");
    for (int i = 0; i < 1 + SPANS; i++)
        grid_add(grid, look, "-");
}

/* The arenas on the device are part of it; its row has the GPU's bytes where
 * others have their limit. */
static void add_gpu_memory(
        struct grid *grid, const struct look *look, const json_t *rank)
{
    const json_t *gpu = json_object_get(rank, "gpu");
    double held = json_real_of(gpu, "held"), total = json_real_of(gpu, "total");
    if (!json_is_object(gpu))
        return;
    add_whole(grid, look, rank, "rank", -1);
    grid_add(grid, look, "gpu");
    add_bytes(grid, look, gpu, "planned");
    add_bytes(grid, look, gpu, "held");
    add_bytes(grid, look, gpu, "total");
    add_percent(grid, look, held, total);
    for (int i = 0; i < SPANS; i++)
        grid_add(grid, look, "-");
}

/* The process' own row has its peak where others have their limit. */
void show_memory(const struct look *look, const json_t *answer, FILE *out)
{
    static const struct grid_column columns[] = {
            {"RANK", true, 99},       {"WHERE", false, 98},
            {"PLANNED", true, 90},    {"TAKEN", true, 95},
            {"LIMIT/PEAK", true, 80}, {"%", true, 70},
            {"PARAMS", true, 50},     {"GRADS", true, 45},
            {"OPTIMIZER", true, 48},  {"ACTIVATIONS", true, 47},
            {"BUFFERS", true, 40}};
    struct grid *grid =
            grid_create(columns, sizeof columns / sizeof columns[0]);
    json_t *ranks = json_object_get(answer, "ranks"), *rank, *memory;
    size_t i, k;
    json_array_foreach(ranks, i, rank)
    {
        json_array_foreach(json_object_get(rank, "memory"), k, memory)
        {
            bool is_used = json_real_of(memory, "planned") > 0 ||
                           json_real_of(memory, "taken") > 0;
            if (is_used)
                add_memory(grid, look, rank, memory);
        }
        add_gpu_memory(grid, look, rank);
        add_resident(grid, look, rank);
    }
    grid_print(grid, look, out);
    grid_destroy(grid);
}

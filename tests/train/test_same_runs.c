/* test_same_runs.c - whole jobs that must be one training: groups of runs in
 * same_runs.txt, each compared with the first of its group. What is sent and
 * taken is what was planned.
 *
 *   test_same_runs PART       the groups whose name begins with that word
 *   test_same_runs grid N     every mesh of 2, 4 and 8 ranks, with each stage,
 *                             accumulation and kind of job: each N-th of these
 */
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 1024 };

struct group {
    char name[80], job[160], common[TEXT];
    int least, most; /* ranks */
    bool overflows;  /* fp16: some steps are skipped */
};

static const char *disk; /* DISK of the settings */

static bool same_shards(const char *a, const char *b)
{
    char pattern[PATH_MAX];
    glob_t found;
    bool same = true;
    ZD_PRINT(pattern, "%s/out/checkpoint-*/shard-*", a);
    if (glob(pattern, 0, NULL, &found) != 0)
        return true; /* none are saved */
    for (size_t i = 0; i < found.gl_pathc; i++)
        same = same &&
               same_output(
                       a, b, found.gl_pathv[i] + strlen(a) + strlen("/out/"));
    globfree(&found);
    return same;
}

static bool same_run(
        const struct group *group, const char *a, const char *b,
        bool cuts_alike)
{
    bool exports = !strstr(group->common, "export=none");
    return same_training(a, b, 0) &&
           (!rows_of(a, "eval_loss") || same_column(a, b, "eval_loss", 0)) &&
           (!rows_of(a, "loss_scale") || same_column(a, b, "loss_scale", 0)) &&
           (!exports || same_model(a, b) ||
            same_output(a, b, "peft/adapter_model.safetensors")) &&
           (!cuts_alike || same_shards(a, b));
}

static bool as_planned(const struct group *group, const char *dir)
{
    json_auto_t *plan = plan_check_open(dir);
    bool sent = plan && (group->overflows ||
                         plan_check_sent(plan, dir, rows_of(dir, "loss")));
    bool taken = plan && plan_check_taken(plan);
    return sent && taken;
}

/* `sets` with DISK replaced. */
static void add_sets(char out[TEXT], const char *sets)
{
    size_t used = strlen(out);
    const char *at = strstr(sets, "DISK");
    if (at)
        snprintf(
                out + used, TEXT - used, " %.*s%s%s", (int)(at - sets), sets,
                disk, at + 4);
    else
        snprintf(out + used, TEXT - used, " %s", sets);
}

/* The largest relative difference of the losses, and of the norms unless they
 * are not compared. */
struct apart {
    double losses, norms;
};

static struct apart apart_of(const char *a, const char *b, bool has_norms)
{
    struct apart apart = {column_difference(a, b, "loss"), 0};
    double evaluated =
            rows_of(a, "eval_loss") ? column_difference(a, b, "eval_loss") : 0;
    apart.losses = evaluated > apart.losses ? evaluated : apart.losses;
    if (has_norms)
        apart.norms = column_difference(a, b, "grad_norm");
    return apart;
}

/* The next text that was sampled; the caller frees it. NULL: no more. */
static char *next_sample(FILE *events)
{
    char *text = NULL;
    char line[TEXT * 4];
    while (!text && events && fgets(line, sizeof line, events)) {
        json_auto_t *row = json_loads(line, 0, NULL);
        const char *said = json_string_at(row, "text");
        if (strstr(line, "\"sample\""))
            text = strdup(said ? said : "");
    }
    return text;
}

static bool same_samples(const char *a, const char *b)
{
    char path[2][PATH_MAX];
    FILE *events[2];
    bool same = true, more = true;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], PATH_MAX, "%s/out/events.jsonl", i ? b : a);
        events[i] = fopen(path[i], "re");
    }
    while (same && more) {
        char *x = next_sample(events[0]), *y = next_sample(events[1]);
        more = x && y;
        same = more ? strcmp(x, y) == 0 : !x && !y;
        free(x);
        free(y);
    }
    for (int i = 0; i < 2; i++)
        if (events[i])
            fclose(events[i]);
    return same;
}

/* Is the run what the row says of it? */
static bool is_one_training(
        const struct group *group, const char *row, const char *base,
        const char *dir, struct apart *apart)
{
    bool is_near = strchr("~%", row[0]);
    if (!is_near)
        return same_run(group, base, dir, row[0] == '=');
    *apart = apart_of(base, dir, row[0] == '~');
    return apart->losses <= (row[0] == '~' ? 1e-5 : 0.01) &&
           apart->norms <= 2e-5 && same_samples(base, dir);
}

/* `bases`: by ranks, the first run of the group; NULL: this is it. */
static void try_row(
        const struct group *group, const char *row, const char **bases)
{
    char *rest;
    bool is_cut = row[1] == '>'; /* after so many steps, and resumed */
    long number = strtol(row + 1 + is_cut, &rest, 10);
    long cut = is_cut ? number : 0;
    long own = is_cut ? 0 : number; /* ranks of this run alone */
    for (int world = group->least; world <= group->most; world++) {
        char sets[TEXT] = "";
        const char *dir = job_threads_dir(), **base = &bases[world];
        struct apart apart = {0};
        add_sets(sets, group->common);
        add_sets(sets, rest);
        int ranks = own > 0 ? (int)own : world;
        bool ran = (!cut || job_runs(
                                    group->job, dir, ranks,
                                    "%s run.stop_after=%ld", sets, cut)) &&
                   job_runs(group->job, dir, ranks, "%s", sets);
        if (!ran)
            zd_error_print(stderr, zd_error_get());
        *base = *base ? *base : dir;
        bool is_one = ran && is_one_training(group, row, *base, dir, &apart);
        tap_ok(is_one && as_planned(group, dir) &&
                       (!group->overflows || rows_of(dir, "skipped") > 0),
               "%s, %d ranks: %s (losses %.2g, norms %.2g)", group->name, world,
               row, apart.losses, apart.norms);
    }
}

/* "[name] job ranks settings"; a job without a slash is a fixture. */
static void read_group(const char *line, struct group *group)
{
    char job[80];
    int used = 0, ranks;
    ranks =
            sscanf(line, "[%79[^]]] %79s %d-%d%n", group->name, job,
                   &group->least, &group->most, &used);
    if (ranks < 4) {
        sscanf(line, "[%*[^]]] %*s %d%n", &group->least, &used);
        group->most = group->least;
    }
    ZD_PRINT(
            group->job, strchr(job, '/') ? "%s" : "tests/fixtures/%s/job.toml",
            job);
    add_sets(group->common, line + used);
    group->overflows = strstr(group->name, "overflow") != NULL;
}

/* --- the grid ------------------------------------------------------------- */

/* A kind of job. */
struct kind {
    char name[80], sets[TEXT];
    int most_tp, least_stage;
};

/* The stages and accumulations of a mesh. */
static void try_mesh(
        const struct group *group, const struct kind *kind, const int size[4],
        int each, const char **bases)
{
    static unsigned number;
    int world = size[0] * size[1] * size[2] * size[3];
    for (int run = 0; run < 6; run++) {
        char row[TEXT];
        int stage = 1 + run % 3;
        if (size[3] > kind->most_tp || stage < kind->least_stage ||
            number++ % (unsigned)each)
            continue;
        ZD_PRINT(
                row,
                "~%d zero.stage=%d train.gradient_accumulation_steps=%d "
                "parallel.dp_replicate_size=%d parallel.cp_size=%d "
                "parallel.tp_size=%d",
                world, stage, run < 3 ? 1 : 3, size[0], size[2], size[3]);
        try_row(group, row, bases);
    }
}

static void try_kind(const struct kind *kind, int each)
{
    enum { MESHES = 4 * 4 * 4 * 4 };
    const char *bases[9] = {0};
    struct group group = {.least = 1, .most = 1};
    ZD_PRINT(group.name, "grid, %.60s", kind->name);
    ZD_PRINT(group.job, "tests/fixtures/deep.toml");
    ZD_PRINT(group.common, "%s", kind->sets);
    try_row(&group, "~1", bases);
    for (int m = 0; m < MESHES; m++) {
        int size[4], world = 1;
        for (int i = 0; i < 4; i++) {
            size[i] = 1 << (m >> 2 * i & 3);
            world *= size[i];
        }
        if (world > 1 && world <= 8)
            try_mesh(&group, kind, size, each, bases);
    }
}

static int grid(int each)
{
    char line[TEXT / 2], with[TEXT / 2] = "";
    FILE *file = fopen("tests/train/grid.txt", "re");
    tap_ok(file != NULL, "there are kinds of jobs");
    while (file && fgets(line, sizeof line, file)) {
        struct kind kind;
        int used;
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "with ", 5) == 0)
            strcpy(with, line + 5);
        if (sscanf(line, "%79[^|]| %d | %d |%n", kind.name, &kind.most_tp,
                   &kind.least_stage, &used) != 3)
            continue;
        ZD_PRINT(kind.sets, "%s%s", with, line + used);
        try_kind(&kind, each);
    }
    if (file)
        fclose(file);
    return tap_done();
}

int main(int argc, char **argv)
{
    enum { RANKS = 9 };
    const char *part = argc > 1 ? argv[1] : "", *bases[RANKS] = {0};
    char line[TEXT], with[TEXT] = "";
    struct group group = {.least = 1};
    if (strcmp(part, "grid") == 0)
        return grid(argc > 2 ? atoi(argv[2]) : 1);
    bool is_of_part = false;
    FILE *file = fopen("tests/train/same_runs.txt", "re");
    disk = job_threads_dir();
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "with", 4) == 0) {
            ZD_PRINT(with, "%s", line + 4);
        } else if (line[0] == '[') {
            group = (struct group){.least = 1};
            ZD_PRINT(group.common, "%s", with);
            read_group(line, &group);
            memset(bases, 0, sizeof bases);
            is_of_part = strncmp(group.name, part, strlen(part)) == 0;
        } else if (is_of_part && line[0] && strchr("=-~%", line[0])) {
            try_row(&group, line, bases);
        }
    }
    if (file)
        fclose(file);
    tap_ok(file && rmdir(disk) == 0, "nothing is left on the disk");
    return tap_done();
}

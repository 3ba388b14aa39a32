#include "train/plan/calibration.h"

#include "base/file/fs.h"
#include "data/token_cache.h"
#include "zd_config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 6, FILE_BYTES_MAX = 1 << 20 };

/* --- which machine -------------------------------------------------------- */

static json_t *machine_json(void)
{
    char host[COMM_HOST_MAX] = "";
    gethostname(host, sizeof host - 1);
    return json_pack("{s:s, s:i}", "host", host, "cpus", device_online_cpus());
}

static enum zd_status path_of(char path[PATH_MAX])
{
    char folder[PATH_MAX], host[COMM_HOST_MAX] = "", name[COMM_HOST_MAX + 32];
    gethostname(host, sizeof host - 1);
    ZD_TRY(token_cache_folder("auto", folder));
    snprintf(name, sizeof name, "machine-%s.json", host);
    fs_join(path, PATH_MAX, folder, name);
    return ZD_OK;
}

/* --- numbers -------------------------------------------------------------- */

static const struct field {
    const char *name;
    size_t offset;
    bool divides; /* 0 is not allowed */
} fields[] = {
#define FIELD(name, field, divides)                                            \
    {                                                                          \
        name, offsetof(struct plan_machine, field), divides                    \
    }
        FIELD("products_16", products[0], true),
        FIELD("products_32", products[1], true),
        FIELD("half_tokens_16", half[0], false),
        FIELD("half_tokens_32", half[1], false),
        FIELD("memory", memory, true),
        FIELD("update", update, true),
        FIELD("launch", launch, false),
        FIELD("host", host, true),
        FIELD("link", link, true),
        FIELD("inside", inside, true),
        FIELD("between", between, true),
        FIELD("latency", latency, false),
        FIELD("jitter", jitter, false),
        FIELD("disk", disk, true),
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

static double *value_of(const struct plan_machine *machine, int field)
{
    return (double *)(void *)((char *)(uintptr_t)machine + fields[field].offset);
}

static json_t *machine_numbers(const struct plan_machine *machine)
{
    json_t *json = json_object();
    for (int i = 0; i < FIELDS; i++)
        json_object_set_new(
                json, fields[i].name,
                json_number_or_null(*value_of(machine, i)));
    return json;
}

/* False: one is missing, or out of range. */
static bool read_numbers(const json_t *json, struct plan_machine *machine)
{
    const double most = 1e18; /* no rate and no time of a machine is more */
    for (int i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(json, fields[i].name);
        double number = json_number_value(value);
        if (!json_is_number(value) || !(number >= 0) || number > most ||
            (fields[i].divides && number == 0))
            return false;
        *value_of(machine, i) = number;
    }
    return true;
}

json_t *calibration_json(const struct plan_calibration *calibration)
{
    return json_pack(
            "{s:s, s:i, s:i, s:b, s:s, s:o}", "backend",
            calibration->backend == DEVICE_CUDA ? "cuda" : "cpu", "ranks",
            calibration->ranks, "threads", calibration->threads,
            "wire_measured", calibration->machine.wire_is_measured, "what",
            calibration->what, "machine",
            machine_numbers(&calibration->machine));
}

static bool read_table(json_t *json, struct plan_calibration *out)
{
    const char *backend, *what;
    json_t *machine;
    int is_wire;
    *out = (struct plan_calibration){0};
    if (json_unpack(
                json, "{s:s, s:i, s:i, s:b, s:s, s:o}", "backend", &backend,
                "ranks", &out->ranks, "threads", &out->threads, "wire_measured",
                &is_wire, "what", &what, "machine", &machine) != 0 ||
        out->ranks < 1 || out->threads < 1)
        return false;
    out->backend = strcmp(backend, "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    out->machine.wire_is_measured = is_wire;
    snprintf(out->what, sizeof out->what, "%s", what);
    return read_numbers(machine, &out->machine);
}

/* --- the file ------------------------------------------------------------- */

/* Why a file is not this machine's and this version's; NULL: it is. */
static const char *mismatch_of(const json_t *file)
{
    json_t *here = machine_json();
    const char *program = json_string_value(json_object_get(file, "program"));
    int64_t format = json_integer_value(json_object_get(file, "format"));
    const char *why =
            !program || strcmp(program, ZD_VERSION) != 0
                    ? "it is of another version of zerod than " ZD_VERSION
            : format != FORMAT ? "it is of another build of zerod"
            : !json_equal(json_object_get(file, "machine"), here)
                    ? "it is of another machine"
            : !json_is_array(json_object_get(file, "tables"))
                    ? "it is broken (no tables)"
                    : NULL;
    json_decref(here);
    return why;
}

/* The tables of this machine's file. NULL: there is none, or `why` says what is
 * wrong with it. Each has been read once. New reference. */
static json_t *read_tables(const char *path, char why[400])
{
    json_t *file = NULL, *tables = NULL;
    struct plan_calibration table;
    const char *wrong = NULL;
    why[0] = '\0';
    if (!fs_exists(path))
        return NULL;
    if (json_parse_file(path, FILE_BYTES_MAX, &file) != ZD_OK) {
        snprintf(why, 400, "it is broken (%.300s)", zd_error_get()->what);
        zd_error_clear();
        return NULL;
    }
    wrong = mismatch_of(file);
    if (!wrong)
        tables = json_object_get(file, "tables");
    for (size_t i = 0; i < json_array_size(tables) && !wrong; i++)
        if (!read_table(json_array_get(tables, i), &table))
            wrong = "it is broken (a table)";
    snprintf(why, 400, "%s", wrong ? wrong : "");
    tables = wrong ? NULL : json_incref(tables);
    json_decref(file);
    return tables;
}

enum zd_status calibration_keep(
        const struct plan_calibration *calibration, char path[PATH_MAX],
        char anew_out[400])
{
    struct plan_calibration other;
    ZD_TRY(path_of(path));
    json_t *tables = read_tables(path, anew_out), *kept = json_array();
    for (size_t i = 0; i < json_array_size(tables); i++) {
        json_t *table = json_array_get(tables, i);
        if (read_table(table, &other) &&
            (other.ranks != calibration->ranks ||
             other.threads != calibration->threads ||
             other.backend != calibration->backend))
            json_array_append(kept, table);
    }
    json_array_append_new(kept, calibration_json(calibration));
    json_decref(tables);
    json_t *file = json_pack(
            "{s:i, s:s, s:o, s:o}", "format", FORMAT, "program", ZD_VERSION,
            "machine", machine_json(), "tables", kept);
    enum zd_status status = json_write_file(path, file);
    json_decref(file);
    return status;
}

/* A wire that was measured, then threads, then ranks. */
static int distance(
        const struct plan_calibration *table, int ranks, int threads)
{
    int lacks_wire = ranks > 1 && !table->machine.wire_is_measured;
    return 1000000 * lacks_wire + 1000 * abs(table->threads - threads) +
           abs(table->ranks - ranks);
}

bool calibration_find(
        enum device_backend backend, int ranks, int threads,
        struct plan_calibration *out, char why[400])
{
    char path[PATH_MAX];
    struct plan_calibration table;
    int least = INT_MAX;
    why[0] = '\0';
    if (path_of(path) != ZD_OK) {
        zd_error_clear();
        return false;
    }
    json_t *tables = read_tables(path, why);
    for (size_t i = 0; i < json_array_size(tables); i++) {
        read_table(json_array_get(tables, i), &table);
        if (table.backend != backend ||
            distance(&table, ranks, threads) >= least)
            continue;
        least = distance(&table, ranks, threads);
        *out = table;
    }
    json_decref(tables);
    size_t used = strlen(why);
    if (used)
        snprintf(why + used, 400 - used, ": %.200s", path);
    return least < INT_MAX;
}

bool calibration_find_job(
        const struct train_job *job, int world, int local_size,
        struct plan_calibration *out, char why[400])
{
    int local = local_size > 0 && local_size < world ? local_size : world;
    int threads = device_threads(
            &job->device, device_affinity_cpus(), device_online_cpus(), local);
    return calibration_find(
            device_resolve(job->device.backend), local, threads, out, why);
}

const struct plan_machine *calibration_use(struct plan_calibration *calibration)
{
    struct plan_machine *machine = &calibration->machine;
    machine->name = "here";
    machine->what = calibration->what;
    machine->is_measured = true;
    machine->shares_cores = calibration->backend == DEVICE_CPU;
    return machine;
}

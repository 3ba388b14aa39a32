#include "train/plan/calibration.h"

#include "base/file/fs.h"
#include "data/token_cache.h"
#include "zd_config.h"

#include <string.h>
#include <unistd.h>

enum { FORMAT = 5, FILE_BYTES_MAX = 1 << 20 };

/* --- which machine -------------------------------------------------------- */

static void cpu_name(char *out, size_t bytes)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, bytes, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(out, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file)
        fclose(file);
}

static json_t *machine_json(void)
{
    char host[COMM_HOST_MAX] = "", cpu[160];
    gethostname(host, sizeof host - 1);
    cpu_name(cpu, sizeof cpu);
    return json_pack(
            "{s:s, s:s, s:i}", "host", host, "cpu", cpu, "cpus",
            device_online_cpus());
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

struct field {
    const char *name;
    size_t offset;
    int count;
    bool divides; /* 0 is not allowed */
};
#define RATE(field, divides)                                                   \
    {                                                                          \
#field, offsetof(struct plan_rates, field),                            \
                sizeof((struct plan_rates *)0)->field / sizeof(double),        \
                divides                                                        \
    }
#define MACHINE(field, divides)                                                \
    {                                                                          \
#field, offsetof(struct plan_machine, field), 1, divides               \
    }
static const struct field rate_fields[] = {
        RATE(products, true), RATE(attention, false), RATE(whole, false),
        RATE(begin, false),   RATE(update, false),    RATE(update_8bit, false),
        RATE(round, false),   RATE(squares, false)};
static const struct field machine_fields[] = {
        MACHINE(products_16, false), MACHINE(products_32, false),
        MACHINE(half_tokens, false), MACHINE(memory, true),
        MACHINE(host, true),         MACHINE(link, true),
        MACHINE(inside, true),       MACHINE(between, true),
        MACHINE(latency, false),     MACHINE(jitter, false),
        MACHINE(disk, true)};
#undef RATE
#undef MACHINE
/* No rate and no time of a machine is more. */
static const double VALUE_MAX = 1e18;
enum {
    RATE_FIELDS = sizeof rate_fields / sizeof rate_fields[0],
    MACHINE_FIELDS = sizeof machine_fields / sizeof machine_fields[0]
};

static json_t *numbers_json(
        const void *base, const struct field *fields, int count)
{
    json_t *json = json_object();
    for (int i = 0; i < count; i++) {
        const double *values =
                (const double *)((const char *)base + fields[i].offset);
        json_t *array = json_array();
        for (int k = 0; k < fields[i].count; k++)
            json_array_append_new(array, json_number_or_null(values[k]));
        json_object_set_new(json, fields[i].name, array);
    }
    return json;
}

/* False: one is missing, or out of range. */
static bool read_numbers(
        const json_t *json, const struct field *fields, int count, void *base)
{
    for (int i = 0; i < count; i++) {
        const json_t *array = json_object_get(json, fields[i].name);
        double *values = (double *)((char *)base + fields[i].offset);
        if ((int)json_array_size(array) != fields[i].count)
            return false;
        for (int k = 0; k < fields[i].count; k++) {
            const json_t *value = json_array_get(array, (size_t)k);
            values[k] = json_number_value(value);
            if (!json_is_number(value) || !(values[k] >= 0) ||
                values[k] > VALUE_MAX || (fields[i].divides && !values[k]))
                return false;
        }
    }
    return true;
}

json_t *calibration_json(const struct plan_calibration *calibration)
{
    json_t *types = json_array();
    for (int t = 0; t < RATE_TYPES; t++)
        json_array_append_new(
                types,
                numbers_json(&calibration->rates[t], rate_fields, RATE_FIELDS));
    return json_pack(
            "{s:s, s:i, s:i, s:b, s:s, s:o, s:o}", "backend",
            calibration->backend == DEVICE_CUDA ? "cuda" : "cpu", "ranks",
            calibration->ranks, "threads", calibration->threads,
            "wire_measured", calibration->machine.wire_is_measured, "what",
            calibration->what, "machine",
            numbers_json(&calibration->machine, machine_fields, MACHINE_FIELDS),
            "rates", types);
}

static bool read_table(json_t *json, struct plan_calibration *out)
{
    const char *backend, *what;
    json_t *machine, *types[RATE_TYPES];
    int is_wire;
    *out = (struct plan_calibration){0};
    if (json_unpack(
                json, "{s:s, s:i, s:i, s:b, s:s, s:o, s:[oo!]}", "backend",
                &backend, "ranks", &out->ranks, "threads", &out->threads,
                "wire_measured", &is_wire, "what", &what, "machine", &machine,
                "rates", &types[0], &types[1]) != 0 ||
        out->ranks < 1 || out->threads < 1)
        return false;
    out->backend = strcmp(backend, "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    out->machine.wire_is_measured = is_wire;
    snprintf(out->what, sizeof out->what, "%s", what);
    for (int t = 0; t < RATE_TYPES; t++)
        if (!read_numbers(types[t], rate_fields, RATE_FIELDS, &out->rates[t]))
            return false;
    return read_numbers(machine, machine_fields, MACHINE_FIELDS, &out->machine);
}

/* --- the file ------------------------------------------------------------- */

/* The tables of a file that is this machine's and this version's; NULL: `why`
 * says what it is, and is empty where there is none. New reference. */
static json_t *read_tables(const char *path, char why[400])
{
    json_t *file = NULL, *here = machine_json(), *tables = NULL;
    struct plan_calibration table;
    why[0] = '\0';
    if (fs_exists(path) &&
        json_parse_file(path, FILE_BYTES_MAX, &file) != ZD_OK) {
        snprintf(why, 400, "it is broken (%.300s)", zd_error_get()->what);
        zd_error_clear();
    }
    const char *program = json_string_value(json_object_get(file, "program"));
    if (file && (!program || strcmp(program, ZD_VERSION) != 0))
        snprintf(
                why, 400, "it is of zerod %s, and this is " ZD_VERSION,
                program ? program : "unknown");
    else if (
            file &&
            json_integer_value(json_object_get(file, "format")) != FORMAT)
        snprintf(why, 400, "it is of another build of zerod");
    else if (file && !json_equal(json_object_get(file, "machine"), here))
        snprintf(why, 400, "it is of another machine");
    else if (file && !json_is_array(json_object_get(file, "tables")))
        snprintf(why, 400, "it is broken (no tables)");
    else if (file)
        tables = json_incref(json_object_get(file, "tables"));
    for (size_t i = 0; i < json_array_size(tables); i++)
        if (!read_table(json_array_get(tables, i), &table)) {
            snprintf(why, 400, "it is broken (table %zu)", i + 1);
            json_decref(tables);
            tables = NULL;
        }
    json_decref(here);
    json_decref(file);
    return tables;
}

static bool is_same(
        const struct plan_calibration *a, const struct plan_calibration *b)
{
    return a->ranks == b->ranks && a->threads == b->threads &&
           a->backend == b->backend;
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
        if (read_table(table, &other) && !is_same(&other, calibration))
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

static int distance(int a, int b)
{
    return a > b ? a - b : b - a;
}

/* A wire that was measured, then threads, then ranks. */
static int mismatch(
        const struct plan_calibration *table, int ranks, int threads)
{
    int lacks_wire = ranks > 1 && !table->machine.wire_is_measured;
    return 1000000 * lacks_wire + 1000 * distance(table->threads, threads) +
           distance(table->ranks, ranks);
}

bool calibration_find(
        enum device_backend backend, int ranks, int threads,
        struct plan_calibration *out, char why[400])
{
    char path[PATH_MAX];
    struct plan_calibration table;
    bool found = false;
    why[0] = '\0';
    if (path_of(path) != ZD_OK) {
        zd_error_clear();
        return false;
    }
    json_t *tables = read_tables(path, why);
    for (size_t i = 0; i < json_array_size(tables); i++) {
        if (!read_table(json_array_get(tables, i), &table) ||
            table.backend != backend ||
            (found &&
             mismatch(&table, ranks, threads) >= mismatch(out, ranks, threads)))
            continue;
        *out = table;
        found = true;
    }
    json_decref(tables);
    if (why[0]) {
        size_t used = strlen(why);
        snprintf(why + used, 400 - used, ": %.200s", path);
    }
    return found;
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
    machine->rates = calibration->rates;
    machine->is_measured = true;
    machine->shares_cores = calibration->backend == DEVICE_CPU;
    return machine;
}

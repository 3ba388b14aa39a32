#include "train/plan/calibration.h"

#include "base/file/fs.h"
#include "data/token_cache.h"
#include "zd_config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 11, FILE_BYTES_MAX = 1 << 16 };

static const char *backend_name(enum device_backend backend)
{
    return backend == DEVICE_CUDA ? "cuda" : "cpu";
}

static enum zd_status path_of(enum device_backend backend, char path[PATH_MAX])
{
    char folder[PATH_MAX], host[COMM_HOST_MAX] = "", name[COMM_HOST_MAX + 32];
    gethostname(host, sizeof host - 1);
    ZD_TRY(token_cache_folder("auto", folder));
    snprintf(
            name, sizeof name, "machine-%s-%s.json", host,
            backend_name(backend));
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
#define UPDATES(kind, at)                                                      \
    FIELD("update_" kind, update[at], true), FIELD("host_" kind, host[at], true)
        FIELD("products_16", products[0], true),
        FIELD("products_32", products[1], true),
        FIELD("half_tokens_16", half[0], false),
        FIELD("half_tokens_32", half[1], false),
        FIELD("fp8_tensorwise", fp8[0], false),
        FIELD("fp8_blockwise", fp8[1], false),
        FIELD("memory", memory, true),
        UPDATES("fp32", 0),
        UPDATES("fp32_bare", 1),
        UPDATES("bf16", 2),
        UPDATES("bf16_bare", 3),
        UPDATES("8bit", 4),
        UPDATES("8bit_bare", 5),
        FIELD("launch", launch, false),
        FIELD("link", link, true),
        FIELD("inside", inside, true),
        FIELD("between", between, true),
        FIELD("latency", latency, false),
        FIELD("jitter", jitter, false),
        FIELD("disk", disk, true),
        FIELD("link_cores", link_cores, false),
        FIELD("wire_cores", wire_cores, false),
#undef UPDATES
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

enum zd_status calibration_mean(struct comm *comm, struct plan_machine *machine)
{
    double mine[FIELDS];
    void *all;
    for (int i = 0; i < FIELDS; i++)
        mine[i] = *value_of(machine, i);
    ZD_TRY(comm_gather_new(comm, mine, sizeof mine, &all));
    for (int i = 0; i < FIELDS; i++) {
        double sum = 0;
        for (int r = 0; r < comm_size(comm); r++)
            sum += ((const double *)all)[r * FIELDS + i];
        *value_of(machine, i) = sum / comm_size(comm);
    }
    free(all);
    return ZD_OK;
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
            backend_name(calibration->backend), "ranks", calibration->ranks,
            "threads", calibration->threads, "wire_measured",
            calibration->machine.wire_is_measured, "what", calibration->what,
            "machine", machine_numbers(&calibration->machine));
}

/* --- the file ------------------------------------------------------------- */

/* Why a file is not this machine's and this version's; NULL: it is. */
static const char *take(json_t *file, struct plan_calibration *out)
{
    const char *program = json_string_at(file, "program"), *what;
    json_t *machine;
    int is_wire;
    if (!program || strcmp(program, ZD_VERSION) != 0)
        return "it is of another version of zerod than " ZD_VERSION;
    if (json_integer_at(file, "format") != FORMAT)
        return "it is of another build of zerod";
    if (json_integer_at(file, "cpus") != device_online_cpus())
        return "it is of another machine";
    if (json_unpack(
                file, "{s:i, s:i, s:b, s:s, s:o}", "ranks", &out->ranks,
                "threads", &out->threads, "wire_measured", &is_wire, "what",
                &what, "machine", &machine) != 0 ||
        !read_numbers(machine, &out->machine))
        return "it is broken";
    out->machine.wire_is_measured = is_wire;
    snprintf(out->what, sizeof out->what, "%s", what);
    return NULL;
}

enum zd_status calibration_keep(
        const struct plan_calibration *calibration, char path[PATH_MAX])
{
    ZD_TRY(path_of(calibration->backend, path));
    json_t *file = calibration_json(calibration);
    json_t *about = json_pack(
            "{s:i, s:s, s:i}", "format", FORMAT, "program", ZD_VERSION, "cpus",
            device_online_cpus());
    json_object_update(file, about);
    json_decref(about);
    enum zd_status status = json_write_file(path, file);
    json_decref(file);
    return status;
}

bool calibration_find(
        enum device_backend backend, struct plan_calibration *out,
        char why[400])
{
    char path[PATH_MAX];
    json_t *file = NULL;
    const char *wrong = "it is broken";
    *out = (struct plan_calibration){.backend = backend};
    why[0] = '\0';
    if (path_of(backend, path) == ZD_OK && !fs_exists(path))
        return false;
    if (zd_error_get()->status == ZD_OK &&
        json_parse_file(path, FILE_BYTES_MAX, &file) == ZD_OK)
        wrong = take(file, out);
    zd_error_clear();
    json_decref(file);
    if (wrong)
        snprintf(why, 400, "%s: %.300s", wrong, path);
    return !wrong;
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

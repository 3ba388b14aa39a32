/* machine.c - the table of known machines, and calibrations of this one.
 *
 * Matmuls: 0.7 of a GPU's dense peak (large matmuls reach 70 to 80 %); FP8
 * relative to that as measured in docs/measured/fp8.md, on Ada by its peak.
 * Rows with half of the rate: from the loss of whole trainings with small
 * micro-batches in llm-foundry's tables (scripts/train/benchmarking at
 * 8c8dd48): on the H100 30B models with 3, 10 and 14 samples of 2048 tokens
 * (50.8, 57.4, 58.6 % HFU), on the A100 70B with 2 and 8 (64.8, 71.1); the 4090
 * by its peak. Jitter: torchtitan's 8B on 8 and on 128 GPUs (6667, 6514
 * tokens/s). tests/train/plan/test_published.c has these tables. Memory: 0.85
 * of the peak. Links: 0.8 of the peak in each direction. Updates on the host
 * are bound by its memory, which a node's ranks share. */
#include "train/plan/machine.h"

#include "base/file/fs.h"
#include "data/token_cache.h"
#include "kernels/matmul/library.h"
#include "zd_config.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TERA 1e12
#define GIGA 1e9

/* clang-format off */
/* FLOP/s of large matmuls in 16 bits and in fp32; rows with half that rate;
 * bytes/s of memory; seconds of a launch; bytes/s of updates on the host, of
 * the link to it, to ranks within a node and between nodes; seconds of latency;
 * jitter; bytes/s of a disk */
#define ALL(rate)                                         {rate, rate, rate, rate, rate, rate}
#define ROW(name, what, m16, m32, half, memory, launch, host, link, inside, between, latency, jitter, disk, ...)                       \
    {name, what, {m16 * TERA, m32 * TERA}, {half, half}, memory * GIGA, ALL(memory * GIGA), ALL(host * GIGA), launch, link * GIGA,     \
     inside * GIGA, between * GIGA, latency, jitter, disk * GIGA, __VA_ARGS__}
static const struct plan_machine machines[] = {
        /* NVIDIA H100 data sheet: 989 TFLOPS bf16 dense, 3.35 TB/s, NVLink 450 GB/s each way, PCIe 5 x16 64 GB/s */
        ROW("h100", "8 x H100 SXM 80 GB, NVLink 4, 400 Gbit/s for each GPU",
            692, 346, 1200, 2850, 40e-6, 40, 50, 360, 40, 10e-6, 0.005, 3, .fp8 = {1.8, 1.35}, .capability = 90, .gpu = "NVIDIA H100 80GB HBM3"),
        /* NVIDIA H200 data sheet: 989 TFLOPS bf16 dense, 4.8 TB/s, NVLink 450 GB/s each way, PCIe 5 x16 64 GB/s */
        ROW("h200", "8 x H200 SXM 141 GB, NVLink 4, 400 Gbit/s for each GPU",
            692, 346, 1200, 4080, 40e-6, 40, 50, 360, 40, 10e-6, 0.005, 3, .fp8 = {1.8, 1.35}, .capability = 90, .gpu = "NVIDIA H200"),
        /* NVIDIA A100 data sheet: 312 TFLOPS bf16 dense, 2.04 TB/s, NVLink 300 GB/s each way, PCIe 4 x16 32 GB/s */
        ROW("a100", "8 x A100 SXM 80 GB, NVLink 3, 200 Gbit/s for each GPU",
            218, 109, 550, 1730, 50e-6, 20, 25, 240, 20, 12e-6, 0.005, 3, .capability = 80, .gpu = "NVIDIA A100*"),
        /* NVIDIA Ada whitepaper: 165 TFLOPS bf16 dense with fp32 sums, 1.01 TB/s, PCIe 4 x16 32 GB/s */
        ROW("4090", "RTX 4090 24 GB, PCIe 4, no NVLink, 10 Gbit/s",
            116, 58, 300, 860, 40e-6, 30, 25, 10, 1, 30e-6, 0.005, 3, .fp8 = {2, 0}, .capability = 89, .gpu = "NVIDIA GeForce RTX 4090"),
        /* measured: matmuls of bf16 2 TFLOPS (1.2 beside other work, 4.1 at most), AdamW 25 GB/s; fp32 so that the quickstart takes the
         * 0.10 s that were measured */
        ROW("amx", "two cores of a Sapphire Rapids server, with AMX",
            2, 0.36, 16, 25, 30e-6, 25, 10, 4, 1, 20e-6, 0, 1, .shares_cores = true, .link_cores = 1, .wire_cores = 1),
        /* a guess: a job may get any part of a machine */
        ROW("cpu", "a few cores of a server",
            0.4, 0.15, 16, 15, 30e-6, 15, 10, 4, 1, 20e-6, 0, 1, .shares_cores = true, .link_cores = 1, .wire_cores = 1, .is_guess = true),
};
#undef ROW
#undef ALL
/* clang-format on */
#undef TERA
#undef GIGA

enum { MACHINES = sizeof machines / sizeof machines[0] };

const struct plan_machine *plan_machine_find(const char *name)
{
    for (int i = 0; i < MACHINES; i++)
        if (!strcmp(machines[i].name, name))
            return &machines[i];
    return NULL;
}

double plan_machine_peak(const char *gpu)
{
    for (int i = 0; i < MACHINES; i++)
        if (machines[i].gpu && fnmatch(machines[i].gpu, gpu, 0) == 0)
            return machines[i].products[0] / 0.7; /* see above */
    return 0;
}

const char plan_guess_words[] =
        "unknown processor: within a factor of 3; `zerod bench calibrate` "
        "measures it";

int plan_machine_digits(const struct plan_machine *machine)
{
    return machine->is_guess ? 1 : 3;
}

const struct plan_machine *plan_machine_default(enum device_backend backend)
{
    if (backend == DEVICE_CUDA)
        return plan_machine_find("h100");
    return plan_machine_find(library_has_amx() ? "amx" : "cpu");
}

/* --- a calibration -------------------------------------------------------- */

enum { FORMAT = 11, FILE_BYTES_MAX = 1 << 16 };

static enum zd_status path_of(enum device_backend backend, char path[PATH_MAX])
{
    char folder[PATH_MAX], host[COMM_HOST_MAX] = "", name[COMM_HOST_MAX + 32];
    gethostname(host, sizeof host - 1);
    ZD_TRY(token_cache_folder("auto", folder));
    ZD_PRINT(name, "machine-%s-%s.json", host, plan_backend_name(backend));
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

/* False: a number is missing or out of range. */
static bool read_numbers(const json_t *json, struct plan_machine *machine)
{
    const double most = 1e18; /* above any rate or time of a machine */
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
            plan_backend_name(calibration->backend), "ranks",
            calibration->ranks, "threads", calibration->threads,
            "wire_measured", calibration->machine.wire_is_measured, "what",
            calibration->what, "machine",
            machine_numbers(&calibration->machine));
}

/* --- the file ------------------------------------------------------------- */

/* Reads a calibration. Returns why the file is not for this machine and
 * version; NULL: it is. */
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
    ZD_PRINT(out->what, "%s", what);
    return NULL;
}

enum zd_status calibration_keep(
        const struct plan_calibration *calibration, char path[PATH_MAX])
{
    ZD_TRY(path_of(calibration->backend, path));
    json_auto_t *file = calibration_json(calibration);
    json_auto_t *about = json_pack(
            "{s:i, s:s, s:i}", "format", FORMAT, "program", ZD_VERSION, "cpus",
            device_online_cpus());
    json_object_update(file, about);
    return json_write_file(path, file);
}

const struct plan_machine *calibration_find(
        enum device_backend backend, struct plan_calibration *out,
        char why[400])
{
    char path[PATH_MAX];
    json_auto_t *file = NULL;
    const char *wrong = "it is broken";
    *out = (struct plan_calibration){
            .backend = backend,
            .machine = {
                    .name = "here",
                    .what = out->what,
                    .is_measured = true,
                    .shares_cores = backend == DEVICE_CPU}};
    why[0] = '\0';
    if (path_of(backend, path) == ZD_OK && !fs_exists(path))
        return NULL;
    if (zd_error_get()->status == ZD_OK &&
        json_parse_file(path, FILE_BYTES_MAX, &file) == ZD_OK)
        wrong = take(file, out);
    zd_error_clear();
    if (wrong)
        snprintf(why, 400, "%s: %.300s", wrong, path);
    return wrong ? NULL : &out->machine;
}

/* doctor.c - what is put into the report: the machine, its GPUs and NVIDIA's
 * libraries (each is opened by the door that a run opens it by), what the job
 * needs, and what the other ranks found. What ranks must have alike, or would
 * better have, is compared with rank 0's. */
#include "daemon/doctor/doctor.h"

#include "base/library.h"
#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/cli/fill.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/kernels.h"
#include "model/activations.h"
#include "zd_config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

enum { MOST_GPUS = 64 };

static void put(struct doctor *doctor, const char *name, json_t *value)
{
    json_object_set_new(doctor->report, name, value);
}

static void add_finding(struct doctor *doctor, json_t *finding)
{
    json_array_append_new(json_object_get(doctor->report, "findings"), finding);
}

__attribute__((format(printf, 4, 5))) static void warn(
        struct doctor *doctor, const char *cost, const char *fix,
        const char *format, ...)
{
    ZD_FREED TEXT_OF_ARGS(what, format);
    add_finding(
            doctor, json_pack(
                            "{s:s, s:s, s:s, s:s}", "level", "warning", "what",
                            what, "cost", cost, "fix", fix));
}

void doctor_stop(struct doctor *doctor)
{
    const struct zd_error *error = zd_error_get();
    const char *where = error->where;
    add_finding(
            doctor,
            json_pack(
                    "{s:s, s:s, s:o, s:s, s:s}", "level", "stop", "code",
                    error->code, "what",
                    json_sprintf(
                            "%s%s%s", where, where[0] ? ": " : "", error->what),
                    "cost", "the job ends before its first step", "fix",
                    error->help));
    zd_error_clear();
}

/* --- the machine ---------------------------------------------------------- */

enum { MIB = 1 << 20 };

static void see_memory(struct doctor *doctor, json_t *limits)
{
    struct rlimit lock;
    getrlimit(RLIMIT_MEMLOCK, &lock);
    bool unlimited = lock.rlim_cur == RLIM_INFINITY;
    json_object_set_new(
            limits, "memlock_bytes",
            unlimited ? json_null() : json_integer((json_int_t)lock.rlim_cur));
    json_object_set_new(
            limits, "memory_bytes",
            json_integer((json_int_t)device_system_memory()));
    if (!unlimited && lock.rlim_cur < 64 * MIB)
        warn(doctor, "InfiniBand does not work",
             "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit",
             "only %" PRIu64 " KiB of memory may be locked",
             (uint64_t)lock.rlim_cur / 1024);
}

static void see_shared(struct doctor *doctor, json_t *limits)
{
    struct statvfs at;
    if (statvfs("/dev/shm", &at) != 0) {
        warn(doctor,
             "MPI and NCCL pass messages between ranks of this host "
             "by slower ways",
             "mount a tmpfs at /dev/shm", "there is no /dev/shm");
        return;
    }
    uint64_t bytes = (uint64_t)at.f_bavail * at.f_frsize;
    json_object_set_new(
            limits, "shared_memory_bytes", json_integer((json_int_t)bytes));
    if (bytes < 512 * (uint64_t)MIB)
        warn(doctor,
             "ranks of one host may end with SIGBUS, or NCCL with `No space "
             "left on device`",
             "docker run --shm-size=8g, or a larger tmpfs at /dev/shm",
             "/dev/shm has room for %" PRIu64 " MiB", bytes / MIB);
}

static void see_host(struct doctor *doctor)
{
    struct utsname name;
    char mpi[128];
    json_t *limits = json_object();
    uname(&name);
    comm_mpi_library(mpi, sizeof mpi);
    put(doctor, "host",
        json_pack(
                "{s:s, s:s, s:i, s:i}", "name", name.nodename, "kernel",
                name.release, "cpus", device_online_cpus(), "cpus_allowed",
                device_affinity_cpus()));
    put(doctor, "mpi", json_string(mpi));
    put(doctor, "limits", limits);
    see_memory(doctor, limits);
    see_shared(doctor, limits);
}

/* --- libraries ------------------------------------------------------------ */

static void add_library(
        json_t *list, const char *name, const char *file, const char *version)
{
    char path[PATH_MAX];
    bool is_loaded = library_path(file, path, sizeof path);
    json_array_append_new(
            list, json_pack(
                          "{s:s, s:s, s:s?, s:s?}", "name", name, "file", file,
                          "version", version, "path", is_loaded ? path : NULL));
}

static void see_products(struct doctor *doctor, json_t *list)
{
    const char *name = NULL;
    if (kernels_products_library(&name) != ZD_OK && doctor->wants_gpu)
        doctor_stop(doctor);
    zd_error_clear();
    add_library(
            list, "cuBLASLt", "libcublasLt.so",
            name ? name + strlen("cuBLASLt ") : NULL);
}

static void see_cudnn(struct doctor *doctor, json_t *list)
{
    static const char cost[] =
            "our own kernels do attention: 11 % of a step of Llama 1B at 4096 "
            "tokens on an H100, and more with longer samples";
    enum dtype dtype = doctor->job->train.dtype;
    enum attention_choice choice = doctor->job->model.attn;
    struct attention_facts facts;
    char version[32] = "", path[PATH_MAX];
    kernels_set_attention(choice);
    facts = attention_cuda_facts(dtype == DTYPE_FP32 ? DTYPE_BF16 : dtype);
    if (facts.cudnn)
        ZD_PRINT(
                version, "%d.%d.%d", facts.cudnn / 10000,
                facts.cudnn / 100 % 100, facts.cudnn % 100);
    add_library(list, "cuDNN", "libcudnn.so", *version ? version : NULL);
    add_library(list, "NVRTC", "libnvrtc.so", NULL);
    if (!doctor->device || choice == ATTENTION_OWN || dtype == DTYPE_FP32)
        return;
    if (!ZD_HAVE_CUDNN)
        warn(doctor, cost, "deploy/install.sh cudnn, and build again",
             "this zerod was built without cudnn-frontend");
    else if (!facts.cudnn)
        warn(doctor, cost,
             "pip install nvidia-cudnn-cu13, or its folder in "
             "ZEROD_LIBRARY_PATH",
             "there is no cuDNN");
    else if (!library_path("libnvrtc.so", path, sizeof path))
        warn(doctor, cost, "pip install nvidia-cuda-nvrtc",
             "there is no NVRTC, with which cuDNN compiles its attention "
             "for Hopper and later");
    if (facts.cudnn && facts.major == 9 && facts.cudnn < 92500 &&
        choice == ATTENTION_AUTO)
        warn(doctor, cost,
             "cuDNN 9.25, or model.attn = \"cudnn\", whose sums of dq are "
             "in no fixed order",
             "attention's backward is our own: cuDNN %s sums dq in a fixed "
             "order only with O(T^2) memory on Hopper",
             version);
}

static void see_nccl(struct doctor *doctor, json_t *list)
{
    const char *name = NULL;
    bool is_there = comm_nccl_library(&name) == ZD_OK;
    if (!is_there && doctor->wants_gpu && doctor->gpus > 1 &&
        doctor->job->comm.backend == COMM_AUTO)
        warn(doctor,
             "collectives go through the memory of the host and MPI: tens "
             "of times slower than NVLink",
             "pip install nvidia-nccl-cu13, or its folder in "
             "ZEROD_LIBRARY_PATH",
             "no NCCL for %d GPUs: %s", doctor->gpus, zd_error_get()->what);
    zd_error_clear();
    add_library(
            list, "NCCL", "libnccl.so", name ? name + strlen("nccl ") : NULL);
}

/* --- GPUs ----------------------------------------------------------------- */

static json_t *gpu_json(const struct device_facts *gpu)
{
    char capability[16];
    ZD_PRINT(capability, "%d.%d", gpu->major, gpu->minor);
    return json_pack(
            "{s:i, s:s, s:s, s:s, s:s, s:I, s:i}", "index", gpu->index, "name",
            gpu->name, "uuid", gpu->uuid, "pci", gpu->pci, "compute_capability",
            capability, "memory_bytes", (json_int_t)gpu->total_bytes,
            "numa_node", gpu->numa_node);
}

static void see_gpus(struct doctor *doctor)
{
    ZD_FREED struct device_facts *all = zd_array(MOST_GPUS, sizeof *all);
    json_t *list = json_array();
    const char *why = NULL;
    int count = device_list(all, MOST_GPUS);
    doctor->gpus = count < MOST_GPUS ? count : MOST_GPUS;
    for (int i = 0; i < doctor->gpus; i++)
        json_array_append_new(list, gpu_json(&all[i]));
    put(doctor, "gpus", list);
    if (doctor->gpus > 0) {
        put(doctor, "driver_cuda", json_integer(all[0].driver));
        put(doctor, "runtime_cuda", json_integer(all[0].runtime));
    } else if (device_gpu_count(&why) == 0) {
        put(doctor, "no_gpu", json_string(why));
    }
}

/* --- this rank's ---------------------------------------------------------- */

static void open_own(struct doctor *doctor, int local_rank, int local_size)
{
    const struct device_options *options = &doctor->job->device;
    int place;
    enum zd_status status = device_place(options, local_rank, &place);
    ZD_THEN(status,
            device_open(DEVICE_CUDA, place, local_size, &doctor->device));
    ZD_THEN(status,
            device_share(
                    doctor->device,
                    local_size > doctor->gpus
                            ? (local_size + doctor->gpus - 1) / doctor->gpus
                            : 1));
    if (status != ZD_OK) {
        doctor_stop(doctor);
        return;
    }
    device_use(doctor->device);
    struct device_facts facts = device_facts();
    put(doctor, "gpu",
        json_pack(
                "{s:i, s:s, s:I, s:I}", "index", facts.index, "name",
                facts.name, "free_bytes", (json_int_t)facts.free_bytes,
                "context_bytes", (json_int_t)facts.context_bytes));
}

/* Opens this rank's GPU where the job has one. */
static void see_devices(struct doctor *doctor, int local_rank, int local_size)
{
    enum device_backend asked = doctor->job->device.backend;
    json_t *libraries = json_array();
    see_gpus(doctor);
    doctor->wants_gpu =
            asked == DEVICE_CUDA || (asked == DEVICE_AUTO && doctor->gpus > 0);
    put(doctor, "libraries", libraries);
    if (doctor->wants_gpu)
        open_own(doctor, local_rank, local_size);
    add_library(libraries, "driver", "libcuda.so", NULL);
    see_products(doctor, libraries);
    see_cudnn(doctor, libraries);
    see_nccl(doctor, libraries);
}

/* --- the job -------------------------------------------------------------- */

/* What attention_choose says of layers like this one, with one document a
 * sample and with several. */
static void tell_layer(
        json_t *list, struct attention_shape shape,
        const struct attention_facts *facts)
{
    for (int i = 0; i < 2 * ATTENTION_DIRECTIONS; i++) {
        int pass = i % ATTENTION_DIRECTIONS;
        bool packed = i >= ATTENTION_DIRECTIONS;
        shape.documents = packed ? 2 * shape.B : shape.B;
        struct attention_answer answer = attention_choose(&shape, facts);
        const char *why = answer.why[pass];
        if (!*why && facts->choice == ATTENTION_AUTO)
            why = "or own, where timing finds it faster";
        json_t *row = json_pack(
                "{s:s, s:s, s:s, s:s, s:I}", "documents",
                packed ? "several in a sample" : "one in a sample", "pass",
                pass ? "backward" : "forward", "engine",
                *answer.why[pass] ? "own" : "cuDNN", "why", why, "work_bytes",
                (json_int_t)answer.work_bytes[pass]);
        if (shape.window)
            json_object_set_new(row, "window", json_integer(shape.window));
        json_array_append_new(list, row);
    }
}

/* Once for each window that layers have. */
static void tell_attention(struct doctor *doctor, const struct job_plan *plan)
{
    const struct model_config *c = &plan->config;
    struct attention_facts facts = attention_cuda_facts(plan->shape.dtype);
    json_t *list = json_array();
    for (int i = 0, known; i < c->layers; i++) {
        for (known = 0; known < i; known++)
            if (c->layer_attention[known].window ==
                c->layer_attention[i].window)
                break;
        if (known == i)
            tell_layer(
                    list,
                    activations_attention(
                            c, &plan->shape, i + 1, plan->shape.B,
                            plan->shape.T),
                    &facts);
    }
    put(doctor, "attention", list);
}

static void check_plan(struct doctor *doctor, struct comm *comm)
{
    struct job_plan plan;
    if (job_plan_build(
                doctor->job, comm_size(comm), comm_local_size(comm), NULL,
                &plan) != ZD_OK) {
        doctor_stop(doctor);
        return;
    }
    if (plan.backend == DEVICE_CUDA)
        tell_attention(doctor, &plan);
    job_plan_fini(&plan);
}

/* What the key asks for by name. */
static void check_named(struct doctor *doctor)
{
    const struct train_job *job = doctor->job;
    const struct kernels *table;
    if (doctor->device && kernels_device(job->train.dtype, &table) != ZD_OK)
        doctor_stop(doctor);
    const char *name;
    if (job->comm.backend == COMM_NCCL && comm_nccl_library(&name) != ZD_OK)
        doctor_stop(doctor);
}

void doctor_examine(
        struct doctor *doctor, const struct train_job *job, bool has_job,
        struct comm *comm)
{
    *doctor = (struct doctor){
            .report = zd_must(json_object()), .job = job, .has_job = has_job};
    put(doctor, "ranks", json_integer(comm_size(comm)));
    put(doctor, "findings", json_array());
    see_host(doctor);
    see_devices(doctor, comm_local_rank(comm), comm_local_size(comm));
    if (has_job) {
        kernels_set_attention(job->model.attn);
        check_named(doctor);
        check_plan(doctor, comm);
    }
}

/* --- the other ranks -------------------------------------------------------
 */

/* `template` (of fill.h) gives the value of each as text. */
static void compare_one(
        json_t *differences, int rank, const char *what, const char *template,
        const json_t *first, const json_t *other)
{
    const struct look plain = {.has_utf8 = true};
    ZD_FREED char *a = fill(&plain, first, template),
                  *b = fill(&plain, other, template);
    if (strcmp(a, b) != 0)
        json_array_append_new(
                differences, json_pack(
                                     "{s:s, s:i, s:s, s:s}", "what", what,
                                     "rank", rank, "rank_0", a, "there", b));
}

static void compare_reports(
        json_t *differences, int rank, const json_t *mine, const json_t *theirs)
{
    static const struct {
        const char *what, *template;
    } alike[] = {
            {"kernel", "{host.kernel|s}"},
            {"CPUs", "{host.cpus|w}"},
            {"CPUs that it may use", "{host.cpus_allowed|w}"},
            {"driver", "{driver_cuda|w}"},
            {"MPI", "{mpi|s}"},
            {"GPU", "{gpu.name|s}"},
            {"lockable memory", "{limits.memlock_bytes|w}"}};
    const json_t *own = json_object_get(mine, "libraries");
    const json_t *others = json_object_get(theirs, "libraries");
    for (size_t i = 0; i < sizeof alike / sizeof alike[0]; i++)
        compare_one(
                differences, rank, alike[i].what, alike[i].template, mine,
                theirs);
    JSON_EACH_AT(i, library, own)
        compare_one(
                differences, rank, json_text_of(library, "name", ""),
                "{version|s}", library, json_array_get(others, i));
}

/* Has one of `findings` this text? */
static bool is_known(const json_t *findings, const char *what)
{
    JSON_EACH(finding, findings)
        if (strcmp(json_text_of(finding, "what", ""), what) == 0)
            return true;
    return false;
}

/* What another rank found and rank 0 did not, with its rank. */
static void take_findings(json_t *report, int rank, const json_t *theirs)
{
    json_t *mine = json_object_get(report, "findings");
    const json_t *others = json_object_get(theirs, "findings");
    JSON_EACH(finding, others)
        if (!is_known(mine, json_text_of(finding, "what", ""))) {
            json_object_set_new(finding, "rank", json_integer(rank));
            json_array_append(mine, finding);
        }
}

/* Every rank's report as text, one after the other, each `bytes` long. */
static enum zd_status gather(
        struct comm *comm, const json_t *report, char **all_out,
        size_t *bytes_out)
{
    ZD_FREED char *text = zd_must(json_dumps(report, JSON_COMPACT));
    int64_t most = (int64_t)strlen(text) + 1;
    ZD_TRY(comm_all_reduce_i64(comm, &most, 1, COMM_MAX));
    ZD_FREED char *mine = zd_must(calloc(1, (size_t)most));
    void *all = NULL;
    memcpy(mine, text, strlen(text));
    enum zd_status status = comm_gather_new(comm, mine, (size_t)most, &all);
    *all_out = all;
    *bytes_out = (size_t)most;
    return status;
}

enum zd_status doctor_compare(struct doctor *doctor, struct comm *comm)
{
    ZD_FREED char *all = NULL;
    size_t bytes;
    json_t *findings = json_object_get(doctor->report, "findings");
    json_t *differences = json_array();
    bool stops = false;
    put(doctor, "differences", differences);
    ZD_TRY(gather(comm, doctor->report, &all, &bytes));
    for (int rank = 0; rank < comm_size(comm); rank++) {
        const char *text = all + (size_t)rank * bytes;
        json_auto_t *theirs = NULL;
        if (rank == comm_rank(comm) ||
            json_parse(text, strlen(text), "report", ZD_ERR_PEER, &theirs) !=
                    ZD_OK)
            continue;
        compare_reports(differences, rank, doctor->report, theirs);
        take_findings(doctor->report, rank, theirs);
    }
    JSON_EACH(finding, findings)
        stops |= strcmp(json_text_of(finding, "level", ""), "stop") == 0;
    put(doctor, "stops", json_boolean(stops));
    return ZD_OK;
}

bool doctor_stops(const struct doctor *doctor)
{
    return json_is_true(json_object_get(doctor->report, "stops"));
}

void doctor_fini(struct doctor *doctor)
{
    device_close(doctor->device);
    json_decref(doctor->report);
    memset(doctor, 0, sizeof *doctor);
}

/* --- as text --- */

static void print_each(
        const struct look *look, const json_t *list, const char *template)
{
    JSON_EACH(one, list)
        fill_print(look, one, template);
}

static void print_gpus(const struct look *look, const json_t *report)
{
    int driver = (int)fill_number(report, "driver_cuda"),
        runtime = (int)fill_number(report, "runtime_cuda");
    const json_t *gpus = json_object_get(report, "gpus");
    if (json_array_size(gpus) == 0)
        fill_print(look, report, "GPUs       none: {no_gpu|s}\n");
    else
        fprintf(look->out, "driver     CUDA %d.%d; this zerod has %d.%d\n",
                driver / 1000, driver % 1000 / 10, runtime / 1000,
                runtime % 1000 / 10);
    print_each(
            look, gpus,
            "GPU {index|w}      {name|s}, compute capability "
            "{compute_capability|s}, {memory_bytes|b}, {uuid|s}\n");
}

static void print_libraries(const struct look *look, const json_t *list)
{
    JSON_EACH(library, list) {
        ZD_FREED char *text = fill(look, library, "[{version|s}  ][{path|s}]");
        fprintf(look->out, "%-10s %s\n", json_text_of(library, "name", ""),
                text[0] ? text : "not there");
    }
}

/* Help may have several lines. */
static void print_fix(const struct look *look, const char *fix)
{
    for (const char *lead = "  fix: "; *fix; lead = "       ") {
        size_t bytes = strcspn(fix, "\n");
        ZD_FREED char *line = text_escape(look, fix, bytes, false);
        fprintf(look->out, "%s%s\n", lead, line);
        fix += bytes + (fix[bytes] == '\n');
    }
}

static void print_finding(const struct look *look, const json_t *finding)
{
    bool stops = strcmp(json_text_of(finding, "level", ""), "stop") == 0;
    const char *code = json_text_of(finding, "code", "");
    fprintf(look->out, "\n%s: %s%s%s", stops ? "stops the job" : "warning",
            code[0] ? "[" : "", code, code[0] ? "] " : "");
    fill_print(
            look, finding,
            stops ? "[rank {rank|w}: ]{what|s}\n"
                  : "[rank {rank|w}: ]{what|s}\n  costs: {cost|s}\n");
    print_fix(look, json_text_of(finding, "fix", ""));
}

void doctor_print(const struct doctor *doctor, FILE *to)
{
    const struct look look = {.out = to, .has_utf8 = true};
    const json_t *report = doctor->report;
    const json_t *findings = json_object_get(report, "findings");
    fill_print(
            &look, report,
            "host       {host.name|s}, Linux {host.kernel|s}, {host.cpus|w} "
            "CPUs ({host.cpus_allowed|w} for this rank), "
            "{limits.memory_bytes|b}\n"
            "MPI        {mpi|s}, {ranks|w} rank{ranks|p}\n"
            "limits     lockable memory: "
            "[{limits.memlock_bytes|b}][{limits.memlock_bytes|!}all]; "
            "/dev/shm: {limits.shared_memory_bytes|b}\n");
    print_gpus(&look, report);
    print_libraries(&look, json_object_get(report, "libraries"));
    print_each(
            &look, json_object_get(report, "attention"),
            "attention  {pass|s}, documents: {documents|s}[, window "
            "{window|w}]: {engine|s}[: {why|s}]\n");
    print_each(
            &look, json_object_get(report, "differences"),
            "differs    {what|s}: {rank_0|s} on rank 0, {there|s} on rank "
            "{rank|w}\n");
    JSON_EACH(finding, findings)
        print_finding(&look, finding);
    if (json_array_size(findings) == 0)
        fprintf(to, "\nzerod can use everything it found\n");
    if (doctor->has_job)
        fputs(doctor_stops(doctor)
                      ? "\nthe job would not start\n"
                      : "\nnothing here stops the job; `zerod validate` checks "
                        "its data\n",
              to);
}

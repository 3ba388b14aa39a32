/* command_plan.c - what a job takes, what would fit, and how much of one thing
 * would. */
#include "base/file/fs.h"
#include "base/must.h"
#include "base/units.h"
#include "daemon/cli/fill.h"
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "model/files/config.h"
#include "train/plan/fit.h"
#include "train/plan/machine.h"
#include "train/plan/search.h"
#include "train/text/text.h"

#include <inttypes.h>
#include <malloc.h>
#include <string.h>

static void warn_of_machine(const struct job_plan *plan)
{
    uint64_t here = job_machine_memory(plan->local_size),
             needs = job_plan_memory(plan) - plan->snapshot_bytes;
    if (needs > here)
        zd_log_warning(
                "a rank needs %.3f MiB of memory and this machine has %.3f MiB "
                "for it: a run here would be refused",
                units_mib(needs), units_mib(here));
}

/* A table has no say in it: a run there chooses by what was measured there. */
static void tell_of_share(
        const struct cli_args *args, const struct train_job *job,
        const struct job_plan *plan)
{
    bool is_open = job->offload.optimizer == OFFLOAD_CPU &&
                   job->offload.device_update < 0 &&
                   plan->backend == DEVICE_CUDA;
    if (args->machine && is_open &&
        !(plan->zero.request.offload.device_update > 0))
        zd_log_info(
                "offload.device_update = \"auto\" is 0 here: it follows from a "
                "calibration of the machine of the run, not from --machine; to "
                "plan for a share, set it");
}

/* All nodes have the same number of ranks, so one plan serves for all. */
static enum zd_status check_nodes(const struct cli_args *args)
{
    int64_t k = args->per_node;
    if (k == 0 || args->world % k == 0)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_USAGE, "E0101",
            k > args->world ? "--per-node %" PRId64 " is more than the %" PRId64
                              " of --world"
                            : "--per-node %" PRId64
                              " does not divide the %" PRId64 " of --world",
            k, args->world);
}

struct device *command_open_gpu(const struct device_options *options)
{
    struct device *device = NULL;
    int place;
    if (device_resolve(options->backend) != DEVICE_CUDA ||
        device_gpu_count(NULL) == 0)
        return NULL;
    enum zd_status status = device_place(options, 0, &place);
    ZD_THEN(status, device_open(DEVICE_CUDA, place, 1, &device));
    ZD_THEN(status, device_share(device, 1));
    if (status != ZD_OK) {
        zd_log_warning(
                "the plan is for a GPU elsewhere: %s", zd_error_get()->what);
        zd_error_clear();
        device_close(device);
        return NULL;
    }
    device_use(device);
    return device;
}

/* --- a plan as it is told --- */

static const char mesh[] =
        "mesh     replicate {mesh.replicate|w} x shard {mesh.shard|w} x cp "
        "{mesh.cp|w} x tp {mesh.tp|w}[; attention by {cp_comm_type|s}]\n";

static const char layout[] =
        "layout   {world|w} rank{world|p}, ZeRO stage {stage|w}, "
        "{layout.dtype|s}, batch {layout.per_device_train_batch_size|w} x "
        "{layout.gradient_accumulation_steps|w} x "
        "{layout.data_parallel_size|w}[ group{layout.data_parallel_size|p} of "
        "{layout.ranks_per_group|>} ranks] = "
        "{layout.global_batch|w} sequences\n"
        "         gradient checkpointing {layout.gradient_checkpointing|s}"
        "[{layout.by_auto.gradient_checkpointing|?} (by auto)]"
        "[, MLP in {layout.tiled_mlp|>} pieces]"
        "[{layout.by_auto.tiled_mlp|?} (by auto)]"
        "[, gradients of {layout.gradient_accumulation_steps|>} micro-batches, "
        "{layout.accumulation_order|s}]"
        "[{layout.by_auto.accumulation_order|?} (by auto)]"
        "[{layout.gradient_accumulation_steps|<}, added up on the "
        "{layout.offload.accumulate|s}]"
        "[{layout.by_auto.accumulate|?} (by auto)]\n"
        "         optimizer {layout.optimizer|s}, {layout.states|s} states, "
        "{layout.masters|s}\n"
        "         offload of optimizer: {layout.offload.optimizer|s}, params: "
        "{layout.offload.params|s}, activations: "
        "{layout.offload.activations|s}\n"
        "[         {layout.offload.undo.share|%} % of the weights are updated "
        "before the norm is known; old values {layout.offload.undo.bytes|m} "
        "MiB\n]"
        "[         {layout.offload.device_update|%} % of the update is made by "
        "the device, the rest by the host\n]"
        "[         matmuls of the layers in FP8, {layout.fp8.mode|s}\n]"
        "[         in {layout.dtype|s} still: {layout.fp8.bf16|s}\n]"
        "[         base in {parameters.base_format|s}\n]"
        "[         collectives over {collectives.over|s}]"
        "[, in two levels: {collectives.nodes|>} nodes of "
        "{collectives.ranks_per_node|w} ranks][: {collectives.lacks|s}]"
        "[{collectives.nodes|.}\n]"
        "each rank holds (MiB):\n";

static const char wire[] = "  {group|s}[{over_cp|?} x cp], {where|s} hosts: "
                           "{operation|s} {bytes_per_step|w}\n";

static const char figures[] =
        "[host bytes per trained parameter {bytes_per_parameter.host|2}]"
        "[{layout.offload.undo.bytes|<}, without the old values]"
        "[{bytes_per_parameter.host|.}\n]"
        "[disk bytes per trained parameter {bytes_per_parameter.disk|2}\n]"
        "[driver and libraries (MiB): context {context.driver|m}]"
        "[{context.measured|?} (measured)]"
        "[, kernels {context.kernels|m}, cuBLASLt {context.products|m}, cuDNN "
        "{context.attention|m}, NCCL {context.collectives|m}, page tables "
        "{context.tables|m}\n]"
        "[paged states (MiB): device {paged_bytes.device|m}, host "
        "{paged_bytes.host|m}, buffers {paged_bytes.buffers|m}\n]"
        "[for tokenizing while it trains (MiB, beside the spans): host "
        "{tokenizer_bytes.host|m}\n]"
        "[for evaluations and samples on request (MiB, of the above): device "
        "{request_bytes.device|m}, host {request_bytes.host|m}\n]"
        "[rank 0 moves per step (bytes): gradients down "
        "{offload_bytes_per_step.down|w}, parameters up "
        "{offload_bytes_per_step.up|w}\n]"
        "[rank 0's disk per step (bytes): read {disk_bytes_per_step.read|w}, "
        "written {disk_bytes_per_step.written|w}\n]"
        "each rank sends per step (bytes): reduce-scatter "
        "{wire_bytes_per_step.reduce_scatter|w}, all-gather "
        "{wire_bytes_per_step.all_gather|w}, all-to-all "
        "{wire_bytes_per_step.all_to_all|w}, all-reduce "
        "{wire_bytes_per_step.all_reduce|w}\n";

static const char rest[] =
        "gradients are reduced in {reduce_dtype|s}\n"
        "[checkpoints are written while training waits: "
        "{snapshot.why_none|s}\n]"
        "[all text is tokenized before step 1: {tokenizer_waits|s}\n]"
        "peaks of a rank (MiB; {phases.libraries.host|m} more of the host for "
        "program and libraries), files of all ranks:\n";

static void print_memories(const struct look *look, const json_t *plan)
{
    const json_t *ranks = json_object_get(plan, "ranks");
    const json_t *arenas = json_object_get(json_array_get(ranks, 0), "arenas");
    JSON_EACH(arena, arenas) {
        uint64_t bytes = (uint64_t)json_integer_at(arena, "planned_bytes");
        if (bytes)
            fprintf(look->out, "  %-34s %-12s %14.3f\n",
                    json_text_of(arena, "name", ""), "", units_mib(bytes));
        JSON_EACH(span, json_object_get(arena, "spans")) {
            double mib = units_mib((uint64_t)json_integer_at(span, "bytes"));
            if (mib >= 0.0005) /* else it would be 0.000 */
                fprintf(look->out, "    %-32s %-12s %14.3f\n",
                        json_text_of(span, "name", ""),
                        json_text_of(span, "kind", ""), mib);
        }
    }
    JSON_MEMBERS(name, limit, json_object_get(plan, "limits")) {
        bool has_spare = json_integer_at(limit, "needs") <
                         json_integer_at(limit, "takes");
        fprintf(look->out, "  %s", name);
        fill_print(look, limit, " takes {takes|m} of {bytes|m} ({source|s})");
        fill_print(
                look, limit,
                has_spare ? ", needs {needs|m}: checkpoint.snapshot uses what "
                            "is free\n"
                          : "\n");
    }
}

static void print_wire(const struct look *look, const json_t *plan)
{
    const json_t *ranks = json_object_get(plan, "ranks");
    bool over_cp = fill_number(plan, "mesh.cp") > 1; /* they share shards */
    JSON_EACH(row, json_object_get(json_array_get(ranks, 0), "wire")) {
        bool is_within = strcmp(json_text_of(row, "level", ""), "node") == 0;
        char operation[32];
        ZD_PRINT(operation, "%s", json_text_of(row, "operation", ""));
        for (char *c = operation; (c = strchr(c, '_'));)
            *c = '-';
        json_auto_t *shown = json_pack(
                "{s:s, s:s, s:b}", "where", is_within ? "within" : "between",
                "operation", operation, "over_cp",
                over_cp && !strcmp(json_text_of(row, "group", ""), "shard"));
        json_object_update_missing(shown, row);
        fill_print(look, shown, wire);
    }
}

static void print_peaks(const json_t *phases, FILE *out)
{
    static const char *const columns[] = {"device", "pinned", "host", "disk"};
    fprintf(out, "  %-10s %12s %12s %12s %12s\n", "", columns[0], columns[1],
            columns[2], columns[3]);
    JSON_MEMBERS(name, peak, phases) {
        if (strcmp(name, "libraries") == 0)
            continue;
        fprintf(out, "  %-10s", name);
        for (int c = 0; c < 4; c++)
            fprintf(out, " %12.3f",
                    units_mib((uint64_t)json_integer_at(peak, columns[c])));
        fputc('\n', out);
    }
}

static void print_plan(const json_t *plan, FILE *out)
{
    struct look look = look_of_stdout();
    const json_t *device = json_object_get(plan, "device");
    bool on_gpu = strcmp(json_text_of(device, "backend", ""), "cuda") == 0;
    bool is_meshed =
            fill_number(plan, "mesh.shard") < fill_number(plan, "world");
    look.out = out;
    fill_print(
            &look, plan,
            "model    {model|s}, {parameters.all_parameters|w} parameters "
            "({parameters.trainable_parameters|w} trained)\n");
    fill_print(
            &look, device,
            on_gpu ? "device   cuda[: {name|s}][, of another machine: "
                     "{no_gpu|s}]\n"
                   : "device   cpu[: {no_gpu|s}; for a machine with GPUs add "
                     "--set device.backend=cuda]\n");
    if (is_meshed)
        fill_print(&look, plan, mesh);
    fill_print(&look, plan, layout);
    print_memories(&look, plan);
    fill_print(&look, plan, figures);
    if (is_meshed)
        print_wire(&look, plan);
    fill_print(&look, plan, rest);
    print_peaks(json_object_get(plan, "phases"), out);
}

/* --- a plan and its time --- */

struct advice {
    const struct cli_args *args;
    const struct train_job *job;
    const struct plan_machine *machine;
    struct job_plan plan;
    struct plan_prediction predicted;
    struct plan_found change; /* of one choice, within the limits: the one that
                                 helps most; without settings: none does */
};

/* A prediction cannot tell a smaller gain from its own error. */
static const double worth_telling = 0.98;

static enum zd_status find_change(struct advice *advice)
{
    const struct job_plan *plan = &advice->plan;
    const struct train_job settled = plan_settled(advice->job, plan);
    const struct plan_search search = {
            .job = &settled,
            .world = plan->world,
            .local_size = (int)advice->args->per_node,
            .machine = advice->machine};
    const struct plan_query query = {
            .search = &search,
            .space = plan_space_fit(advice->job, 0),
            .keeps_batch = true,
            .score = PLAN_BY_TIME,
            .changes_most = 1,
            .limits = &plan->limits};
    ZD_FREED struct plan_found *found = NULL;
    int count;
    ZD_TRY(plan_search_run(&query, &found, &count));
    if (count && found[0].predicted.step_seconds <=
                         worth_telling * advice->predicted.step_seconds)
        advice->change = found[0];
    return ZD_OK;
}

/* Of all steps; 0: not known, epochs of data that was not counted. */
static double seconds_of(const struct advice *advice)
{
    int64_t steps = advice->job->train.max_steps;
    return steps > 0 ? (double)steps * advice->predicted.step_seconds : 0;
}

static json_t *advice_json(const struct advice *advice, const char *change)
{
    json_t *json = plan_prediction_json(&advice->predicted, advice->machine);
    double seconds = seconds_of(advice);
    if (seconds > 0)
        json_object_set_new(json, "days", json_real(seconds / 86400));
    if (*change)
        json_object_set_new(
                json, "change",
                json_pack(
                        "{s:s, s:f}", "arguments", change, "step_seconds",
                        advice->change.predicted.step_seconds));
    return json;
}

static void print_time(const struct advice *advice, int digits, FILE *stream)
{
    double seconds = seconds_of(advice);
    char time[UNITS_TEXT];
    if (seconds > 0)
        fprintf(stream,
                "         %" PRId64 " steps: ", advice->job->train.max_steps);
    else
        fputs("         the data decides the number of steps; 1e9 tokens: ",
              stream);
    fprintf(stream, "%s\n",
            units_time(
                    seconds > 0 ? seconds
                                : 1e9 / advice->predicted.tokens_per_second,
                    digits, time));
}

static void print_advice(
        const struct advice *advice, const char *change, FILE *stream)
{
    const struct plan_machine *machine = advice->machine;
    const struct plan_prediction *predicted = &advice->predicted;
    int digits = plan_machine_digits(machine);
    fprintf(stream, "predicted %s s a step, %s tokens/s, on %s%s\n",
            UNITS_NUMBER(predicted->step_seconds, digits),
            UNITS_NUMBER(predicted->tokens_per_second, digits + 1),
            machine->name,
            !machine->is_measured ? ", by its table"
            : advice->plan.world > 1 && !machine->wire_is_measured
                    ? ", as measured, but for the wire"
                    : ", as measured");
    if (machine->is_measured || machine->is_guess)
        fprintf(stream, "         %s\n",
                machine->is_guess ? plan_guess_words : machine->what);
    for (int p = 0; p < PLAN_PARTS; p++)
        fprintf(stream, "%s %s %s s", p ? "," : "        ", plan_part_names[p],
                UNITS_NUMBER(predicted->parts[p], digits));
    fputc('\n', stream);
    for (int e = 0; e < PLAN_EXPOSED; e++)
        fprintf(stream, "%s %s %s s",
                e ? "," : "         of these the device waits for:",
                plan_exposed_names[e],
                UNITS_NUMBER(predicted->exposed[e], digits));
    fputc('\n', stream);
    print_time(advice, digits, stream);
    fprintf(stream, "         %s binds\n",
            plan_resource_words[predicted->binds]);
    if (*change)
        fprintf(stream, "         the change that helps most: %s (%s s)\n",
                change,
                UNITS_NUMBER(advice->change.predicted.step_seconds, digits));
    else
        fputs("         no single change that fits helps by 2 %\n", stream);
}

static void tell(const struct advice *advice)
{
    const struct job_plan *plan = &advice->plan;
    struct text_buffer change = TEXT_BUFFER(800);
    json_auto_t *json = job_plan_json(plan, NULL);
    settings_print(&advice->change.settings, &change);
    json_object_set_new(json, "predicted", advice_json(advice, change.out));
    json_object_set_new(json, "phases", plan_peaks_json(advice->job, plan));
    if (cli_wants_json(advice->args)) {
        output_json(json);
    } else {
        OUTPUT(stream);
        print_plan(json, stream);
        print_advice(advice, change.out, stream);
        if (plan->backend == DEVICE_CUDA && !advice->args->machine &&
            !advice->machine->is_measured)
            fputs("         for another GPU: --machine h200, a100 or 4090\n",
                  stream);
    }
}

static enum zd_status advise(struct advice *advice)
{
    const struct job_plan *plan = &advice->plan;
    advice->predicted = plan_predict(plan, advice->machine);
    ZD_TRY(find_change(advice));
    plan_warn(plan, &advice->predicted);
    plan_warn_of_fp8(plan, advice->machine);
    tell_of_share(advice->args, advice->job, plan);
    tell(advice);
    return ZD_OK;
}

/* A run has the tokenizer, with which it may warn, or end. */
static void warn_of_tokenizer(
        const struct train_job *job, const struct job_plan *plan)
{
    ZD_SCOPED(text_close) struct text text = {0};
    const char *path = train_tokenizer(job);
    if (path ? !fs_exists(path) : !job->model.config)
        return; /* a plan needs config.json alone */
    if (text_open(job, &plan->config, &text) != ZD_OK)
        zd_log_warning("a run would be refused: %s", zd_error_get()->what);
    zd_error_clear();
}

static enum zd_status plan_one(
        const struct cli_args *args, const struct job *job)
{
    struct advice advice = {.args = args, .job = job_options(job)};
    struct plan_calibration here;
    ZD_TRY(job_plan_build(
            advice.job, (int)args->world, (int)args->per_node, NULL,
            &advice.plan));
    warn_of_machine(&advice.plan);
    model_config_warn(&advice.plan.config);
    warn_of_tokenizer(advice.job, &advice.plan);
    enum zd_status status = cli_machine(
            args, advice.job->device.backend, &here, &advice.machine);
    ZD_THEN(status, advise(&advice));
    job_plan_fini(&advice.plan);
    return status;
}

enum zd_status command_plan(struct cli_args *args)
{
    enum { KEPT_BYTES = 32 << 20 }; /* the most that glibc takes */
    struct job *job;
    /* a search takes and gives back the same memory thousands of times */
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    if (!args->world && !args->min) {
        args->world = 1;
        zd_log_info("planned for one rank; --world N plans for N");
    }
    ZD_TRY(check_nodes(args));
    cli_assume_device(args);
    ZD_TRY(cli_need_job(args, (int)args->world, JOB_PATHS_IGNORED, &job));
    const struct device_options *options = &job_options(job)->device;
    struct device *device = command_open_gpu(options);
    enum zd_status status = cli_check_share(
            options->memory_limit_fraction > 0, options->backend);
    ZD_THEN(status, cli_check_limits(args, job_options(job)));
    ZD_THEN(status, args->max || args->min ? command_plan_most(args, job)
                    : args->fit            ? command_plan_fit(args, job)
                                           : plan_one(args, job));
    if (status != ZD_OK && cli_wants_json(args))
        cli_print_record(args);
    device_close(device);
    job_free(job);
    return status;
}

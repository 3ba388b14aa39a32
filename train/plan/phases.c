/* phases.c - a rank's peak memory in each phase of a run. */
#include "model/slice.h"
#include "train/plan/fit.h"

/* Allowance for the program, libraries and stacks on top of the plan. Jobs on
 * the CPU device were measured to use 3 to 38 MiB of it. */
enum { LIBRARIES_BYTES = 64 << 20 };

/* --- files ---------------------------------------------------------------- */

/* Bytes of a tensor's m and v; ranks' parts begin at whole qblocks. */
static uint64_t lane_bytes(const struct zero_plan *zero, int id)
{
    const struct param *param = &zero->request.table->params[id];
    const struct optim_layout layout = zero_layout_of(zero, id);
    size_t count = param_whole_count(param);
    uint64_t bytes = 0;
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout.lane[lane];
        if (format == OPTIM_BLOCKS)
            bytes += (uint64_t)param->blocks.count * sizeof(float);
        else
            bytes += optim_lane_bytes(format, count) +
                     optim_scale_count(format, count) * sizeof(float);
    }
    return bytes;
}

uint64_t plan_checkpoint_bytes(
        const struct train_job *job, const struct job_plan *plan)
{
    const struct zero_request *request = &plan->zero.request;
    uint64_t bytes = 0, width = request->optim.master == OPTIM_MASTER_FP32
                                        ? sizeof(float)
                                        : dtype_bytes(request->dtype);
    for (int id = 0; id < plan->table.count; id++) {
        if (!plan->table.params[id].trainable)
            continue;
        bytes += plan->table.params[id].count * width;
        if (!job->checkpoint.save_only_model)
            bytes += lane_bytes(&plan->zero, id);
    }
    return bytes;
}

static uint64_t export_bytes(
        const struct train_job *job, const struct job_plan *plan)
{
    const struct param_table *table = &plan->table;
    bool adapters = table->adapters && job->checkpoint.export == EXPORT_PEFT;
    uint64_t count = 0;
    for (int id = 0; id < table->count; id++) {
        const struct param *param = &table->params[id];
        if (adapters ? param->trainable : param->part == PARAM_BASE)
            count += param->count;
    }
    bool is_wide = adapters && job->model.dtype < 0;
    return count * (is_wide ? sizeof(float) : dtype_bytes(plan->export_dtype));
}

/* --- buffers -------------------------------------------------------------- */

enum {
    CHUNK = 1 << 20, /* elements in buffers of load.c, shard.c and zero's
                        ranges */
    PIECE = 1 << 18, /* .. and export_hf.c */
    PAGES = 1 << 20, /* a writer's headers and digest */
};

static uint64_t most_scale_bytes(const struct param_table *table)
{
    uint64_t most = 0;
    for (int id = 0; id < table->count; id++)
        if (param_is_quantized(table, id) &&
            param_scale_bytes(table, id) > most)
            most = param_scale_bytes(table, id);
    return most;
}

/* Buffers as read, in fp32, and as held; with scales of a quantized base and of
 * a slice. */
static uint64_t load_buffers(const struct job_plan *plan)
{
    return 3 * CHUNK * sizeof(float) + 2 * most_scale_bytes(&plan->table) +
           most_scale_bytes(&plan->slice_table);
}

/* --- phases --------------------------------------------------------------- */

/* Adds a phase if it happens: a rank's bytes, with `host` bytes besides the
 * plan, the device's including libraries; and the files of all ranks. */
static void add_phase(
        json_t *json, const struct job_plan *plan, const char *name,
        bool happens, uint64_t host, uint64_t disk)
{
    const size_t *bytes = plan->arena.bytes;
    host += bytes[ARENA_HOST] + plan->tokenizer_bytes;
    if (happens)
        json_object_set_new(
                json, name,
                json_pack(
                        "{s:I, s:I, s:I, s:I}", "device",
                        (json_int_t)plan_device_bytes(plan), "pinned",
                        (json_int_t)bytes[ARENA_PINNED], "host",
                        (json_int_t)host, "disk", (json_int_t)disk));
}

json_t *plan_peaks_json(
        const struct train_job *job, const struct job_plan *plan)
{
    const struct checkpoint_options *save = &job->checkpoint;
    bool has_data = job->data.eval_count > 0 || job->data.val_split > 0;
    bool saves = job->control.socket != CONTROL_NONE ||
                 save->save_strategy != SAVE_NO;
    json_t *json = json_object();
    add_phase(json, plan, "load", true, load_buffers(plan), 0);
    add_phase(
            json, plan, "train", true, 0,
            plan->arena.bytes[ARENA_DISK] * (uint64_t)plan->world);
    add_phase(json, plan, "evaluate", has_data && plan->shape.eval_B, 0, 0);
    add_phase(json, plan, "sample", plan->shape.decode_capacity > 0, 0, 0);
    add_phase(
            json, plan, "save", saves, CHUNK * sizeof(float) + PAGES,
            plan_checkpoint_bytes(job, plan));
    add_phase(
            json, plan, "export", save->export != EXPORT_NONE,
            2 * PIECE * sizeof(float) + PAGES, export_bytes(job, plan));
    json_object_set_new(
            json, "libraries",
            json_pack(
                    "{s:I, s:I}", "device", (json_int_t)plan->context_bytes,
                    "host", (json_int_t)LIBRARIES_BYTES));
    return json;
}

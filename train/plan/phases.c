/* phases.c - what a rank has at most in each phase of a run. */
#include "model/slice.h"
#include "train/plan/fit.h"

/* Allowed for the program, its libraries and stacks on top of the plan. Jobs on
 * the CPU device were seen to take 3 to 38 MiB of it. */
enum { LIBRARIES_BYTES = 64 << 20 };

enum phase {
    PHASE_LOAD,
    PHASE_TRAIN,
    PHASE_EVALUATE,
    PHASE_SAMPLE,
    PHASE_SAVE,
    PHASE_EXPORT,
    PHASES
};
static const char *const phase_names[PHASES] = {"load",   "train", "evaluate",
                                                "sample", "save",  "export"};

/* Bytes of a rank, the device's with what libraries hold of it; and of all
 * ranks the files of one time. */
enum { DEVICE, PINNED, HOST, DISK, COLUMNS };
static const char *const columns[COLUMNS] = {
        "device", "pinned", "host", "disk"};

struct peak {
    bool happens; /* in a run of the job, or when it is asked for */
    uint64_t bytes[COLUMNS];
};

/* --- files ---------------------------------------------------------------- */

/* A tensor's m and v; parts of ranks begin at whole qblocks. */
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
    CHUNK = 1 << 20, /* elements that load.c, shard.c and zero's ranges hold */
    PIECE = 1 << 18, /* .. and export_hf.c */
    PAGES = 1 << 20, /* a writer's own: headers, a digest's tail */
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

/* As read, in fp32, and as it is held; with the scales of a quantized base, and
 * those of a slice. */
static uint64_t load_buffers(const struct job_plan *plan)
{
    return 3 * CHUNK * sizeof(float) + 2 * most_scale_bytes(&plan->table) +
           most_scale_bytes(&plan->slice_table);
}

/* --- phases --------------------------------------------------------------- */

static void peaks_of(
        const struct train_job *job, const struct job_plan *plan,
        struct peak out[PHASES])
{
    const struct arena_plan *arena = &plan->arena;
    bool has_data = job->data.eval_count > 0 || job->data.val_split > 0;
    bool asks = job->control.socket != CONTROL_NONE;
    for (int phase = 0; phase < PHASES; phase++)
        out[phase] = (struct peak){
                true,
                {plan_device_bytes(plan), arena->bytes[ARENA_PINNED],
                 arena->bytes[ARENA_HOST] + plan->tokenizer_bytes, 0}};
    out[PHASE_EVALUATE].happens = has_data && plan->shape.eval_B > 0;
    out[PHASE_SAMPLE].happens = plan->shape.decode_capacity > 0;
    out[PHASE_SAVE].happens = asks || job->checkpoint.save_strategy != SAVE_NO;
    out[PHASE_EXPORT].happens = job->checkpoint.export != EXPORT_NONE;
    out[PHASE_LOAD].bytes[HOST] += load_buffers(plan);
    out[PHASE_SAVE].bytes[HOST] += CHUNK * sizeof(float) + PAGES;
    out[PHASE_EXPORT].bytes[HOST] += 2 * PIECE * sizeof(float) + PAGES;
    out[PHASE_TRAIN].bytes[DISK] =
            arena->bytes[ARENA_DISK] * (uint64_t)plan->world;
    out[PHASE_SAVE].bytes[DISK] = plan_checkpoint_bytes(job, plan);
    out[PHASE_EXPORT].bytes[DISK] = export_bytes(job, plan);
}

/* --- as JSON -------------------------------------------------------------- */

json_t *plan_peaks_json(
        const struct train_job *job, const struct job_plan *plan)
{
    struct peak peaks[PHASES];
    json_t *json = json_object();
    peaks_of(job, plan, peaks);
    for (int phase = 0; phase < PHASES; phase++) {
        json_t *peak = json_object();
        for (int c = 0; c < COLUMNS; c++)
            json_object_set_new(
                    peak, columns[c],
                    json_integer((json_int_t)peaks[phase].bytes[c]));
        if (peaks[phase].happens)
            json_object_set(json, phase_names[phase], peak);
        json_decref(peak);
    }
    json_object_set_new(
            json, "libraries",
            json_pack(
                    "{s:I, s:I}", "device", (json_int_t)plan->context_bytes,
                    "host", (json_int_t)LIBRARIES_BYTES));
    return json;
}

/* setup.c - prepares a run for its first step, in the order that finds a user's
 * mistakes earliest: plan, output, text, data, memory, weights. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "model/files/export_hf.h"
#include "model/files/weights_hf.h"
#include "train/checkpoint/model_files.h"
#include "train/plan/fit.h"
#include "train/plan/machine.h"
#include "train/plan/predict.h"
#include "train/run.h"
#include "train/trainer/rank_device.h"
#include "zero/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool has_file_prefix(
        const struct train_job *job, const struct model_config *config)
{
    bool is_made = !job->model.path ||
                   (job->model.init == MODEL_RANDOM && !config->wrapper);
    return is_made || weights_hf_has_prefix(job->model.path, config);
}

static enum zd_status fix_steps(struct trainer *trainer)
{
    const struct train_options *train = &trainer->job->train;
    int64_t M = dataset_summary(trainer->train_data).samples;
    int64_t steps = train->max_steps;
    if (steps <= 0)
        steps = (int64_t)ceil(
                train->num_train_epochs * (double)M /
                (double)trainer->job_batch);
    trainer->state = (struct train_state){
            .max_steps = steps,
            .eval_loss = NAN,
            .best_eval_loss = NAN,
            .eval_step = -1,
            .best_step = -1};
    if (train->dtype == DTYPE_FP16)
        trainer->state.loss_scale = loss_scale_start(&train->fp16);
    if (steps <= 0)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0214",
                "train.num_train_epochs = %g of %lld samples make no step",
                train->num_train_epochs, (long long)M);
    int64_t warmup = optim_warmup_steps(&trainer->job->optim, steps);
    if (warmup > steps)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0214",
                "optim.warmup_steps = %lld is beyond the %lld steps of the run",
                (long long)warmup, (long long)steps);
    return ZD_OK;
}

static bool offloads(const struct trainer *trainer)
{
    const struct offload_options *offload = &trainer->job->offload;
    return offload->optimizer != OFFLOAD_NONE ||
           offload->params != OFFLOAD_NONE ||
           offload->activations != OFFLOAD_NONE ||
           trainer->plan.zero.request.spill_bytes > 0;
}

static enum zd_status create_streams(struct trainer *trainer)
{
    if (!offloads(trainer))
        return ZD_OK;
    enum stream_mode mode = device_stream_mode(&trainer->job->device, true);
    ZD_TRY(stream_create("down", mode, &trainer->streams_down));
    return stream_create("up", mode, &trainer->streams_up);
}

/* The offload engine's threads: as many as the rank computes with, bound to
 * their own CPUs if ranks share a machine. With more ranks than CPUs, ranks are
 * not bound. */
static struct offload_place place_of(struct trainer *trainer)
{
    const struct train_job *job = trainer->job;
    int cpus = device_affinity_cpus();
    int threads = job->offload.threads
                          ? job->offload.threads
                          : rank_device_threads(job, trainer->comm);
    bool share = cpus == device_online_cpus();
    int first = share ? comm_local_rank(trainer->comm) * threads : 0;
    ZD_PRINT(
            trainer->offload_file, "zerod-%.16s-rank-%05d.states",
            job->digest ? job->digest : "job", comm_rank(trainer->comm));
    return (struct offload_place){
            .down = trainer->streams_down,
            .up = trainer->streams_up,
            .streams = device_stream_mode(&job->device, true),
            .worker_threads = threads,
            .first_cpu = first + threads <= cpus ? first : -1,
            .file_name = trainer->offload_file};
}

/* Plans matmuls for the multiprocessors that NCCL leaves. */
static void leave_multiprocessors(const struct trainer *trainer)
{
    bool has_nccl = comm_size(trainer->comm) > 1 &&
                    comm_transport(trainer->comm) == COMM_TRANSPORT_NCCL;
    int count =
            comm_max_ctas(&trainer->job->comm, device_facts().multiprocessors);
    kernels_leave_multiprocessors(has_nccl ? count : 0);
}

static enum zd_status take_memory(struct trainer *trainer)
{
    const struct job_plan *plan = &trainer->plan;
    ZD_TRY(create_streams(trainer));
    ZD_TRY(kernels_device(trainer->job->train.dtype, &trainer->kernels));
    kernels_allow_tf32(trainer->job->train.tf32);
    leave_multiprocessors(trainer);
    ZD_TRY(arena_take(&trainer->arena, &plan->arena));
    comm_set_memory(trainer->comm, &trainer->arena);
    if (device_backend() == DEVICE_CUDA)
        ZD_TRY(device_lend_staging(
                arena_span(&trainer->arena, "device.staging")));
    struct model_shape shape = plan->shape;
    shape.token_loss = trainer->objective->token_loss;
    ZD_TRY(model_create(
            plan_slice_config(plan), plan_slice_table(plan), &shape,
            trainer->kernels, &trainer->arena, &trainer->model));
    struct model_streams streams = {trainer->streams_down, trainer->streams_up};
    model_set_streams(trainer->model, &streams);
    struct offload_place place = place_of(trainer);
    return zero_create(
            &plan->zero, trainer->comm, &trainer->arena, &place,
            &trainer->zero);
}

/* Creates the snapshot for background saves, if every rank has the memory. */
static enum zd_status make_snapshot(struct trainer *trainer)
{
    struct job_plan *plan = &trainer->plan;
    int64_t count = plan->snapshot_bytes > 0;
    ZD_TRY(comm_all_reduce_i64(trainer->comm, &count, 1, COMM_SUM));
    if (count < comm_size(trainer->comm)) {
        if (plan->snapshot_bytes > 0)
            plan->no_snapshot = "not every host has the memory";
        return ZD_OK;
    }
    trainer->snapshot = zero_snapshot_create(
            trainer->zero, !trainer->job->checkpoint.save_only_model,
            arena_span(&trainer->arena, "checkpoint.snapshot"),
            (size_t)plan->snapshot_bytes);
    return ZD_OK;
}

/* CPUs of this rank's share that do not compute. */
static int idle_cpus(const struct trainer *trainer)
{
    int mask = device_affinity_cpus(), online = device_online_cpus();
    int ranks = comm_local_size(trainer->comm);
    int idle = device_rank_cpus(mask, online, ranks) -
               rank_device_threads(trainer->job, trainer->comm);
    return idle > 0 ? idle : 0;
}

/* Touches the snapshot's pages, so that no save waits for page faults: during
 * steps if this rank has an idle CPU, else now. */
static void warm_snapshot(struct trainer *trainer)
{
    int idle = idle_cpus(trainer);
    if (!trainer->snapshot)
        return;
    zero_snapshot_help(trainer->snapshot, idle);
    zero_snapshot_warm(trainer->snapshot, idle > 0);
}

/* Predicts the time of a step from rank 0's calibration, else from the
 * backend's table, for all ranks' watches. */
static enum zd_status predict(struct trainer *trainer)
{
    struct plan_calibration here;
    struct plan_prediction of = {.step_seconds = 0};
    char why[400];
    struct job_plan *plan = &trainer->plan;
    if (trainer_is_first(trainer)) {
        const struct plan_machine *machine =
                calibration_find(plan->backend, &here, why);
        machine = machine ? machine : plan_machine_default(plan->backend);
        of = plan_predict(plan, machine);
        plan->predicted = plan_prediction_json(&of, machine);
        plan_warn(plan, &of);
    }
    ZD_TRY(comm_broadcast(
            trainer->comm, &of.step_seconds, sizeof of.step_seconds, 0));
    comm_predict(trainer->comm, of.step_seconds);
    return ZD_OK;
}

static enum zd_status write_plan(const struct trainer *trainer)
{
    json_auto_t *json = job_plan_json(&trainer->plan, &trainer->arena);
    json_object_set_new(
            json, "phases", plan_peaks_json(trainer->job, &trainer->plan));
    return json_write_file(
            fs_in(trainer->job->job.output_dir, "plan.json").text, json);
}

/* Adds config.json for a model described in the job file. */
static void add_config(struct trainer *trainer)
{
    json_auto_t *config = json_copy(trainer->plan.config.json);
    int eos = trainer->text.eos;
    if (eos >= 0 && !json_is_integer(json_object_get(config, "eos_token_id")))
        json_object_set_new(config, "eos_token_id", json_integer(eos));
    ZD_FREED char *text = json_text(config);
    json_object_set_new(
            trainer->model_files, "config.json", json_string_nocheck(text));
}

/* Keeps the files of the model's folder that checkpoints and export need. */
static enum zd_status keep_files(struct trainer *trainer)
{
    const struct model_options *model = &trainer->job->model;
    const char *dir = model->config ? NULL : model->path;
    bool has_config = dir && !trainer->plan.config.stored_rows;
    ZD_TRY(model_files_read(
            dir, trainer->text.dir, has_config, &trainer->model_files));
    if (!has_config)
        add_config(trainer);
    if (trainer->text.config)
        json_object_set_new(
                trainer->model_files, "tokenizer_config.json",
                json_string(trainer->text.config));
    return ZD_OK;
}

/* Tries the export's folder early, before the run has cost anything. */
static enum zd_status try_export(const struct trainer *trainer)
{
    const struct train_job *job = trainer->job;
    bool is_over = trainer->state.step >= trainer->state.max_steps;
    if (is_over || job->checkpoint.export == EXPORT_NONE)
        return ZD_OK;
    return weights_export_check(
            export_dir(job).text, job->checkpoint.export == EXPORT_PEFT);
}

/* Syncs rows and events to disk before a checkpoint that counts on them is
 * committed; the committing worker waits. */
static enum zd_status harden_rows(const void *ctx)
{
    const struct trainer *trainer = ctx;
    ZD_TRY(file_writer_sync(trainer->metrics));
    return events_sync(trainer->events);
}

static void fill_writer(struct trainer *trainer)
{
    const struct train_job *job = trainer->job;
    const struct dataset_summary data = dataset_summary(trainer->train_data);
    trainer->writer = (struct checkpoint_writer){
            .comm = trainer->comm,
            .job = job,
            .plan = &trainer->plan,
            .zero = trainer->zero,
            .model_files = trainer->model_files,
            .file_prefix = has_file_prefix(job, &trainer->plan.config),
            .identity =
                    {.data_digest = data.digest,
                     .packing = data.packing,
                     .order = data.order,
                     .tokenizer_digest =
                             trainer->text.tokenizer
                                     ? tokenizer_facts(trainer->text.tokenizer)
                                               ->digest
                                     : "",
                     .template_date = trainer->ahead.date},
            .global_batch = trainer->job_batch,
            .harden_rows = harden_rows,
            .rows = trainer,
    };
}

static enum zd_status open_metrics(struct trainer *trainer)
{
    const struct fs_path path =
            fs_in(trainer->job->job.output_dir, "metrics.jsonl");
    return COMM_FIRST(
            trainer->comm,
            metrics_open(path.text, trainer->state.step, &trainer->metrics));
}

/* Opens the events: from here on they are recorded if the run begins. */
static enum zd_status open_events(struct trainer *trainer)
{
    const struct fs_path path =
            fs_in(trainer->job->job.output_dir, EVENTS_FILE);
    enum zd_status status = COMM_FIRST(
            trainer->comm,
            events_open(path.text, trainer->observer, &trainer->events));
    trainer->had_events = events_last_id(trainer->events) > 0;
    hang_listen(trainer);
    trainer_tell_state(trainer, RUN_STARTING);
    return status;
}

/* log.rank_logs = "files": each rank keeps its own log. */
static enum zd_status open_log(struct trainer *trainer)
{
    char name[32];
    const struct train_job *job = trainer->job;
    if (job->log.rank_logs != RANK_LOGS_FILES)
        return ZD_OK;
    const struct fs_path dir = fs_in(job->job.output_dir, "logs");
    struct stat info;
    enum zd_status status = fs_make_dirs(dir.text);
    if (status == ZD_OK &&
        (lstat(dir.text, &info) != 0 || !S_ISDIR(info.st_mode)))
        status =
                ZD_FAIL(ZD_ERR_CREATE, "E0701",
                        "cannot write logs to %s: it is a link, not a folder",
                        dir.text);
    ZD_PRINT(name, "rank-%05d.log", comm_rank(trainer->comm));
    ZD_THEN(status, zd_log_open(fs_in(dir.text, name).text));
    return comm_agree(trainer->comm, status);
}

static void show_banner(struct trainer *trainer)
{
    const struct train_job *job = trainer->job;
    const struct dataset_summary data = dataset_summary(trainer->train_data);
    struct train_banner banner = {
            .job = job,
            .plan = &trainer->plan,
            .arena = &trainer->arena,
            .kernels = trainer->kernels->name,
            .tokenizer =
                    trainer->text.tokenizer
                            ? tokenizer_facts(trainer->text.tokenizer)->describe
                            : "none: the data is tokenized",
            .chat_template = data.chat_template,
            .threads = rank_device_threads(job, trainer->comm),
            .accumulation_max = trainer->batch_room - 1, /* one is read ahead */
            .world = comm_size(trainer->comm),
            .local_size = comm_local_size(trainer->comm),
            .state = &trainer->state,
            .samples = data.samples,
            .data = trainer->train_data,
            .train_tokens = data.tokens,
            .eval_samples =
                    trainer->eval_data
                            ? dataset_summary(trainer->eval_data).samples
                            : 0,
            .eos = trainer->text.eos,
            .offload = zero_offload_facts(trainer->zero),
            .deadline = trainer->deadline.at,
            .resumed_from =
                    trainer->resumed_from[0] ? trainer->resumed_from : NULL,
    };
    live_settings(trainer, banner.settings);
    if (trainer_is_first(trainer) && trainer->observer->banner)
        trainer->observer->banner(trainer->observer->ctx, &banner);
}

static enum zd_status prepare(struct trainer *trainer)
{
    const struct train_job *job = trainer->job;
    if (trainer_is_first(trainer))
        deadline_init(&job->run, clock_wall_seconds(), &trainer->deadline);
    ZD_TRY(rank_device_open(trainer));
    ZD_TRY(comm_device_create(trainer->control, &job->comm, &trainer->comm));
    ZD_TRY(trainer_look_ahead(trainer));
    struct train_job planned = *job;
    enum zd_status status = live_plan_batch(trainer, &planned.train);
    if (status == ZD_OK)
        status = job_plan_build(
                &planned, trainer->plan.world, comm_local_size(trainer->comm),
                trainer->comm, &trainer->plan);
    ZD_THEN(status, plan_check_machine(job, &trainer->plan));
    if (status == ZD_OK && trainer->plan.zero.states_on_host)
        status = offload_check(
                &job->offload, trainer->plan.zero.needs.offload,
                comm_local_size(trainer->comm));
    ZD_TRY(comm_agree(trainer->comm, status));
    ZD_TRY(output_dir_open(
            trainer->comm, job->job.output_dir, (mode_t)job->job.output_mode,
            &trainer->output_dir));
    ZD_TRY(open_events(trainer));
    ZD_TRY(open_log(trainer));
    status = text_open(job, &trainer->plan.config, &trainer->text);
    ZD_TRY(comm_agree(trainer->comm, status));
    ZD_TRY(COMM_FIRST(trainer->comm, keep_files(trainer)));
    ZD_TRY(trainer_open_data(trainer));
    const struct sample_request samples = trainer_sample_of_job(trainer);
    if (job->sample.steps > 0)
        ZD_TRY(comm_agree(
                trainer->comm, trainer_sample_check(trainer, &samples)));
    ZD_TRY(comm_agree(trainer->comm, fix_steps(trainer)));
    ZD_TRY(comm_agree(trainer->comm, take_memory(trainer)));
    trainer->batch_room = job_plan_batches(job, trainer->plan.accumulation);
    fill_writer(trainer);
    return ZD_OK;
}

/* A rough estimate until a save has been measured: 12 bytes per parameter. */
static double guess_save_seconds(const struct trainer *trainer)
{
    double bytes = 12.0 * (double)trainer->plan.table.total;
    return 0.05 + bytes / 200e6;
}

static enum zd_status read_state(struct trainer *trainer)
{
    ZD_TRY(trainer_resume(trainer));
    ZD_TRY(COMM_FIRST(trainer->control, try_export(trainer)));
    if (trainer->resumed_from[0])
        return ZD_OK;
    return trainer_load_weights(trainer, param_has_base(&trainer->plan.table));
}

static enum zd_status resume_or_load(struct trainer *trainer)
{
    struct comm_files *files = comm_files_begin(trainer->comm, "load");
    enum zd_status status = read_state(trainer);
    comm_files_end(files);
    return status;
}

enum zd_status trainer_init(
        struct trainer *trainer, const struct train_job *job, struct comm *comm,
        const struct train_observer *observer, bool *finished_out)
{
    trainer->job = job;
    trainer->objective = &objective_sft;
    trainer->comm = trainer->control = comm;
    trainer->observer = observer;
    trainer->output_dir.lock = -1;
    trainer->last_saved_step = -1;
    trainer->plan.world = comm_size(comm);
    trainer->last_loss = NAN;
    trainer->history.rows = json_array();
    trainer->started = trainer->last_save_time = clock_seconds();

    comm_work(comm, WORK_START);
    ZD_TRY(prepare(trainer));
    trainer->save_seconds = guess_save_seconds(trainer);
    ZD_TRY(resume_or_load(trainer));
    *finished_out = trainer->state.step >= trainer->state.max_steps;
    ZD_TRY(make_snapshot(trainer));
    ZD_TRY(predict(trainer));
    ZD_TRY(rank_device_tell(trainer));
    ZD_TRY(COMM_FIRST(trainer->comm, write_plan(trainer)));
    show_banner(trainer);
    if (*finished_out)
        return ZD_OK;
    ZD_TRY(open_metrics(trainer));
    ZD_TRY(comm_agree(comm, events_begin(trainer->events)));
    warm_snapshot(trainer);
    ZD_TRY(comm_agree(comm, batches_start(trainer)));
    comm_work(comm, WORK_NONE);
    return ZD_OK;
}

/* Waits until pending rows are on disk. */
static void close_rows(struct trainer *trainer)
{
    struct comm_files *files = comm_files_begin(trainer->control, "end");
    enum comm_work before = comm_work(trainer->control, WORK_SAVE);
    file_writer_close(trainer->metrics);
    events_close(trainer->events);
    comm_work(trainer->control, before);
    comm_files_end(files);
}

void trainer_destroy(struct trainer *trainer)
{
    /* their pending copies use memory that is freed below */
    stream_finish(trainer->streams_down);
    stream_finish(trainer->streams_up);
    batches_stop(trainer);
    hang_forget(trainer);
    stragglers_fini(&trainer->stragglers);
    if (!saves_end(trainer)) {
        zd_log_warning("the disk still holds up a file of the last save; the "
                       "end of the run does not wait for it");
        return;
    }
    zero_snapshot_destroy(trainer->snapshot);
    close_rows(trainer);
    json_decref(trainer->history.rows);
    zero_destroy(trainer->zero);
    model_destroy(trainer->model);
    stream_destroy(trainer->streams_down);
    stream_destroy(trainer->streams_up);
    trace_destroy(trainer->trace);
    if (trainer->comm != trainer->control)
        comm_destroy(trainer->comm); /* before the memory that it has
                                        registered */
    device_lend_staging(NULL);
    arena_release(&trainer->arena);
    dataset_close(trainer->train_data);
    dataset_close(trainer->eval_data);
    text_close(&trainer->text);
    json_decref(trainer->model_files);
    free(trainer->base_digests);
    output_dir_close(&trainer->output_dir);
    job_plan_fini(&trainer->plan);
    rank_device_close(trainer);
    free(trainer);
}

/* plan.h - plans a rank's memory and traffic; pure, for any number of ranks,
 * without MPI. */
#pragma once

#include "train/job/options.h"
#include "zero/plan.h"

/* Minimum over a run's ranks of what is free now. */
struct plan_free {
    uint64_t host;   /* bytes of its share of a machine */
    uint64_t device; /* of a GPU; INT64_MAX: the CPU */
};

/* The limits of a rank. The CPU device uses the host's memory: `total` limits
 * both together, unless the job limits each (perhaps for another machine; a run
 * must still fit this one). On a GPU `device` includes the driver's memory;
 * without a limit from the job or the thread's device there is none. */
struct plan_limits {
    uint64_t device, host, total; /* bytes; UINT64_MAX: no limit */
    bool on_gpu;
    bool limits_device, limits_host; /* given by the job; else the machine's */
    bool is_free;                    /* the machine's are what is free now */
    int local_size; /* ranks that share this machine's memory */
};

/* GPU memory of a process besides its allocations, in bytes. The driver's part
 * is measured if the GPU is here and reports it; the rest is an allowance. */
struct plan_context {
    uint64_t driver;      /* the context, local memory of all threads in it */
    uint64_t kernels;     /* our code, loaded at first use */
    uint64_t products;    /* .. cuBLASLt's */
    uint64_t attention;   /* .. cuDNN's */
    uint64_t collectives; /* NCCL's code and the buffers of its channels */
    uint64_t tables;      /* page tables of pinned memory */
    bool is_measured;     /* `driver` */
};

/* Everything that follows from (job, world) without touching data or weights.
 */
struct job_plan {
    struct model_config config; /* of the whole model, as is the table */
    struct param_table table;
    struct model_config slice_config; /* with tensor parallelism: of this rank's
                                         slice */
    struct param_table slice_table;   /* .. else empty */
    struct zero_measures measures;    /* cached for this model and mesh */
    struct cp cp; /* this rank's place among those that share its samples */
    struct peft_config adapter; /* with [lora]; json NULL: none */
    struct zero_plan zero;
    struct arena_plan arena;
    struct model_shape shape;
    int world;
    struct mesh mesh;              /* of `world` */
    int local_size;                /* ranks that share a host's memory */
    enum comm_transport transport; /* of collectives */
    int node_sizes[ZERO_GROUPS];   /* ranks of a node, for two levels */
    bool is_within[ZERO_GROUPS];   /* each group's ranks share a host */
    enum device_backend backend;   /* resolved */
    const char *no_gpu; /* why there is no GPU, if one was requested or would
                           have been used; else NULL; static */
    bool lacks_nccl; /* STAGED is what comm.backend = "auto" means without it */
    struct plan_context context; /* of the device, besides the arena */
    uint64_t context_bytes;      /* its sum; 0: the CPU */
    bool has_update_cores; /* the CPU device: computing and updating threads
                              each have a core */
    int per_device, accumulation; /* B, A */
    bool by_layer;                /* breadth first, and A > 1 */
    int64_t global_batch;         /* G */
    enum dtype export_dtype;
    uint64_t snapshot_bytes;   /* of "checkpoint.snapshot"; 0: synchronous
                                  saves */
    const char *no_snapshot;   /* why saves are synchronous; NULL: no snapshot
                                  requested, or no saves; static */
    struct plan_limits limits; /* that it was fitted to */
    bool knows_free;           /* in a run: `free` of all ranks is known */
    struct plan_free free;
    bool is_forced;           /* it does not fit, and runs anyway (--force) */
    bool chose_checkpointing; /* gradient_checkpointing = "auto" */
    bool chose_pieces;        /* tiled_mlp = "auto" is not 1 */
    bool chose_order;         /* accumulation_order = "auto" is by_layer */
    struct plan_needs {
        uint64_t device, host;
    } other_order; /* .. and the order that it is not needs so much; 0: that was
                      not open */
    json_t *measured;  /* each rank's GPU after the run has taken its memory:
                          [{"rank", and train_gpu_json}]; NULL: the CPU, or not
                          taken; owned */
    json_t *predicted; /* the predicted time of a run's step, or NULL; owned */
    /* part of the arena for evaluations and samples that commands may request
     * (control.socket) */
    uint64_t request_device_bytes, request_host_bytes;
    /* host memory besides the arena: this rank's part of tokenizing during
     * training (dataset_growth_bytes) */
    uint64_t tokenizer_bytes;
    /* why large text is tokenized before step 1; NULL: it is not; static */
    const char *tokenizer_waits;
};

/* The configuration and table of a rank: its slice, or the whole model. Ids are
 * the same. */
static inline const struct model_config *plan_slice_config(
        const struct job_plan *plan)
{
    return plan->mesh.tp > 1 ? &plan->slice_config : &plan->config;
}
static inline const struct param_table *plan_slice_table(
        const struct job_plan *plan)
{
    return plan->mesh.tp > 1 ? &plan->slice_table : &plan->table;
}

/* Reads config.json if model.path is given. ZD_ERR_UNFIT if a limit is
 * exceeded: need, limit, the largest spans, and what would fit. `local_size`:
 * ranks that share this machine's memory without a limit; 0: by
 * plan_local_size. With `comm` (collective) uses its transport and asks all
 * ranks for free memory; NULL: assumes ranks on machines like this one,
 * local_size on each. Sets the kernels' thread count, because their scratch is
 * part of the plan, for `world` ranks on this machine (or local_size if that is
 * not 1). Resolves gradient_checkpointing = "auto", auto_find_batch_size and
 * tiled_mlp = "auto". */
enum zd_status job_plan_build(
        const struct train_job *job, int world, int local_size,
        struct comm *comm, struct job_plan *plan_out);
void job_plan_fini(struct job_plan *plan);
/* Ranks of a host: `local_size`; if 0, all ranks, or on GPUs one per GPU of
 * this machine. */
int plan_local_size(const struct train_job *job, int world, int local_size);
/* The model's configuration with the job's changes; part of job_plan_build. */
enum zd_status job_plan_config(
        const struct train_job *job, struct model_config *config);
/* ZD_ERR_CONFIG if parallel.tp_size does not fit the model, as in
 * job_plan_build; names sizes that also fit cutoff_len and `world` ranks (0:
 * any number). */
enum zd_status job_check_slices(
        const struct train_job *job, const struct model_config *config,
        int world);
/* The same if parallel.cp_comm_type = "a2a" and cp_size does not divide a
 * rank's heads. */
enum zd_status job_check_heads(
        const struct train_job *job, const struct model_config *config,
        int world);
/* ZD_ERR_CONFIG if train.fp8 is set and the base is in nf4, fp4 or int8. */
enum zd_status job_check_fp8_base(
        const struct train_job *job, const struct param_table *table);
/* If lora.modules_to_save names the embedding, extends `config`'s vocabulary to
 * the job's tokenizer; part of job_plan_build. */
enum zd_status job_plan_vocabulary(
        const struct train_job *job, struct model_config *config);
/* The object in plan.json. `taken`: a run's arena, or NULL. New reference. */
json_t *job_plan_json(const struct job_plan *plan, const struct arena *taken);
/* {"replicate", "shard", "cp", "tp"}: the sizes. New reference. */
json_t *job_mesh_json(struct mesh mesh);
/* The model's and the trainable elements; with adapters also their settings and
 * the base's format. New reference. */
json_t *job_plan_parameters(const struct job_plan *plan);
/* Are the codes of an FP8 base multiplied without decoding? */
bool plan_multiplies_codes(const struct job_plan *plan);
/* The format of frozen tensors, "bf16"; NULL: all train. */
const char *job_plan_base_format(const struct job_plan *plan);
/* "a2a" or "allgather", "auto" resolved; NULL: cp_size is 1. */
const char *job_plan_cp_comm(const struct job_plan *plan);
/* This machine's memory per rank for `local_size` ranks; and the bytes of a
 * rank of the plan, on the CPU device and the host together. */
uint64_t job_machine_memory(int local_size);
uint64_t job_plan_memory(const struct job_plan *plan);

/* phases.c: a rank's peak memory in each phase of a run. Steps, evaluations,
 * samples and the copy of a background save use the plan's memory, which is
 * allocated once, before the first phase. Buffers for files, and the files,
 * come on top. {"load": {"device", "pinned", "host", "disk"}, .. "libraries":
 * {"device", "host"}} for the phases that happen. New reference. */
json_t *plan_peaks_json(
        const struct train_job *job, const struct job_plan *plan);

/* The shards of a checkpoint, of all ranks, without their headers. */
uint64_t plan_checkpoint_bytes(
        const struct train_job *job, const struct job_plan *plan);

/* Paged states (m and v) of a rank; both 0 when all of them are on the device.
 */
struct job_paged {
    size_t device, host; /* bytes */
};
struct job_paged job_plan_paged(const struct job_plan *plan);

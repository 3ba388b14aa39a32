/* plan.h - what a rank will hold and send; pure, for any world, without MPI. */
#pragma once

#include "train/job/options.h"
#include "zero/plan.h"

/* Minimum over a run's ranks of what is free now. */
struct plan_free {
    uint64_t host;   /* bytes of its share of a machine */
    uint64_t device; /* of a GPU; INT64_MAX: the CPU */
};

/* What a rank may take. The CPU device lies in the host's memory: `total` holds
 * for both together, unless the job limits each (it may speak of another
 * machine then; the run is held to this one's memory all the same). A GPU has
 * memory of its own, and `device` counts what its driver takes of it too; where
 * neither the job nor the thread's device sets that limit there is none. */
struct plan_limits {
    uint64_t device, host, total; /* bytes; UINT64_MAX: no limit */
    bool on_gpu;
    bool limits_device, limits_host; /* given by the job; else the machine's */
    bool is_free;                    /* the machine's are what is free now */
    int local_size; /* ranks that share this machine's memory */
};

/* What a process has of a GPU besides what it asks for, in bytes. The driver's
 * part is measured where the GPU is at hand and tells; the rest is allowed for.
 */
struct plan_context {
    uint64_t driver;      /* the context, local memory of all threads in it */
    uint64_t kernels;     /* our code, loaded as it is called; likewise .. */
    uint64_t products;    /* .. cuBLASLt's */
    uint64_t attention;   /* .. cuDNN's */
    uint64_t collectives; /* NCCL's code and the buffers of its channels */
    uint64_t tables;      /* of page-locked memory's pages */
    bool is_measured;     /* `driver` */
};

/* Everything that follows from (job, world) without touching data or weights.
 */
struct job_plan {
    struct model_config config; /* of the whole model; so is the table */
    struct param_table table;
    struct model_config slice_config; /* with tensor parallelism: of this */
    struct param_table slice_table;   /* .. rank's place; without, nothing */
    struct zero_measures measures; /* of plans tried of this model and mesh */
    struct cp cp; /* this rank's place among those that share its samples */
    struct peft_config adapter; /* with [lora]; json NULL: none */
    struct zero_plan zero;
    struct arena_plan arena;
    struct model_shape shape;
    int world;
    struct mesh mesh;              /* of it */
    int local_size;                /* ranks that share a host's memory */
    enum comm_transport transport; /* of collectives, and .. */
    int node_sizes[ZERO_GROUPS];   /* .. ranks of a node in two levels */
    bool is_within[ZERO_GROUPS];   /* each group's ranks share a host */
    enum device_backend backend;   /* resolved */
    const char *no_gpu; /* why there is no GPU, if one was requested or would
                           have been used; else NULL; static */
    bool lacks_nccl; /* STAGED is what comm.backend = "auto" means without it */
    struct plan_context context; /* of the device, besides the arena; */
    uint64_t context_bytes;      /* .. its sum; 0: the CPU */
    bool has_update_cores; /* the CPU device: threads that compute and threads
                              that update on the host have a core each here */
    int per_device, accumulation; /* B, A */
    bool by_layer;                /* breadth first, and A > 1 */
    int64_t global_batch;         /* G */
    enum dtype export_dtype;
    uint64_t snapshot_bytes; /* of "checkpoint.snapshot"; 0: saves are .. */
    const char *no_snapshot; /* .. synchronous, and why; NULL: it was not asked
                                for, or nothing is saved; static */
    struct plan_limits limits; /* that it was fitted to */
    bool knows_free;           /* of a run: `free` on all its ranks */
    struct plan_free free;
    bool is_forced;           /* it does not fit, and runs anyway (--force) */
    bool chose_checkpointing; /* gradient_checkpointing = "auto" */
    bool chose_pieces;        /* tiled_mlp = "auto" is not 1 */
    bool chose_order;         /* accumulation_order = "auto" is by_layer */
    struct plan_needs {
        uint64_t device, host;
    } other_order; /* .. and the order that it is not needs so much; 0: that was
                      not open */
    json_t *measured;  /* of each rank's GPU once the run has taken its memory:
                          [{"rank", and what train_gpu_json says}]; NULL: the
                          CPU, or nothing was taken; owned */
    json_t *predicted; /* the time of a step, where a run has asked for it;
                          NULL; owned */
    /* of the arena, room for evaluations and samples that are only asked for
     * while the run goes on (control.socket) */
    uint64_t request_device_bytes, request_host_bytes;
    /* of the host beside the arena: this rank's part of what tokenizing takes
     * while it trains (dataset_growth_bytes) */
    uint64_t tokenizer_bytes;
    /* why large text is tokenized before step 1; NULL: it is not, or the text
     * is small; static */
    const char *tokenizer_waits;
};

/* What a rank computes with: its slice, or the whole model. Ids are the same.
 */
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

/* Reads config.json when model.path is given. ZD_ERR_UNFIT when a limit of
 * [device] is exceeded: need, limit and the largest spans, and what would fit.
 * `local_size`: how many ranks share this machine's memory when no limit is
 * given; 0: as plan_local_size has it. `comm` says how collectives
 * travel, and all its ranks call, which
 * asks them what is free now; NULL: as they would between ranks of machines
 * like this one, local_size on each. Sets the thread count of the kernels,
 * whose scratch is part of the plan, for `world` ranks on this machine (or
 * local_size when that is not 1). Resolves gradient_checkpointing = "auto" and
 * auto_find_batch_size, and tiled_mlp = "auto".
 */
enum zd_status job_plan_build(
        const struct train_job *job, int world, int local_size,
        struct comm *comm, struct job_plan *plan_out);
void job_plan_fini(struct job_plan *plan);
/* Ranks of a host: `local_size`, or, where it is 0, all of them, on GPUs as
 * many as this machine has. */
int plan_local_size(const struct train_job *job, int world, int local_size);
/* The model's configuration with what the job says of it; part of
 * job_plan_build. */
enum zd_status job_plan_config(
        const struct train_job *job, struct model_config *config);
/* ZD_ERR_CONFIG where parallel.tp_size does not fit the model, as
 * job_plan_build has it, with the sizes that also fit cutoff_len and `world`
 * ranks (0: any number). */
enum zd_status job_check_slices(
        const struct train_job *job, const struct model_config *config,
        int world);
/* Likewise where parallel.cp_comm_type = "a2a" and cp_size does not divide the
 * heads of a rank. */
enum zd_status job_check_heads(
        const struct train_job *job, const struct model_config *config,
        int world);
/* ZD_ERR_CONFIG where train.fp8 is set and the base is in nf4, fp4 or int8. */
enum zd_status job_check_fp8_base(
        const struct train_job *job, const struct param_table *table);
/* Where lora.modules_to_save names the embedding, `config` gets a row for each
 * token of the job's tokenizer that it has none for; part of job_plan_build. */
enum zd_status job_plan_vocabulary(
        const struct train_job *job, struct model_config *config);
/* The object of plan.json. `taken`: the arena of a run, or NULL. New reference.
 */
json_t *job_plan_json(const struct job_plan *plan, const struct arena *taken);
/* {"replicate", "shard", "cp", "tp"}: the sizes. New reference. */
json_t *job_mesh_json(struct mesh mesh);
/* How many elements the model has and how many train; with adapters what they
 * are and how the base is held. New reference. */
json_t *job_plan_parameters(const struct job_plan *plan);
/* Is the base in FP8 multiplied as it is stored, matrix by matrix? */
bool plan_multiplies_codes(const struct job_plan *plan);
/* "bf16": how what does not train is held; NULL: all does. */
const char *job_plan_base_format(const struct job_plan *plan);
/* "a2a" or "allgather", also where the job says auto; NULL: cp_size is 1. */
const char *job_plan_cp_comm(const struct job_plan *plan);
/* Bytes that each of `local_size` ranks can have of this machine's memory, and
 * those that a rank of the plan takes, on the CPU device and besides. */
uint64_t job_machine_memory(int local_size);
uint64_t job_plan_memory(const struct job_plan *plan);

/* phases.c: what a rank has at most in each phase of a run. A step, an
 * evaluation, a sample and the copy of a background save use the plan's memory,
 * which is taken once, before the first phase. Buffers for reading and writing
 * files, and the files, come on top. {"load": {"device", "pinned", "host",
 * "disk"}, .. "libraries": {"device", "host"}} of the phases that happen. New
 * reference. */
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

/* internal.h - shared by the files of the forward and backward pass. */
#pragma once

#include "model/activations.h"
#include "model/rope.h"

/* The tokens of a pass; the arrays are the caller's until batch_place has moved
 * them to where kernels read. */
struct pass {
    int micro;                        /* index of the micro-batch */
    int B, T, N;                      /* N tokens here; B samples of T tokens */
    struct attention_queries queries; /* a sample's queries that are here */
    int share; /* tokens whose residual stream is here: N / tp.size */
    const int32_t *tokens, *targets, *doc_start;
    const int32_t *attention_start; /* doc_start of attention's queries: (B, T)
                                       by heads, else doc_start */
    bool by_heads;
    const int32_t *positions;
    const int32_t *own_positions; /* positions of the share */
    int documents;                /* in the B samples together */
    const int32_t *first_tokens;  /* of documents, on a GPU; else NULL */
    /* on a GPU with a backward (kernels/embedding/embedding.h); else NULL */
    const int32_t *token_order, *position_order;
    bool decode;
    const struct decode_run *runs; /* decode: (run_count), with N tokens */
    int run_count;
    int pads; /* decode: the last `pads` of N are padding to fill the shares */
    /* Rows that the head computes; head_targets of them have a target
     * (batch.c). rows NULL: all N, in order. */
    int head_rows, head_targets;
    const int32_t *rows;   /* (head_rows) indices of tokens */
    const int32_t *places; /* (N): index into rows; head_targets: none */
    int first_row;         /* for an MLP's piece: its first token in the pass */
    /* dropout of adapters, in training */
    bool drops;
    int64_t step, first_sample;
    struct activations *acts;
    void *const *inputs; /* acts->inputs in forward, acts->returned in
                            backward */
};

/* Offloaded inputs of segments (residuals.c). Each device buffer has two
 * events: after the last kernels that used it, and after its last copy. */
struct residuals {
    char *host; /* (acts->offloaded) inputs */
    struct model_streams streams;
    int buffers;
    struct event **computed, **moved; /* (buffers), owned */
    struct model_offload_report report;
};

/* The arrays that passes read (batch.c). sent: the copy of a slot to the
 * device. */
enum { LINEAR_PARTS = 3 }; /* joined q, k and v */
enum { BATCH_SLOTS = 2, CPU_PLANES = 4 };
struct batch_upload {
    int32_t *device;  /* (micros, planes); NULL on the CPU */
    int32_t *staging; /* (BATCH_SLOTS, planes) pinned; on the CPU (micros,
                         planes): positions and other results of batch.c */
    int32_t *counts;  /* (rows of the larger table + 1) on the host */
    size_t planes;    /* elements of all planes of the largest pass */
    unsigned next;
    struct event *sent[BATCH_SLOTS];
};

/* A pending sum of the residual stream: its terms are ready, and the norm that
 * reads it also computes it. a NULL: none. */
struct residual_sum {
    const void *a, *b;
};

/* The arrays of the span "model.gathered". */
struct gathered {
    void *all_tokens[2];    /* (N, C) each, with tensor parallelism, for
                               matmuls: [0] input of scatters, or gathered
                               gradients; [1] gathered inputs */
    float *norm_sums[2];    /* for norms over all heads: (N) or (2, N) for q and
                               k, of this place and of all places */
    char *kv_share;         /* (N, k | v) with context parallelism */
    char *kv_all, *dkv_all; /* (B, T, k | v) */
    char *exchanged[2];     /* (N, q | k | v) each, for cp.by_heads */
    size_t bytes;
};

struct model {
    const struct model_config *config;
    const struct param_table *table;
    const struct kernels *kernels;
    struct model_shape shape;
    struct row_strides strides;
    struct activations *passes; /* (activations_passes); owned */
    struct rope_tables ropes[ROPE_SETS];
    void *decoded; /* a dequantized weight for one matmul */
    struct fp8_use fp8_use;
    struct fp8_scratch fp8;
    struct gathered gathered;
    struct vocabulary_slice vocabulary; /* of the token table and the head */
    int whole_vocabulary;               /* over all places */
    struct exact_sum *loss; /* on the device; sum since model_loss_take */
    struct batch_upload upload;
    struct pass *pass; /* (micros) of the last model_forward; owned */
    int pass_count;
    struct residual_sum *due; /* (micros) the pending output of the last layer
                                 that ran; owned */
    int role_offset[ROLES];   /* from a unit's first id; -1: no such tensor */
    int head;                 /* tensor id; if tied the token table's */
    bool *unit_trains;        /* (unit_count); owned */
    double *unit_began;       /* (unit_count) time of acquisition; owned */
    const void **params; /* (table->count), twice as many with codes; set by the
                            hooks; owned */
    void **grads;        /* (table->count), set by the hooks; owned */
    enum dtype product_grads; /* type of gradients for param_is_product */
    struct residuals residuals;
    struct unit_events train_events, eval_events;
    const struct unit_events *program; /* events of the current pass */
    const struct model_hooks *hooks;
    int event;                 /* index of the next event */
    bool embedding_grads_held; /* from the tied head to the embedding */
    bool embedding_accumulates;
};

/* The tensor of a role in a unit; -1: there is none. */
static inline int role_id(const struct model *model, int unit, enum role role)
{
    int offset = model->role_offset[role];
    return offset < 0 ? -1 : model->table->unit_first[unit] + offset;
}

/* plan.c */
int model_positions(const struct model_shape *shape); /* rows of the tables */
size_t model_most_tokens(const struct model_shape *shape); /* in any pass */
/* Lays out the arrays from `base` on; NULL: only sizes. */
struct gathered model_gathered_at(
        const struct model_config *config, const struct model_shape *shape,
        char *base);

/* Calls the hook of places; `count`: elements of a share or part. */
static inline enum zd_status places_call(
        const struct model *model, enum places_call call, void *to,
        const void *from, size_t count)
{
    const struct model_hooks *hooks = model->hooks;
    return hooks->places(hooks->ctx, call, to, from, count);
}

/* *all_out: with tensor parallelism all places' rows, gathered in
 * all_tokens[i]; else `share`. `rows`: tokens of the share. */
enum zd_status tokens_gather(
        const struct model *model, int i, void *share, int rows,
        void **all_out);
/* Where a matmul writes its part of `share` for all places. */
void *tokens_part(const struct model *model, void *share);
/* Sums the parts of all places to `share`; does nothing if there is one place.
 */
enum zd_status tokens_scatter(
        const struct model *model, void *share, void *part, int rows);

/* Rows per token whose norm needs sums of all places: q, and k unless each
 * place has all of it. */
static inline int norms_cut(const struct model_config *config)
{
    if (tp_size(config) == 1 || !config->family->qk_norm_whole)
        return 0;
    return config->kv_used ? 1 : 2;
}
/* Gathers `count` floats of norm_sums[0] from all places to norm_sums[1]. */
enum zd_status norm_sums_gather(const struct model *model, int count);

/* context.c: keys, values and their gradients for attention: the layer's own,
 * or with context parallelism those of whole samples. */
struct layer_run;
struct attention_keys {
    void *k, *v, *dk, *dv;
};
/* The part of an array of k or v that attention reads. */
void *kv_from(const struct layer_run *run, void *heads);
/* Sets the strides of `shape`. `held`: the last gathered keys and values are
 * this layer's and pass's. */
enum zd_status keys_gather(
        const struct layer_run *run, bool held, struct attention_shape *shape,
        struct attention_keys *keys_out);
/* Call when dk and dv are complete. */
enum zd_status keys_scatter(const struct layer_run *run);

/* Attention for a share of the heads, and its backward; inputs and outputs are
 * the layer's arrays. */
enum zd_status heads_forward(
        const struct layer_run *run, struct attention_shape *shape,
        void *scratch);
enum zd_status heads_backward(
        const struct layer_run *run, struct attention_shape *shape);

/* batch.c */
static inline size_t batch_planes(
        const struct model_config *config, const struct model_shape *shape)
{
    size_t planes = config->family->rotary ? 8 : 9; /* position_order */
    if (cp_by_heads(shape)) /* doc_start of all tokens */
        planes += 2 * ((size_t)cp_size(shape) - 1);
    return planes;
}
/* Elements of a plane. */
static inline size_t batch_plane_tokens(size_t tokens)
{
    return size_round_up(tokens, ARENA_ALIGN / sizeof(int32_t));
}
enum zd_status batch_upload_init(
        struct model *model, const struct arena *arena);
void batch_upload_fini(struct batch_upload *upload);
/* Fills pass->positions and documents, and on a GPU the orders and moves all
 * arrays to the device. */
enum zd_status batch_place(
        struct model *model, struct pass *pass, bool has_backward);

/* hooks.c: the only callers of the hooks; they assert the order of
 * model_unit_events. */
void hooks_begin(
        struct model *model, const struct unit_events *program,
        const struct model_hooks *hooks);
void hooks_end(const struct model *model);
enum zd_status unit_acquire(struct model *model, int unit);
enum zd_status unit_release(struct model *model, int unit);
/* For a unit without a trainable tensor these call no hook: grads are NULL and
 * *accumulate_out is false. */
enum zd_status unit_grads_acquire(
        struct model *model, int unit, bool *accumulate_out);
enum zd_status unit_grads_release(struct model *model, int unit);

/* The arguments of a layer's parts. */
struct layer_run {
    const struct model *model;
    const struct pass *pass;
    const struct layer_acts *acts;
    int layer;
    bool accumulate; /* backward: add to the gradients */
    bool held;       /* backward: for keys_gather */
};

/* out (M, N) = a b with inner dimension K; the caller may set the other fields.
 */
static inline struct matmul product(
        int M, int N, int K, struct matmul_operand a, struct matmul_operand b,
        struct matmul_result out)
{
    return (struct matmul){.M = M, .N = N, .K = K, .a = a, .b = b, .out = out};
}

/* A quantized matrix: (rows, columns), the linear's (out, in). Borrowed. */
struct codes_view {
    const void *codes, *scales;
    const struct quant_matrix *matrix;
};

/* A weight as the hooks provide it; matmuls get it from linear_weight. If
 * quantized: the matrices that it joins. */
struct weight_view {
    const void *values; /* NULL: quantized */
    struct codes_view parts[LINEAR_PARTS];
    int part_count;
};

/* linear.c: y = x W (+ bias) of N rows, for both layouts of W, with adapters.
 */
struct linear {
    const struct model *model;
    const struct pass *pass;
    struct weight_view weight;
    const void *bias;
    void *dweight; /* type grad_type; NULL: frozen */
    float *dbias;
    enum dtype grad_type, y_dtype;
    int N, in, out;
    int columns;   /* of `out` that W computes: rows of logits have padding */
    int first_row; /* for the head: first row in the pass */
    bool accumulate;
    bool conv1d; /* weight is [in, out], not [out, in] */
    bool is_fp8; /* multiplies codes (fp8_linear.c) */
    enum fp8_group group;
    int layer;
    struct fp8_codes xt; /* backward reads it instead of x; NULL: x */
    float *x_amax;       /* amax of the input, tensorwise */
    struct adapter_view adapters[LINEAR_PARTS];
    int adapter_count;
    bool is_dora; /* one of the adapters */
};
/* The projections `first` to `last` as one linear: a single one, or several
 * that are contiguous in memory (model_shape.joined). */
struct linear layer_linear(
        const struct layer_run *run, enum role first, enum role last);
/* The head, for rows of the pass from first_row on; a tied head has no adapter.
 */
struct linear head_linear(
        const struct model *model, const struct pass *pass, int first_row,
        int N, bool accumulate);
/* A weight in the compute type: tensor `id`; and a linear's whole weight, (out,
 * in) or with conv1d (in, out), which every matmul must get here. A quantized
 * weight is decoded and valid until the next call of either. */
enum zd_status tensor_values(
        const struct model *model, int id, const void **values_out);
enum zd_status linear_weight(
        const struct linear *linear, const void **values_out);
/* y NULL: only what backward reads. */
enum zd_status linear_forward(
        const struct linear *linear, void *y, const void *x);
/* Gradients of weight and bias, and dx unless NULL. */
enum zd_status linear_backward(
        const struct linear *linear, void *dx, const void *dy, const void *x);
/* Also computes act = gelu(y); the backward turns the gradient of act into that
 * of y. Both fuse with the matmul unless there are adapters or FP8 codes. */
enum zd_status linear_forward_gelu(
        const struct linear *linear, void *act, void *y, const void *x);
enum zd_status linear_backward_gelu(
        const struct linear *linear, void *dgate, const void *dy,
        const void *act, void *gate);
/* fp8_linear.c: operands of FP8 matmuls, without adapters. Linears of a group
 * are called in sequence: the first casts the input for all (`is_first`). */
/* Computes amax of a layer's weights; call before its forward. */
enum zd_status fp8_weights(
        const struct model *model, const struct pass *pass, int layer);
/* W(out, in), or `turned` (in, out). */
enum zd_status fp8_weight(
        const struct linear *linear, bool turned,
        struct matmul_operand *weight_out);
/* is_kept_only: computes only what backward reads. */
enum zd_status fp8_input(
        const struct linear *linear, const void *x, bool is_first,
        bool is_kept_only, struct matmul_operand *x_out);
/* In backward: the operand of an input that forward has cast. */
enum zd_status fp8_input_again(
        const struct linear *linear, const void *x,
        struct matmul_operand *x_out);
/* Computes amax of the gradients of a group's outputs; call before their casts.
 */
enum zd_status fp8_grads(
        const struct linear *linears, void *const *dy, int count);
/* (out, P) and (in, P) for dW; the codes of dy stay for fp8_output_grads. */
enum zd_status fp8_transposed(
        const struct linear *linear, const void *dy, const void *x,
        bool is_first, struct matmul_operand *dy_out,
        struct matmul_operand *x_out);
/* `is_other`: dy has not been cast yet. */
enum zd_status fp8_output_grads(
        const struct linear *linear, const void *dy, bool is_other,
        struct matmul_operand *dy_out);

/* Projections of one input; y: outputs (in backward dy). */
struct projections {
    struct linear linears[LINEAR_PARTS];
    void *y[LINEAR_PARTS];
    int count;
};
/* `count` projections from role `first` on, with outputs y; as one linear if
 * they are one tensor or contiguous. */
struct projections layer_projections(
        const struct layer_run *run, unsigned join, enum role first,
        void *const *y, int count);
enum zd_status projections_forward(const struct projections *p, const void *x);
/* `sum`: scratch for types that matmuls cannot accumulate to. */
enum zd_status projections_backward(
        const struct projections *p, void *dx, void *sum, const void *x);

/* norm.c: layer norm if there is a bias, else RMSNorm, of N rows. The unit must
 * have the role. */
struct norm {
    const struct model *model;
    const void *weight, *bias;
    float *dweight, *dbias;
    int N;
    bool accumulate;
};
struct norm unit_norm(
        const struct model *model, int unit, enum role role, int N,
        bool accumulate);
/* Does the layer's first norm train, or anything before it? */
bool layer_needs_input_grad(const struct layer_run *run);
/* out = scale x, N rows of hidden_size; out may be x. */
enum zd_status hidden_scale(
        const struct model *model, void *out, const void *x, int N,
        double scale);
/* sum = a + b, then its norm; without a pending sum, the norm of `sum`. */
enum zd_status norm_forward_sum(
        struct norm norm, void *out, float *mean, float *rstd, void *sum,
        struct residual_sum of);
/* dx = [dresidual +] J^T dout; dresidual may be dx. */
enum zd_status norm_backward(
        struct norm norm, void *dx, const void *dout, const void *dresidual,
        const void *x, const float *mean, const float *rstd);

/* tokens_gather for the layer's share of the tokens. */
static inline enum zd_status layer_gather(
        const struct layer_run *run, int i, void *share, void **all_out)
{
    return tokens_gather(run->model, i, share, run->pass->share, all_out);
}
static inline enum zd_status layer_scatter(
        const struct layer_run *run, void *share, void *part)
{
    return tokens_scatter(run->model, share, part, run->pass->share);
}

/* branches.c: from the norm to q, k and v for attention; from their gradients
 * to grads.hidden; recomputation of q and k from q_raw and k_raw, if they have
 * norms. */
enum zd_status qkv_forward(const struct layer_run *run);
enum zd_status qkv_backward(const struct layer_run *run);
enum zd_status qkv_norm_heads(const struct layer_run *run);
/* From the norm to out (NULL: only what backward reads); from grads.mlp_out to
 * grads.hidden; recomputation of act from gate and up, with the same bits. */
enum zd_status mlp_forward(const struct layer_run *run, void *out);
enum zd_status mlp_backward(const struct layer_run *run);
enum zd_status mlp_gate(const struct layer_run *run);

/* layer.c. Computes the previous layer's pending sum, if any, so that acts->x
 * is complete. */
enum zd_status layer_input_norm(
        const struct layer_run *run, struct residual_sum *due);
/* Call after layer_input_norm. With out == NULL computes only what backward
 * reads; else *due is the output as a pending sum that belongs in `out`. */
enum zd_status layer_forward(
        const struct layer_run *run, void *scratch, void *out,
        struct residual_sum *due);
/* acts->dx holds the gradient of the layer's output, then of its input. */
enum zd_status layer_backward(const struct layer_run *run);

/* embedding.c: the sum of the tables' rows: (N, C). */
enum zd_status embedding_forward(
        const struct model *model, const struct pass *pass, void *out);
/* Gradients of the tables for the passes of the last model_forward, from
 * acts->dx. */
enum zd_status embedding_backward(struct model *model);

/* head.c: adds the losses of the passes to model->loss; in training also
 * computes the gradients of the head's unit and, in acts->dx, of the last
 * layer's output. */
enum zd_status head_loss(
        struct model *model, const struct pass *passes, int count, bool train,
        float dloss);
enum zd_status head_logits(
        struct model *model, const struct pass *pass,
        float *logits); /* on the host */

/* residuals.c. No-ops unless activations are offloaded. */
enum zd_status residuals_init(
        struct residuals *residuals, char *host, int buffers);
void residuals_fini(struct residuals *residuals);
/* Call when the input of `layer`, which has a backward, is complete: starts its
 * copy to the host if a segment begins here, and waits until the layer's output
 * may be written. */
enum zd_status residuals_leave(
        struct model *model, const struct pass *pass, int layer);
/* Call when backward reaches this pass in the segment that begins with `layer`:
 * starts copying back the input of the segment below. */
enum zd_status residuals_fetch(
        struct model *model, const struct pass *pass, int layer);
/* Call before the segment is recomputed: waits for its input. */
enum zd_status residuals_await(
        struct model *model, const struct pass *pass, int layer);

/* forward.c */
/* The arrays of a layer that has a backward, including its input. */
struct layer_acts kept_acts(const struct pass *pass, int layer);
/* Forward of such a layer; without `output` only what backward reads. */
enum zd_status forward_kept(
        struct model *model, const struct pass *pass, int layer, bool leaves,
        bool output);

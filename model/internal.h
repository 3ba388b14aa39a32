/* internal.h - what the files of the forward and backward pass share. */
#pragma once

#include "model/activations.h"
#include "model/rope.h"

/* The tokens that a pass works on; the arrays are the caller's until
 * batch_place has put them where kernels read. */
struct pass {
    int micro;                        /* which of those that take turns */
    int B, T, N;                      /* N tokens here, of B samples of T */
    struct attention_queries queries; /* those of a sample that are here */
    int share; /* tokens whose residual stream is here: N / tp.size */
    const int32_t *tokens, *targets, *doc_start;
    const int32_t *attention_start; /* doc_start of attention's queries: by
                                       heads (B, T), else it */
    bool by_heads;
    const int32_t *positions;
    const int32_t *own_positions; /* of the share */
    int documents;                /* in the B samples together */
    const int32_t *first_tokens;  /* of each, on a GPU; else NULL */
    /* on a GPU, where there is a backward (kernels/embedding/embedding.h); else
     * NULL */
    const int32_t *token_order, *position_order;
    bool decode;
    const struct decode_run *runs; /* decode: (run_count), of N tokens */
    int run_count;
    int pads; /* decode: the last of N are no tokens: they fill the shares */
    /* What the head computes, `targets` among it (batch.c). rows NULL: all
     * N, as they lie. */
    int head_rows, head_targets;
    const int32_t *rows;   /* (head_rows) of the pass */
    const int32_t *places; /* (N): where among them; head_targets: nowhere */
    int first_row; /* of an MLP's piece: N of the pass's tokens from here on */
    /* dropout of adapters, in training */
    bool drops;
    int64_t step, first_sample;
    struct activations *acts;
    void *const *inputs; /* of acts: forward, or in backward returned */
};

/* Inputs of segments that are in host memory (residuals.c). Events for each
 * device buffer: the last kernels that used it, and the copy from or into
 * it. */
struct residuals {
    char *host; /* (acts->offloaded) inputs */
    struct model_streams streams;
    int buffers;
    struct event **computed, **moved; /* (buffers), owned */
    struct model_offload_report report;
};

/* What passes read on a GPU (batch.c). Of each slot: its copy to the device. */
enum { LINEAR_PARTS = 3 }; /* q, k and v joined */
enum { BATCH_SLOTS = 2, CPU_PLANES = 4 };
struct batch_upload {
    int32_t *device;  /* (micros, planes); NULL: the CPU */
    int32_t *staging; /* (BATCH_SLOTS, planes) pinned; on the CPU (micros,
                         planes): positions, and what batch.c writes */
    int32_t *counts;  /* (rows of the larger table + 1) on the host */
    size_t planes;    /* elements of all planes of the largest pass */
    unsigned next;
    struct event *sent[BATCH_SLOTS];
};

/* A pending sum of the residual stream, whose terms are ready. It is computed
 * together with the norm that reads it. a NULL: none. */
struct residual_sum {
    const void *a, *b;
};

/* The arrays of the span "model.gathered". */
struct gathered {
    void *all_tokens[2];    /* (N, C) each, with tensor parallelism: of matmuls,
                               [0] what scatter reads or gradients that are
                               gathered, [1] inputs that are */
    float *norm_sums[2];    /* of rows whose heads other places have too: (N) or
                               (2, N) of q and k here, and of all places */
    char *kv_share;         /* (N, k | v) with context parallelism */
    char *kv_all, *dkv_all; /* (B, T, k | v) */
    char *exchanged[2];     /* (N, q | k | v) each, by heads */
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
    void *decoded; /* a dequantized weight, for a matmul */
    struct fp8_use fp8_use;
    struct fp8_scratch fp8;
    struct gathered gathered;
    struct vocabulary_slice vocabulary; /* of the token table, and the head */
    int whole_vocabulary;               /* of all places together */
    struct exact_sum *loss; /* on the device; since model_loss_take */
    struct batch_upload upload;
    struct pass *pass; /* (micros) of the last model_forward; owned */
    int pass_count;
    struct residual_sum *due; /* (micros) the last layer's output, in what
                                 comes next; owned */
    int role_offset[ROLES];   /* from a unit's first id; -1: no such tensor */
    int head;                 /* id; of a tied one the token table's */
    bool *unit_trains;        /* (unit_count); owned */
    double *unit_began;       /* (unit_count) when it was acquired; owned */
    const void **params; /* (table->count), with codes twice as many; set by
                            the hooks; owned */
    void **grads;        /* (table->count), set by the hooks; owned */
    enum dtype product_grads; /* type of those of param_is_product */
    struct residuals residuals;
    struct unit_events train_events, eval_events;
    const struct unit_events *program; /* of the pass that runs, and .. */
    const struct model_hooks *hooks;
    int event;                 /* next of it */
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
int model_positions(const struct model_shape *shape); /* rows of the angles */
size_t model_most_tokens(const struct model_shape *shape); /* of any pass */
/* From `base` on; NULL: sizes. */
struct gathered model_gathered_at(
        const struct model_config *config, const struct model_shape *shape,
        char *base);

/* The hook of places; `count` of a share, or part. */
static inline enum zd_status places_call(
        const struct model *model, enum places_call call, void *to,
        const void *from, size_t count)
{
    const struct model_hooks *hooks = model->hooks;
    return hooks->places(hooks->ctx, call, to, from, count);
}

/* With tensor parallelism all places' rows in all_tokens[i]; else `share`. Of
 * `rows` tokens here. */
enum zd_status tokens_gather(
        const struct model *model, int i, void *share, int rows,
        void **all_out);
/* What a matmul of `share` for all places is written to. */
void *tokens_part(const struct model *model, void *share);
/* `share` from the parts of all places; nothing to do where they are one. */
enum zd_status tokens_scatter(
        const struct model *model, void *share, void *part, int rows);

/* Rows of a token whose norm takes sums of all places: of q, and of k unless
 * each place has all of it. */
static inline int norms_cut(const struct model_config *config)
{
    if (tp_size(config) == 1 || !config->family->qk_norm_whole)
        return 0;
    return config->kv_used ? 1 : 2;
}
/* norm_sums[1], of all places, from `count` floats of norm_sums[0]. */
enum zd_status norm_sums_gather(const struct model *model, int count);

/* context.c: keys, values and their gradients as attention takes them: the
 * layer's, or with context parallelism those of whole samples. */
struct layer_run;
struct attention_keys {
    void *k, *v, *dk, *dv;
};
/* Of an array of k or v, the heads that attention reads. */
void *kv_from(const struct layer_run *run, void *heads);
/* The strides of `shape` become theirs. `held`: what was gathered last is of
 * this layer and pass. */
enum zd_status keys_gather(
        const struct layer_run *run, bool held, struct attention_shape *shape,
        struct attention_keys *keys_out);
/* When dk and dv are there. */
enum zd_status keys_scatter(const struct layer_run *run);

/* Attention of a share of the heads, and its backward: of the layer's
 * arrays, as without context parallelism. */
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
    if (cp_by_heads(shape)) /* where documents begin, of all tokens */
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
/* Fills pass->positions and documents, and on a GPU the orders; the arrays are
 * on the device then. */
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
/* Nothing is called for a unit that has no trainable tensor: its grads are NULL
 * and *accumulate_out is false. */
enum zd_status unit_grads_acquire(
        struct model *model, int unit, bool *accumulate_out);
enum zd_status unit_grads_release(struct model *model, int unit);

/* What the parts of a layer are given. */
struct layer_run {
    const struct model *model;
    const struct pass *pass;
    const struct layer_acts *acts;
    int layer;
    bool accumulate; /* backward: add to the gradients */
    bool held;       /* backward: keys_gather's */
};

/* out (M, N) = a b, of K; what the fields after `out` say can be added. */
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

/* A weight as the hooks left it. Matmuls ask linear_weight for it. Quantized:
 * the matrices that it is joined of. */
struct weight_view {
    const void *values; /* NULL: quantized */
    struct codes_view parts[LINEAR_PARTS];
    int part_count;
};

/* linear.c: y = x W (+ bias) of N rows, for both layouts of W, and what
 * adapters add. */
struct linear {
    const struct model *model;
    const struct pass *pass;
    struct weight_view weight;
    const void *bias;
    void *dweight; /* of grad_type; NULL: frozen */
    float *dbias;
    enum dtype grad_type, y_dtype;
    int N, in, out;
    int columns; /* of `out` that W makes: a row of logits has room for more */
    int first_row; /* of the pass, the head's */
    bool accumulate;
    bool conv1d; /* weight is [in, out], not [out, in] */
    bool is_fp8; /* it multiplies codes (fp8_linear.c) */
    enum fp8_group group;
    int layer;
    struct fp8_codes xt; /* what backward reads in place of x; NULL: x */
    float *x_amax;       /* of the input, tensorwise */
    struct adapter_view adapters[LINEAR_PARTS];
    int adapter_count;
    bool is_dora; /* one of them */
};
/* The projections `first` to `last` as one: one alone, or those that follow
 * each other in memory (model_shape.joined). */
struct linear layer_linear(
        const struct layer_run *run, enum role first, enum role last);
/* The head, for rows first_row .. of the pass; a tied one has no adapter. */
struct linear head_linear(
        const struct model *model, const struct pass *pass, int first_row,
        int N, bool accumulate);
/* A weight in the compute type; a quantized one is decoded, and stays until the
 * next call of these two. Tensor `id`, alone; the whole weight, (out, in) or
 * with conv1d (in, out): every matmul with it must ask here. */
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
/* act = gelu(y) too; in backward dy becomes the gradient of y, of which act is
 * that of the linear's input: with the matmul in one pass, where no adapter
 * comes between, and no codes are multiplied. */
enum zd_status linear_forward_gelu(
        const struct linear *linear, void *act, void *y, const void *x);
enum zd_status linear_backward_gelu(
        const struct linear *linear, void *dgate, const void *dy,
        const void *act, void *gate);
/* fp8_linear.c: operands of the matmuls of linears in FP8, without adapters.
 * One group's follow each other: the first casts the input for all
 * (`is_first`). */
/* Before a forward pass of the layer: amax of its weights. */
enum zd_status fp8_weights(
        const struct model *model, const struct pass *pass, int layer);
/* W(out, in), or `turned` (in, out). */
enum zd_status fp8_weight(
        const struct linear *linear, bool turned,
        struct matmul_operand *weight_out);
/* is_kept_only: only what backward reads. */
enum zd_status fp8_input(
        const struct linear *linear, const void *x, bool is_first,
        bool is_kept_only, struct matmul_operand *x_out);
/* Of an input that forward has had, in backward. */
enum zd_status fp8_input_again(
        const struct linear *linear, const void *x,
        struct matmul_operand *x_out);
/* amax of the gradients of a group's outputs, before their casts. */
enum zd_status fp8_grads(
        const struct linear *linears, void *const *dy, int count);
/* (out, P) and (in, P) for dW; the codes of dy stay for fp8_output_grads. */
enum zd_status fp8_transposed(
        const struct linear *linear, const void *dy, const void *x,
        bool is_first, struct matmul_operand *dy_out,
        struct matmul_operand *x_out);
/* `is_other`: dy has not been cast. */
enum zd_status fp8_output_grads(
        const struct linear *linear, const void *dy, bool is_other,
        struct matmul_operand *dy_out);

/* Projections of one input: y (backward: dy) of each. */
struct projections {
    struct linear linears[LINEAR_PARTS];
    void *y[LINEAR_PARTS];
    int count;
};
/* `count` from role `first` on, to y; where they lie in one tensor, or one
 * after the other, as one. */
struct projections layer_projections(
        const struct layer_run *run, unsigned join, enum role first,
        void *const *y, int count);
enum zd_status projections_forward(const struct projections *p, const void *x);
/* `sum` is scratch for types that cannot be added to. */
enum zd_status projections_backward(
        const struct projections *p, void *dx, void *sum, const void *x);

/* norm.c: layer norm with a bias, else RMSNorm, of N rows; of a role that the
 * unit has. */
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
/* Does anything below the layer's first norm train, or the norm? */
bool layer_needs_input_grad(const struct layer_run *run);
/* out = scale x, N rows of hidden_size; out may be x. */
enum zd_status hidden_scale(
        const struct model *model, void *out, const void *x, int N,
        double scale);
/* sum = a + b, then its norm; without a sum that is due, the norm of `sum`. */
enum zd_status norm_forward_sum(
        struct norm norm, void *out, float *mean, float *rstd, void *sum,
        struct residual_sum of);
/* dx = [dresidual +] J^T dout; dresidual may be dx. */
enum zd_status norm_backward(
        struct norm norm, void *dx, const void *dout, const void *dresidual,
        const void *x, const float *mean, const float *rstd);

/* Of the layer's share of the tokens. */
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

/* branches.c: the norm to q, k and v as attention reads them, and their
 * gradients to grads.hidden; q and k once more from q_raw and k_raw, where they
 * have norms. */
enum zd_status qkv_forward(const struct layer_run *run);
enum zd_status qkv_backward(const struct layer_run *run);
enum zd_status qkv_norm_heads(const struct layer_run *run);
/* The norm to out, NULL: only what backward reads; from grads.mlp_out to
 * grads.hidden; act once more from gate and up, to the same bits. */
enum zd_status mlp_forward(const struct layer_run *run, void *out);
enum zd_status mlp_backward(const struct layer_run *run);
enum zd_status mlp_gate(const struct layer_run *run);

/* layer.c. First the sum of the layer before, if it is due: acts->x is there
 * after it, and nothing due. */
enum zd_status layer_input_norm(
        const struct layer_run *run, struct residual_sum *due);
/* After layer_input_norm. With out == NULL only what backward reads is
 * computed; else the output is due as a sum whose place is `out`. */
enum zd_status layer_forward(
        const struct layer_run *run, void *scratch, void *out,
        struct residual_sum *due);
/* acts->dx holds the gradient of the layer's output, then of its input. */
enum zd_status layer_backward(const struct layer_run *run);

/* embedding.c: the rows of the tables, added up: (N, C). */
enum zd_status embedding_forward(
        const struct model *model, const struct pass *pass, void *out);
/* Gradients of the tables, of the passes of the last model_forward, from that
 * of the sum, acts->dx. */
enum zd_status embedding_backward(struct model *model);

/* head.c: losses of the passes, added to model->loss; in training also the
 * gradients of the head's unit and, into acts->dx, of the last layer's output.
 */
enum zd_status head_loss(
        struct model *model, const struct pass *passes, int count, bool train,
        float dloss);
enum zd_status head_logits(
        struct model *model, const struct pass *pass,
        float *logits); /* on the host */

/* residuals.c. No-ops when nothing is offloaded. */
enum zd_status residuals_init(
        struct residuals *residuals, char *host, int buffers);
void residuals_fini(struct residuals *residuals);
/* When the input of `layer`, which has a backward, is complete: start its copy
 * to the host if a segment begins here, and make room for the layer's output.
 */
enum zd_status residuals_leave(
        struct model *model, const struct pass *pass, int layer);
/* When backward is done with what comes before this pass of the segment that
 * begins with `layer`: start the copy of the input of the segment below. */
enum zd_status residuals_fetch(
        struct model *model, const struct pass *pass, int layer);
/* Before the segment is recomputed: wait for its input. */
enum zd_status residuals_await(
        struct model *model, const struct pass *pass, int layer);

/* forward.c */
/* The arrays of a layer that has a backward, its input among them. */
struct layer_acts kept_acts(const struct pass *pass, int layer);
/* Such a layer's forward; without `output` only what backward reads. */
enum zd_status forward_kept(
        struct model *model, const struct pass *pass, int layer, bool leaves,
        bool output);

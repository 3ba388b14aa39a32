/* model.h - forward and backward of a language model, written as for one
 * device, unit by unit. The caller's model_hooks provide parameters and take
 * gradients; this folder knows no ranks.
 *
 * A pass has one micro-batch, or several that take turns in each unit ("breadth
 * first": Lamy-Poirier 2022, arXiv:2211.05953; with gradients summed over them:
 * arXiv:2106.02679):
 *   model_forward   embedding, layers, final norm, then head and loss in chunks
 *                   of tokens (the full logits never exist); in training these
 *                   chunks also compute the gradients of the head and of the
 *                   last hidden state
 *   model_backward  layers from last to first, then the embedding
 *
 * Activation checkpointing keeps the input of every N-th layer and recomputes
 * the layers of such a segment before their backward. All modes have the same
 * bits, because they run the same kernels on the same numbers.
 *
 * An MLP in pieces (ALST's TiledMLP, arXiv:2506.13996, section 3.1) computes
 * tokens as without pieces; gradients of its weights and of the norm before it
 * are summed over the pieces, in order. */
#pragma once

#include "base/memory/arena.h"
#include "base/number/exact_sum.h"
#include "kernels/fp8/fp8.h"
#include "kernels/kernels.h"
#include "model/params.h"

/* [train] gradient_checkpointing: NONE keeps all; SELECTIVE the outputs of
 * matmuls and attention, and recomputes norms, activations and rotations
 * (Korthikanti et al. 2022, arXiv:2205.05198); EVERY keeps the input of every
 * `every`-th layer; FULL is EVERY 1; SQRT is EVERY round(sqrt(L)). train
 * resolves AUTO before. */
enum checkpointing_mode {
    CHECKPOINTING_NONE,
    CHECKPOINTING_SELECTIVE,
    CHECKPOINTING_FULL,
    CHECKPOINTING_EVERY,
    CHECKPOINTING_SQRT,
    CHECKPOINTING_AUTO
};
struct checkpointing {
    enum checkpointing_mode mode;
    int every; /* with CHECKPOINTING_EVERY */
};

/* Layers in a segment: 0 = no layer is recomputed as a whole. */
int checkpointing_segment(struct checkpointing checkpointing, int layers);

/* Collectives between places. With tensor parallelism (model/slice.h) each
 * place has the residual stream and norms of an equal share of the pass's
 * tokens, in the order of places. Matmuls read all tokens; for o and down, and
 * the embedding's lookup, each place computes one term of a sum. With context
 * parallelism (model_shape.cp) keys and values of a layer are gathered before
 * its attention, and their gradients summed after it, among the places that
 * share a sample; or heads are exchanged (cp.by_heads).
 *   gather   `to` is the shares of all places, one after the other
 *   scatter  `to` is this place's share of the sum of all places' `from`, added
 *            in their order and rounded once
 *   heads    part r of `to` is what place r has for this one in `from` */
enum places_call {
    PLACES_TOKENS_GATHER,
    PLACES_TOKENS_SCATTER,
    PLACES_SCORES_GATHER, /* floats, of rows of logits */
    PLACES_KV_GATHER,
    PLACES_KV_SCATTER,
    PLACES_HEADS
};

struct spans;
/* Filled by zero, a test, or replicated_params.h. Calls for a unit come in
 * pairs; pointers from acquire are valid until release. */
struct model_hooks {
    void *ctx;
    /* Sets params[id] for every tensor of `unit` (compute type); for a
     * quantized one to its codes, and params[param_scales] to its scales. */
    enum zd_status (*params_acquire)(void *ctx, int unit, const void **params);
    enum zd_status (*params_release)(void *ctx, int unit);
    /* Not called for a unit without a trainable tensor. Unit 0 of a tied model
     * is acquired by the head and released by the embedding's backward. Sets
     * grads[id] for every tensor of `unit` (count elements, fp32, or
     * product_grads for param_is_product), NULL for frozen ones.
     * *accumulate_out: add to the memory; else it is undefined and every
     * trainable tensor of the unit must be written. */
    enum zd_status (*grads_acquire)(
            void *ctx, int unit, void **grads, bool *accumulate_out);
    /* The unit's gradient of this micro-batch is complete. */
    enum zd_status (*grads_release)(void *ctx, int unit);
    /* Type of matmuls' gradients: fp32, or the compute type if they never
     * accumulate. */
    enum dtype product_grads;
    /* Records the time of units; NULL: not recorded. */
    struct spans *spans;
    /* A collective of places (enum places_call); NULL without tensor or context
     * parallelism. `count` elements of the compute type, or floats for scores.
     */
    enum zd_status (*places)(
            void *ctx, enum places_call call, void *to, const void *from,
            size_t count);
};

/* Bytes that a place contributes in a training micro-batch, and to its largest
 * collective. All 0 without places. */
struct model_exchange {
    /* tensor parallelism */
    uint64_t gathered, scattered; /* shares of tokens */
    uint64_t scores;
    size_t largest_share, largest_scores;
    /* context parallelism: keys and values, and their gradients. For a layer
     * that ends a recomputed segment, backward reuses what was gathered. */
    uint64_t kv_gathered, kv_scattered;
    size_t largest_kv;
    /* .. by heads: parts of queries, keys, values and outputs in forward, of
     * gradients in backward; recomputation exchanges again, `selective` only
     * outputs. */
    uint64_t heads;
    size_t largest_heads;
};
struct model_shape;
struct model_exchange model_exchange(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape);

/* The order in which a micro-batch will call the params hooks. zero plans its
 * gathers, prefetches and slots from it; the model asserts that it follows
 * it. */
struct unit_event {
    int unit;
    bool acquire; /* false: release */
};
enum model_pass { MODEL_TRAIN, MODEL_EVAL };
struct unit_events {
    struct unit_event *list; /* owned */
    int count;
};
struct unit_events model_unit_events(
        const struct model_config *config, const struct param_table *table,
        struct checkpointing checkpointing, enum model_pass pass);

/* The losses of rows of logits and their gradients, as cross_entropy_fn. */
typedef enum zd_status token_loss_fn(
        const struct kernels *kernels, const struct loss_rows *rows);

/* Context parallelism: `size` places share each sample. Its tokens are cut into
 * 2 size equal pieces; place i computes pieces i and 2 size - 1 - i, which
 * balances attention. Attention reads keys and values of all tokens, or by
 * heads computes all tokens of heads / size query heads and kv_heads / size
 * key-value heads. size 0: 1. Decoding is not divided. */
struct cp {
    int size, place;
    bool by_heads; /* size divides both counts of heads */
};

struct model_shape {
    int B, T; /* of a training micro-batch; T: tokens of whole samples */
    struct cp cp;
    int micros; /* most micro-batches of one model_forward; 0: one */
    int eval_B; /* samples of an evaluation batch; 0: none */
    struct checkpointing checkpointing;
    enum dtype dtype;            /* compute type */
    enum fp8_mode fp8;           /* of the layers' matmuls (fp8.h) */
    enum device_backend backend; /* resolved; AUTO counts as the CPU */
    int head_chunk;      /* tokens whose logits exist at a time; 0: auto */
    int mlp_pieces;      /* pieces of the tokens for a layer's MLP, computed in
                            turn and recomputed in backward; 0 or 1: not in
                            pieces */
    int decode_capacity; /* positions of the key/value cache; 0: none */
    int decode_batch;    /* maximum tokens of a decode call; 0: none */
    int decode_texts;    /* texts in the cache; 0: one */
    bool train;          /* false: forward only (generate) */
    unsigned joined;     /* param_join: projections that are contiguous in
                            memory, so that one matmul computes them; the same
                            in every layer. The order of sums differs from
                            separate matmuls, so the CPU, whose bits are the
                            definition, does not join. */
    token_loss_fn *token_loss; /* NULL: the kernels' cross_entropy */
    double dropout;            /* dropout of adapters' inputs in training */
    uint64_t seed;             /* of dropout */
    bool offload_activations;  /* inputs of recomputed segments are kept in
                                  (pinned) host memory; needs a mode that
                                  recomputes */
};

static inline int cp_size(const struct model_shape *shape)
{
    return shape->cp.size > 1 ? shape->cp.size : 1;
}
static inline bool cp_by_heads(const struct model_shape *shape)
{
    return shape->cp.by_heads && cp_size(shape) > 1;
}

/* Is attention's output kept only before the exchange, so that backward
 * exchanges it again? */
static inline bool cp_sends_output_again(const struct model_shape *shape)
{
    return cp_by_heads(shape) &&
           shape->checkpointing.mode == CHECKPOINTING_SELECTIVE;
}
/* Tokens on a place for B samples. */
static inline size_t place_tokens(const struct model_shape *shape, int B)
{
    return (size_t)B * (size_t)(shape->T / cp_size(shape));
}

/* Streams for offload_activations; owned by the caller. NULL: inline. */
struct model_streams {
    struct stream *down, *up;
};

/* Plans the activations of this shape: spans "model.*". Pure. Activations are
 * on a stack within their span; lifetimes that do not overlap share bytes. For
 * a GPU also "kernels.workspace", which model_create passes to the kernels. */
enum zd_status model_plan(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, struct arena_plan *plan);

/* Bytes of layer inputs that model_forward copies to the host and
 * model_backward copies back, for full samples of T tokens. */
uint64_t model_residual_bytes(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape);

/* Tokens whose logits a training pass computes at a time. */
int model_head_chunk(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape);

struct model;
/* `config`, `table`, `kernels`, `arena` are borrowed and must outlive it. */
enum zd_status model_create(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, const struct kernels *kernels,
        const struct arena *arena, struct model **model_out);
void model_destroy(struct model *model);
/* Call before the first pass if the shape offloads activations. */
void model_set_streams(
        struct model *model, const struct model_streams *streams);
/* Bytes of activations copied since the last call, and seconds that the passes
 * waited for them. */
struct model_offload_report {
    uint64_t down_bytes, up_bytes;
    double wait_seconds;
};
struct model_offload_report model_offload_report_take(struct model *model);

/* The place's tokens of B samples of T: with context parallelism Q = T / cp,
 * else Q = T. */
struct model_batch {
    const int32_t *tokens;    /* (B, Q) */
    const int32_t *targets;   /* (B, Q); < 0 = masked */
    const int32_t *doc_start; /* (B, Q): where the document of token t of the
                                 whole sample begins; t's position is
                                 t - doc_start */
    int B, T;                 /* B up to the planned one */
    /* Dropout depends on these: the step, and the index in the run of the first
     * sample; the others follow it. */
    int64_t step, first_sample;
    const int32_t *all_doc_start; /* (B, T) of all tokens; read by heads */
};

/* Forward, loss, and the head's part of the gradient. Each unmasked token has
 * the weight `dloss` in the gradient. The batches must stay valid until
 * model_backward returns. A unit's hooks are called once for all batches, and
 * its gradients add up in the order of batches, with the bits of accumulating
 * passes of one batch each (except a tied table, which gets the head's parts
 * first). */
enum zd_status model_forward(
        struct model *model, const struct model_batch *batches, int count,
        float dloss, const struct model_hooks *hooks);
/* The rest of the gradient, for the batches of the last model_forward. */
enum zd_status model_backward(
        struct model *model, const struct model_hooks *hooks);
/* Loss only; keeps nothing. Only hooks->params_* are called. */
enum zd_status model_evaluate(
        struct model *model, const struct model_batch *batch,
        const struct model_hooks *hooks);
/* The unmasked losses of all tokens since the last call, added up exactly.
 * Waits for the device: once a step. At most 2^30 tokens between two calls. */
enum zd_status model_loss_take(struct model *model, struct exact_sum *sum_out);

/* New tokens of a text: positions past .. past + count - 1 of text number
 * `text` in the key/value cache. past = 0 begins a new text. */
struct decode_run {
    int text, past, count;
};
/* Generation: runs the new tokens of all runs (concatenated in `tokens`)
 * through the model with the cache; each run is of a different text. Writes the
 * logits of each run's last token, (run_count, V) fp32 on the host; V of the
 * whole model. */
enum zd_status model_decode(
        struct model *model, const int32_t *tokens,
        const struct decode_run *runs, int run_count,
        const struct model_hooks *hooks, float *logits);

/* FLOPs of forward and backward per token at sequence length T, without
 * recomputation. Per element of a matmul's weight: 2 in forward, 2 for its
 * input's gradient if anything before it trains, 2 for its own gradient if it
 * trains. Per layer's attention: 4 S H D, with S tokens seen on average (T / 2
 * without a window), and twice that more with a backward. */
double model_flops_per_token(
        const struct model_config *config, const struct param_table *table,
        int T);

/* Tensor and context parallelism: places that are threads compute what one
 * does. */
#include "base/must.h"
#include "base/number/dtype.h"
#include "model/slice.h"
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>

enum { B = 2, T = 24, PLACES_MAX = 6 };

/* Ways to project, share heads, norm and store, with fewer heads than 6 and a
 * width that all sizes divide. */
static const char *const shapes[] = {"llama",   "qwen3",  "granite", "phi3",
                                     "smollm3", "gemma2", "gpt2"};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* --- places ----------------------------------------------------------------
 */

/* Places that exchange something. */
struct team {
    int size;
    pthread_barrier_t barrier;
    const void *slots[PLACES_MAX];
};

struct group {
    int cp, tp; /* places on each axis, tp innermost */
    struct team tp_teams[PLACES_MAX], cp_teams[PLACES_MAX];
    const struct model_config *config;
    struct model_shape shape;
    const struct model_batch *batch;
};

struct place {
    struct group *group;
    int cp, tp;
    struct tokens tokens; /* its own */
    struct tiny tiny;
    struct model_hooks replica;
    double loss, evaluated;
    int scatters;
    size_t kv_gathered, kv_scattered, heads; /* elements */
};

static void meet(struct team *team, int place, const void *mine)
{
    team->slots[place] = mine;
    pthread_barrier_wait(&team->barrier);
}

static void gather_in(
        struct team *team, int place, void *all, const void *mine, size_t bytes)
{
    meet(team, place, mine);
    for (int i = 0; i < team->size; i++)
        memcpy((char *)all + (size_t)i * bytes, team->slots[i], bytes);
    pthread_barrier_wait(&team->barrier);
}

static void scatter_in(
        struct team *team, int place, void *share, const void *all,
        enum dtype type, size_t count)
{
    float *sum = calloc(count, sizeof *sum),
          *term = malloc(count * sizeof *sum);
    size_t from = (size_t)place * count * dtype_bytes(type);
    meet(team, place, all);
    for (int i = 0; i < team->size; i++) {
        const char *theirs = (const char *)team->slots[i] + from;
        dtype_convert(term, DTYPE_FP32, theirs, type, count);
        for (size_t e = 0; e < count; e++)
            sum[e] += term[e];
    }
    pthread_barrier_wait(&team->barrier);
    dtype_convert(share, type, sum, DTYPE_FP32, count);
    free(sum), free(term);
}

static void heads_in(
        struct team *team, int place, char *to, const char *from, size_t bytes)
{
    meet(team, place, from);
    for (int i = 0; i < team->size; i++)
        memcpy(to + (size_t)i * bytes,
               (const char *)team->slots[i] + (size_t)place * bytes, bytes);
    pthread_barrier_wait(&team->barrier);
}

static enum zd_status exchange(
        void *ctx, enum places_call call, void *to, const void *from,
        size_t count)
{
    struct place *p = ctx;
    struct team *tp = &p->group->tp_teams[p->cp];
    struct team *cp = &p->group->cp_teams[p->tp];
    enum dtype type = p->group->shape.dtype;
    size_t bytes = count * dtype_bytes(type);
    switch (call) {
    case PLACES_TOKENS_GATHER:
        gather_in(tp, p->tp, to, from, bytes);
        break;
    case PLACES_TOKENS_SCATTER:
        scatter_in(tp, p->tp, to, from, type, count);
        p->scatters++;
        break;
    case PLACES_SCORES_GATHER:
        gather_in(tp, p->tp, to, from, count * sizeof(float));
        break;
    case PLACES_KV_GATHER:
        gather_in(cp, p->cp, to, from, bytes);
        p->kv_gathered += count;
        break;
    case PLACES_KV_SCATTER:
        scatter_in(cp, p->cp, to, from, type, count);
        p->kv_scattered += count;
        break;
    case PLACES_HEADS:
        heads_in(cp, p->cp, to, from, bytes);
        p->heads += count;
    }
    return ZD_OK;
}

static enum zd_status params_acquire(void *ctx, int unit, const void **params)
{
    struct place *p = ctx;
    return p->replica.params_acquire(p->replica.ctx, unit, params);
}

static enum zd_status params_release(void *ctx, int unit)
{
    struct place *p = ctx;
    return p->replica.params_release(p->replica.ctx, unit);
}

static enum zd_status grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    struct place *p = ctx;
    return p->replica.grads_acquire(
            p->replica.ctx, unit, grads, accumulate_out);
}

static enum zd_status grads_release(void *ctx, int unit)
{
    struct place *p = ctx;
    return p->replica.grads_release(p->replica.ctx, unit);
}

/* The elements of its slices, of the whole's random weights. */
struct slices {
    struct weight_source whole;
    const struct param_table *table;
};

static enum zd_status read_slice(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct slices *slices = ctx;
    struct slice_run run = {.begin = begin};
    memset(out, 0, count * sizeof *out);
    while (param_slice_next(&slices->table->params[id], begin + count, &run))
        if (!run.is_padding)
            ZD_TRY(slices->whole.read(
                    slices->whole.ctx, id, run.whole, run.count,
                    out + (run.begin - begin)));
    return ZD_OK;
}

static void build(struct place *p)
{
    struct group *g = p->group;
    struct tiny *t = &p->tiny;
    const struct tp tp = {g->tp, p->tp};
    struct model_shape shape = g->shape;
    struct slices slices = {.table = &t->table};
    struct weight_source source = {.read = read_slice, .ctx = &slices};
    shape.cp = (struct cp){g->cp, p->cp, g->shape.cp.by_heads};
    struct param_table all;
    tiny_must(param_table_build(g->config, NULL, 0, &all));
    tiny_must(model_config_slice(g->config, tp, &t->config));
    tiny_must(param_table_slice(g->config, tp, NULL, 0, &t->table));
    tiny_must(weights_open_random(7, &all, &slices.whole));
    tiny_build(t, &shape, tiny_plain(shape.dtype), &source);
    weights_close(&slices.whole);
    param_table_fini(&all);
    tiny_add_noise(t);
    tiny_poison(t);
    p->replica = t->hooks;
    t->hooks = (struct model_hooks){
            p,
            params_acquire,
            params_release,
            grads_acquire,
            grads_release,
            .places = exchange};
}

/* The place's tokens of the batch. */
static void take_tokens(struct place *p)
{
    const struct model_batch *all = p->group->batch;
    struct tokens *own = &p->tokens;
    struct attention_queries queries = {all->T, {0}};
    if (p->group->cp > 1)
        queries = attention_share(all->T, p->group->cp, p->cp);
    own->batch = *all;
    own->batch.tokens = own->tokens;
    own->batch.targets = own->targets;
    own->batch.doc_start = own->doc_start;
    own->batch.all_doc_start = all->doc_start;
    for (int n = 0; n < all->B * queries.rows; n++) {
        int t = attention_token(queries, n % queries.rows);
        int from = n / queries.rows * all->T + t;
        own->tokens[n] = all->tokens[from];
        own->targets[n] = all->targets[from];
        own->doc_start[n] = all->doc_start[from];
    }
}

static void *run_place(void *arg)
{
    struct place *p = arg;
    build(p);
    take_tokens(p);
    p->evaluated = tiny_evaluate(&p->tiny, &p->tokens.batch);
    p->scatters = 0;
    p->kv_gathered = p->kv_scattered = p->heads = 0;
    for (int micro = 0; micro < 2; micro++)
        p->loss = tiny_step(&p->tiny, &p->tokens.batch, 1.0f);
    return NULL;
}

static void team_init(struct team *team, int size)
{
    team->size = size;
    pthread_barrier_init(&team->barrier, NULL, (unsigned)size);
}

static void run_places(struct group *g, struct place places[PLACES_MAX])
{
    pthread_t threads[PLACES_MAX];
    for (int i = 0; i < g->cp; i++)
        team_init(&g->tp_teams[i], g->tp);
    for (int i = 0; i < g->tp; i++)
        team_init(&g->cp_teams[i], g->cp);
    for (int i = 0; i < g->cp * g->tp; i++) {
        places[i] =
                (struct place){.group = g, .cp = i / g->tp, .tp = i % g->tp};
        pthread_create(&threads[i], NULL, run_place, &places[i]);
    }
    for (int i = 0; i < g->cp * g->tp; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < g->cp; i++)
        pthread_barrier_destroy(&g->tp_teams[i].barrier);
    for (int i = 0; i < g->tp; i++)
        pthread_barrier_destroy(&g->cp_teams[i].barrier);
}

static void fini_places(const struct group *g, struct place *places)
{
    for (int i = 0; i < g->cp * g->tp; i++) {
        struct tiny *t = &places[i].tiny;
        t->config = (struct model_config){0}; /* the whole's pointers */
        tiny_fini(t);
    }
}

/* --- comparison ------------------------------------------------------------
 */

/* The whole gradient of a tensor; padding has none. */
static void add_slices(
        const struct group *g, const struct place *places, int id, float *sum)
{
    for (int i = 0; i < g->cp * g->tp; i++) {
        const struct param *param = &places[i].tiny.table.params[id];
        const float *grad = tiny_grad(&places[i].tiny, id);
        struct slice_run run = {0};
        while (param_slice_next(param, param->count, &run))
            for (size_t e = 0; e < run.count; e++)
                if (run.is_padding)
                    cr_assert_eq(grad[run.begin + e], 0, "%s", param->name);
                else
                    sum[run.whole + e] += grad[run.begin + e];
    }
}

static void expect_near(
        const struct group *g, struct place *one, const struct place *places,
        double limit, double grads_limit, const char *what)
{
    const struct param_table *table = &one->tiny.table;
    double loss = 0, evaluated = 0;
    for (int i = 0; i < g->cp * g->tp; i++) {
        const struct place *first = &places[i - places[i].tp];
        cr_expect_eq(places[i].loss, first->loss);
        cr_expect_eq(places[i].evaluated, first->evaluated);
        loss += places[i].tp ? 0 : first->loss;
        evaluated += places[i].tp ? 0 : first->evaluated;
    }
    cr_expect(
            fabs(loss / one->loss - 1) < limit, "%s: %.9g, not %.9g", what,
            loss, one->loss);
    cr_expect(fabs(evaluated / one->evaluated - 1) < limit, "%s", what);
    for (int id = 0; id < table->count; id++) {
        size_t count = table->params[id].count;
        const float *want = tiny_grad(&one->tiny, id);
        ZD_FREED float *sum = calloc(count, sizeof *sum);
        double apart = 0, norm = 0;
        add_slices(g, places, id, sum);
        for (size_t e = 0; e < count; e++) {
            double d = (double)sum[e] - want[e];
            apart += d * d;
            norm += (double)want[e] * want[e];
        }
        cr_expect(
                sqrt(apart) <= grads_limit * sqrt(norm) + 1e-7,
                "%s, %s: %g of %g", what, table->params[id].name, sqrt(apart),
                sqrt(norm));
    }
}

/* What the hooks were asked for is what a plan counts. */
static void expect_traffic(const struct group *g, const struct place *p)
{
    const struct tiny *t = &p->tiny;
    const struct model_config *c = &t->config;
    struct model_exchange plan = model_exchange(c, &t->table, &t->shape);
    size_t width = dtype_bytes(t->shape.dtype); /* two micro-batches */
    cr_expect_eq(p->kv_gathered * width, 2 * plan.kv_gathered);
    cr_expect_eq(p->kv_scattered * width, 2 * plan.kv_scattered);
    cr_expect_eq(p->heads * width, 2 * plan.heads);
    /* of each micro-batch: the embedding, two of a layer forward and two
     * backward, those that are computed again, the head's chunks */
    if (g->tp > 1)
        cr_expect_geq(p->scatters, 2 * (1 + 4 * c->layers));
}

static void compare(
        const char *text, const struct model_shape *shape, double limit,
        double grads_limit, int *compared)
{
    static const struct {
        int cp, tp;
        bool by_heads;
    } sizes[] = {{1, 2},       {1, 3},       {1, 4},       {1, 6},
                 {2, 1},       {3, 1},       {4, 1},       {2, 3},
                 {2, 1, true}, {3, 1, true}, {4, 1, true}, {2, 2, true}};
    struct model_config config, part;
    struct tokens tokens;
    struct group one = {.cp = 1, .tp = 1, .config = &config, .shape = *shape};
    static struct place single[PLACES_MAX], places[PLACES_MAX];
    tiny_config(text, &config);
    config.intermediate_size = 12;
    tokens_fill(&tokens, 1, B, T, config.vocab_size);
    one.batch = &tokens.batch;
    one.shape.mlp_pieces = 1;
    run_places(&one, single);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[80];
        struct group g = one;
        g.cp = sizes[i].cp, g.tp = sizes[i].tp;
        g.shape = *shape;
        g.shape.cp.by_heads = sizes[i].by_heads;
        if (B * T / g.cp % g.tp ||
            model_config_slice(&config, (struct tp){g.tp, 0}, &part)) {
            zd_error_clear();
            continue;
        }
        if (g.shape.cp.by_heads &&
            (part.heads % g.cp || kv_heads_used(&part) % g.cp))
            continue;
        run_places(&g, places);
        ZD_PRINT(
                what, "%s of %d heads, %d x %d places%s", config.family->name,
                config.heads, g.cp, g.tp,
                g.shape.cp.by_heads ? " by heads" : "");
        expect_near(&g, single, places, limit, grads_limit, what);
        for (int p = 0; p < g.cp * g.tp; p++)
            expect_traffic(&g, &places[p]);
        fini_places(&g, places);
        ++*compared;
    }
    fini_places(&one, single);
    model_config_fini(&config);
}

static const struct checkpointing modes[] = {
        {CHECKPOINTING_NONE, 0},
        {CHECKPOINTING_SELECTIVE, 0},
        {CHECKPOINTING_FULL, 0},
        {CHECKPOINTING_EVERY, 2}};

static struct model_shape shape_of(int i, enum dtype dtype)
{
    struct model_shape shape = tiny_shape(B, T, modes[i % 4]);
    shape.dtype = dtype;
    shape.mlp_pieces = i % 3 ? 1 : 2;
    return shape;
}

Test(model_places, losses_and_gradients_are_those_of_one)
{
    int compared = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int i = 0; i < 4; i++) {
            struct model_shape shape = shape_of(s + i, DTYPE_FP32);
            compare(shapes[s], &shape, 2e-6, 2e-5, &compared);
        }
    cr_expect_geq(compared, 40, "%d", compared);
}

/* One place's gradients of these small models are as far from those in fp32. */
Test(model_places, bf16_differs_by_rounding)
{
    int compared = 0;
    for (int s = 0; s < SHAPES; s++) {
        struct model_shape shape = shape_of(s, DTYPE_BF16);
        compare(shapes[s], &shape, 1e-2, 0.4, &compared);
    }
    cr_expect_geq(compared, 10);
}

/* Joined projections, as a GPU has them. */
Test(model_places, projections_are_joined_in_slices_too)
{
    int compared = 0;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 4; i++) {
            struct model_shape shape = shape_of(i, DTYPE_FP32);
            shape.joined = JOIN_QKV | JOIN_GATE_UP;
            compare(shapes[s], &shape, 2e-6, 2e-5, &compared);
        }
    cr_expect_geq(compared, 10);
}

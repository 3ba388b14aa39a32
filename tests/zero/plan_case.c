#include "plan_case.h"

#include "tests/support/must.h"

#include <criterion/criterion.h>

struct fake fake;
struct fake_shape shape = {.layers = 3, .scale = 1, .freeze_every = 5};

static struct zero_plan built;
static struct arena_plan spans; /* its */
static bool has_spans;

static void drop_plan(void)
{
    if (has_spans)
        arena_plan_fini(&spans);
    zero_plan_fini(&built);
    has_spans = false;
}

void plan_setup(void)
{
    fake_create(&fake, &shape);
}

void plan_teardown(void)
{
    drop_plan();
    fake_destroy(&fake);
}

struct zero_request request(int stage, int world, int accumulation)
{
    struct zero_options options = zero_options_default();
    options.stage = stage;
    return (struct zero_request){
            .config = &fake.config,
            .table = &fake.table,
            .mesh = mesh_of(world, 0),
            .options = options,
            .dtype = DTYPE_BF16,
            .accumulation = accumulation,
            .train = true};
}

void replicate(struct zero_request *r, int replicas)
{
    r->mesh.replicate = replicas;
    r->mesh.shard = r->mesh.world / replicas;
}

const struct zero_plan *build(const struct zero_request *r)
{
    drop_plan();
    MUST(zero_plan_build(r, &built));
    return &built;
}

struct comm_counters sent(const struct zero_plan *plan)
{
    return zero_wire_sum(&plan->wire);
}

size_t trainable(const struct zero_plan *plan)
{
    size_t count = 0;
    for (int s = 0; s < plan->segment_count; s++)
        count += plan->segments[s].trainable ? plan->segments[s].count : 0;
    return count;
}

size_t all(const struct zero_plan *plan)
{
    size_t count = 0;
    for (int s = 0; s < plan->segment_count; s++)
        count += plan->segments[s].count;
    return count;
}

uint64_t share(size_t count, int world, size_t bytes)
{
    return (uint64_t)count * (uint64_t)(world - 1) / (uint64_t)world * bytes;
}

const struct arena_plan *spans_of(const struct zero_plan *plan)
{
    cr_assert_eq(plan, &built);
    if (!has_spans) {
        arena_plan_init(&spans);
        has_spans = true;
        MUST(zero_plan_spans(plan, &spans));
    }
    return &spans;
}

size_t bytes_of(const struct zero_plan *plan, const char *name)
{
    const struct arena_span *span = arena_plan_find(spans_of(plan), name);
    return span ? span->bytes : 0;
}

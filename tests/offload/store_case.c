#include "tests/offload/store_case.h"
#include "tests/support/require.h"

#include <stdatomic.h>

static const struct {
    size_t count;
    enum optim_format m, v;
} shapes[CASE_EXTENTS] = {
        {9000, OPTIM_8BIT, OPTIM_8BIT}, {300, OPTIM_FP32, OPTIM_FP32},
        {7, OPTIM_FP32, OPTIM_FP32},    {5121, OPTIM_8BIT, OPTIM_BLOCKS},
        {4096, OPTIM_BF16, OPTIM_BF16}, {2500, OPTIM_FP32, OPTIM_NONE},
};

static void make_runs(struct store_case *test)
{
    for (int i = 0; i < CASE_EXTENTS; i++) {
        struct offload_extent *extent = &test->extents[i];
        extent->segment = i / 3;
        extent->offset = test->segment_counts[extent->segment];
        extent->count = shapes[i].count;
        extent->layout.lane[OPTIM_M] = shapes[i].m;
        extent->layout.lane[OPTIM_V] = shapes[i].v;
        test->segment_counts[extent->segment] +=
                optim_whole_qblocks(extent->count);
    }
    test->segment_offsets[1] = test->segment_counts[0];
}

static void make_request(
        struct store_case *test, const struct store_setup *setup)
{
    test->options = offload_options_default();
    test->options.optimizer = OFFLOAD_NVME;
    test->options.params = setup->params ? OFFLOAD_NVME : OFFLOAD_NONE;
    test->options.threads = setup->threads;
    test->options.chunk_bytes = setup->chunk_bytes;
    test->options.nvme_path = test->scratch.dir;
    test->options.aio.block_bytes = setup->block_bytes;
    if (setup->queue_depth)
        test->options.aio.queue_depth = setup->queue_depth;
    test->optim = (struct optim_options){.name = OPTIM_ADAMW};
    test->request = (struct offload_request){
            .options = &test->options,
            .optim = &test->optim,
            .dtype = DTYPE_BF16,
            .segment_counts = test->segment_counts,
            .segment_count = 2,
            .extents = test->extents,
            .extent_count = CASE_EXTENTS,
            .accumulates = setup->accumulates,
            .params_on_host = setup->params,
    };
}

static void take_memory(struct store_case *test)
{
    size_t count = test->segment_counts[0] + test->segment_counts[1];
    arena_plan_init(&test->plan);
    require(arena_plan_add(
            &test->plan, "before", ARENA_PINNED, SPAN_BUFFERS,
            64)); /* the ring does not begin at a page */
    require(arena_plan_add(
            &test->plan, "offload.ring", ARENA_PINNED, SPAN_BUFFERS,
            test->ring_bytes));
    require(arena_plan_add(
            &test->plan, "offload.slots", ARENA_PINNED, SPAN_GRADS, count * 2));
    require(arena_plan_add(
            &test->plan, "offload.accumulators", ARENA_PINNED, SPAN_GRADS,
            count * 4));
    require(arena_take(&test->arena, &test->plan));
}

void case_init(struct store_case *test, const struct store_setup *setup)
{
    memset(test, 0, sizeof *test);
    scratch_init(&test->scratch);
    make_runs(test);
    make_request(test, setup);
    struct chunk *chunks = chunks_cut(&test->request, &test->chunk_count);
    if (test->chunk_count > CASE_CHUNKS_MAX)
        abort();
    memcpy(test->chunks, chunks, (size_t)test->chunk_count * sizeof *chunks);
    free(chunks);
    store_file_measure(
            &test->request, test->chunks, test->chunk_count, &test->ring_bytes,
            &test->file_bytes);
    take_memory(test);
    test->place.file_name = "zerod-test-0.offload";
    test->store_request = (struct store_request){
            .request = &test->request,
            .chunks = test->chunks,
            .chunk_count = test->chunk_count,
            .segment_offsets = test->segment_offsets,
            .arena = &test->arena,
            .place = &test->place,
    };
    require(store_file_create(&test->store_request, &test->store));
}

void case_fini(struct store_case *test)
{
    store_file_destroy(test->store);
    arena_release(&test->arena);
    arena_plan_fini(&test->plan);
    scratch_fini(&test->scratch);
}

/* --- bytes of a chunk ----------------------------------------------------- */

static unsigned char byte_of(int chunk, int array, int times, size_t at)
{
    if (!times)
        return 0;
    unsigned mixed = (unsigned)at * 2654435761u + (unsigned)chunk * 40503u +
                     (unsigned)array * 9176u + (unsigned)times * 7919u;
    return (unsigned char)(mixed >> 16);
}

static bool holds(
        const void *data, size_t bytes, int chunk, int array, int times)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        if (byte[i] != byte_of(chunk, array, times, i))
            return false;
    return true;
}

static void fill(void *data, size_t bytes, int chunk, int array, int times)
{
    unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        byte[i] = byte_of(chunk, array, times, i);
}

enum { ARRAYS = 7 };
struct arrays {
    void *data[ARRAYS];
    size_t bytes[ARRAYS];
    int part[ARRAYS]; /* number of its bit */
};

static struct arrays arrays_of(
        const struct store_case *test, const struct chunk *chunk,
        const struct chunk_memory *memory)
{
    const struct optim_layout *layout = &test->extents[chunk->extent].layout;
    size_t count = chunk->count;
    struct arrays arrays = {
            .data =
                    {memory->master, memory->lanes.state[0],
                     memory->lanes.state[1], memory->lanes.scale[0],
                     memory->lanes.scale[1], memory->slot,
                     memory->param == memory->slot ? NULL : memory->param},
            .bytes =
                    {count * 4, optim_lane_bytes(layout->lane[0], count),
                     optim_lane_bytes(layout->lane[1], count),
                     optim_scale_count(layout->lane[0], count) * 4,
                     optim_scale_count(layout->lane[1], count) * 4,
                     count * (test->request.accumulates ? 4 : 2), count * 2},
            .part = {0, 1, 2, 1, 2, 3, 3},
    };
    return arrays;
}

/* --- going through a list ------------------------------------------------- */

struct team {
    struct store_case *test;
    const struct store_list *list;
    atomic_int next, wrong;
    atomic_bool failed;
    pthread_mutex_t lock;
    struct zd_error error;
};

static void use_chunk(struct team *team, int id, const struct chunk_memory *m)
{
    struct store_case *test = team->test;
    const struct store_list *list = team->list;
    struct arrays arrays = arrays_of(test, &test->chunks[id], m);
    for (int part = 0; part < 4; part++)
        test->times[part][id] += list->writes >> part & 1;
    for (int a = 0; a < ARRAYS; a++) {
        unsigned bit = 1u << arrays.part[a];
        int times = test->times[arrays.part[a]][id];
        bool is_read = list->reads & bit, is_written = list->writes & bit;
        if ((is_read || is_written) && a == 0 && !arrays.data[a])
            atomic_fetch_add(&team->wrong, 1);
        if (!arrays.data[a] || !arrays.bytes[a])
            continue;
        if (is_read &&
            !holds(arrays.data[a], arrays.bytes[a], id, a, times - is_written))
            atomic_fetch_add(&team->wrong, 1);
        if (is_written)
            fill(arrays.data[a], arrays.bytes[a], id, a, times);
    }
}

static enum zd_status use(struct team *team, int chunk)
{
    struct store_file *store = team->test->store;
    struct chunk_memory memory;
    ZD_TRY(store_file_acquire(store, chunk, &memory));
    use_chunk(team, chunk, &memory);
    return store_file_release(store, chunk);
}

static void *work(void *arg)
{
    struct team *team = arg;
    for (;;) {
        int i = atomic_fetch_add(&team->next, 1);
        if (i >= team->list->count || atomic_load(&team->failed))
            return NULL;
        if (use(team, team->list->first + i) == ZD_OK)
            continue;
        pthread_mutex_lock(&team->lock);
        if (!atomic_exchange(&team->failed, true))
            team->error = *zd_error_get();
        pthread_mutex_unlock(&team->lock);
        return NULL;
    }
}

int case_go_through(
        struct store_case *test, const struct store_list *list, int workers,
        struct zd_error *error_out)
{
    struct team team = {
            .test = test, .list = list, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[CASE_WORKERS_MAX];
    if (store_file_begin(test->store, list) != ZD_OK) {
        if (error_out)
            *error_out = *zd_error_get();
        zd_error_clear();
        return -1;
    }
    for (int i = 0; i < workers; i++)
        if (pthread_create(&threads[i], NULL, work, &team) != 0)
            abort();
    for (int i = 0; i < workers; i++)
        pthread_join(threads[i], NULL);
    if (!team.failed)
        return team.wrong;
    if (error_out)
        *error_out = team.error;
    return -1;
}

static unsigned random_below(unsigned *seed, unsigned limit)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)*seed * limit) >> 32);
}

int case_random_lists(
        struct store_case *test, int lists, int workers, unsigned seed)
{
    int wrong = 0;
    for (int i = 0; i < lists; i++) {
        unsigned kind = random_below(&seed, 4);
        int count = (int)random_below(&seed, (unsigned)test->chunk_count + 1);
        if (kind == 0)
            count = test->chunk_count;
        struct store_list list = {
                .first = (int)random_below(
                        &seed, (unsigned)(test->chunk_count - count + 1)),
                .count = count,
                .reads = random_below(&seed, 16),
                .writes = random_below(&seed, 16)};
        if (count == 0)
            continue;
        int found = case_go_through(test, &list, workers, NULL);
        if (found)
            return found < 0 ? found : wrong + found;
        if (random_below(&seed, 5) == 0 &&
            store_file_finish(test->store) != ZD_OK)
            return -1;
    }
    return wrong;
}

/* search.c - the loop over candidates.
 *
 * Batch sizes are not all tried. With several micro-batches per step memory
 * grows with the micro-batch, so bisection finds the largest that fits; a step
 * of one micro-batch has gradients of another type and is tried first.
 * tests/train/plan/test_search.c compares this with an exhaustive search. */
#include "train/plan/search.h"

#include "base/must.h"
#include "train/plan/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_MAX = 64 };
struct search {
    const struct plan_search *asked;
    const struct plan_query *query;
    const struct plan_machine *machine;
    struct job_plan *plan; /* the last that was tried */
    struct plan_limits limits;
    struct plan_found *found; /* owned */
    int count;
    int64_t global;         /* samples of a step */
    int given, samples;     /* per rank: in a micro-batch, in a step */
    int given_steps;        /* .. micro-batches per step */
    int adapters;           /* option of the begun plan; -1: no such model */
    struct mesh_sizes mesh; /* mesh of the begun plan */
    struct plan_meshes *meshes;
    enum zd_status failed; /* of planning the job itself */
    /* the current candidate, its job and its choice */
    struct plan_candidate candidate;
    struct train_job job;
    struct plan_fit fit;
    bool is_probe;     /* if none fits, its last plan is evaluated */
    bool is_too_large; /* too large with any checkpointing */
};

/* A rank's samples per step in this mesh, and by the job's own keys; given 0 if
 * these would change the step. */
static void share_step(struct search *search)
{
    const struct train_options *train = &search->asked->job->train;
    const struct job_plan *plan = search->plan;
    int samplers = mesh_samples(plan->mesh, 0).size;
    int64_t global;
    search->samples = plan->per_device * plan->accumulation;
    if (train_resolve_batch(
                train, samplers, plan->world / samplers, &search->given,
                &search->given_steps, &global) == ZD_OK &&
        global == search->global)
        return;
    zd_error_clear();
    search->given = search->given_steps = 0;
}

/* Begins the plan of another model (with or without adapters) or mesh, with the
 * same step. False: it cannot be planned. */
static bool begin_model(struct search *search, int adapters)
{
    const struct plan_search *asked = search->asked;
    const struct mesh_sizes mesh = search->job.parallel, begin = search->mesh;
    struct train_job begun = search->job;
    if (adapters == search->adapters && mesh.replicate == begin.replicate &&
        mesh.cp == begin.cp && mesh.tp == begin.tp)
        return true;
    job_plan_fini(search->plan);
    search->adapters = adapters;
    search->mesh = mesh;
    if (!search->query->is_job) {
        begun.train.global_batch_size = search->global;
        begun.train.per_device_train_batch_size = 0;
        begun.train.gradient_accumulation_steps = 0;
    }
    if (plan_begin(
                &begun, asked->world, asked->local_size, NULL, search->plan) !=
        ZD_OK) {
        zd_error_clear();
        search->adapters = -1;
        return false;
    }
    share_step(search);
    return true;
}

/* --- micro-batches -------------------------------------------------------- */

/* Lists the sizes that divide a step, ascending. */
static int list_sizes(
        const struct search *search, bool is_other, int out[SIZES_MAX])
{
    enum { ACCUMULATION_MAX = 4096 }; /* a practical limit */
    int samples = search->samples, many = 0;
    if (search->query->keeps_batch && !is_other) {
        out[0] = search->given;
        return search->given > 0;
    }
    for (int A = samples; A > 0; A--)
        if (samples % A == 0 && many < SIZES_MAX &&
            !(is_other &&
              (samples / A == search->given || A > ACCUMULATION_MAX)))
            out[many++] = samples / A;
    return many;
}

/* Also false if there is no such plan: the window of slots is too small, or the
 * stage does not support the offload. For the job itself that is an error. */
static bool fits_with(struct search *search, int B, bool in_pieces)
{
    uint64_t disk = search->asked->disk;
    search->fit.choice.B = B;
    search->fit.choice.A = search->samples / B;
    enum zd_status status =
            (in_pieces ? plan_try_pieces : plan_try_choice)(&search->fit);
    if (status != ZD_OK && search->query->is_job)
        search->failed = status;
    else if (status != ZD_OK)
        zd_error_clear();
    return status == ZD_OK && search->fit.fits &&
           (!disk || search->plan->arena.bytes[ARENA_DISK] <= disk);
}

/* Does zero's memory for the step as one micro-batch, without gathered units,
 * exceed the limits alone? Then the candidate cannot fit with any
 * checkpointing, because several micro-batches need more. Paged states may be
 * on either side. */
static bool is_too_large(const struct search *search, bool is_paged)
{
    const struct job_plan *plan = search->plan;
    const struct plan_limits *limits = &search->limits;
    struct arena_plan arena = {0};
    if (!plan->zero.segments || search->query->keeps_batch)
        return false;
    if (zero_plan_spans(&plan->zero, &arena) != ZD_OK)
        zd_error_clear();
    const struct arena_span *slots =
            arena_plan_find(&arena, "zero.params.slots");
    double device =
            (double)(arena.bytes[ARENA_DEVICE] + plan->context_bytes -
                     plan->context.tables);
    double host = (double)(arena.bytes[ARENA_HOST] + arena.bytes[ARENA_PINNED]);
    double most =
            fmin((double)limits->total,
                 (double)limits->device + (double)limits->host);
    device -= slots ? (double)slots->bytes : 0;
    arena_plan_fini(&arena);
    return device + host > most ||
           (!is_paged &&
            (device > (double)limits->device || host > (double)limits->host));
}

/* Plans the largest size that fits, or the smallest with its MLP in pieces.
 * False: neither fits. */
static bool fits_largest(struct search *search)
{
    int sizes[SIZES_MAX];
    int many =
            list_sizes(search, search->candidate.option[CHOOSE_BATCH], sizes);
    int low = 0, high = many - 1, last = 0;
    if (!many || fits_with(search, sizes[high], false))
        return many > 0;
    search->is_too_large =
            !search->is_probe && is_too_large(search, search->job.optim.paged);
    if (search->is_too_large)
        return false;
    if (!high || !fits_with(search, sizes[0], false))
        return fits_with(search, sizes[0], true);
    while (high - low > 1) {
        last = low + (high - low) / 2;
        *(fits_with(search, sizes[last], false) ? &low : &high) = last;
    }
    return low == last || fits_with(search, sizes[low], false);
}

/* --- a candidate ---------------------------------------------------------- */

static struct plan_found found_of(const struct search *search)
{
    const struct job_plan *plan = search->plan;
    struct plan_found found = {
            .candidate = search->candidate,
            .choice = search->fit.choice,
            .world = plan->world,
            .device = plan_device_bytes(plan),
            .host = plan_host_bytes(plan),
            .pinned = plan->arena.bytes[ARENA_PINNED],
            .disk = plan->arena.bytes[ARENA_DISK],
            .snapshot = plan->snapshot_bytes};
    found.candidate.option[CHOOSE_BATCH] =
            found.choice.B != search->given ||
            found.choice.A != search->given_steps;
    found.cost = candidate_cost(&found.candidate);
    return found;
}

static struct plan_settings settings_of(
        const struct search *search, const struct plan_found *found)
{
    return candidate_settings(
            search->asked->job, &found->candidate, &found->choice);
}

static enum zd_status keep(struct search *search)
{
    struct job_plan *plan = search->plan;
    bool by_time = search->query->score == PLAN_BY_TIME;
    plan->limits = search->limits;
    if (by_time) {
        struct plan_fit fit = search->fit;
        ZD_TRY(plan_undo(&fit));
        ZD_TRY(plan_divide(&fit, NULL));
        ZD_TRY(plan_snapshot(&search->job, plan));
    }
    struct plan_found found = found_of(search);
    found.settings = settings_of(search, &found);
    plan->snapshot_bytes = 0;
    if (by_time)
        found.predicted = plan_predict(plan, search->machine);
    search->found = zd_must(
            realloc(search->found,
                    (size_t)(search->count + 1) * sizeof *search->found));
    search->found[search->count++] = found;
    return ZD_OK;
}

/* --- the smallest machine ------------------------------------------------- *
 *
 * A candidate takes the least of the device with the smallest micro-batch, or
 * with the whole step as one, which keeps gradients in another type; with all
 * that may wait on the host there (a limit of nothing asks for that), and the
 * least of the host without it. A machine has two memories: what it would need
 * of each is told with the other as it is; if no host memory would do, the
 * least of the device. */

static uint64_t total_of(const struct plan_found *found)
{
    return found->device + found->host;
}

static void note(
        const struct search *search, struct plan_found *least,
        const struct plan_found *found, uint64_t bytes, uint64_t than)
{
    if (least->choice.B && bytes >= than &&
        (bytes > than || total_of(found) >= total_of(least)))
        return;
    *least = *found;
    least->settings = settings_of(search, found);
}

static void note_all(struct search *search, const struct plan_found *found)
{
    struct plan_smallest *out = search->query->smallest;
    const struct plan_limits *limits = &search->limits;
    bool has_room = total_of(found) <= limits->total;
    /* the CPU device without limits: a single memory */
    if (!limits->on_gpu && !limits->limits_device && !limits->limits_host) {
        note(search, &out->any, found, total_of(found), total_of(&out->any));
        return;
    }
    note(search, &out->any, found, found->device, out->any.device);
    if (has_room && found->host <= limits->host)
        note(search, &out->device, found, found->device, out->device.device);
    if (has_room && found->device <= limits->device)
        note(search, &out->host, found, found->host, out->host.host);
}

/* Plans with `device` bytes of the device and unlimited host memory; false: no
 * such plan, or it needs too much disk. */
static bool try_room(
        struct search *search, uint64_t device, struct plan_found *out)
{
    uint64_t disk = search->asked->disk;
    struct plan_fit *fit = &search->fit;
    fit->limits = (struct plan_limits){
            .device = device,
            .host = UINT64_MAX,
            .total = UINT64_MAX,
            .on_gpu = search->limits.on_gpu,
            .local_size = search->limits.local_size};
    fit->choice.mlp_pieces = 0;
    enum zd_status status = plan_try_choice(fit);
    if (status == ZD_OK && !fit->fits)
        status = plan_try_pieces(fit);
    if (status != ZD_OK) {
        zd_error_clear();
        return false;
    }
    *out = found_of(search);
    if (disk && out->disk > disk)
        return false;
    note_all(search, out);
    return true;
}

/* With micro-batches of B: plans everything pageable on the device, and on the
 * host. If it can be divided (paged states), also as much as fits on the host,
 * and as little as the device needs. */
static void try_size(struct search *search, int B)
{
    enum { TRIES = 8 }; /* pieces are whole, so the first try may miss */
    const struct plan_limits *limits = &search->limits;
    struct plan_found here, there, part;
    search->fit.choice.B = B;
    search->fit.choice.A = search->samples / B;
    bool ok = try_room(search, UINT64_MAX, &here);
    ok &= try_room(search, 0, &there);
    if (!ok || here.device <= there.device || here.host >= there.host)
        return;
    /* a mix cannot need less than these bounds: try it only if it may win */
    const struct plan_smallest *found = search->query->smallest;
    bool may_win =
            !found->device.choice.B ||
            there.device + there.host < found->device.device + limits->host;
    part = there;
    uint64_t device = there.device;
    for (int i = 0; i < TRIES && may_win && here.host <= limits->host &&
                    part.host > limits->host;
         i++) {
        device += (part.host - limits->host) * (i ? 2 : 1);
        if (!try_room(search, device, &part))
            break;
    }
    may_win = !found->host.choice.B ||
              here.device + here.host < found->host.host + limits->device;
    if (may_win && there.device <= limits->device &&
        here.device > limits->device)
        try_room(search, limits->device, &part);
}

static void try_smallest(struct search *search)
{
    bool keeps = search->query->keeps_batch;
    try_size(search, keeps ? search->given : 1);
    if (!keeps && search->samples > 1)
        try_size(search, search->samples);
}

/* --- the loop ------------------------------------------------------------- */

/* Begins a candidate, perhaps with another model or mesh. False: it cannot be
 * planned. */
static bool begin_candidate(
        struct search *search, const struct plan_candidate *candidate,
        bool is_probe)
{
    const struct train_job *job = &search->job;
    search->candidate = *candidate;
    search->job = candidate_job(search->asked->job, candidate);
    search->is_probe = is_probe;
    search->is_too_large = false;
    search->fit = (struct plan_fit){
            .job = job,
            .limits = search->limits,
            .plan = search->plan,
            .choice = {
                    .checkpointing = job->train.gradient_checkpointing,
                    .by_layer = job->train.accumulation_order ==
                                ORDER_BREADTH_FIRST,
                    .only_fits = !search->query->smallest,
                    .moves_most = PLAN_MOVES_MOST}};
    return begin_model(search, candidate->option[CHOOSE_ADAPTERS]);
}

static enum zd_status try_candidate(
        struct search *search, struct plan_candidate *candidate)
{
    if (!begin_candidate(search, candidate, false))
        return ZD_OK;
    if (search->query->smallest) {
        try_smallest(search);
        return ZD_OK;
    }
    if (!fits_largest(search)) {
        if (search->is_too_large)
            candidate_skip(candidate, CHOOSE_STAGE);
        return search->failed;
    }
    /* nothing is paged, or there is only one micro-batch: equals another
     * candidate */
    if ((candidate->option[CHOOSE_PLACE] == PLACE_PAGED &&
         !job_plan_paged(search->plan).host) ||
        (candidate->option[CHOOSE_ORDER] && search->fit.choice.A == 1))
        return ZD_OK;
    return keep(search);
}

/* --- meshes --------------------------------------------------------------- */

static int mesh_number(const struct plan_candidate *candidate)
{
    const unsigned char *option = candidate->option;
    return (option[CHOOSE_MESH] * 8 + option[CHOOSE_CP]) * 8 +
           option[CHOOSE_TP];
}

/* tp ranks, which wait for each other in every layer, must share a node; tp x
 * cp must divide a node or be whole nodes. */
static bool is_within_node(
        const struct search *search, const struct plan_candidate *candidate)
{
    const struct train_job job = candidate_job(search->asked->job, candidate);
    int node = plan_local_size(
            &job, search->asked->world, search->asked->local_size);
    bool differs = candidate->option[CHOOSE_CP] || candidate->option[CHOOSE_TP];
    int tp = job.parallel.tp, both = job.parallel.cp * tp;
    return !differs ||
           (node % tp == 0 && (node % both == 0 || both % node == 0));
}

/* Candidates to score a mesh: from everything on the device to as little as
 * possible there, as far as the space allows. */
static const struct plan_candidate probes[] = {
        {{[CHOOSE_MODE] = MODE_NONE}},
        {{[CHOOSE_MODE] = MODE_FULL, [CHOOSE_STAGE] = STAGE_3}},
        {{[CHOOSE_MODE] = MODE_FULL,
          [CHOOSE_STAGE] = STAGE_3,
          [CHOOSE_ACTIVATIONS] = ACTIVATIONS_CPU,
          [CHOOSE_PLACE] = PLACE_CPU}},
        {{[CHOOSE_MODE] = MODE_FULL,
          [CHOOSE_STAGE] = STAGE_3,
          [CHOOSE_ACTIVATIONS] = ACTIVATIONS_CPU,
          [CHOOSE_PLACE] = PLACE_CPU,
          [CHOOSE_PARAMS] = PARAMS_CPU}},
};
enum { PROBES = sizeof probes / sizeof *probes };
static const double never = 1e12; /* seconds */

/* Seconds of a step; if it does not fit, `never` plus the missing bytes. */
static double score_probe(
        struct search *search, const struct plan_candidate *candidate)
{
    const struct job_plan *plan = search->plan;
    const struct plan_limits *limits = &search->limits;
    if (!begin_candidate(search, candidate, true))
        return INFINITY;
    if (fits_largest(search))
        return plan_predict(plan, search->machine).step_seconds;
    if (!plan->arena.bytes[ARENA_DEVICE]) /* it could not be planned */
        return INFINITY;
    uint64_t device = plan_device_bytes(plan), host = plan_host_bytes(plan);
    return never + (double)plan_left(device, limits->device) +
           (double)plan_left(host, limits->host);
}

static double score_mesh(
        struct search *search, const struct plan_candidate *mesh)
{
    const struct plan_space *space = &search->query->space;
    const struct train_job *job = search->asked->job;
    double best = INFINITY;
    for (int i = 0; i < PROBES && best > never; i++) {
        struct plan_candidate candidate = *mesh;
        for (int d = 0; d < CHOOSE_MESH; d++)
            if (space->options[d] & 1u << probes[i].option[d])
                candidate.option[d] = probes[i].option[d];
        if (candidate_is_sound(job, search->asked->world, &candidate))
            best = fmin(best, score_probe(search, &candidate));
    }
    return best;
}

/* Chooses the meshes to search and leaves out the rest. */
static void choose_meshes(struct search *search)
{
    enum { MOST = 6 };
    const unsigned *options = search->query->space.options;
    bool *is_left_out = search->meshes->is_left_out;
    struct plan_space space = {{0}};
    struct plan_candidate mesh = {{0}};
    double scores[PLAN_MESHES];
    if (search->meshes->is_known ||
        (!options[CHOOSE_CP] && !options[CHOOSE_TP]))
        return;
    search->meshes->is_known = true;
    for (int m = 0; m < PLAN_MESHES; m++) {
        is_left_out[m] = true;
        scores[m] = INFINITY;
    }
    for (int d = CHOOSE_MESH; d <= CHOOSE_TP; d++)
        space.options[d] = options[d];
    do
        if (is_within_node(search, &mesh) &&
            candidate_is_sound(search->asked->job, search->asked->world, &mesh))
            scores[mesh_number(&mesh)] = score_mesh(search, &mesh);
    while (candidate_next(&space, &mesh));
    for (int kept = 0; kept < MOST; kept++) {
        int best = 0; /* the job's own */
        for (int m = 1; m < PLAN_MESHES; m++)
            if (is_left_out[m] &&
                (!is_left_out[best] || scores[m] < scores[best]))
                best = m;
        bool fits = is_left_out[best] && scores[best] < never;
        if (fits || !kept)
            is_left_out[best] = false;
        if (!fits)
            return;
        is_left_out[0] = false;
    }
}

/* --- all of them ---------------------------------------------------------- */

static bool is_tried(
        const struct search *search, const struct plan_candidate *candidate,
        int cost)
{
    const struct plan_query *query = search->query;
    const struct train_job *job = search->asked->job;
    bool by_cost = query->score == PLAN_BY_COST;
    int changes = 0;
    for (int d = 0; d < CHOICES; d++)
        changes += candidate->option[d] != 0;
    if (query->changes_most && changes > query->changes_most)
        return false;
    if (search->meshes->is_left_out[mesh_number(candidate)])
        return false;
    /* with the mode open, the job itself is not a candidate */
    if (job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO &&
        !candidate->option[CHOOSE_MODE])
        return false;
    if (by_cost && candidate_cost(candidate) != cost)
        return false;
    for (int i = 0; by_cost && i < search->count; i++)
        if (candidate_holds(candidate, &search->found[i].candidate))
            return false;
    return candidate_is_sound(job, search->asked->world, candidate);
}

static enum zd_status run(struct search *search)
{
    enum { COST_MAX = 5 };
    const struct plan_query *query = search->query;
    int costs = query->score == PLAN_BY_COST ? COST_MAX : 1;
    choose_meshes(search);
    for (int cost = 1; cost <= costs; cost++) {
        struct plan_candidate candidate = {{0}};
        do {
            if (is_tried(search, &candidate, cost))
                ZD_TRY(try_candidate(search, &candidate));
            if (query->most && search->count == query->most)
                return ZD_OK;
        } while (candidate_next(&query->space, &candidate));
    }
    return ZD_OK;
}

/* For qsort. Times that differ only by rounding are equal; then the order of
 * enumeration decides. */
static int by_time(const void *a, const void *b)
{
    const struct plan_found *x = a, *y = b;
    float tx = (float)x->predicted.step_seconds;
    float ty = (float)y->predicted.step_seconds;
    if (tx != ty)
        return tx < ty ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return memcmp(&x->candidate, &y->candidate, sizeof x->candidate);
}

enum zd_status plan_search_run(
        const struct plan_query *query, struct plan_found **found_out,
        int *count_out)
{
    const struct plan_search *asked = query->search;
    ZD_SCOPED(job_plan_fini) struct job_plan own = {0};
    struct plan_meshes meshes = {0};
    struct search search = {
            .asked = asked,
            .query = query,
            .plan = query->plan ? query->plan : &own,
            .mesh = asked->job->parallel,
            .meshes = query->meshes ? query->meshes : &meshes};
    *found_out = NULL;
    *count_out = 0;
    if (!query->plan) {
        ZD_TRY(plan_begin(
                asked->job, asked->world, asked->local_size, NULL, &own));
        own.limits = plan_limits_of(asked->job, &own);
    }
    search.limits = query->limits ? *query->limits : search.plan->limits;
    search.global = search.plan->global_batch;
    search.given = search.plan->per_device;
    search.given_steps = search.plan->accumulation;
    search.samples = search.given * search.given_steps;
    search.machine = asked->machine
                             ? asked->machine
                             : plan_machine_default(search.plan->backend);
    if (query->smallest)
        query->smallest->limits = search.limits;
    enum zd_status status = run(&search);
    if (query->score == PLAN_BY_TIME && search.count)
        qsort(search.found, (size_t)search.count, sizeof *search.found,
              by_time);
    *found_out = search.found;
    *count_out = search.count;
    return status;
}

struct train_job plan_settled(
        const struct train_job *job, const struct job_plan *plan)
{
    struct train_job settled = *job;
    settled.train.gradient_checkpointing = plan->shape.checkpointing;
    settled.train.accumulation_order =
            plan->by_layer ? ORDER_BREADTH_FIRST : ORDER_DEPTH_FIRST;
    return settled;
}

struct plan_query plan_query_job(const struct plan_search *search)
{
    return (struct plan_query){
            .search = search,
            .space = plan_space_job(search->job),
            .keeps_batch = true,
            .is_job = true};
}

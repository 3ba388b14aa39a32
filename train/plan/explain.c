#include "train/plan/explain.h"

#include <math.h>

static const char zero_paper[] =
        "Rajbhandari et al. 2020, arXiv:1910.02054, figure 1";
static const char activations_paper[] =
        "Korthikanti et al. 2022, arXiv:2205.05198, equation 1 and section 5";

struct explain_states explain_states(
        double elements, double width, double states, int world, int stage)
{
    double N = world;
    return (struct explain_states){
            .parameters = elements * width / (stage >= 3 ? N : 1),
            .gradients = elements * width / (stage >= 2 ? N : 1),
            .optimizer = elements * states / (stage >= 1 ? N : 1)};
}

double explain_layer(
        enum explain_activations what, double s, double b, double h, double a)
{
    switch (what) {
    case EXPLAIN_ALL:
        return s * b * h * (34 + 5 * a * s / h);
    case EXPLAIN_SELECTIVE:
        return 34 * s * b * h;
    case EXPLAIN_FULL:
        break;
    }
    return 2 * s * b * h;
}

/* --- what a plan has ------------------------------------------------------ */

static double kind_bytes(const struct job_plan *plan, enum span_kind kind)
{
    double bytes = 0;
    for (int m = 0; m < ARENA_MEMORIES; m++)
        bytes += (double)arena_plan_kind_bytes(
                &plan->arena, (enum arena_memory)m, kind);
    return bytes;
}

/* Bytes of one lane of moments for an element, as articles count it: scales of
 * 8-bit states are left out. */
static double moments(const struct optim_options *optim)
{
    static const double widths[] = {
            [OPTIM_STATE_FP32] = 4,
            [OPTIM_STATE_BF16] = 2,
            [OPTIM_STATE_8BIT] = 1};
    double width = widths[optim->state_type];
    switch (optim->name) {
    case OPTIM_ADAMW:
        return 2 * width;
    case OPTIM_ADAM_MINI:
    case OPTIM_LION:
        return width;
    case OPTIM_SGD:
        return optim->momentum > 0 ? width : 0;
    }
    return 0;
}

static void add_states(
        const struct job_plan *plan, struct explained *rows, int *count)
{
    const struct zero_request *request = &plan->zero.request;
    double width = (double)dtype_bytes(request->dtype);
    double master = request->dtype != DTYPE_FP32 &&
                                    request->optim.master == OPTIM_MASTER_FP32
                            ? sizeof(float)
                            : 0;
    double states = master + moments(&request->optim);
    double all = (double)plan->table.total,
           trained = (double)plan->table.trainable;
    int stage = request->options.stage, N = plan->world;
    struct explain_states of_all = explain_states(all, width, 0, N, stage);
    struct explain_states of_trained =
            explain_states(trained, width, states, N, stage);
    const struct {
        const char *kind;
        double width, elements, paper;
        int cut_from;
        enum span_kind span;
    } what[] = {
            {"parameters", width, all, of_all.parameters, 3, SPAN_PARAMS},
            {"gradients", width, trained, of_trained.gradients, 2, SPAN_GRADS},
            {"optimizer", states, trained, of_trained.optimizer, 1,
             SPAN_OPTIMIZER}};
    for (int i = 0; i < 3; i++) {
        struct explained *row = &rows[(*count)++];
        *row = (struct explained){
                .kind = what[i].kind,
                .bytes = kind_bytes(plan, what[i].span),
                .paper_bytes = what[i].paper,
                .source = zero_paper};
        if (stage >= what[i].cut_from && N > 1)
            snprintf(
                    row->formula, sizeof row->formula, "%g x %.6g / %d ranks",
                    what[i].width, what[i].elements, N);
        else
            snprintf(
                    row->formula, sizeof row->formula, "%g x %.6g",
                    what[i].width, what[i].elements);
    }
}

/* --- activations ---------------------------------------------------------- */

static void add_activations(
        const struct job_plan *plan, struct explained *rows, int *count)
{
    static const struct {
        const char *kind, *formula;
        enum explain_activations what;
    } modes[] = {
            {"activations, nothing computed again", "s b h L (34 + 5 a s / h)",
             EXPLAIN_ALL},
            {"activations, attention computed again", "34 s b h L",
             EXPLAIN_SELECTIVE},
            {"activations, layers computed again", "2 s b h L", EXPLAIN_FULL}};
    const struct model_config *config = &plan->config;
    double s = plan->shape.T, b = plan->shape.B, h = config->hidden_size,
           a = config->heads, L = config->layers;
    /* our attention never keeps its scores: arXiv:2205.14135 */
    enum checkpointing_mode mode = plan->shape.checkpointing.mode;
    bool recomputes =
            mode != CHECKPOINTING_NONE && mode != CHECKPOINTING_SELECTIVE;
    enum explain_activations ours =
            recomputes ? EXPLAIN_FULL : EXPLAIN_SELECTIVE;
    for (int i = 0; i < 3; i++) {
        struct explained *row = &rows[(*count)++];
        *row = (struct explained){
                .kind = modes[i].kind,
                .bytes = modes[i].what == ours
                                 ? kind_bytes(plan, SPAN_ACTIVATIONS)
                                 : NAN,
                .paper_bytes = L * explain_layer(modes[i].what, s, b, h, a),
                .source = activations_paper};
        snprintf(
                row->formula, sizeof row->formula,
                "%s: s %g, b %g, h %g, a %g, L %g", modes[i].formula, s, b, h,
                a, L);
    }
}

int plan_explain(
        const struct job_plan *plan, struct explained out[EXPLAINED_MAX])
{
    int count = 0;
    add_states(plan, out, &count);
    add_activations(plan, out, &count);
    out[count++] = (struct explained){
            .kind = "gathered units, work and staging buffers",
            .bytes = kind_bytes(plan, SPAN_BUFFERS),
            .paper_bytes = NAN,
            .source = "counted by no paper"};
    if (plan->context_bytes)
        out[count++] = (struct explained){
                .kind = "driver and libraries",
                .bytes = (double)plan->context_bytes,
                .paper_bytes = NAN,
                .source = "counted by no paper"};
    return count;
}

/* --- as it is told -------------------------------------------------------- */

static json_t *bytes_json(double bytes)
{
    return isnan(bytes) ? json_null()
                        : json_integer((json_int_t)llround(bytes));
}

json_t *plan_explain_json(const struct job_plan *plan)
{
    struct explained rows[EXPLAINED_MAX];
    int count = plan_explain(plan, rows);
    json_t *json = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
                json, json_pack(
                              "{s:s, s:s, s:o, s:o, s:s}", "kind", rows[i].kind,
                              "formula", rows[i].formula, "bytes",
                              bytes_json(rows[i].bytes), "paper_bytes",
                              bytes_json(rows[i].paper_bytes), "source",
                              rows[i].source));
    return json;
}

static void print_bytes(double bytes, FILE *stream)
{
    if (isnan(bytes))
        fprintf(stream, " %12s", "-");
    else
        fprintf(stream, " %12.3f", bytes / 1e9);
}

void plan_explain_print(const struct job_plan *plan, FILE *stream)
{
    struct explained rows[EXPLAINED_MAX];
    int count = plan_explain(plan, rows);
    fprintf(stream,
            "what a rank holds, and as papers count it (GB = 1e9 bytes):\n"
            "  %-42s %12s %12s\n",
            "", "here", "on paper");
    for (int i = 0; i < count; i++) {
        fprintf(stream, "  %-42s", rows[i].kind);
        print_bytes(rows[i].bytes, stream);
        print_bytes(rows[i].paper_bytes, stream);
        fprintf(stream, "  %s%s%s\n", rows[i].formula,
                rows[i].formula[0] ? "; " : "", rows[i].source);
    }
}

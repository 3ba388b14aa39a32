/* test_mini_blocks.c - whole trainings with Adam-mini: a v of its checkpoint is
 * the mean of the squares of one block, and the blocks are the paper's. */
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sizes {
    size_t width, inner, heads, head_dim;
};

static size_t columns_of(const char *name, const struct sizes *s)
{
    if (strstr(name, "c_attn"))
        return 3 * s->width;
    if (strstr(name, "c_fc") || strstr(name, "down_proj"))
        return s->inner;
    return strstr(name, "norm") || strstr(name, "ln_") ? 1 : s->width;
}

/* The partition written out by the names of tensors. */
static size_t block_of(const char *name, const struct sizes *s, size_t element)
{
    size_t columns = columns_of(name, s);
    size_t row = element / columns, column = element % columns;
    if (strstr(name, "c_attn")) {
        size_t part = column / s->width, at = column % s->width;
        return part == 2 ? 2 * s->heads + at
                         : part * s->heads + at / s->head_dim;
    }
    if (strstr(name, "c_fc") || strstr(name, "c_proj"))
        return column;
    if (strstr(name, "q_proj") || strstr(name, "k_proj"))
        return row / s->head_dim;
    return strstr(name, "norm") || strstr(name, "ln_") ? 0 : row;
}

/* After one step m is (1 - b1) g, and v (1 - b2) times the mean of g^2. */
static double worst_block(
        const struct saved_array *v, const struct saved_array *m,
        const struct sizes *s)
{
    size_t count = m->used / 4, blocks = v->used / 4, used = 0;
    double *sum = calloc(count, sizeof *sum), worst = 0;
    double *members = calloc(count, sizeof *members);
    for (size_t e = 0; e < count; e++) {
        size_t b = block_of(v->name, s, e);
        double g = (double)((float *)m->bytes)[e] / (1 - 0.9);
        sum[b] += g * g;
        members[b]++;
        used = b >= used ? b + 1 : used;
    }
    for (size_t b = 0; b < used && b < blocks; b++) {
        double want = (1 - 0.95) * sum[b] / members[b];
        double got = (double)((float *)v->bytes)[b];
        worst = fmax(worst, want > 0 ? fabs(got / want - 1) : fabs(got));
    }
    free(sum);
    free(members);
    return used == blocks ? worst : INFINITY;
}

/* `path` at 1 to 4 ranks: shards cut heads, rows and columns. */
static void blocks_are_the_papers(
        const char *path, const struct sizes *sizes, int tensors)
{
    for (int world = 1; world <= 4; world++) {
        const char *dir = job_threads_dir();
        bool ok = job_runs(
                path, dir, world,
                "optim.name=adam_mini run.stop_after=1 zero.stage=%d "
                "offload.optimizer=%s",
                world % 4, world % 2 ? "none" : "cpu");
        struct saved_state state = saved_state_of(dir, world, 1);
        double worst = 0;
        int found = 0;
        for (int i = 0; i < state.count; i++) {
            const char *name = state.arrays[i].name;
            char m_name[200];
            if (strncmp(name, "v_blocks/", 9) != 0)
                continue;
            snprintf(m_name, sizeof m_name, "m/%s", name + 9);
            worst =
                    fmax(worst,
                         worst_block(
                                 &state.arrays[i],
                                 saved_array_of(&state, m_name, strlen(m_name)),
                                 sizes));
            found++;
        }
        tap_ok(ok && found == tensors && worst < 1e-5,
               "%s, %d ranks: v of %d tensors' blocks is the mean of their "
               "squares (%.1g)",
               path, world, found, worst);
        saved_state_free(&state);
    }
}

int main(void)
{
    static const struct sizes gpt2 = {32, 128, 4, 8};
    static const struct sizes llama = {64, 160, 4, 16};
    blocks_are_the_papers("tests/fixtures/gpt2/job.toml", &gpt2, 3 * 6 + 3);
    blocks_are_the_papers("tests/train/states.toml", &llama, 2 * 9 + 3);
    return tap_done();
}

#include "model/rope.h"
#include "model/config_keys.h"

#include <math.h>

static double scale_llama3(const struct rope_set *s, double inv_freq)
{
    double original = s->original_positions;
    double wave = 2.0 * M_PI / inv_freq;
    if (wave > original / s->low_freq_factor)
        return inv_freq / s->factor;
    if (wave < original / s->high_freq_factor)
        return inv_freq;
    double smooth = (original / wave - s->low_freq_factor) /
                    (s->high_freq_factor - s->low_freq_factor);
    return (1.0 - smooth) * inv_freq / s->factor + smooth * inv_freq;
}

/* The pair that makes `turns` rotations within the original context. */
static double yarn_pair(const struct rope_set *s, double turns)
{
    return s->dims * log(s->original_positions / (turns * 2 * M_PI)) /
           (2 * log(s->theta));
}

static double scale_yarn(const struct rope_set *s, double inv_freq, int i)
{
    double low = yarn_pair(s, s->beta_fast), high = yarn_pair(s, s->beta_slow);
    low = fmax(s->truncate ? floor(low) : low, 0);
    high = fmin(s->truncate ? ceil(high) : high, s->dims - 1);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return inv_freq * (ramp / s->factor + 1 - ramp);
}

double rope_inv_freq(const struct rope_set *s, int positions, int i)
{
    double theta = s->theta, d = s->dims;
    if (s->type == ROPE_DYNAMIC && positions > s->positions)
        theta *=
                pow(s->factor * positions / s->positions - s->factor + 1,
                    d / (d - 2));
    double inv_freq = pow(theta, -2.0 * i / s->dims);
    bool is_long = positions > s->original_positions;
    switch (s->type) {
    case ROPE_LINEAR:
        return inv_freq / s->factor;
    case ROPE_YARN:
        return scale_yarn(s, inv_freq, i);
    case ROPE_LONGROPE:
        return inv_freq / s->factors[is_long ? rope_pairs(s) + i : i];
    case ROPE_LLAMA3:
        return scale_llama3(s, inv_freq);
    default:
        return inv_freq;
    }
}

static size_t table_floats(const struct rope_set *s, int positions)
{
    return (size_t)positions * (size_t)rope_pairs(s);
}

size_t rope_table_floats(const struct rope_set *s, int positions)
{
    return (s->q_beta > 0 ? 4 : 2) * table_floats(s, positions);
}

struct rope_tables rope_tables_at(
        const struct rope_set *s, int positions, float *memory)
{
    size_t count = table_floats(s, positions);
    float *q = s->q_beta > 0 ? memory + 2 * count : memory;
    return (struct rope_tables){memory, memory + count, q, q + count};
}

static float q_scale(const struct rope_set *s, int position)
{
    double spans = floor((double)position / s->original_positions);
    return (float)(1 + s->q_beta * log(1 + spans));
}

void rope_fill(
        const struct rope_set *s, int positions, const struct rope_tables *t)
{
    int pairs = rope_pairs(s);
    float a = (float)s->attention_factor;
    for (int i = 0; i < pairs; i++) {
        float inv_freq = (float)rope_inv_freq(s, positions, i);
        for (int p = 0; p < positions; p++) {
            size_t at = (size_t)p * (size_t)pairs + (size_t)i;
            float angle = (float)p * inv_freq;
            t->cosine[at] = (float)cos(angle) * a;
            t->sine[at] = (float)sin(angle) * a;
            if (t->q_cosine == t->cosine)
                continue;
            t->q_cosine[at] = t->cosine[at] * q_scale(s, p);
            t->q_sine[at] = t->sine[at] * q_scale(s, p);
        }
    }
}

#include "model/rope.h"

#include <math.h>

static double scale_llama3(const struct model_config *c, double inv_freq)
{
    double original = c->rope_original_positions;
    double wave = 2.0 * M_PI / inv_freq;
    if (wave > original / c->rope_low_freq_factor)
        return inv_freq / c->rope_factor;
    if (wave < original / c->rope_high_freq_factor)
        return inv_freq;
    double smooth = (original / wave - c->rope_low_freq_factor) /
                    (c->rope_high_freq_factor - c->rope_low_freq_factor);
    return (1.0 - smooth) * inv_freq / c->rope_factor + smooth * inv_freq;
}

double rope_inv_freq(const struct model_config *config, int i)
{
    double inv_freq = pow(config->rope_theta, -2.0 * i / config->head_dim);
    return config->rope_llama3 ? scale_llama3(config, inv_freq) : inv_freq;
}

void rope_fill(
        const struct model_config *config, int positions, float *cosine,
        float *sine)
{
    int half = config->head_dim / 2;
    for (int i = 0; i < half; i++) {
        float inv_freq = (float)rope_inv_freq(config, i);
        for (int p = 0; p < positions; p++) {
            float angle = (float)p * inv_freq;
            cosine[(size_t)p * half + i] = (float)cos(angle);
            sine[(size_t)p * half + i] = (float)sin(angle);
        }
    }
}

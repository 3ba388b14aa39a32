#include "model/files/config.h"
#include "model/rope.h"

#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

/* Llama-3.2-1B: frequencies that are kept, blended and slowed down. */
static const struct {
    int i;
    double inv_freq;
} golden[] = {
        {0, 1.0},
        {1, 6.636012377e-01},
        {8, 3.760603093e-02},
        {13, 4.839421346e-03},
        {14, 3.211445995e-03},
        {15, 1.290547928e-03},
        {16, 4.295567966e-04},
        {17, 9.708287803e-05},
        {18, 1.946163818e-05},
        {19, 1.291476719e-05},
        {20, 8.570255490e-06},
        {31, 9.418306725e-08},
};

Test(model_rope, scaled_frequencies_are_those_of_llama_3)
{
    struct model_config config;
    tiny_config(
            "{\"model_type\":\"llama\",\"head_dim\":64,\"rope_theta\":5e5,"
            "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
            "\"low_freq_factor\":1,\"high_freq_factor\":4,"
            "\"original_max_position_embeddings\":8192}}",
            &config);
    for (size_t k = 0; k < sizeof golden / sizeof *golden; k++) {
        double got = rope_inv_freq(&config, golden[k].i);
        cr_expect(
                fabs(got / golden[k].inv_freq - 1.0) < 1e-9, "%d: %.9e",
                golden[k].i, got);
    }
    model_config_fini(&config);
}

/* idle.c - keys of a job that speak of GPUs alone. */
#include "base/text_buffer.h"
#include "daemon/job/job_internal.h"

/* On the CPU: attention is our own and products are fp32, sums are in rank
 * order, and collectives are MPI's. */
static const struct {
    const char *section, *name;
} gpu_keys[] = {
        {"device", "gpus"}, {"device", "numa_bind"}, {"model", "attn"},
        {"train", "tf32"},  {"comm", "reduce"},      {"comm", "max_ctas"},
};

bool job_idle_keys(const struct job *job, char *out, size_t bytes)
{
    struct text_buffer text = {.out = out, .bytes = bytes};
    if (device_resolve(job_options(job)->device.backend) != DEVICE_CPU)
        return false;
    for (size_t i = 0; i < sizeof gpu_keys / sizeof gpu_keys[0]; i++)
        if (job_is_given(job, gpu_keys[i].section, gpu_keys[i].name))
            text_buffer_add(
                    &text, "%s%s.%s", text.used ? ", " : "",
                    gpu_keys[i].section, gpu_keys[i].name);
    return text.used > 0;
}

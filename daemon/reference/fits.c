#include "daemon/reference/fits.h"

#include "base/must.h"
#include "base/units.h"
#include "base/words.h"
#include "train/plan/fit.h"
#include "train/plan/models.h"
#include "train/plan/search.h"

#include <stdlib.h>

enum { SAMPLES = 8, TOKENS = 2048 };

/* Devices as they are sold. */
static const char *const sizes[] = {"6 GiB",  "8 GiB",  "12 GiB", "16 GiB",
                                    "24 GiB", "32 GiB", "40 GiB", "48 GiB",
                                    "80 GiB", "141 GB"};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

enum kind { WHOLE, WHOLE_8BIT, LORA, QLORA, KINDS };

/* On one GPU, with as much memory of the host as it likes. */
static struct train_job job_of(json_t *config, int positions, enum kind kind)
{
    struct train_job job = train_job_default();
    job.model.config = config;
    job.model.attn = ATTENTION_OWN; /* whatever this was built with */
    job.data.cutoff_len = positions < TOKENS ? positions : TOKENS;
    job.device.backend = DEVICE_CUDA;
    job.device.cpu_threads = 1;
    job.device.host_memory_limit = (uint64_t)1 << 50;
    job.train.per_device_train_batch_size = SAMPLES;
    job.train.gradient_accumulation_steps = 1;
    job.offload.nvme_path = "";
    job.lora.enabled = kind == LORA || kind == QLORA;
    if (kind == WHOLE_8BIT)
        job.optim.state_type = OPTIM_STATE_8BIT;
    if (kind == QLORA)
        job.lora.quantize_base = LORA_BASE_NF4;
    return job;
}

static json_t *found_text(const struct plan_found *found)
{
    const unsigned char *option = found->candidate.option;
    char mode[PLAN_NAME_MAX];
    plan_checkpointing_name(found->choice.checkpointing, mode);
    return json_sprintf(
            "%.1f + %.1f %s %d%s%s%s%s%s", units_gib(found->device),
            units_gib(found->host - found->snapshot), mode, found->choice.B,
            option[CHOOSE_PLACE] == PLACE_CPU     ? " o"
            : option[CHOOSE_PLACE] == PLACE_PAGED ? " paged"
                                                  : "",
            option[CHOOSE_PARAMS] == PARAMS_CPU ? " p" : "",
            option[CHOOSE_ACTIVATIONS] == ACTIVATIONS_CPU ? " a" : "",
            found->choice.mlp_pieces > 1 ? " t" : "",
            found->choice.by_layer ? " b" : "");
}

static json_t *cell(const struct plan_search *search)
{
    ZD_FREED struct plan_found *found = NULL;
    int count = 0;
    json_t *text = plan_search_fits(search, &found, &count) == ZD_OK
                           ? found_text(&found[0])
                           : json_string("-");
    zd_error_clear();
    return text;
}

/* What it would need at least of the device. */
static json_t *least(const struct plan_search *search)
{
    struct plan_smallest smallest;
    json_t *text = plan_search_smallest(search, NULL, &smallest) == ZD_OK
                           ? found_text(&smallest.any)
                           : json_string("");
    zd_error_clear();
    return text;
}

static json_t *row(const struct plan_model *model, json_t *config, int size)
{
    bool is_least = size == SIZES;
    json_t *cells = json_pack("[s]", is_least ? "the least" : sizes[size]);
    double bytes = 1;
    if (!is_least)
        words_size(sizes[size], &bytes);
    for (enum kind kind = WHOLE; kind < KINDS; kind++) {
        struct train_job job = job_of(config, model->positions, kind);
        const struct plan_search search = {
                .job = &job,
                .world = 1,
                .local_size = 1,
                .machine = plan_machine_find("h100")};
        job.device.memory_limit = (uint64_t)bytes;
        json_array_append_new(cells, is_least ? least(&search) : cell(&search));
    }
    return cells;
}

json_t *fits_json(void)
{
    const struct plan_model *model;
    json_t *fits = json_array();
    for (int i = 0; (model = plan_model_at(i)); i++) {
        json_t *config = plan_model_config(model), *rows = json_array();
        for (int size = 0; size <= SIZES; size++)
            json_array_append_new(rows, row(model, config, size));
        json_array_append_new(
                fits,
                json_pack("{s:s, s:o}", "model", model->name, "rows", rows));
        json_decref(config);
    }
    return fits;
}

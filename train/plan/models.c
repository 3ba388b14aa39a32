/* models.c - shapes from each model's config.json. */
#include "train/plan/models.h"

#include <string.h>

/* clang-format off */
static const struct plan_model models[] = {
        /* name, type, parameters, hidden, layers, heads, kv, head, inner, vocabulary, positions, tied, window */
        {"Llama 3.1 405B", "llama",       405853388800, 16384, 126, 128,  8, 128, 53248, 128256, 131072, false},
        {"Llama 3.1 70B",  "llama",        70553706496,  8192,  80,  64,  8, 128, 28672, 128256, 131072, false},
        {"Qwen3 32B",      "qwen3",        32762123264,  5120,  64,  64,  8, 128, 25600, 151936,  40960, false},
        {"Gemma 3 27B",    "gemma3_text",  27009346304,  5376,  62,  32, 16, 128, 21504, 262208, 131072, true, 1024},
        {"Qwen3 14B",      "qwen3",        14768307200,  5120,  40,  40,  8, 128, 17408, 151936,  40960, false},
        {"Phi-4 14B",      "phi3",         14659507200,  5120,  40,  40, 10, 128, 17920, 100352,  16384, false},
        {"Gemma 2 9B",     "gemma2",        9241705984,  3584,  42,  16,  8, 256, 14336, 256000,   8192, true, 4096},
        {"Qwen3 8B",       "qwen3",         8190735360,  4096,  36,  32,  8, 128, 12288, 151936,  40960, false},
        {"Llama 3.1 8B",   "llama",         8030261248,  4096,  32,  32,  8, 128, 14336, 128256, 131072, false},
        {"Qwen3 4B",       "qwen3",         4022468096,  2560,  36,  32,  8, 128,  9728, 151936,  40960, true},
        {"Gemma 3 4B",     "gemma3_text",   3880263168,  2560,  34,   8,  4, 256, 10240, 262208, 131072, true, 1024},
        {"Llama 3.2 3B",   "llama",         3212749824,  3072,  28,  24,  8, 128,  8192, 128256, 131072, true},
        {"SmolLM3 3B",     "smollm3",       3075098624,  2048,  36,  16,  4, 128, 11008, 128256,  65536, true},
        {"Qwen3 1.7B",     "qwen3",         1720574976,  2048,  28,  16,  8, 128,  6144, 151936,  40960, true},
        {"GPT-2 XL",       "gpt2",          1557611200,  1600,  48,  25, 25,  64,  6400,  50257,   1024, true},
        {"Llama 3.2 1B",   "llama",         1235814400,  2048,  16,  32,  8,  64,  8192, 128256, 131072, true},
        {"Gemma 3 1B",     "gemma3_text",    999885952,  1152,  26,   4,  1, 256,  6912, 262144,  32768, true, 512},
        {"GPT-2 large",    "gpt2",           774030080,  1280,  36,  20, 20,  64,  5120,  50257,   1024, true},
        {"Qwen3 0.6B",     "qwen3",          596049920,  1024,  28,  16,  8, 128,  3072, 151936,  40960, true},
        {"GPT-2 medium",   "gpt2",           354823168,  1024,  24,  16, 16,  64,  4096,  50257,   1024, true},
        {"GPT-2",          "gpt2",           124439808,   768,  12,  12, 12,  64,  3072,  50257,   1024, true},
};
/* clang-format on */

const struct plan_model *plan_model_at(int index)
{
    int count = sizeof models / sizeof models[0];
    return index >= 0 && index < count ? &models[index] : NULL;
}

json_t *plan_model_config(const struct plan_model *model)
{
    if (!strcmp(model->type, "gpt2"))
        return json_pack(
                "{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2",
                "n_embd", model->hidden, "n_layer", model->layers, "n_head",
                model->heads, "n_inner", model->inner, "vocab_size",
                model->vocabulary, "n_positions", model->positions);
    json_t *config = json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type",
            model->type, "hidden_size", model->hidden, "num_hidden_layers",
            model->layers, "num_attention_heads", model->heads,
            "num_key_value_heads", model->kv_heads, "head_dim", model->head_dim,
            "intermediate_size", model->inner, "vocab_size", model->vocabulary,
            "max_position_embeddings", model->positions, "tie_word_embeddings",
            model->is_tied);
    if (model->window)
        json_object_set_new(
                config, "sliding_window", json_integer(model->window));
    return config;
}

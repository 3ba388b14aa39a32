#include "model/adapters/peft.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/config.h"
#include "model/files/hf_names.h"
#include "model/quantized/quantized.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX  "base_model.model."
#define WEIGHTS "adapter_model.safetensors"

enum { CHUNK = 4096 };

static const char no_module[] =
        "tensor `%.200s` belongs to no module of the base";
static const char embedding_adapted[] =
        "`%s`: an adapter of an embedding is not supported; modules_to_save "
        "trains it whole";

struct opening {
    const struct model_config *config;
    const struct param_table *table;
    struct peft_adapter *adapter;
};

static enum zd_status tell_place(const struct opening *o)
{
    const char *base = o->adapter->config.base_model;
    zd_fail_where("%s", o->adapter->file->path);
    if (base && base[0])
        zd_fail_help(
                "the adapter was made for `%s`: is that the model here?", base);
    return ZD_ERR_DATA;
}

#define REFUSE(o, code, ...) (ZD_BAD(code, __VA_ARGS__), tell_place(o))

/* --- placing one tensor --------------------------------------------------- */

/* The base's tensor that is the module's weight; -1: none. */
static int find_weight(const struct opening *o, const char *module)
{
    char name[MODULE_BYTES + 8], ours[HF_NAME_BYTES];
    ZD_PRINT(name, "%s.weight", module);
    hf_name_canonical(o->config, name, ours);
    return param_table_find(o->table, ours);
}

/* Removes the suffix `end`; false: the name does not have it. */
static bool cut_end(char *name, const char *end)
{
    size_t bytes = strlen(name), cut = strlen(end);
    if (bytes <= cut || strcmp(name + bytes - cut, end) != 0)
        return false;
    name[bytes - cut] = '\0';
    return true;
}

const char *const peft_ends[PEFT_KINDS] = {
        [PEFT_A] = ".lora_A.weight",
        [PEFT_B] = ".lora_B.weight",
        [PEFT_MAGNITUDE] = ".lora_magnitude_vector",
        [PEFT_UNDER] = ".base_layer.weight"};

int peft_shape(
        const struct param *param, enum peft_kind kind, int r, int64_t shape[2])
{
    int64_t in = param_in(param), out = param_out(param);
    bool is_whole = kind == PEFT_SAVED || kind == PEFT_UNDER;
    shape[0] = is_whole ? param->shape[0] : kind == PEFT_A ? r : out;
    shape[1] = is_whole         ? param->shape[1]
               : kind == PEFT_A ? in
               : kind == PEFT_B ? r
                                : 1;
    return is_whole ? param->dims : kind == PEFT_MAGNITUDE ? 1 : 2;
}

/* Stores a tensor's place; a duplicate is an error (GPT-2's names may have a
 * prefix or not). */
static enum zd_status place(
        struct opening *o, const struct st_tensor *tensor, int id,
        enum peft_kind kind)
{
    int64_t shape[2];
    struct stored stored = {o->adapter->file, tensor};
    struct peft_part *part = &o->adapter->parts[id];
    int dims = peft_shape(&o->table->params[id], kind, part->r, shape);
    if (part->tensors[kind])
        return REFUSE(
                o, "E0322", "tensor `%s` appears twice, also as `%s`",
                tensor->name, part->tensors[kind]->name);
    part->tensors[kind] = tensor;
    part->has[kind] = true;
    return stored_check_shape(
                   stored, "E0323", "the base and adapter_config.json ask for",
                   dims, shape) == ZD_OK
                   ? ZD_OK
                   : tell_place(o);
}

static enum zd_status place_lora(
        struct opening *o, const struct st_tensor *tensor, const char *module,
        enum peft_kind kind)
{
    struct peft_adapter *a = o->adapter;
    int id = find_weight(o, module);
    if (id >= 0 && o->table->params[id].is_embedding)
        return REFUSE(o, "E0321", embedding_adapted, tensor->name);
    if (id < 0 || !param_is_linear(&o->table->params[id]))
        return REFUSE(o, "E0322", no_module, tensor->name);
    if (!peft_config_targets(&a->config, module))
        return REFUSE(
                o, "E0322",
                "adapter_config.json does not name the module of `%s`",
                tensor->name);
    if (kind == PEFT_MAGNITUDE && !a->config.use_dora)
        return REFUSE(
                o, "E0322",
                "`%s` is of DoRA, which adapter_config.json does not ask for",
                tensor->name);
    a->parts[id].r = peft_config_rank(&a->config, module);
    a->parts[id].scale = peft_config_scale(&a->config, module);
    return place(o, tensor, id, kind);
}

/* A tied head cannot be saved with other values than the embedding's. */
static enum zd_status check_tied_head(
        const struct opening *o, const struct st_tensor *head)
{
    float x[CHUNK], y[CHUNK];
    const struct peft_adapter *a = o->adapter;
    const struct st_tensor *embedding = a->parts[0].tensors[PEFT_SAVED];
    bool equal = embedding && embedding->count == head->count;
    for (size_t at = 0; equal && at < head->count; at += CHUNK) {
        size_t n = head->count - at < CHUNK ? head->count - at : CHUNK;
        ZD_TRY(st_read_float(a->file, head, at, n, x));
        ZD_TRY(st_read_float(a->file, embedding, at, n, y));
        equal = memcmp(x, y, n * sizeof *x) == 0;
    }
    if (equal)
        return ZD_OK;
    return REFUSE(
            o, "E0322",
            embedding ? "`%s` differs from the embedding, to which the head of "
                        "the base is tied"
                      : "`%s` is saved, but the head of the base is tied: "
                        "its embedding must be saved",
            head->name);
}

static enum zd_status place_saved(
        struct opening *o, const struct st_tensor *tensor, const char *name)
{
    struct peft_adapter *a = o->adapter;
    char ours[HF_NAME_BYTES];
    hf_name_canonical(o->config, name, ours);
    if (o->config->tied && strcmp(ours, "lm_head.weight") == 0)
        return check_tied_head(o, tensor);
    int id = param_table_find(o->table, ours);
    if (id < 0 || o->table->params[id].part != PARAM_BASE)
        return REFUSE(o, "E0322", no_module, tensor->name);
    if (!peft_config_saves(
                &a->config, peft_module(o->config, o->table, id).name))
        return REFUSE(
                o, "E0322",
                "`%s` is saved whole, but not named by modules_to_save",
                tensor->name);
    return place(o, tensor, id, PEFT_SAVED);
}

static enum zd_status place_tensor(
        struct opening *o, const struct st_tensor *tensor)
{
    char name[MODULE_BYTES];
    enum dtype type;
    size_t prefix = strlen(PREFIX);
    if (strncmp(tensor->name, PREFIX, prefix) != 0 ||
        strlen(tensor->name) - prefix >= sizeof name)
        return REFUSE(o, "E0322", no_module, tensor->name);
    if (!dtype_find(dtype_safetensors_name, tensor->dtype, &type))
        return REFUSE(
                o, "E0323", "tensor `%s` is none of F32, BF16 and F16",
                tensor->name);
    strcpy(name, tensor->name + prefix);
    for (int kind = 0; kind < PEFT_KINDS; kind++)
        if (peft_ends[kind] && cut_end(name, peft_ends[kind]))
            return place_lora(o, tensor, name, (enum peft_kind)kind);
    if (strstr(name, ".lora_embedding_"))
        return REFUSE(o, "E0321", embedding_adapted, tensor->name);
    return place_saved(o, tensor, name);
}

/* --- all of them ---------------------------------------------------------- */

/* Is everything that adapter_config.json names in the file? */
static enum zd_status check_complete(const struct opening *o)
{
    const struct peft_config *c = &o->adapter->config;
    const struct peft_view view = {o->config, c, o->table};
    bool any = false;
    for (int id = 0; id < o->table->count; id++) {
        const struct st_tensor *const *has = o->adapter->parts[id].tensors;
        struct module weight = peft_view_module(&view, id);
        const char *module = weight.name;
        bool target = peft_adapts(&view, id);
        if (target && !(has[PEFT_A] && has[PEFT_B]))
            return REFUSE(
                    o, "E0322", "the adapter of `%s` is missing or incomplete",
                    module);
        if (target && c->use_dora && !has[PEFT_MAGNITUDE])
            return REFUSE(
                    o, "E0322", "the magnitudes (DoRA) of `%s` are missing",
                    module);
        if (!target && peft_config_saves(c, module) && !has[PEFT_SAVED])
            return REFUSE(
                    o, "E0322",
                    "modules_to_save names `%s`, which is not in the file",
                    module);
        any = any || has[PEFT_A] || has[PEFT_SAVED];
    }
    return any ? ZD_OK
               : REFUSE(o, "E0322",
                        "adapter_config.json adapts no module of the base");
}

/* --- the base as it was in training --------------------------------------- */

/* *table_out is a new reference; NULL: as in the base. */
static enum zd_status read_rope(const struct st_file *file, json_t **table_out)
{
    json_error_t error;
    const char *text = json_string_at(file->metadata, PEFT_ROPE_KEY);
    *table_out = text ? json_loads(text, 0, &error) : NULL;
    if (!text || json_is_object(*table_out))
        return ZD_OK;
    json_decref(*table_out);
    ZD_BAD("E0323", "the metadata `" PEFT_ROPE_KEY "` is not a table in JSON");
    return zd_fail_where("%s", file->path);
}

static enum zd_status check_rope(const struct opening *o)
{
    json_auto_t *table = NULL;
    const struct st_file *file = o->adapter->file;
    ZD_TRY(read_rope(file, &table));
    if (!table || json_equal(table, model_config_rope(o->config)))
        return ZD_OK;
    ZD_BAD("E0326",
           "the adapter was trained with rope_scaling = %.300s, which the "
           "model here does not have",
           json_string_at(file->metadata, PEFT_ROPE_KEY));
    zd_fail_where("%s", file->path);
    return zd_fail_help("in a job: the same table as model.rope_scaling; "
                        "adapters of different tables cannot be combined");
}

static enum zd_status extend(
        const struct st_file *file, struct model_config *config)
{
    json_auto_t *table = NULL;
    char module[HF_NAME_BYTES], name[2 * HF_NAME_BYTES];
    hf_name_of_module(config, config->family->embeddings[0].name, module);
    ZD_PRINT(name, PREFIX "%s", module);
    const struct st_tensor *embedding = st_find(file, name);
    int64_t rows = embedding && embedding->dims == 2 ? embedding->shape[0] : 0;
    if (rows > config->vocab_size && rows <= INT_MAX)
        model_config_resize_vocab(config, (int)rows);
    ZD_TRY(read_rope(file, &table));
    if (!table || config->rope_scaling ||
        json_equal(table, model_config_rope(config)))
        return ZD_OK;
    return model_config_scale_rope(table, file->path, ZD_ERR_DATA, config);
}

enum zd_status peft_extend_config(const char *dir, struct model_config *config)
{
    const struct fs_path path = fs_in(dir, WEIGHTS);
    struct st_file *file;
    if (!fs_exists(path.text)) /* peft_open reports it */
        return ZD_OK;
    ZD_TRY(st_open(path.text, &file));
    enum zd_status status = extend(file, config);
    st_close(file);
    return status;
}

enum zd_status peft_open(
        const char *dir, const struct model_config *config,
        const struct param_table *table, struct peft_adapter *adapter_out)
{
    ZD_SCOPED(peft_close) struct peft_adapter adapter = {0};
    struct opening o = {config, table, &adapter};
    ZD_TRY(peft_config_read(dir, &adapter.config));
    enum zd_status status = st_open(fs_in(dir, WEIGHTS).text, &adapter.file);
    if (status == ZD_ERR_NO_INPUT)
        zd_fail_help("an adapter in a pickle file (adapter_model.bin) is never "
                     "read; save it as safetensors");
    ZD_TRY(status);
    adapter.parts = zd_array((size_t)table->count, sizeof *adapter.parts);
    /* sorted by name: the embedding comes later than a tied head */
    for (int pass = 0; pass < 2; pass++)
        ZD_EACH(t, adapter.file->tensors, adapter.file->tensor_count) {
            bool late = strcmp(t->name, PREFIX "lm_head.weight") == 0;
            if (late == (pass == 1))
                ZD_TRY(place_tensor(&o, t));
        }
    ZD_TRY(check_complete(&o));
    ZD_TRY(check_rope(&o));
    *adapter_out = ZD_TAKE(adapter);
    return ZD_OK;
}

void peft_close(struct peft_adapter *adapter)
{
    if (!adapter)
        return;
    peft_config_fini(&adapter->config);
    st_close(adapter->file);
    free(adapter->parts);
    memset(adapter, 0, sizeof *adapter);
}

enum zd_status peft_read(
        const struct peft_adapter *adapter, const struct st_tensor *tensor,
        size_t begin, size_t count, float *out)
{
    ZD_TRY(st_read_float(adapter->file, tensor, begin, count, out));
    return stored_check_finite(
            (struct stored){adapter->file, tensor}, begin, count, out);
}

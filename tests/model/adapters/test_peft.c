#include "model/adapters/peft.h"

#include "base/file/safetensors.h"
#include "base/must.h"
#include "tests/model/cases.h"
#include "tests/model/opened.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

#include <math.h>
#include <unistd.h>

static const char llama[] = "llama_adapted";

static enum zd_status parse(
        const char *text, enum zd_status on_error, struct peft_config *config)
{
    json_auto_t *json = NULL;
    tiny_must(json_parse(text, strlen(text), "test", ZD_ERR_BUG, &json));
    return peft_config_parse(json, "here", on_error, config);
}

/* --- the configuration ---------------------------------------------------- */

Test(model_peft, a_key_that_is_not_implemented_is_refused_by_name)
{
    struct cases row = cases_open("adapter_refused.txt");
    while (cases_next(&row)) {
        struct peft_config config;
        const char *json = row.fields[1];
        for (int s = 0; s < 2; s++) {
            enum zd_status as = s ? ZD_ERR_CONFIG : ZD_ERR_DATA;
            expect_refused(parse(json, as, &config), as, row.fields[0], json);
        }
    }
}

Test(model_peft, defaults_that_peft_writes_are_accepted)
{
    struct peft_config config;
    tiny_must(parse(
            "{\"target_modules\":\"all-linear\",\"bias\":\"none\","
            "\"megatron_core\":\"megatron.core\",\"qalora_group_size\":16,"
            "\"loftq_config\":{},\"from_next_year\":null,"
            "\"layers_pattern\":\"\",\"init_lora_weights\":true}",
            ZD_ERR_DATA, &config));
    cr_assert(config.r == 8 && config.lora_alpha == 8 && !config.use_dora);
    peft_config_fini(&config);
}

Test(model_peft, modules_are_named_by_pefts_rules)
{
    struct cases row = cases_open("adapter_targets.txt");
    while (cases_next(&row)) {
        struct peft_config config;
        tiny_must(parse(row.fields[2], ZD_ERR_DATA, &config));
        cr_expect(
                peft_config_targets(&config, row.fields[1]) ==
                        (strcmp(row.fields[0], "yes") == 0),
                "%s of %s", row.fields[1], row.fields[2]);
        peft_config_fini(&config);
    }
}

Test(model_peft, the_first_pattern_that_matches_gives_rank_and_alpha)
{
    struct peft_config config;
    tiny_must(
            parse("{\"target_modules\":\"all-linear\",\"r\":4,\"lora_alpha\":6,"
                  "\"use_rslora\":true,"
                  "\"rank_pattern\":{\"layers.0.q_proj\":9,\"q_proj|v\":16},"
                  "\"alpha_pattern\":{\"^model.layers.1.q_proj\":2.5,"
                  "\"q_proj\":10}}",
                  ZD_ERR_DATA, &config));
    cr_assert(peft_config_rank(&config, "model.layers.0.q_proj") == 9);
    cr_assert(peft_config_rank(&config, "model.layers.1.q_proj") == 16);
    cr_assert(peft_config_rank(&config, "model.layers.1.v") == 16);
    cr_assert(peft_config_rank(&config, "model.layers.1.o_proj") == 4);
    cr_assert(peft_config_rank(&config, "model.layers.1.xq_proj") == 4);
    cr_assert(peft_config_scale(&config, "model.layers.0.q_proj") == 10 / 3.0);
    cr_assert(peft_config_scale(&config, "model.layers.1.q_proj") == 2.5 / 4);
    cr_assert(peft_config_scale(&config, "model.layers.1.o_proj") == 3);
    peft_config_fini(&config);
}

/* --- PEFT's own files ----------------------------------------------------- */

struct fixture {
    struct opened base;
    struct peft_adapter adapter;
};

static void open_fixture(struct fixture *o, const char *name)
{
    char dir[PATH_BYTES];
    opened_base(&o->base, name);
    ZD_PRINT(dir, "%s/adapters/%s", getenv("ZEROD_FIXTURES"), name);
    tiny_must(peft_open(dir, &o->base.config, &o->base.table, &o->adapter));
}

static void close_fixture(struct fixture *o)
{
    peft_close(&o->adapter);
    opened_fini(&o->base);
}

static const struct peft_part *part(const struct fixture *o, const char *name)
{
    int id = param_table_find(&o->base.table, name);
    cr_assert(id >= 0, "%s", name);
    return &o->adapter.parts[id];
}

static bool is_of(const struct peft_part *part, int64_t in, int64_t out)
{
    return part->tensors[PEFT_A]->shape[1] == in &&
           part->tensors[PEFT_B]->shape[0] == out;
}

Test(model_peft, ranks_and_scales_of_pefts_files)
{
    struct fixture o;
    open_fixture(&o, "llama-patterns");
    const struct peft_part *q =
            part(&o, "model.layers.0.self_attn.q_proj.weight");
    cr_assert(q->r == 2 && q->scale == 3 && is_of(q, 32, 64));
    q = part(&o, "model.layers.1.self_attn.q_proj.weight");
    cr_assert(q->r == 4 && q->scale == 1.5);
    q = part(&o, "model.layers.1.mlp.down_proj.weight");
    cr_assert(q->r == 4 && q->scale == 0.75 && is_of(q, 72, 32));
    cr_assert(
            part(&o, "model.embed_tokens.weight")->tensors[PEFT_SAVED] != NULL);
    cr_assert(part(&o, "model.layers.0.mlp.up_proj.weight")->r == 0);
    close_fixture(&o);

    open_fixture(&o, "gpt2-rslora");
    q = part(&o, "h.2.attn.c_attn.weight");
    cr_assert(q->r == 3 && is_of(q, 32, 96));
    cr_assert(q->scale == 5 / sqrt(3));
    cr_assert(part(&o, "h.1.attn.c_attn.weight")->r == 0);
    cr_assert(part(&o, "ln_f.bias")->tensors[PEFT_SAVED] != NULL);
    close_fixture(&o);

    open_fixture(&o, "gpt2-dora");
    q = part(&o, "h.1.mlp.c_proj.weight");
    cr_assert(is_of(q, 128, 32) && q->tensors[PEFT_MAGNITUDE] != NULL);
    close_fixture(&o);

    open_fixture(&o, "llama_odd-head");
    q = part(&o, "lm_head.weight");
    cr_assert(
            q->tensors[PEFT_A] != NULL && q->tensors[PEFT_UNDER] != NULL &&
            q->scale == 1);
    close_fixture(&o);
}

/* --- written and read again ----------------------------------------------- */

static enum zd_status read_from(
        const void *ctx, int id, enum peft_kind kind, size_t begin,
        size_t count, float *out)
{
    const struct peft_adapter *a = ctx;
    const struct st_tensor *const *tensors = a->parts[id].tensors;
    return peft_read(a, tensors[kind], begin, count, out);
}

static void compare(
        const struct peft_adapter *x, const struct st_tensor *s,
        const struct peft_adapter *y, const struct st_tensor *t)
{
    cr_assert((s == NULL) == (t == NULL));
    if (!s)
        return;
    cr_assert(s->count == t->count);
    ZD_FREED float *values = malloc(2 * s->count * sizeof *values);
    tiny_must(peft_read(x, s, 0, s->count, values));
    tiny_must(peft_read(y, t, 0, t->count, values + s->count));
    cr_assert(memcmp(values, values + s->count, s->bytes) == 0, "%s", s->name);
}

Test(model_peft, what_is_written_reads_as_the_same_adapter)
{
    static const char *const names[] = {
            "llama-patterns", "gpt2-rslora", "gpt2-dora", "qwen3-dora"};
    struct scratch scratch;
    scratch_init(&scratch);
    for (int i = 0; i < 4; i++) {
        struct fixture o;
        struct peft_adapter again;
        char note[PEFT_NOTE_BYTES];
        open_fixture(&o, names[i]);
        struct peft_source source = {read_from, &o.adapter};
        const char *dir = scratch_path(&scratch, "peft");
        tiny_must(peft_write(
                dir, &o.base.config, &o.base.table, &o.adapter.config, "base",
                NULL, DTYPE_FP32, &source, note));
        cr_assert(note[0] != '\0');
        tiny_must(peft_open(dir, &o.base.config, &o.base.table, &again));
        cr_assert(!again.config.use_rslora);
        cr_assert_str_eq(again.config.base_model, "base");
        for (int id = 0; id < o.base.table.count; id++) {
            const struct peft_part *p = &o.adapter.parts[id];
            const struct peft_part *q = &again.parts[id];
            cr_assert(p->r == q->r);
            cr_assert(fabs(p->scale - q->scale) <= 1e-15 * p->scale);
            for (int kind = PEFT_A; kind <= PEFT_SAVED; kind++)
                compare(&o.adapter, p->tensors[kind], &again, q->tensors[kind]);
        }
        peft_close(&again);
        close_fixture(&o);
    }
    scratch_fini(&scratch);
}

static enum zd_status read_ones(
        const void *ctx, int id, enum peft_kind kind, size_t begin,
        size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = 1;
    return ZD_OK;
}

Test(model_peft, rslora_is_folded_into_alpha_for_other_readers)
{
    struct tiny t = {0};
    struct scratch scratch;
    struct peft_config adapter, again;
    char note[PEFT_NOTE_BYTES] = "x";
    tiny_config(llama, &t.config);
    tiny_must(param_table_build(&t.config, NULL, 0, &t.table));
    scratch_init(&scratch);
    tiny_must(
            parse("{\"target_modules\":\"all-linear\",\"r\":4,\"lora_alpha\":3,"
                  "\"use_rslora\":true}",
                  ZD_ERR_DATA, &adapter));
    struct peft_source source = {read_ones, NULL};
    const char *dir = scratch_path(&scratch, "peft");
    tiny_must(peft_write(
            dir, &t.config, &t.table, &adapter, NULL, NULL, DTYPE_BF16, &source,
            note));
    cr_assert_str_eq(note, "");
    tiny_must(peft_config_read(dir, &again));
    cr_assert(again.lora_alpha == 6 && again.r == 4 && !again.use_rslora);
    json_t *targets = json_object_get(again.json, "target_modules");
    cr_assert(json_array_size(targets) == 7);
    cr_assert_str_eq(json_string_value(json_array_get(targets, 0)), "q_proj");
    peft_config_fini(&adapter);
    peft_config_fini(&again);
    scratch_fini(&scratch);
    param_table_fini(&t.table);
    model_config_fini(&t.config);
}

/* --- broken files --------------------------------------------------------- */

/* An adapter of q_proj in both layers, r 2, with one thing wrong. */
struct fault {
    const char *what, *named;
    const char *keys; /* more keys of the configuration, after a comma */
    const char *from; /* a tensor that gets the name `to`; "": is left out */
    const char *to;
    const char *extra; /* one tensor more, (5, 4) */
    int64_t rows;      /* of every A; 0: 2 */
    const char *dtype; /* of all; NULL: F32 */
};

static void write_adapter(struct scratch *scratch, const struct fault *fault)
{
    char names[8][128], text[512];
    struct st_entry entries[8];
    struct st_writer *writer;
    int count = 0;
    for (int i = 0; i < 4; i++) {
        char *name = names[count];
        int64_t rows = fault->rows ? fault->rows : 2;
        snprintf(
                name, 128,
                "base_model.model.model.layers.%d.self_attn.q_proj.lora_%c"
                ".weight",
                i / 2, i % 2 ? 'B' : 'A');
        if (fault->from && strstr(name, fault->from)) {
            if (!*fault->to)
                continue;
            snprintf(name, 128, "%s", fault->to);
        }
        entries[count++] = (struct st_entry){
                name,
                fault->dtype ? fault->dtype : "F32",
                2,
                {i % 2 ? 4 : rows, i % 2 ? 2 : 4}};
    }
    if (fault->extra)
        entries[count++] = (struct st_entry){fault->extra, "F32", 2, {5, 4}};
    const char *path = scratch_path(scratch, "adapter_model.safetensors");
    unlink(path);
    tiny_must(st_writer_create(path, entries, count, NULL, &writer));
    for (int i = 0; i < count; i++) {
        const struct st_entry *e = &entries[i];
        float value = 1;
        for (int64_t k = 0; k < e->shape[0] * e->shape[1]; k++)
            tiny_must(st_writer_add(
                    writer, i, &value, strcmp(e->dtype, "U8") == 0 ? 1 : 4));
    }
    tiny_must(st_writer_finish(writer, NULL, NULL));
    int bytes = ZD_PRINT(
            text, "{\"target_modules\":[\"q_proj\"],\"r\":2%s}",
            fault->keys ? fault->keys : "");
    scratch_file(scratch, "adapter_config.json", text, (size_t)bytes);
}

Test(model_peft, one_error_names_what_is_wrong)
{
#define Q0 "layers.0.self_attn.q_proj.lora_B"
#define P  "base_model.model."
    static const struct fault faults[] = {
            {"sound"},
            {"no B", "layers.0.self_attn.q_proj", NULL, Q0, ""},
            {"not named", "lora_A", ",\"layers_to_transform\":[1]"},
            {"another rank", "[3, 4]", ",\"rank_pattern\":{\"q_proj\":3}"},
            {"another base", "[2, 4]", NULL, NULL, NULL, NULL, 3},
            {"DoRA without magnitudes", "DoRA", ",\"use_dora\":true"},
            {"of a module that is none", "layers.9", NULL, Q0,
             P "model.layers.9.self_attn.q_proj.lora_B.weight"},
            {"a norm", "model.norm", NULL, Q0, P "model.norm.lora_B.weight"},
            {"without the prefix", "x.lora_B", NULL, Q0, "x.lora_B.weight"},
            {"an adapter's name in it", "other", NULL, Q0,
             P "model.layers.0.self_attn.q_proj.lora_B.other.weight"},
            {"an embedding's adapter", "modules_to_save", NULL, NULL, NULL,
             P "model.embed_tokens.lora_embedding_A"},
            {"an embedding as a target", "modules_to_save", NULL, NULL, NULL,
             P "model.embed_tokens.lora_A.weight"},
            {"saved, not named", "modules_to_save", NULL, NULL, NULL,
             P "model.embed_tokens.weight"},
            {"named, not saved", "model.norm",
             ",\"modules_to_save\":[\"model.norm\"]"},
            {"a tied head", "lm_head", ",\"modules_to_save\":[\"lm_head\"]",
             NULL, NULL, P "lm_head.weight"},
            {"a byte's type", "F16", NULL, NULL, NULL, NULL, 0, "U8"},
    };
    struct tiny t = {0};
    tiny_config(llama, &t.config);
    tiny_must(param_table_build(&t.config, NULL, 0, &t.table));
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct scratch scratch;
        struct peft_adapter adapter;
        scratch_init(&scratch);
        write_adapter(&scratch, &faults[i]);
        enum zd_status status =
                peft_open(scratch.dir, &t.config, &t.table, &adapter);
        const char *named = faults[i].named;
        expect_refused(
                status, named ? ZD_ERR_DATA : ZD_OK, named ? named : "",
                faults[i].what);
        if (status == ZD_OK)
            peft_close(&adapter);
        scratch_fini(&scratch);
    }
    param_table_fini(&t.table);
    model_config_fini(&t.config);
}

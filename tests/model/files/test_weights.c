#include "model/files/config.h"
#include "model/files/weights_hf.h"
#include "model/weights.h"

#include "base/file/safetensors.h"
#include "base/must.h"
#include "tests/model/cases.h"
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

#include <math.h>
#include <unistd.h>

static const char tied[] = "tied";
static const char gpt2[] =
        "{\"model_type\":\"gpt2\",\"vocab_size\":5,\"n_embd\":4,"
        "\"n_layer\":1,\"n_head\":2,\"n_positions\":3}";

struct fixture {
    struct model_config config;
    struct param_table table;
    struct scratch scratch;
};

static void setup(struct fixture *f, const char *config)
{
    memset(f, 0, sizeof *f);
    tiny_config(config, &f->config);
    tiny_must(param_table_build(&f->config, NULL, 0, &f->table));
    scratch_init(&f->scratch);
}

static void teardown(struct fixture *f)
{
    scratch_fini(&f->scratch);
    param_table_fini(&f->table);
    model_config_fini(&f->config);
}

/* How a file differs from a whole and healthy one. */
struct fault {
    const char *what;
    const char *named; /* must be in the message */
    int skip;    /* tensor left out; these three count from 1, 0 is none */
    int reshape; /* tensor with a row too many */
    int retype;  /* tensor of 32-bit integers */
    const char *extra;     /* name of one tensor more, (5, 4) */
    const char *prefix;    /* before every name */
    size_t cut;            /* bytes missing at the end */
    float value;           /* element 2 of tensor 1 */
    enum zd_status status; /* of open; reading finds the rest */
};

static void write_file(
        struct fixture *f, const char *name, const struct fault *fault,
        int from, int to)
{
    struct st_entry entries[64];
    char names[64][128];
    char path[PATH_MAX];
    struct st_writer *writer;
    int ids[64], count = 0;
    for (int id = from; id < to; id++) {
        const struct param *p = &f->table.params[id];
        if (id + 1 == fault->skip)
            continue;
        ZD_PRINT(
                names[count], "%s%s", fault->prefix ? fault->prefix : "",
                p->name);
        entries[count] = (struct st_entry){
                .name = names[count],
                .dtype = id + 1 == fault->retype ? "I32" : "F32",
                .dims = p->dims,
                .shape =
                        {p->shape[0] + (id + 1 == fault->reshape), p->shape[1]},
        };
        ids[count++] = id;
    }
    if (fault->extra) {
        entries[count] = (struct st_entry){fault->extra, "F32", 2, {5, 4}};
        ids[count++] = -1;
    }
    strcpy(path, scratch_path(&f->scratch, name));
    tiny_must(st_writer_create(path, entries, count, NULL, &writer));
    for (int entry = 0; entry < count; entry++) {
        int id = ids[entry];
        int64_t elements =
                entries[entry].shape[0] *
                (entries[entry].dims == 2 ? entries[entry].shape[1] : 1);
        for (int64_t k = 0; k < elements; k++) {
            float value = (float)id + (float)k / 128;
            if (id == 1 && k == 2 && fault->value != 0)
                value = fault->value;
            tiny_must(st_writer_add(writer, entry, &value, sizeof value));
        }
    }
    uint64_t bytes;
    tiny_must(st_writer_finish(writer, NULL, &bytes));
    if (fault->cut)
        cr_assert(truncate(path, (off_t)(bytes - fault->cut)) == 0);
}

/* Open, then read every tensor; *opened_out: it was the reading that failed. */
static enum zd_status read_all(struct fixture *f, bool *opened_out)
{
    struct weight_source source;
    enum dtype storage;
    enum zd_status status = weights_open_hf(
            f->scratch.dir, &f->config, &f->table, &storage, &source);
    *opened_out = status == ZD_OK;
    if (status != ZD_OK)
        return status;
    ZD_FREED float *out = malloc((f->table.total + 1) * sizeof *out);
    for (int id = 0; status == ZD_OK && id < f->table.count; id++) {
        status = source.read(source.ctx, id, 0, f->table.params[id].count, out);
        cr_expect(status != ZD_OK || out[0] == (float)id);
    }
    cr_expect_eq(storage, DTYPE_FP32);
    weights_close(&source);
    return status;
}

static const struct fault healthy = {.what = "whole"};

static const struct fault faults[] = {
        {"whole", ""},
        {"a missing tensor", "model.norm.weight", .skip = 11,
         .status = ZD_ERR_DATA},
        {"another missing tensor", "missing", .skip = 1, .status = ZD_ERR_DATA},
        {"a row too many", "[6, 4]", .reshape = 1, .status = ZD_ERR_DATA},
        {"a vector too long", "input_layernorm", .reshape = 2,
         .status = ZD_ERR_DATA},
        {"integers", "I32", .retype = 3, .status = ZD_ERR_DATA},
        {"a tensor of another model", "model.layers.1.mlp.up_proj.weight",
         .extra = "model.layers.1.mlp.up_proj.weight", .status = ZD_ERR_DATA},
        {"names of another family", "does not belong", .prefix = "transformer.",
         .status = ZD_ERR_DATA},
        {"a cut file", "model.safetensors", .cut = 1, .status = ZD_ERR_DATA},
        {"half a file", "model.safetensors", .cut = 200, .status = ZD_ERR_DATA},
        {"not a number", "input_layernorm", .value = NAN,
         .status = ZD_ERR_DATA},
        {"infinite", "element 2", .value = INFINITY, .status = ZD_ERR_DATA},
        {"a tied head of its own", "", .extra = "lm_head.weight"},
        {"old rotary buffers", "",
         .extra = "model.layers.0.self_attn.rotary_emb.inv_freq"},
};

Test(model_weights, faults_of_a_file_are_found_and_named)
{
    ZD_EACH(fault, faults, sizeof faults / sizeof *faults) {
        struct fixture f;
        setup(&f, tied);
        cr_assert_eq(f.table.count, 11);
        write_file(&f, "model.safetensors", fault, 0, f.table.count);
        bool opened;
        cr_expect_eq(read_all(&f, &opened), fault->status, "%s", fault->what);
        cr_expect_eq(
                opened, fault->status == ZD_OK || fault->value != 0, "%s",
                fault->what);
        const struct zd_error *error = zd_error_get();
        cr_expect(
                strstr(error->what, fault->named) ||
                        strstr(error->where, fault->named),
                "%s: %s (%s)", fault->what, error->what, error->where);
        zd_error_clear();
        teardown(&f);
    }
}

Test(model_weights, a_tied_head_of_another_shape_is_refused)
{
    bool opened;
    struct fixture f;
    struct fault fault = healthy;
    fault.extra = "lm_head.weight"; /* (5, 4) */
    setup(&f, "tied_wider");
    write_file(&f, "model.safetensors", &fault, 0, f.table.count);
    expect_refused(
            read_all(&f, &opened), ZD_ERR_DATA, "lm_head.weight", "a head");
    teardown(&f);
}

Test(model_weights, gpt2_names_come_with_and_without_a_prefix)
{
    for (int prefixed = 0; prefixed < 2; prefixed++) {
        bool opened;
        struct fixture f;
        struct fault fault = healthy;
        setup(&f, gpt2);
        fault.prefix = prefixed ? "transformer." : "";
        fault.extra =
                prefixed ? "transformer.h.0.attn.bias" : "h.0.attn.masked_bias";
        write_file(&f, "model.safetensors", &fault, 0, f.table.count);
        cr_expect_eq(read_all(&f, &opened), ZD_OK, "%s", zd_error_get()->what);
        zd_error_clear();
        teardown(&f);
    }
}

static void write_index(struct fixture *f, const char *map)
{
    char text[1000];
    ZD_PRINT(text, "{\"weight_map\":%s}", map);
    scratch_file(
            &f->scratch, "model.safetensors.index.json", text, strlen(text));
}

Test(model_weights, an_index_leads_to_its_shards_and_nowhere_else)
{
    struct cases row = cases_open("index.txt");
    while (cases_next(&row)) {
        bool opened;
        struct fixture f;
        const char *named = row.fields[0], *map = row.fields[1];
        setup(&f, tied);
        /* Names that lead astray lead to a file that is there. */
        tiny_must(fs_make_dirs(scratch_path(&f.scratch, "sub")));
        write_file(&f, "one.safetensors", &healthy, 0, 4);
        write_file(&f, "two.safetensors", &healthy, 4, f.table.count);
        write_file(&f, "again.safetensors", &healthy, 5, 6);
        write_index(&f, map);
        expect_refused(
                read_all(&f, &opened), *named ? ZD_ERR_DATA : ZD_OK, named,
                map);
        teardown(&f);
    }
}

Test(model_weights, a_folder_without_weights_is_no_model)
{
    bool opened;
    struct fixture f;
    setup(&f, tied);
    cr_expect_eq(read_all(&f, &opened), ZD_ERR_DATA);
    cr_expect(strstr(zd_error_get()->help, "safetensors") != NULL);
    zd_error_clear();
    teardown(&f);
}

/* However a tensor is cut among ranks, its values are the same. */
Test(model_weights, random_ones_do_not_depend_on_the_cut)
{
    struct weight_source source;
    struct fixture f;
    float whole[200], piece[200];
    setup(&f, "gpt2");
    tiny_must(weights_open_random(42, &f.table, &source));
    for (int id = 0; id < f.table.count; id++) {
        size_t count = f.table.params[id].count;
        count = count < 200 ? count : 200;
        tiny_must(source.read(source.ctx, id, 0, count, whole));
        for (size_t cut = 1; cut < 8; cut++)
            for (size_t begin = 0; begin < count; begin += cut) {
                size_t n = count - begin < cut ? count - begin : cut;
                tiny_must(source.read(source.ctx, id, begin, n, piece));
                cr_assert(
                        memcmp(piece, whole + begin, n * sizeof *piece) == 0,
                        "%s at %zu", f.table.params[id].name, begin);
            }
    }
    weights_close(&source);
    teardown(&f);
}

Test(model_weights, random_ones_have_the_spread_that_was_asked_for)
{
    struct weight_source source, other;
    struct fixture f;
    float *a, *b;
    double squares = 0.0, product = 0.0;
    setup(&f, "{\"model_type\":\"gpt2\",\"vocab_size\":500,\"n_embd\":64,"
              "\"n_layer\":1,\"n_head\":1}");
    size_t count = f.table.params[0].count;
    a = malloc(count * sizeof *a);
    b = malloc(count * sizeof *b);
    tiny_must(weights_open_random(1, &f.table, &source));
    tiny_must(weights_open_random(2, &f.table, &other));
    tiny_must(source.read(source.ctx, 0, 0, count, a));
    tiny_must(other.read(other.ctx, 0, 0, count, b));
    for (size_t i = 0; i < count; i++) {
        squares += (double)a[i] * a[i];
        product += (double)a[i] * b[i];
    }
    cr_expect_float_eq(sqrt(squares / count), 0.02, 0.0005);
    cr_expect_float_eq(product / squares, 0.0, 0.03, "seeds differ");
    int norm = param_table_find(&f.table, "ln_f.weight");
    tiny_must(source.read(source.ctx, norm, 3, 2, a));
    cr_expect(a[0] == 1.0f && a[1] == 1.0f);
    tiny_must(source.read(source.ctx, norm + 1, 3, 2, a));
    cr_expect(a[0] == 0.0f && a[1] == 0.0f);
    free(a);
    free(b);
    weights_close(&source);
    weights_close(&other);
    teardown(&f);
}

/* Models as bitsandbytes and DeepSeek store them (tests/reference/
 * make_quantized.py): read, and refused where they are broken. */
#include "model/quantized/quantized.h"

#include "tests/model/cases.h"
#include "tests/model/opened.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

#include <unistd.h>

static void opened_stored(struct opened *m, const char *name)
{
    char path[64];
    ZD_PRINT(path, "quant/%s", name);
    opened_init(m, path);
}

/* Every tensor of dequantized.safetensors, read in ranges of so many. */
static void compare(struct opened *m, size_t range)
{
    char path[PATH_BYTES + 32];
    struct st_file *file;
    ZD_PRINT(path, "%s/dequantized.safetensors", m->dir);
    tiny_must(st_open(path, &file));
    cr_assert(file->tensor_count > 0);
    ZD_EACH(t, file->tensors, file->tensor_count) {
        const char *name =
                t->name + (strncmp(t->name, "transformer.", 12) == 0 ? 12 : 0);
        int id = param_table_find(&m->table, name);
        cr_assert(id >= 0, "%s", name);
        float *theirs = malloc(t->bytes);
        float *ours = read_all(&m->source, id, t->count, range);
        tiny_must(st_read_float(file, t, 0, t->count, theirs));
        cr_expect(
                memcmp(ours, theirs, t->bytes) == 0,
                "%s of %s in ranges of %zu", t->name, m->dir, range);
        free(theirs);
        free(ours);
    }
    st_close(file);
}

Test(model_quantized, weights_are_dequantized_to_the_bit)
{
    static const char *const names[] = {
            "nf4-nested", "gpt2-nf4", "fp4", "int8", "fp8"};
    static const size_t ranges[] = {1 << 20, 1000, 37};
    for (int i = 0; i < 5; i++) {
        struct opened m;
        opened_stored(&m, names[i]);
        cr_assert(m.storage == DTYPE_BF16, "%s", names[i]);
        for (int r = 0; r < 3; r++)
            compare(&m, ranges[r]);
        opened_fini(&m);
    }
}

Test(model_quantized, a_reader_of_plain_models_refuses_a_quantized_one)
{
    struct model_config config;
    char dir[PATH_BYTES];
    ZD_PRINT(dir, "%s/quant/int8", getenv("ZEROD_FIXTURES"));
    expect_refused(
            model_config_read(dir, false, &config), ZD_ERR_DATA,
            "quantization_config", dir);
}

/* --- broken models -------------------------------------------------------- */

struct fault {
    const char *model;
    const char *tensor; /* whose name ends so, of one weight */
    const char *dtype;  /* it becomes this type; NULL: it is left out */
    int64_t count;      /* 1-dimensional, of so many elements */
    const char *named;  /* in the message */
};

#define WEIGHT "model.layers.0.mlp.down_proj"

/* A copy of a model with one tensor of one weight changed. */
static void write_broken(
        const char *from, const char *to, const struct fault *fault)
{
    struct st_file *file;
    struct st_writer *writer;
    struct st_entry entries[128];
    int count = 0;
    tiny_must(st_open(from, &file));
    ZD_EACH(t, file->tensors, file->tensor_count) {
        struct st_entry *e = &entries[count];
        *e = (struct st_entry){t->name, t->dtype, t->dims, {0}};
        memcpy(e->shape, t->shape, sizeof e->shape);
        const char *end = t->name + strlen(WEIGHT);
        bool hit = strncmp(t->name, WEIGHT, strlen(WEIGHT)) == 0 &&
                   strcmp(end, fault->tensor) == 0;
        if (hit && !fault->dtype)
            continue;
        if (hit)
            *e = (struct st_entry){t->name, fault->dtype, 1, {fault->count}};
        count++;
    }
    unlink(to);
    tiny_must(st_writer_create(to, entries, count, NULL, &writer));
    for (int i = 0; i < count; i++) {
        const struct st_entry *e = &entries[i];
        const struct st_tensor *t = st_find(file, e->name);
        bool same = t->dims == e->dims && t->shape[0] == e->shape[0] &&
                    strcmp(t->dtype, e->dtype) == 0;
        uint64_t bytes = same ? t->bytes
                              : (uint64_t)e->shape[0] *
                                         (strcmp(e->dtype, "F32") == 0 ? 4 : 1);
        char *data = calloc(1, bytes + 1);
        if (same)
            tiny_must(st_read_bytes(file, t, 0, bytes, data));
        tiny_must(st_writer_add(writer, i, data, bytes));
        free(data);
    }
    tiny_must(st_writer_finish(writer, NULL, NULL));
    st_close(file);
}

Test(model_quantized, one_error_names_the_broken_tensor)
{
    /* down_proj is (24, 150): 3600 elements, 57 blocks of 64, 29 of 128 */
    static const struct fault faults[] = {
            {"nf4-nested", ".weight.absmax", NULL, 0, "absmax"},
            {"nf4-nested", ".weight.absmax", "U8", 56, "56 elements"},
            {"nf4-nested", ".weight.absmax", "F32", 57, "F32"},
            {"nf4-nested", ".weight.quant_map", NULL, 0, "quant_map"},
            {"nf4-nested", ".weight.quant_map", "F32", 15, "quant_map"},
            {"nf4-nested", ".weight.nested_absmax", NULL, 0, "nested_absmax"},
            {"nf4-nested", ".weight.nested_quant_map", "F32", 255,
             "nested_quant_map"},
            {"nf4-nested", ".weight.quant_state.bitsandbytes__nf4", NULL, 0,
             "quant_state"},
            {"nf4-nested", ".weight.quant_state.bitsandbytes__nf4", "U8", 9,
             "quant_state"},
            {"nf4-nested", ".weight", "U8", 1799, "the size"},
            {"nf4-nested", ".weight", NULL, 0, "missing"},
            {"fp4", ".weight.absmax", "F32", 30, "30 elements"},
            {"int8", ".SCB", NULL, 0, "says of which"},
            {"int8", ".SCB", "F32", 25, "25 elements"},
            {"int8", ".weight_format", "U8", 2, "weight_format"},
            {"int8", ".weight", "U8", 3600, "matrix"},
            {"fp8", ".weight_scale_inv", "F32", 2, "128 x 128"},
            {"fp8", ".weight_scale_inv", NULL, 0, "F8_E4M3"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct opened m;
        struct scratch scratch;
        char from[PATH_BYTES + 32];
        struct weight_source source;
        opened_stored(&m, faults[i].model);
        scratch_init(&scratch);
        ZD_PRINT(from, "%s/model.safetensors", m.dir);
        write_broken(
                from, scratch_path(&scratch, "model.safetensors"), &faults[i]);
        enum zd_status status = weights_open_hf(
                scratch.dir, &m.config, &m.table, NULL, &source);
        expect_refused(status, ZD_ERR_DATA, faults[i].named, faults[i].tensor);
        if (status == ZD_OK)
            weights_close(&source);
        scratch_fini(&scratch);
        opened_fini(&m);
    }
}

/* --- the quant_state ------------------------------------------------------ */

Test(model_quantized, a_quant_state_is_read_and_written_as_by_python)
{
    static const char text[] =
            "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": "
            "\"bfloat16\", \"shape\": [24, 150], \"nested_blocksize\": 256, "
            "\"nested_dtype\": \"float32\", \"nested_offset\": "
            "0.037218794226646423}";
    struct quant_state s;
    tiny_must(quant_state_parse(text, strlen(text), "test", &s));
    const struct quant_matrix m = s.matrix;
    cr_assert(m.format == QUANT_NF4 && m.block == 64 && s.dtype == DTYPE_BF16);
    cr_assert(m.rows == 24 && m.columns == 150 && m.nested_block == 256);
    cr_assert(s.nested_offset == 0.037218794226646423f);
    char *again = quant_state_text(&s);
    cr_assert_str_eq(again, text);
    free(again);
}

Test(model_quantized, a_broken_quant_state_is_refused)
{
    struct quant_state s;
    struct cases row = cases_open("quant_state_refused.txt");
    while (cases_next(&row)) {
        const char *text = row.fields[0];
        expect_refused(
                quant_state_parse(text, strlen(text), "here", &s), ZD_ERR_DATA,
                "here", text);
    }
}

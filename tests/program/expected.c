/* expected.c - hold a finished run against a fixture's expected.json, which
 * PyTorch made (tests/reference/make_models.py).
 *
 *   expected run FIXTURE OUTPUT_DIR fp32|bf16    0: within the tolerance
 *   expected prompt FIXTURE                      prints the prompt
 *   expected continuation FIXTURE                prints what has to follow
 *
 * A run is compared by its metrics.jsonl and, in fp32, by the exported weights;
 * what is out of tolerance is said in lines that begin with '#'. */
#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/file/safetensors.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *read_expected(const char *fixture)
{
    char path[PATH_MAX];
    json_t *expected = NULL;
    fs_join(path, sizeof path, fixture, "expected.json");
    if (json_parse_file(path, 1 << 20, &expected) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        exit(1);
    }
    return expected;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* |got/wanted - 1| <= tolerance; NaN never is. */
static bool near(
        const char *what, int step, double got, double wanted, double tolerance)
{
    if (fabs(got / wanted - 1) <= tolerance)
        return true;
    printf("# step %d: %s is %.9g, PyTorch has %.9g (%.1e apart, %.0e "
           "allowed)\n",
           step, what, got, wanted, fabs(got / wanted - 1), tolerance);
    return false;
}

/* Training rows of metrics.jsonl, in order; owned. */
static json_t *read_rows(const char *output_dir)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    json_t *rows = json_array(), *row = NULL;
    fs_join(path, sizeof path, output_dir, "metrics.jsonl");
    if (fs_read_file(path, 1 << 24, &text, &bytes) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        exit(1);
    }
    for (char *line = text, *end;
         (end = memchr(line, '\n', bytes - (size_t)(line - text)));
         line = end + 1) {
        if (json_parse(line, (size_t)(end - line), path, ZD_ERR_DATA, &row) !=
            ZD_OK) {
            zd_error_print(stderr, zd_error_get());
            exit(1);
        }
        if (json_object_get(row, "eval_loss"))
            json_decref(row);
        else
            json_array_append_new(rows, row);
    }
    free(text);
    return rows;
}

static bool check_rows(const json_t *expected, const json_t *rows, bool is_bf16)
{
    const json_t *tolerance = json_object_get(expected, "tolerance");
    const json_t *steps = json_object_get(expected, "steps");
    const json_t *half =
            json_object_get(json_object_get(expected, "bf16"), "loss");
    bool good = json_array_size(rows) == json_array_size(steps);
    if (!good)
        printf("# metrics.jsonl has %zu steps, not %zu\n",
               json_array_size(rows), json_array_size(steps));
    for (size_t i = 0; good && i < json_array_size(steps); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *step = json_array_get(steps, i);
        int n = (int)i + 1;
        good = near("step", n, number(row, "step"), n, 0) &&
               near("learning_rate", n, number(row, "learning_rate"),
                    number(step, "learning_rate"), 1e-9) &&
               near("tokens", n, number(row, "tokens"), number(step, "tokens"),
                    0);
        if (is_bf16)
            good = good && near("loss", n, number(row, "loss"),
                                json_number_value(json_array_get(half, i)),
                                number(tolerance, "bf16_loss"));
        else
            good = good &&
                   near("loss", n, number(row, "loss"), number(step, "loss"),
                        number(tolerance, "loss")) &&
                   near("grad_norm", n, number(row, "grad_norm"),
                        number(step, "grad_norm"),
                        number(tolerance, "grad_norm"));
    }
    return good;
}

static bool is_excepted(const json_t *ranges, uint64_t element)
{
    size_t i;
    json_t *range;
    json_array_foreach(ranges, i, range) if (
            element >= (uint64_t)json_integer_value(json_array_get(range, 0)) &&
            element < (uint64_t)json_integer_value(
                              json_array_get(range, 1))) return true;
    return false;
}

static bool check_tensor(
        const json_t *expected, const struct st_tensor *wanted, const float *a,
        const float *b)
{
    const json_t *tolerance = json_object_get(expected, "tolerance");
    const json_t *ranges = json_object_get(
            json_object_get(expected, "excepted"), wanted->name);
    double absolute = number(tolerance, "weight_absolute");
    double relative = number(tolerance, "weight_relative");
    for (uint64_t i = 0; i < wanted->count; i++) {
        double allowed = absolute + relative * fabs((double)b[i]);
        double apart = fabs((double)a[i] - (double)b[i]);
        if (!(apart <= allowed) && !is_excepted(ranges, i)) {
            printf("# %s[%llu] is %.9g, PyTorch has %.9g (%.1e apart, %.1e "
                   "allowed)\n",
                   wanted->name, (unsigned long long)i, (double)a[i],
                   (double)b[i], apart, allowed);
            return false;
        }
    }
    return true;
}

static bool check_weights(
        const json_t *expected, const char *fixture, const char *output_dir)
{
    char path[PATH_MAX];
    struct st_file *got = NULL, *wanted = NULL;
    bool good = true;

    fs_join(path, sizeof path, fixture, "final.safetensors");
    if (st_open(path, &wanted) == ZD_OK) {
        fs_join(path, sizeof path, output_dir, "hf/model.safetensors");
        if (st_open(path, &got) != ZD_OK)
            good = false;
    } else
        good = false;
    if (!good) {
        zd_error_print(stderr, zd_error_get());
        exit(1);
    }
    if (got->tensor_count != wanted->tensor_count) {
        printf("# the exported model has %d tensors, not %d\n",
               got->tensor_count, wanted->tensor_count);
        good = false;
    }
    for (int i = 0; good && i < wanted->tensor_count; i++) {
        const struct st_tensor *b = &wanted->tensors[i];
        const struct st_tensor *a = st_find(got, b->name);
        if (!a || a->count != b->count || strcmp(a->dtype, "F32") != 0) {
            printf("# %s is missing, or not F32, or has another size\n",
                   b->name);
            good = false;
            break;
        }
        float *values = malloc(2 * b->count * sizeof *values);
        if (!values || st_read_float(got, a, 0, b->count, values) != ZD_OK ||
            st_read_float(wanted, b, 0, b->count, values + b->count) != ZD_OK)
            abort();
        good = check_tensor(expected, b, values, values + b->count);
        free(values);
    }
    st_close(got);
    st_close(wanted);
    return good;
}

static int check_run(
        const char *fixture, const char *output_dir, const char *dtype)
{
    bool is_bf16 = strcmp(dtype, "bf16") == 0;
    json_t *expected = read_expected(fixture);
    json_t *rows = read_rows(output_dir);
    bool good = check_rows(expected, rows, is_bf16);
    if (good && !is_bf16)
        good = check_weights(expected, fixture, output_dir);
    json_decref(rows);
    json_decref(expected);
    return good ? 0 : 1;
}

static void print_continuation(const json_t *generate)
{
    const char *hex = json_string_value(json_object_get(generate, "bytes"));
    for (; hex[0] && hex[1]; hex += 2) {
        char byte[3] = {hex[0], hex[1], '\0'};
        putchar((int)strtol(byte, NULL, 16));
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "run") == 0)
        return check_run(argv[2], argv[3], argv[4]);
    if (argc != 3) {
        fprintf(stderr, "see the top of expected.c\n");
        return 64;
    }
    json_t *expected = read_expected(argv[2]);
    const json_t *generate = json_object_get(expected, "generate");
    if (strcmp(argv[1], "prompt") == 0)
        fputs(json_string_value(json_object_get(generate, "prompt")), stdout);
    else
        print_continuation(generate);
    json_decref(expected);
    return 0;
}

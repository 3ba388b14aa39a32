/* jinja_corpus.c - renders every context of a file with every template of a
 * folder, for tests/reference/compare_chat_templates.py.
 *
 *   jinja_corpus CONTEXTS.jsonl TEMPLATES          a line a rendering:
 *       NAME ROW digest, "raised" and the digest of what was, or "failed"
 *   jinja_corpus CONTEXTS.jsonl TEMPLATES NAME ROW    its text or why not
 *   jinja_corpus --time CONTEXTS.jsonl TEMPLATE       MB/s of text, a CPU's */
#include "data/jinja/jinja.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

enum { ROWS_MAX = 100000 };
static json_t *rows[ROWS_MAX];
static int row_count;

static void read_rows(const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    while (file && row_count < ROWS_MAX &&
           (bytes = getline(&line, &room, file)) > 0)
        if (json_parse_record(
                    line, (size_t)bytes, path, ZD_ERR_DATA,
                    &rows[row_count++]) != ZD_OK)
            abort();
    free(line);
    if (file)
        fclose(file);
}

static struct jinja_template *parse(const char *folder, const char *name)
{
    char path[4096], why[200];
    struct jinja_template *template = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    if (!file || fread(text, 1, (1 << 20) - 1, file) == 0)
        fprintf(stderr, "%s: cannot be read\n", path);
    else if (jinja_parse(text, &template, why, sizeof why) != JINJA_DONE)
        fprintf(stderr, "%s: %s\n", path, why);
    if (file)
        fclose(file);
    free(text);
    return template;
}

static void print_digest(
        enum jinja_result result, struct jinja_output *out, const char *why)
{
    if (result == JINJA_RAISED)
        printf("raised %016llx\n",
               (unsigned long long)XXH64(why, strlen(why), 0));
    if (result != JINJA_DONE && result != JINJA_RAISED)
        printf("failed\n");
    if (result != JINJA_DONE)
        return;
    XXH64_state_t *state = XXH64_createState();
    XXH64_reset(state, 0);
    XXH64_update(state, out->text, out->bytes);
    for (size_t i = 0; i < out->span_count; i++) {
        char span[64];
        int bytes = snprintf(
                span, sizeof span, " %zu-%zu", out->spans[i].begin,
                out->spans[i].end);
        XXH64_update(state, span, (size_t)bytes);
    }
    printf("%016llx\n", (unsigned long long)XXH64_digest(state));
    XXH64_freeState(state);
}

static void render(
        const struct jinja_template *template, const char *name, int row,
        bool shows)
{
    struct jinja_output out = {0};
    char why[4096];
    enum jinja_result result =
            jinja_render(template, rows[row], NULL, &out, why, sizeof why);
    if (shows) {
        fwrite(result == JINJA_DONE ? out.text : why, 1,
               result == JINJA_DONE ? out.bytes : strlen(why), stdout);
    } else {
        printf("%s %d ", name, row);
        print_digest(result, &out, why);
    }
    jinja_output_fini(&out);
}

static void measure(const struct jinja_template *template)
{
    struct jinja_output out;
    char why[200];
    size_t bytes = 0;
    clock_t start = clock();
    for (int times = 0; times < 20; times++)
        for (int i = 0; i < row_count; i++) {
            out = (struct jinja_output){0};
            jinja_render(template, rows[i], NULL, &out, why, sizeof why);
            bytes += out.bytes;
            jinja_output_fini(&out);
        }
    printf("%.1f MB/s\n",
           (double)bytes / 1e6 / ((double)(clock() - start) / CLOCKS_PER_SEC));
}

static int is_template(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 6 && strcmp(entry->d_name + length - 6, ".jinja") == 0;
}

int main(int argc, char **argv)
{
    struct dirent **names;
    bool is_timed = argc == 4 && strcmp(argv[1], "--time") == 0;
    read_rows(argc > 1 ? argv[is_timed ? 2 : 1] : "");
    if (argc == 5 || is_timed) {
        struct jinja_template *one =
                is_timed ? parse(".", argv[3]) : parse(argv[2], argv[3]);
        if (one && is_timed)
            measure(one);
        else if (one)
            render(one, argv[3], atoi(argv[4]), true);
        jinja_free(one);
        return one == NULL;
    }
    int count =
            argc == 3 ? scandir(argv[2], &names, is_template, alphasort) : 0;
    for (int i = 0; i < count; i++) {
        struct jinja_template *template = parse(argv[2], names[i]->d_name);
        for (int row = 0; template && row < row_count; row++)
            render(template, names[i]->d_name, row, false);
        jinja_free(template);
    }
    return count <= 0;
}

/* tokenizer - how fast text becomes ids, on one core.
 *
 *     tokenizer [--ids | --lines | --repeat N] [--ordinary] TOKENIZER FILE
 *
 * Prints the time to open the tokenizer and MB/s (10^6 bytes) of the first
 * pass, with cold caches, and of the N-1 that follow; by CPU time too, for a
 * machine that does other work. --ids prints the ids instead, one per line, and
 * --lines those of each line of the file as a text of its own, with an empty
 * line behind each: for tests/reference/tokenizer_compare.py. --ordinary does
 * not recognize added tokens. */
#include "data/tokenizer/tokenizer.h"
#include "base/file/fs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct arguments {
    const char *tokenizer, *file;
    bool print_ids, by_line;
    unsigned flags;
    int repeat;
};

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool parse(int argc, char **argv, struct arguments *out)
{
    int i = 1;
    *out = (struct arguments){.repeat = 3, .flags = ENCODE_ADDED_TOKENS};
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--ids") == 0)
            out->print_ids = true;
        else if (strcmp(argv[i], "--lines") == 0)
            out->print_ids = out->by_line = true;
        else if (strcmp(argv[i], "--ordinary") == 0)
            out->flags = 0;
        else if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc)
            out->repeat = atoi(argv[++i]);
        else
            return false;
    }
    if (argc - i != 2)
        return false;
    out->tokenizer = argv[i];
    out->file = argv[i + 1];
    return true;
}

/* Print the ids of a text, or of each of its lines. */
static enum zd_status print(
        struct encoder *encoder, const struct arguments *arguments,
        const char *text, size_t bytes, struct token_vector *ids)
{
    size_t begin = 0;
    while (begin < bytes) {
        const char *line_end = NULL;
        if (arguments->by_line)
            line_end = memchr(text + begin, '\n', bytes - begin);
        size_t end = line_end ? (size_t)(line_end - text) : bytes;
        ids->count = 0;
        ZD_TRY(encoder_encode(
                encoder, text + begin, end - begin, arguments->flags, ids,
                NULL));
        for (size_t i = 0; i < ids->count; i++)
            printf("%d\n", ids->ids[i]);
        if (arguments->by_line)
            putchar('\n');
        begin = end + 1;
    }
    return ZD_OK;
}

static enum zd_status measure(
        struct encoder *encoder, const struct arguments *arguments,
        const char *text, size_t bytes, struct token_vector *ids)
{
    for (int pass = 0; pass < arguments->repeat; pass++) {
        double begin = seconds(CLOCK_MONOTONIC);
        double cpu_begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
        ids->count = 0;
        ZD_TRY(encoder_encode(
                encoder, text, bytes, arguments->flags, ids, NULL));
        double wall = seconds(CLOCK_MONOTONIC) - begin;
        double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin;
        printf("pass %d: %zu bytes, %zu ids, %.1f MB/s, %.1f by CPU time\n",
               pass + 1, bytes, ids->count, 1e-6 * (double)bytes / wall,
               1e-6 * (double)bytes / cpu);
    }
    return ZD_OK;
}

static enum zd_status encode(
        const struct tokenizer *tokenizer, const struct arguments *arguments,
        const char *text, size_t bytes)
{
    struct encoder *encoder;
    struct token_vector ids = {0};
    enum zd_status status;
    encoder = encoder_create(tokenizer);
    if (arguments->print_ids)
        status = print(encoder, arguments, text, bytes, &ids);
    else
        status = measure(encoder, arguments, text, bytes, &ids);
    token_vector_fini(&ids);
    encoder_destroy(encoder);
    return status;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    struct tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes;
    if (!parse(argc, argv, &arguments)) {
        fprintf(stderr,
                "usage: tokenizer [--ids | --lines | --repeat N] [--ordinary] "
                "TOKENIZER FILE\n");
        return zd_exit_code(ZD_ERR_USAGE);
    }
    double begin = seconds(CLOCK_MONOTONIC);
    enum zd_status status = tokenizer_open(arguments.tokenizer, &tokenizer);
    if (status == ZD_OK && !arguments.print_ids)
        printf("open: %.3f s, %s\n", seconds(CLOCK_MONOTONIC) - begin,
               tokenizer_describe(tokenizer));
    if (status == ZD_OK)
        status = fs_read_file(arguments.file, UINT64_MAX, &text, &bytes);
    if (status == ZD_OK)
        status = encode(tokenizer, &arguments, text, bytes);
    if (status != ZD_OK)
        zd_error_print(stderr, zd_error_get());
    free(text);
    tokenizer_close(tokenizer);
    return zd_exit_code(status);
}

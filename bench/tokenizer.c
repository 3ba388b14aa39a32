/* tokenizer - the speed of tokenization on one core.
 *
 *     tokenizer [--repeat N] [--chat TEMPLATE] TOKENIZER FILE
 *
 * Prints the time to open the tokenizer and MB/s (10^6 bytes) of the first
 * pass, with cold caches, and of the next N-1; also by CPU time, for a loaded
 * machine. --chat splits the file into conversations of six messages of four
 * lines each, and prints MB/s of rendering them with this template and encoding
 * them with their mask, and of encoding the same texts. */
#include "data/tokenizer/tokenizer.h"
#include "base/file/fs.h"
#include "data/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct arguments {
    const char *tokenizer, *file, *chat;
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
    *out = (struct arguments){.repeat = 3};
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--chat") == 0 && i + 1 < argc)
            out->chat = argv[++i];
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

static enum zd_status measure(
        struct encoder *encoder, const struct arguments *arguments,
        const char *text, size_t bytes, struct token_vector *ids)
{
    for (int pass = 0; pass < arguments->repeat; pass++) {
        double begin = seconds(CLOCK_MONOTONIC);
        double cpu_begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
        ids->count = 0;
        ZD_TRY(encoder_encode(encoder, text, bytes, false, ids));
        double wall = seconds(CLOCK_MONOTONIC) - begin;
        double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin;
        printf("pass %d: %zu bytes, %zu ids, %.1f MB/s, %.1f by CPU time\n",
               pass + 1, bytes, ids->count, 1e-6 * (double)bytes / wall,
               1e-6 * (double)bytes / cpu);
    }
    return ZD_OK;
}

/* --- conversations --- */

enum { TALKS_MAX = 20000, TURNS = 6, TURN_LINES = 4 };

static int make_talks(const char *text, size_t bytes, struct conversation *out)
{
    size_t at = 0;
    int count = 0;
    while (at < bytes && count < TALKS_MAX) {
        for (int turn = 0; turn < TURNS; turn++) {
            size_t begin = at;
            for (int line = 0; line < TURN_LINES && at < bytes; line++) {
                const char *end = memchr(text + at, '\n', bytes - at);
                at = end ? (size_t)(end - text) + 1 : bytes;
            }
            conversation_add(
                    &out[count],
                    json_pack(
                            "{s:s, s:s%}", "role",
                            turn % 2 ? "assistant" : "user", "content",
                            text + begin, at - begin),
                    false);
        }
        count++;
    }
    return count;
}

/* Returns the bytes of all texts. `renders`: renders to one document, as a
 * tokenizing thread does; else uses documents[n]. */
static enum zd_status encode_talks(
        struct encoder *encoder, struct chat_renderer *renderer,
        const struct conversation *talks, struct document *documents, int count,
        bool renders, size_t *bytes_out)
{
    struct document one = {0};
    struct token_vector ids = {0};
    struct encode_border borders[2 * TURNS];
    enum zd_status status = ZD_OK;
    *bytes_out = 0;
    for (int n = 0; n < count && status == ZD_OK; n++) {
        struct document *document = renders ? &one : &documents[n];
        size_t used = 0;
        if (renders)
            status = chat_render(
                    renderer, &talks[n], TRAIN_ON_ASSISTANT, document);
        for (size_t i = 0; renders && i < document->trained_count; i++) {
            borders[used++] =
                    (struct encode_border){.at = document->trained[i].begin};
            borders[used++] = (struct encode_border){
                    .at = document->trained[i].end, .is_end = true};
        }
        ids.count = 0;
        if (status == ZD_OK)
            status = encoder_encode_borders(
                    encoder, document->text, document->bytes, &ids, borders,
                    used);
        *bytes_out += document->bytes;
    }
    token_vector_fini(&ids);
    document_fini(&one);
    return status;
}

static enum zd_status measure_chat(
        const struct tokenizer *tokenizer, struct encoder *encoder,
        const struct arguments *arguments, const char *text, size_t bytes)
{
    const struct chat_choice choice = {
            .name = CHAT_FILE, .path = arguments->chat};
    struct conversation *talks = calloc(TALKS_MAX, sizeof *talks);
    struct document *documents = calloc(TALKS_MAX, sizeof *documents);
    struct chat_renderer renderer;
    struct chat *chat = NULL;
    double best[2] = {0};
    enum zd_status status = chat_create(&choice, tokenizer, true, &chat);
    int count = make_talks(text, bytes, talks);
    chat_renderer_init(&renderer, chat);
    for (int n = 0; n < count && status == ZD_OK; n++)
        status = chat_render(
                &renderer, &talks[n], TRAIN_ON_ASSISTANT, &documents[n]);
    for (int pass = 0; pass < 2 * arguments->repeat && status == ZD_OK;
         pass++) {
        size_t all = 0;
        double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
        status = encode_talks(
                encoder, &renderer, talks, documents, count, pass % 2 == 0,
                &all);
        double speed = 1e-6 * (double)all /
                       (seconds(CLOCK_PROCESS_CPUTIME_ID) - begin);
        if (speed > best[pass % 2])
            best[pass % 2] = speed;
    }
    printf("%d conversations: %.1f MB/s rendered and encoded, %.1f encoded: "
           "%.2f, by CPU time\n",
           count, best[0], best[1], best[1] > 0 ? best[0] / best[1] : 0);
    for (int n = 0; n < count; n++) {
        conversation_fini(&talks[n]);
        document_fini(&documents[n]);
    }
    chat_renderer_fini(&renderer);
    chat_destroy(chat);
    free(talks);
    free(documents);
    return status;
}

static enum zd_status encode(
        const struct tokenizer *tokenizer, const struct arguments *arguments,
        const char *text, size_t bytes)
{
    struct encoder *encoder;
    struct token_vector ids = {0};
    enum zd_status status;
    encoder = encoder_create(tokenizer);
    if (arguments->chat)
        status = measure_chat(tokenizer, encoder, arguments, text, bytes);
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
        fprintf(stderr, "usage: tokenizer [--repeat N] [--chat TEMPLATE] "
                        "TOKENIZER FILE\n");
        return zd_exit_code(ZD_ERR_USAGE);
    }
    double begin = seconds(CLOCK_MONOTONIC);
    enum zd_status status = tokenizer_open(arguments.tokenizer, &tokenizer);
    if (status == ZD_OK)
        printf("open: %.3f s, %s\n", seconds(CLOCK_MONOTONIC) - begin,
               tokenizer_facts(tokenizer)->describe);
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

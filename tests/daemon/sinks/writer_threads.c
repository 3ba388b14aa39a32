/* writer_threads.c - files of several writers, handed texts as fast as their
 * workers take them; for a thread sanitizer. Prints TAP. */
#include "daemon/sinks/sink.h"
#include "tests/support/scratch.h"

enum { TEXTS = 2000, WRITERS = 3, LINE_BYTES = 8 };

static struct scratch scratch;

static struct sink_writer *create(uv_loop_t *loop, int number, bool appends)
{
    char name[32];
    struct sink_writer *writer;
    snprintf(
            name, sizeof name, "%s%d", appends ? "appended" : "newest", number);
    scratch_path(&scratch, name);
    if ((appends ? sink_appender_create
                 : sink_writer_create)(loop, scratch.path, &writer) != ZD_OK)
        abort();
    return writer;
}

static void hand(struct sink_writer *writer, int number)
{
    char *text = malloc(LINE_BYTES + 1);
    snprintf(text, LINE_BYTES + 1, "%07d\n", number);
    sink_write_file(writer, text, LINE_BYTES);
}

/* The last text alone, or all of them in order. */
static bool is_right(int number, bool appends)
{
    char name[32], line[16], *text;
    size_t bytes;
    bool right = true;
    snprintf(
            name, sizeof name, "%s%d", appends ? "appended" : "newest", number);
    if (fs_read_file(scratch_path(&scratch, name), SIZE_MAX, &text, &bytes) !=
        ZD_OK)
        return false;
    int first = appends ? 0 : TEXTS - 1;
    right = bytes == (size_t)(TEXTS - first) * LINE_BYTES;
    for (int i = first; right && i < TEXTS; i++) {
        snprintf(line, sizeof line, "%07d\n", i);
        right = memcmp(text + (i - first) * LINE_BYTES, line, LINE_BYTES) == 0;
    }
    free(text);
    return right;
}

int main(void)
{
    struct sink_writer *newest[WRITERS], *appended[WRITERS];
    bool newest_right = true, appended_right = true;
    uv_loop_t loop;
    scratch_init(&scratch);
    uv_loop_init(&loop);
    for (int w = 0; w < WRITERS; w++) {
        newest[w] = create(&loop, w, false);
        appended[w] = create(&loop, w, true);
    }
    for (int i = 0; i < TEXTS; i++) {
        for (int w = 0; w < WRITERS; w++) {
            hand(newest[w], i);
            hand(appended[w], i);
        }
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    for (int w = 0; w < WRITERS; w++) {
        sink_writer_destroy(newest[w]);
        sink_writer_destroy(appended[w]);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&loop);
    for (int w = 0; w < WRITERS; w++) {
        newest_right &= is_right(w, false);
        appended_right &= is_right(w, true);
    }
    scratch_fini(&scratch);
    printf("%sok 1 - the newest text is the file\n",
           newest_right ? "" : "not ");
    printf("%sok 2 - what was appended is whole and in order\n",
           appended_right ? "" : "not ");
    printf("%sok 3 - nothing is left in the loop\n1..3\n", left ? "not " : "");
    return newest_right && appended_right && !left ? 0 : 1;
}

/* file_writer_threads.c - files of several writers, handed texts as fast as
 * their threads take them; for a thread sanitizer. Prints TAP. */
#include "tests/support/scratch.h"
#include "tests/support/tap.h"
#include "train/report/file_writer.h"

enum { TEXTS = 2000, WRITERS = 3, LINE_BYTES = 8 };

static const char *const names[] = {"rows", "new", "whole"};
static struct scratch scratch;

/* The last text alone, or all of them in order. */
static bool is_right(enum file_mode mode)
{
    char line[16], *text;
    size_t bytes;
    if (fs_read_file(
                scratch_path(&scratch, names[mode]), SIZE_MAX, &text, &bytes) !=
        ZD_OK)
        return false;
    int first = mode == FILE_WHOLE ? TEXTS - 1 : 0;
    bool right = bytes == (size_t)(TEXTS - first) * LINE_BYTES;
    for (int i = first; right && i < TEXTS; i++) {
        ZD_PRINT(line, "%07d\n", i);
        right = memcmp(text + (i - first) * LINE_BYTES, line, LINE_BYTES) == 0;
    }
    free(text);
    return right;
}

int main(void)
{
    struct file_writer *writers[WRITERS];
    char line[16];
    scratch_init(&scratch);
    for (int w = 0; w < WRITERS; w++)
        if (file_writer_open(
                    scratch_path(&scratch, names[w]), (enum file_mode)w, 0,
                    NULL, &writers[w]) != ZD_OK)
            abort();
    for (int i = 0; i < TEXTS; i++) {
        ZD_PRINT(line, "%07d\n", i);
        for (int w = 0; w < WRITERS; w++)
            file_writer_add(
                    writers[w], line,
                    (size_t)(w == FILE_ROWS ? LINE_BYTES - 1 : LINE_BYTES));
    }
    for (int w = 0; w < WRITERS; w++) {
        file_writer_close(writers[w]);
        tap_ok(is_right((enum file_mode)w), "%s", names[w]);
    }
    scratch_fini(&scratch);
    return tap_done();
}

/* fuzz_parquet.c - the rows of Parquet files that someone changed.
 *
 *   fuzz_parquet SECONDS [SEED] FILE...    changes bytes and reads to the end
 *
 * Beside what the sanitizers see: what is refused is ZD_ERR_DATA with a code,
 * a row has at most the bytes it may have, and no more memory is held than
 * parquet.h says. */
#include "base/file/fs.h"
#include "base/must.h"
#include "data/parquet/parquet.h"
#include "tests/support/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROW_MAX = 1 << 20, ROWS_MAX = 2000, FILES_MAX = 64 };

static enum zd_status read_rows(int fd, uint64_t bytes)
{
    struct parquet *parquet;
    const char *row;
    size_t used;
    enum zd_status status = parquet_open(fd, "input", bytes, &parquet);
    if (status != ZD_OK)
        return status;
    for (int64_t i = 0; i < ROWS_MAX; i++) {
        status = parquet_row(parquet, ROW_MAX, &row, &used);
        if (status != ZD_OK || used == 0)
            break;
        if (row[used - 1] != '\n' || used > ROW_MAX)
            abort();
    }
    parquet_close(parquet);
    return status;
}

struct sound {
    char *data;
    size_t bytes;
};

/* A few bytes of the copy are others; most often in the last part, which is
 * the footer, and sometimes bytes are left out, from which the footer's length
 * stays right. */
static size_t change(char *data, size_t bytes, uint64_t *state)
{
    static const unsigned char words[] = {0, 1, 0x7f, 0x80, 0xff, 0x1c, 0x15};
    for (uint64_t n = 1 + fuzz_next(state) % 4; n > 0; n--) {
        size_t at = (size_t)(fuzz_next(state) % bytes);
        uint64_t kind = fuzz_next(state) % 6;
        if (kind < 2)
            data[at] ^= (char)(1u << fuzz_next(state) % 8);
        else if (kind < 4)
            data[at] = (char)words[fuzz_next(state) % sizeof words];
        else if (kind == 4)
            data[at] = (char)fuzz_next(state);
        else if (bytes > 64 && at + 24 < bytes) {
            size_t gone = 1 + (size_t)(fuzz_next(state) % 8);
            memmove(data + at, data + at + gone, bytes - at - gone);
            bytes -= gone;
        }
    }
    return bytes;
}

static void try_one(
        const struct sound *sound, char *copy, uint64_t *state, uint64_t number)
{
    memcpy(copy, sound->data, sound->bytes);
    size_t bytes = change(copy, sound->bytes, state);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, copy, bytes) != (ssize_t)bytes)
        abort();
    enum zd_status status = read_rows(fd, bytes);
    if (status != ZD_OK &&
        (status != ZD_ERR_DATA || zd_error_get()->code[0] != 'E')) {
        fprintf(stderr, "input %llu: %s\n", (unsigned long long)number,
                zd_error_get()->what);
        abort();
    }
    zd_error_clear();
    close(fd);
}

int main(int count, char **arguments)
{
    struct sound sounds[FILES_MAX];
    size_t most = 0;
    int files = 0, first = 2;
    double seconds = count > 2 ? atof(arguments[1]) : 0;
    uint64_t seed = 1, number = 0;
    if (count > 3 && strspn(arguments[2], "0123456789") == strlen(arguments[2]))
        seed = strtoull(arguments[first++], NULL, 10);
    for (; first < count && files < FILES_MAX; first++, files++) {
        struct sound *sound = &sounds[files];
        if (fs_read_file(
                    arguments[first], 1 << 20, &sound->data, &sound->bytes) !=
            ZD_OK) {
            fprintf(stderr, "%s\n", zd_error_get()->what);
            return 1;
        }
        most = sound->bytes > most ? sound->bytes : most;
    }
    ZD_FREED char *copy = malloc(most + 1);
    if (!copy || files == 0)
        return 1;
    for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end;)
        for (int i = 0; i < 200; i++, number++)
            try_one(&sounds[fuzz_next(&seed) % (uint64_t)files], copy, &seed,
                    number);
    printf("TAP version 13\n1..1\nok 1 - %llu changed files\n",
           (unsigned long long)number);
    for (int i = 0; i < files; i++)
        free(sounds[i].data);
    return 0;
}

#include "kernels/matmul/matmul_tuning.h"

#include "base/clock.h"
#include "base/file/fs.h"
#include "base/file/hash.h"
#include "base/log.h"
#include "base/must.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TUNED = 4096, MOST_BYTES = 4 * 1024 * 1024, LINE_BYTES = 320 };

static const char magic[] = "zerod products 3";

struct tuning {
    char gpu[128], library[64];
    char path[PATH_MAX]; /* empty: no file */
    int lock;            /* descriptor; -1: not held */
    struct stat seen;    /* the file as last read */
    size_t count;
    struct tuned *tuned; /* MOST_TUNED */
};

/* --- where --------------------------------------------------------------- */

static bool cache_folder(char *out, size_t bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (cache && *cache == '/')
        length = snprintf(out, bytes, "%s/zerod", cache);
    else if (home && *home == '/')
        length = snprintf(out, bytes, "%s/.cache/zerod", home);
    return length > 0 && (size_t)length < bytes;
}

/* Keeps letters and digits; replaces each run of other characters by '-'. */
static void slug(char *out, size_t bytes, const char *text)
{
    size_t used = 0;
    for (; *text && used + 1 < bytes; text++) {
        if (isalnum((unsigned char)*text) || *text == '.')
            out[used++] = (char)tolower((unsigned char)*text);
        else if (used > 0 && out[used - 1] != '-')
            out[used++] = '-';
    }
    out[used] = 0;
}

static void set_path(struct tuning *tuning)
{
    char folder[PATH_MAX - 256], gpu[96], library[64];
    if (!cache_folder(folder, sizeof folder))
        return;
    slug(gpu, sizeof gpu, tuning->gpu);
    slug(library, sizeof library, tuning->library);
    ZD_PRINT(tuning->path, "%s/products-%s-%s.txt", folder, gpu, library);
}

/* --- reading ------------------------------------------------------------- */

enum { KEY_WORDS = sizeof(struct matmul_key) / sizeof(int32_t) };

/* A line has the key, then parts, workspace, time and algorithm. */
static bool parse_line(const char *line, struct tuned *out)
{
    int parts, used;
    int32_t words[KEY_WORDS];
    struct tuned t = {0};
    for (int i = 0; i < KEY_WORDS; i++, line += used)
        if (sscanf(line, " %" SCNd32 "%n", &words[i], &used) != 1)
            return false;
    memcpy(&t.key, words, sizeof t.key);
    if (sscanf(line, " %d %" SCNu32 " %f%n", &parts, &t.workspace_kib,
               &t.microseconds, &used) != 3 ||
        parts < TUNED_UNDECIDED || parts > TUNED_APART)
        return false;
    t.parts = (enum tuned_parts)parts;
    line += used;
    for (int i = 0; i < 8; i++, line += used)
        if (sscanf(line, " %" SCNx64 "%n", &t.algorithm[i], &used) != 1)
            return false;
    if (*line != '\n')
        return false;
    *out = t;
    return true;
}

const struct tuned *tuning_find(
        const struct tuning *tuning, const struct matmul_key *key,
        uint32_t workspace_kib)
{
    ZD_EACH(t, tuning->tuned, tuning->count)
        if (t->workspace_kib == workspace_kib &&
            memcmp(&t->key, key, sizeof *key) == 0)
            return t;
    return NULL;
}

static void keep(struct tuning *tuning, const struct tuned *tuned)
{
    const struct tuned *old =
            tuning_find(tuning, &tuned->key, tuned->workspace_kib);
    size_t at = old ? (size_t)(old - tuning->tuned) : tuning->count;
    if (at == MOST_TUNED)
        return;
    tuning->tuned[at] = *tuned;
    tuning->count += !old;
}

/* NULL: no further line. */
static const char *next_line(const char *text)
{
    const char *end = text ? strchr(text, '\n') : NULL;
    return end ? end + 1 : NULL;
}

static bool line_is(const char *text, const char *expected)
{
    size_t length = strlen(expected);
    return text && strncmp(text, expected, length) == 0 && text[length] == '\n';
}

const char *tuning_take(struct tuning *tuning, const char *text)
{
    char hex[HASH_HEX], head[sizeof magic + HASH_HEX + 2];
    const char *body = next_line(text);
    if (strncmp(text, magic, sizeof magic - 1) != 0)
        return "it has another format";
    if (!body)
        return "it is damaged";
    hash_bytes(body, strlen(body), hex);
    ZD_PRINT(head, "%s %s", magic, hex);
    if (!line_is(text, head))
        return "it is damaged";
    const char *library = next_line(body);
    if (!line_is(body, tuning->gpu) || !line_is(library, tuning->library))
        return "it is from another GPU or library";
    for (const char *line = next_line(library); line && *line;
         line = next_line(line)) {
        struct tuned t;
        if (!parse_line(line, &t))
            return "it is damaged";
        keep(tuning, &t);
    }
    return NULL;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void read_file(struct tuning *tuning)
{
    struct stat now;
    char *text = NULL;
    size_t bytes;
    const char *why;
    if (!*tuning->path || stat(tuning->path, &now) != 0 ||
        is_same_file(&now, &tuning->seen))
        return;
    tuning->seen = now;
    if (fs_read_file(tuning->path, MOST_BYTES, &text, &bytes) != ZD_OK) {
        zd_error_clear();
        why = "it cannot be read";
    } else {
        why = tuning_take(tuning, text);
    }
    if (why)
        zd_log_warning(
                "matmul: %s is ignored: %s; algorithms are timed again",
                tuning->path, why);
    free(text);
}

/* --- writing ------------------------------------------------------------- */

static size_t print_line(char *out, const struct tuned *t)
{
    int used = 0;
    int32_t words[KEY_WORDS];
    memcpy(words, &t->key, sizeof words);
    for (int i = 0; i < KEY_WORDS; i++)
        used += snprintf(
                out + used, LINE_BYTES - (size_t)used, "%" PRId32 " ",
                words[i]);
    used += snprintf(
            out + used, LINE_BYTES - (size_t)used, "%d %" PRIu32 " %.2f",
            (int)t->parts, t->workspace_kib, (double)t->microseconds);
    for (int i = 0; i < 8; i++)
        used += snprintf(
                out + used, LINE_BYTES - (size_t)used, " %" PRIx64,
                t->algorithm[i]);
    out[used++] = '\n';
    return (size_t)used;
}

char *tuning_text(const struct tuning *tuning)
{
    char hex[HASH_HEX];
    size_t room = (tuning->count + 4) * LINE_BYTES;
    char *text = zd_must(malloc(room));
    size_t head = sizeof magic + HASH_HEX; /* with ' ' and '\n' */
    char *body = text + head;
    size_t used = (size_t)snprintf(
            body, room - head, "%s\n%s\n", tuning->gpu, tuning->library);
    for (size_t i = 0; i < tuning->count; i++)
        used += print_line(body + used, &tuning->tuned[i]);
    hash_bytes(body, used, hex);
    memcpy(text, magic, sizeof magic - 1);
    text[sizeof magic - 1] = ' ';
    memcpy(text + sizeof magic, hex, HASH_HEX - 1);
    body[-1] = '\n';
    text[head + used] = 0;
    return text;
}

static enum zd_status write_file(struct tuning *tuning)
{
    char *text = tuning_text(tuning);
    enum zd_status status = fs_write_file(tuning->path, text, strlen(text));
    free(text);
    return status;
}

/* --- several processes --------------------------------------------------- */

static int open_lock(const struct tuning *tuning)
{
    char path[PATH_MAX + 8], folder[PATH_MAX];
    ZD_PRINT(folder, "%s", tuning->path);
    *strrchr(folder, '/') = 0;
    if (fs_make_dirs(folder) != ZD_OK) {
        zd_error_clear();
        return -1;
    }
    ZD_PRINT(path, "%s.lock", tuning->path);
    return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
}

void tuning_lock(struct tuning *tuning, int timeout_ms)
{
    double until = clock_seconds() + timeout_ms * 1e-3;
    if (!*tuning->path)
        return;
    tuning->lock = open_lock(tuning);
    /* polls with a timeout: the process that holds it may be stopped */
    while (tuning->lock >= 0 && flock(tuning->lock, LOCK_EX | LOCK_NB) != 0) {
        if (clock_seconds() > until) {
            close(tuning->lock);
            tuning->lock = -1;
            break;
        }
        usleep(2000);
    }
    read_file(tuning);
}

void tuning_unlock(struct tuning *tuning)
{
    if (tuning->lock >= 0)
        close(tuning->lock);
    tuning->lock = -1;
}

void tuning_add(struct tuning *tuning, const struct tuned *tuned)
{
    keep(tuning, tuned);
    /* without the lock we could overwrite another process's additions */
    if (tuning->lock < 0)
        return;
    if (write_file(tuning) != ZD_OK) {
        zd_log_warning(
                "matmul: timings are not saved: %s", zd_error_get()->what);
        zd_error_clear();
        *tuning->path = 0;
    } else if (stat(tuning->path, &tuning->seen) != 0) {
        memset(&tuning->seen, 0, sizeof tuning->seen);
    }
}

/* ------------------------------------------------------------------------- */

struct tuning *tuning_create_empty(const char *gpu, const char *library)
{
    struct tuning *tuning = zd_array(1, sizeof *tuning);
    tuning->tuned = zd_array(MOST_TUNED, sizeof *tuning->tuned);
    tuning->lock = -1;
    ZD_PRINT(tuning->gpu, "%s", gpu);
    ZD_PRINT(tuning->library, "%s", library);
    return tuning;
}

struct tuning *tuning_create(const char *gpu, const char *library)
{
    struct tuning *tuning = tuning_create_empty(gpu, library);
    set_path(tuning);
    read_file(tuning);
    return tuning;
}

void tuning_destroy(struct tuning *tuning)
{
    if (!tuning)
        return;
    tuning_unlock(tuning);
    free(tuning->tuned);
    free(tuning);
}

const char *tuning_path(const struct tuning *tuning)
{
    return tuning->path;
}

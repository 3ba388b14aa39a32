#include "train/text/written.h"

#include "data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum zd_status written_put(void *ctx, const char *bytes, size_t count)
{
    struct written *written = ctx;
    if (written->count + count + 1 > written->capacity) {
        size_t capacity = 2 * (written->count + count) + 64;
        char *more = realloc(written->bytes, capacity);
        if (!more)
            return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
        written->bytes = more;
        written->capacity = capacity;
    }
    memcpy(written->bytes + written->count, bytes, count);
    written->count += count;
    written->bytes[written->count] = '\0';
    return ZD_OK;
}

void written_fini(struct written *written)
{
    free(written->bytes);
    memset(written, 0, sizeof *written);
}

static json_t *string_of(const char *text, size_t bytes)
{
    size_t used = 0;
    char *clean = malloc(3 * bytes + 1);
    if (!clean)
        return json_null();
    for (size_t at = 0; at < bytes; at++) {
        size_t valid =
                utf8_valid_prefix(text + at, strnlen(text + at, bytes - at));
        memcpy(clean + used, text + at, valid);
        used += valid;
        at += valid;
        if (at < bytes) {
            memcpy(clean + used, "\xef\xbf\xbd", 3);
            used += 3;
        }
    }
    json_t *string = json_stringn(clean, used);
    free(clean);
    return string;
}

json_t *written_json(const char *prompt, const struct written *written)
{
    return json_pack(
            "{s:o, s:o}", "prompt", string_of(prompt, strlen(prompt)), "text",
            string_of(written->bytes, written->count));
}

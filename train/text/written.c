#include "train/text/written.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

enum zd_status written_put(void *ctx, const char *bytes, size_t count)
{
    struct written *written = ctx;
    written->bytes = zd_grow(
            written->bytes, &written->capacity, written->count + count + 1, 1);
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

json_t *written_json(const char *prompt, const struct written *written)
{
    return json_pack(
            "{s:o, s:o}", "prompt", utf8_json(prompt, strlen(prompt), false),
            "text", utf8_json(written->bytes, written->count, false));
}

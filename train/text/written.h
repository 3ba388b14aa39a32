/* written.h - what a decoder wrote, kept in memory, and as JSON. */
#ifndef ZD_TRAIN_TEXT_WRITTEN_H
#define ZD_TRAIN_TEXT_WRITTEN_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>

struct written {
    char *bytes; /* NUL-terminated, owned; NULL: nothing yet */
    size_t count, capacity;
};
/* Append; struct decoder_text.emit with a struct written for ctx. */
enum zd_status written_put(void *ctx, const char *bytes, size_t count);
void written_fini(struct written *written);

/* {"prompt": .., "text": ..}. A model may write any bytes: those that are not
 * UTF-8, and NUL, which many readers of JSON refuse, become U+FFFD. New
 * reference. */
json_t *written_json(const char *prompt, const struct written *written);

#endif

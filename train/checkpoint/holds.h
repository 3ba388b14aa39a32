/* holds.h - what a shard holds, as the manifest says it, so that who wants some
 * of it need not open the others, and a damaged array can be named. Internal to
 * the checkpoint.
 *
 *     model.norm.weight@0+64 master F32 0f3a.. m F32 77c1.. v F32 9e02..
 *     tensor, its first element and how many; of each array that the file has
 *     of them its type and the first characters of its xxh3-128 */
#ifndef ZD_TRAIN_CHECKPOINT_HOLDS_H
#define ZD_TRAIN_CHECKPOINT_HOLDS_H

#include "model/params.h"
#include "train/checkpoint/names.h"

#include <stdbool.h>
#include <stddef.h>

enum { HELD_DIGEST = 16, HELD_TEXT = PARAM_NAME_MAX + 400 };

struct held_array {
    enum array_kind kind;
    char type[12]; /* as safetensors names it */
    char digest[HELD_DIGEST + 1];
};

/* Elements [begin, begin+count) of a tensor. */
struct held {
    char name[PARAM_NAME_MAX];
    size_t begin, count;
    int array_count;
    struct held_array arrays[ARRAY_KINDS];
};

/* `digest` may be longer than is kept. */
void held_add(
        struct held *held, enum array_kind kind, const char *type,
        const char *digest);
void held_text(const struct held *held, char out[HELD_TEXT]);
/* False: it is none. `text` may be NULL. */
bool held_parse(const char *text, struct held *out);

#endif

/* index.h - an open checkpoint: which file holds which run of elements of which
 * tensor. Internal to index.c, which makes it, and read.c. */
#pragma once

#include "train/checkpoint/arrays.h"
#include "train/checkpoint/checkpoint.h"

/* A file with arrays. Its header is read when it is first wanted. */
struct shard {
    char *path;           /* owned */
    uint64_t bytes;       /* as the manifest says */
    struct st_file *file; /* NULL: not read yet */
};

/* One array of one shard: elements [begin, begin+count) of a tensor, or of some
 * of its columns. */
struct piece {
    enum array_kind kind;
    char *name; /* tensor; owned */
    struct columns columns;
    size_t begin, count;
    char type[12]; /* as safetensors names it */
    int shard;
    const struct st_tensor *tensor; /* NULL: its shard was not read yet */
};

struct checkpoint {
    char *path;
    json_t *manifest;
    struct shard *shards;
    int shard_count;
    struct piece *pieces; /* sorted by kind, name, columns, begin */
    size_t piece_count, piece_capacity;
};

/* Elements of the tensor that one value of this kind stands for. */
size_t index_elements_per_value(enum array_kind kind);
/* Rows and columns of a tensor, as the manifest says. */
bool index_shape(
        const struct checkpoint *checkpoint, const char *name,
        int64_t shape[2]);
/* The order of a piece and those of (kind, name); 0: it is one of them. */
int index_compare(
        const struct piece *piece, enum array_kind kind, const char *name);
/* The first piece of (kind, name), or NULL; the others follow it. */
struct piece *index_first(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name);
/* The piece's tensor is known and can be read. */
enum zd_status index_wake(
        const struct checkpoint *checkpoint, struct piece *piece);

/* tensor_files.h - a list of tensors written to one safetensors file or
 * several, in pieces of bounded size, by one process or by parts of several. */
#pragma once

#include "base/file/safetensors.h"

enum { FILE_TENSOR_NAME = 176, TENSOR_FILE_NAME = 64 };

struct file_tensor {
    char name[FILE_TENSOR_NAME];
    int id, kind; /* what `read` knows it by */
    struct st_entry entry;
    uint64_t bytes;
    int file;
    bool raw; /* `read` gives bytes, as they are stored */
};

struct tensor_files {
    const char *dir, *stem;      /* stem.safetensors, stem-00001-of-00002... */
    struct file_tensor *tensors; /* owned */
    int count, room, files;
    json_t *metadata; /* strings, beside the writer's; borrowed, may be NULL */
    /* Elements [begin, begin + count): floats as fp32, whatever they are stored
     * in, others as they are stored; of a raw tensor bytes. */
    enum zd_status (*read)(
            void *ctx, const struct file_tensor *tensor, size_t begin,
            size_t count, void *out);
    void *ctx;
};

/* Names may be changed until the files are created. */
struct file_tensor *tensor_files_add(
        struct tensor_files *files, int id, int kind, const char *dtype,
        int dims, int64_t rows, int64_t columns);
/* One that is copied: of this entry, whose name is. */
enum zd_status tensor_files_add_raw(
        struct tensor_files *files, int id, const struct st_entry *entry,
        uint64_t bytes);
/* Fill files in the order of the list; a tensor larger than the limit is alone
 * in one. */
void tensor_files_cut(struct tensor_files *files, uint64_t max_bytes);
void tensor_files_name(
        const struct tensor_files *files, int file, char out[TENSOR_FILE_NAME]);
/* Of one file; -1: of all. */
uint64_t tensor_files_bytes(const struct tensor_files *files, int file);
/* All files at their full length, with their headers. */
enum zd_status tensor_files_create(const struct tensor_files *files);
/* One of `parts` of about as many bytes each. */
enum zd_status tensor_files_write(
        const struct tensor_files *files, int part, int parts);
void tensor_files_fini(struct tensor_files *files);

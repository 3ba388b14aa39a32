/* tensor_files.h - writes a list of tensors to one or more safetensors files,
 * in pieces of bounded size, by one or more processes. */
#pragma once

#include "base/file/safetensors.h"

enum { FILE_TENSOR_NAME = 176, TENSOR_FILE_NAME = 64 };

struct file_tensor {
    char name[FILE_TENSOR_NAME];
    int id, kind; /* for `read` */
    struct st_entry entry;
    uint64_t bytes;
    int file;
    bool raw; /* `read` returns bytes as stored */
};

struct tensor_files {
    const char *dir, *stem;      /* stem.safetensors, stem-00001-of-00002.. */
    struct file_tensor *tensors; /* owned */
    int count, room, files;
    json_t *metadata; /* strings besides the writer's; borrowed, may be NULL */
    /* Reads elements [begin, begin + count): floats as fp32, other types as
     * stored; for a raw tensor bytes. */
    enum zd_status (*read)(
            void *ctx, const struct file_tensor *tensor, size_t begin,
            size_t count, void *out);
    void *ctx;
};

/* Adds a tensor. Its name may be changed until the files are created. */
struct file_tensor *tensor_files_add(
        struct tensor_files *files, int id, int kind, const char *dtype,
        int dims, int64_t rows, int64_t columns);
/* Adds a tensor that is copied as `entry` describes. */
enum zd_status tensor_files_add_raw(
        struct tensor_files *files, int id, const struct st_entry *entry,
        uint64_t bytes);
/* Distributes the tensors to files in order; a tensor above the limit gets its
 * own file. */
void tensor_files_cut(struct tensor_files *files, uint64_t max_bytes);
void tensor_files_name(
        const struct tensor_files *files, int file, char out[TENSOR_FILE_NAME]);
/* Bytes of one file; -1: of all. */
uint64_t tensor_files_bytes(const struct tensor_files *files, int file);
/* Creates all files at full length, with headers. */
enum zd_status tensor_files_create(const struct tensor_files *files);
/* Writes one of `parts` parts of about equal size. */
enum zd_status tensor_files_write(
        const struct tensor_files *files, int part, int parts);
void tensor_files_fini(struct tensor_files *files);

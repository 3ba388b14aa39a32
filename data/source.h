/* source.h - the files of one [[data.train]] or [[data.eval]] entry. */
#pragma once

#include "data/dataset.h"

#include <limits.h>

enum data_container {
    CONTAINER_PLAIN,
    CONTAINER_GZIP,
    CONTAINER_ZSTD,
    CONTAINER_PARQUET
};

struct data_file {
    char *path; /* owned */
    uint64_t bytes;
    enum data_container container; /* by its name: .gz, .zst, .parquet */
    enum data_format format;       /* never DATA_AUTO */
    bool has_lines;                /* records; false: the file is one text */
    bool is_array;                 /* the records are one JSON array */
};

struct file_list {
    struct data_file *files; /* in the order of their paths, bytewise */
    int count;
    bool is_tokens; /* all are pre-tokenized; else none is */
    bool is_text;   /* all are plain text */
    bool has_chat;  /* one is conversations */
    /* As it was given, with what a folder's own description adds: fields,
     * columns, roles, format. */
    struct data_entry entry;
    char which[160]; /* of a folder: configuration and split; else "" */
    int left_out;    /* files of a folder, of another kind than those that are
                        read, and the first of them */
    const char *first_left_out;
    /* private: what the entry borrows */
    json_t *strings;
    const char **columns, **roles;
};

/* Find what the entry's path (a file, a glob, or a folder: folder.h) names and
 * settle each format. ZD_ERR_NO_INPUT when nothing matches; ZD_ERR_DATA for a
 * folder without data, a FIFO or device, for an empty file, for one that is no
 * text and no tokens (foreign_check) and for a first record that cannot be read
 * one way alone; ZD_ERR_CONFIG when a format must be named. */
enum zd_status sources_find(
        const struct data_entry *entry, struct file_list *list_out);
void sources_free(struct file_list *list);
/* Add to `hasher` what tells this file's content from any other. Up to 64 MiB
 * the whole content (a Megatron file's index included); above that its size,
 * parts spread over it, and, unless `portable`, the file system's word that it
 * has not changed. */
enum zd_status source_identity(
        const struct data_file *file, bool portable, struct hasher *hasher);

/* That of all files, and what is made of each. */
enum zd_status sources_identity(
        const struct file_list *list, bool portable, struct hasher *hasher);

/* How messages name the entry: its path, and of a folder the set. */
struct source_label {
    char text[PATH_MAX + 128];
};
struct source_label source_label(const struct data_entry *entry);

/* "line" or "row": what messages count in the file. */
const char *source_unit(const struct data_file *file);
/* "path:line", or "path:row N". */
void source_row(
        const struct data_file *file, int64_t line, char *out, size_t bytes);
/* Add it to the error that was just made. */
enum zd_status source_place(const struct data_file *file, int64_t line);

/* Is this file of the entry one of tokens, by its format or else its name? */
bool source_is_tokens(const struct data_entry *entry, const char *path);

/* --- format.c: what the name of a data file says of its content, and its first
 * bytes --- */

enum name_kind { NAME_OTHER, NAME_TEXT, NAME_RECORDS, NAME_TABLE };

/* In either case: a.JSONL is a.jsonl. */
bool name_ends_with(const char *path, const char *end);
enum data_container name_container(const char *path);
/* Of what is inside the container: a.jsonl.gz is records. */
enum name_kind name_kind(const char *path);

/* Files that people give as text and that are none: tables,
 * archives, what Git LFS leaves in a file's place. */

/* ZD_ERR_DATA, with how to convert it, when the first bytes of the file are
 * those of such a format, or are not those of `container`. `fd` is open for
 * reading. */
enum zd_status foreign_check(
        int fd, const char *path, enum data_container container);

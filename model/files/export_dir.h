/* export_dir.h - the folder of an export: what it may contain, and when and how
 * it is replaced. */
#pragma once

#include "base/status.h"

/* Our mark in the metadata of the weights. */
#define EXPORT_WRITER_KEY "writer"
#define EXPORT_WRITER     "zerod"

/* Files that are copied unchanged, NULL at the end; the first belongs to the
 * model, the others to its tokenizer. */
extern const char *const export_copied_files[];

/* Checks that a file to copy is not a link out of its model: the target must be
 * below `dir`, or in blobs/ beside the hub's snapshots/ that has `dir`. Else
 * whoever made the link could get a copy of any file that the trainer can read.
 * ZD_ERR_DATA. */
enum zd_status export_check_link(const char *dir, const char *name);

/* Copies the existing files: the model's from `model`, the tokenizer's from
 * `tokenizer`; NULL: none. */
enum zd_status export_copy_files(
        const char *model, const char *tokenizer, const char *to);

/* The final path of an export to `dir` (without a slash at its end), and the
 * temporary one. export_dir_names checks both: ZD_ERR_CREATE unless they do not
 * exist, are empty, or hold only an export. An adapter does not replace a
 * model, nor a model an adapter. */
enum { EXPORT_PATH_BYTES = 4096 };
enum zd_status export_dir_places(
        const char *dir, char to[EXPORT_PATH_BYTES],
        char temporary[EXPORT_PATH_BYTES]);
enum zd_status export_dir_names(
        const char *dir, bool is_adapter, char to[EXPORT_PATH_BYTES],
        char temporary[EXPORT_PATH_BYTES]);
/* Makes an empty folder `temporary`; removes an existing one. */
enum zd_status export_dir_begin(const char *temporary);
/* Renames `from` to `to`; removes the old `to`. */
enum zd_status export_dir_replace(const char *from, const char *to);

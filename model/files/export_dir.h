/* export_dir.h - the folder of an export: what it may contain, when it may be
 * replaced, and how. */
#pragma once

#include "base/status.h"

/* In the metadata of the weights: by this a folder is known as ours. */
#define EXPORT_WRITER_KEY "writer"
#define EXPORT_WRITER     "zerod"

/* Files that are copied as they are, NULL at the end; the first belongs to the
 * model, the others to its tokenizer. */
extern const char *const export_copied_files[];

/* What is copied may be a link, but only to a file of the same model: below
 * `dir`, or in blobs/ beside the snapshots/ of the hub's cache that `dir` is
 * in. Who made the link would else have a copy of what the trainer may read.
 * ZD_ERR_DATA. */
enum zd_status export_check_link(const char *dir, const char *name);

/* Copy those that are there: the model's from `model`, its tokenizer's from
 * `tokenizer`; NULL: none of them. */
enum zd_status export_copy_files(
        const char *model, const char *tokenizer, const char *to);

/* The final path of an export to `dir` (no slash at its end), and where it is
 * written first. export_dir_names checks both: ZD_ERR_CREATE unless they do not
 * exist, are empty, or hold an export and nothing else; an adapter replaces no
 * model, and a model no adapter. */
enum { EXPORT_PATH_BYTES = 4096 };
enum zd_status export_dir_places(
        const char *dir, char to[EXPORT_PATH_BYTES],
        char temporary[EXPORT_PATH_BYTES]);
enum zd_status export_dir_names(
        const char *dir, bool is_adapter, char to[EXPORT_PATH_BYTES],
        char temporary[EXPORT_PATH_BYTES]);
/* An empty folder `temporary`, whatever was there. */
enum zd_status export_dir_begin(const char *temporary);
/* `from` becomes `to`; what was `to` is removed. */
enum zd_status export_dir_replace(const char *from, const char *to);

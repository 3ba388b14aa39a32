/* folder.h - a folder as it comes from a hub: which of its files are a split of
 * a configuration.
 *
 * In this order: a dataset_info.json of LLaMA-Factory, whose sets `name` picks
 * from; `configs:` in the front matter of README.md, of which `name` picks one,
 * else the only one, else the default; else splits by the names of folders and
 * files, as `datasets` finds them (data/NAME-00000-of-00001.*, then folders,
 * then files that are called train, test, dev, ...), else all is train; of
 * training data a `name` is then an error. Of files of several kinds the most
 * common kind is taken. Files whose names begin with a dot are not looked at.
 *
 * Source:  datasets 5.2: data_files.py, utils/metadata.py; huggingface.co/docs
 *          "Manual configuration"; LLaMA-Factory 0.9.5: data/README.md,
 *          parser.py. */
#pragma once

#include "base/file/json.h"
#include "data/source.h"

/* --- the files that a path or a pattern of an entry names --- */

/* `pattern` is the name of a file that exists, whatever characters it has, or a
 * pattern: * ? [abc] {a,b} and, by itself between slashes, ** for folders at
 * any depth, none included. Links to folders are not followed by it, and names
 * that begin with a dot must be spelled out. No match is not an error.
 * ZD_ERR_CONFIG for a ** that is only part of a name or of a brace, for more
 * than three of them, and for braces that make more than 1,000 names.
 * *paths_out, the caller's: a list of strings in bytewise order, each once. */
enum zd_status match_files(const char *pattern, json_t **paths_out);

/* The files of entry->path, a folder, as match_files gives them; fields,
 * columns and roles that it describes into list->entry, and what was chosen
 * into list->which. ZD_ERR_DATA, E0454: nothing can be chosen, or what is there
 * is not read. */
enum zd_status folder_find(
        const struct data_entry *entry, struct file_list *list,
        json_t **paths_out);

/* --- dataset_info.c --- */

/* The sets of a dataset_info.json of LLaMA-Factory in the folder, {name: set};
 * NULL: there is none, or the file is another library's. The caller owns
 * it. */
enum zd_status dataset_info_read(const char *folder, json_t **sets_out);
/* One of them, as fields of list->entry. *path_out: its file, or folder; owned
 * by the list. */
enum zd_status dataset_info_take(
        const char *folder, const char *name, const json_t *set,
        struct file_list *list, const char **path_out);

/* Text that lives as long as the list. */
static inline const char *list_keep(struct file_list *list, const char *text)
{
    if (!list->strings)
        list->strings = json_array();
    json_array_append_new(list->strings, json_string(text));
    return json_string_value(
            json_array_get(list->strings, json_array_size(list->strings) - 1));
}

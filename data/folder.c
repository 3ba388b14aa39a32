#include "data/folder.h"

#include "base/file/fs.h"
#include "base/file/yaml.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "base/words.h"

#include <dirent.h>
#include <glob.h>
#include <limits.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { README_MAX = 16 << 20 };

/* --- files that a pattern names ------------------------------------------- */

/* Found paths are the keys of an object: each once. */
static void add_path(json_t *found, const char *path)
{
    json_object_set_new_nocheck(found, path, json_null());
}

static enum zd_status fail_pattern(const char *pattern, const char *what)
{
    ZD_FAIL(ZD_ERR_CONFIG, "E0448", "%s: %s", pattern, what);
    return zd_fail_help("data/**/*.jsonl: below data, at any depth");
}

/* Each `**` is a whole name, and stands outside braces. Few of both: each
 * multiplies the folders that are read, and a README.md may be hostile. */
static enum zd_status check_pattern(const char *pattern)
{
    enum { DEEP_MAX = 3, WAYS_MAX = 1000 };
    size_t depth = 0, commas = 0, ways = 1, deep = 0;
    for (const char *at = pattern; *at; at++) {
        commas += *at == ',' && depth > 0;
        if (*at == '{') {
            depth++;
        } else if (*at == '}' && depth > 0) {
            depth--;
            ways *= commas + 1; /* at most so many, if they are nested */
            commas = 0;
        }
        if (ways > WAYS_MAX)
            return fail_pattern(
                    pattern, "its braces make more than 1,000 names");
        if (strncmp(at, "**", 2) != 0)
            continue;
        bool is_name =
                (at == pattern || at[-1] == '/') && (!at[2] || at[2] == '/');
        if (depth != 0 || !is_name)
            return fail_pattern(
                    pattern, "`**` must stand alone between slashes and "
                             "outside of braces");
        if (++deep > DEEP_MAX)
            return fail_pattern(pattern, "it has more than three `**`");
        at++;
    }
    return ZD_OK;
}

/* A name as a pattern that it alone matches; false: it does not fit. */
static bool match_escape(const char *name, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (; *name; name++) {
        if (used + 3 > out_bytes)
            return false;
        if (strchr("*?[]{},\\~", *name))
            out[used++] = '\\';
        out[used++] = *name;
    }
    out[used] = '\0';
    return true;
}

static void match_plain(const char *pattern, bool files_only, json_t *found)
{
    glob_t all = {0};
    int result = glob(pattern, GLOB_BRACE, NULL, &all);
    if (result == GLOB_NOSPACE)
        zd_out_of_memory();
    for (size_t i = 0; result == 0 && i < all.gl_pathc; i++)
        if (!files_only || !fs_is_dir(all.gl_pathv[i]))
            add_path(found, all.gl_pathv[i]);
    globfree(&all);
}

static void match_any(const char *pattern, bool files_only, json_t *found);

/* `rest` below `folder` ("" or with a slash at its end) and, so that ** stands
 * for any depth, below each of its folders. */
static void descend(const char *folder, const char *rest, json_t *found)
{
    char pattern[PATH_MAX], path[PATH_MAX];
    struct dirent *item;
    struct stat info;
    if (!match_escape(folder, pattern, sizeof pattern) ||
        strlen(pattern) + strlen(rest) >= sizeof pattern)
        return; /* no file has such a path */
    strcat(pattern, rest);
    match_any(pattern, true, found);
    DIR *dir = opendir(folder[0] ? folder : ".");
    while (dir && (item = readdir(dir))) {
        int length = ZD_PRINT(path, "%s%s", folder, item->d_name);
        if (item->d_name[0] == '.' || length + 1 >= (int)sizeof path ||
            lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
            continue;
        strcpy(path + length, "/");
        descend(path, rest, found);
    }
    if (dir)
        closedir(dir);
}

/* A pattern that check_pattern has passed. */
static void match_any(const char *pattern, bool files_only, json_t *found)
{
    char before[PATH_MAX] = "";
    const char *deep = strstr(pattern, "**");
    json_auto_t *folders = json_object();
    size_t bytes = deep ? (size_t)(deep - pattern) : 0;
    if (!deep) {
        match_plain(pattern, files_only, found);
        return;
    }
    if (bytes >= sizeof before)
        return;
    memcpy(before, pattern, bytes);
    if (bytes == 0)
        add_path(folders, "");
    else
        match_plain(before, false, folders);
    JSON_MEMBERS(folder, unused, folders)
        descend(folder, deep[2] ? deep + 3 : "*", found);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum zd_status match_files(const char *pattern, json_t **paths_out)
{
    json_auto_t *found = json_object();
    size_t count = 0;
    if (fs_exists(pattern)) { /* brackets in it may simply be a name's */
        add_path(found, pattern);
    } else {
        ZD_TRY(check_pattern(pattern));
        match_any(pattern, false, found);
    }
    ZD_FREED const char **paths =
            zd_array(json_object_size(found) + 1, sizeof *paths);
    JSON_MEMBERS(path, unused, found)
        paths[count++] = path;
    qsort(paths, count, sizeof *paths, compare_paths);
    *paths_out = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(*paths_out, json_string_nocheck(paths[i]));
    return ZD_OK;
}

static enum zd_status fail_folder(const char *folder, const char *what)
{
    return ZD_BAD("E0454", "%s %s", folder, what);
}

/* --- which names there are, and which one is meant ------------------------ */

/* The keys of an object, for a message. */
static void list_names(const json_t *names, struct text_buffer *out)
{
    JSON_MEMBERS(key, value, names)
        text_buffer_add(out, "%s%.80s", out->used ? ", " : "", key);
}

/* entry->name, else the only one, else the one that is marked. */
static enum zd_status choose(
        const struct data_entry *entry, const json_t *sets,
        const char **name_out)
{
    struct text_buffer names = TEXT_BUFFER(400);
    const char *marked = NULL;
    JSON_MEMBERS(key, set, sets)
        if (json_object_size(sets) == 1 || strcmp(key, "default") == 0 ||
            json_is_true(json_object_get(set, "default")))
            marked = key;
    const char *wanted = entry->name[0] ? entry->name : marked;
    if (wanted && json_object_get(sets, wanted)) {
        *name_out = wanted;
        return ZD_OK;
    }
    list_names(sets, &names);
    if (wanted)
        ZD_BAD("E0454", "%s has no set \"%s\"; it has %s", entry->path, wanted,
               names.out);
    else
        ZD_BAD("E0454", "%s has several sets, and none is the default: %s",
               entry->path, names.out);
    return zd_fail_help("choose one: name = \"...\"");
}

/* --- files ---------------------------------------------------------------- */

static bool is_data(const char *path)
{
    static const char others[] = "config.json dataset_info.json "
                                 "dataset_infos.json dataset_dict.json "
                                 "state.json";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (words_have(others, " ", name))
        return false;
    return name_kind(path) != NAME_OTHER && !strstr(path, "/__");
}

/* The data files that a pattern below the folder names. */
static enum zd_status match_below(
        const char *folder, const char *pattern, json_t **paths_out)
{
    char escaped[PATH_MAX], whole[PATH_MAX];
    json_auto_t *found = NULL;
    if (!match_escape(folder, escaped, sizeof escaped) ||
        ZD_PRINT(whole, "%s/%s", escaped, pattern) >= (int)sizeof whole)
        return fail_folder(folder, "has a path that is too long");
    if (match_files(whole, &found) != ZD_OK) {
        struct zd_error error = *zd_error_get();
        zd_error_clear(); /* the folder's, not the job's */
        return fail_folder(folder, error.what);
    }
    *paths_out = json_array();
    JSON_EACH(path, found) {
        const char *name = json_string_value(path);
        if (is_data(name) && !fs_is_dir(name))
            json_array_append(*paths_out, path);
    }
    return ZD_OK;
}

/* Only files of the kind that most are, as `datasets` does. */
static json_t *keep_one_kind(struct file_list *list, const json_t *paths)
{
    int counts[NAME_TABLE + 1] = {0};
    enum name_kind best = NAME_TEXT;
    json_t *kept = json_array();
    JSON_EACH(path, paths)
        counts[name_kind(json_string_value(path))]++;
    for (enum name_kind kind = NAME_TEXT; kind <= NAME_TABLE; kind++)
        if (counts[kind] >= counts[best])
            best = kind;
    JSON_EACH(path, paths) {
        if (name_kind(json_string_value(path)) == best)
            json_array_append(kept, path);
        else if (list->left_out++ == 0)
            list->first_left_out = list_keep(list, json_string_value(path));
    }
    return kept;
}

static void add_found(json_t *splits, const char *split, json_t *path)
{
    if (!json_object_get(splits, split))
        json_object_set_new(splits, split, json_array());
    json_array_append(json_object_get(splits, split), path);
}

/* --- splits by names ------------------------------------------------------ */

/* A file is of a split where a folder below the first has one of its words,
 * with nothing of a word next to it, or else the file's name has, in which
 * something must follow it. */
#define BETWEEN "[-._ 0-9]"
static const char *const places[] = {
        "(^|/|" BETWEEN ")(%s)(" BETWEEN "[^/]*)?/",
        "(^|/|" BETWEEN ")(%s)" BETWEEN "[^/]*$"};
static const struct {
    const char *split, *words;
} keywords[] = {
        {"train", "train|training"},
        {"validation", "validation|valid|dev|val"},
        {"test", "test|testing|eval|evaluation"},
};

/* Those of the paths, without their first `skip` bytes, that have a word. */
static void add_matching(
        const json_t *paths, size_t skip, int keyword, int place,
        json_t *splits)
{
    char pattern[120];
    regex_t regex;
    ZD_PRINT(pattern, places[place], keywords[keyword].words);
    if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        zd_out_of_memory();
    JSON_EACH(path, paths) {
        const char *below = json_string_value(path) + skip;
        if (regexec(&regex, below, 0, NULL, 0) == 0)
            add_found(splits, keywords[keyword].split, path);
    }
    regfree(&regex);
}

/* data/NAME-00000-of-00005.x: the length of NAME; 0: another file. */
static int sharded_name(const char *path)
{
    const char *name = path + strlen("data/"), *at;
    if (strncmp(path, "data/", 5) != 0 || strchr(name, '/'))
        return 0;
    for (at = strchr(name, '-'); at; at = strchr(at + 1, '-'))
        if (strspn(at + 1, "0123456789") == 5 &&
            strncmp(at + 6, "-of-", 4) == 0 &&
            strspn(at + 10, "0123456789") == 5)
            return (int)(at - name);
    return 0;
}

/* {split: [files]} of a folder without a description. */
static enum zd_status find_by_names(const char *folder, json_t **splits_out)
{
    json_auto_t *all = NULL;
    char split[200];
    size_t skip = strlen(folder) + 1;
    ZD_TRY(match_below(folder, "**", &all));
    json_t *splits = *splits_out = json_object();
    JSON_EACH(path, all) {
        const char *below = json_string_value(path) + skip;
        int bytes = sharded_name(below);
        ZD_PRINT(split, "%.*s", bytes, below + 5);
        if (bytes > 0)
            add_found(splits, split, path);
    }
    for (int place = 0; place < 2 && !json_object_size(splits); place++)
        for (int k = 0; k < 3; k++)
            add_matching(all, skip, k, place, splits);
    if (!json_object_size(splits) && json_array_size(all) > 0)
        json_object_set(splits, "train", all);
    return ZD_OK;
}

/* --- configs of README.md ------------------------------------------------- */

/* {config_name: config}; NULL: README.md has none. */
static enum zd_status read_configs(const char *folder, json_t **configs_out)
{
    const struct fs_path path = fs_in(folder, "README.md");
    char *end;
    ZD_FREED char *text = NULL;
    size_t bytes;
    json_auto_t *root = NULL, *configs = json_object();
    *configs_out = NULL;
    if (!fs_exists(path.text))
        return ZD_OK;
    ZD_TRY(fs_read_file(path.text, README_MAX, &text, &bytes));
    if (strncmp(text, "---\n", 4) == 0 && (end = strstr(text + 3, "\n---")))
        ZD_TRY(yaml_parse(
                text + 4, (size_t)(end + 1 - text - 4), path.text, &root));
    JSON_EACH(config, json_object_get(root, "configs")) {
        const char *name = json_string_at(config, "config_name");
        if (name)
            json_object_set(configs, name, config);
    }
    if (json_object_size(configs) > 0)
        *configs_out = json_incref(configs);
    return ZD_OK;
}

/* Files of a pattern, or of several. */
static enum zd_status add_patterns(
        const char *folder, const char *split, const json_t *patterns,
        json_t *splits)
{
    json_auto_t *found = NULL;
    if (!json_is_string(patterns)) {
        JSON_EACH(item, patterns)
            ZD_TRY(add_patterns(folder, split, item, splits));
        return ZD_OK;
    }
    ZD_TRY(match_below(folder, json_string_value(patterns), &found));
    JSON_EACH(item, found)
        add_found(splits, split, item);
    return ZD_OK;
}

/* data_files: a pattern, a list of them, or a list of {split, path}. */
static enum zd_status add_config(
        const char *folder, const json_t *files, json_t *splits)
{
    if (!json_is_object(json_array_get(files, 0)))
        return add_patterns(folder, "train", files, splits);
    JSON_EACH(item, files) {
        const char *split = json_string_at(item, "split");
        if (split)
            ZD_TRY(add_patterns(
                    folder, split, json_object_get(item, "path"), splits));
    }
    return ZD_OK;
}

static enum zd_status find_config(
        const struct data_entry *entry, const json_t *configs,
        const char **name_out, json_t **splits_out)
{
    char folder[PATH_MAX];
    ZD_TRY(choose(entry, configs, name_out));
    const json_t *config = json_object_get(configs, *name_out);
    const json_t *files = json_object_get(config, "data_files");
    const char *below = json_string_at(config, "data_dir");
    if (below)
        fs_join(folder, sizeof folder, entry->path, below);
    else
        ZD_PRINT(folder, "%s", entry->path);
    if (!files)
        return find_by_names(folder, splits_out);
    *splits_out = json_object();
    return add_config(folder, files, *splits_out);
}

/* --- the split ------------------------------------------------------------ */

/* Of the set `name`, unless it is NULL. */
static enum zd_status take_split(
        struct file_list *list, const char *name, const json_t *splits,
        json_t **paths_out)
{
    const struct data_entry *entry = &list->entry;
    struct text_buffer names = TEXT_BUFFER(400);
    const char *split = entry->split;
    if (strcmp(split, "auto") == 0)
        split = !entry->is_eval                         ? "train"
                : json_object_get(splits, "validation") ? "validation"
                                                        : "test";
    const json_t *files = json_object_get(splits, split);
    if (json_object_size(splits) == 0 && name)
        return ZD_BAD(
                "E0454",
                "the set \"%s\" of %s names no data file that is there", name,
                entry->path);
    if (json_object_size(splits) == 0)
        return fail_folder(
                entry->path, "holds no data file (.parquet, .jsonl, .json, "
                             ".txt, also .gz and .zst)");
    list_names(splits, &names);
    if (!files) {
        ZD_BAD("E0454", "%s has no split \"%s\"; it has %s", entry->path, split,
               names.out);
        return zd_fail_help("choose one: split = \"...\"");
    }
    *paths_out = keep_one_kind(list, files);
    int count = (int)json_array_size(*paths_out);
    ZD_PRINT(
            list->which, "%s%.80s%ssplit %.40s, %d file%s", name ? "set " : "",
            name ? name : "", name ? ", " : "", split, count,
            count == 1 ? "" : "s");
    return ZD_OK;
}

/* --- a folder ------------------------------------------------------------- */

/* What save_to_disk writes has Arrow files. */
static enum zd_status check_saved(const char *folder)
{
    static const char *const names[] = {"state.json", "dataset_dict.json"};
    struct text_buffer word = TEXT_BUFFER(2 * PATH_MAX);
    for (int i = 0; i < 2; i++) {
        if (!fs_exists(fs_in(folder, names[i]).text))
            continue;
        text_buffer_add_word(&word, folder);
        fail_folder(
                folder, "was written by save_to_disk, whose Arrow files zerod "
                        "does not read");
        return zd_fail_help(
                "python3 -c \"import datasets as d, sys; p = sys.argv[1]; "
                "x = d.load_from_disk(p); [s.to_parquet(f'{p}/{n}.parquet') "
                "for n, s in (x if isinstance(x, dict) else "
                "{'train': x}).items()]\" %s, then delete %s",
                word.out, names[i]);
    }
    return ZD_OK;
}

static enum zd_status find_set(
        const struct data_entry *entry, const json_t *sets,
        struct file_list *list, const char **name_out, json_t **splits_out)
{
    const char *path = NULL;
    ZD_TRY(choose(entry, sets, name_out));
    ZD_TRY(dataset_info_take(
            entry->path, *name_out, json_object_get(sets, *name_out), list,
            &path));
    if (fs_is_dir(path))
        return find_by_names(path, splits_out);
    *splits_out = json_pack("{s:[s]}", "train", path);
    return ZD_OK;
}

enum zd_status folder_find(
        const struct data_entry *entry, struct file_list *list,
        json_t **paths_out)
{
    json_auto_t *sets = NULL, *configs = NULL, *splits = NULL;
    const char *name = NULL;
    ZD_TRY(check_saved(entry->path));
    ZD_TRY(dataset_info_read(entry->path, &sets));
    if (!sets)
        ZD_TRY(read_configs(entry->path, &configs));
    if (!sets && !configs && entry->name[0] && !entry->is_eval) {
        ZD_BAD("E0454",
               "%s has no set \"%s\", as neither a dataset_info.json nor "
               "`configs:` of a README.md there describes sets",
               entry->path, entry->name);
        return zd_fail_help("without `name` all its data files are read");
    }
    ZD_TRY(sets      ? find_set(entry, sets, list, &name, &splits)
           : configs ? find_config(entry, configs, &name, &splits)
                     : find_by_names(entry->path, &splits));
    return take_split(list, name, splits, paths_out);
}

/* cases.c - cases.json of a tokenizer as files: N.text holds the bytes of case
 * N and N.ids its ids, one per line. usage: cases CASES.json FOLDER COUNT
 *
 * COUNT cases are taken evenly over the list; texts without a byte are left
 * out. */
#include "base/file/fs.h"
#include "base/file/json.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool write_text(const char *path, const json_t *text)
{
    return fs_write_file(
                   path, json_string_value(text), json_string_length(text)) ==
           ZD_OK;
}

static bool write_ids(const char *path, const json_t *ids)
{
    size_t i;
    const json_t *id;
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    json_array_foreach(ids, i, id)
            fprintf(file, "%lld\n", (long long)json_integer_value(id));
    return fclose(file) == 0;
}

int main(int argc, char **argv)
{
    json_t *root;
    char path[PATH_MAX];
    bool ok = true;
    if (argc != 4 || json_parse_file(argv[1], 1 << 26, &root) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        return 1;
    }
    const json_t *cases = json_object_get(root, "cases");
    size_t all = json_array_size(cases), count = strtoul(argv[3], NULL, 10);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(cases, i * all / count);
        const json_t *text = json_object_get(item, "text");
        if (json_string_length(text) == 0)
            continue;
        snprintf(path, sizeof path, "%s/%zu.text", argv[2], i);
        ok = write_text(path, text) && ok;
        snprintf(path, sizeof path, "%s/%zu.ids", argv[2], i);
        ok = write_ids(path, json_object_get(item, "ids")) && ok;
    }
    json_decref(root);
    return !ok;
}

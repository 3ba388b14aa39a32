#include "model/files/hub.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool hub_is_name(const char *path)
{
    static const char *const old[] = {
            "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"};
    int slashes = 0;
    char folder[PATH_MAX];
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (strcmp(path, old[i]) == 0)
            return true;
    for (const char *c = path; *c; c++) {
        slashes += *c == '/';
        if (!isalnum((unsigned char)*c) && !strchr("._-/", *c))
            return false;
    }
    const char *slash = strchr(path, '/');
    if (slashes != 1 || slash == path || !slash[1] || path[0] == '.')
        return false;
    ZD_PRINT(folder, "%.*s", (int)(slash - path), path);
    return !fs_exists(folder);
}

/* The cache's folder of a model: models--Qwen--Qwen2.5-0.5B. */
static void cache_folder(const char *name, char out[PATH_MAX])
{
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME");
    const char *user = getenv("HOME"), *slash = strchr(name, '/');
    int first = slash ? (int)(slash - name) : (int)strlen(name);
    snprintf(
            out, PATH_MAX, "%s%s/models--%.*s%s%s",
            cache  ? cache
            : home ? home
            : user ? user
                   : "",
            cache  ? ""
            : home ? "/hub"
                   : "/.cache/huggingface/hub",
            first, name, slash ? "--" : "", slash ? slash + 1 : "");
}

bool hub_help(const char *path, char out[HUB_HELP_BYTES])
{
    char folder[PATH_MAX], pattern[PATH_MAX + 32];
    bool is_name = hub_is_name(path);
    glob_t found;
    if (is_name)
        cache_folder(path, folder);
    else
        snprintf(folder, sizeof folder, "%s", path);
    ZD_PRINT(pattern, "%s/snapshots/*/*config.json", folder);
    bool has_it = glob(pattern, 0, NULL, &found) == 0;
    if (has_it)
        snprintf(
                out, HUB_HELP_BYTES, "the hub's cache has it in %.*s",
                (int)(strrchr(found.gl_pathv[0], '/') - found.gl_pathv[0]),
                found.gl_pathv[0]);
    else if (is_name)
        snprintf(
                out, HUB_HELP_BYTES,
                "the name of a model on a hub? local files only: hf download "
                "%s --local-dir %s",
                path, path);
    globfree(&found);
    return has_it || is_name;
}

bool hub_help_data(const char *path, char out[HUB_HELP_BYTES])
{
    const char *dot = strrchr(path, '.');
    bool is_file = dot && isalpha((unsigned char)dot[1]);
    if (is_file || !hub_is_name(path))
        return false;
    snprintf(
            out, HUB_HELP_BYTES,
            "the name of a dataset on a hub? local files only: hf download "
            "--repo-type dataset %s --local-dir %s; the path is right then\n"
            "a path? paths are relative to where zerod is started",
            path, path);
    return true;
}

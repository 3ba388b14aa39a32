/* probe.c - whether hosts share the folder of the cache. */
#include "base/file/fs.h"
#include "data/dataset.h"
#include "data/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum zd_status dataset_probe_make(
        const struct data_options *options, char name[DATASET_PROBE])
{
    char folder[PATH_MAX], path[PATH_MAX];
    ZD_TRY(token_cache_folder(options->cache_dir, folder));
    fs_join(path, sizeof path, folder, ".zerod-probe-XXXXXX");
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0446", "cannot create %s: %s", path,
                strerror(errno));
    close(fd);
    snprintf(name, DATASET_PROBE, "%s", strrchr(path, '/') + 1);
    return ZD_OK;
}

static bool place_of(
        const struct data_options *options, const char *name,
        char path[PATH_MAX])
{
    char folder[PATH_MAX];
    if (token_cache_folder(options->cache_dir, folder) != ZD_OK) {
        zd_error_clear(); /* the rank that fills it reports it */
        return false;
    }
    fs_join(path, PATH_MAX, folder, name);
    return true;
}

bool dataset_probe_seen(const struct data_options *options, const char *name)
{
    char path[PATH_MAX];
    return place_of(options, name, path) && fs_exists(path);
}

void dataset_probe_remove(const struct data_options *options, const char *name)
{
    char path[PATH_MAX];
    if (name[0] && place_of(options, name, path))
        unlink(path);
}

/* cache_obtain.c - a file of the cache: found, or made. */
#include "data/corpus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum zd_status make(
        const struct cache_content *content, const char *folder,
        struct token_cache *cache_out)
{
    struct cache_writer *writer;
    bool found;
    ZD_TRY(cache_writer_create(folder, content->key, NULL, NULL, &writer));
    enum zd_status status = content->write(content->ctx, writer);
    if (status != ZD_OK) {
        cache_writer_abandon(writer);
        return status;
    }
    ZD_TRY(cache_writer_finish(writer, content->limits.tokens));
    ZD_TRY(token_cache_open(
            folder, content->key, CACHE_TRUSTED, &content->limits, cache_out,
            &found));
    if (found)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_IO, "E0446",
            "the data cache that was just made in %s is gone", folder);
    return zd_fail_help("where the file system gives files to another user: "
                        "data.cache_shared = true");
}

/* In a temporary folder, which is removed once the file is open. */
static enum zd_status make_unseen(
        const struct cache_content *content, struct token_cache *cache_out)
{
    char folder[PATH_MAX];
    const char *parent = getenv("TMPDIR");
    snprintf(
            folder, sizeof folder, "%s/zerod-validate-XXXXXX",
            parent && parent[0] == '/' ? parent : "/tmp");
    if (!mkdtemp(folder))
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0446", "cannot create %s: %s", folder,
                strerror(errno));
    enum zd_status status = make(content, folder, cache_out);
    if (cache_out->path)
        unlink(cache_out->path);
    rmdir(folder);
    return status;
}

enum zd_status cache_obtain(
        const struct dataset_request *request,
        const struct cache_content *content, struct token_cache *cache_out,
        bool *is_new_out)
{
    char folder[PATH_MAX];
    const struct data_options *options = request->options;
    struct cache_content here = *content;
    bool found;
    here.limits.is_shared = options->cache_shared;
    ZD_TRY(token_cache_folder(options->cache_dir, folder));
    ZD_TRY(token_cache_open(
            folder, here.key,
            request->depth == DATA_TRUST ? CACHE_TRUSTED : CACHE_TIMES,
            &here.limits, cache_out, &found));
    *is_new_out = !found && here.write;
    if (!*is_new_out)
        return ZD_OK;
    return request->depth == DATA_LOOK ? make_unseen(&here, cache_out)
                                       : make(&here, folder, cache_out);
}

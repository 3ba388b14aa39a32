#include "daemon/ctl/jobs.h"

#include "base/file/json.h"
#include "daemon/ctl/client.h"

#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROBE_SECONDS 2 /* the control thread answers in milliseconds */

int jobs_folders(char folders[JOBS_FOLDERS][JOBS_PATH_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int count = 0;
    if (runtime && runtime[0] == '/')
        snprintf(folders[count++], JOBS_PATH_MAX, "%s/zerod", runtime);
    snprintf(
            folders[count++], JOBS_PATH_MAX, "/tmp/zerod-%lu",
            (unsigned long)geteuid());
    return count;
}

static enum zd_status add(
        struct jobs *jobs, const char *name, const char *socket, json_t *status)
{
    struct job_found *grown = realloc(
            jobs->items, (size_t)(jobs->count + 1) * sizeof *jobs->items);
    if (grown)
        jobs->items = grown;
    struct job_found found = {strdup(name), strdup(socket), status};
    if (!grown || !found.name || !found.socket) {
        free(found.name);
        free(found.socket);
        json_decref(status);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0901", "no memory for a list of jobs");
    }
    jobs->items[jobs->count++] = found;
    return ZD_OK;
}

/* A socket that a job listens on is a job, also when it does not answer. */
static enum zd_status probe(
        struct jobs *jobs, const char *name, const char *socket, uid_t owner)
{
    struct client_request request = {
            .socket = socket,
            .owner = owner,
            .method = "GET",
            .target = "/v1/status",
            .timeout = PROBE_SECONDS};
    struct stat about;
    json_t *json = NULL;
    struct client_answer answer;
    if (lstat(socket, &about) != 0 || !S_ISSOCK(about.st_mode))
        return ZD_OK;
    enum zd_status status = client_ask(&request, &answer);
    bool is_stale = status != ZD_OK && client_job_is_gone();
    zd_error_clear();
    if (status == ZD_OK && answer.is_cut)
        client_end_by_signal();
    if (status == ZD_OK && answer.status == 200)
        json = json_of_line(answer.body, answer.bytes);
    free(answer.body);
    return is_stale ? ZD_OK : add(jobs, name, socket, json);
}

static enum zd_status scan(
        struct jobs *jobs, const char *folder, bool all_users)
{
    struct stat about;
    char path[JOBS_PATH_MAX + 300], name[256];
    enum zd_status status = ZD_OK;
    if (lstat(folder, &about) != 0 || !S_ISDIR(about.st_mode))
        return ZD_OK;
    if (!all_users && about.st_uid != geteuid())
        return ZD_OK; /* made by somebody else to be believed */
    DIR *dir = opendir(folder);
    if (!dir)
        return ZD_OK;
    for (struct dirent *entry; status == ZD_OK && (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length <= 5 || strcmp(entry->d_name + length - 5, ".sock") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length - 5, entry->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        status = probe(jobs, name, path, all_users ? about.st_uid : 0);
    }
    closedir(dir);
    return status;
}

static int by_name(const void *a, const void *b)
{
    const struct job_found *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : strcmp(left->socket, right->socket);
}

enum zd_status jobs_find(bool all_users, struct jobs *jobs_out)
{
    char folders[JOBS_FOLDERS][JOBS_PATH_MAX];
    enum zd_status status = ZD_OK;
    glob_t others = {0};
    *jobs_out = (struct jobs){0};
    if (all_users) {
        glob("/run/user/*/zerod", 0, NULL, &others);
        glob("/tmp/zerod-*", others.gl_pathc ? GLOB_APPEND : 0, NULL, &others);
    }
    int count = jobs_folders(folders);
    for (int i = 0; i < count && status == ZD_OK; i++)
        status = scan(jobs_out, folders[i], false);
    for (size_t i = 0; i < others.gl_pathc && status == ZD_OK; i++) {
        bool is_known = false;
        for (int k = 0; k < count; k++)
            is_known = is_known || strcmp(folders[k], others.gl_pathv[i]) == 0;
        if (!is_known)
            status = scan(jobs_out, others.gl_pathv[i], true);
    }
    globfree(&others);
    if (jobs_out->count)
        qsort(jobs_out->items, (size_t)jobs_out->count, sizeof *jobs_out->items,
              by_name);
    if (status != ZD_OK)
        jobs_fini(jobs_out);
    return status;
}

void jobs_fini(struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++) {
        free(jobs->items[i].name);
        free(jobs->items[i].socket);
        json_decref(jobs->items[i].status);
    }
    free(jobs->items);
    *jobs = (struct jobs){0};
}

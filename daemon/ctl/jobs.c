#include "daemon/ctl/jobs.h"

#include "base/must.h"
#include "daemon/cli/fill.h"
#include "daemon/ctl/client.h"

#include <dirent.h>
#include <glob.h>
#include <limits.h>
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

static void add(
        struct jobs *jobs, const char *name, const char *socket, json_t *status)
{
    jobs->items = zd_must(realloc(
            jobs->items, (size_t)(jobs->count + 1) * sizeof *jobs->items));
    jobs->items[jobs->count++] = (struct job_found){
            zd_must(strdup(name)), zd_must(strdup(socket)), status};
}

/* A socket that a job listens on is a job, also when it does not answer. `name`
 * NULL: what the job says. */
static void probe(void *ctx, const char *name, const char *socket, uid_t owner)
{
    struct jobs *jobs = ctx;
    const struct client_job job = {(char *)socket, owner};
    json_t *json;
    enum zd_status status =
            client_get(&job, "/v1/status", PROBE_SECONDS, &json);
    bool is_stale = status != ZD_OK && client_failed_with("E1090");
    zd_error_clear();
    if (!is_stale)
        add(jobs, name ? name : json_text_of(json, "job", "control.sock"),
            socket, json);
}

static bool is_socket(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISSOCK(about.st_mode);
}

/* A run whose folder for sockets was another user's has its socket in its
 * output folder: it is found from there. */
static void probe_here(struct jobs *jobs)
{
    char path[PATH_MAX];
    if (realpath("control.sock", path) && is_socket(path))
        probe(jobs, NULL, path, 0);
}

static void scan(
        const char *folder, bool all_users, jobs_socket_fn *take, void *ctx)
{
    struct stat about;
    char path[JOBS_PATH_MAX + 300], name[256];
    if (lstat(folder, &about) != 0 || !S_ISDIR(about.st_mode))
        return;
    if (!all_users && about.st_uid != geteuid())
        return; /* made by another user to be believed */
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length <= 5 || strcmp(entry->d_name + length - 5, ".sock") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length - 5, entry->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (is_socket(path))
            take(ctx, name, path, all_users ? about.st_uid : 0);
    }
    closedir(dir);
}

static int by_name(const void *a, const void *b)
{
    const struct job_found *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : strcmp(left->socket, right->socket);
}

void jobs_sockets(bool all_users, jobs_socket_fn *take, void *ctx)
{
    char folders[JOBS_FOLDERS][JOBS_PATH_MAX];
    glob_t others = {0};
    int count = jobs_folders(folders);
    if (all_users) {
        glob("/run/user/*/zerod", 0, NULL, &others);
        glob("/tmp/zerod-*", others.gl_pathc ? GLOB_APPEND : 0, NULL, &others);
    }
    for (int i = 0; i < count; i++)
        scan(folders[i], false, take, ctx);
    for (size_t i = 0; i < others.gl_pathc; i++) {
        bool is_known = false;
        for (int k = 0; k < count; k++)
            is_known = is_known || strcmp(folders[k], others.gl_pathv[i]) == 0;
        if (!is_known)
            scan(others.gl_pathv[i], true, take, ctx);
    }
    globfree(&others);
}

void jobs_find(bool all_users, struct jobs *jobs_out)
{
    *jobs_out = (struct jobs){0};
    jobs_sockets(all_users, probe, jobs_out);
    probe_here(jobs_out);
    if (jobs_out->count)
        qsort(jobs_out->items, (size_t)jobs_out->count, sizeof *jobs_out->items,
              by_name);
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

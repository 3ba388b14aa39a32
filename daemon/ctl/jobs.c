#include "daemon/ctl/ctl.h"

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

/* A socket that a job listens on is a job, also when it does not answer. */
static void probe(void *ctx, const char *name, const char *socket)
{
    json_t *jobs = ctx;
    json_auto_t *status = NULL;
    bool is_stale =
            client_get(socket, "/v1/status", PROBE_SECONDS, &status) != ZD_OK &&
            client_failed_with("E1090");
    zd_error_clear();
    if (is_stale)
        return;
    json_t *found = json_pack("{s:s, s:s}", "name", name, "socket", socket);
    size_t at = 0;
    while (at < json_array_size(jobs) &&
           strcmp(json_string_at(json_array_get(jobs, at), "name"), name) <= 0)
        at++;
    json_object_update_missing(found, status);
    json_array_insert_new(jobs, at, found);
}

void jobs_sockets(jobs_socket_fn *take, void *ctx)
{
    char folders[JOBS_FOLDERS][JOBS_PATH_MAX], pattern[2 * JOBS_PATH_MAX + 16];
    char name[256];
    struct stat about;
    int count = jobs_folders(folders);
    for (int i = 0; i < count; i++) {
        glob_t found = {0};
        if (lstat(folders[i], &about) != 0 || !S_ISDIR(about.st_mode) ||
            about.st_uid != geteuid()) /* made to be believed */
            continue;
        ZD_PRINT(pattern, "%s/*.sock", folders[i]);
        glob(pattern, 0, NULL, &found);
        for (size_t k = 0; k < found.gl_pathc; k++) {
            const char *path = found.gl_pathv[k],
                       *base = strrchr(path, '/') + 1;
            int length = (int)(strlen(base) - strlen(".sock"));
            ZD_PRINT(name, "%.*s", length, base);
            if (lstat(path, &about) == 0 && S_ISSOCK(about.st_mode))
                take(ctx, name, path);
        }
        globfree(&found);
    }
}

json_t *jobs_find(void)
{
    json_t *jobs = json_array();
    jobs_sockets(probe, jobs);
    return jobs;
}

/* --- names to complete --- */

/* Anyone may choose a socket's name: one that means something to a shell is
 * not offered. */
static bool is_harmless(const char *name)
{
    return name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+,@%:=-") ==
                   strlen(name);
}

static void offer_job(void *ctx, const char *name, const char *path)
{
    if (is_harmless(name))
        complete_offer(ctx, name, NULL);
}

void ctl_complete_value(
        const struct completion *completion, const char *placeholder)
{
    if (strcmp(placeholder, "JOB") == 0)
        jobs_sockets(offer_job, (void *)completion);
}

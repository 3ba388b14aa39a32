/* common.c - what the commands share: which job, json and csv. */
#include "base/must.h"

#include "base/text_buffer.h"
#include "base/units.h"
#include "daemon/cli/output.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/ctl.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- jobs --- */

/* Which jobs run here: the sockets of this user's folders, each asked for its
 * status.
 *
 *   $XDG_RUNTIME_DIR/zerod/JOB.sock and /tmp/zerod-UID/JOB.sock
 *
 * Both folders are searched, because a job may have been started without
 * that variable. Another user's folder is skipped, and a socket that no one
 * listens on. */
#define PROBE_SECONDS 2 /* the control thread answers in milliseconds */
enum { JOBS_FOLDERS = 2, JOBS_PATH_MAX = 4096 };

/* The folders that may hold sockets, whether they are there or not; returns how
 * many. */
static int jobs_folders(char folders[JOBS_FOLDERS][JOBS_PATH_MAX])
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

/* Each socket in those folders, with its job's name. */
static void jobs_sockets(
        void (*take)(void *ctx, const char *name, const char *path), void *ctx)
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

bool ctl_wants_json(const struct cli_args *args)
{
    return args->output && strcmp(args->output, "json") == 0;
}

/* --- which job --- */

static enum zd_status fail_none(void)
{
    char folders[JOBS_FOLDERS][JOBS_PATH_MAX];
    int count = jobs_folders(folders);
    ZD_FAIL(ZD_ERR_NO_INPUT, "E1090",
            "no job is running: no socket in %s%s%s answers", folders[0],
            count > 1 ? " or " : "", count > 1 ? folders[1] : "");
    return zd_fail_help(
            "a job on another host: ssh HOST zerodctl; one that has ended, or "
            "was started with another XDG_RUNTIME_DIR: zerodctl --dir "
            "OUTPUT_DIR");
}

/* Whoever owns it: the client refuses a stranger's. */
static bool take_socket_of(const char *name, struct target *target_out)
{
    char folders[JOBS_FOLDERS][JOBS_PATH_MAX];
    char path[2 * JOBS_PATH_MAX + 16];
    int count = jobs_folders(folders);
    for (int i = 0; i < count; i++) {
        ZD_PRINT(path, "%s/%s.sock", folders[i], name);
        if (access(path, F_OK) != 0)
            continue;
        target_of_socket(path, target_out);
        return true;
    }
    return false;
}

/* The job of this name; NULL: the only one. */
static enum zd_status running_job(const char *name, struct target *target_out)
{
    struct text_buffer text = TEXT_BUFFER(512);
    enum zd_status status = ZD_OK;
    if (name && (!name[0] || strchr(name, '/') || strlen(name) > 200)) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101", "-j takes the name of a job, not `%s`",
                name);
        return zd_fail_help("-S takes a socket, --dir an output folder");
    }
    if (name && take_socket_of(name, target_out))
        return ZD_OK;
    json_auto_t *jobs = jobs_find();
    json_t *first = json_array_get(jobs, 0);
    JSON_EACH_AT(i, job, jobs)
        text_buffer_add(
                &text, "%s%s", i ? ", " : "", json_string_at(job, "name"));
    if (name) {
        status = ZD_FAIL(
                ZD_ERR_NO_INPUT, "E1090", "no job `%s` is running", name);
        if (text.out[0])
            zd_fail_help("running: %s", text.out);
    } else if (json_array_size(jobs) == 1) {
        target_of_socket(json_string_at(first, "socket"), target_out);
    } else if (first) {
        status =
                ZD_FAIL(ZD_ERR_USAGE, "E1091", "%zu jobs are running: %s",
                        json_array_size(jobs), text.out);
        zd_fail_help(
                "choose one with -j, like: -j %s",
                json_string_at(first, "name"));
    } else {
        status = fail_none();
    }
    return status;
}

static void tell_files(const struct cli_args *args)
{
    const struct target *target = &args->target;
    bool has_ended = target_file_has_ended(target);
    const char *state = json_text_of(target->file, "state", "");
    json_auto_t *facts = json_pack(
            "{s:s, s:f, s:s*}", "dir", target->dir, "age", target->age, "host",
            has_ended ? NULL
                      : json_text_of(target->file, "host", "an unknown host"));
    ZD_FREED char *from =
            fill(&args->look, facts,
                 "from {dir|s}/status.json, written {age|d} ago[ on {host|s}]");
    fputs(from, stderr);
    fputs(json_object_get(target->file, "hang") ? "; a hang ended the run\n"
          : strcmp(state, "died") == 0          ? "; the run died\n"
          : strcmp(state, "failed") == 0        ? "; the run failed\n"
          : has_ended                           ? "; the run has ended\n"
          : target->age > 10 ? "; it is written every 2 s: the run is gone, or "
                               "its disk does not answer\n"
                             : "; the socket is out of reach from here\n",
          stderr);
}

enum zd_status ctl_target(struct cli_args *args)
{
    int named =
            (args->job != NULL) + (args->socket != NULL) + (args->dir != NULL);
    if (named > 1)
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101",
                "-j, -S and --dir each name a job: "
                "give only one of them");
    if (args->socket) {
        target_of_socket(args->socket, &args->target);
        return ZD_OK;
    }
    if (!args->dir)
        return running_job(args->job, &args->target);
    ZD_TRY(target_of_dir(args->dir, &args->target));
    if (!args->target.socket)
        tell_files(args);
    return ZD_OK;
}

/* --- forms --- */

/* In ASCII there are no escape codes of C1. */
void ctl_print_json(const json_t *json, bool on_one_line)
{
    json_dumpf(
            json, stdout,
            JSON_REAL_PRECISION(17) | JSON_ENSURE_ASCII |
                    (on_one_line ? JSON_COMPACT : JSON_INDENT(2)));
    fputc('\n', stdout);
}

/* No name of a series needs quotes. What is not printable is escaped on a
 * terminal when all of it is shown. */
void ctl_print_csv(const json_t *rows)
{
    const char *comma = "";
    char number[UNITS_TEXT];
    OUTPUT(out);
    JSON_MEMBERS(key, value, json_array_get(rows, 0)) {
        fprintf(out, "%s%s", comma, key);
        comma = ",";
    }
    fputc('\n', out);
    JSON_EACH(row, rows) {
        comma = "";
        JSON_MEMBERS(key, value, row) {
            fprintf(out, "%s%s", comma,
                    json_is_number(value)
                            ? units_exact(json_number_value(value), number)
                            : "");
            comma = ",";
        }
        fputc('\n', out);
    }
}

void *ctl_unknown(const char *kind, const char *typed)
{
    ZD_FAIL(ZD_ERR_USAGE, "E1095", "there is no %s `%s`", kind, typed);
    zd_fail_help("without a name, all are listed");
    return NULL;
}

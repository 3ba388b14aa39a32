/* section_control.c - [control]: paths and addresses that can be none, a group
 * that is not ours. */
#include "daemon/job/job_internal.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define OUT_OF_RANGE "E0206"

static void check_socket(struct job *job)
{
    const char *path = job->options.control.socket_path;
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (!path || strlen(path) <= most)
        return;
    problem_add(
            &job->problems, ZD_ERR_CONFIG, OUT_OF_RANGE,
            job_place(job, "control", "socket"), NULL,
            "the path of control.socket is %zu bytes long; a socket's may "
            "have %zu",
            strlen(path), most);
    problem_help(
            &job->problems,
            "a path relative to the folder the job is started in may be "
            "shorter: socket = \"./%.40s.sock\"",
            job->options.job.name);
}

/* "127.0.0.1:9479", "node1:9479", "[::1]:9479" */
static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    size_t host = colon ? (size_t)(colon - text) : 0;
    if (!host || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    long port = strtol(colon + 1, NULL, 10);
    if (!colon[1] || strlen(colon + 1) > 5 || port < 1 || port > 65535)
        return false;
    if (text[0] == '[')
        return host > 2 && text[host - 1] == ']' &&
               strspn(text + 1, "0123456789abcdefABCDEF:.") == host - 2;
    return strcspn(text, " :/[]") == host;
}

static void check_listen(struct job *job)
{
    const char *address = job->options.control.metrics_listen;
    if (!address || is_address(address))
        return;
    problem_add(
            &job->problems, ZD_ERR_CONFIG, OUT_OF_RANGE,
            job_place(job, "control", "metrics_listen"), NULL,
            "\"%.80s\" is no address: HOST:PORT, port 1 to 65535", address);
    problem_help(&job->problems, "metrics_listen = \"127.0.0.1:9479\"");
}

/* Only root may give a file to a group that it is not in. */
static bool is_our_group(gid_t gid)
{
    gid_t *groups = NULL;
    int count = getgroups(0, NULL);
    bool is_ours = gid == getegid() || geteuid() == 0;
    if (count > 0)
        groups = calloc((size_t)count, sizeof *groups);
    if (groups)
        count = getgroups(count, groups);
    for (int i = 0; groups && i < count; i++)
        is_ours = is_ours || groups[i] == gid;
    free(groups);
    return is_ours;
}

static void check_group(struct job *job)
{
    int gid = job->options.control.status_gid;
    if (gid < 0)
        return;
    errno = 0;
    bool exists = getgrgid((gid_t)gid) != NULL;
    bool is_unknown = errno != 0 && errno != ENOENT;
    if ((exists || is_unknown) && is_our_group((gid_t)gid))
        return;
    problem_add(
            &job->problems, ZD_ERR_CONFIG, OUT_OF_RANGE,
            job_place(job, "control", "status_gid"), NULL,
            exists ? "control.status_gid = %d is a group that you are not in"
                   : "control.status_gid = %d: there is no such group",
            gid);
    problem_help(
            &job->problems, "`id -G` tells your groups, `getent group` all");
}

void job_check_control(struct job *job)
{
    if (job_is_sound(job, "control", "socket"))
        check_socket(job);
    if (job_is_sound(job, "control", "metrics_listen"))
        check_listen(job);
    if (job_is_sound(job, "control", "status_gid"))
        check_group(job);
}

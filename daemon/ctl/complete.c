/* complete.c - the names that zerodctl completes: running jobs, settings, keys
 * and series. These tables of zerod need neither its trainer nor MPI. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/jobs.h"
#include "daemon/job/schema.h"
#include "daemon/state/series.h"
#include "train/job/control.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A socket's name is anybody's choice: one that means something to a shell is
 * not offered. */
static bool is_harmless(const char *name)
{
    return name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+,@%:=-") ==
                   strlen(name);
}

static void offer_jobs(const struct completion *completion)
{
    char folders[JOBS_FOLDERS][JOBS_PATH_MAX];
    int count = jobs_folders(folders);
    for (int i = 0; i < count; i++) {
        struct stat about;
        DIR *dir;
        if (lstat(folders[i], &about) != 0 || !S_ISDIR(about.st_mode) ||
            about.st_uid != geteuid() || !(dir = opendir(folders[i])))
            continue;
        for (struct dirent *entry; (entry = readdir(dir));) {
            char *end = strrchr(entry->d_name, '.');
            if (!end || strcmp(end, ".sock") != 0 ||
                fstatat(dirfd(dir), entry->d_name, &about,
                        AT_SYMLINK_NOFOLLOW) != 0 ||
                !S_ISSOCK(about.st_mode) || about.st_uid != geteuid())
                continue;
            *end = '\0';
            if (is_harmless(entry->d_name))
                complete_offer(completion, entry->d_name, NULL);
        }
        closedir(dir);
    }
}

static void offer_keys(const struct completion *completion)
{
    char name[2 * SCHEMA_NAME_MAX + 2];
    const char *section = "";
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        if (!key->section[0] || (key->flags & SCHEMA_UNAVAILABLE))
            continue;
        if (strcmp(section, key->section) != 0)
            complete_offer(completion, section = key->section, NULL);
        snprintf(name, sizeof name, "%s.%s", key->section, key->name);
        complete_offer(completion, name, key->help);
    }
}

void ctl_complete_value(
        const struct completion *completion, const char *placeholder)
{
    char name[80];
    if (strcmp(placeholder, "JOB") == 0)
        offer_jobs(completion);
    else if (strcmp(placeholder, "KEY") == 0)
        offer_keys(completion);
    else if (strcmp(placeholder, "KEY=VALUE") == 0)
        for (int i = 0; i < SETTINGS; i++) {
            snprintf(name, sizeof name, "%s=", train_settings[i].name);
            complete_offer(completion, name, NULL);
        }
    else if (strcmp(placeholder, "NAME") == 0)
        for (int i = 0; run_series_name(i); i++)
            complete_offer(completion, run_series_name(i), NULL);
}

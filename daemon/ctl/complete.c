/* complete.c - the names that zerodctl completes: running jobs, settings, keys
 * and series. These tables of zerod need neither its trainer nor MPI. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/jobs.h"
#include "daemon/job/schema.h"
#include "daemon/state/series.h"
#include "train/job/control.h"

#include <string.h>

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

static void offer_keys(const struct completion *completion)
{
    char name[2 * SCHEMA_NAME_MAX + 2];
    const char *section = "";
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        if (!key->section[0])
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
        jobs_sockets(offer_job, (void *)completion);
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

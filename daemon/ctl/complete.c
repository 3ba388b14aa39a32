/* complete.c - the names that zerodctl completes: running jobs. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/jobs.h"

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

void ctl_complete_value(
        const struct completion *completion, const char *placeholder)
{
    if (strcmp(placeholder, "JOB") == 0)
        jobs_sockets(offer_job, (void *)completion);
}

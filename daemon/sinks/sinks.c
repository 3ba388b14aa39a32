#include "base/log.h"
#include "base/must.h"
#include "daemon/sinks/sink.h"

#include <stdlib.h>
#include <string.h>

enum { SINKS_MAX = 5 };

struct sinks {
    struct sink all[SINKS_MAX];
    int count;
};

struct sinks *sinks_open(const struct train_job *job)
{
    static enum zd_status (*const opens[])(
            const struct train_job *job, struct sink *sink_out) = {
            status_file_open, tensorboard_open, textfile_open, systemd_open,
            report_html_open};
    struct sinks *sinks = zd_array(1, sizeof *sinks);
    for (int i = 0; i < SINKS_MAX; i++) {
        struct sink *sink = &sinks->all[sinks->count];
        if (opens[i](job, sink) != ZD_OK) {
            zd_log_warning("%s; training goes on", zd_error_get()->what);
            zd_error_clear();
        }
        sinks->count += sink->close != NULL;
    }
    return sinks;
}

enum sink_news sink_news_of(
        enum message_kind kind, const struct kept_event *event)
{
    static const struct {
        const char *kind;
        enum sink_news news;
    } events[] = {
            {"eval", SINK_EVAL}, {"sample", SINK_SAMPLE}, {"state", SINK_TICK}};
    if (kind == MESSAGE_STEP)
        return SINK_STEP;
    for (size_t i = 0; event && i < sizeof events / sizeof events[0]; i++)
        if (strcmp(events[i].kind, event->kind) == 0)
            return events[i].news;
    return kind == MESSAGE_BANNER ? SINK_TICK : SINK_NOTHING;
}

void sinks_take(
        struct sinks *sinks, enum sink_news news, const struct run_state *state)
{
    for (int i = 0; sinks && i < sinks->count; i++)
        if (sinks->all[i].take)
            sinks->all[i].take(sinks->all[i].ctx, news, state);
}

void sinks_close(struct sinks *sinks, const struct run_state *state)
{
    for (int i = 0; sinks && i < sinks->count; i++)
        sinks->all[i].close(sinks->all[i].ctx, state);
    free(sinks);
}

/* view_top.c - zerodctl top: what is asked for a frame. */
#include "base/text_stream.h"
#include "daemon/ctl/top.h"

#include <stdlib.h>

enum { LOG_LINES = 60 };

static bool add_line(void *ctx, const char *line)
{
    fprintf(ctx, "%s\n", line);
    return true;
}

static json_t *read_log(const struct target *target)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream_open(&text, &bytes);
    struct target_stream stream = {
            .tail = LOG_LINES, .line = add_line, .ctx = out};
    if (target_stream(target, &stream) != ZD_OK)
        zd_error_clear(); /* a job may write no log */
    fclose(out);
    json_t *log = json_string_nocheck(text);
    free(text);
    return log;
}

/* Only the status must be there. */
enum zd_status top_get(const struct target *target, json_t **json_out)
{
    static const char *const parts[][2] = {
            {"ranks", "/v1/ranks"},
            {"history",
             "/v1/metrics/history?name=train/loss,eval/loss&max=400"}};
    json_t *answer;
    *json_out = NULL;
    ZD_TRY(target_get(target, "/v1/status", &answer));
    *json_out = json_pack("{s:o}", "status", answer);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (target_get(target, parts[i][1], &answer) == ZD_OK)
            json_object_set_new(*json_out, parts[i][0], answer);
    zd_error_clear();
    json_object_set_new(*json_out, "log", read_log(target));
    return ZD_OK;
}

/* command_lines.c - ls, and the commands that print lines as they come: logs,
 * events. */
#include "base/file/json.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/show.h"
#include "daemon/ctl/target.h"

#include <string.h>

enum zd_status command_ls(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    json_t *jobs = jobs_find();
    if (ctl_wants_json(args))
        ctl_print_json(jobs);
    else
        show_jobs(&look, jobs, stdout);
    json_decref(jobs);
    return ZD_OK;
}

/* --- streams --- */

struct printing {
    struct look look;
    const struct cli_args *args;
    json_t *kept; /* events, oldest first, at most the last `tail` of them;
                     NULL: printed at once */
    size_t tail;
};

static bool print_log_line(void *ctx, const char *line)
{
    struct printing *printing = ctx;
    text_print(&printing->look, line, true, stdout);
    fputc('\n', stdout);
    return !ferror(stdout);
}

static void print_event(const struct printing *printing, const json_t *event)
{
    if (ctl_wants_json(printing->args))
        ctl_print_json_line(event);
    else
        show_event(&printing->look, event, stdout);
}

static bool take_event(void *ctx, const char *line)
{
    struct printing *printing = ctx;
    json_t *event = json_of_line(line, strlen(line));
    const char *kind = json_text_of(event, "event", "");
    if (json_is_object(event) &&
        (printing->args->with_steps || strcmp(kind, "step") != 0)) {
        if (!printing->kept)
            print_event(printing, event);
        json_array_append(printing->kept, event);
        if (json_array_size(printing->kept) > printing->tail)
            json_array_remove(printing->kept, 0);
    }
    json_decref(event);
    return !ferror(stdout);
}

static enum zd_status stream_of(
        struct printing *printing, struct target_stream *stream)
{
    const struct cli_args *args = printing->args;
    struct target target;
    stream->follow = args->follow;
    stream->ctx = printing;
    ZD_TRY(ctl_target(args, &printing->look, &target));
    enum zd_status status = target_stream(&target, stream);
    target_fini(&target);
    return status;
}

enum zd_status command_logs(struct cli_args *args, int *argc, char ***argv)
{
    struct printing printing = {.look = look_of_stdout(), .args = args};
    struct target_stream stream = {
            .rank = (int)args->rank,
            .tail = args->tail,
            .line = print_log_line};
    return stream_of(&printing, &stream);
}

enum zd_status command_events(struct cli_args *args, int *argc, char ***argv)
{
    struct printing printing = {
            .look = look_of_stdout(), .args = args, .tail = (size_t)args->tail};
    struct target_stream stream = {
            .is_events = true,
            .with_steps = args->with_steps,
            .tail = -1,
            .line = take_event};
    size_t i;
    json_t *event;
    if (args->tail >= 0 && !args->follow)
        printing.kept = json_array();
    enum zd_status status = stream_of(&printing, &stream);
    json_array_foreach(printing.kept, i, event) print_event(&printing, event);
    json_decref(printing.kept);
    return status;
}

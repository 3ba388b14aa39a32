#include "train/report/events.h"

#include "base/file/fs.h"
#include "base/log.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static char dir[] = "/tmp/zerod-events-XXXXXX";
static char path[64];
static json_t *lines; /* all that were read */
static int heard;
static int64_t last_heard;

static void on_event(void *ctx, const struct train_event *event)
{
    heard++;
    last_heard = event->id;
}

static const struct train_observer observer = {.event = on_event};

static void make_dir(void)
{
    cr_assert(mkdtemp(dir));
    ZD_PRINT(path, "%s/events.jsonl", dir);
}

static void remove_dir(void)
{
    json_decref(lines);
    fs_remove_tree(dir);
}

TestSuite(train_events, .init = make_dir, .fini = remove_dir);

static struct events *open_events(void)
{
    struct events *events;
    cr_assert_eq(events_open(path, &observer, &events), ZD_OK);
    cr_assert_eq(events_begin(events), ZD_OK);
    return events;
}

/* The n-th line, parsed (borrowed); NULL when there is none. */
static json_t *line(int n)
{
    char *text, *at, *next;
    size_t bytes;
    cr_assert_eq(fs_read_file(path, 1 << 20, &text, &bytes), ZD_OK);
    json_t *found = NULL;
    for (at = text; (next = strchr(at, '\n')); at = next + 1)
        if (n-- == 0)
            found = json_loadb(at, (size_t)(next - at), 0, NULL);
    free(text);
    lines = lines ? lines : json_array();
    if (found)
        json_array_append_new(lines, found);
    return found;
}

static int64_t integer(json_t *object, const char *key)
{
    cr_assert(json_is_integer(json_object_get(object, key)), "%s", key);
    return json_integer_at(object, key);
}

static const char *word(json_t *object, const char *key)
{
    return json_string_at(object, key);
}

Test(train_events, ids_rise_by_one_and_steps_are_no_lines)
{
    struct events *events = open_events();
    events_tell(events, "state", 0, json_pack("{s:s}", "state", "running"));
    events_tell(events, "step", 1, json_pack("{s:f}", "loss", 2.5));
    events_tell(events, "eval", 1, json_pack("{s:f}", "eval_loss", 2.25));
    events_close(events);
    json_t *second = line(1);
    cr_expect_eq(integer(second, "id"), 3);
    cr_expect_eq(integer(second, "step"), 1);
    cr_expect_str_eq(word(second, "event"), "eval");
    cr_expect(json_real_value(json_object_get(second, "time")) > 1e9);
    cr_expect_eq(json_real_value(json_object_get(second, "eval_loss")), 2.25);
    cr_expect_null(line(2));
    cr_expect_eq(heard, 3);
    cr_expect_eq(last_heard, 3);
}

Test(train_events, a_torn_line_goes_and_ids_go_on)
{
    struct events *events = open_events();
    events_tell(events, "state", 0, NULL);
    events_tell(events, "state", 7, NULL);
    events_close(events);
    FILE *file = fopen(path, "a");
    fputs("{\"id\":3,\"ti", file);
    fclose(file);
    events = open_events();
    cr_expect_eq(events_last_id(events), 2);
    events_tell(events, "state", 8, NULL);
    events_close(events);
    json_t *third = line(2);
    cr_expect_eq(integer(third, "id"), 3);
    cr_expect_eq(integer(third, "step"), 8);
}

Test(train_events, a_warning_is_an_event_of_the_last_step)
{
    struct events *events = open_events();
    events_tell(events, "step", 41, NULL);
    zd_log_info("not this");
    zd_log_warning("the disk is nearly full");
    events_close(events);
    zd_log_warning("nor this");
    json_t *first = line(0);
    cr_expect_str_eq(word(first, "event"), "warning");
    cr_expect_str_eq(word(first, "message"), "the disk is nearly full");
    cr_expect_eq(integer(first, "step"), 41);
    cr_expect_null(line(1));
}

Test(train_events, a_full_disk_is_told_once_and_nothing_is_lost)
{
    struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY}, before;
    signal(SIGXFSZ, SIG_IGN);
    struct events *events = open_events();
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &none);
    events_tell(events, "state", 1, NULL);
    events_tell(events, "state", 2, NULL);
    cr_expect_neq(events_sync(events), ZD_OK);
    setrlimit(RLIMIT_FSIZE, &before);
    events_tell(events, "state", 3, NULL);
    cr_expect_eq(events_sync(events), ZD_OK);
    events_close(events);
    int warnings = 0, states = 0;
    for (int i = 0; i < 4; i++) {
        json_t *each = line(i);
        cr_assert(each, "%d of 4", i);
        cr_expect_eq(integer(each, "id"), i + 1);
        if (strcmp(word(each, "event"), "warning") == 0)
            warnings++;
        else
            cr_expect_eq(integer(each, "step"), ++states);
    }
    cr_expect_eq(warnings, 1);
    cr_expect_eq(states, 3);
    cr_expect_null(line(4));
}

Test(train_events, a_start_that_is_refused_leaves_no_trace)
{
    struct events *events;
    cr_assert_eq(events_open(path, &observer, &events), ZD_OK);
    events_tell(events, "state", 0, json_pack("{s:s}", "state", "starting"));
    cr_expect_not(fs_exists(path));
    events_close(events);
    cr_expect_not(fs_exists(path));

    cr_assert_eq(events_open(path, &observer, &events), ZD_OK);
    events_tell(events, "state", 0, json_pack("{s:s}", "state", "starting"));
    cr_assert_eq(events_begin(events), ZD_OK);
    events_close(events);
    cr_expect_str_eq(json_string_at(line(0), "state"), "starting");
}

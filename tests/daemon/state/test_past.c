#include "daemon/state/past.h"

#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct scratch scratch;
static struct past *past;

static void setup(void)
{
    scratch_init(&scratch);
}

static void teardown(void)
{
    past_free(past);
    scratch_fini(&scratch);
}

TestSuite(past, .init = setup, .fini = teardown);

static void read_text(const char *text)
{
    past = past_read(
            scratch_file(&scratch, "events.jsonl", text, strlen(text)));
    cr_assert_not_null(past);
}

/* "1 2 5": the ids that are left */
static void expect_ids(const char *wanted)
{
    char ids[256] = "";
    for (int i = 0; i < past->count; i++)
        sprintf(ids + strlen(ids), "%s%d", i ? " " : "",
                (int)past->events[i].id);
    cr_expect_str_eq(ids, wanted);
}

static const char killed[] =
        "{\"id\": 1, \"event\": \"state\", \"step\": 0}\n"
        "{\"id\": 3, \"event\": \"sample\", \"step\": 2}\n"
        "{\"id\": 4, \"event\": \"checkpoint\", \"step\": 2}\n"
        "{\"id\": 5, \"event\": \"command\", \"command\": \"set\", \"step\": "
        "2}\n"
        "{\"id\": 6, \"event\": \"command\", \"command\": \"eval\", \"step\": "
        "2}\n"
        "{\"id\": 8, \"event\": \"sample\", \"step\": 3}\n"
        "{\"id\": 9, \"event\": \"eval\", \"step\": 3}\n"
        "{\"id\": 10, \"event\": \"warning\", \"step\": 3}\n";

Test(past, steps_that_are_made_again_leave_what_the_process_met)
{
    char text[2048];
    ZD_PRINT(
            text, "%s%s", killed,
            "{\"id\": 11, \"event\": \"resumed\", \"step\": 2, \"from\": "
            "\"out/checkpoint-000002\", \"after\": 4}\n"
            "{\"id\": 13, \"event\": \"sample\", \"step\": 3}\n");
    read_text(text);
    expect_ids("1 3 4 6 10 11 13");
}

Test(past, without_a_resume_everything_stands)
{
    read_text(killed);
    expect_ids("1 3 4 5 6 8 9 10");
    cr_expect_str_eq(past->events[0].kind, "state");
    cr_expect_eq(past->events[5].step, 3);
}

Test(past, a_fresh_start_forgets)
{
    char text[2048];
    ZD_PRINT(
            text, "%s%s", killed,
            "{\"id\": 11, \"event\": \"resumed\", \"step\": 0, \"from\": null, "
            "\"after\": 0}\n"
            "{\"id\": 13, \"event\": \"sample\", \"step\": 3}\n");
    read_text(text);
    expect_ids("11 13");
}

Test(past, what_is_no_event_is_left_out)
{
    read_text("{\"id\": 1, \"event\": \"eval\", \"step\": 0}\n"
              "\n"
              "[3]\n"
              "{\"id\": 2, \"event\": \"eval\", \"step\": 1}\n"
              "{\"id\": 2, \"event\": \"eval\", \"step\": 1}\n"
              "{\"id\": 3, \"event\": \"ev");
    expect_ids("1 2");
    past_free(past);
    past = past_read("/nonexistent");
    cr_assert_not_null(past);
    cr_expect_eq(past->count, 0);
}

Test(past, the_newest_are_kept)
{
    char line[100];
    FILE *file = fopen(scratch_path(&scratch, "events.jsonl"), "w");
    for (int i = 1; i <= 3 * EVENTS_KEPT; i++) {
        ZD_PRINT(
                line, "{\"id\": %d, \"event\": \"eval\", \"step\": %d}\n", i,
                i);
        fputs(line, file);
    }
    fclose(file);
    past = past_read(scratch.path);
    cr_assert_eq(past->count, EVENTS_KEPT);
    cr_expect_eq(past->events[0].id, 2 * EVENTS_KEPT + 1);
    cr_expect_eq(past->events[EVENTS_KEPT - 1].id, 3 * EVENTS_KEPT);
}

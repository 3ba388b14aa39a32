/* Logs and events: what is there, and what comes to those who follow. */
#include "routes_case.h"

#include <criterion/criterion.h>

TestSuite(routes_streams, .init = routes_setup, .fini = routes_teardown);

/* --- logs --- */

static void write_log(const char *name, const char *text)
{
    char dir[200];
    snprintf(dir, sizeof dir, "%s/logs", t.scratch.dir);
    cr_assert_eq(fs_make_dirs(dir), ZD_OK);
    scratch_file(&t.scratch, name, text, strlen(text));
}

#define LINE(second, text) "2026-11-21T12:00:0" #second "Z " text "\n"

Test(routes_streams, logs_are_the_last_lines_of_a_rank)
{
    begin_run();
    get("/v1/logs");
    expect_error(404, "E_NOT_FOUND");
    write_log(
            "logs/rank-00000.log",
            LINE(1, "one") LINE(2, "two") LINE(3, "three") "2026-11-21T12");
    write_log("logs/rank-00001.log", "{\"time\":\"2026-11-21T12:00:01Z\"}\n");
    get("/v1/logs");
    cr_expect_eq(t.reply.status, 200);
    cr_expect_null(t.reply.stream, "it returns at once");
    cr_expect_str_eq(
            text_of_reply(), LINE(1, "one") LINE(2, "two") LINE(3, "three"));
    get("/v1/logs?tail=2");
    cr_expect_str_eq(text_of_reply(), LINE(2, "two") LINE(3, "three"));
    get("/v1/logs?tail=0");
    cr_expect_str_eq(text_of_reply(), "");
    get("/v1/logs?since=1795262402"); /* 12:00:02 */
    cr_expect_str_eq(text_of_reply(), LINE(3, "three"));
    get("/v1/logs?since=5000d");
    cr_expect(strstr(text_of_reply(), "one"));
    get("/v1/logs?rank=1&since=1795262401");
    cr_expect_str_eq(text_of_reply(), "");
    get("/v1/logs?rank=1&since=1795262400");
    cr_expect_eq(text_of_reply()[0], '{');
    get("/v1/logs?rank=2");
    expect_error(404, "E_NOT_FOUND");
}

static void append_log(const char *text)
{
    FILE *file = fopen(scratch_path(&t.scratch, "logs/rank-00000.log"), "a");
    fputs(text, file);
    fclose(file);
}

Test(routes_streams, a_followed_log_gives_whole_lines_as_they_come)
{
    begin_run();
    write_log("logs/rank-00000.log", LINE(1, "one") "2026-11-21T12:00:02Z tw");
    get("/v1/logs?follow=1");
    cr_assert_not_null(t.reply.stream);
    cr_expect_str_eq(text_of_reply(), LINE(1, "one"));
    routes_tick(t.routes);
    cr_expect_str_eq(text_of_reply(), "");
    append_log("o\n");
    routes_tick(t.routes);
    cr_expect_str_eq(text_of_reply(), LINE(2, "two"));
    append_log(LINE(3, "three"));
    routes_end(t.routes);
    cr_expect_str_eq(text_of_reply(), LINE(3, "three"));
    cr_expect(t.reply.stream->is_finished);
}

Test(routes_streams, a_follower_who_leaves_is_forgotten)
{
    begin_run();
    write_log("logs/rank-00000.log", LINE(1, "one"));
    get("/v1/logs?follow=1");
    forget_reply();
    append_log(LINE(2, "two"));
    routes_tick(t.routes);
    get("/v1/events");
    forget_reply();
    make_event(1);
    routes_tick(t.routes);
    post("/v1/eval", "{\"wait\": true}");
    forget_reply();
    finish_command(NULL, NULL); /* it was done all the same */
    cr_expect_eq(t.state->pending[COMMAND_EVAL], 0);
}

/* --- events --- */

Test(routes_streams, events_are_replayed_after_an_id_and_then_go_on)
{
    for (int i = 1; i <= 5; i++)
        make_event(i);
    get("/v1/events?since=3");
    const char *text = text_of_reply();
    cr_expect_str_eq(t.reply.content_type, "text/event-stream");
    cr_expect_null(strstr(text, "id: 3\n"));
    cr_expect(
            strstr(text, "id: 4\nevent: eval\ndata: {\"id\":4}\n\n"
                         "id: 5\nevent: eval\ndata: {\"id\":5}\n\n"));
    make_event(6);
    cr_expect_str_eq(
            text_of_reply(), "id: 6\nevent: eval\ndata: {\"id\":6}\n\n");
    routes_tick(t.routes);
    cr_expect_str_eq(text_of_reply(), "");
    routes_end(t.routes);
    cr_expect(t.reply.stream->is_finished);
}

Test(routes_streams, a_browser_that_comes_back_names_the_last_event_it_saw)
{
    for (int i = 1; i <= 5; i++)
        make_event(i);
    t.request.last_event_id = "4";
    get("/v1/events?since=1");
    const char *text = text_of_reply();
    cr_expect_null(strstr(text, "id: 4\n"));
    cr_expect(strstr(text, "id: 5\n"));
    t.request.last_event_id = "4x";
    get("/v1/events");
    expect_error(400, "E_BAD_REQUEST");
}

Test(routes_streams, only_new_events_without_an_id_and_all_without_following)
{
    make_event(1);
    get("/v1/events");
    cr_expect_null(strstr(text_of_reply(), "id: "));
    make_event(2);
    cr_expect(strstr(text_of_reply(), "id: 2\n"));
    get("/v1/events?follow=0");
    cr_expect(strstr(text_of_reply(), "id: 1\n"));
    cr_expect(t.reply.stream->is_finished);
}

Test(routes_streams, a_long_replay_comes_in_parts_that_a_slow_reader_survives)
{
    static char bytes[sizeof(struct message_event) + 2000];
    struct message_event event = {.kind = "sample"};
    memset(bytes + sizeof event, 'x', sizeof bytes - sizeof event - 1);
    for (int i = 1; i <= 2000; i++) { /* 4 MB */
        event.id = i;
        memcpy(bytes, &event, sizeof event);
        take(MESSAGE_EVENT, bytes, sizeof bytes);
    }
    get("/v1/events?since=0");
    size_t count = 0;
    for (int round = 0; round < 100 && count < 2000; round++) {
        cr_assert_leq(http_queued(t.reply.stream), (size_t)300 << 10);
        const char *at = text_of_reply();
        while ((at = strstr(at, "\nevent: "))) {
            at++;
            count++;
        }
        routes_tick(t.routes);
    }
    cr_expect_eq(count, 2000, "%zu", count);
}

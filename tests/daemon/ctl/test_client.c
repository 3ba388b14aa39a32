/* The client against a job that answers well, badly, late or not at all. Run
 * from the repository's root. */
#include "daemon/ctl/act.h"
#include "daemon/ctl/client.h"
#include "daemon/http/reader.h"
#include "tests/daemon/ctl/stub.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/zerod-ctl-XXXXXX";
static char path[64];

static void make_folder(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/job.sock", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

TestSuite(ctl_client, .init = make_folder, .fini = remove_folder);

static struct stub *start(enum stub_manner manner)
{
    struct stub *stub = stub_start(path, "tests/daemon/ctl/answers", manner);
    cr_assert(stub);
    return stub;
}

/* A job that says nothing is given up soon; one that answers may be slow to. */
static enum zd_status ask(
        const char *target, enum stub_manner manner, json_t **json)
{
    struct client_request request = {
            .job.socket = path,
            .method = "GET",
            .target = target,
            .timeout = manner == STUB_HANG ? 0.4 : 60};
    return client_json(&request, json);
}

static void check_code(const char *code)
{
    cr_assert_str_eq(zd_error_get()->code, code, "%s", zd_error_get()->what);
    zd_error_clear();
}

Test(ctl_client, every_framing_gives_the_same_answer)
{
    static const enum stub_manner manners[] = {
            STUB_PLAIN, STUB_CLOSE, STUB_DRIBBLE};
    json_t *first = NULL, *json;
    for (size_t i = 0; i < 3; i++) {
        struct stub *stub = start(manners[i]);
        cr_assert_eq(ask("/v1/status", manners[i], &json), ZD_OK);
        cr_assert(!first || json_equal(first, json));
        if (!first)
            first = json_incref(json);
        json_decref(json);
        stub_stop(stub);
    }
    cr_assert_eq(json_integer_value(json_object_get(first, "step")), 120);
    json_decref(first);
}

Test(ctl_client, no_answer_is_told_apart)
{
    static const struct {
        enum stub_manner manner;
        const char *says;
    } cases[] = {
            {STUB_HANG, "none came in"},
            {STUB_GARBAGE, "not HTTP"},
            {STUB_CUT, "broke off"},
            {STUB_DEAF, "closed"},
            {STUB_NO_JSON, "not a JSON object"}};
    json_t *json;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stub *stub = start(cases[i].manner);
        cr_assert_eq(ask("/v1/status", cases[i].manner, &json), ZD_ERR_UNFIT);
        cr_assert_null(json);
        cr_assert(
                strstr(zd_error_get()->what, cases[i].says), "%s",
                zd_error_get()->what);
        cr_assert(!client_job_is_gone());
        check_code("E1092");
        stub_stop(stub);
    }
}

Test(ctl_client, a_job_that_is_gone_is_told_apart)
{
    json_t *json;
    cr_assert_eq(ask("/v1/status", STUB_PLAIN, &json), ZD_ERR_NO_INPUT);
    cr_assert(client_job_is_gone());
    check_code("E1090");
    struct stub *stub = start(STUB_PLAIN);
    char kept[80];
    snprintf(kept, sizeof kept, "%s.kept", path);
    cr_assert_eq(link(path, kept), 0);
    stub_stop(stub);
    cr_assert_eq(rename(kept, path), 0); /* as a crash leaves it */
    cr_assert_eq(ask("/v1/status", STUB_PLAIN, &json), ZD_ERR_NO_INPUT);
    cr_assert(client_job_is_gone());
    check_code("E1090");
}

static enum zd_status post(enum stub_manner manner, const char *command)
{
    struct stub *stub = start(manner);
    char target[64];
    json_t *json;
    snprintf(target, sizeof target, "/v1/%s", command);
    struct client_request request = {
            .job.socket = path,
            .method = "POST",
            .target = target,
            .body = "{\"wait\":true}",
            .timeout = 60};
    enum zd_status status = client_json(&request, &json);
    json_decref(json);
    stub_stop(stub);
    return status;
}

Test(ctl_client, refusals_have_their_exit_codes)
{
    static const struct {
        enum stub_manner manner;
        const char *command, *code;
        int exit;
    } cases[] = {
            {STUB_READONLY, "pause", "E1093", 77},
            {STUB_BUSY, "pause", "E1087", 69},
            {STUB_FAILING, "checkpoint", "E1096", 69},
            {STUB_ENDING, "checkpoint", "E1096", 69},
            {STUB_PLAIN, "dance", "E1095", 64},
            {STUB_PLAIN, "pause", "", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(
                zd_exit_code(post(cases[i].manner, cases[i].command)),
                cases[i].exit);
        cr_assert(!strchr(zd_error_get()->help, '\033'));
        check_code(cases[i].code);
    }
}

Test(ctl_client, a_path_that_is_too_long_is_refused)
{
    char longer[300];
    json_t *json;
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    struct client_request request = {
            .job.socket = longer, .method = "GET", .target = "/v1"};
    cr_assert_eq(client_json(&request, &json), ZD_ERR_UNFIT);
    check_code("E1092");
}

/* --- the reader by itself --- */

static bool collect(void *ctx, const char *data, size_t bytes)
{
    strncat(ctx, data, bytes);
    return true;
}

/* The final state of an answer that arrives `step` bytes at a time. */
static enum http_reader_state read_in_pieces(
        const char *text, size_t step, char *body)
{
    struct http_reader *reader = calloc(1, sizeof *reader);
    size_t bytes = strlen(text);
    reader->sink = collect;
    reader->ctx = body;
    body[0] = '\0';
    for (size_t at = 0; at < bytes; at += step)
        if (!http_reader_take(
                    reader, text + at, step < bytes - at ? step : bytes - at))
            break;
    if (reader->state < HTTP_DONE)
        http_reader_end(reader);
    enum http_reader_state state = reader->state;
    free(reader);
    return state;
}

Test(ctl_client, an_answer_may_come_in_any_pieces)
{
    static const char text[] =
            "HTTP/1.0 200 OK\r\ncontent-length:  13 \nX: y\r\n\r\n"
            "abc0123456789 and more";
    char body[64];
    for (size_t step = 1; step < sizeof text; step++) {
        cr_assert_eq(read_in_pieces(text, step, body), HTTP_DONE);
        cr_assert_str_eq(body, "abc0123456789");
    }
}

Test(ctl_client, broken_answers_are_told)
{
    static const char *const texts[] = {
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 12x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"};
    char body[64];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (size_t step = 1; step < 40; step += 13)
            cr_assert_eq(
                    read_in_pieces(texts[i], step, body), HTTP_BROKEN, "%s",
                    texts[i]);
}

Test(ctl_client, an_endless_head_is_broken)
{
    size_t bytes = HTTP_HEAD_MAX * 2;
    char *text = malloc(bytes + 1), body[64];
    memset(text, 'a', bytes);
    memcpy(text, "HTTP/1.1 200 OK\r\nX: ", 20);
    text[bytes] = '\0';
    cr_assert_eq(read_in_pieces(text, 1000, body), HTTP_BROKEN);
    free(text);
}

/* --- set --- */

static char *settings(const char *const *words, int count)
{
    struct cli_args args = {.line.operand_count = count};
    json_t *body = json_object();
    char *text = NULL;
    memcpy(args.line.operands, words, (size_t)count * sizeof *words);
    if (act_parse_settings(&args, body) == ZD_OK)
        text = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(body);
    return text;
}

Test(ctl_client, settings_take_names_with_and_without_section)
{
    const char *words[] = {
            "optim.learning_rate=1e-4", "save_steps=5e1",
            "train.gradient_accumulation_steps=2"};
    char *text = settings(words, 3);
    cr_assert_str_eq(
            text, "{\"learning_rate\":0.0001,\"save_steps\":50,"
                  "\"gradient_accumulation_steps\":2}");
    free(text);
}

Test(ctl_client, settings_that_are_none_are_refused)
{
    static const char *const words[] = {
            "learning_rate",       "=3",
            "learning_rate=",      "learning_rate=nan",
            "learning_rate=1e-4x", "lerning_rate=1e-4",
            "save_steps=1.5",      "train.learning_rate=1",
            "optim.name=lion"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        cr_assert_null(settings(&words[i], 1), "%s", words[i]);
        cr_assert_eq(zd_exit_code(zd_error_get()->status), 64);
        zd_error_clear();
    }
    const char *twice[] = {"lr=1", "learning_rate=2"};
    cr_assert_null(settings(twice, 2));
}

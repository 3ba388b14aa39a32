/* test_routes.c - the routes without a socket: the cases of routes.txt, then
 * what no row can say. Streams keep what is sent when no connection takes it.
 */
#include "base/must.h"
#include "daemon/control/routes.h"
#include "daemon/http/server.h"
#include "daemon/state/messages.h"
#include "tests/support/fuzz.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

static struct {
    struct scratch scratch;
    struct train_job job;
    struct run_state *state;
    struct routes *routes;
    json_t *config;
    struct train_command posted; /* the last */
    int post_count, line;
    bool is_full, is_read;
    char last[16];
    struct http_reply reply;
} t;

static bool on_post(void *ctx, const struct train_command *command)
{
    t.posted = *command;
    t.post_count += !t.is_full;
    return !t.is_full;
}

static void open_routes(bool readonly)
{
    routes_destroy(t.routes);
    t.routes = routes_create(&(struct routes_options){
            .state = t.state, .readonly = readonly, .post = on_post});
}

static void setup(void)
{
    static const char config[] =
            "{\"values\": {"
            "\"log.logging_steps\": {\"value\": 10, \"origin\": \"default\"},"
            "\"optim.learning_rate\": {\"value\": 1, \"origin\": \"default\"},"
            "\"train.global_batch_size\": {\"value\": 8}}}";
    memset(&t, 0, sizeof t);
    scratch_init(&t.scratch);
    t.job = train_job_default();
    t.job.job.name = "case";
    t.job.job.run_name = "";
    t.job.job.output_dir = t.scratch.dir;
    t.config = json_loads(config, 0, NULL);
    t.state = run_state_create(&t.job, "/run/x.sock");
    t.state->config = t.config;
    open_routes(false);
    cr_assert_eq(fs_make_dirs(scratch_path(&t.scratch, "logs")), ZD_OK);
}

static void leave(void)
{
    http_stream_release(t.reply.stream);
    free(t.reply.body);
    memset(&t.reply, 0, sizeof t.reply);
    t.is_read = false;
}

static void teardown(void)
{
    leave();
    routes_destroy(t.routes);
    run_state_destroy(t.state);
    json_decref(t.config);
    scratch_fini(&t.scratch);
}

TestSuite(routes, .init = setup, .fini = teardown);

/* --- requests and replies --- */

static void ask(const char *method, const char *target, const char *body)
{
    char text[1024], *rest = text, *pair;
    leave();
    t.reply.status = 200;
    t.reply.content_type = "application/json";
    ZD_PRINT(text, "%s", target);
    struct http_request request = {
            .method = method,
            .target = target,
            .path = strsep(&rest, "?"),
            .body = body,
            .body_bytes = strlen(body),
            .last_event_id = t.last[0] ? t.last : NULL,
            .uid = 7,
            .pid = 8};
    while (request.param_count < HTTP_PARAMS_MAX &&
           (pair = strsep(&rest, "&"))) {
        request.param_names[request.param_count] = strsep(&pair, "=");
        request.param_values[request.param_count++] = pair ? pair : "";
    }
    routes_handle(t.routes, &request, &t.reply);
}

/* The body, or what was sent on the stream since the last one that was read.
 * Borrowed. */
static const char *text_of_reply(void)
{
    static char text[1 << 20];
    size_t bytes = t.reply.body_bytes;
    if (t.is_read)
        return text;
    t.is_read = true;
    if (t.reply.stream)
        bytes = http_stream_take(t.reply.stream, text, sizeof text - 1);
    else
        memcpy(text, t.reply.body ? t.reply.body : t.reply.static_body, bytes);
    text[bytes] = '\0';
    return text;
}

/* An error has a code, a message and, but for a 5xx, a hint. */
static void check_answer(int status, const char *code)
{
    cr_assert_null(t.reply.stream, "line %d", t.line);
    cr_expect_eq(t.reply.status, status, "line %d: %d", t.line, t.reply.status);
    if (!code)
        return;
    json_auto_t *json = json_loads(text_of_reply(), 0, NULL);
    json_t *error = json_object_get(json, "error");
    const char *own = json_string_at(error, "code");
    cr_expect(own && strcmp(own, code) == 0, "line %d: %s", t.line, own);
    cr_expect(json_string_at(error, "message")[0]);
    cr_expect(
            status >= 500 || json_string_at(error, "hint")[0], "line %d",
            t.line);
    cr_expect(status != 405 || t.reply.allow);
}

/* --- what happens --- */

/* Of a run that was resumed after step 40: with what was before. */
static void add_past(struct message_banner *banner)
{
    static const char *const samples[] = {
            "{\"id\":1,\"event\":\"sample\",\"step\":40,\"time\":5.5,"
            "\"prompt\":\"In\",\"text\":\" the\"}",
            "{\"id\":2,\"event\":\"sample\",\"step\":41,\"time\":6.5,"
            "\"prompt\":\"In\",\"text\":\" vain\"}"};
    banner->series = calloc(SERIES_MAX, sizeof *banner->series);
    banner->past = calloc(1, sizeof *banner->past);
    for (int i = 1; i <= 40; i++)
        history_add(&banner->series[run_series_find("train/loss")], i, i);
    for (int i = 0; i < 2; i++)
        past_add(
                banner->past, &(struct kept_event){
                                      .id = i + 1,
                                      .step = 40 + i,
                                      .kind = "sample",
                                      .text = (char *)samples[i]});
    banner->facts.first_step = 40;
    banner->facts.best_eval_loss = 2.25;
    banner->live.given[SET_LOGGING_STEPS] = true;
    banner->live.value[SET_LOGGING_STEPS] = 50;
    strcpy(banner->resumed_from, "out/checkpoint-000040");
}

static void take_banner(bool is_resumed, bool is_unable)
{
    struct message_banner banner = {
            .plan = json_pack(
                    "{s:i, s:{s:{s:s}}}", "world", 2, "layout", "fp8", "mode",
                    "tensorwise"),
            .facts.world = 2,
            .facts.per_device = 4,
            .facts.accumulation = 1,
            .facts.accumulation_max = 8,
            .facts.global_batch = 8,
            .facts.max_steps = 100,
            .facts.samples_per_epoch = 160,
            .facts.has_eval_data = !is_unable,
            .facts.eval_loss = NAN,
            .facts.best_eval_loss = NAN,
            .facts.settings = {0.5, 1, 1, 10, 500, NAN}};
    if (is_resumed)
        add_past(&banner);
    t.job.checkpoint.save_strategy = is_unable ? SAVE_EPOCH : SAVE_STEPS;
    t.job.eval.eval_strategy = is_unable ? EVAL_NO : EVAL_STEPS;
    run_state_take(t.state, MESSAGE_BANNER, &banner);
}

static void take_step(int64_t step)
{
    struct train_step_report report = {
            .step = step,
            .max_steps = 100,
            .loss = step == 2 ? NAN : 5,
            .learning_rate = 0.5,
            .tokens = 10,
            .step_seconds = 0.1,
            .settings = {0.5, 1, 1, 10, 500, NAN},
            .global_batch = 8};
    run_state_take(t.state, MESSAGE_STEP, &report);
}

static void take_stall(bool is_stalled)
{
    struct message_stall stall = {
            .is_stalled = is_stalled,
            .rank = 3,
            .step = 12,
            .time = 1000,
            .since = 990,
            .host = "host-b",
            .operation = "all_reduce #9"};
    run_state_take(t.state, MESSAGE_STALL, &stall);
}

/* `members`: ,"key":value.. */
static void take_event_at(
        double time, int64_t id, int64_t step, const char *kind,
        const char *members)
{
    char bytes[4096];
    struct message_event event = {.id = id, .step = step, .time = time};
    ZD_PRINT(event.kind, "%s", kind);
    memcpy(bytes, &event, sizeof event);
    snprintf(
            bytes + sizeof event, sizeof bytes - sizeof event,
            "{\"id\":%lld%s}", (long long)id, members);
    run_state_take(t.state, MESSAGE_EVENT, bytes);
}

static void take_event(
        int64_t id, int64_t step, const char *kind, const char *members)
{
    take_event_at(1000, id, step, kind, members);
}

/* "FROM TO KIND MEMBERS", with each number in place of %d. */
static void take_events(const char *rest)
{
    char members[200], kind[16];
    int from, to, used = 0;
    sscanf(rest, "%d %d %15s %n", &from, &to, kind, &used);
    for (int id = from; id <= to; id++) {
        ZD_PRINT(members, rest + used, id, id);
        take_event(id, id, kind, members);
    }
}

static void finish_command(enum zd_status status, const char *result)
{
    struct message_done done = {
            .command = t.posted,
            .step = 12,
            .failed = status != ZD_OK,
            .error =
                    {.status = status,
                     .what = "no space left",
                     .help = "make room"},
            .result = json_loads(result, 0, NULL)};
    run_state_take(t.state, MESSAGE_DONE, &done);
    routes_done(t.routes, &done);
    json_decref(done.result);
}

static void write_log(const char *rest, const char *mode)
{
    char name[80];
    const char *text = strchr(rest, ' ') + 1;
    ZD_PRINT(name, "logs/%.*s", (int)(text - 1 - rest), rest);
    FILE *file = fopen(scratch_path(&t.scratch, name), mode);
    fputs(text, file);
    fclose(file);
}

/* --- lines of routes.txt --- */

/* "METHOD TARGET [BODY] -> WANT"; *arrow: the last. */
static void take_request(char *line, char *arrow)
{
    char *rest = line, want[32] = "", code[32] = "";
    *arrow = '\0';
    sscanf(arrow + 4, "%31s %31s", want, code);
    char *method = strsep(&rest, " "), *target = strsep(&rest, " ");
    ask(method, target, rest ? rest : "");
    if (strcmp(want, "stream") == 0 || strcmp(want, "later") == 0)
        cr_assert_not_null(t.reply.stream, "line %d", t.line);
    else
        check_answer(atoi(want), code[0] ? code : NULL);
}

static bool is_near(const json_t *a, const json_t *b)
{
    return fabs(json_number_value(a) - json_number_value(b)) < 1e-9;
}

static void check_member(char *rest)
{
    char *equals = strstr(rest, " = "), *key;
    static json_t *root; /* of the body that was read last */
    *equals = '\0';
    json_auto_t *want = json_loads(equals + 3, JSON_DECODE_ANY, NULL);
    json_decref(root);
    json_t *at = root = json_loads(text_of_reply(), 0, NULL);
    while ((key = strsep(&rest, " ")))
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key))
                               : json_object_get(at, key);
    bool is_same = json_is_null(want) ? !at || json_is_null(at)
                   : json_is_number(want)
                           ? json_is_number(at) && is_near(at, want)
                           : json_equal(at, want);
    cr_expect(is_same, "line %d", t.line);
}

static bool take_check(const char *word, char *rest)
{
    if (strcmp(word, "at") == 0) {
        check_member(rest);
    } else if (strcmp(word, "came") == 0) {
        cr_expect_eq(t.reply.stream->status, atoi(rest), "line %d", t.line);
        cr_expect(t.reply.stream->is_finished, "line %d", t.line);
    } else {
        const char *kinds[] = {"lacks", "has", "is"};
        int kind = 2;
        while (kind >= 0 && strcmp(word, kinds[kind]) != 0)
            kind--;
        if (kind < 0)
            return false;
        const char *text = text_of_reply();
        cr_expect(
                kind == 2 ? strcmp(text, rest) == 0
                          : (strstr(text, rest) != NULL) == (kind == 1),
                "line %d: %s", t.line, text);
    }
    return true;
}

static bool take_setting(const char *word, const char *rest)
{
    if (strcmp(word, "readonly") == 0)
        open_routes(true);
    else if (strcmp(word, "full") == 0)
        t.is_full = true;
    else if (strcmp(word, "last") == 0)
        ZD_PRINT(t.last, "%s", rest);
    else
        return false;
    return true;
}

static void take_happening(const char *word, const char *rest)
{
    char members[200] = "", kind[16], name[16];
    double time = 1000;
    int id, step;
    if (strcmp(word, "banner") == 0 || strcmp(word, "resumed") == 0 ||
        strcmp(word, "unable") == 0) {
        take_banner(word[0] == 'r', word[0] == 'u');
    } else if (strcmp(word, "step") == 0) {
        take_step(atoi(rest));
    } else if (strcmp(word, "state") == 0) {
        sscanf(rest, "%15s %lf", name, &time);
        ZD_PRINT(members, ",\"state\":\"%s\"", name);
        take_event_at(time, 0, 1, "state", members);
    } else if (strcmp(word, "event") == 0) {
        sscanf(rest, "%d %d %15s %199[^\n]", &id, &step, kind, members);
        take_event(id, step, kind, members);
    } else if (strcmp(word, "events") == 0) {
        take_events(rest);
    } else if (strcmp(word, "stall") == 0 || strcmp(word, "moves") == 0) {
        take_stall(word[0] == 's');
    } else if (strcmp(word, "done") == 0) {
        finish_command(ZD_OK, rest);
    } else if (strcmp(word, "failed") == 0) {
        for (int status = 1; status < 64; status++)
            if (zd_exit_code((enum zd_status)status) == atoi(rest)) {
                finish_command((enum zd_status)status, "");
                return;
            }
        cr_assert(false, "line %d", t.line);
    } else if (strcmp(word, "tick") == 0) {
        usleep(3000);
        routes_tick(t.routes);
    } else if (strcmp(word, "end") == 0) {
        routes_end(t.routes);
    } else if (strcmp(word, "leave") == 0) {
        leave();
    } else if (strcmp(word, "log") == 0 || strcmp(word, "append") == 0) {
        write_log(rest, word[0] == 'l' ? "w" : "a");
    } else {
        cr_assert(false, "line %d: %s", t.line, word);
    }
}

/* \n and \xff, in place. */
static void unescape(char *text)
{
    char *out = text;
    for (; *text; text++, out++) {
        bool is_line = text[0] == '\\' && text[1] == 'n';
        bool is_byte = strncmp(text, "\\xff", 4) == 0;
        *out = is_line ? '\n' : is_byte ? (char)0xff : *text;
        text += is_line ? 1 : is_byte ? 3 : 0;
    }
    *out = '\0';
}

Test(routes, cases)
{
    ZD_FREED char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    bool has_begun = false;
    FILE *file = fopen("tests/daemon/control/routes.txt", "r");
    cr_assert(file);
    for (t.line = 1; (bytes = getline(&line, &room, file)) > 0; t.line++) {
        line[bytes - 1] = '\0';
        if (line[0] == '#')
            continue;
        if (strncmp(line, "== ", 3) == 0) {
            int at = t.line;
            teardown();
            setup();
            t.line = at;
            has_begun = true;
            continue;
        }
        cr_assert(has_begun);
        unescape(line);
        char *arrow = NULL, *rest = line;
        for (char *next = line; (next = strstr(next, " -> ")); next++)
            arrow = next;
        if (arrow) {
            take_request(line, arrow);
            continue;
        }
        const char *word = strsep(&rest, " ");
        rest = rest ? rest : line + strlen(line);
        if (take_check(word, rest))
            continue;
        t.is_read = false;
        if (!take_setting(word, rest))
            take_happening(word, rest);
    }
    fclose(file);
}

/* --- what no row can say --- */

Test(routes, deep_and_long_bodies_are_refused)
{
    static char body[65536];
    memset(body, '[', sizeof body - 1);
    ask("POST", "/v1/set", body);
    check_answer(400, "E_BAD_REQUEST");
    memset(body, 'a', sizeof body - 1);
    memcpy(body, "{\"prompt\": \"", 12);
    memcpy(body + sizeof body - 3, "\"}", 3);
    ask("POST", "/v1/sample", body);
    check_answer(400, "E_BAD_REQUEST");
    cr_expect_eq(t.post_count, 0);
}

Test(routes, parameters_of_commands_reach_the_trainer)
{
    take_banner(false, false);
    ask("POST", "/v1/stop", "{\"checkpoint\": false}");
    cr_expect_eq(t.posted.kind, COMMAND_STOP);
    cr_expect(t.posted.uid == 7 && t.posted.pid == 8 && !t.posted.save);
    ask("POST", "/v1/sample", "{\"prompt\": \"a b\", \"max_new_tokens\": 9}");
    cr_expect_str_eq(t.posted.prompt, "a b");
    cr_expect_eq(t.posted.max_new_tokens, 9);
    ask("POST", "/v1/profile", "");
    cr_expect_eq(t.posted.steps, 3);
    ask("POST", "/v1/set", "{\"learning_rate\": 1, \"max_grad_norm\": 0}");
    cr_expect(t.posted.given[SET_LEARNING_RATE]);
    cr_expect(t.posted.given[SET_MAX_GRAD_NORM]);
    cr_expect_not(t.posted.given[SET_SAVE_STEPS]);
    cr_expect_eq(t.posted.value[SET_LEARNING_RATE], 1.0);
}

Test(routes, a_long_replay_comes_in_parts_that_a_slow_reader_survives)
{
    char members[2001];
    memset(members, ' ', sizeof members - 1);
    members[sizeof members - 1] = '\0';
    for (int i = 1; i <= 2000; i++) /* 4 MB */
        take_event(i, 0, "sample", members);
    ask("GET", "/v1/events?since=0", "");
    size_t count = 0;
    for (int round = 0; round < 100 && count < 2000; round++) {
        cr_assert_leq(http_queued(t.reply.stream), (size_t)300 << 10);
        for (const char *at = text_of_reply(); (at = strstr(at, "\nevent: "));
             at++)
            count++;
        routes_tick(t.routes);
        t.is_read = false;
    }
    cr_expect_eq(count, 2000, "%zu", count);
}

/* --- requests that somebody broke --- */

enum { BROKEN_MAX = 900 };

/* A word in the place of some bytes. Returns how many there are. */
static size_t change(char *text, size_t bytes, uint64_t *state)
{
    static const char *const words[] = {"",        "\"",
                                        "{",       "}",
                                        "[",       "]",
                                        ",",       "null",
                                        "true",    "1e400",
                                        "-0",      "1e308",
                                        "-1",      "18446744073709551616",
                                        "&",       "=",
                                        "\\u0000", "\\ud800",
                                        "\xff",    "5m",
                                        "since=0", "?",
                                        "/v1/",    "wait",
                                        "max=",    "\xed\xa0\x80"};
    const char *word = words[fuzz_next(state) % (sizeof words / sizeof *words)];
    size_t at = (size_t)(fuzz_next(state) % (bytes + 1));
    size_t cut = (size_t)(fuzz_next(state) % 6), length = strlen(word);
    cut = cut < bytes - at ? cut : bytes - at;
    memmove(text + at + length, text + at + cut, bytes - at - cut + 1);
    memcpy(text + at, word, length);
    return bytes - cut + length;
}

static void ask_broken(const char *row, uint64_t *state)
{
    char text[BROKEN_MAX + 200], *rest = text;
    size_t bytes = strlen(row);
    int before = t.post_count;
    memcpy(text, row, bytes + 1);
    for (uint64_t n = fuzz_next(state) % 4; n < 4 && bytes < BROKEN_MAX; n++)
        bytes = change(text, bytes, state);
    const char *method = strsep(&rest, " ");
    const char *target = rest ? strsep(&rest, " ") : "";
    ask(method, target, rest ? rest : "");
    cr_expect(t.reply.stream || t.reply.status >= 200, "%s", text);
    if (!t.reply.stream && strstr(t.reply.content_type, "json")) {
        json_t *json = json_loads(text_of_reply(), JSON_DECODE_ANY, NULL);
        cr_expect(json, "%s", text_of_reply());
        json_decref(json);
    }
    if (t.post_count > before && fuzz_next(state) % 2)
        finish_command(ZD_OK, "{}");
    routes_tick(t.routes);
}

/* Each is answered, in JSON or on a stream, and nothing is left of it. */
Test(routes, requests_that_somebody_broke, .timeout = 60)
{
    enum { TIMES = 100 };
    char *line = NULL;
    size_t room = 0;
    uint64_t state = 20261121;
    FILE *file = fopen("tests/daemon/control/routes.txt", "r");
    take_banner(false, false);
    while (getline(&line, &room, file) > 0) {
        char *arrow = strstr(line, " -> ");
        if (!arrow || line[0] == '#')
            continue;
        *arrow = '\0';
        unescape(line);
        for (int i = 0; i < TIMES && strlen(line) < BROKEN_MAX; i++)
            ask_broken(line, &state);
    }
    free(line);
    fclose(file);
}

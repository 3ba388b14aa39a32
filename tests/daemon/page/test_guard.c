/* Who may pass the relay, and who may not. */
#include "daemon/page/guard.h"

#include <criterion/criterion.h>
#include <string.h>

static struct guard guard;
static char status[96], entry[80];

static void begin(void)
{
    cr_assert_eq(guard_init(&guard, 8321), ZD_OK);
    snprintf(status, sizeof status, "/%s/v1/status", guard.secret);
    snprintf(entry, sizeof entry, "/?token=%s", guard.token);
}

TestSuite(guard, .init = begin);

/* A target below the secret. */
static const char *inside(const char *target)
{
    static char text[256];
    snprintf(text, sizeof text, "/%s%s", guard.secret, target);
    return text;
}

/* A request that passes, changed by the caller. */
static struct http_request good(void)
{
    return (struct http_request){
            .method = "GET",
            .target = status,
            .host = "127.0.0.1:8321",
    };
}

static enum guard_verdict judge(struct http_request request)
{
    return guard_judge(&guard, &request);
}

Test(guard, the_secret_passes_for_paths_of_the_job)
{
    struct http_request request = good();
    cr_assert_eq(judge(request), GUARD_PASS);
    cr_assert_str_eq(guard_inside(&guard, status), "/v1/status");
    request.target = inside("/v1/logs?rank=1&follow=1");
    cr_assert_eq(judge(request), GUARD_PASS);
    request.target = inside("/");
    cr_assert_eq(judge(request), GUARD_PASS);
    request.method = "POST";
    request.target = inside("/v1/pause");
    request.origin = "http://localhost:8321";
    request.host = "LocalHost:8321";
    cr_assert_eq(judge(request), GUARD_PASS);
}

Test(guard, other_names_of_this_machine_are_refused)
{
    static const char *const hosts[] = {
            NULL,
            "",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:83210",
            "evil.example:8321",
            "127.0.0.1.evil.example:8321",
            "localhost.:8321",
            "[::1]:8321",
            "127.0.0.1:8321@evil",
            "user@127.0.0.1:8321"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        struct http_request request = good();
        request.host = hosts[i];
        cr_assert_eq(judge(request), GUARD_HOST, "%s", hosts[i]);
    }
}

Test(guard, requests_of_other_pages_are_refused)
{
    static const char *const origins[] = {
            "",
            "null",
            "http://evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:8322",
            "https://127.0.0.1:8321",
            "http://127.0.0.1:8321.evil.example",
            "http://127.0.0.1:8321/",
            "http://localhost:8321 http://evil.example"};
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        struct http_request request = good();
        request.origin = origins[i];
        cr_assert_eq(judge(request), GUARD_ORIGIN, "%s", origins[i]);
        request.target = entry;
        cr_assert_eq(judge(request), GUARD_ORIGIN, "%s", origins[i]);
    }
}

Test(guard, the_token_works_once)
{
    struct http_request request = good();
    request.target = entry;
    cr_assert_eq(judge(request), GUARD_ENTER);
    cr_assert_eq(judge(request), GUARD_UNKNOWN);
}

Test(guard, a_wrong_token_is_none_and_does_not_use_up_the_right_one)
{
    char wrong[sizeof entry + 1];
    struct http_request request = good();
    strcpy(wrong, entry);
    size_t last = strlen(wrong) - 1;
    wrong[last] = wrong[last] == '0' ? '1' : '0';
    request.target = wrong;
    cr_assert_eq(judge(request), GUARD_UNKNOWN);
    wrong[last] = '\0';
    cr_assert_eq(judge(request), GUARD_UNKNOWN);
    snprintf(wrong, sizeof wrong, "%s0", entry);
    cr_assert_eq(judge(request), GUARD_UNKNOWN);
    request.target = "/?token=";
    cr_assert_eq(judge(request), GUARD_UNKNOWN);
    request.target = entry;
    request.method = "POST";
    cr_assert_eq(judge(request), GUARD_UNKNOWN);
    request.method = "GET";
    cr_assert_eq(judge(request), GUARD_ENTER);
}

Test(guard, without_the_secret_nothing_passes)
{
    char text[200];
    struct http_request request = good();
    static const char *const bare[] = {"/v1/status", "/", "", "*", "//v1/status"};
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        request.target = bare[i];
        cr_assert_eq(judge(request), GUARD_UNKNOWN, "%s", bare[i]);
    }
    static const char *const forms[] = {
            "/%s0/v1/status", "/%.63s/v1/status", "%s/v1/status",
            "//%s/v1/status", "/%s",              "/%s?/v1/status",
            "/%s%%2fv1/status"};
    request.target = text;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, forms[i], guard.secret);
#pragma GCC diagnostic pop
        cr_assert_eq(judge(request), GUARD_UNKNOWN, "%s", text);
    }
    snprintf(text, sizeof text, "/%s/v1/status", guard.token);
    cr_assert_eq(judge(request), GUARD_UNKNOWN);
}

Test(guard, only_paths_of_the_job_are_asked_for)
{
    static const char *const targets[] = {
            "/favicon.ico",
            "/v1/",
            "/v2/status",
            "/v1/status/",
            "/v1%2fstatus",
            "//v1/status",
            "/v1/../v1/set",
            "/v1/status\r\n",
            "/v1/status?a=\x01",
            "/v1/logs?a= b",
            "/v1/logs?\xc3"};
    struct http_request request = good();
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        request.target = inside(targets[i]);
        cr_assert_eq(judge(request), GUARD_PATH, "%s", targets[i]);
    }
    request.target = inside("/v1/pause");
    cr_assert_eq(judge(request), GUARD_METHOD);
    request.target = status;
    request.method = "DELETE";
    cr_assert_eq(judge(request), GUARD_METHOD);
}

Test(guard, no_two_relays_have_the_same_secrets)
{
    struct guard other;
    cr_assert_eq(guard_init(&other, 8321), ZD_OK);
    cr_assert_eq(strlen(other.token), 2 * GUARD_TOKEN_BYTES);
    cr_assert_eq(strlen(other.secret), 2 * GUARD_SECRET_BYTES);
    cr_assert_str_neq(other.token, guard.token);
    cr_assert_str_neq(other.secret, guard.secret);
}

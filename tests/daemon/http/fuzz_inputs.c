/* fuzz_inputs.c - requests, sound and odd, and mutations of them. */
#include "tests/daemon/http/fuzz_inputs.h"

#include <string.h>

#define HEAD " HTTP/1.1\r\nHost: z\r\n"

static const char *const seeds[] = {
        "\001GET /v1",
        "\001GET /v1/status",
        "\001GET /v1/ranks",
        "\001GET /v1/memory",
        "\001GET /v1/metrics/history?name=train/loss,eval/loss&since=3&max=7",
        "\001GET /v1/events?follow=0&since=0",
        "\001GET /v1/events",
        "\001GET /v1/logs?rank=0&since=5m&tail=10&follow=1",
        "\001GET /v1/config",
        "\001GET /v1/samples?max=3",
        "\001GET /v1/plan",
        "\001GET /healthz",
        "\001GET /readyz",
        "\001GET /metrics",
        "\001GET /",
        "\001GET /%41%00%ff+?a=%20&b",
        "\001POST /v1/checkpoint\n{\"wait\": true}",
        "\001POST /v1/eval\n{\"wait\": false}",
        "\001POST /v1/sample\n{\"prompt\": \"\\u00e9 \\ud83d\\ude00 a\", "
        "\"max_new_tokens\": 8, \"wait\": true}",
        "\001POST /v1/pause\n{\"wait\": true}",
        "\001POST /v1/resume\n{}",
        "\001POST /v1/stop\n{\"checkpoint\": false, \"timeout\": 0.5, "
        "\"wait\": true}",
        "\001POST /v1/set\n{\"learning_rate\": 1e-4, \"max_grad_norm\": 0, "
        "\"gradient_accumulation_steps\": 4, \"logging_steps\": 1, "
        "\"save_steps\": 10, \"eval_steps\": 10}",
        "\001POST /v1/set\n{\"learning_rate\": 1e999, \"logging_steps\": "
        "-9223372036854775809}",
        "\001POST /v1/profile\n{\"steps\": 3}",
        "\001PUT /v1/set\n[[[[[[[[]]]]]]]]",
        "\040GET /v1/status" HEAD "\r\nGET /v1" HEAD "\r\n",
        "\040POST /v1/eval" HEAD "Content-Length: 14\r\n\r\n{\"wait\": true}",
        "\040POST /v1/eval" HEAD "Expect: 100-continue\r\nContent-Length: 2\r\n"
        "\r\n{}",
        "\040POST /v1/eval" HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
        "0\r\n\r\n",
        "\040GET /v1/events" HEAD "Last-Event-ID: 7\r\nAccept: text/event-"
        "stream\r\n\r\n",
        "\040GET /metrics" HEAD "Accept: application/openmetrics-text\r\n"
        "Connection: close\r\nCookie: a=b; c=\"d\"\r\n X: folded\r\n\r\n",
        "\040GET http://z/v1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
};

/* clang-format off */
static const char *const words[] = {
        "\r\n", "\r\n\r\n", "\n", " ", ":", "?", "&", "=", "%00", "%2f", "%",
        "{", "}", "[", "]", "\"", "\\", "\\u0000", "\\ud800", ",", "null",
        "true", "1e400", "-0", "18446744073709551616", "0x10", "NaN", "wait",
        "\"wait\": true", "since", "max", "HTTP/1.1", "HTTP/1.0", "GET ",
        "POST ", "/v1/", "Content-Length: 5\r\n", "Content-Length: 65537\r\n",
        "Transfer-Encoding: chunked\r\n", "Connection: close\r\n",
        "Last-Event-ID: 1\r\n", "Expect: 100-continue\r\n", "\xff\xfe",
        "\xc3\xa9", "\xed\xa0\x80", "\x7f", "+", "#", "..", "/", "5m", "-1"};
/* clang-format on */

static uint64_t random_state;

void fuzz_begin(uint64_t seed)
{
    random_state = seed;
}

const char *fuzz_seed(int i)
{
    return (size_t)i < sizeof seeds / sizeof *seeds ? seeds[i] : NULL;
}

static uint32_t pick(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return below ? (uint32_t)(random_state >> 33) % below : 0;
}

/* Replace `cut` bytes at `at` by `part`. */
static size_t put_part(
        uint8_t *input, size_t bytes, size_t at, size_t cut, const void *part,
        size_t part_bytes)
{
    if (cut > bytes - at)
        cut = bytes - at;
    if (bytes - cut + part_bytes > INPUT_MAX)
        return bytes;
    memmove(input + at + part_bytes, input + at + cut, bytes - at - cut);
    memcpy(input + at, part, part_bytes);
    return bytes - cut + part_bytes;
}

static size_t repeat_part(uint8_t *input, size_t bytes, size_t at)
{
    uint8_t part[64];
    size_t part_bytes = 1 + pick(sizeof part - 1);
    if (part_bytes > bytes - at)
        part_bytes = bytes - at;
    memcpy(part, input + at, part_bytes);
    uint32_t times = pick(8) ? pick(20) : pick(2500);
    while (times--)
        bytes = put_part(input, bytes, at, 0, part, part_bytes);
    return bytes;
}

static size_t mutate(uint8_t *input, size_t bytes)
{
    size_t at = 1 + pick((uint32_t)bytes - 1);
    uint8_t byte = (uint8_t)pick(256);
    const char *word = words[pick(sizeof words / sizeof *words)];
    const char *seed = seeds[pick(sizeof seeds / sizeof *seeds)];
    size_t from = pick((uint32_t)strlen(seed));
    switch (pick(8)) {
    case 0:
        input[at] ^= (uint8_t)(1 << pick(8));
        return bytes;
    case 1:
        return put_part(input, bytes, at, 1, &byte, 1);
    case 2:
        return put_part(input, bytes, at, pick(16), "", 0);
    case 3:
        return repeat_part(input, bytes, at);
    case 4:
        return put_part(
                input, bytes, at, pick(64), seed + from, strlen(seed) - from);
    default:
        return put_part(input, bytes, at, pick(4), word, strlen(word));
    }
}

size_t fuzz_make_input(uint8_t *input)
{
    const char *seed = seeds[pick(sizeof seeds / sizeof *seeds)];
    size_t bytes = strlen(seed);
    memcpy(input, seed, bytes);
    input[0] = (uint8_t)((input[0] & HOW_FRAMED) | (pick(32) << 1));
    for (uint32_t i = pick(6); i > 0 && bytes > 2; i--)
        bytes = mutate(input, bytes);
    return bytes;
}
